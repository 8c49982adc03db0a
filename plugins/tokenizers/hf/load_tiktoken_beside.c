/* SPDX-License-Identifier: Apache-2.0 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "load.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a tiktoken file does not have, for folders of Hugging Face: the expression that cuts texts into
 * words, and the special tokens. They are code there, in Python, so the classes that are known are
 * here, by the name in tokenizer_config.json. */

typedef struct tiktoken_class {
    const char *name;
    hf_tiktoken_rule rule;
    const char *marker; /* what the class's source has, if it has that expression */
} tiktoken_class;

#define KIMI                                                                                       \
    {"kimi", false, HF_RESERVED_KIMI, "[BOS]", "[EOS]"},                                           \
        "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?"

static const tiktoken_class tiktoken_classes[] = {
    {"TikTokenTokenizer",                                                     KIMI}, /* Kimi K2, Moonlight */
    {               "Kimi2_6Tokenizer",                                                                   KIMI    },
    { "QWenTokenizer", /* Qwen 1 */
     {"qwen2", true, HF_RESERVED_QWEN, NULL, "<|endoftext|>"},
     "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"},
    { "ChatGLM4Tokenizer",                                                            {"llama3", false, HF_RESERVED_NONE, NULL, "<|endoftext|>"},                                                                "p{N}{1,3}"},
};

/* The file of the class, "tokenization_x.py" of "tokenization_x.Class"; NULL: it is not in the folder. */
static char *source_of(const char *path, const json_t *config)
{
    const json_t *map = json_object_get(json_object_get(config, "auto_map"), "AutoTokenizer");
    const char *at = hf_text_of(json_is_array(map) ? json_array_get(map, 0) : map);
    const char *dot = at ? strrchr(at, '.') : NULL;
    char name[128];
    if (!dot || dot - at > 100 || memchr(at, '/', (size_t)(dot - at)))
        return NULL;
    snprintf(name, sizeof name, "%.*s.py", (int)(dot - at), at);
    return hf_path_beside(path, name);
}

/* A class of this name may have another expression. */
static tt_status check_source(const hf_tokenizer *t, const json_t *config, const tiktoken_class *c,
                              tt_error *err)
{
    char *path = source_of(t->path, config), *text = NULL;
    size_t n = 0;
    tt_status s = path ? hf_read_file(path, false, &text, &n, err) : TT_OK;
    if (s == TT_OK && text && !memmem(text, n, c->marker, strlen(c->marker)))
        s = TT_FAIL(err, TT_EUNSUPPORTED,
                    "%s: it cuts texts into words by another expression than the %s that is known; "
                    "set tokenizer.pattern to that expression",
                    path, c->name);
    free(text);
    free(path);
    return s;
}

tt_status hf_tiktoken_rule_of(const hf_tokenizer *t, const hf_configs *c, hf_tiktoken_rule *out,
                              tt_error *err)
{
    const json_t *config = c ? c->roots[HF_TOKENIZER_CONFIG] : NULL;
    const char *name = hf_text_of(json_object_get(config, "tokenizer_class"));
    for (size_t i = 0; name && i < TT_COUNT(tiktoken_classes); i++)
        if (strcmp(name, tiktoken_classes[i].name) == 0) {
            *out = tiktoken_classes[i].rule;
            return check_source(t, config, &tiktoken_classes[i], err);
        }
    if (name)
        return TT_FAIL(
            err, TT_EUNSUPPORTED,
            "%s: a tiktoken file does not contain its pattern, and that of tokenizer_class "
            "\"%.60s\" is not known; set tokenizer.pattern to cl100k, o200k, llama3, qwen2, "
            "kimi, … or to the expression in the class's source",
            t->path, name);
    return TT_FAIL(err, TT_EINVAL,
                   "%s: a tiktoken file does not contain its pattern; set tokenizer.pattern to "
                   "cl100k, o200k, gpt2, llama3, … or an expression",
                   t->path);
}

/* ---- special tokens ---- */

