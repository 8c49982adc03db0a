/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_EXEC_H
#define TT_EXEC_H
#include "base/pool.h"
#include "comm/dist.h"
#include "device/device.h"
#include "plan/kernels.h"
#include "plan/program.h"

/* core/exec: runs a finished program (plan/program.h) on one rank. It allocates the program's memory,
 * finds the kernels, binds addresses and groups, and runs the sections. It knows no pass and no
 * graph. Running a step allocates nothing. */

typedef struct tt_exec tt_exec;

/* Fills dst with elements [begin, end) of an input's token dim, of micro-batch `micro`. */
typedef tt_status (*tt_fill_fn)(void *user, const char *input, int micro, int64_t begin,
                                int64_t end, int32_t *dst, tt_error *err);

typedef struct tt_exec_opts {
    const tt_program *program;
    tt_dist *dist;
    const tt_kernels *kernels;
    tt_device device; /* the backend's memory, and its object */
    tt_pool *pool;
    uint64_t seed;
    tt_exec *parent; /* parameters and buffers are those of this program (validation, decode);
                        NULL: its own */
    bool poison; /* debug.poison: memory that nobody may read is NaN, and canaries lie behind it */
    bool detect_nan;     /* debug.detect_nan: the first result that is not finite ends the step */
    bool no_capture;     /* debug.capture off: every instruction is issued in every step */
    bool check_products; /* debug.check_products: kernels check them (tt_kernel_call.checks) */
    bool sync;           /* debug.sync: waits for a device after each instruction */
    bool late; /* metrics.lag: the metrics of a device are waited for by tt_exec_finish_metrics */
    tt_exec
        *from; /* the program in host memory that runs now and that this one replaces; NULL: none */
} tt_exec_opts;

/* [collective] when the mesh has more than one rank, unless opts.from is given. */
tt_status tt_exec_new(const tt_exec_opts *o, tt_exec **out, tt_error *err);
void tt_exec_free(tt_exec *x);

/* ---- succeed.c: a program that is made beside the one that it replaces ----
 * With opts.from, tt_exec_new makes the program on another thread while `from` runs, and without
 * communication: it uses the groups of `from`, and fails with TT_EBUSY if it needs another one. Where the
 * states of both lie alike, it has them where they are, and it works in the memory that `from` works in if
 * that is large enough; other memory is allocated and touched. Until tt_exec_succeed it must not run, but
 * it may be freed. */
/* Bytes that it would allocate. */
int64_t tt_exec_own_bytes(const tt_program *p, const tt_exec *from);
/* Whether parameters, buffers and optimizer states lie where opts.from has them: nothing is to be copied. */
bool tt_exec_keeps_states(const tt_exec *x);
/* Between two steps of opts.from, which must not run any more: x owns what both used. Then opts.from may be
 * freed on any thread. Does nothing without opts.from. */
void tt_exec_succeed(tt_exec *x);

/* For a program that decodes: how many tokens the next calls have, and how many picked ones. */
void tt_exec_set_rows(tt_exec *x, int64_t tokens, int64_t picked);
void tt_exec_set_scalar(tt_exec *x, const char *name, double value); /* for the next section */
/* The elements of a metric with dims, f64, likewise; NULL: other ranks have it. */
const double *tt_exec_metric_list(const tt_exec *x, const char *name);
double tt_exec_metric(const tt_exec *x, const char *name); /* as the last epilogue that the host
                                                              waited for left it */

/* The elements of an f32 metric that this rank has, and their box; NULL: none, or another rank has the same.
 * As tt_exec_metric. */
const float *tt_exec_metric_data(const tt_exec *x, const char *name, tt_tensor *box);

/* How long a step has waited for communication over these axes of the mesh; on a device this is not known. The
 * last of TT_MAX_COMM_AXES is for all axes that do not have one of their own. */
#define TT_MAX_COMM_AXES 12
typedef struct tt_exec_axes {
    uint16_t atoms;
    const char *name; /* "time/comm/dp_shard", "time/comm/dp_shard.cp", "time/comm/pp" */
    int64_t ns;
} tt_exec_axes;
typedef struct tt_exec_comm {
    tt_exec_axes axes[TT_MAX_COMM_AXES];
    int n;
} tt_exec_comm;
const tt_exec_axes *tt_exec_comm_axes(const tt_exec *x, int *n);

/* The optimizer, and what draws random numbers, count steps from the one after `before`, which is 0 unless
 * training goes on without the optimizer's states. */
