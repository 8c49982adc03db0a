/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_ORACLE_CASES_H
#define TT_TESTS_ORACLE_CASES_H
#include "oracle/check.h"

/* Tests of golden runs on one rank and on meshes: a table of cases, and the overrides that most of them have. */

#define MAX_OVERRIDES 4

typedef struct oracle_case {
    const char *name, *golden;
    tt_override o[MAX_OVERRIDES];
} oracle_case;

#define DEGREE(axis, n)                                                                            \
    {                                                                                              \
        "parallelism." axis "_degree", n                                                           \
    }
#define BACKEND(name)                                                                              \
    {                                                                                              \
        "backend.name", name                                                                       \
    }
#define SHARD DEGREE("data_parallel_shard", "2")
#define TENSOR DEGREE("tensor_parallel", "2")
#define CONTEXT DEGREE("context_parallel", "2")
#define PIPELINE                                                                                   \
    DEGREE("pipeline_parallel", "2"),                                                              \
    {                                                                                              \
        "parallelism.pipeline_parallel_schedule", "1F1B"                                           \
    }

/* The golden's job with the overrides of a case. */
static inline oracle_run *run_case(const oracle_case *c, const oracle_golden *g)
{
    tt_override all[MAX_OVERRIDES + 2] = {
        {"comm.backend",               "local"},
        {"comm.train_timeout_seconds", "30"   }
    };
    size_t n = 2;
    for (int i = 0; i < MAX_OVERRIDES && c->o[i].key; i++)
        all[n++] = c->o[i];
    return oracle_run_job(g, all, n);
}

#endif
