/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/from_checkpoint.h"
#include "base/hub.h"
#include "base/number.h"
#include "estimate/estimate.h"
#include "infer/engine.h"
#include "interchange/assets.h"
#include "interchange/hf_context.h"
#include "interchange/interchange.h"
#include "train/begin.h"
#include <stdlib.h>
#include <string.h>

tt_status tt_cli_number(const tt_cli *cli, const char *name, double min, double max, double *out,
                        tt_error *err)
{
    const char *text = tt_cli_option(cli, name);
    char *end;
    if (!text)
        return TT_OK;
    const double v = strtod(text, &end);
    if (*end || end == text || !(v >= min && v <= max))
        return TT_FAIL(err, TT_EINVAL, "--%s: expected %g to %g, got \"%s\"", name, min, max, text);
    *out = v;
    return TT_OK;
}

tt_status tt_cli_integer(const tt_cli *cli, const char *name, int64_t min, int64_t max,
                         int64_t *out, tt_error *err)
{
    const char *text = tt_cli_option(cli, name);
    if (text && !tt_read_whole(text, strlen(text), min, max, out))
        return TT_FAIL(err, TT_EINVAL,
                       "--%s: expected a whole number from %lld to %lld, got \"%s\"", name,
                       (long long)min, (long long)max, text);
    return TT_OK;
}

tt_status tt_cli_cache(const tt_cli *cli, tt_cache *out, tt_error *err)
{
    static const char *const names[] = {
        [TT_CACHE_AUTO] = "auto", [TT_CACHE_LATENT] = "latent", [TT_CACHE_HEADS] = "heads"};
    const char *text = tt_cli_option(cli, "cache");
    for (size_t i = 0; text && i < TT_COUNT(names); i++)
        if (!strcmp(text, names[i])) {
            *out = (tt_cache)i;
            return TT_OK;
        }
    return text ? TT_FAIL(err, TT_EINVAL, "--cache: expected auto, latent or heads, got \"%s\"",
                          text)
                : TT_OK;
}

static const char *last_value(const tt_override *o, size_t n, const char *key)
{
    while (n-- > 0)
        if (!strcmp(o[n].key, key))
            return o[n].value;
    return NULL;
}

tt_status tt_cli_find_model(const tt_cli *cli, tt_loaded_model *out, tt_error *err)
{
    memset(out, 0, sizeof *out);
    const char *path = tt_cli_option(cli, "checkpoint");
    if (path && cli->n_words)
        return TT_FAIL(err, TT_EINVAL, "\"%s\": --checkpoint names the model already",
                       cli->words[0]);
    if (cli->n_words)
        path = cli->words[0];
    if (!path) /* --model.hf DIR, as for a training */
        path = last_value(cli->overrides, cli->n_overrides, "model.hf");
    if (!path)
        return TT_FAIL(err, TT_EINVAL,
                       "the model is missing: give a step-N folder, a run folder, or one of "
                       "Hugging Face's");
    const char *hub = tt_path_exists(path) ? NULL : tt_hub_folder(cli->arena, path);
    path = hub ? hub : path;
    out->path = path;
    if (tt_ends_with(path, ".gguf"))
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "%s: GGUF files are written, not read; give the run or the "
                       "Hugging Face folder that it was made from",
                       path);
    if (tt_path_exists(tt_path_join(cli->arena, path, "trainer.json")))
        return TT_OK;
    out->hf = tt_hf_is_folder(path);
    const char *tries[] = {path, tt_path_join(cli->arena, path, "checkpoint")};
    for (size_t i = 0; !out->hf && i < TT_COUNT(tries); i++) {
        int64_t *steps;
        size_t n;
        if (!tt_path_exists(tries[i]))
            continue;
        TT_TRY(tt_ckpt_list(tries[i], cli->arena, &steps, &n, err));
        if (!n)
            continue;
        out->path = tt_arena_printf(cli->arena, "%s/step-%lld", tries[i], (long long)steps[n - 1]);
        return TT_OK;
    }
    return out->hf ? TT_OK
                   : TT_FAIL(err, TT_ENOTFOUND,
                             "no checkpoint in %s (a step-N folder, a run folder, "
                             "or one of Hugging Face's)%s",
                             path, tt_path_exists(path) ? "" : tt_hub_advice(cli->arena, path));
}

/* ---- the job ---- */

