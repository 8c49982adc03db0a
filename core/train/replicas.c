/* SPDX-License-Identifier: Apache-2.0 */
#include "train/replay.h"
#include <stdlib.h>
#include <string.h>

/* debug.replay_interval: parameters, optimizer states and buffers that several ranks have are equal to the bit. A
 * rank gives two numbers for each: one that names the box, and a hash of what is in it. */

typedef struct copy { /* a rank's */
    uint64_t box, hash;
    int rank;
    const char *name; /* of this rank's own copies; else NULL */
} copy;

static int by_box(const void *pa, const void *pb)
{
    const copy *a = pa, *b = pb;
    const int boxes = (a->box > b->box) - (a->box < b->box),
              hashes = (a->hash > b->hash) - (a->hash < b->hash);
    return boxes ? boxes : hashes ? hashes : a->rank - b->rank;
}

static uint64_t box_of(const tt_exec_tensor *t)
{
    const char *suffix = t->suffix ? t->suffix : "";
    uint64_t h = tt_hash64(t->name, strlen(t->name), (uint64_t)t->tensor.n_dims);
    h = tt_hash64(suffix, strlen(suffix), h);
    h = tt_hash64(t->tensor.begin, sizeof *t->tensor.begin * (size_t)t->tensor.n_dims, h);
    return tt_hash64(t->tensor.shape, sizeof *t->tensor.shape * (size_t)t->tensor.n_dims, h);
}

static tt_status hash_tensors(tt_exec *x, const tt_exec_tensor *t, size_t n, copy *out,
                              tt_error *err)
{
    for (size_t i = 0; i < n; i++) {
        out[i].box = box_of(&t[i]);
        out[i].name = t[i].name;
        TT_TRY(tt_exec_hash(x, &t[i].tensor, 0, &out[i].hash, err));
    }
    return TT_OK;
}

/* The copies of all ranks, ordered by boxes; of one box by their hashes. [collective] */
static tt_status gather_copies(tt_loop *l, tt_arena *a, copy **out, size_t *n_out, tt_error *err)
{
    const tt_dist *d = &l->rank.dist;
    tt_exec_tensor *tensors[2];
    const size_t n[2] = {tt_exec_tensors(l->rank.exec, a, &tensors[0]),
                         tt_exec_buffers(l->rank.exec, a, &tensors[1])};
    copy *mine = tt_arena_array(a, n[0] + n[1] + 1, sizeof *mine);
    uint64_t *send = tt_arena_array(a, 2 * (n[0] + n[1]) + 1, sizeof *send);
    int64_t *counts = tt_arena_array(a, (size_t)d->world, sizeof *counts);
    size_t all = 0, k = 0;
    TT_TRY(hash_tensors(l->rank.exec, tensors[0], n[0], mine, err));
    TT_TRY(hash_tensors(l->rank.exec, tensors[1], n[1], mine + n[0], err));
    counts[d->rank] = (int64_t)(2 * (n[0] + n[1]));
    TT_TRY(tt_dist_reduce(d, counts, d->world, TT_I64, TT_SUM, err));
    for (int r = 0; r < d->world; r++)
        all += (size_t)counts[r] / 2;
    for (size_t i = 0; i < n[0] + n[1]; i++) {
        send[2 * i] = mine[i].box;
        send[2 * i + 1] = mine[i].hash;
    }
    uint64_t *got = tt_arena_array(a, 2 * all + 1, sizeof *got);
    copy *c = *out = tt_arena_array(a, all + 1, sizeof *c);
    TT_TRY(d->vt->all_gather(d->all, send, got, counts, TT_I64, err));
    for (int r = 0; r < d->world; r++)
        for (int64_t i = 0; i < counts[r] / 2; i++, k++)
            c[k] = (copy){got[2 * k], got[2 * k + 1], r, r == d->rank ? mine[i].name : NULL};
    qsort(c, all, sizeof *c, by_box);
    *n_out = all;
    return TT_OK;
}

/* Of the n copies of a box, ordered by hashes: the hash that most have; 0: two hashes have as many. */
static uint64_t most_common(const copy *c, size_t n)
{
    uint64_t best = 0;
    size_t most = 0;
    for (size_t i = 0, k; i < n; i += k) {
        for (k = 1; i + k < n && c[i + k].hash == c[i].hash;)
            k++;
        best = k > most ? c[i].hash : k == most ? 0 : best;
        most = TT_MAXV(most, k);
    }
    return best;
}

typedef struct verdict {
    bool *odd; /* by rank: it has other bits than most; without a majority: it has a copy */
    bool clear;
    int64_t n;        /* boxes */
    const char *name; /* of one that is here; NULL: none is */
} verdict;

static void compare_box(const copy *c, size_t n, verdict *v)
{
    if (c[0].hash == c[n - 1].hash)
        return;
    const uint64_t most = most_common(c, n);
    v->n++;
    v->clear &= most != 0;
    for (size_t i = 0; i < n; i++) {
        v->odd[c[i].rank] |= !most || c[i].hash != most;
        v->name = v->name ? v->name : c[i].name;
    }
}

void tt_replay_print_ranks(const bool *of, int world, tt_str *out)
{
    const char *between = "";
    for (int r = 0; r < world; r++)
        if (of[r]) {
            tt_str_printf(out, "%s%d", between, r);
            between = ", ";
        }
}

static tt_status judge(const tt_loop *l, const verdict *v, tt_error *err)
{
    const int64_t before = l->step - l->s->core.debug.replay_interval;
    tt_str ranks = {0};
    tt_replay_print_ranks(v->odd, l->rank.dist.world, &ranks);
    if (v->name)
        tt_log(TT_ERROR, "train",
               "step %lld: the copy of %s on rank %d and those of other ranks differ",
               (long long)l->step, v->name, l->rank.dist.rank);
    const tt_status s =
        TT_FAIL(err, TT_ENUMERIC,
                "step %lld: %lld parameters or states that several ranks have are not equal any "
                "more: %s %s; checkpoints up to step %lld are from before the last comparison that "
                "found them equal",
                (long long)l->step, (long long)v->n,
                v->clear ? "most copies agree, and other bits are on rank"
                         : "no majority of the copies agrees, which are on rank",
                tt_str_get(&ranks), (long long)TT_MAXV(before, l->began_step));
    tt_str_free(&ranks);
    return s;
}

static tt_status compare_replicas(tt_loop *l, tt_arena *a, tt_error *err)
{
    verdict v = {.clear = true};
    copy *c;
    size_t n;
    TT_TRY(gather_copies(l, a, &c, &n, err));
    v.odd = tt_arena_array(a, (size_t)l->rank.dist.world, sizeof *v.odd);
    for (size_t i = 0, k; i < n; i += k) {
        for (k = 1; i + k < n && c[i + k].box == c[i].box;)
            k++;
        compare_box(c + i, k, &v);
    }
    return v.n ? judge(l, &v, err) : TT_OK;
}

tt_status tt_replay_compare_replicas(tt_loop *l, tt_error *err)
{
    if (!l->rank.dist.vt)
        return TT_OK;
    tt_arena *a = tt_arena_new();
    const tt_status s = compare_replicas(l, a, err);
    tt_arena_free(a);
    return s;
}
