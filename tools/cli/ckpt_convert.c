/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/ckpt_convert.h"
#include "base/hub.h"
#include "cli/from_checkpoint.h"
#include "interchange/assets.h"
#include "interchange/hf_config.h"
#include "interchange/import.h"
#include "setup/tokenizer.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct choice {
    const char *name;
    int value;
} choice;

/* Finds a name in a list. what: the option, for the error. */
static tt_status choose(const tt_cli *cli, const char *what, const choice *list, size_t n, int *out,
                        tt_error *err)
{
    const char *name = tt_cli_option(cli, what);
    tt_str known = {0};
    for (size_t i = 0; i < n; i++) {
        if (name && !strcmp(name, list[i].name)) {
            *out = list[i].value;
            tt_str_free(&known);
            return TT_OK;
        }
        tt_str_printf(&known, "%s%s", i ? i + 1 < n ? ", " : " or " : "", list[i].name);
    }
    const tt_status s =
        name ? TT_FAIL(err, TT_EINVAL, "--%s: expected %s, got \"%s\"", what, known.s, name)
             : TT_FAIL(err, TT_EINVAL, "--%s is missing: %s", what, known.s);
    tt_str_free(&known);
    return s;
}

/* ---- import ---- */

/* Resolves the job again without the Hugging Face folder: its settings are in model.args now. kept: the
 * copy of its config.json, whose other keys an export gives back; NULL: there is none. */
static tt_status own_job(tt_cli *cli, const tt_setup *first, const char *kept, tt_str *text,
                         tt_error *err)
{
    const tt_model_vt *vt = first->model.component->vtable;
    const char *flavor = vt->n_flavors ? vt->flavors[0].name : "debugmodel";
    const tt_override own[] = {
        {"model.flavor",         kept ? "hf" : flavor},
        {"model.hf_assets_path", kept ? kept : "null"},
        {"checkpoint.folder",    "."                 }  /* the step folders lie in it, as in a run */
    };
    tt_job *job = NULL;
    tt_str before = {0};
    tt_job_print(first->job, false, &before);
    const tt_status s =
        tt_job_load_text(cli->arena, "import", before.s, before.n, own, TT_COUNT(own), &job, err);
    tt_setup again;
    const tt_setup_opts so = {.spec = cli->spec, .mode = TT_MODE_LOGITS, .data = true};
    tt_status st = s;
    if (st == TT_OK)
        st = tt_setup_make(&so, first->registry, job, cli->arena, &again, err);
    if (st == TT_OK)
        tt_job_print(job, false, text);
    tt_str_free(&before);
    return st;
}

/* A job or a command line that names a Hugging Face folder, model.hf, names its sizes, its tokenizer and its spec. */
static tt_status sizes_of_hf(tt_cli *cli, tt_registry *r, tt_override **list, size_t *n,
                             tt_error *err)
{
    const char *folder = NULL;
    size_t kept = 0;
    for (size_t i = 0; i < *n; i++)
        if (!strcmp((*list)[i].key, "model.hf"))
            folder = (*list)[i].value;
        else
            (*list)[kept++] = (*list)[i];
    *n = kept;
    if (!folder || !strcmp(folder, "null"))
        return TT_OK;
    const char *hub = tt_path_exists(folder) ? NULL : tt_hub_folder(cli->arena, folder);
    folder = hub ? hub : folder;
    if (!tt_hf_is_folder(folder))
        return TT_FAIL(err, TT_ENOTFOUND, "model.hf: there is no %s/config.json%s", folder,
                       tt_path_exists(folder) ? "" : tt_hub_advice(cli->arena, folder));
    if (!cli->spec)
        TT_TRY(tt_import_spec(r, cli->arena, folder, &cli->spec, err));
    tt_override *all = tt_arena_array(cli->arena, *n + 2, sizeof *all);
    all[0] = (tt_override){"model.flavor", "hf"};
    all[1] = (tt_override){"model.hf_assets_path", folder};
    memcpy(all + 2, *list, *n * sizeof *all); /* they are stronger */
    *list = all;
    *n += 2;
    return TT_OK;
}

