/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/formats/gguf_vocab.h"
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Writes a tokenizer as GGUF keys: byte-level BPE from its tokenizer.json, the others from what the tokenizer's plugin
 * says of its pieces. A tokenizer that llama.cpp would not give the same ids with is refused. */

#define MAX_BYTES ((size_t)1 << 30)

const char *tt_gguf_text(const tt_json *v)
{
    return v && v->type == TT_JSON_STRING ? v->string : "";
}

tt_gguf_tokens tt_gguf_tokens_new(tt_arena *a, int64_t n)
{
    tt_gguf_tokens t = {.texts = tt_arena_array(a, (size_t)n, sizeof *t.texts),
                        .kinds = tt_arena_array(a, (size_t)n, sizeof *t.kinds),
                        .scores = tt_arena_array(a, (size_t)n, sizeof *t.scores),
                        .n = n};
    for (int64_t i = 0; i < n; i++) {
        t.texts[i] = tt_arena_printf(a, "[PAD%lld]", (long long)i);
        t.kinds[i] = TT_PIECE_UNUSED;
        t.scores[i] = -1e6f;
    }
    return t;
}

/* ---- byte-level BPE ---- */

typedef struct vocab {
    const char *path;
    tt_arena *arena;
    tt_gguf_tokens tokens;
} vocab;

static tt_status put_token(vocab *v, const tt_json *id, const char *text, int32_t kind,
                           tt_error *err)
{
    if (!id || id->type != TT_JSON_INT || id->integer < 0 || id->integer >= v->tokens.n)
        return TT_FAIL(err, TT_EFORMAT,
                       "%s: token '%.40s' has no id from 0 to below the model's %lld", v->path,
                       text, (long long)v->tokens.n);
    v->tokens.texts[id->integer] = text;
    v->tokens.kinds[id->integer] = kind;
    return TT_OK;
}

static tt_status read_tokens(vocab *v, const tt_json *root, tt_error *err)
{
    const tt_json *words = tt_json_get(tt_json_get(root, "model"), "vocab");
    const tt_json *added = tt_json_get(root, "added_tokens");
    if (!words || words->type != TT_JSON_OBJECT)
        return TT_FAIL(err, TT_EFORMAT, "%s: model.vocab: expected an object", v->path);
    for (size_t i = 0; i < words->n; i++)
        TT_TRY(put_token(v, words->items[i], words->keys[i], TT_PIECE_NORMAL, err));
    for (size_t i = 0; added && added->type == TT_JSON_ARRAY && i < added->n; i++) {
        const tt_json *special = tt_json_get(added->items[i], "special"),
                      *id = tt_json_get(added->items[i], "id");
        const tt_json *word = tt_json_get(added->items[i], "single_word");
        const bool control = special && special->type == TT_JSON_BOOL && special->boolean;
        if (!control && word && word->type == TT_JSON_BOOL && word->boolean)
            return TT_FAIL(
                err, TT_EUNSUPPORTED,
                "%s: added_tokens[%zu].single_word: llama.cpp finds tokens within words, "
                "too",
                v->path, i);
        if (control && id && id->type == TT_JSON_INT && id->integer >= v->tokens.n)
            continue; /* the model has no row for it */
        TT_TRY(put_token(v, id, tt_gguf_text(tt_json_get(added->items[i], "content")),
                         control ? TT_PIECE_CONTROL : TT_PIECE_USER, err));
    }
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
            (*out)[i] = tt_arena_printf(v->arena, "%s %s", tt_gguf_text(m->items[0]),
                                        tt_gguf_text(m->items[1]));
        else
            return TT_FAIL(err, TT_EFORMAT, "%s:%d:%d: model.merges: expected \"a b\" or two texts",
                           v->path, m->line, m->column);
    }
    return TT_OK;
}

