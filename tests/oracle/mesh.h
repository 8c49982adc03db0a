/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_ORACLE_MESH_H
#define TT_TESTS_ORACLE_MESH_H
#include "oracle/oracle.h"
#include "tier.h"

/* Placed runs compared with one rank. A mesh is given as words: "shard 2 tp 2 schedule GPipe". */

enum { MESH_OVERRIDES = 48 };

/* Overrides of a golden job of ten steps: the first four of them, ten in the long tier. A wrong placement shows in the first step, a
 * wrong state of the optimizer in the second. */
static inline int mesh_steps(void)
{
    return is_long() ? 10 : 4;
}
static inline const tt_override *mesh_step_options(void) /* two */
{
    static const tt_override some[] = {
        {"lr_scheduler.total_steps", "10"},
        {"training.steps",           "4" }
    };
    static const tt_override all[] = {
        {"lr_scheduler.total_steps", "10"},
        {"training.steps",           "10"}
    };
    return is_long() ? all : some;
}

typedef struct mesh_line {
    tt_override o[MESH_OVERRIDES];
    size_t n;
    int rep, shard;
} mesh_line;

static inline void mesh_add(mesh_line *m, const char *key, const char *value)
{
    assert_true(m->n < MESH_OVERRIDES);
    m->o[m->n++] = (tt_override){key, value};
}

/* Words and their keys; text is cut up. A word with a dot is a key of the job itself. */
static inline void mesh_parse(char *text, mesh_line *m)
{
    static const char *const words[][2] = {
        {"rep",      "parallelism.data_parallel_replicate_degree"},
        {"shard",    "parallelism.data_parallel_shard_degree"    },
        {"tp",       "parallelism.tensor_parallel_degree"        },
        {"cp",       "parallelism.context_parallel_degree"       },
        {"rotate",   "parallelism.context_parallel_rotate_method"},
        {"balance",  "parallelism.context_parallel_load_balancer"},
        {"pp",       "parallelism.pipeline_parallel_degree"      },
        {"ep",       "parallelism.expert_parallel_degree"        },
        {"buffer",   "parallelism.expert_buffer_factor"          },
        {"replicas", "parallelism.expert_replicas"               },
        {"mb",       "parallelism.pipeline_parallel_microbatches"},
        {"schedule", "parallelism.pipeline_parallel_schedule"    },
        {"sp",       "parallelism.enable_sequence_parallel"      },
        {"async",    "parallelism.enable_async_tensor_parallel"  },
        {"reshard",  "parallelism.fsdp_reshard_after_forward"    },
        {"local",    "training.local_batch_size"                 },
        {"global",   "training.global_batch_size"                },
        {"ac",       "activation_checkpoint.mode"                },
        {"turns",    "training.intra_layer_micro_batch"          },
    };
    char *save = NULL;
    m->rep = m->shard = 1;
    for (char *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save)) {
        const char *key = strchr(w, '.') ? w : NULL, *value = strtok_r(NULL, " ", &save);
        for (size_t i = 0; !key && i < TT_COUNT(words); i++)
            if (!strcmp(w, words[i][0]))
                key = words[i][1];
        if (!key || !value)
            fail_msg("\"%s\" is no word of a mesh", w);
        if (!strcmp(w, "rep"))
            m->rep = atoi(value);
        if (!strcmp(w, "shard"))
            m->shard = atoi(value);
        mesh_add(m, key, value);
    }
    mesh_add(m, "comm.backend", "local");
    mesh_add(m, "comm.train_timeout_seconds", "60");
}

static inline double mesh_rms(const oracle_run *r, const char *suffix)
{
    double sum = 0, n = 0;
    for (int i = 0; i < r->n_tensors; i++)
        if (r->tensors[i].suffix && !strcmp(r->tensors[i].suffix, suffix)) {
            sum += oracle_square_sum(&r->tensors[i]);
            n += (double)r->tensors[i].n;
        }
    return sqrt(sum / n);
}

/* The worst element, in units of the tolerance. */
static inline double mesh_tensor_error(const oracle_tensor *a, const oracle_tensor *b,
                                       double rms_all, int64_t *at)
{
    const double tolerance = oracle_tolerance(sqrt(oracle_square_sum(b) / (double)b->n), rms_all);
    double worst = 0;
    assert_int_equal(a->n, b->n);
    for (int64_t i = 0; i < a->n; i++) {
        const double d = fabs((double)a->data[i] - (double)b->data[i]) / tolerance;
        if (!(d <= worst)) {
            worst = d;
            *at = i;
        }
    }
    return worst;
}

/* Every element of every gradient (sgd's momentum after one step), within `most` tolerances. */
static inline double mesh_check_gradients(const oracle_run *r, const oracle_run *one, double most)
{
    const double rms_all = mesh_rms(one, "momentum_buffer");
    double worst = 0;
    for (int i = 0; i < r->n_tensors; i++) {
        const oracle_tensor *a = &r->tensors[i], *b = oracle_find(one, a->name, a->suffix);
        int64_t at = 0;
        const double e = a->suffix ? mesh_tensor_error(a, b, rms_all, &at) : 0;
        worst = fmax(worst, e);
        if (!(e <= most))
            fail_msg("gradient of %s[%lld]: %.9g, one rank has %.9g: %.2f of the tolerance",
                     a->name, (long long)at, (double)a->data[at], (double)b->data[at], e);
    }
    return worst;
}

/* The largest relative difference of losses, largest losses and norms. */
static inline double mesh_check_steps(const oracle_run *a, const oracle_run *b, double loss,
                                      double norm)
{
    double worst = 0;
    assert_int_equal(a->n_steps, b->n_steps);
    for (int i = 0; i < a->n_steps; i++) {
        const double l = fabs(a->loss[i] / b->loss[i] - 1), n = fabs(a->norm[i] / b->norm[i] - 1);
        worst = fmax(worst, fmax(l, n));
        if (!(l <= loss))
            fail_msg("step %d: loss %.9g, one rank has %.9g", i + 1, a->loss[i], b->loss[i]);
        if (!(fabs(a->loss_max[i] / b->loss_max[i] - 1) <= loss))
            fail_msg("step %d: loss_max %.9g, one rank has %.9g", i + 1, a->loss_max[i],
                     b->loss_max[i]);
        if (!(n <= norm))
            fail_msg("step %d: grad_norm %.9g, one rank has %.9g", i + 1, a->norm[i], b->norm[i]);
    }
    return worst;
}

static inline void mesh_check_initial(const oracle_run *r, const oracle_run *one)
{
    assert_int_equal(r->n_tensors, one->n_tensors);
    for (int i = 0; i < r->n_tensors; i++)
        if (!r->tensors[i].suffix)
            oracle_assert_same_tensor(&r->tensors[i], oracle_find(one, r->tensors[i].name, NULL));
}

#endif