/* Adds to a list of overrides what a job file says of the model: its sizes, its dtype, its adapters and its tokenizer.
 * The rest of the job, its mesh and its data, is no matter of an import. */
static tt_status sizes_of_job(tt_cli *cli, const char *path, tt_override **list, size_t *n,
                              tt_error *err)
{
    static const char *const names[] = {"model.name", "model.flavor", "tokenizer.name"};
    static const char *const paths[] = {"model.hf", "model.hf_assets_path", "tokenizer.path"};
    static const char *const texts[] = {"model.args", "model.vocab_from_tokenizer",
                                        "training.seq_len", "training.dtype", "converters"};
    tt_job *job = NULL;
    TT_TRY(tt_job_load(cli->arena, path, NULL, 0, &job, err));
    for (size_t i = 0; i < TT_COUNT(names); i++) {
        const char *value = NULL;
        TT_TRY(tt_job_string(job, names[i], NULL, &value, err));
        if (value)
            tt_cli_add(cli, list, n, names[i], value);
    }
    for (size_t i = 0; i < TT_COUNT(paths); i++) {
        const char *value = NULL;
        TT_TRY(tt_job_path(job, paths[i], TT_OPT_PATH | TT_OPT_HUB, &value, err));
        if (value)
            tt_cli_add(cli, list, n, paths[i], value);
    }
    for (size_t i = 0; i < TT_COUNT(texts); i++) {
        const char *value = tt_job_text(job, texts[i]);
        if (value)
            tt_cli_add(cli, list, n, texts[i], tt_arena_str(cli->arena, value));
    }
    return cli->spec ? TT_OK : tt_job_string(job, "spec", NULL, &cli->spec, err);
}

/* JOB.json of the command line is for a folder that does not say its sizes. The command line's own keys are last. */
static tt_status take_job(tt_cli *cli, tt_registry *r, tt_import_from from, const char *folder,
                          tt_error *err)
{
    tt_override *all = NULL;
    size_t n = 0;
    const char *path = cli->n_words > 3 ? cli->words[3] : NULL;
    const bool says = from == TT_IMPORT_HF || from == TT_IMPORT_META ||
                      tt_path_exists(tt_path_join(cli->arena, folder, "config.json"));
    if (says && !path)
        return TT_OK;
    if (says)
        return TT_FAIL(err, TT_EINVAL, "%s says the sizes of its model itself; leave %s out",
                       folder, path);
    if (path)
        TT_TRY(sizes_of_job(cli, path, &all, &n, err));
    for (size_t i = 0; i < cli->n_overrides; i++)
        tt_cli_add(cli, &all, &n, cli->overrides[i].key, cli->overrides[i].value);
    TT_TRY(sizes_of_hf(cli, r, &all, &n, err));
    cli->overrides = all;
    cli->n_overrides = n;
    return TT_OK;
}

static tt_status open_import(tt_cli *cli, tt_import_from from, const char *folder, tt_registry *r,
                             tt_setup *out, tt_error *err)
{
    tt_str text = {0};
    tt_job *job = NULL;
    TT_TRY(take_job(cli, r, from, folder, err));
    const tt_setup_opts so = {
        .spec = cli->spec, .mode = TT_MODE_LOGITS, .compile = true, .data = true};
    tt_status s = tt_import_job(r, from, folder, cli->spec, cli->arena, &text, err);
    if (s == TT_OK)
        s = tt_job_load_text(cli->arena, "import", text.s, text.n, cli->overrides, cli->n_overrides,
                             &job, err);
    tt_str_free(&text);
    if (s == TT_OK)
        s = tt_setup_make(&so, r, job, cli->arena, out, err);
    return s;
}

