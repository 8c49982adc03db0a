/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_impl.h"
#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* setup: decides how many stages there are and where they begin, and makes the schedule. */

#define KEY(name) "parallelism." name

/* A stage begins at each point. The first stage may consist of the embedding only. */
static tt_status split_points(tt_setup *s, const tt_strings *points, int *n_stages, tt_error *err)
{
    int *begin = tt_arena_array(s->arena, points->n + 1, sizeof *begin);
    for (size_t i = 0; i < points->n; i++) {
        const bool head = i + 1 == points->n && tt_setup_is_head(s, points->items[i]);
        begin[i + 1] = head ? INT_MAX : tt_setup_block(s, points->items[i]);
        if (begin[i + 1] < 0)
            return tt_job_fail(s->job, KEY("pipeline_parallel_split_points"), err,
                               "\"%s\" is not a layer: expected names like layers.2%s%s",
                               points->items[i], s->shape.n_blocks > 2 ? " or " : "",
                               s->shape.n_blocks > 2 ? s->shape.blocks[2] : "");
        if (begin[i + 1] < begin[i] + (i > 0))
            return tt_job_fail(s->job, KEY("pipeline_parallel_split_points"), err,
                               "\"%s\" does not come after the stage before it", points->items[i]);
    }
    *n_stages = (int)points->n + 1;
    s->stage_begin = begin;
    return TT_OK;
}

/* Reads one stage's list: consecutive layers, the first of them `next`. Only the first and the last
 * stage (`end`) may list modules that are not layers, and they may have no layer. */
static tt_status module_list(const tt_setup *s, const tt_json *list, bool end, int *next,
                             int *begin, tt_error *err)
{
    static const char key[] = KEY("module_fqns_per_model_part");
    *begin = *next;
    if (list->type != TT_JSON_ARRAY)
        return tt_job_fail(s->job, key, err, "expected lists of module names");
    for (size_t i = 0; i < list->n; i++) {
        if (list->items[i]->type != TT_JSON_STRING)
            return tt_job_fail(s->job, key, err, "expected lists of module names");
        const char *name = list->items[i]->string;
        const int layer = tt_setup_block(s, name);
        if (layer < 0 && !end)
            return tt_job_fail(s->job, key, err,
                               "\"%s\" is not a layer: embedding and head must be on the first and "
                               "the last stage",
                               name);
        if (layer < 0 || layer == *next - 1)
            continue;
        if (layer != *next)
            return tt_job_fail(s->job, key, err, "\"%s\": expected layer %d here", name, *next);
        ++*next;
    }
    if (*next == *begin && !(end && list->n))
        return tt_job_fail(s->job, key, err, "a stage has no layer");
    return TT_OK;
}

static tt_status module_lists(tt_setup *s, const char *text, int *n_stages, tt_error *err)
{
    static const char key[] = KEY("module_fqns_per_model_part");
    const tt_json *all;
    int next = 0;
    TT_TRY(tt_json_parse(s->arena, key, text, strlen(text), &all, err));
    if (all->type != TT_JSON_ARRAY || !all->n || all->n > TT_MAX_STAGES)
        return tt_job_fail(s->job, key, err, "expected a list of 1 to %d lists of module names",
                           TT_MAX_STAGES);
    int *begin = tt_arena_array(s->arena, all->n, sizeof *begin);
    for (size_t i = 0; i < all->n; i++)
        TT_TRY(module_list(s, all->items[i], i == 0 || i + 1 == all->n, &next, &begin[i], err));
    const int layers = s->shape.n_blocks;
    if (layers && layers != next)
        return tt_job_fail(s->job, key, err, "the lists have %d of the model's %d layers", next,
                           layers);
    *n_stages = (int)all->n;
    s->stage_begin = begin;
    return TT_OK;
}

/* Counts as torchtitan does: the embedding and the head are one layer each. */
static tt_status by_layers(const tt_setup *s, int64_t per_stage, int *n_stages, tt_error *err)
{
    const int n = s->shape.n_blocks;
    if (!n)
        return tt_job_fail(s->job, KEY("pipeline_parallel_layers_per_stage"), err,
                           "model %s has no blocks, so it cannot be cut into stages",
                           s->model.name);
    const int64_t stages = (n + 2 + per_stage - 1) / per_stage;
    if (stages > TT_MAX_STAGES)
        return tt_job_fail(s->job, KEY("pipeline_parallel_layers_per_stage"), err,
                           "%lld stages are more than %d", (long long)stages, TT_MAX_STAGES);
    *n_stages = (int)stages;
    return TT_OK;
}

/* The number of stages that the job asks for, and the key that does; 0 = the schedule's usual
 * number. */