/* Normalizers that llama.cpp does not have; form C, which most texts have already, is left out with a line. */
static tt_status check_normalizer(const char *path, const tt_json *part, tt_error *err)
{
    const char *type = tt_gguf_text(tt_json_get(part, "type"));
    const tt_json *list = tt_json_get(part, "normalizers");
    if (!part || part->type == TT_JSON_NULL)
        return TT_OK;
    if (!strcmp(type, "Sequence") && list && list->type == TT_JSON_ARRAY) {
        for (size_t i = 0; i < list->n; i++)
            TT_TRY(check_normalizer(path, list->items[i], err));
        return TT_OK;
    }
    if (strcmp(type, "NFC") != 0)
        return TT_FAIL(err, TT_EUNSUPPORTED, "%s: normalizer: llama.cpp has no %s", path,
                       *type ? type : "such step");
    tt_log(TT_INFO, "checkpoint",
           "%s brings texts into the normalization form C, which llama.cpp does not do", path);
    return TT_OK;
}

static tt_status find_pre(const char *path, const tt_json *root, const char **out, tt_error *err)
{
    const tt_json *whole = tt_json_get(tt_json_get(root, "model"), "ignore_merges");
    tt_str names = {0};
    *out = tt_gguf_pre(tt_json_get(root, "pre_tokenizer"),
                       whole && whole->type == TT_JSON_BOOL && whole->boolean);
    if (*out)
        return TT_OK;
    tt_gguf_pre_names(&names);
    const tt_status s =
        TT_FAIL(err, TT_EUNSUPPORTED,
                "%s: pre_tokenizer: llama.cpp has no name for this way to cut texts into words (%s "
                "are known)",
                path, tt_str_get(&names));
    tt_str_free(&names);
    return s;
}

static tt_status add_byte_level(tt_gguf *g, const char *path, int64_t n_vocab, tt_error *err)
{
    vocab v = {.path = path, .arena = g->arena, .tokens = tt_gguf_tokens_new(g->arena, n_vocab)};
    const tt_json *root = NULL;
    const char *pre = NULL, **merges = NULL;
    char *text = NULL;
    size_t n = 0;
    TT_TRY(tt_read_file(path, MAX_BYTES, &text, &n, err));
    const tt_status s = tt_json_parse_tokens(g->arena, path, text, n, &root, err);
    free(text);
    TT_TRY(s);
    TT_TRY(find_pre(path, root, &pre, err));
    TT_TRY(check_normalizer(path, tt_json_get(root, "normalizer"), err));
    TT_TRY(read_tokens(&v, root, err));
    TT_TRY(read_merges(&v, root, &merges, &n, err));
    tt_gguf_string(g, "tokenizer.ggml.model", "gpt2");
    tt_gguf_string(g, "tokenizer.ggml.pre", pre);
    tt_gguf_strings(g, "tokenizer.ggml.tokens", v.tokens.texts, (size_t)n_vocab);
    tt_gguf_i32s(g, "tokenizer.ggml.token_type", v.tokens.kinds, (size_t)n_vocab);
    tt_gguf_strings(g, "tokenizer.ggml.merges", merges, n);
    return TT_OK;
}

/* ---- the whole ---- */

static void add_ids(tt_gguf *g, const tt_tokenizer_info *t)
{
    if (t && t->bos >= 0)
        tt_gguf_u32(g, "tokenizer.ggml.bos_token_id", (uint32_t)t->bos);
    if (t && t->eos >= 0)
        tt_gguf_u32(g, "tokenizer.ggml.eos_token_id", (uint32_t)t->eos);
    if (t && t->pad >= 0)
        tt_gguf_u32(g, "tokenizer.ggml.padding_token_id", (uint32_t)t->pad);
    tt_gguf_bool(g, "tokenizer.ggml.add_bos_token", t && t->bos >= 0 && !t->omits_bos);
    tt_gguf_bool(g, "tokenizer.ggml.add_eos_token", t && t->eos >= 0 && t->adds_eos);
}

