/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/dist.h"
#include "base/thread.h"
#include <signal.h>
#include <stdlib.h>
#include <string.h>

static int by_rank(const void *a, const void *b)
{
    return *(const int *)a - *(const int *)b;
}

tt_status tt_dist_group(tt_dist *d, const tt_mesh *m, const tt_atom_list *atoms, tt_arena *a,
                        tt_group_comm *out, tt_error *err)
{
    const int n = tt_mesh_degree(m, atoms);
    int *ranks = tt_arena_array(a, (size_t)n, sizeof *ranks);
    tt_mesh_group(m, d->rank, atoms, ranks);
    qsort(ranks, (size_t)n, sizeof *ranks, by_rank);
    tt_group_comm g = {.n = n, .ranks = ranks};
    for (int i = 0; i < n; i++)
        if (ranks[i] == d->rank)
            g.me = i;
    const uint64_t key = tt_hash64(ranks, (size_t)n * sizeof *ranks, 0);
    if (n > 1)
        TT_TRY(d->data_vt->group(d->data_self, ranks, n, key, &g.comm, err));
    *out = g;
    return TT_OK;
}

tt_status tt_agree(tt_dist *d, tt_status mine, tt_error *err)
{
    if (!d->vt)
        return mine;
    /* The status of the lowest rank that failed is taken; a stop signal only if no rank failed. */
    const bool failed = mine != TT_OK && mine != TT_ESIGNAL;
    int32_t words[2] = {failed ? d->world - d->rank : 0, 0};
    if (mine == TT_ESIGNAL) {
        const int sig = d->stop ? d->stop() : 0;
        words[1] = sig ? sig : SIGTERM;
    }
    tt_error e = {0};
    const tt_status s = d->vt->all_reduce(d->all, words, 2, TT_I32, TT_MAX, &e);
    if (mine != TT_OK)
        return mine; /* err already has this rank's own text */
    if (s != TT_OK) {
        if (err)
            *err = e;
        return s;
    }
    if (words[0])
        return TT_FAIL(err, TT_ECOMM, "rank %d failed", d->world - words[0]);
    return words[1] ? tt_fail_stopped(words[1], err) : TT_OK;
}

/* One byte per word, so that the maximum of the ranks' words is the one text. */
tt_status tt_share_text(tt_dist *d, const char *mine, char *text, size_t n, tt_error *err)
{
    int32_t *words = calloc(n, sizeof *words);
    if (!words)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a text of %zu bytes", n);
    for (size_t i = 0; mine && i + 1 < n && mine[i]; i++)
        words[i] = (unsigned char)mine[i];
    const tt_status s = tt_dist_reduce(d, words, (int64_t)n, TT_I32, TT_MAX, err);
    for (size_t i = 0; s == TT_OK && i < n; i++)
        text[i] = (char)words[i];
    free(words);
    return s;
}

tt_status tt_agree_or_go_on(tt_dist *d, tt_status mine, tt_error *err)
{
    char text[sizeof err->text] = "";
    tt_error e = {0};
    int32_t worst = mine == TT_OK ? 0 : d->world - d->rank;
    if (!d->vt)
        return mine;
    tt_status s = tt_dist_reduce(d, &worst, 1, TT_I32, TT_MAX, &e);
    const int failed = d->world - worst;
    if (s == TT_OK && worst)
        s = tt_share_text(d, failed == d->rank ? err->text : NULL, text, sizeof text, &e);
    if (mine != TT_OK)
        return mine;
    if (s != TT_OK) {
        *err = e;
        return s;
    }
    return worst ? TT_FAIL(err, TT_EUNSUPPORTED, "rank %d: %s", failed, text) : TT_OK;
}

tt_status tt_dist_reduce(const tt_dist *d, void *buf, int64_t n, tt_dtype dtype, tt_reduce op,
                         tt_error *err)
{
    return d->vt ? d->vt->all_reduce(d->all, buf, n, dtype, op, err) : TT_OK;
}

void tt_dist_abort(tt_dist *d, const char *why)
{
    if (d->vt)
        d->vt->abort(d->self, why);
    if (d->data_self != d->self)
        d->data_vt->abort(d->data_self, why);
}

void tt_dist_fail(tt_dist *d, tt_status s, const char *why)
{
    if (d->session)
        tt_session_claim(d->session, s, why, s != TT_ECOMM);
    tt_dist_abort(d, why);
}

void tt_dist_set_timeout(tt_dist *d, double timeout_s)
{
    if (d->vt && d->vt->set_timeout)
        d->vt->set_timeout(d->self, timeout_s);
    if (d->data_self != d->self && d->data_vt->set_timeout)
        d->data_vt->set_timeout(d->data_self, timeout_s);
}

tt_status tt_comm_all(const tt_comm_vt *vt, void *self, int world, tt_comm **out, tt_error *err)
{
    int *ranks = calloc((size_t)world, sizeof *ranks);
    if (!ranks)
        return TT_FAIL(err, TT_ENOMEM, "no memory for a communicator of %d ranks", world);
    for (int i = 0; i < world; i++)
        ranks[i] = i;
    const tt_status s = vt->group(self, ranks, world, 0, out, err);
    free(ranks);
    return s;
}

void tt_dist_leave(tt_dist *d)
{
    if (d->vt && d->all)
        d->vt->group_free(d->all);
    if (d->free_self)
        d->free_self(d->self);
    memset(d, 0, sizeof *d);
}
