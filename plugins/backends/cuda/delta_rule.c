/* SPDX-License-Identifier: Apache-2.0 */
#include "kernels/delta_rule_args.h"
#include "rows.h"

/* delta_rule, its derivative and its form for decoding. What the chunks need of each other
 * lies in scratch, for so many groups of heads at a time that it is not much more than MOST. */
#define MOST ((int64_t)256 << 20)
enum { Q, K, V, G, BETA, SEG, POS, LAST };
enum { CACHED_COLS = 32 };
#define SHARED 101376 /* bytes that a block may have on every chip from compute capability 8.0 on */
/* Bytes of shared memory without a state; the kernels know them by their structs. */
enum {
    ROOM = 2 * 16 * (DELTA_CHUNK + 4) * 4,
    SQUARE = DELTA_CHUNK * (DELTA_CHUNK + 4) * 4,
    INSIDE = ROOM + 2 * SQUARE + 6 * DELTA_CHUNK * 4,
    WALK = ROOM + 2 * SQUARE + 3 * DELTA_CHUNK * 4 + 16,
    BACK = ROOM + SQUARE + 3 * DELTA_CHUNK * 4 + 16,
    GIVE = ROOM + 3 * SQUARE + 7 * DELTA_CHUNK * 4 + 8 * (DELTA_CHUNK + DELTA_THREADS / 32),
    CACHED = 2 * 8 * (CACHED_COLS + 1) * 4 + 16
};

static cuda_kernel inside = CUDA_KERNEL("delta_rule", "delta_inside"),
                   forward = CUDA_KERNEL("delta_rule", "delta_forward"),
                   keep = CUDA_KERNEL("delta_rule", "delta_keep"),
                   cached = CUDA_KERNEL("delta_rule", "delta_cached"),
                   back = CUDA_KERNEL("delta_rule_bwd", "delta_back"),
                   give = CUDA_KERNEL("delta_rule_bwd", "delta_give");

static delta_args args_of(const tt_kernel_call *c)
{
    static const int halves[] = {DELTA_Q, DELTA_K, DELTA_V, DELTA_G, DELTA_BETA};
    const int64_t *v = c->in[V].shape;
    delta_args a = {.q = c->in[Q].data,
                    .k = c->in[K].data,
                    .v = c->in[V].data,
                    .g = c->in[G].data,
                    .beta = c->in[BETA].data,
                    .seg = c->in[SEG].data,
                    .pos = c->in[POS].data,
                    .tokens = v[0],
                    .chunks = cuda_ceil(v[0], DELTA_CHUNK),
                    .groups = (int)v[1],
                    .heads = (int)v[2],
                    .dk_dim = (int)c->in[Q].shape[2],
                    .dv_dim = (int)v[3],
                    .tiles = (int)cuda_ceil(v[3], DELTA_CHUNK)};
    for (int i = Q; i <= BETA; i++)
        a.halves |= cuda_half(&c->in[i]) ? halves[i] : 0;
    return a;
}

/* ---- scratch ---- */

/* Sets in_shared: is there room for a tile of a state of `columns` columns, too? Returns the bytes of shared memory. */
static int shared_of(delta_args *a, int64_t room, int columns)
{
    const int64_t with = room + (int64_t)a->dk_dim * columns * (int64_t)sizeof(float);
    a->in_shared = with <= SHARED;
    return (int)(a->in_shared ? with : room);
}

/* What one group takes; states that are kept also lie there where shared memory has no room for one. */
typedef struct delta_parts {
    int64_t inside, states, rows; /* bytes of each array */
} delta_parts;

static delta_parts delta_parts_of(const delta_args *a)
{
    const int64_t chunks = a->heads * a->chunks * (int64_t)sizeof(float);
    return (delta_parts){chunks * DELTA_INSIDE, chunks * a->dk_dim * a->dv_dim,
                         chunks * DELTA_CHUNK * a->dv_dim};
}
static int64_t group_bytes(const delta_args *a, bool derivative)
{
    const delta_parts p = delta_parts_of(a);
    delta_args walk = *a;
    (void)shared_of(&walk, WALK, DELTA_CHUNK);
    if (!derivative)
        return p.inside + (walk.in_shared ? 0 : p.states);
    return p.inside + 2 * (p.states + p.rows);
}
static int64_t sums_bytes(const tt_kernel_call *c)
{
    return 2 * (int64_t)cuda_align((size_t)tt_tensor_numel(&c->in[Q]) * sizeof(float));
}

static size_t delta_bytes(const tt_kernel_call *c, bool derivative)
{
    const delta_args a = args_of(c);
    const int64_t one = group_bytes(&a, derivative), all = one * a.groups;
    return (size_t)((all <= MOST ? all : cuda_max(MOST, one)) + (derivative ? sums_bytes(c) : 0));
}
static size_t forward_bytes(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return delta_bytes(c, false);
}
static size_t backward_bytes(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    cuda_files_need(c->backend, "delta_rule_bwd");
    return delta_bytes(c, true);
}

