/* SPDX-License-Identifier: Apache-2.0 */
#include "config/internal.h"
#include "config/job_core.h"
#include "config/rename.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Parses the core's sections and checks that their keys agree with each other. */

/* The first table of a section, which is the core's. */
static const tt_section_doc *table_of(const char *key)
{
    size_t n;
    const tt_section_doc *docs = tt_core_config_docs(&n);
    while (n > 0 && strcmp(docs->key, key) != 0) {
        docs++;
        n--;
    }
    TT_ASSERT(n > 0);
    return docs;
}

static tt_status section(tt_job *job, const char *key, const char *const *ignore, void *out,
                         tt_error *err)
{
    const tt_section_doc *t = table_of(key);
    return tt_job_section(job, key, t->options, t->n_options, t->option_size, ignore, out, err);
}

static tt_status parse_sections(tt_job *job, tt_core_config *c, tt_error *err)
{
    static const char *const of_model[] = {"name", "args", NULL}, *const of_validation[] = {
                                                                      "dataloader", "datasets",
                                                                      NULL};
    static const char *const of_metrics[] = {"sinks", NULL};
    static const char *const of_training[] = {"num_tokens_per_microbatch_per_dp_rank",
                                              "num_tokens_per_train_step", NULL};
    static const char *const of_comm[] = {"args", "host_args", NULL};
    TT_TRY(section(job, "", NULL, c, err));
    TT_TRY(section(job, "model", of_model, c, err));
    TT_TRY(section(job, "training", of_training, &c->training, err));
    TT_TRY(section(job, "parallelism", NULL, &c->parallelism, err));
    TT_TRY(section(job, "activation_checkpoint", NULL, &c->activation_checkpoint, err));
    TT_TRY(section(job, "checkpoint", NULL, &c->checkpoint, err));
    TT_TRY(section(job, "validation", of_validation, &c->validation, err));
    TT_TRY(section(job, "metrics", of_metrics, &c->metrics, err));
    TT_TRY(section(job, "profiling", NULL, &c->profiling, err));
    TT_TRY(section(job, "comm", of_comm, &c->comm, err));
    TT_TRY(section(job, "debug", NULL, &c->debug, err));
    return section(job, "log", NULL, c, err);
}

/* torchtitan's present token budgets: `key` gives a number of tokens, which is tokens / seq_len
 * samples, instead of `sibling`. */
static tt_status take_budget(tt_job *job, const char *key, const char *sibling, int64_t seq_len,
                             int64_t rounds, int64_t *samples, tt_error *err)
{
    const tt_option o = {.name = key, .type = TT_OPT_INT, .min = -1, .max = 1e15};
    const tt_json *v = tt_config_find(job, key), *other = tt_config_find(job, sibling);
    tt_config_value tokens;
    if (!v)
        return TT_OK;
    tt_config_claim(job, key);
    TT_TRY(tt_config_read(job, &o, key, v, &tokens, err));
    if (other && other->origin->layer == v->origin->layer)
        return tt_job_fail(job, key, err, "sets the same as %s; keep one of them", sibling);
    if (tokens.integer == -1 || (other && other->origin->layer > v->origin->layer))
        return TT_OK;
    if (tokens.integer < 1 || tokens.integer % seq_len)
        return tt_job_fail(job, key, err, "%lld tokens are not a multiple of training.seq_len %lld",
                           (long long)tokens.integer, (long long)seq_len);
    int64_t n;
    if (!tt_mul_i64(tokens.integer / seq_len, rounds, &n) || n > 1000000000)
        return tt_job_fail(job, key, err, "%lld tokens are too many", (long long)tokens.integer);
    tokens = (tt_config_value){.integer = n};
    tt_config_set(job, sibling, tt_config_json(job, &o, &tokens), tt_config_origin(job->arena, v),
                  false);
    *samples = n;
    return TT_OK;
}

