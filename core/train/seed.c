/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/train.h"
#include <errno.h>
#include <string.h>
#include <sys/random.h>

/* training.seed null: a run that begins draws a seed, and one that is resumed keeps that of run.json. */

/* Of the run in the folder; -1: nothing is resumed there, or no seed is known. */
static int64_t kept_seed(const tt_run_folder *f, tt_arena *a)
{
    size_t n = 0;
    int64_t *steps;
    const tt_json *root = NULL;
    const char *path = tt_path_join(a, f->path, "run.json");
    if (!tt_path_exists(f->checkpoints) ||
        tt_ckpt_list(f->checkpoints, a, &steps, &n, NULL) != TT_OK || !n)
        return -1;
    (void)tt_json_read(a, path, (size_t)256 << 20, &root, NULL);
    for (const char *const *key = (const char *const[]){"job", "training", "seed", NULL}; *key;
         key++)
        root = root && root->type == TT_JSON_OBJECT ? tt_json_get(root, *key) : NULL;
    return root && root->type == TT_JSON_INT ? root->integer : -1;
}

static tt_status seed_draw(int64_t *seed, tt_error *err)
{
    uint64_t x;
    if (getrandom(&x, sizeof x, 0) != sizeof x)
        return TT_FAIL(err, TT_EIO, "training.seed null: no random number: %s", strerror(errno));
    *seed = (int64_t)(x >> 11); /* 53 bits, which every reader of JSON keeps */
    return TT_OK;
}

static tt_status seed_choose(const tt_run_folder *f, bool resume, int64_t *seed, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    const int64_t kept = resume ? kept_seed(f, a) : -1;
    tt_arena_free(a);
    *seed = kept;
    if (kept < 0)
        TT_TRY(seed_draw(seed, err));
    tt_log(TT_INFO, "train", "training.seed is null: %s %lld, as run.json says",
           kept < 0 ? "this run's is" : "this run keeps", (long long)*seed);
    return TT_OK;
}

tt_status tt_train_seed(tt_setup *s, const tt_run_folder *f, bool resume, tt_dist *d, tt_error *err)
{
    const bool main = !d || d->rank == 0;
    int64_t seed = -1;
    char text[32];
    tt_status st = TT_OK;
    if (s->core.training.seed != INT64_MIN)
        return TT_OK;
    if (main)
        st = seed_choose(f, resume, &seed, err);
    if (d) {
        TT_TRY(tt_agree(d, st, err));
        st = tt_dist_reduce(d, &seed, 1, TT_I64, TT_MAX, err);
    }
    TT_TRY(st);
    snprintf(text, sizeof text, "%lld", (long long)seed);
    tt_setup_set_seed(s, seed);
    return tt_job_derive(s->job, "training.seed", text, "drawn", err);
}