static tt_status tokenizer_fingerprint(const tt_setup *s, char out[33], tt_error *err)
{
    void *self = NULL;
    tt_tokenizer_info info = {0};
    out[0] = '\0';
    if (!tt_job_has(s->job, "tokenizer.path"))
        return TT_OK;
    TT_TRY(tt_setup_tokenizer(s, &self, &info, err));
    memcpy(out, info.fingerprint, 33);
    ((const tt_tokenizer_vt *)s->tokenizer.component->vtable)->close(self);
    return TT_OK;
}

/* Copies the files of the folder that an export gives back; *kept: where config.json is. */
static tt_status keep_assets(tt_cli *cli, const tt_setup *s, const char *out, const char **kept,
                             tt_error *err)
{
    char absolute[PATH_MAX];
    *kept = NULL;
    TT_TRY(tt_mkdirs(out, err));
    TT_TRY(tt_assets_keep(s, out, false, err));
    if (tt_assets_model(s, cli->arena, NULL) && realpath(out, absolute))
        *kept = tt_path_join(cli->arena, absolute, "model");
    return TT_OK;
}

/* The highest folder of a path that is not there yet; NULL: all are. */
static const char *first_missing(tt_arena *a, const char *path)
{
    const char *missing = NULL;
    for (const char *p = path; *p && !tt_path_exists(p); p = tt_path_dir(a, p))
        missing = p;
    return missing;
}

/* Names the keys of the folder's config.json that say something which the import does not have. */
static tt_status tell_unread(tt_cli *cli, const tt_setup *s, tt_error *err)
{
    const char *folder = tt_assets_model(s, cli->arena, NULL);
    const char *path = folder ? tt_path_join(cli->arena, folder, "config.json") : NULL;
    tt_str keys = {0};
    const tt_status st = path ? tt_setup_hf_unread(s, path, &keys, err) : TT_OK;
    if (keys.n)
        tt_log(TT_INFO, "checkpoint",
               "%s: keys that model %s does not read, and that an export gives back: %s", path,
               s->model.name, keys.s);
    tt_str_free(&keys);
    return st;
}

tt_status tt_ckpt_import(tt_cli *cli, const char *folder, const char *out, tt_error *err)
{
    static const choice forms[] = {
        {"hf",         TT_IMPORT_HF   },
        {"meta",       TT_IMPORT_META },
        {"torchtitan", TT_IMPORT_TITAN},
        {"dcp",        TT_IMPORT_DCP  }
    };
    int from = 0;
    char absolute[PATH_MAX], fingerprint[33] = "";
    const char *kept = NULL;
    tt_registry *r = NULL;
    tt_tensor_counts counts = {0};
    tt_setup s;
    tt_str job = {0};
    TT_TRY(choose(cli, "from", forms, TT_COUNT(forms), &from, err));
    if (!realpath(folder, absolute))
        return TT_FAIL(err, TT_ENOTFOUND, "%s: %s", folder, strerror(errno));
    const char *step = tt_path_join(cli->arena, out, "step-0");
    if (tt_path_exists(step))
        return TT_FAIL(err, TT_EEXIST, "%s exists already; remove it, or name another folder",
                       step);
    TT_TRY(tt_cli_registry(cli, &r, err));
    const char *made = first_missing(cli->arena, out);
    tt_status st = open_import(cli, (tt_import_from)from, absolute, r, &s, err);
    if (st == TT_OK)
        st = keep_assets(cli, &s, out, &kept, err);
    if (st == TT_OK)
        st = tell_unread(cli, &s, err);
    if (st == TT_OK)
        st = own_job(cli, &s, kept, &job, err);
    if (st == TT_OK)
        st = tokenizer_fingerprint(&s, fingerprint, err);
    tt_trainer_state state = {.job_json = tt_str_get(&job),
                              .model_fingerprint = s.model_fingerprint,
                              .tokenizer_fingerprint = fingerprint};
    if (st == TT_OK)
        st = tt_setup_import(&s, (tt_import_from)from, absolute, &state, out, &counts, err);
    if (st == TT_OK)
        tt_log(TT_INFO, "checkpoint",
               "%s/step-%lld: model %s, %lld parameters; %zu tensors taken, %zu left, %zu made",
               out, (long long)state.step, s.model.name, (long long)s.size.parameters, counts.taken,
               counts.left, counts.made);
    if (st != TT_OK && made)
        (void)tt_remove_tree(made, NULL);
    tt_str_free(&job);
    tt_registry_free(r);
    return st;
}