/* Shares scratch out among the most groups that it has room for. */
static void share_scratch(delta_args *a, char *at, bool derivative)
{
    const delta_parts p = delta_parts_of(a);
    const int64_t one = group_bytes(a, derivative), n = one > 0 ? MOST / one : a->groups;
    a->n_groups = (int)cuda_max(cuda_min(n, a->groups), 1);
    float **const arrays[] = {&a->inside, &a->states, &a->rows, &a->dstates, &a->drows};
    const int64_t bytes[] = {p.inside, p.states, p.rows, p.states, p.rows};
    for (int i = 0; i < (derivative ? 5 : 2); i++) {
        *arrays[i] = (float *)(void *)at;
        at += bytes[i] * a->n_groups;
    }
}

/* ---- launches ---- */

typedef tt_status (*run_groups)(cuda_backend *b, const tt_kernel_call *c, delta_args *a,
                                tt_error *err);

static tt_status run_inside(cuda_backend *b, const tt_kernel_call *c, delta_args *a, tt_error *err)
{
    const cuda_grid grid = {a->chunks * a->n_groups * a->heads, 1, 1, DELTA_THREADS, INSIDE};
    return CUDA_LAUNCH(b, c, &inside, grid, err, a);
}
/* Along the chunks. */
static tt_status run_walk(cuda_backend *b, const tt_kernel_call *c, cuda_kernel *k, int room,
                          delta_args *a, tt_error *err)
{
    const int shared = shared_of(a, room, DELTA_CHUNK);
    const cuda_grid grid = {a->tiles * a->chunks * a->n_groups * a->heads, 1, 1, DELTA_THREADS,
                            shared};
    return CUDA_LAUNCH(b, c, k, grid, err, a);
}

static tt_status groups_forward(cuda_backend *b, const tt_kernel_call *c, delta_args *a,
                                tt_error *err)
{
    TT_TRY(run_inside(b, c, a, err));
    return run_walk(b, c, &forward, WALK, a, err);
}
static tt_status groups_backward(cuda_backend *b, const tt_kernel_call *c, delta_args *a,
                                 tt_error *err)
{
    const cuda_grid grid = {a->chunks * a->n_groups, 1, 1, DELTA_THREADS, GIVE};
    TT_TRY(run_inside(b, c, a, err));
    TT_TRY(run_walk(b, c, &keep, WALK, a, err));
    TT_TRY(run_walk(b, c, &back, BACK, a, err));
    return CUDA_LAUNCH(b, c, &give, grid, err, a);
}

static tt_status in_turn(cuda_backend *b, const tt_kernel_call *c, delta_args *a, run_groups run,
                         tt_error *err)
{
    const int most = a->n_groups;
    for (a->first = 0; a->first < a->groups; a->first += most) {
        a->n_groups = a->groups - a->first < most ? a->groups - a->first : most;
        TT_TRY(run(b, c, a, err));
    }
    return TT_OK;
}

/* q, k [T,K,dk], v [T,K,R,dv], g, beta [T,K,R], seg, pos [T] -> [T,K,R,dv] */
static tt_status run_delta_rule(void *self, const tt_kernel_call *c, tt_error *err)
{
    delta_args a = args_of(c);
    a.out = c->out[0].data;
    a.halves |= cuda_half(&c->out[0]) ? DELTA_OUT : 0;
    share_scratch(&a, c->scratch, false);
    return in_turn(self, c, &a, groups_forward, err);
}

/* The same operands and do -> dq, dk, dv, dgates f32 [T,K,2,R] */
static tt_status run_delta_rule_bwd(void *self, const tt_kernel_call *c, tt_error *err)
{
    delta_args a = args_of(c);
    char *at = c->scratch;
    a.dout = c->in[LAST].data;
    a.halves |= cuda_half(&c->in[LAST]) ? DELTA_OUT : 0;
    a.dq = c->out[0].data;
    a.dk = c->out[1].data;
    a.dv = c->out[2].data;
    a.dgates = c->out[3].data;
    a.dq_sum = (float *)(void *)at;
    a.dk_sum = (float *)(void *)(at + sums_bytes(c) / 2);
    share_scratch(&a, at + sums_bytes(c), true);
    return in_turn(self, c, &a, groups_backward, err);
}

/* … and a state f32 [S,K,R,dk,dv] -> [T,K,R,dv], state */
static tt_status run_delta_rule_cached(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *state = &c->out[1];
    delta_args a = args_of(c);
    a.out = c->out[0].data;
    a.halves |= cuda_half(&c->out[0]) ? DELTA_OUT : 0;
    a.state = state->data;
    a.slots = state->shape[0];
    a.tiles = (int)cuda_ceil(a.dv_dim, CACHED_COLS);
    const int shared = shared_of(&a, CACHED + 2 * a.dk_dim * (int)sizeof(float), CACHED_COLS);
    const cuda_grid grid = {(int64_t)a.tiles * a.groups * a.heads, a.tokens, 1, DELTA_THREADS,
                            shared};
    TT_TRY(cuda_copy(self, c->queue, state->data, c->in[LAST].data,
                     (size_t)tt_tensor_numel(state) * sizeof(float), err));
    return CUDA_LAUNCH(self, c, &cached, grid, err, &a);
}

const tt_kernel cuda_kernels_delta_rule[] = {
    CUDA_ROW("delta_rule", run_delta_rule, forward_bytes, 0, 0, cuda_floats),
    CUDA_ROW("delta_rule_bwd", run_delta_rule_bwd, backward_bytes, 0, 0, cuda_floats),
    CUDA_ROW("delta_rule_cached", run_delta_rule_cached, NULL, 0, 0, cuda_floats),
    {.op = NULL},
};
