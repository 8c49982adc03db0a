/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/twice.h"
#include <stdlib.h>

/* debug.replay_interval: the epilogue and the update write over what they read, so they cannot run again as a
 * whole without a copy of all states. Instead each instruction runs again, after what it has written over
 * is restored: the copy is as large as the largest result. */

tt_status tt_exec_open_kept(tt_exec *x, tt_error *err)
{
    const size_t n = (size_t)x->p->kept;
    if (!n)
        return TT_OK;
    x->kept = malloc(n);
    return x->kept ? TT_OK
                   : TT_FAIL(err, TT_ENOMEM,
                             "no memory for %zu bytes with which updates run again "
                             "(debug.replay_interval)",
                             n);
}

void tt_exec_run_twice(tt_exec *x, bool on)
{
    x->twice = on && x->kept;
    if (on)
        x->differing = (tt_exec_differing){0};
}

const tt_exec_differing *tt_exec_differed(const tt_exec *x)
{
    return &x->differing;
}

/* A message is not repeated: its bits are in what the receiver computes from it. */
bool tt_exec_runs_twice(const tt_exec *x, const tt_bound *b)
{
    return x->twice && b->n_out && !b->queue && b->kind != TT_INSTR_SEND &&
           b->kind != TT_INSTR_RECV && b->kind != TT_INSTR_ADOPT;
}

static tt_status copy_out(tt_exec *x, const tt_tensor *out, int n, bool back, tt_error *err)
{
    size_t at = 0;
    for (int i = 0; i < n; i++) {
        const size_t bytes = (size_t)tt_tensor_bytes(&out[i]);
        if (!out[i].data || !bytes)
            continue;
        TT_ASSERT(at + bytes <= (size_t)x->p->kept);
        TT_TRY(back ? tt_exec_write(x, out[i].data, x->kept + at, bytes, err)
                    : tt_exec_read(x, x->kept + at, out[i].data, bytes, err));
        at += bytes;
    }
    return TT_OK;
}

tt_status tt_exec_keep(tt_exec *x, const tt_tensor *out, int n, tt_error *err)
{
    return copy_out(x, out, n, false, err);
}

tt_status tt_exec_restore(tt_exec *x, const tt_tensor *out, int n, tt_error *err)
{
    return copy_out(x, out, n, true, err);
}

tt_status tt_exec_hash_out(tt_exec *x, const tt_tensor *out, int n, uint64_t *hash, tt_error *err)
{
    *hash = 0;
    for (int i = 0; i < n; i++)
        if (out[i].data)
            TT_TRY(tt_exec_hash(x, &out[i], *hash, hash, err));
    return TT_OK;
}

void tt_exec_note_runs(tt_exec *x, const tt_bound *b, const uint64_t hash[3], int n)
{
    tt_exec_differing *d = &x->differing;
    if (hash[0] == hash[1] && hash[n - 1] == hash[0])
        return;
    if (!d->n++)
        d->first = b->instr;
    d->unsettled += hash[n - 1] != hash[0] && hash[n - 1] != hash[1];
}