/* ---- export ---- */

/* A folder is written under a temporary name and then renamed, so it appears complete or not at all. */
static tt_status export_publish(tt_status written, const char *tmp, const char *out, tt_error *err)
{
    if (written == TT_OK && rename(tmp, out) != 0)
        written = TT_FAIL(err, TT_EIO, "%s: cannot rename it to %s: %s", tmp, out, strerror(errno));
    if (written != TT_OK)
        (void)tt_remove_tree(tmp, NULL);
    return written;
}

static tt_status export_hf(const tt_loaded_model *m, tt_hf_export o, const char *out,
                           tt_tensor_counts *counts, tt_error *err)
{
    o.folder = tt_arena_printf(m->setup.arena, "%s.tmp", out);
    return export_publish(tt_setup_write_hf(&m->setup, &o, counts, err), o.folder, out, err);
}

static tt_status export_adapter(tt_cli *cli, const tt_loaded_model *m, tt_export_dtype dtype,
                                const char *out, tt_tensor_counts *counts, tt_error *err)
{
    const char *tmp = tt_arena_printf(cli->arena, "%s.tmp", out);
    const tt_dtype to = dtype == TT_EXPORT_AUTO ? TT_F32 : (tt_dtype)(dtype - 1);
    return export_publish(tt_setup_write_adapter(&m->setup, m->path, to, tmp, counts, err), tmp,
                          out, err);
}

static tt_status export_dcp(tt_cli *cli, const tt_loaded_model *m, bool titan, const char *out,
                            tt_tensor_counts *counts, tt_error *err)
{
    const char *tmp = tt_arena_printf(cli->arena, "%s.tmp", out);
    return export_publish(tt_setup_write_dcp(&m->setup, m->path, titan, tmp, counts, err), tmp, out,
                          err);
}

/* The ids of BOS and EOS, from the tokenizer that the model was trained with, if its data needed
 * one. */
static tt_status open_tokenizer(tt_loaded_model *m, const tt_tokenizer_info **out, tt_error *err)
{
    const tt_component *loader = m->setup.dataloader.component; /* NULL: a Hugging Face folder */
    *out = NULL;
    if ((!loader || !((const tt_dataloader_vt *)loader->vtable)->needs_tokenizer) &&
        !tt_job_has(m->setup.job, "tokenizer.path"))
        return TT_OK;
    TT_TRY(tt_setup_tokenizer(&m->setup, &m->tokenizer, &m->info, err));
    *out = &m->info;
    return TT_OK;
}

/* Opens the model of a step folder, or of a Hugging Face folder, whose weights are imported into
 * `scratch` first: exports read step folders. mode: of the graph; TT_MODE_EVAL has the converters. counts: of that import. */
static tt_status open_source(tt_cli *cli, const char *folder, const char *scratch, tt_mode mode,
                             tt_loaded_model *m, tt_tensor_counts *counts, tt_error *err)
{
    const tt_setup_opts so = {.mode = mode};
    m->hf = tt_hf_is_folder(folder);
    m->path = folder;
    if (!m->hf)
        TT_TRY(tt_ckpt_step_of(cli, folder, &m->path, err));
    TT_TRY(tt_cli_open_step(cli, !m->hf, NULL, 0, m, err));
    TT_TRY(tt_setup_compile(&m->setup, &so, err));
    if (!m->hf)
        return TT_OK;
    tt_trainer_state state = {.model_fingerprint = m->setup.model_fingerprint};
    TT_TRY(tt_setup_import(&m->setup, TT_IMPORT_HF, folder, &state, scratch, counts, err));
    m->path = tt_path_join(cli->arena, scratch, "step-0");
    return TT_OK;
}

