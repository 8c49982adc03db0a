/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/formats/hf_rest.h"
#include "checkpoint/reader.h"
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((int64_t)32 << 20) /* of a tensor that is compared */

/* Tensors of old files that are not parameters: they are computed from the config. */
static bool is_computed(const char *name)
{
    static const char *const ends[] = {"rotary_emb.inv_freq", ".attn.bias", ".attn.masked_bias"};
    for (size_t i = 0; i < TT_COUNT(ends); i++)
        if (tt_ends_with(name, ends[i]))
            return true;
    return false;
}

/* The number of the layer in a tensor's name; -1: the name has none. */
static int64_t layer_in_name(const char *name)
{
    const char *at = strstr(name, ".layers.");
    return at && at[8] >= '0' && at[8] <= '9' ? strtoll(at + 8, NULL, 10) : -1;
}

/* Of another part of the folder's model: one that sees or hears, or that guesses tokens ahead. transformers leaves
 * these out as well when it opens the text model. */
static bool is_other_part(const tt_hf_rest *x, const char *name, int64_t last_layer)
{
    return (x->text_part && !strstr(name, "language_model.") && strcmp(name, "lm_head.weight")) ||
           !strncmp(name, "mtp.", 4) || layer_in_name(name) > last_layer;
}

/* ---- a head beside the embedding that it is tied to ---- */

static const char *head_there(const tt_hf_rest *x)
{
    static const char *const names[] = {"lm_head.weight", "language_model.lm_head.weight"};
    for (size_t i = 0; x->embeds && i < TT_COUNT(names); i++)
        if (tt_ckpt_has(x->reader, names[i]) && !tt_map_get(x->used, names[i]))
            return names[i];
    return NULL;
}

static tt_status load_rows(tt_ckpt_reader *r, const char *name, int64_t begin, int64_t end,
                           float *to, tt_error *err)
{
    const tt_entry *e = tt_ckpt_entry(r, name);
    tt_ckpt_piece p = {.name = name, .dtype = TT_F32, .n_dims = e->n_dims, .data = to};
    for (int d = 0; d < e->n_dims; d++)
        p.global[d] = p.box.end[d] = e->global[d];
    p.box.begin[0] = begin;
    p.box.end[0] = end;
    return tt_ckpt_load(r, &p, 1, err);
}

static tt_status is_equal(tt_ckpt_reader *r, const char *a, const char *b, bool *equal,
                          tt_error *err)
{
    const tt_entry *x = tt_ckpt_entry(r, a), *y = tt_ckpt_entry(r, b);
    *equal = x->n_dims == 2 && y->n_dims == 2 && x->global[0] == y->global[0] &&
             x->global[1] == y->global[1];
    if (!*equal || x->global[0] < 1 || x->global[1] < 1)
        return TT_OK;
    const int64_t row = x->global[1] * (int64_t)sizeof(float);
    const int64_t rows = TT_MIN(TT_MAXV(BLOCK_BYTES / row, (int64_t)1), x->global[0]);
    float *p = malloc((size_t)(rows * row)), *q = malloc((size_t)(rows * row));
    tt_status s =
        p && q ? TT_OK : TT_FAIL(err, TT_ENOMEM, "%s: no memory to compare '%s'", r->path, a);
    for (int64_t i = 0; s == TT_OK && *equal && i < x->global[0]; i += rows) {
        const int64_t end = TT_MIN(i + rows, x->global[0]);
        s = load_rows(r, a, i, end, p, err);
        if (s == TT_OK)
            s = load_rows(r, b, i, end, q, err);
        *equal = s == TT_OK && !memcmp(p, q, (size_t)((end - i) * row));
    }
    free(p);
    free(q);
    return s;
}

/* *head: the folder's, which is not to be named again. *differs: it is left out. */
static tt_status check_head(const tt_hf_rest *x, const tt_ckpt_matching *how, const char **head,
                            bool *differs, tt_error *err)
{
    static const char text[] = "%s: '%s' is another matrix than the embedding that it is tied to "
                               "(tie_word_embeddings), which is taken for both; "
                               "model.args.tie_embeddings false takes it";
    bool equal = false;
    *differs = false;
    *head = head_there(x);
    if (!*head)
        return TT_OK;
    TT_TRY(is_equal(x->reader, *head, x->embeds, &equal, err));
    *differs = !equal;
    if (!equal && how->whole)
        return TT_FAIL(err, TT_EINVAL, text, x->reader->path, *head);
    if (!equal)
        tt_log(TT_WARN, "checkpoint", text, x->reader->path, *head);
    return TT_OK;
}

tt_status tt_hf_check_rest(const tt_hf_rest *x, const tt_ckpt_matching *how, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    TT_VEC(const char *) rest = {0}, left = {0};
    const char *head = NULL;
    int64_t last_layer = -1;
    bool differs;
    tt_status s = check_head(x, how, &head, &differs, err);
    for (size_t i = 0; i < tt_map_size(x->used); i++)
        last_layer = TT_MAXV(last_layer, layer_in_name(tt_map_key(x->used, i)));
    for (size_t i = 0; s == TT_OK && i < tt_map_size(x->reader->entries); i++) {
        const char *name = tt_map_key(x->reader->entries, i);
        const tt_entry *e = tt_map_value(x->reader->entries, i);
        if (tt_map_get(x->used, name) || e->is_scale || is_computed(name) ||
            (head && !strcmp(name, head)))
            continue;
        tt_vec_push(a, &rest, name);
        if (!is_other_part(x, name, last_layer))
            tt_vec_push(a, &left, name);
    }
    if (how->n_left)
        *how->n_left = rest.n + differs;
    if (s == TT_OK && how->whole && left.n)
        s = TT_FAIL(err, TT_EINVAL,
                    "%s: %zu tensor%s not of this model: %s; checkpoint.initial_load_strict false "
                    "leaves %s out",
                    x->reader->path, left.n, left.n > 1 ? "s are" : " is",
                    tt_names_fold(a, left.items, left.n), left.n > 1 ? "them" : "it");
    if (s == TT_OK && how->report && rest.n)
        tt_log(TT_INFO, "checkpoint", "%s: %zu tensor%s not of this model ignored: %s",
               x->reader->path, rest.n, rest.n > 1 ? "s" : "",
               tt_names_fold(a, rest.items, rest.n));
    tt_arena_free(a);
    return s;
}
