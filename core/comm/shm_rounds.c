/* SPDX-License-Identifier: Apache-2.0 */
#include "comm/shm_impl.h"
#include <string.h>

/* The rounds of a collective among processes. In each round a member does its part, publishes the
 * number of the round, and waits until the others have published it. In the first round it also
 * publishes its call, and all members check that their calls are the same. */

static tt_status timed_out(tt_comm *c, uint32_t round, tt_error *err)
{
    char missing[160] = "";
    size_t len = 0;
    tt_error e = {0};
    for (int i = 0; i < c->n && len + 16 < sizeof missing; i++)
        if ((int32_t)(atomic_load(&c->members[i].round.value) - round) < 0)
            len += (size_t)snprintf(missing + len, sizeof missing - len, " %d", c->ranks[i]);
    const tt_status s =
        TT_FAIL(&e, TT_ETIMEOUT,
                "%s number %llu waited %g s (" TT_COMM_LIMIT_KEYS "); ranks that did not arrive:%s",
                c->op, (unsigned long long)c->sequence, tt_session_timeout(c->session), missing);
    tt_session_timed_out(c->session, e.text);
    if (err)
        *err = e;
    return s;
}

/* soon: the others do the same work and will finish about when this member does. */
static tt_status wait_for_all(tt_comm *c, bool soon, tt_error *err)
{
    const int64_t until = tt_session_deadline(c->session);
    tt_word_set(&c->members[c->me].round, c->round);
    for (int k = 1; k < c->n; k++) {
        const int i = (c->me + k) % c->n;
        const tt_status s =
            tt_session_await(c->session, &c->members[i].round, c->round, soon, until);
        if (s == TT_ECOMM)
            return tt_session_stopped(c->session, err);
        if (s != TT_OK)
            return timed_out(c, c->round, err);
    }
    return TT_OK;
}

const tt_shm_call *tt_shm_call_of(const tt_comm *c, int member)
{
    return &c->members[member].call[c->first % 2];
}

static void call_text(const tt_shm_call *call, char *text, size_t size)
{
    const char *name = tt_doing_name((tt_doing)call->op);
    if (call->op == TT_DOING_BARRIER || call->op == TT_DOING_ALL_TO_ALL)
        snprintf(text, size, "%s", name);
    else
        snprintf(text, size, "%s of %lld %s%s", name, (long long)call->size,
                 tt_dtype_name((tt_dtype)call->dtype), call->reduce == TT_MAX ? " (max)" : "");
}

static tt_status check_calls(const tt_comm *c, tt_error *err)
{
    const tt_shm_call *mine = tt_shm_call_of(c, c->me);
    for (int i = 0; i < c->n; i++) {
        const tt_shm_call *other = tt_shm_call_of(c, i);
        char a[80], b[80];
        if (other->op == mine->op && other->size == mine->size && other->dtype == mine->dtype &&
            other->reduce == mine->reduce && other->counts == mine->counts)
            continue;
        call_text(mine, a, sizeof a);
        call_text(other, b, sizeof b);
        return TT_FAIL(err, TT_ECOMM,
                       "collective number %llu: rank %d calls %s, rank %d calls %s%s",
                       (unsigned long long)c->sequence, c->ranks[c->me], a, c->ranks[i], b,
                       strcmp(a, b) ? "" : " with other counts per rank");
    }
    return TT_OK;
}

tt_status tt_shm_finish_round(tt_comm *c, tt_error *err)
{
    TT_TRY(wait_for_all(c, c->round != c->first, err));
    return c->round == c->first ? check_calls(c, err) : TT_OK;
}

/* The call is written before the others see the number of its first round. */
tt_status tt_shm_begin(tt_comm *c, const tt_shm_args *a, tt_error *err)
{
    tt_shm_member *m = &c->members[c->me];
    TT_TRY(tt_session_stopped(c->session, err));
    c->op = tt_doing_name(a->op);
    c->sequence = atomic_fetch_add(&m->n_begun, 1) + 1;
    c->first = c->round = atomic_load(&m->round.value) + 1;
    m->call[c->first % 2] =
        (tt_shm_call){.op = a->op,
                      .size = a->count,
                      .dtype = a->dtype,
                      .reduce = a->reduce,
                      .counts = a->recv_counts || !a->counts
                                    ? 0
                                    : tt_hash64(a->counts, (size_t)c->n * sizeof *a->counts, 1),
                      .send = (uintptr_t)a->send,
                      .recv = (uintptr_t)a->recv};
    tt_session_doing(c->session, a->op, c->sequence);
    return atomic_load(c->path) == TT_SHM_UNDECIDED ? tt_shm_choose_path(c, err) : TT_OK;
}

/* ---- used by both paths ---- */

void tt_shm_copy(void *to, const void *from, size_t n)
{
    if (n && to != from)
        memcpy(to, from, n);
}

/* There are two tables per member: it may write the next collective's while others still read this
 * one's. */
int64_t *tt_shm_counts_of(const tt_comm *c, int member)
{
    return c->counts + ((size_t)member * 2 + c->first % 2) * (size_t)c->n;
}

int64_t tt_shm_sum(const int64_t *counts, int n)
{
    int64_t s = 0;
    for (int i = 0; i < n; i++)
        s += counts[i];
    return s;
}

int64_t tt_shm_most(const int64_t *counts, int n)
{
    int64_t m = 0;
    for (int i = 0; i < n; i++)
        m = TT_MAXV(m, counts[i]);
    return m;
}
