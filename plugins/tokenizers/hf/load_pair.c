/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"
#include <stdlib.h>
#include <string.h>

/* A tokenizer from vocab.json and merges.txt, as folders of before tokenizer.json have them, and what
 * lies beside them. They do not say how texts are cut into words: that depends on the class that
 * tokenizer_config.json names, or, in the oldest folders, on config.json's model_type. What they make
 * together is a tokenizer.json, which is loaded as one. */

typedef struct pair_class {
    const char *name;  /* without "Fast" */
    const char *types; /* the model_types that transformers opens with it, separated by blanks */
    const char *bos, *eos; /* its special tokens where no file names any; NULL: none */
    const char *pad;
    bool qwen2; /* NFC and Qwen2's expression; else GPT-2's */
} pair_class;

static const char end_of_text[] = "<|endoftext|>";
static const pair_class pair_classes[] = {
    {"GPT2Tokenizer",    " gpt2 gpt_neo gptj gpt_bigcode opt ", end_of_text, end_of_text, NULL,        false},
    {"CodeGenTokenizer", " codegen phi ",                       end_of_text, end_of_text, NULL,        false},
    {"Qwen2Tokenizer",   " qwen2 qwen2_moe qwen3 qwen3_moe ",   NULL,        end_of_text, end_of_text, true },
};

/* Whether a list that is separated by blanks holds the word. */
static bool lists(const char *words, const char *word)
{
    const size_t n = strlen(word);
    for (const char *p = strstr(words, word); p && n; p = strstr(p + 1, word))
        if (p[-1] == ' ' && p[n] == ' ')
            return true;
    return false;
}

static bool is_class(const char *name, const char *class)
{
    const size_t n = strlen(class);
    return strncmp(name, class, n) == 0 && (!name[n] || strcmp(name + n, "Fast") == 0);
}

static tt_status pair_read_beside(const char *path, const char *name, json_t **out, tt_error *err)
{
    char *file = hf_path_beside(path, name), *text = NULL;
    size_t n = 0;
    *out = NULL;
    if (!file)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a path");
    tt_status s = hf_read_file(file, false, &text, &n, err);
    if (s == TT_OK && text)
        s = hf_read_json(file, text, n, out, err);
    free(text);
    free(file);
    return s;
}

/* The class by its name, or by the model's type: GPT-2's where nothing names either. */
static tt_status find_class(const hf_file *f, const json_t *config, const json_t *model,
                            const pair_class **out)
{
    const char *name = hf_text_of(json_object_get(config, "tokenizer_class"));
    const char *type = hf_text_of(json_object_get(model, "model_type"));
    if (!name)
        name = hf_text_of(json_object_get(model, "tokenizer_class"));
    for (size_t i = 0; i < TT_COUNT(pair_classes); i++) {
        const pair_class *c = &pair_classes[i];
        if (name ? is_class(name, c->name) : !type || lists(c->types, type)) {
            *out = c;
            return TT_OK;
        }
    }
    return TT_FAIL(
        f->err, TT_EUNSUPPORTED,
        "%s: %s \"%.60s\" does not say how texts are cut into words; if it is as in GPT-2 "
        "or in Qwen2, write \"tokenizer_class\": \"GPT2Tokenizer\" or \"Qwen2Tokenizer\" "
        "into tokenizer_config.json",
        f->name, name ? "the tokenizer_class" : "the model_type", name ? name : type);
}

/* ---- special tokens that no file names ---- */

static json_int_t pair_id(void *arg, const char *text, size_t n)
{
    const json_t *id = text ? json_object_getn(arg, text, n) : NULL;
    return id ? json_integer_value(id) : -1;
}

/* Names the class's own special tokens, where the vocabulary has them and the files say nothing. */
static tt_status name_defaults(const pair_class *class, json_t *vocab, hf_configs *c, tt_error *err)
{
    const struct {
        const char *key, *text;
    } rows[] = {
        {"bos_token", class->bos},
        {"eos_token", class->eos},
        {"pad_token", class->pad}
    };
    json_t **config = &c->roots[HF_TOKENIZER_CONFIG];
    if (!*config && !(*config = json_object()))
        return TT_FAIL(err, TT_ENOMEM, "out of memory for special tokens");
    for (size_t i = 0; i < TT_COUNT(rows); i++)
        if (rows[i].text && pair_id(vocab, rows[i].text, strlen(rows[i].text)) >= 0 &&
            !json_object_get(*config, rows[i].key) &&
            !json_object_get(c->roots[HF_SPECIAL_MAP], rows[i].key) &&
            json_object_set_new(*config, rows[i].key, json_string(rows[i].text)) != 0)
            return TT_FAIL(err, TT_ENOMEM, "out of memory for special tokens");
    return TT_OK;
}