static tt_status take_budgets(tt_job *job, tt_core_config *c, tt_error *err)
{
    const tt_parallelism_config *p = &c->parallelism;
    int64_t pieces = p->pipeline_parallel_degree > 1
                         ? TT_MAXV(p->pipeline_parallel_microbatches, (int64_t)1)
                         : 1;
    tt_training_config *t = &c->training;
    TT_TRY(take_budget(job, "training.num_tokens_per_microbatch_per_dp_rank",
                       "training.local_batch_size", t->seq_len, pieces, &t->local_batch_size,
                       err)); /* local_batch_size includes all micro-batches */
    return take_budget(job, "training.num_tokens_per_train_step", "training.global_batch_size",
                       t->seq_len, 1, &t->global_batch_size, err);
}

static tt_status check_not_zero(const tt_job *job, const char *key, int64_t value, tt_error *err)
{
    if (value != 0)
        return TT_OK;
    return tt_job_fail(job, key, err, "expected 1 or more, or -1, got 0");
}

static tt_status check_not_empty(const tt_job *job, const char *key, const char *value,
                                 tt_error *err)
{
    if (!value || *value)
        return TT_OK;
    return tt_job_fail(job, key, err, "expected a name, got \"\"");
}

static tt_status check_batch(const tt_job *job, const tt_core_config *c, tt_error *err)
{
    const tt_parallelism_config *p = &c->parallelism;
    int64_t local = c->training.local_batch_size, global = c->training.global_batch_size;
    int64_t pieces = p->pipeline_parallel_microbatches, dp = p->data_parallel_replicate_degree;
    bool all_known = p->data_parallel_shard_degree > 0;
    if (all_known)
        dp *= p->data_parallel_shard_degree; /* both at most 1e6 */
    int64_t share = INT64_MAX;
    (void)tt_mul_i64(local, dp, &share); /* on overflow global is not a multiple either */
    if (global > 0 && global % share)
        return tt_job_fail(job, "training.global_batch_size", err,
                           "%lld is not a multiple of local_batch_size %lld times %s %lld",
                           (long long)global, (long long)local,
                           all_known ? "data-parallel degree" : "data_parallel_replicate_degree",
                           (long long)dp);
    if (p->pipeline_parallel_degree > 1 && pieces > 0 && local % pieces)
        return tt_job_fail(job, "parallelism.pipeline_parallel_microbatches", err,
                           "training.local_batch_size %lld does not divide into %lld microbatches",
                           (long long)local, (long long)pieces);
    return TT_OK;
}

/* training.clip_norm_type */
static tt_status read_norm_order(const tt_job *job, tt_training_config *t, tt_error *err)
{
    const char *text = t->clip_norm_type ? t->clip_norm_type : "null",
               *digits = text + (*text == '"');
    char *end = NULL;
    t->clip_norm_order = strtod(digits, &end);
    const bool whole = !strcmp(end, *text == '"' ? "\"" : "");
    if (whole && t->clip_norm_order > 0) /* 0 where there is no number */
        return TT_OK;
    return tt_job_fail(job, "training.clip_norm_type", err,
                       "expected a number above 0, or \"inf\"; got %s", text);
}

/* The rules are made again where they are applied. */
static tt_status check_renames(const tt_job *job, const tt_strings *rules, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_renames made;
    tt_error why = {0};
    tt_status s = tt_renames_make(a, rules, &made, &why);
    if (s != TT_OK)
        s = tt_job_fail(job, "checkpoint.initial_load_rename", err, "%s", why.text);
    tt_arena_free(a);
    return s;
}