/* Added tokens that take the blanks beside them. llama.cpp knows that by general.name alone: for a "phi-3" all added
 * tokens take the blanks after them but three, and these four must exist. */
static const char *check_strips(const tt_gguf_tokenizer *t)
{
    static const char *const needed[] = {"</s>", "<unk>", "<s>", "<|endoftext|>"};
    tt_special s = {.struct_size = sizeof s};
    bool any = false, phi3 = true;
    size_t found = 0;
    if (!t->vt || !TT_HAS(t->vt, tt_tokenizer_vt, piece) || !t->vt->special || !t->vt->piece)
        return NULL;
    for (size_t i = 0; t->vt->special(t->self, i, &s); i++) {
        tt_vocab_piece p = {.struct_size = sizeof p};
        size_t k = 0;
        if (!t->vt->piece(t->self, s.id, &p))
            p.text = s.text;
        while (k < TT_COUNT(needed) &&
               (p.text.n != strlen(needed[k]) || memcmp(p.text.s, needed[k], p.text.n)))
            k++;
        found += k < TT_COUNT(needed);
        any = any || s.strips;
        phi3 = phi3 && s.strips == (k == 0 || k == TT_COUNT(needed) ? TT_SPECIAL_STRIPS_RIGHT : 0);
    }
    if (any && phi3 && found == TT_COUNT(needed))
        return "phi-3";
    if (any)
        tt_log(TT_WARN, "checkpoint",
               "%s: special tokens take the blanks beside them (lstrip, rstrip); llama.cpp keeps "
               "these blanks",
               t->path);
    return NULL;
}

/* The tokenizer's file; NULL: there is none. */
static const char *file_of(tt_arena *a, const char *path)
{
    static const char *const names[] = {TT_TOKENIZER_FILES};
    struct stat st;
    if (!path || stat(path, &st) != 0)
        return NULL;
    if (!S_ISDIR(st.st_mode))
        return path;
    for (size_t i = 0; i < TT_COUNT(names); i++) {
        const char *file = tt_path_join(a, path, names[i]);
        if (tt_path_exists(file))
            return file;
    }
    return NULL;
}

/* vocab.json has no pre_tokenizer, which other .json files are taken to have. */
static bool is_tokenizer_json(const char *file)
{
    const char *slash = strrchr(file, '/');
    return tt_ends_with(file, ".json") && strcmp(slash ? slash + 1 : file, "vocab.json");
}

tt_status tt_gguf_vocab(tt_gguf *g, const tt_gguf_tokenizer *t, int64_t n_vocab, const char **name,
                        tt_error *err)
{
    const char *file = file_of(g->arena, t->path);
    tt_pieces form = {.struct_size = sizeof form, .kind = TT_PIECES_MERGES};
    *name = NULL;
    if (!file) {
        tt_log(TT_INFO, "checkpoint",
               "the model has no tokenizer's file, so the GGUF file has no tokens: llama.cpp "
               "takes and gives ids");
        tt_gguf_string(g, "tokenizer.ggml.model", "no_vocab");
        return TT_OK;
    }
    if (t->vt && TT_HAS(t->vt, tt_tokenizer_vt, piece) && t->vt->pieces && t->info &&
        t->vt->pieces(t->self, &form, err) != TT_OK)
        return tt_error_context(err, "GGUF cannot hold this tokenizer");
    if (form.kind == TT_PIECES_MERGES && !is_tokenizer_json(file))
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "%s: GGUF is written from tokenizer.json or tokenizer.model; transformers' "
                       "AutoTokenizer.from_pretrained(FOLDER).save_pretrained(FOLDER) writes a "
                       "tokenizer.json",
                       file);
    TT_TRY(form.kind == TT_PIECES_MERGES ? add_byte_level(g, file, n_vocab, err)
                                         : tt_gguf_pieces(g, t, &form, n_vocab, err));
    *name = check_strips(t);
    add_ids(g, t->info);
    return TT_OK;
}