/* Overrides for one rank with all cores, one sample at a time, and only the model loaded. */
static const tt_override alone[] = {
    {"parallelism.data_parallel_replicate_degree", "1"    },
    {"parallelism.data_parallel_shard_degree",     "1"    },
    {"parallelism.tensor_parallel_degree",         "1"    },
    {"parallelism.context_parallel_degree",        "1"    },
    {"parallelism.pipeline_parallel_degree",       "1"    },
    {"parallelism.expert_parallel_degree",         "1"    },
    {"training.local_batch_size",                  "1"    },
    {"training.global_batch_size",                 "-1"   },
    {"backend.threads",                            "0"    },
    {"checkpoint.initial_load_in_hf",              "false"},
    {"checkpoint.last_save_in_hf",                 "false"},
    {"checkpoint.hf_interval",                     "0"    },
};

/* The keys of a section belong to the component that its "name" names; if the name changes, they
 * are dropped, except these, which all components have. */
static bool keeps(const char *section, const char *key)
{
    return !strcmp(key, "name") || (!strcmp(section, "backend") && !strcmp(key, "threads")) ||
           (!strcmp(section, "dataloader") && !strcmp(key, "path"));
}

static bool another_component(tt_arena *a, const char *section, const tt_json *v,
                              const tt_override *o, size_t n)
{
    const char *name = last_value(o, n, tt_arena_printf(a, "%s.name", section));
    const tt_json *was = tt_json_get(v, "name");
    if (!strcmp(section, "dataloader") && tt_json_get(v, "mixture") &&
        last_value(o, n, "dataloader.path"))
        return true; /* one loader replaces a mixture */
    return name && v->type == TT_JSON_OBJECT && was && was->type == TT_JSON_STRING &&
           strcmp(name, was->string);
}

static void add_member(tt_str *out, const char *key, bool *any)
{
    tt_str_add(out, *any ? "," : "");
    *any = true;
    tt_str_json(out, key);
    tt_str_addc(out, ':');
}

static void add_section(tt_str *out, const char *section, const tt_json *v)
{
    bool any = false;
    tt_str_addc(out, '{');
    for (size_t i = 0; i < v->n; i++) {
        if (!keeps(section, v->keys[i]))
            continue;
        add_member(out, v->keys[i], &any);
        tt_json_write(v->items[i], out);
    }
    tt_str_addc(out, '}');
}

/* The checkpoint's job without the keys that only training uses, and without the keys of components
 * that are replaced. */
static tt_status trim_job(tt_arena *a, const char *job, bool data, const tt_override *o, size_t n,
                          const char **out, tt_error *err)
{
    const tt_json *root;
    tt_str text = {0};
    bool any = false;
    TT_TRY(tt_json_parse(a, "the checkpoint's job", job, strlen(job), &root, err));
    tt_str_addc(&text, '{');
    for (size_t i = 0; i < root->n; i++) {
        const char *key = root->keys[i];
        if (!strcmp(key, "validation") || !strcmp(key, "hooks") || !strcmp(key, "metrics") ||
            (!data && !strcmp(key, "dataloader")))
            continue;
        add_member(&text, key, &any);
        if (another_component(a, key, root->items[i], o, n))
            add_section(&text, key, root->items[i]);
        else
            tt_json_write(root->items[i], &text);
    }
    tt_str_addc(&text, '}');
    *out = tt_arena_str(a, tt_str_get(&text));
    tt_str_free(&text);
    return TT_OK;
}

/* The text at dataloader.template, or of the first loader of a mixture that has one. */
static const char *template_named(const tt_json *loader)
{
    const tt_json *own = tt_json_get(loader, "template"), *list = tt_json_get(loader, "mixture");
    const char *found = own && own->type == TT_JSON_STRING ? own->string : NULL;
    for (size_t i = 0; !found && list && list->type == TT_JSON_ARRAY && i < list->n; i++)
        found = template_named(list->items[i]);
    return found;
}

/* Finds the run folder of the step, and the run's copy of the tokenizer, which is there when the
 * files that the job names have gone. another: the command line names another tokenizer. */
static tt_status use_run(const tt_cli *cli, tt_loaded_model *m, const char *json, bool another,
                         const char **tokenizer, tt_error *err)
{
    const tt_json *job = NULL;
    *tokenizer = NULL;
    if (m->hf)
        return TT_OK;
    TT_TRY(tt_json_parse(cli->arena, "the checkpoint's job", json, strlen(json), &job, err));
    m->run = tt_assets_run_of_step(cli->arena, m->path, job);
    const tt_json *path = tt_json_get(tt_json_get(job, "tokenizer"), "path");
    m->template = template_named(tt_json_get(job, "dataloader"));
    if (m->run && !another && path && path->type == TT_JSON_STRING && *path->string)
        *tokenizer = tt_assets_tokenizer_of_run(cli->arena, m->run, path->string);
    return TT_OK;
}

