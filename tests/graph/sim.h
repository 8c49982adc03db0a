/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_SIM_H
#define TT_TESTS_SIM_H
#include "graph/graph.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <ttrun/backend.h>

/* The sim harness (issue 3, point 5) evaluates a graph once globally, without any mesh, and once on
 * every rank's shards, in one process, with the reference backend's kernels. A collective reads
 * only its group. For every node the assembled shards must be the global value, and replicas must
 * agree in every bit. A state node is the state's memory, not a copy, so a read after its
 * assignment is found. Tests include sim.c (and it includes sim_tensors.c), because the test rules
 * link one file per binary. */

typedef struct sim_opts {
    bool narrow; /* values as the graph says; false: every float is f64, so that 1e-9 is a tolerance
                  */
    int micro_batches; /* 0 = 1 */
    int drop;         /* id + 1 of a node whose communication is left out: the mutation; 0 = none */
    bool unchecked;   /* no comparison node by node */
    double tolerance; /* relative to the largest element; 0 = 1e-9, narrow: 2e-5 */
    /* Values of leaves, one array of doubles a name: "ids", "pos", "seg", "labels", a parameter's
     * name, "lr", …,
     * "<parameter>.<suffix>" for optimizer state. NULL = sim_feed. */
    void (*feed)(const tt_graph *g, const char *name, const tt_type *t, int micro, double *out);
} sim_opts;

typedef struct sim {
    const tt_graph *g;
    const tt_mesh *mesh;
    tt_arena *arena;
    sim_opts o;
    int micro;
    tt_tensor *global;       /* by value id */
    tt_tensor *local;        /* by value id * world + rank */
    tt_tensor *state_global; /* by state id */
    tt_tensor *state_local;  /* by state id * world + rank */
    int n_nodes;             /* evaluated */
    double worst;            /* largest relative difference */
    char failure[600];       /* the first node that differed, or a kernel's error; "" = none */
} sim;

/* Runs one step: every forward and backward node once per micro-batch, then the rest. */
sim *sim_run(const tt_graph *g, const sim_opts *o);
void sim_free(sim *s);
void sim_require(const sim *s); /* fails the test with s->failure */

/* The values of a parameter after the step, assembled from the shards, as doubles in the arena of s.
 * what NULL: the parameter; "grad": its gradient; otherwise the name of an optimizer state. */
double *sim_param(const sim *s, const char *name, const char *what, int64_t *n);
double *sim_state(const sim *s, const char *name, int64_t *n);  /* metrics, by name */
double *sim_value(const sim *s, const tt_value *v, int64_t *n); /* any value, assembled */
double *sim_global(const sim *s, const tt_value *v,
                   int64_t *n); /* any value, the global evaluation */

/* The default feed: ids and labels below `sim_vocab`, two segments per sequence, parameters about 0.5
 * (1 for vectors). */
void sim_feed(const tt_graph *g, const char *name, const tt_type *t, int micro, double *out);
extern int64_t sim_vocab; /* 19 */

const tt_backend_vt *sim_backend(void); /* the reference backend */
extern const tt_kernel *sim_own_kernel; /* of a test's own op, beside the backend's; NULL: none */
const void *sim_plugin(const char *kind_and_name, int kind); /* "optimizers/adamw": its vtable */
bool sim_has_kernel(void *user, const char *op);
void sim_optimizer_defaults(const char *kind_and_name, void *config, size_t size);
tt_op_table sim_ops(void);

#endif
