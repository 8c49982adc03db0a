/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_EXEC_JOB_H
#define TT_TESTS_EXEC_JOB_H
#include "train/train.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Small whole runs inside the test: odd sizes (vocabulary 263, 5 layers, 6 heads on 2, sequences of
 * 37 tokens), and overrides as on the command line. Plugins come from $PLUGINS, which
 * mk/run-tests.sh sets. */

static const char job_text[] =
    "{\"spec\":\"llama3\",\"model\":{\"flavor\":\"debugmodel\",\"args\":{\"dim\":48,\"n_layers\":5,"
    "\"n_heads\":6,"
    "\"n_kv_heads\":2,\"hidden_dim\":70,\"vocab_size\":263}},"
    "\"training\":{\"local_batch_size\":4,\"seq_len\":37,\"steps\":3},"
    "\"metrics\":{\"log_freq\":1,\"enable_tensorboard\":false},\"checkpoint\":{\"enable\":false},"
    "\"backend\":{\"threads\":1}}";

static const char *job_more_plugins; /* a folder of further plugins; NULL: none */

typedef struct job {
    tt_arena *arena;
    tt_registry *registry; /* all jobs' */
    tt_setup setup;
} job;

static inline const char *job_folder(void)
{
    const char *t = getenv("TMPDIR");
    return t ? t : "/tmp";
}

/* Some text to train on: the same in every test, written once. */
static inline const char *job_data(tt_arena *a)
{
    static bool written;
    const char *path = tt_path_join(a, job_folder(), "exec-test.txt");
    tt_error err;
    tt_str s = {0};
    if (written)
        return path;
    for (int i = 0; i < 3000; i++)
        tt_str_printf(&s, "line %d: %d is the square of %d modulo 997\n", i, i * i % 997, i);
    if (tt_write_file_atomic(path, tt_str_get(&s), s.n, &err) != TT_OK)
        fail_msg("%s", err.text);
    tt_str_free(&s);
    written = true;
    return path;
}

/* The plugins of a folder and of job_more_plugins: opened once for all jobs of a program, because that takes longer than a small job. */
static inline tt_status job_registry(const char *dir, tt_registry **out, tt_error *err)
{
    static struct {
        char *dir;
        const char *more;
        tt_registry *registry;
    } open[4];
    size_t k = 0;
    while (open[k].registry && (strcmp(open[k].dir, dir) || open[k].more != job_more_plugins))
        assert_true(++k < TT_COUNT(open));
    if (!open[k].registry) {
        const char *const dirs[] = {dir, job_more_plugins};
        const tt_registry_opts ro = {.dirs = dirs, .n_dirs = job_more_plugins ? 2 : 1};
        TT_TRY(tt_registry_new(&ro, &open[k].registry, err));
        open[k].more = job_more_plugins;
        open[k].dir = malloc(strlen(dir) + 1);
        assert_non_null(open[k].dir);
        strcpy(open[k].dir, dir);
    }
    *out = open[k].registry;
    return TT_OK;
}

/* overrides: "key value key value …", separated by single blanks; no value holds a blank. */
static inline tt_status job_try(job *j, const char *text, const char *overrides,
                                const tt_setup_opts *o, tt_error *err)
{
    tt_override all[40];
    size_t n = 0;
    const char *dir = getenv("PLUGINS");
    memset(j, 0, sizeof *j);
    j->arena = tt_arena_new();
    if (!dir)
        dir = "./plugins";
    all[n++] =
        (tt_override){"dataloader.path", tt_arena_printf(j->arena, "[\"%s\"]", job_data(j->arena))};
    all[n++] = (tt_override){"dump_folder", tt_path_join(j->arena, job_folder(), "exec-test-run")};
    char *words = tt_arena_str(j->arena, overrides ? overrides : ""), *save = NULL;
    for (char *w = strtok_r(words, " ", &save); w && n < TT_COUNT(all);
         w = strtok_r(NULL, " ", &save))
        all[n++] = (tt_override){w, strtok_r(NULL, " ", &save)};
    tt_job *parsed;
    TT_TRY(tt_job_load_text(j->arena, "test", text, strlen(text), all, n, &parsed, err));
    TT_TRY(job_registry(dir, &j->registry, err));
    return tt_setup_make(o, j->registry, parsed, j->arena, &j->setup, err);
}

static inline void job_open_text(job *j, const char *text, const char *overrides)
{
    const tt_setup_opts o = {.mode = TT_MODE_TRAIN, .compile = true, .data = true};
    tt_error err = {0};
    tt_log_setup(TT_ERROR, 0, 1, false);
    if (job_try(j, text, overrides, &o, &err) != TT_OK)
        fail_msg("%s: %s", overrides, err.text);
}

static inline void job_open(job *j, const char *overrides)
{
    job_open_text(j, job_text, overrides);
}

static inline void job_close(job *j)
{
    tt_arena_free(j->arena);
}

/* The meshes that plan and exec must hold for; the world follows from the degrees. */
static const char *const job_meshes[] = {
    "",
    "training.global_batch_size 12",
    "activation_checkpoint.mode full",
    "parallelism.data_parallel_shard_degree 2",
    "parallelism.tensor_parallel_degree 2",
    "parallelism.context_parallel_degree 2",
    "parallelism.context_parallel_degree 3 parallelism.context_parallel_rotate_method ring",
    "parallelism.context_parallel_degree 2 parallelism.context_parallel_rotate_method ring "
    "training.local_batch_size 3 parallelism.pipeline_parallel_degree 2 "
    "activation_checkpoint.mode full parallelism.data_parallel_shard_degree 2 "
    "training.mixed_precision_param bfloat16",
    "parallelism.context_parallel_degree 2 parallelism.context_parallel_rotate_method ulysses "
    "training.local_batch_size 1",
    "parallelism.pipeline_parallel_degree 2",
    "parallelism.pipeline_parallel_degree 2 parallelism.pipeline_parallel_schedule GPipe",
    "parallelism.pipeline_parallel_degree 2 parallelism.data_parallel_shard_degree 2 "
    "training.global_batch_size 16",
    "parallelism.data_parallel_shard_degree 2 parallelism.tensor_parallel_degree 2 "
    "activation_checkpoint.mode selective",
    "parallelism.pipeline_parallel_degree 2 parallelism.pipeline_parallel_schedule Interleaved1F1B",
    "parallelism.pipeline_parallel_degree 2 parallelism.pipeline_parallel_schedule ZBVZeroBubble "
    "activation_checkpoint.mode full",
    "parallelism.pipeline_parallel_degree 2 parallelism.pipeline_parallel_schedule "
    "InterleavedZeroBubble parallelism.data_parallel_shard_degree 2 training.global_batch_size 16",
    "training.mixed_precision_param bfloat16",
    "parallelism.data_parallel_shard_degree 2 parallelism.fsdp_reshard_after_forward never "
    "training.global_batch_size 16",
    "parallelism.data_parallel_shard_degree 2 parallelism.pipeline_parallel_degree 2 "
    "training.mixed_precision_param bfloat16 training.mixed_precision_reduce bfloat16 "
    "parallelism.fsdp_reshard_after_forward never",
    "activation_checkpoint.store_dtype bfloat16",
    "parallelism.pipeline_parallel_degree 2 parallelism.pipeline_parallel_schedule ZBVZeroBubble "
    "activation_checkpoint.store_dtype bfloat16",
};

#endif