/* The job, its name in messages, and the steps that were complete before the last one: the converters
 * of that step made the weights. */
static tt_status read_job(const tt_cli *cli, const tt_loaded_model *m, const char **json,
                          const char **name, int64_t *converters_at, tt_error *err)
{
    tt_trainer_state st;
    *converters_at = 0;
    if (m->hf) {
        *name = tt_hf_job_name(cli->arena, m->path);
        *json = TT_HF_JOB;
        return TT_OK;
    }
    *name = tt_path_join(cli->arena, m->path, "trainer.json");
    TT_TRY(tt_ckpt_read_state(m->path, cli->arena, &st, err));
    if (!st.job_json)
        return TT_FAIL(err, TT_EFORMAT, "%s: it contains no job", *name);
    *json = st.job_json;
    *converters_at = TT_MAXV(st.step - 1, 0);
    return TT_OK;
}

tt_status tt_cli_loader_of(const tt_cli *cli, const tt_loaded_model *m, const char **out,
                           tt_error *err)
{
    const char *json = NULL, *name = NULL;
    const tt_json *job = NULL;
    int64_t at;
    TT_TRY(read_job(cli, m, &json, &name, &at, err));
    TT_TRY(tt_json_parse(cli->arena, name, json, strlen(json), &job, err));
    const tt_json *v = tt_json_get(tt_json_get(job, "dataloader"), "name");
    *out = v && v->type == TT_JSON_STRING ? v->string : NULL;
    return TT_OK;
}

tt_status tt_cli_open_step(const tt_cli *cli, bool data, const tt_override *overrides, size_t n,
                           tt_loaded_model *out, tt_error *err)
{
    const char *json = NULL, *name = NULL, *tokenizer = NULL;
    tt_job *job;
    int64_t at;
    TT_TRY(tt_cli_registry(cli, &out->registry, err));
    TT_TRY(read_job(cli, out, &json, &name, &at, err));
    const bool another = last_value(overrides, n, "tokenizer.name") ||
                         last_value(cli->overrides, cli->n_overrides, "tokenizer.name");
    TT_TRY(use_run(cli, out, json, another, &tokenizer, err));
    tt_override *all =
        tt_arena_array(cli->arena, TT_COUNT(alone) + n + cli->n_overrides + 2, sizeof *all);
    size_t k = TT_COUNT(alone);
    memcpy(all, alone, sizeof alone);
    if (tokenizer)
        all[k++] = (tt_override){"tokenizer.path", tokenizer};
    for (size_t i = 0; i < n; i++)
        all[k++] = overrides[i];
    for (size_t i = 0; i < cli->n_overrides; i++)
        all[k++] = cli->overrides[i];
    TT_TRY(trim_job(cli->arena, json, data, all, k, &json, err));
    TT_TRY(tt_job_load_text(cli->arena, name, json, strlen(json), all, k, &job, err));
    const tt_setup_opts so = {.spec = cli->spec, .data = data};
    TT_TRY(tt_setup_make(&so, out->registry, job, cli->arena, &out->setup, err));
    out->setup.converters_at = at;
    return TT_OK;
}

tt_status tt_cli_open_model(const tt_cli *cli, bool data, const tt_override *overrides, size_t n,
                            tt_loaded_model *out, tt_error *err)
{
    TT_TRY(tt_cli_find_model(cli, out, err));
    return tt_cli_open_step(cli, data, overrides, n, out, err);
}

static tt_status open_rank(tt_loaded_model *m, tt_error *err)
{
    const tt_dist one = {.world = 1};
    return tt_rank_open(&m->setup, &one, false, &m->rank, err) == TT_OK
               ? TT_OK
               : tt_error_context(err, "%s", m->path);
}

static tt_status load_weights(tt_loaded_model *m, tt_error *err)
{
    const tt_ckpt_matching all = {.report = true};
    tt_trainer_state st;
    if (m->hf)
        return tt_rank_load_hf(&m->rank, m->path, &all, err);
    TT_TRY(tt_ckpt_read_state(m->path, m->rank.arena, &st, err));
    const tt_load_opts weights = {.report = true};
    return tt_begin_load_step(&m->rank, m->path, &st, &weights, err);
}

