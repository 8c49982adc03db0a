/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "exec/exec_impl.h"
#include <math.h>
#include <string.h>
#include <sys/mman.h>

/* The memory of a program, and where its tensors lie in it. */

/* One mapping per space, of huge pages if the kernel has them, with room for canaries behind it. */
static tt_status map_space(tt_exec *x, tt_space space, int64_t bytes, tt_error *err)
{
    const size_t n = (size_t)bytes + TT_CANARY_BYTES;
    void *p =
        mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return TT_FAIL(err, TT_ENOMEM, "cannot map %.2f GiB for the plan",
                       (double)bytes / (1 << 30));
#ifdef MADV_HUGEPAGE
    if (n >= (size_t)4 << 20)
        (void)madvise(p, n, MADV_HUGEPAGE);
#endif
    x->space[space] = p;
    x->mapped[space] = n;
    if (x->o.poison)
        tt_exec_poison(p, n);
    if (x->o.poison && space == TT_SPACE_STATE)
        memset(p, 0, (size_t)bytes);
    return TT_OK;
}

#define TOUCH_PIECE ((int64_t)2 << 20) /* a huge page */
#define TOUCH_STEP 4096                /* a page, if there are no huge ones */

static void touch_range(void *arg, int64_t begin, int64_t end, int thread)
{
    (void)thread;
    for (int64_t i = begin; i < end; i += TOUCH_STEP)
        ((volatile char *)arg)[i] = 0;
}

/* An optimizer reads its states before it writes them, so the kernel would map each page twice: for
 * the read and, stopping every core, for the write. Writing them first avoids that; they are zeros
 * before and after. */
static void touch_moments(tt_exec *x)
{
    for (int i = 0; i < x->p->n_states; i++) {
        const tt_program_state *s = &x->p->states[i];
        if (s->moments && s->offset >= 0)
            tt_parallel_for(x->o.pool, tt_tensor_bytes(&s->tensor), TOUCH_PIECE, touch_range,
                            x->space[TT_SPACE_STATE] + s->offset);
    }
}

/* A state's memory; NULL: it is on other ranks, or the number is -1. */
static void *data_at(const tt_exec *x, int state)
{
    return state >= 0 && x->p->states[state].offset >= 0
               ? x->space[TT_SPACE_STATE] + x->p->states[state].offset
               : NULL;
}

tt_status tt_exec_new(const tt_exec_opts *o, tt_exec **out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_exec *x = tt_arena_alloc(a, sizeof *x);
    x->o = *o;
    x->p = o->program;
    x->arena = a;
    tt_status s = TT_OK;
    for (int sp = TT_SPACE_STATE; s == TT_OK && sp < TT_N_SPACES; sp++)
        s = map_space(x, (tt_space)sp, x->p->bytes[sp], err);
    if (s == TT_OK)
        s = tt_exec_bind(x, err);
    if (s != TT_OK) {
        tt_exec_free(x);
        return s;
    }
    x->seed_at = data_at(x, x->p->seed);
    x->step_at = data_at(x, x->p->step);
    if (x->seed_at)
        *x->seed_at = o->seed;
    touch_moments(x);
    *out = x;
    return TT_OK;
}

void tt_exec_free(tt_exec *x)
{
    if (!x)
        return;
    tt_exec_free_queues(x);
    for (size_t i = 0; i < x->groups.n; i++)
        if (x->groups.items[i].comm)
            x->o.dist->vt->group_free(x->groups.items[i].comm);
    tt_trace_free(x->recording);
    for (int sp = 0; sp < TT_N_SPACES; sp++)
        if (x->space[sp])
            munmap(x->space[sp], x->mapped[sp]);
    tt_arena_free(x->arena);
}

/* ---- scalars, metrics, tensors ---- */

/* The number of a scalar or metric; -1: the program has none of that name. */
static int host_state(const tt_exec *x, const char *name)
{
    for (int i = 0; i < x->p->n_states; i++)
        if (x->p->states[i].for_host && !strcmp(x->p->states[i].name, name))
            return i;
    return -1;
}

void tt_exec_set_rows(tt_exec *x, int64_t tokens, int64_t picked)
{
    TT_ASSERT(tokens <= x->p->most_rows[TT_EXTENT_TOKENS] &&
              picked <= x->p->most_rows[TT_EXTENT_PICKED]);
    x->rows[TT_EXTENT_TOKENS] = tokens;
    x->rows[TT_EXTENT_PICKED] = picked;
}

void tt_exec_set_scalar(tt_exec *x, const char *name, double value)
{
    const int s = host_state(x, name);
    void *p = data_at(x, s);
    if (p && x->p->states[s].tensor.dtype == TT_F64)
        *(double *)p = value;
    else if (p)
        *(float *)p = (float)value;
}

double tt_exec_metric(const tt_exec *x, const char *name)
{
    const int s = host_state(x, name);
    const void *p = data_at(x, s);
    if (!p)
        return (double)NAN;
    return x->p->states[s].tensor.dtype == TT_F64 ? *(const double *)p : (double)*(const float *)p;
}

bool tt_exec_param(const tt_exec *x, int param, tt_tensor *out)
{
    const tt_program_param *p = &x->p->params[param];
    *out = p->tensor;
    out->data = p->offset < 0 ? NULL : x->space[TT_SPACE_STATE] + p->offset;
    return out->data != NULL;
}

/* Those that checkpoints hold: parameters with optimizer states, or buffers. */
static size_t saved_tensors(const tt_exec *x, tt_arena *a, bool buffers, tt_exec_tensor **out)
{
    size_t n = 0;
    tt_exec_tensor *t = *out = tt_arena_array(a, (size_t)x->p->n_params + 1, sizeof *t);
    for (int i = 0; i < x->p->n_params; i++) {
        const tt_program_param *p = &x->p->params[i];
        t[n] = (tt_exec_tensor){.name = p->name, .suffix = p->suffix, .param = p->info};
        t[n].owner = p->owner;
        n += p->buffer == buffers && !p->transient && tt_exec_param(x, i, &t[n].tensor);
    }
    return n;
}

size_t tt_exec_tensors(const tt_exec *x, tt_arena *a, tt_exec_tensor **out)
{
    return saved_tensors(x, a, false, out);
}

size_t tt_exec_buffers(const tt_exec *x, tt_arena *a, tt_exec_tensor **out)
{
    return saved_tensors(x, a, true, out);
}

tt_status tt_exec_state_tensor(const tt_exec *x, const char *state, tt_tensor *out, tt_error *err)
{
    const int s = host_state(x, state);
    if (s < 0)
        return TT_FAIL(err, TT_ENOTFOUND, "this program has no scalar or metric \"%s\"", state);
    *out = x->p->states[s].tensor;
    out->data = data_at(x, s);
    return TT_OK;
}

int64_t tt_exec_high_water(const tt_exec *x)
{
    return x->high_water;
}