/* The class's own special tokens: the ids from the first one behind the ranks on. */
static tt_status own_tokens(hf_reserved kind, size_t first, json_t *out, tt_error *err)
{
    static const char *const qwen[] = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    const size_t counts[] = {[HF_RESERVED_KIMI] = 256,
                             [HF_RESERVED_QWEN] = TT_COUNT(qwen) + 205,
                             [HF_RESERVED_NONE] = 0};
    for (size_t i = 0; i < counts[kind]; i++) {
        char text[64];
        if (kind == HF_RESERVED_KIMI)
            snprintf(text, sizeof text, "<|reserved_token_%zu|>", first + i);
        else if (i < TT_COUNT(qwen))
            snprintf(text, sizeof text, "%s", qwen[i]);
        else
            snprintf(text, sizeof text, "<|extra_%zu|>", i - TT_COUNT(qwen));
        if (json_array_append_new(out, json_pack("{s:I, s:s, s:b}", "id", (json_int_t)(first + i),
                                                 "content", text, "special", 1)) != 0)
            return TT_FAIL(err, TT_ENOMEM, "out of memory for special tokens");
    }
    return TT_OK;
}

typedef struct ranks_and_own {
    const hf_vocab *v;
    const json_t *own;
} ranks_and_own;

static json_int_t rank_or_own(void *arg, const char *text, size_t n)
{
    const ranks_and_own *x = arg;
    const json_t *item;
    size_t i;
    if (!text)
        return -1;
    json_array_foreach(x->own, i, item)
    {
        const json_t *content = json_object_get(item, "content");
        if (json_string_length(content) == n && !memcmp(json_string_value(content), text, n))
            return json_integer_value(json_object_get(item, "id"));
    }
    return hf_vocab_word(x->v, (const uint8_t *)text, n);
}

static json_int_t id_of_item(const json_t *item)
{
    return json_integer_value(json_object_get(item, "id"));
}

/* The own tokens with the texts that the files give to their ids, then the files' other tokens. */
static tt_status join_lists(const json_t *own, const json_t *added, json_t *out, tt_error *err)
{
    const size_t n = json_array_size(own);
    const json_int_t first = n ? id_of_item(json_array_get(own, 0)) : 0;
    json_t *item;
    size_t i;
    int failed = json_array_extend(out, (json_t *)own);
    json_array_foreach((json_t *)added, i, item)
    {
        const json_int_t at = id_of_item(item) - first;
        failed |= at >= 0 && at < (json_int_t)n ? json_array_set(out, (size_t)at, item)
                                                : json_array_append(out, item);
    }
    return failed ? TT_FAIL(err, TT_ENOMEM, "out of memory for special tokens") : TT_OK;
}

static tt_status tiktoken_put_added(hf_tokenizer *t, const hf_file *f, const json_t *list,
                                    hf_digest *d)
{
    hf_vocab *v = &t->vocab;
    const json_t *item;
    const size_t first = v->n_ids;
    size_t i, top = first;
    json_array_foreach(list, i, item) top =
        (size_t)id_of_item(item) < top ? top : (size_t)id_of_item(item) + 1;
    hf_token *more = realloc(v->tokens, top * sizeof *more);
    json_t *none = json_object();
    tt_status s = more && none
                      ? TT_OK
                      : TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for %zu ids", f->name, top);
    if (more) {
        memset(more + first, 0, (top - first) * sizeof *more);
        v->tokens = more;
    }
    if (s == TT_OK) {
        v->n_ids = top;
        s = hf_load_added(t, f, list, none, (json_int_t)first, d);
    }
    json_decref(none);
    return s;
}

tt_status hf_tiktoken_added(hf_tokenizer *t, const hf_file *f, const hf_tiktoken_rule *rule,
                            const hf_configs *c, hf_digest *d)
{
    json_t *own = json_array(), *added = NULL, *all = json_array();
    ranks_and_own x = {&t->vocab, own};
    tt_status s = own && all ? own_tokens(rule->reserved, t->vocab.n_ids, own, f->err)
                             : TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory", f->name);
    hf_beside b = {t->path, rank_or_own, NULL, &x, t->vocab.n_ids + json_array_size(own), 0};
    if (s == TT_OK)
        s = hf_added_beside(&b, c, &added, f->err);
    if (s == TT_OK)
        s = join_lists(own, added, all, f->err);
    if (s == TT_OK && json_array_size(all))
        s = tiktoken_put_added(t, f, all, d);
    if (s == TT_OK && rule->bos)
        t->bos = hf_find_token(t, rule->bos, strlen(rule->bos));
    if (s == TT_OK && rule->eos)
        t->eos = hf_find_token(t, rule->eos, strlen(rule->eos));
    json_decref(own);
    json_decref(added);
    json_decref(all);
    return s;
}