/* ---- merges.txt ---- */

/* A merge a line; the first line tells the version. */
static tt_status pair_read_merges(const hf_file *f, const char *text, size_t n, json_t *out)
{
    const char *const end = text + n;
    for (const char *s = text, *stop; s < end; s = stop + 1) {
        const char *newline = memchr(s, '\n', (size_t)(end - s));
        stop = newline ? newline : end;
        const char *last = stop > s && stop[-1] == '\r' ? stop - 1 : stop;
        const bool version = last - s >= 8 && memcmp(s, "#version", 8) == 0;
        if (last == s || version)
            continue;
        json_t *line = json_stringn(s, (size_t)(last - s));
        if (!line)
            return HF_FAIL(f, "%s: merge %zu is not UTF-8", f->merges, json_array_size(out) + 1);
        if (json_array_append_new(out, line) != 0)
            return TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for merges", f->merges);
    }
    return TT_OK;
}

static tt_status load_merges_file(const hf_file *f, json_t **out)
{
    char *text = NULL;
    size_t n = 0;
    tt_status s = hf_read_file(f->merges, false, &text, &n, f->err);
    if (s == TT_OK && !text)
        s = TT_FAIL(f->err, TT_ENOTFOUND,
                    "%s: a vocabulary without merges.txt beside it is not a tokenizer", f->name);
    if (s == TT_OK && !(*out = json_array()))
        s = TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for merges", f->merges);
    if (s == TT_OK)
        s = pair_read_merges(f, text, n, *out);
    free(text);
    return s;
}

/* ---- the whole ---- */

static json_t *pair_pre_tokenizer(const pair_class *class, const json_t *config)
{
    const bool prefix = json_is_true(json_object_get(config, "add_prefix_space"));
    json_t *level = json_pack("{s:s, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", prefix,
                              "use_regex", !class->qwen2);
    if (!class->qwen2)
        return level;
    return json_pack("{s:s, s:[{s:s, s:{s:s}, s:s}, o]}", "type", "Sequence", "pretokenizers",
                     "type", "Split", "pattern", "Regex", hf_pattern_named("qwen2")->regex,
                     "behavior", "Isolated", level);
}

static tt_status pair_load_root(hf_tokenizer *t, const hf_file *f, const pair_class *class,
                                const hf_configs *c, json_t *vocab, json_t *merges, hf_digest *d)
{
    hf_beside b = {t->path, pair_id, NULL, vocab, json_object_size(vocab), 0};
    json_t *added = NULL, *root = NULL;
    tt_status s = hf_added_beside(&b, c, &added, f->err);
    if (s == TT_OK) {
        root = json_pack("{s:O*, s:o, s:o, s:{s:s, s:O, s:O}}", "added_tokens", added, "normalizer",
                         class->qwen2 ? json_pack("{s:s}", "type", "NFC") : json_null(),
                         "pre_tokenizer", pair_pre_tokenizer(class, c->roots[HF_TOKENIZER_CONFIG]),
                         "model", "type", "BPE", "vocab", vocab, "merges", merges);
        s = root ? hf_load_root(t, f, root, d)
                 : TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory", f->name);
    }
    json_decref(root);
    json_decref(added);
    return s;
}

tt_status hf_load_pair(hf_tokenizer *t, const char *text, size_t n, hf_configs *c, hf_digest *d,
                       tt_error *err)
{
    char *path = hf_path_beside(t->path, "merges.txt");
    const hf_file f = {t->path, err, path};
    const pair_class *class = NULL;
    json_t *vocab = NULL, *merges = NULL, *model = NULL;
    tt_status s = path ? TT_OK : TT_FAIL(err, TT_ENOMEM, "out of memory for a path");
    if (s == TT_OK)
        s = load_merges_file(&f, &merges);
    if (s == TT_OK)
        s = pair_read_beside(t->path, "config.json", &model, err);
    if (s == TT_OK)
        s = find_class(&f, c->roots[HF_TOKENIZER_CONFIG], model, &class);
    if (s == TT_OK)
        s = hf_read_json(t->path, text, n, &vocab, err);
    if (s == TT_OK)
        s = name_defaults(class, vocab, c, err);
    if (s == TT_OK)
        s = pair_load_root(t, &f, class, c, vocab, merges, d);
    json_decref(vocab);
    json_decref(merges);
    json_decref(model);
    free(path);
    return s;
}
