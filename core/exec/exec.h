/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_EXEC_H
#define TT_EXEC_H
#include "base/pool.h"
#include "comm/dist.h"
#include "plan/kernels.h"
#include "plan/program.h"

/* core/exec: runs a finished program; knows no passes and no graph. One tt_exec is one program on
 * one rank: memory mapped, kernels resolved, addresses bound, groups made. Steady state allocates
 * nothing. */

typedef struct tt_exec tt_exec;

/* Fill dst with elements [begin, end) of an input's token dim of micro-batch `micro`. */
typedef tt_status (*tt_fill_fn)(void *user, const char *input, int micro, int64_t begin,
                                int64_t end, int32_t *dst, tt_error *err);

typedef struct tt_exec_opts {
    const tt_program *program;
    tt_dist *dist;
    const tt_kernels *kernels;
    void *backend_self;
    tt_pool *pool;
    uint64_t seed;
    tt_exec *parent; /* parameters are this program's (validation, decode); NULL: own state */
    bool poison;     /* NaN into bytes that are not alive, canaries behind every space */
    bool detect_nan; /* after every op: the first non-finite value ends the step, named */
} tt_exec_opts;

/* [collective] when the mesh has more than one rank. */
tt_status tt_exec_new(const tt_exec_opts *o, tt_exec **out, tt_error *err);
void tt_exec_free(tt_exec *x);

/* Initial values: a function of (seed, parameter's name, global index). States other than
 * parameters are zero. */
void tt_exec_init_params(tt_exec *x);

/* A program that decodes: rows of the next calls, tokens and picked ones. */
void tt_exec_set_rows(tt_exec *x, int64_t tokens, int64_t picked);
void tt_exec_set_scalar(tt_exec *x, const char *name, double value);
double tt_exec_metric(const tt_exec *x, const char *name); /* after the epilogue */

/* Every action of this rank's schedule. [collective] */
tt_status tt_exec_micro_batches(tt_exec *x, int64_t step, tt_fill_fn fill, void *user,
                                tt_error *err);
tt_status tt_exec_epilogue(tt_exec *x, tt_error *err); /* reductions, norm, metrics */
/* The optimizer and the buffers; nothing if the epilogue's metric "ok" is 0. */
tt_status tt_exec_update(tt_exec *x, tt_error *err);

/* Where things lie, for checkpoints, weights, generation and tests. */
typedef struct tt_exec_tensor {
    const char *name;   /* the parameter's */
    const char *suffix; /* NULL: the parameter; "exp_avg": optimizer state */
    const struct tt_param_info *param;
    tt_tensor tensor; /* this rank's box */
    bool owner;       /* first of its replicas */
} tt_exec_tensor;
tt_status tt_exec_tensors(const tt_exec *x, tt_arena *a, tt_exec_tensor **out, size_t *n,
                          tt_error *err);
/* Buffers that checkpoints hold; param is NULL. Returns how many. */
size_t tt_exec_buffers(const tt_exec *x, tt_arena *a, tt_exec_tensor **out);
bool tt_exec_gradient(const tt_exec *x, const struct tt_param_info *p,
                      tt_tensor *out); /* its accumulator, as accumulated; of a parameter tied
                                          over stages that of the lowest */
tt_status tt_exec_state_tensor(const tt_exec *x, const char *state, tt_tensor *out, tt_error *err);

int64_t tt_exec_bytes(const tt_exec *x); /* allocated */
int64_t
tt_exec_high_water(const tt_exec *x); /* of work memory used so far: measured with poison, else 0 */
/* The program stood still for communication, since the last call to micro_batches: collectives and
 * messages that were not begun early, and waits for those that were. */
double tt_exec_comm_seconds(const tt_exec *x);

/* ---- trace.c: which op ran when, on which thread. Buffers are made once and recording into them
 * allocates nothing; a program that is not traced reads no clock but around communication. ---- */
typedef struct tt_op_sum { /* one class of ops: those of one name */
    const char *op;
    bool
        concurrent; /* run concurrently with the program, by a thread of communication: its time is no part of the
                    step's; what was waited for it is the op "wait" */
    int64_t calls, ns;
    double flops, bytes; /* by the ops' cost rules, for this rank's shapes */
    double bound_s;      /* least seconds on this machine */
} tt_op_sum;
/* Bytes a second the pool's threads move where three arrays are changed in place by a fourth, as an
 * optimizer does: the best mix a kernel can hope for. One array alone keeps fewer lines under way,
 * and reads half as fast. 256 MiB together: where a cache holds them, it is the cache's. */
double tt_stream_bandwidth(tt_pool *pool);
tt_status tt_exec_trace_open(tt_exec *x, tt_error *err); /* [setup] */
/* on: forget what was recorded and record from here. Between steps. */
void tt_exec_trace(tt_exec *x, bool on);
/* What was recorded, as events of the Chrome trace format: objects with a ',' behind each. pid is
 * the rank, tid the thread, times are microseconds of tt_now_ns. */
void tt_exec_trace_events(const tt_exec *x, tt_str *out);
/* One slice of the same format. cat NULL: none. */
void tt_trace_slice(tt_str *out, int pid, int tid, const char *name, const char *cat,
                    int64_t begin_ns, int64_t end_ns, const char *args_json);
/* Adds what was recorded to sums[0..n); returns the new n, at most cap. */
size_t tt_exec_trace_sums(const tt_exec *x, const struct tt_machine *limit, tt_op_sum *sums,
                          size_t n, size_t cap);
int64_t tt_exec_trace_dropped(const tt_exec *x); /* events and slices there was no room for */

/* item_times.c: the items of this rank's program in the traced step, in order. */
typedef struct tt_item_time {
    const tt_item *item;
    int64_t begin_ns, end_ns;
    int64_t message_ns; /* of that, in sends and receives */
    int64_t cpu_ns;     /* of the main thread */
} tt_item_time;
const tt_item_time *tt_exec_item_times(const tt_exec *x, int *n);

#endif
