/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/formats/gguf.h"
#include "config/config.h"
#include <stdlib.h>
#include <string.h>

/* Writes a byte-level BPE tokenizer.json as GGUF keys. GGUF does not hold the splitting pattern:
 * llama.cpp has patterns in its code and picks one by the name in tokenizer.ggml.pre. With a wrong
 * name it would split texts differently and give no error, so a pattern that is not in the table
 * below is refused. */

#define MAX_BYTES ((size_t)1 << 30)

/* llama.cpp's token types. */
enum { NORMAL = 1, CONTROL = 3, USER_DEFINED = 4, UNUSED = 5 };

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define LLAMA3(number) CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" number REST
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define TEKKEN                                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER            \
    "*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"                                       \
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|"        \
    "\\s+(?!\\S)|\\s+"

static const struct {
    const char *pattern, *pre;
} patterns[] = {
    {"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", "gpt-2"      },
    {LLAMA3("\\p{N}{1,3}"),                                                                "llama-bpe"  },
    {LLAMA3("\\p{N}"),                                                                     "qwen2"      },
    {TEKKEN,                                                                               "tekken"     },
    {DEEPSEEK3,                                                                            "deepseek-v3"}
};

/* The character at *p of an expression: \r, \n and \t as escapes are what they stand for. */
static int expression_char(const char **p)
{
    const char c = *(*p)++;
    if (c != '\\')
        return c;
    const char e = **p;
    *p += e != '\0';
    return e == 'r' ? '\r' : e == 'n' ? '\n' : e == 't' ? '\t' : 256 + (unsigned char)e;
}

static bool same_expression(const char *a, const char *b)
{
    while (*a && *b)
        if (expression_char(&a) != expression_char(&b))
            return false;
    return *a == *b;
}

static const char *text_of(const tt_json *v)
{
    return v && v->type == TT_JSON_STRING ? v->string : "";
}

static const char *pre_of(const tt_json *part)
{
    const char *type = text_of(tt_json_get(part, "type"));
    if (!strcmp(type, "Sequence")) { /* the last known pattern decides; DeepSeek has three */
        const tt_json *list = tt_json_get(part, "pretokenizers");
        const char *found = NULL;
        for (size_t i = 0; list && list->type == TT_JSON_ARRAY && i < list->n; i++)
            if (pre_of(list->items[i]))
                found = pre_of(list->items[i]);
        return found;
    }
    const tt_json *regex = tt_json_get(part, "use_regex");
    if (!strcmp(type, "ByteLevel"))
        return regex && regex->type == TT_JSON_BOOL && !regex->boolean ? NULL : patterns[0].pre;
    const char *text = text_of(tt_json_get(tt_json_get(part, "pattern"), "Regex"));
    for (size_t i = 0; !strcmp(type, "Split") && i < TT_COUNT(patterns); i++)
        if (same_expression(text, patterns[i].pattern))
            return patterns[i].pre;
    return NULL;
}

typedef struct vocab {
    const char *path;
    tt_arena *arena;
    const char **tokens;
    int32_t *types;
    int64_t n;
} vocab;

static tt_status put_token(vocab *v, const tt_json *id, const char *text, int32_t type,
                           tt_error *err)
{
    if (!id || id->type != TT_JSON_INT || id->integer < 0 || id->integer >= v->n)
        return TT_FAIL(err, TT_EFORMAT,
                       "%s: token '%.40s' has no id from 0 to below the model's %lld", v->path,
                       text, (long long)v->n);
    v->tokens[id->integer] = text;
    v->types[id->integer] = type;
    return TT_OK;
}

static tt_status read_tokens(vocab *v, const tt_json *root, tt_error *err)
{
    const tt_json *words = tt_json_get(tt_json_get(root, "model"), "vocab");
    const tt_json *added = tt_json_get(root, "added_tokens");
    if (!words || words->type != TT_JSON_OBJECT)
        return TT_FAIL(err, TT_EFORMAT, "%s: model.vocab: expected an object", v->path);
    for (size_t i = 0; i < words->n; i++)
        TT_TRY(put_token(v, words->items[i], words->keys[i], NORMAL, err));
    for (size_t i = 0; added && added->type == TT_JSON_ARRAY && i < added->n; i++) {
        const tt_json *special = tt_json_get(added->items[i], "special"),
                      *id = tt_json_get(added->items[i], "id");
        const bool control = special && special->type == TT_JSON_BOOL && special->boolean;
        if (control && id && id->type == TT_JSON_INT && id->integer >= v->n)
            continue; /* the model has no row for it */
        TT_TRY(put_token(v, id, text_of(tt_json_get(added->items[i], "content")),
                         control ? CONTROL : USER_DEFINED, err));
    }
    for (int64_t i = 0; i < v->n; i++)
        if (!v->tokens[i])
            v->tokens[i] = tt_arena_printf(v->arena, "[PAD%lld]", (long long)i);
    return TT_OK;
}