static tt_status check(const tt_job *job, const tt_core_config *c, tt_error *err)
{
    int exponent = 0;
    TT_TRY(check_not_empty(job, "spec", c->spec, err));
    TT_TRY(check_not_empty(job, "dump_folder", c->dump_folder, err));
    TT_TRY(check_not_empty(job, "model.hf", c->hf, err));
    TT_TRY(check_not_empty(job, "model.flavor", c->flavor, err));
    TT_TRY(check_not_empty(job, "model.hf_assets_path", c->hf_assets_path, err));
    TT_TRY(check_not_empty(job, "checkpoint.folder", c->checkpoint.folder, err));
    TT_TRY(
        check_not_empty(job, "checkpoint.initial_load_path", c->checkpoint.initial_load_path, err));
    TT_TRY(check_not_empty(job, "debug.dump_graph", c->debug.dump_graph, err));
    TT_TRY(check_not_empty(job, "debug.dump_program", c->debug.dump_program, err));
    TT_TRY(check_not_zero(job, "training.global_batch_size", c->training.global_batch_size, err));
    TT_TRY(check_not_zero(job, "parallelism.data_parallel_shard_degree",
                          c->parallelism.data_parallel_shard_degree, err));
    TT_TRY(check_not_zero(job, "parallelism.pipeline_parallel_microbatches",
                          c->parallelism.pipeline_parallel_microbatches, err));
    if (c->training.num_train_epochs <= 0)
        return tt_job_fail(job, "training.num_train_epochs", err,
                           "expected a number above 0; training.steps 0 trains nothing");
    if (frexp(c->training.loss_scale, &exponent) > 0.5)
        return tt_job_fail(job, "training.loss_scale", err,
                           "%g is not a power of two, so scaling would round the gradients; use %g",
                           c->training.loss_scale, ldexp(0.5, exponent));
    TT_TRY(check_not_zero(job, "validation.steps", c->validation.steps, err));
    if (tt_job_has(job, "validation.datasets") && tt_job_has(job, "validation.dataloader"))
        return tt_job_fail(job, "validation.dataloader", err,
                           "validation.datasets is set too: make this one of its data sets");
    if (strcmp(c->flavor, "hf") == 0 && !c->hf_assets_path)
        return tt_job_fail(job, "model.flavor", err,
                           "\"hf\" takes the sizes from model.hf_assets_path, which is not set");
    TT_TRY(check_not_zero(job, "checkpoint.interval", c->checkpoint.interval, err));
    if (c->profiling.active > c->profiling.freq)
        return tt_job_fail(job, "profiling.active", err,
                           "a cycle of %lld steps (profiling.freq) has no %lld to trace",
                           (long long)c->profiling.freq, (long long)c->profiling.active);
    if (tt_rank_listed(c->profiling.ranks, 0) < 0)
        return tt_job_fail(job, "profiling.ranks", err,
                           "expected \"all\" or ranks, like \"0,3\"; got \"%s\"",
                           c->profiling.ranks);
    TT_TRY(check_renames(job, &c->checkpoint.initial_load_rename, err));
    static const char *const states[] = {"optimizer", "lr_scheduler", "dataloader", "train_state"};
    for (size_t i = 0; i < c->checkpoint.exclude_from_loading.n; i++) {
        bool known = false;
        for (size_t k = 0; k < TT_COUNT(states); k++)
            known |= !strcmp(c->checkpoint.exclude_from_loading.items[i], states[k]);
        if (!known)
            return tt_job_fail(job, "checkpoint.exclude_from_loading", err,
                               "\"%s\" is none of optimizer, lr_scheduler, dataloader, train_state",
                               c->checkpoint.exclude_from_loading.items[i]);
    }
    return check_batch(job, c, err);
}

tt_status tt_core_config_parse(tt_job *job, tt_core_config *out, tt_error *err)
{
    size_t n;
    const tt_section_doc *docs = tt_core_config_docs(&n);
    tt_core_config c;
    memset(&c, 0, sizeof c);
    tt_job_know(job, docs, n);
    TT_TRY(parse_sections(job, &c, err));
    TT_TRY(take_budgets(job, &c, err));
    TT_TRY(read_norm_order(job, &c.training, err));
    TT_TRY(check(job, &c, err));
    *out = c;
    return TT_OK;
}

