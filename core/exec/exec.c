/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"
#include <limits.h>
#include <math.h>
#include <string.h>

/* A program on one rank, and where its tensors lie. */

/* A state in the backend's memory; NULL: it is on other ranks, or the number is -1. */
static void *state_at(const tt_exec *x, int state)
{
    return state >= 0 && x->p->states[state].offset >= 0
               ? x->space[TT_SPACE_STATE] + x->p->states[state].offset
               : NULL;
}

/* Where the host sees a scalar or a metric; NULL: it is on other ranks, or the number is -1. */
static void *host_data(const tt_exec *x, int state)
{
    if (state < 0 || x->p->states[state].offset < 0)
        return NULL;
    TT_ASSERT(x->p->states[state].offset < x->p->read_end);
    return x->scalars + x->p->states[state].offset;
}

tt_status tt_exec_new(const tt_exec_opts *o, tt_exec **out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_exec *x = tt_arena_alloc(a, sizeof *x);
    x->o = *o;
    x->p = o->program;
    x->arena = a;
    tt_status s = tt_exec_open_queues(x, err);
    if (s == TT_OK)
        s = tt_exec_memory_open(x, err);
    if (s == TT_OK)
        s = tt_exec_bind(x, err);
    if (s == TT_OK)
        s = tt_exec_open_inputs(x, err);
    if (s == TT_OK)
        s = tt_exec_times_open(x, err);
    if (s == TT_OK)
        tt_exec_graphs_open(x, INT_MAX);
    if (s != TT_OK) {
        tt_exec_free(x);
        return s;
    }
    uint64_t *seed = host_data(x, x->p->seed);
    if (seed && !(x->borrowed >> TT_SPACE_STATE & 1))
        *seed = o->seed;
    x->seed_at = state_at(x, x->p->seed);
    x->step_at = state_at(x, x->p->step);
    x->scalars_changed = true;
    *out = x;
    return TT_OK;
}

void tt_exec_free(tt_exec *x)
{
    if (!x)
        return;
    tt_error ignored = {0};
    if (x->idle)
        (void)tt_exec_sync(x, &ignored); /* nothing may be running in memory that is freed */
    tt_exec_graphs_free(x);
    for (size_t i = 0; i < x->groups.n && !x->o.from; i++) /* else they are those of `from` */
        if (x->groups.items[i].comm)
            x->o.dist->data_vt->group_free(x->groups.items[i].comm);
    tt_exec_free_inputs(x);
    tt_exec_times_free(x);
    tt_exec_free_queues(x);
    tt_exec_memory_close(x);
    tt_trace_free(x->recording);
    tt_arena_free(x->arena);
}

/* With sync the instruction names itself. What the host awaits while metrics are late lies in their step or
 * before it, but a device that fails in the step after it fails as a whole. */
tt_status tt_exec_await(const tt_exec *x, tt_device_event *e, tt_error *err)
{
    if (tt_device_sync(&x->o.device, e, err) == TT_OK)
        return TT_OK;
    const bool late = x->pulling && x->pulled_step != x->step;
    return x->o.sync ? tt_error_context(err, "rank %d", x->o.dist->rank)
                     : tt_error_context(err,
                                        "step %lld%s, rank %d: work on the device failed "
                                        "(--debug.sync true names the op)",
                                        (long long)(late ? x->pulled_step : x->step),
                                        late ? " or the one after it" : "", x->o.dist->rank);
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
    void *p = host_data(x, s);
    x->scalars_changed = true;
    if (p && x->p->states[s].tensor.dtype == TT_F64)
        *(double *)p = value;
    else if (p)
        *(float *)p = (float)value;
}

double tt_exec_metric(const tt_exec *x, const char *name)
{
    const int s = host_state(x, name);
    const void *p = s >= 0 && x->p->states[s].offset < x->p->read_end ? host_data(x, s) : NULL;
    if (!p)
        return (double)NAN;
    return x->p->states[s].tensor.dtype == TT_F64 ? *(const double *)p : (double)*(const float *)p;
}

const double *tt_exec_metric_list(const tt_exec *x, const char *name)
{
    const int s = host_state(x, name);
    TT_ASSERT(s < 0 || x->p->states[s].tensor.dtype == TT_F64);
    return host_data(x, s);
}

void tt_exec_measure(tt_exec *x, bool measured)
{
    x->measured = measured;
}

const float *tt_exec_metric_data(const tt_exec *x, const char *name, tt_tensor *box)
{
    const int s = host_state(x, name);
    const bool here = s >= 0 && x->p->states[s].owner && x->p->states[s].offset < x->p->read_end;
    const void *p = here ? host_data(x, s) : NULL;
    if (p)
        *box = x->p->states[s].tensor;
    return p;
}

bool tt_exec_param(const tt_exec *x, int param, tt_tensor *out)
{
    const tt_program_param *p = &x->p->params[param];
    *out = p->tensor;
    out->data = p->offset < 0 ? NULL : x->space[p->space] + p->offset;
    return out->data != NULL;
}

tt_status tt_exec_initial(tt_exec *x, int param, const tt_attrs_initial *a, bool *done,
                          tt_error *err)
{
    tt_tensor t;
    *done =
        x->initial && x->p->params[param].space != TT_SPACE_PINNED && tt_exec_param(x, param, &t);
    return *done ? tt_move_kernel(tt_exec_mover(x), x->initial, NULL, 0, &t, a, err) : TT_OK;
}

/* Those that checkpoints hold: parameters with optimizer states, or buffers. */
static size_t saved_tensors(const tt_exec *x, tt_arena *a, bool buffers, tt_exec_tensor **out)
{
    size_t n = 0;
    tt_exec_tensor *t = *out = tt_arena_array(a, (size_t)x->p->n_params + 1, sizeof *t);
    for (int i = 0; i < x->p->n_params; i++) {
        const tt_program_param *p = &x->p->params[i];
        t[n] = (tt_exec_tensor){.name = p->name,
                                .suffix = p->suffix,
                                .param = p->info,
                                .copies = p->copies,
                                .evaluated = p->evaluated};
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

void tt_exec_state(const tt_exec *x, int id, tt_tensor *out)
{
    *out = x->p->states[id].tensor;
    out->data = state_at(x, id);
}

tt_status tt_exec_state_tensor(const tt_exec *x, const char *state, tt_tensor *out, tt_error *err)
{
    const int s = host_state(x, state);
    if (s < 0)
        return TT_FAIL(err, TT_ENOTFOUND, "this program has no scalar or metric \"%s\"", state);
    tt_exec_state(x, s, out);
    return TT_OK;
}

void tt_exec_set_step(tt_exec *x, int64_t step)
{
    double *at = host_data(x, x->p->step);
    x->step = step;
    x->scalars_changed = true;
    if (at)
        *at = (double)(step - x->before);
}

void tt_exec_count_from(tt_exec *x, int64_t before)
{
    x->before = before;
}

int64_t tt_exec_high_water(const tt_exec *x)
{
    return x->high_water;
}