typedef enum export_to { TO_HF, TO_GGUF, TO_DCP, TO_TITAN } export_to;

typedef struct export_opts {
    export_to to;
    tt_gguf_type type;
    tt_export_dtype dtype;
    bool adapter;
    tt_hf_low low;
} export_opts;

#define TYPE_LOW 1000 /* plus a tt_hf_low; smaller numbers are types of GGUF */

static tt_status export_options(const tt_cli *cli, export_opts *o, tt_error *err)
{
    static const choice forms[] = {
        {"hf",         TO_HF   },
        {"gguf",       TO_GGUF },
        {"dcp",        TO_DCP  },
        {"torchtitan", TO_TITAN}
    };
    static const choice types[] = {
        {"f32",     TT_GGUF_F32             },
        {"f16",     TT_GGUF_F16             },
        {"bf16",    TT_GGUF_BF16            },
        {"fp8",     TYPE_LOW + TT_HF_FP8    },
        {"fp8_row", TYPE_LOW + TT_HF_FP8_ROW},
        {"nvfp4",   TYPE_LOW + TT_HF_NVFP4  },
        {"q8_0",    TT_GGUF_Q8_0            }
    };
    static const tt_export_dtype dtypes[] = {[TT_GGUF_F32] = TT_EXPORT_F32,
                                             [TT_GGUF_F16] = TT_EXPORT_F16,
                                             [TT_GGUF_BF16] = TT_EXPORT_BF16};
    int to = 0, type = TT_GGUF_F32;
    TT_TRY(choose(cli, "to", forms, TT_COUNT(forms), &to, err));
    *o = (export_opts){.to = (export_to)to, .adapter = tt_cli_option(cli, "adapter") != NULL};
    if (to != TO_HF && o->adapter)
        return TT_FAIL(err, TT_EUNSUPPORTED, "--adapter: adapters are written with --to hf");
    if (!tt_cli_option(cli, "type"))
        return TT_OK;
    if (to == TO_DCP || to == TO_TITAN)
        return TT_FAIL(
            err, TT_EUNSUPPORTED,
            "--type: such a folder has the checkpoint's dtypes; PyTorch converts them when "
            "it loads");
    TT_TRY(choose(cli, "type", types, TT_COUNT(types), &type, err));
    if (to == TO_HF && type == TT_GGUF_Q8_0)
        return TT_FAIL(
            err, TT_EUNSUPPORTED,
            "--type: a Hugging Face folder is written in f32, f16, bf16, fp8, fp8_row or "
            "nvfp4; q8_0 is GGUF's");
    if (type >= TYPE_LOW && (to != TO_HF || o->adapter))
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "--type: %s is for the matrices of a Hugging Face folder (--to hf), not %s",
                       tt_cli_option(cli, "type"), o->adapter ? "of adapters" : "GGUF's");
    if (type >= TYPE_LOW) {
        o->low = (tt_hf_low)(type - TYPE_LOW);
        o->dtype = TT_EXPORT_BF16;
        return TT_OK;
    }
    o->type = (tt_gguf_type)type;
    o->dtype = to == TO_HF ? dtypes[type] : TT_EXPORT_AUTO;
    return TT_OK;
}

/* The parameters that an export has: adapters are merged into the weights, or are written alone. */
static int64_t exported_parameters(const tt_setup *s, const export_opts *o)
{
    int64_t adapters = 0;
    for (size_t i = 0; i < s->graph->params.n; i++) {
        const tt_param_info *p = s->graph->params.items[i];
        adapters += p->adapter_of ? tt_type_numel(&p->whole) : 0;
    }
    return o->adapter                             ? adapters
           : o->to == TO_DCP || o->to == TO_TITAN ? s->size.parameters
                                                  : s->size.parameters - adapters;
}

