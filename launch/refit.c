/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/refit.h"
#include "mesh/mesh.h"

/* Whether the axes of experts can be cut out of this mesh. */
static bool mesh_fits(const tt_refit_job *j, const tt_refit *m)
{
    tt_mesh mesh;
    tt_arena *a = tt_arena_new();
    tt_mesh_degrees d = {.pp = (int32_t)j->pp,
                         .dp_replicate = m->dp_replicate,
                         .dp_shard = m->dp_shard,
                         .cp = (int32_t)j->cp,
                         .tp = (int32_t)j->tp,
                         .ep = (int32_t)j->ep};
    const bool fits = tt_mesh_make(&d, m->world, 0, a, &mesh, NULL) == TT_OK;
    tt_arena_free(a);
    return fits;
}

static bool is_better(const tt_refit *a, const tt_refit *b, bool shard_is_rest)
{
    if (a->world != b->world)
        return a->world > b->world;
    return shard_is_rest ? a->dp_replicate > b->dp_replicate : a->dp_shard > b->dp_shard;
}

/* batch: the global batch, 0: any. Returns false if no mesh of so many ranks fits. */
static bool find_mesh(const tt_refit_job *j, int64_t least, int64_t most, int64_t batch,
                      tt_refit *out)
{
    const int64_t fixed = j->pp * j->cp * j->tp;
    const bool rest = j->dp_shard < 1;
    *out = (tt_refit){0};
    for (int64_t r = 1; r <= TT_MIN(j->dp_replicate, most / fixed); r++) {
        const int64_t room = most / (fixed * r);
        for (int64_t s = 1; s <= (rest ? room : TT_MIN(j->dp_shard, room)); s++) {
            const tt_refit m = {(int)(fixed * r * s), (int)r, (int)s, batch};
            const bool divides = batch < 1 || batch % (j->local_batch * r * s) == 0;
            if (m.world >= least && divides && is_better(&m, out, rest) && mesh_fits(j, &m))
                *out = m;
        }
    }
    return out->world > 0;
}

tt_status tt_refit_mesh(const tt_refit_job *j, int least, int most, int largest, tt_refit *out,
                        tt_error *err)
{
    tt_refit full;
    char shard[24] = "any number of";
    int64_t batch = j->global_batch, fixed, all;
    const bool sane = j->pp > 0 && j->cp > 0 && j->tp > 0 && j->ep > 0 && j->dp_replicate > 0 &&
                      (j->dp_shard > 0 || j->dp_shard == -1) && j->local_batch > 0 &&
                      tt_mul_i64(j->pp, j->cp, &fixed) && tt_mul_i64(fixed, j->tp, &all) &&
                      all <= INT32_MAX;
    if (sane && batch < 1 && find_mesh(j, 1, largest, 0, &full))
        batch = j->local_batch * full.dp_replicate * full.dp_shard;
    if (sane && find_mesh(j, least, most, batch, out))
        return TT_OK;
    if (j->dp_shard > 0)
        snprintf(shard, sizeof shard, "%lld", (long long)j->dp_shard);
    return TT_FAIL(
        err, TT_EINVAL,
        "no mesh of %d to %d ranks keeps pp %lld × cp %lld × tp %lld (ep %lld) with at most "
        "%lld × %s data-parallel ranks, and divides the global batch of %lld samples by "
        "training.local_batch_size %lld × data-parallel ranks; allow other numbers of "
        "ranks, or set training.global_batch_size",
        least, most, (long long)j->pp, (long long)j->cp, (long long)j->tp, (long long)j->ep,
        (long long)j->dp_replicate, shard, (long long)batch, (long long)j->local_batch);
}
