/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/from_checkpoint.h"
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

tt_status tt_cli_find_step(const tt_cli *cli, const char **out, tt_error *err)
{
    const char *path = tt_cli_option(cli, "checkpoint");
    if (!path)
        return TT_FAIL(err, TT_EINVAL,
                       "--checkpoint is missing: a step-N folder, or a run's folder");
    if (tt_path_exists(tt_path_join(cli->arena, path, "trainer.json"))) {
        *out = path;
        return TT_OK;
    }
    const char *tries[] = {path, tt_path_join(cli->arena, path, "checkpoint")};
    for (size_t i = 0; i < TT_COUNT(tries); i++) {
        int64_t *steps;
        size_t n;
        if (!tt_path_exists(tries[i]))
            continue;
        TT_TRY(tt_ckpt_list(tries[i], cli->arena, &steps, &n, err));
        if (!n)
            continue;
        *out = tt_arena_printf(cli->arena, "%s/step-%lld", tries[i], (long long)steps[n - 1]);
        return TT_OK;
    }
    return TT_FAIL(err, TT_ENOTFOUND,
                   "--checkpoint: no checkpoint in %s (a step-N folder, or a run's folder)", path);
}

/* One rank, one sample at a time, nothing but the model. */
static const char *const alone[] = {
    "parallelism.data_parallel_replicate_degree", "parallelism.data_parallel_shard_degree",
    "parallelism.tensor_parallel_degree",         "parallelism.context_parallel_degree",
    "parallelism.pipeline_parallel_degree",       "training.local_batch_size",
};

tt_status tt_cli_load_job(const tt_cli *cli, const char *step, tt_mode mode,
                          const tt_override *overrides, size_t n, tt_loaded_model *out,
                          tt_error *err)
{
    tt_trainer_state st;
    tt_job *job;
    memset(out, 0, sizeof *out);
    TT_TRY(tt_ckpt_read_state(step, cli->arena, &st, err));
    tt_override *all =
        tt_arena_array(cli->arena, TT_COUNT(alone) + 2 + n + cli->n_overrides, sizeof *all);
    size_t k = 0;
    for (size_t i = 0; i < TT_COUNT(alone); i++)
        all[k++] = (tt_override){alone[i], "1"};
    all[k++] = (tt_override){"training.global_batch_size", "-1"};
    all[k++] = (tt_override){"validation.enable", "false"};
    for (size_t i = 0; i < n; i++)
        all[k++] = overrides[i];
    for (size_t i = 0; i < cli->n_overrides; i++)
        all[k++] = cli->overrides[i];
    TT_TRY(tt_job_load_text(cli->arena, tt_arena_printf(cli->arena, "%s/trainer.json", step),
                            st.job_json, strlen(st.job_json), all, k, &job, err));
    TT_TRY(tt_cli_registry(cli, &out->registry, err));
    const tt_setup_opts so = {.spec = cli->spec, .mode = mode, .compile = true, .data = true};
    return tt_setup_make(&so, out->registry, job, cli->arena, &out->setup, err);
}

tt_status tt_cli_load_weights(const char *step, tt_loaded_model *m, tt_error *err)
{
    const tt_dist one = {.world = 1};
    TT_TRY(tt_rank_open(&m->setup, &one, false, &m->rank, err));
    return tt_rank_load(&m->rank, step, false, err);
}

void tt_loaded_model_close(tt_loaded_model *m)
{
    tt_rank_close(&m->rank);
    if (m->tokenizer)
        ((const tt_tokenizer_vt *)m->setup.tokenizer.component->vtable)->close(m->tokenizer);
    tt_registry_free(m->registry);
    memset(m, 0, sizeof *m);
}