tt_status tt_job_plugin_dirs(tt_job *job, tt_strings *out, tt_error *err)
{
    const char *key = "plugin_dirs";
    const tt_section_doc *t = table_of("");
    const tt_option *o = t->options;
    const tt_json *v = tt_config_find(job, key);
    tt_config_value value = {0};
    while (strcmp(o->name, key) != 0)
        o++;
    if (v) {
        TT_TRY(tt_config_read(job, o, key, v, &value, err));
        tt_config_resolve(job, o, v, &value);
    }
    *out = value.strings;
    return TT_OK;
}

tt_status tt_backend_section_parse(tt_job *job, const char *const *ignore, tt_backend_section *out,
                                   tt_error *err)
{
    tt_backend_section b = {0};
    TT_TRY(section(job, "backend", ignore, &b, err));
    TT_TRY(check_not_empty(job, "backend.name", b.name, err));
    *out = b;
    return TT_OK;
}

static bool is_in(const char *const *list, const char *name)
{
    for (size_t i = 0; list[i]; i++)
        if (strcmp(list[i], name) == 0)
            return true;
    return false;
}

/* The options that the core's table `name` documents for every component, of the section `key`. own:
 * the component's options, which go before the core's; more: a key that others read. */
static tt_status common_options(tt_job *job, const char *name, const char *key,
                                const char *const *own, const char *more, void *out, tt_error *err)
{
    const tt_section_doc *t = table_of(name);
    tt_option *rows = tt_arena_array(job->arena, t->n_options, sizeof *rows);
    size_t n = 0, n_own = 0;
    while (own[n_own])
        n_own++;
    const char **ignore = tt_arena_array(job->arena, n_own + 3, sizeof *ignore);
    if (n_own)
        memcpy(ignore, own, n_own * sizeof *own);
    ignore[n_own] = "name";
    ignore[n_own + 1] = more;
    for (size_t i = 0; i < t->n_options; i++)
        if (!is_in(own, t->options[i].name))
            rows[n++] = t->options[i];
    return tt_job_section(job, key, rows, n, sizeof *rows, ignore, out, err);
}

const char *tt_checkpoint_off(const tt_checkpoint_config *c)
{
    return !c->enable                 ? "checkpoint.enable is false"
           : c->load_only             ? "checkpoint.load_only is true"
           : c->interval == INT64_MIN ? "checkpoint.interval is null"
                                      : NULL;
}

tt_status tt_converter_config_parse(tt_job *job, const char *key, const char *const *own,
                                    tt_converter_config *out, tt_error *err)
{
    memset(out, 0, sizeof *out);
    out->to_step = INT64_MIN; /* null, if the plugin's own option has this name */
    return common_options(job, "converters[]", key, own, NULL, out, err);
}

tt_status tt_console_config_parse(tt_job *job, const char *key, tt_console_config *out,
                                  tt_error *err)
{
    static const char *const name[] = {"name", NULL};
    const tt_section_doc *t = tt_console_doc();
    memset(out, 0, sizeof *out);
    return tt_job_section(job, key, t->options, t->n_options, t->option_size, name, out, err);
}

tt_status tt_dataloader_config_parse(tt_job *job, const char *section, const char *const *own,
                                     tt_dataloader_config *out, tt_error *err)
{
    memset(out, 0, sizeof *out);
    /* if the loader's own option has the name */
    out->infinite = true;
    out->shuffle = false;
    out->seed = INT64_MIN;
    return common_options(job, "dataloader", section, own, "mixture", out, err);
}

tt_status tt_optimizer_config_parse(tt_job *job, const char *const *own, tt_optimizer_config *out,
                                    tt_error *err)
{
    memset(out, 0, sizeof *out);
    out->qk_clip = (double)NAN; /* if the plugin's own option has this name */
    return common_options(job, "optimizer", "optimizer", own, "param_groups", out, err);
}

tt_status tt_lr_scheduler_config_parse(tt_job *job, const char *const *own,
                                       tt_lr_scheduler_config *out, tt_error *err)
{
    memset(out, 0, sizeof *out);
    out->total_steps = out->warmup_tokens = INT64_MIN; /* if the plugin's own option has the name */
    return common_options(job, "lr_scheduler", "lr_scheduler", own, NULL, out, err);
}