tt_status tt_cli_load_model(tt_loaded_model *m, const tt_setup_opts *o, tt_error *err)
{
    TT_TRY(tt_setup_compile(&m->setup, o, err));
    TT_TRY(open_rank(m, err));
    return load_weights(m, err);
}

/* ---- programs that write texts for others ---- */

#define LEAST_CONTEXT 4096 /* a context that nobody asked for is not made shorter than that */
#define HOST_SHARE 0.8     /* of the host's memory that such sizes may take */

int64_t tt_cli_model_vocab(const tt_loaded_model *m)
{
    const tt_model_vt *model = m->setup.model.component->vtable;
    return model->vocab_size(m->setup.model.config);
}

static tt_status compile_decode(tt_loaded_model *m, const tt_cli_decode *d, tt_error *err)
{
    const int64_t rows = TT_MAXV(TT_MIN(d->context, TT_ENGINE_PIECE), d->at_once);
    const tt_setup_opts o = {
        .mode = TT_MODE_DECODE,
        .decode = {.rows = rows,
                   .picked =
                       d->scored ? tt_engine_picked(rows, d->at_once, tt_cli_model_vocab(m)) : 0,
                   .slots = d->at_once,
                   .length = d->context,
                   .cache = d->cache}
    };
    return tt_setup_compile(&m->setup, &o, err);
}

/* Whether a host has plenty of memory for the program; a device is asked when it is opened. */
static bool has_plenty(const tt_loaded_model *m)
{
    tt_arena *a = tt_arena_new();
    tt_error ignored = {0};
    double bytes = 0;
    const bool known = !tt_setup_has_device(&m->setup) &&
                       tt_plan_most_bytes(&m->setup, a, &bytes, &ignored) == TT_OK;
    tt_arena_free(a);
    return !known || bytes <= HOST_SHARE * tt_memory_here();
}

/* Takes the next smaller sizes; false: there are none. */
static bool give_way(tt_cli_decode *d, bool asked)
{
    if (d->at_once > 1 && !d->fixed)
        d->at_once /= 2;
    else if (!asked && d->context > LEAST_CONTEXT)
        d->context = TT_MAXV(d->context / 2, (int64_t)LEAST_CONTEXT);
    else
        return false;
    return true;
}

static tt_status open_decode(tt_loaded_model *m, tt_cli_decode *d, bool asked, tt_error *err)
{
    const tt_setup before = m->setup;
    const tt_cli_decode wanted = *d;
    tt_cli_decode next;
    for (;; *d = next) {
        tt_error why = {0};
        next = *d;
        const bool more = give_way(&next, asked);
        m->setup = before;
        TT_TRY(compile_decode(m, d, err));
        if (more && !has_plenty(m))
            continue;
        const tt_status s = open_rank(m, &why);
        if (s != TT_OK && more)
            continue;
        if (s != TT_OK)
            *err = why;
        else if (wanted.context != d->context || wanted.at_once != d->at_once)
            tt_log(
                TT_INFO, "infer",
                "memory for %lld texts of %lld tokens at once, not for %lld of %lld; --context%s "
                "chooses",
                (long long)d->at_once, (long long)d->context, (long long)wanted.at_once,
                (long long)wanted.context, wanted.at_once > 1 ? " or --batch" : "");
        return s;
    }
}

tt_status tt_cli_load_decode(tt_loaded_model *m, tt_cli_decode *d, tt_error *err)
{
    const bool asked = d->context > 0;
    const char *folder = tt_assets_model(&m->setup, m->setup.arena, m->run);
    if (!asked && folder)
        TT_TRY(tt_hf_context_of(folder, m->setup.arena, &d->context, err));
    if (!d->context)
        d->context = d->otherwise;
    TT_TRY(open_decode(m, d, asked, err));
    return load_weights(m, err);
}

tt_status tt_cli_stops(const tt_loaded_model *m, tt_arena *a, tt_hf_stops *out, tt_error *err)
{
    *out = (tt_hf_stops){0};
    return m->hf ? tt_hf_stops_of(m->path, a, out, err) : TT_OK;
}

void tt_loaded_model_close(tt_loaded_model *m)
{
    tt_rank_close(&m->rank);
    if (m->tokenizer)
        ((const tt_tokenizer_vt *)m->setup.tokenizer.component->vtable)->close(m->tokenizer);
    tt_registry_free(m->registry);
    memset(m, 0, sizeof *m);
}
