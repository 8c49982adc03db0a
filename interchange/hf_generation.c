/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/interchange_impl.h"
#include <stdlib.h>
#include <string.h>

/* generation_config.json of an export: the source's file with its temperature, its top_p and its end ids. The run adds the
 * tokens that end its texts and its turns; ids that are not of the run's tokenizer go. */

#define MAX_BYTES ((size_t)4 << 20)

typedef struct generation {
    const tt_json *file,
        *config;        /* the source's generation_config.json and config.json; NULL: none */
    bool same;          /* the source's ids are those of the run's tokenizer */
    const tt_json *eos; /* that stays; NULL: none */
    int32_t more[3];    /* that end texts besides */
    size_t n_more;
} generation;

static const char end_key[] = "eos_token_id";

static bool is_special(const tt_hf_export *o, const tt_tokenizer_vt *vt, int32_t id)
{
    tt_special s = {.struct_size = sizeof s};
    for (size_t i = 0; TT_HAS(vt, tt_tokenizer_vt, special) && vt->special &&
                       vt->special(o->tokenizer_self, i, &s);
         i++)
        if (s.id == id)
            return true;
    return false;
}

static bool any_special(const tt_hf_export *o, const tt_tokenizer_vt *vt, const tt_json *ids)
{
    const bool list = ids && ids->type == TT_JSON_ARRAY;
    for (size_t i = 0; ids && i < (list ? ids->n : 1); i++) {
        const tt_json *id = list ? ids->items[i] : ids;
        if (id->type == TT_JSON_INT && id->integer <= INT32_MAX &&
            is_special(o, vt, (int32_t)id->integer))
            return true;
    }
    return false;
}

/* Whether the source's ids are those of the run's tokenizer: both end texts alike, or an end token of the source is a
 * special one there and texts begin alike. */
static bool is_same(const tt_hf_export *o, const tt_tokenizer_vt *vt, const generation *g)
{
    const tt_tokenizer_info *t = o->tokenizer;
    const tt_json *bos = tt_json_get(g->config, "bos_token_id");
    const tt_json *ends[] = {tt_json_get(g->file, end_key), tt_json_get(g->config, end_key)};
    for (size_t i = 0; i < TT_COUNT(ends); i++)
        if (!t || (t->eos >= 0 && tt_hf_names_id(ends[i], t->eos)))
            return true;
    if (bos && bos->type == TT_JSON_INT && t->bos >= 0 && bos->integer != t->bos)
        return false;
    return o->tokenizer_self && any_special(o, vt, ends[0] ? ends[0] : ends[1]);
}

static void add_end(generation *g, int32_t id)
{
    for (size_t i = 0; i < g->n_more; i++)
        if (g->more[i] == id)
            return;
    if (id >= 0 && !tt_hf_names_id(g->eos, id))
        g->more[g->n_more++] = id;
}

/* An id, or a list of those of the source and then the others. */
static void put_ends(tt_str *out, const generation *g)
{
    const bool list = g->eos && g->eos->type == TT_JSON_ARRAY;
    const size_t n = list ? g->eos->n : g->eos != NULL;
    const bool many = list || n + g->n_more > 1;
    tt_hf_put_key(out, end_key);
    tt_str_add(out, many ? "[" : n + g->n_more ? "" : "null");
    for (size_t i = 0; i < n + g->n_more; i++) {
        tt_str_add(out, i ? ", " : "");
        if (i < n)
            tt_json_write_exact(list ? g->eos->items[i] : g->eos, out);
        else
            tt_str_printf(out, "%d", (int)g->more[i - n]);
    }
    tt_str_add(out, many ? "]" : "");
}

/* bos and pad: the source's, if they are of this tokenizer. */
static void put_other(tt_str *out, const generation *g, const char *key, int32_t own)
{
    const tt_json *there = tt_json_get(g->file ? g->file : g->config, key);
    if (g->same && there)
        tt_hf_put_member(out, key, there);
    else if (!g->same)
        tt_hf_put_id(out, key, own);
}

static void put_generation(tt_str *out, const generation *g, const tt_tokenizer_info *t)
{
    static const char *const ids[] = {end_key, "bos_token_id", "pad_token_id"};
    /* transformers 4 makes a file with this key anew of config.json, whose ids may be others */
    static const char from_config[] = "_from_model_config";
    tt_str_addc(out, '{');
    if (!g->file && !g->n_more)
        tt_str_add(out, "\n  \"_from_model_config\": true");
    for (size_t i = 0; g->file && i < g->file->n; i++) {
        const char *key = g->file->keys[i];
        bool skip = !strcmp(key, from_config);
        for (size_t k = 0; k < TT_COUNT(ids); k++)
            skip = skip || !strcmp(key, ids[k]);
        if (!skip)
            tt_hf_put_member(out, key, g->file->items[i]);
    }
    put_other(out, g, ids[1], t ? t->bos : -1);
    put_ends(out, g);
    put_other(out, g, ids[2], t ? t->pad : -1);
    tt_str_add(out, "\n}\n");
}

tt_status tt_hf_write_generation(const tt_hf_export *o, const tt_export_chat *c,
                                 const tt_json *config, const char *model, tt_arena *a,
                                 tt_error *err)
{
    static const char name[] = "generation_config.json";
    const char *from = model ? tt_path_join(a, model, name) : NULL;
    const char *to = tt_path_join(a, o->folder, name);
    generation g = {.config = config};
    tt_str out = {0};
    if (from && tt_path_exists(from))
        TT_TRY(tt_json_read_object(a, from, MAX_BYTES, &g.file, err));
    g.same = is_same(o, c->vt, &g);
    const tt_json *ends[] = {tt_json_get(g.file, end_key), tt_json_get(config, end_key)};
    g.eos = g.same ? ends[0] && ends[0]->type != TT_JSON_NULL ? ends[0] : ends[1] : NULL;
    g.eos = g.eos && g.eos->type != TT_JSON_NULL ? g.eos : NULL;
    if (o->tokenizer && !tt_hf_names_id(ends[0], o->tokenizer->eos) &&
        !tt_hf_names_id(ends[1], o->tokenizer->eos))
        add_end(&g, o->tokenizer->eos);
    for (size_t i = 0; c->talks && i < c->n_ends; i++)
        add_end(&g, c->ends[i]);
    if (g.file && g.same && !g.n_more) {
        char *text = NULL;
        size_t n = 0;
        TT_TRY(tt_read_file(from, MAX_BYTES, &text, &n, err));
        const tt_status s = tt_write_file_atomic(to, text, n, err);
        free(text);
        return s;
    }
    put_generation(&out, &g, o->tokenizer);
    const tt_status s = tt_write_file_atomic(to, out.s, out.n, err);
    tt_str_free(&out);
    return s;
}
