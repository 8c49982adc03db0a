/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/install.h"
#include "train/train.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* For hf_peer.py: logits_tool PLUGINS JOB.json IDS OUT
 *   IDS: i32, training.seq_len of them   OUT: f32 [ids, vocabulary]
 * One forward pass of the job's model on one rank, with the weights of its
 * checkpoint.initial_load_path. */

typedef struct input {
    int32_t *ids;
    size_t n;
} input;

static tt_status fill(void *user, const char *name, int micro, int64_t begin, int64_t end,
                      int32_t *dst, tt_error *err)
{
    const input *in = user;
    (void)micro;
    (void)err;
    const bool longer =
        !strncmp(name, TT_INPUT_LONGER, strlen(TT_INPUT_LONGER)); /* if it is asked */
    for (int64_t i = begin; i < end; i++)
        dst[i - begin] = !strcmp(name, "ids")   ? in->ids[i]
                         : !strcmp(name, "pos") ? (int32_t)i
                                                : longer;
    return TT_OK;
}

static tt_status forward(tt_rank *r, input *in, const char *out, tt_error *err)
{
    tt_tensor logits;
    const char *path = r->s->core.checkpoint.initial_load_path;
    const tt_ckpt_matching all = {.report = true};
    const tt_load_opts weights = {.report = false};
    TT_TRY(r->s->core.checkpoint.initial_load_in_hf ? tt_rank_load_hf(r, path, &all, err)
                                                    : tt_rank_load(r, path, &weights, err));
    TT_TRY(tt_exec_micro_batches(r->exec, 1, fill, in, err));
    TT_TRY(tt_exec_state_tensor(r->exec, TT_METRIC_LOGITS, &logits, err));
    return tt_write_file_atomic(out, (const char *)logits.data,
                                (size_t)(logits.shape[0] * logits.shape[1]) * sizeof(float), err);
}

int main(int argc, char **argv)
{
    tt_error err = {0};
    tt_arena *a = tt_arena_new();
    const char *dirs[] = {argc > 1 ? argv[1] : "", NULL};
    const tt_registry_opts ro = {.dirs = dirs, .n_dirs = 1};
    const tt_setup_opts so = {.mode = TT_MODE_LOGITS, .compile = true, .data = true};
    const tt_dist one = {.world = 1};
    tt_registry *registry = NULL;
    tt_job *job = NULL;
    tt_setup s = {0};
    tt_rank rank = {0};
    input in = {0};
    char *ids = NULL;
    if (argc != 5) {
        fprintf(stderr, "usage: logits_tool PLUGINS JOB.json IDS OUT\n");
        return 2;
    }
    tt_interchange_install();
    tt_status st = tt_read_file(argv[3], 0, &ids, &in.n, &err);
    in.ids = (int32_t *)(void *)ids;
    if (st == TT_OK)
        st = tt_registry_new(&ro, &registry, &err);
    if (st == TT_OK)
        st = tt_job_load(a, argv[2], NULL, 0, &job, &err);
    if (st == TT_OK)
        st = tt_setup_make(&so, registry, job, a, &s, &err);
    if (st == TT_OK && in.n != (size_t)s.core.training.seq_len * sizeof(int32_t))
        st = TT_FAIL(&err, TT_EINVAL, "%s: not training.seq_len ids", argv[3]);
    if (st == TT_OK)
        st = tt_rank_open(&s, &one, false, &rank, &err);
    if (st == TT_OK)
        st = forward(&rank, &in, argv[4], &err);
    if (st != TT_OK)
        fprintf(stderr, "logits_tool: %s\n", err.text);
    if (rank.arena)
        tt_rank_close(&rank);
    if (registry)
        tt_registry_free(registry);
    free(ids);
    tt_arena_free(a);
    return st == TT_OK ? 0 : 1;
}