/* A merge is "a b" or ["a", "b"]. */
static tt_status read_merges(vocab *v, const tt_json *root, const char ***out, size_t *n,
                             tt_error *err)
{
    const tt_json *list = tt_json_get(tt_json_get(root, "model"), "merges");
    if (!list || list->type != TT_JSON_ARRAY)
        return TT_FAIL(err, TT_EFORMAT, "%s: model.merges: expected a list", v->path);
    *n = list->n;
    *out = tt_arena_array(v->arena, list->n + 1, sizeof **out);
    for (size_t i = 0; i < list->n; i++) {
        const tt_json *m = list->items[i];
        if (m->type == TT_JSON_STRING)
            (*out)[i] = m->string;
        else if (m->type == TT_JSON_ARRAY && m->n == 2)
            (*out)[i] =
                tt_arena_printf(v->arena, "%s %s", text_of(m->items[0]), text_of(m->items[1]));
        else
            return TT_FAIL(err, TT_EFORMAT, "%s:%d:%d: model.merges: expected \"a b\" or two texts",
                           v->path, m->line, m->column);
    }
    return TT_OK;
}

static tt_status check_kind(const char *path, const tt_json *root, const char **pre, tt_error *err)
{
    const tt_json *model = tt_json_get(root, "model"), *bytes = tt_json_get(model, "byte_fallback");
    const char *type = text_of(tt_json_get(model, "type"));
    const tt_json *pieces = tt_json_get(model, "vocab");
    if (!*type && pieces && pieces->type == TT_JSON_ARRAY) /* of before 2021: the keys say it */
        type = "Unigram";
    else if (!*type && tt_json_get(model, "max_input_chars_per_word"))
        type = "WordPiece";
    if ((*type && strcmp(type, "BPE")) || (bytes && bytes->type == TT_JSON_BOOL && bytes->boolean))
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "%s: GGUF is written for byte-level BPE tokenizers only; this is %s", path,
                       *type && strcmp(type, "BPE") ? type : "SentencePiece's (byte_fallback)");
    *pre = pre_of(tt_json_get(root, "pre_tokenizer"));
    if (!*pre)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "%s: pre_tokenizer: llama.cpp has no name for this pattern (gpt-2, "
                       "llama-bpe, qwen2, tekken and deepseek-v3 are known)",
                       path);
    return TT_OK;
}

static void add_ids(tt_gguf *g, const tt_tokenizer_info *t)
{
    if (t && t->bos >= 0)
        tt_gguf_u32(g, "tokenizer.ggml.bos_token_id", (uint32_t)t->bos);
    if (t && t->eos >= 0)
        tt_gguf_u32(g, "tokenizer.ggml.eos_token_id", (uint32_t)t->eos);
    if (t && t->pad >= 0)
        tt_gguf_u32(g, "tokenizer.ggml.padding_token_id", (uint32_t)t->pad);
    tt_gguf_bool(g, "tokenizer.ggml.add_bos_token", t && t->bos >= 0 && !t->omits_bos);
}

tt_status tt_gguf_vocab(tt_gguf *g, const char *folder, int64_t n_vocab, const tt_tokenizer_info *t,
                        tt_error *err)
{
    vocab v = {.arena = g->arena, .n = n_vocab};
    const tt_json *root = NULL;
    const char *pre = NULL, **merges = NULL;
    char *text = NULL;
    size_t n = 0;
    v.path = folder ? tt_path_join(g->arena, folder, "tokenizer.json") : NULL;
    if (!v.path || !tt_path_exists(v.path)) {
        tt_gguf_string(g, "tokenizer.ggml.model", "no_vocab");
        return TT_OK;
    }
    v.tokens = tt_arena_array(g->arena, (size_t)n_vocab, sizeof *v.tokens);
    v.types = tt_arena_array(g->arena, (size_t)n_vocab, sizeof *v.types);
    for (int64_t i = 0; i < n_vocab; i++)
        v.types[i] = UNUSED;
    TT_TRY(tt_read_file(v.path, MAX_BYTES, &text, &n, err));
    const tt_status s = tt_json_parse_tokens(g->arena, v.path, text, n, &root, err);
    free(text);
    TT_TRY(s);
    TT_TRY(check_kind(v.path, root, &pre, err));
    TT_TRY(read_tokens(&v, root, err));
    TT_TRY(read_merges(&v, root, &merges, &n, err));
    tt_gguf_string(g, "tokenizer.ggml.model", "gpt2");
    tt_gguf_string(g, "tokenizer.ggml.pre", pre);
    tt_gguf_strings(g, "tokenizer.ggml.tokens", v.tokens, (size_t)n_vocab);
    tt_gguf_i32s(g, "tokenizer.ggml.token_type", v.types, (size_t)n_vocab);
    tt_gguf_strings(g, "tokenizer.ggml.merges", merges, n);
    add_ids(g, t);
    return TT_OK;
}