static void tell_export(tt_cli *cli, const tt_loaded_model *m, const export_opts *o,
                        const char *out, const tt_tensor_counts *counts)
{
    const bool has = o->to != TO_HF || o->adapter || tt_tokenizer_in(cli->arena, out);
    tt_log(TT_INFO, "checkpoint",
           "%s: model %s, %lld parameters; %zu tensors taken, %zu left, %zu made%s", out,
           m->setup.model.name, (long long)exported_parameters(&m->setup, o), counts->taken,
           counts->left, counts->made,
           has ? "" : "; without a tokenizer, because the run's has no tokenizer.json");
}

static bool has_adapters(const tt_setup *s)
{
    for (size_t i = 0; i < s->graph->params.n; i++)
        if (s->graph->params.items[i]->adapter_of)
            return true;
    return false;
}

static tt_status export_model(tt_cli *cli, const char *folder, const char *out,
                              const export_opts *o, const tt_tensor_counts *before, tt_error *err);

/* Adapters are merged into a Hugging Face folder, which is then written as GGUF. */
static tt_status export_merged(tt_cli *cli, const tt_loaded_model *m, tt_hf_export x,
                               const export_opts *o, const char *out, tt_error *err)
{
    const char *merged = tt_arena_printf(cli->arena, "%s.merged.tmp", out);
    tt_cli whole = *cli;
    tt_tensor_counts counts = {0};
    x.dtype = TT_EXPORT_F32;
    whole.n_overrides = 0; /* the folder says all, the run's adapters no more */
    TT_TRY(tt_remove_tree(merged, err));
    tt_status s = export_hf(m, x, merged, &counts, err);
    if (s == TT_OK)
        s = export_model(&whole, merged, out, o, &counts, err);
    (void)tt_remove_tree(merged, NULL);
    return s;
}

static tt_status write_export(tt_cli *cli, tt_loaded_model *m, const export_opts *o,
                              const char *out, tt_tensor_counts *counts, tt_error *err)
{
    tt_hf_export x = {
        .step_folder = m->path, .folder = out, .run = m->run, .dtype = o->dtype, .low = o->low};
    TT_TRY(open_tokenizer(m, &x.tokenizer, err));
    x.tokenizer_self = m->tokenizer;
    if (o->adapter)
        return export_adapter(cli, m, o->dtype, out, counts, err);
    if (o->to == TO_DCP || o->to == TO_TITAN)
        return export_dcp(cli, m, o->to == TO_TITAN, out, counts, err);
    if (o->to == TO_HF)
        return export_hf(m, x, out, counts, err);
    return has_adapters(&m->setup) ? export_merged(cli, m, x, o, out, err)
                                   : tt_setup_write_gguf(&m->setup, &x, o->type, counts, err);
}

/* before: of the export that made `folder`; NULL: there was none. */
static tt_status export_model(tt_cli *cli, const char *folder, const char *out,
                              const export_opts *o, const tt_tensor_counts *before, tt_error *err)
{
    const char *scratch = tt_arena_printf(cli->arena, "%s.weights.tmp", out);
    tt_loaded_model m = {0};
    tt_tensor_counts first = {0}, counts = {0};
    TT_TRY(tt_remove_tree(scratch, err)); /* left by a killed export */
    tt_status s =
        open_source(cli, folder, scratch, o->low ? TT_MODE_EVAL : TT_MODE_LOGITS, &m, &first, err);
    if (s == TT_OK)
        s = write_export(cli, &m, o, out, &counts, err);
    first = before ? *before : first;
    if (before || m.hf)
        counts.taken = first.taken;
    counts.left += first.left;
    if (s == TT_OK && (o->to != TO_GGUF || !has_adapters(&m.setup)))
        tell_export(cli, &m, o, out, &counts);
    if (m.hf)
        (void)tt_remove_tree(scratch, NULL);
    tt_loaded_model_close(&m);
    return s;
}

tt_status tt_ckpt_export(tt_cli *cli, const char *folder, const char *out, tt_error *err)
{
    export_opts o;
    TT_TRY(export_options(cli, &o, err));
    if (tt_path_exists(out))
        return TT_FAIL(err, TT_EEXIST, "%s exists already; remove it, or name another folder", out);
    return export_model(cli, folder, out, &o, NULL, err);
}