void tt_exec_count_from(tt_exec *x, int64_t before);
/* Whether the steps that run from now on are measured (tt_when.measured). */
void tt_exec_measure(tt_exec *x, bool measured);
/* Has the host see the metrics as the step has left them, the update included. */
tt_status tt_exec_read_metrics(tt_exec *x, tt_error *err);
/* State i of the program, i < tt_exec_n_states: a hash of what this rank has of it, if it is one that
 * micro-batches leave behind and each step stores anew, such as a sum of gradients; else 0. */
int tt_exec_n_states(const tt_exec *x);
const char *tt_exec_state_name(const tt_exec *x, int i);
tt_status tt_exec_hash_state(tt_exec *x, int i, uint64_t *hash, tt_error *err);
tt_status tt_exec_hash(tt_exec *x, const tt_tensor *t, uint64_t seed, uint64_t *hash,
                       tt_error *err);

/* Products that kernels have checked since the last call of this: what they found. */
typedef struct tt_exec_checked {
    tt_checks sums;
    const tt_instr *first; /* whose sums do not agree; NULL: none */
    int micro;             /* its micro-batch */
} tt_exec_checked;
tt_exec_checked tt_exec_take_checked(tt_exec *x);
/* ---- trail.c: this rank's contributions to sums over these atoms of the mesh, as hashes ----
 * From now on micro-batches leave one for each instruction and each state (hashes[tt_exec_trail_length], 0: it
 * contributes nothing), until tt_exec_end_trail adds the states and says how many there are. NULL: no more. */
int tt_exec_trail_length(const tt_exec *x);
void tt_exec_leave_trail(tt_exec *x, uint16_t atoms, uint64_t *hashes);
tt_status tt_exec_end_trail(tt_exec *x, int *n, tt_error *err);
const char *tt_exec_trail_name(const tt_exec *x, int i, const char **scope);
/* ---- twice.c: the epilogue and the update again, an instruction at a time (tt_program.kept) ---- */
typedef struct tt_exec_differing {
    int64_t n;         /* instructions whose runs differed */
    int64_t unsettled; /* of these: no two runs agree on the result */
    const tt_instr *first;
} tt_exec_differing;
/* on: each instruction of the epilogue and the update runs twice from now on, and collectives three times.
 * Results whose bits differ are counted anew; what two of three runs agree on stays. On a device it is not done
 * for what has a queue of its own. [collective] */
void tt_exec_run_twice(tt_exec *x, bool on);
const tt_exec_differing *tt_exec_differed(const tt_exec *x);
/* Every action of this rank's schedule; kernels get the number of the step. [collective] */
tt_status tt_exec_micro_batches(tt_exec *x, int64_t step, tt_fill_fn fill, void *user,
                                tt_error *err);
/* Reductions, norm, metrics; then the host waits for the metrics, once per step, unless they are late.
 */
tt_status tt_exec_epilogue(tt_exec *x, tt_error *err);
/* The optimizer and the buffers; nothing if the epilogue's metric "ok" is 0. If the metrics are late, the
 * host does not know it yet and the update always runs: so after a step whose "ok" is 0 no state may be
 * used. */
tt_status tt_exec_update(tt_exec *x, tt_error *err);
/* detect_nan: fails with the step's first result that is not finite, if the loss scale was to handle it. */
tt_status tt_exec_overflow(const tt_exec *x, tt_error *err);
/* Whether the metrics of an epilogue were not waited for yet. Before the next epilogue they must be. */
bool tt_exec_metrics_late(const tt_exec *x);
/* Waits for them; what was put on the queues since goes on. Does nothing if they are not late. */
tt_status tt_exec_finish_metrics(tt_exec *x, tt_error *err);

/* ---- where tensors lie, for checkpoints, weights, generation and tests. Their data is memory of the
 * backend: the host reads and writes it with tt_exec_read, tt_exec_write and
 * tt_exec_map. ---- */
typedef struct tt_exec_tensor {
    const char *name;   /* of the parameter or buffer */
    const char *suffix; /* NULL: the parameter itself; "exp_avg": an optimizer's state */
    bool copies,
        evaluated; /* such a state: it starts as the parameter; it is evaluated in its place */
    const struct tt_param_info *param; /* NULL: a buffer */
    tt_tensor tensor;                  /* this rank's box */
    bool owner;                        /* this rank is the first of its replicas */
} tt_exec_tensor;
/* Parameters and optimizer states. Returns how many. */
size_t tt_exec_tensors(const tt_exec *x, tt_arena *a, tt_exec_tensor **out);
/* Buffers that checkpoints hold. Returns how many. */
size_t tt_exec_buffers(const tt_exec *x, tt_arena *a, tt_exec_tensor **out);
/* tt_program.params[param]; false: it is on other ranks. */
bool tt_exec_param(const tt_exec *x, int param, tt_tensor *out);
/* Puts a parameter's initial values on the device. *done false: the backend has no op for that, or the
 * parameter is not in its memory. */