static tt_status wanted_stages(tt_setup *s, int *n, const char **key, tt_error *err)
{
    const tt_parallelism_config *p = &s->core.parallelism;
    *n = 0;
    if (p->module_fqns_per_model_part) {
        *key = KEY("module_fqns_per_model_part");
        return module_lists(s, p->module_fqns_per_model_part, n, err);
    }
    if (p->pipeline_parallel_split_points.n) {
        *key = KEY("pipeline_parallel_split_points");
        if (p->pipeline_parallel_split_points.n >= TT_MAX_STAGES)
            return tt_job_fail(s->job, *key, err, "at most %d stages", TT_MAX_STAGES);
        return split_points(s, &p->pipeline_parallel_split_points, n, err);
    }
    if (p->pipeline_parallel_layers_per_stage != INT64_MIN) {
        *key = KEY("pipeline_parallel_layers_per_stage");
        return by_layers(s, p->pipeline_parallel_layers_per_stage, n, err);
    }
    return TT_OK;
}

static tt_status from_csv(tt_setup *s, int wanted, const char *key, tt_error *err)
{
    static const char csv[] = KEY("pipeline_parallel_schedule_csv");
    const char *path = tt_path_join(s->arena, tt_job_dir(s->job),
                                    s->core.parallelism.pipeline_parallel_schedule_csv);
    char *text;
    size_t n;
    tt_error why = {0};
    if (tt_read_file(path, 0, &text, &n, &why) != TT_OK)
        return tt_job_fail(s->job, csv, err, "%s", why.text);
    const tt_status st = tt_schedule_read_csv(text, n, path, s->arena, &s->schedule, &why);
    free(text);
    if (st != TT_OK)
        return tt_job_fail(s->job, csv, err, "%s", why.text);
    const tt_schedule *c = s->schedule;
    if (c->n_ranks != s->pipeline_ranks)
        return tt_job_fail(s->job, csv, err, "%s has rows for %d ranks, but %s is %d", path,
                           c->n_ranks, KEY("pipeline_parallel_degree"), s->pipeline_ranks);
    if (c->n_micro != s->calls)
        return tt_job_fail(
            s->job, csv, err,
            "%s has %d micro-batches, but a step of this job has %lld%s: set "
            "parallelism.pipeline_parallel_microbatches or the batch sizes",
            path, c->n_micro, (long long)s->calls,
            s->calls < s->micro_batches ? " groups of training.intra_layer_micro_batch" : "");
    if (wanted && wanted != c->n_stages)
        return tt_job_fail(s->job, key, err, "asks for %d stages, but %s has %d", wanted, path,
                           c->n_stages);
    return TT_OK;
}

static const char schedule_key[] = KEY("pipeline_parallel_schedule");

static tt_status find_schedule(const tt_setup *s, const tt_schedule_kind **out, tt_error *err)
{
    tt_error why = {0};
    return tt_schedule_find(s->core.parallelism.pipeline_parallel_schedule, out, &why) == TT_OK
               ? TT_OK
               : tt_job_fail(s->job, schedule_key, err, "%s", why.text);
}

static tt_status pipeline_by_name(tt_setup *s, int wanted, const char *key, tt_error *err)
{
    const tt_schedule_kind *kind;
    tt_error why = {0};
    TT_TRY(find_schedule(s, &kind, err));
    const int p = s->pipeline_ranks, chunks = wanted ? wanted / p : kind->usual_chunks;
    if (wanted % p || (wanted && (chunks < kind->min_chunks || chunks > kind->max_chunks)))
        return tt_job_fail(
            s->job, key, err,
            "%d stages cannot be placed on %d pipeline ranks with %s, which needs %d%s "
            "per rank",
            wanted, p, kind->name, kind->min_chunks,
            kind->max_chunks > kind->min_chunks ? " or more" : "");
    if (tt_schedule_make(kind->name, p, chunks, (int)s->calls, s->arena, &s->schedule, &why) !=
        TT_OK)
        return tt_job_fail(s->job, schedule_key, err, "%s", why.text);
    return TT_OK;
}

tt_status tt_setup_pipeline(tt_setup *s, tt_error *err)
{
    const char *key = NULL;
    int wanted = 0;
    const tt_schedule_kind *kind;
    s->n_stages = 1;
    TT_TRY(find_schedule(s, &kind, err)); /* a wrong name is one without a pipeline, too */
    if (s->calls > TT_MAX_MICRO)
        return tt_job_fail(s->job, "training.global_batch_size", err,
                           "%lld micro-batches per step are more than %d",
                           (long long)s->micro_batches, TT_MAX_MICRO);
    if (s->pipeline_ranks ==
        1) /* the forward and the backward of one micro-batch after the other */
        return tt_schedule_make("1F1B", 1, 1, (int)s->calls, s->arena, &s->schedule, err);
    TT_TRY(wanted_stages(s, &wanted, &key, err));
    if (*s->core.parallelism.pipeline_parallel_schedule_csv)
        TT_TRY(from_csv(s, wanted, key, err));
    else
        TT_TRY(pipeline_by_name(s, wanted, key, err));
    s->n_stages = s->schedule->n_stages;
    return TT_OK;
}