tt_status tt_exec_initial(tt_exec *x, int param, const tt_attrs_initial *a, bool *done,
                          tt_error *err);
/* Where a scalar or a metric lies. */
tt_status tt_exec_state_tensor(const tt_exec *x, const char *state, tt_tensor *out, tt_error *err);

/* Where the state lies that has this id in the graph. */
void tt_exec_state(const tt_exec *x, int id, tt_tensor *out);

/* Copies between host memory and the backend's, after all work so far, and waits. */
tt_status tt_exec_read(tt_exec *x, void *to, const void *from, size_t bytes, tt_error *err);
tt_status tt_exec_write(tt_exec *x, void *to, const void *from, size_t bytes, tt_error *err);
/* A tensor's elements on the host: in place, or a copy, which has the tensor's values if `read`.
 * tt_exec_unmap writes a copy back if `changed`, and frees it. */
tt_status tt_exec_map(tt_exec *x, const tt_tensor *t, bool read, void **host, tt_error *err);
tt_status tt_exec_unmap(tt_exec *x, const tt_tensor *t, void *host, bool changed, tt_error *err);
/* Copies states to host memory while the program runs, for saves. On a device a reader has its own
 * queue. */
typedef struct tt_exec_reader tt_exec_reader;
tt_status tt_exec_reader_new(tt_exec *x, tt_exec_reader **out, tt_error *err); /* [setup] */
void tt_exec_reader_free(tt_exec_reader *r); /* before its program; NULL is allowed */
/* The next copies see what all work so far leaves. On the program's thread, while no copy runs. */
tt_status tt_exec_reader_begin(tt_exec_reader *r, tt_error *err);
/* Waits until the copy is done. On any thread, one copy at a time. Meanwhile the program may run what
 * does not write `from`: of a parameter, an optimizer's state or a buffer all but the update. */
tt_status tt_exec_reader_copy(tt_exec_reader *r, void *to, const void *from, size_t bytes,
                              tt_error *err);
/* Waits until all work so far is done. */
tt_status tt_exec_sync(tt_exec *x, tt_error *err);

typedef struct tt_exec_graph_counts {
    size_t n_graphs;           /* that the program can have */
    int64_t captured, refused; /* of these so far */
    int64_t launches;
} tt_exec_graph_counts;
tt_exec_graph_counts tt_exec_count_graphs(const tt_exec *x);

/* The end of the highest byte of work memory that was used so far; 0 without poison. */
int64_t tt_exec_high_water(const tt_exec *x);
/* How long the program stood still for communication since the last call of micro_batches: in
 * messages, in collectives that were not begun early, and in waits for those that were. On a device,
 * where the host does not see that, by events on its queue: of the step whose metrics the host has, and
 * of the update before it; 0 if a step has too many of them, NaN if some of it was in graphs. */
double tt_exec_comm_seconds(const tt_exec *x);

/* ---- record.c: what ran when. Buffers are made once, and recording allocates nothing. A program
 * that is not traced reads no clock except around communication. On a device times are those of its
 * queues. ---- */
typedef struct tt_trace_event { /* an instruction ran once */
    const tt_instr *instr;
    int64_t begin_ns, end_ns;
    int64_t rows; /* of the token chunk; < 0: not in a loop */
    int micro;
    int queue; /* 0: in the rank's own thread */
    bool wait; /* the wait for the instruction, not the instruction itself */
    bool adds; /* to what its output held */
} tt_trace_event;
typedef struct tt_item_time { /* of the schedule */
    const tt_item *item;
    int64_t begin_ns, end_ns;
    int64_t message_ns; /* of that, in sends and receives */
    int64_t cpu_ns;     /* of the rank's own thread, or of the device */
} tt_item_time;
typedef struct tt_trace {
    const tt_program *program;
    int rank;
    tt_trace_event *events;
    size_t n, cap;
    int64_t dropped;     /* events without room */
    tt_pool_tracer pool; /* a slice's tag is the event's number */
    int n_workers;
    tt_item_time *items; /* in order */
    int n_items, most_items;
} tt_trace;
tt_status tt_exec_trace_open(tt_exec *x, tt_error *err); /* [setup] */
/* on: forgets what was recorded and records from here. Between steps. */
void tt_exec_trace(tt_exec *x, bool on);
/* Before the record is read. On a device this waits for the step and sets all times. */
tt_status tt_exec_trace_times(tt_exec *x, tt_error *err);
const tt_trace *tt_exec_traced(const tt_exec *x); /* NULL: tracing was not opened */

#endif
