/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_LLAMA_H
#define TT_TESTS_LLAMA_H
#include "graph/sim.h"
#include "passes/passes.h"

/* The model of the executable specification (placement_spec.py, build()), its meshes, and a function
 * that runs the passes on it and stops after each. */

typedef struct llama {
    int64_t V, D, H, K, hd, F, L;
    bool tied, bias, qk_norm;
} llama;
#define LLAMA_DEFAULT                                                                              \
    {                                                                                              \
        .V = 19, .D = 10, .H = 6, .K = 2, .hd = 4, .F = 14, .L = 2                                 \
    }

typedef struct mesh_case {
    const char *name;
    struct {
        const char *name;
        int size;
    } atoms[4];
    bool tp2x2; /* the last two atoms are one axis, tp, or cp where they are called so */
} mesh_case;

static const mesh_case mesh_cases[] = {
    {"1",                   {{"tp", 1}},                                                  false},
    {"fsdp2",               {{"dp_shard", 2}},                                            false},
    {"hsdp2x2",             {{"dp_replicate", 2}, {"dp_shard", 2}},                       false},
    {"tp2",                 {{"tp", 2}},                                                  false},
    {"tp3",                 {{"tp", 3}},                                                  false},
    {"cp2",                 {{"cp", 2}},                                                  false},
    {"cp3",                 {{"cp", 3}},                                                  false},
    {"fsdp2 tp2",           {{"dp_shard", 2}, {"tp", 2}},                                 false},
    {"fsdp2 cp2",           {{"dp_shard", 2}, {"cp", 2}},                                 false},
    {"fsdp3 tp2",           {{"dp_shard", 3}, {"tp", 2}},                                 false},
    {"fsdp2 tp2 cp2",       {{"dp_shard", 2}, {"cp", 2}, {"tp", 2}},                      false},
    {"hsdp2 fsdp2 tp2 cp2", {{"dp_replicate", 2}, {"dp_shard", 2}, {"cp", 2}, {"tp", 2}}, false},
    {"tp4=2x2",             {{"tpa", 2}, {"tpb", 2}},                                     true },
    {"cp2x2",               {{"cpa", 2}, {"cpb", 2}},                                     true },
    {"cp2 tp4=2x2",         {{"cp", 2}, {"tpa", 2}, {"tpb", 2}},                          true },
};

typedef struct job {
    llama c;
    const mesh_case *mesh;
    int64_t tokens;
    bool no_sp, cross_lines;
    tt_context context;
    int n_stages;
    int64_t lines;         /* 0 = as many as data ranks */
    const char *optimizer; /* "adamw", "sgd"; NULL = p + grad * -0.1, as the specification */
    const tt_optimizer_vt *update; /* instead of a plugin's */
    double max_norm;
    tt_recompute_opts recompute;
    bool fuse, can_accumulate, metrics, async_tp;
    bool hoist;                     /* parameters are fetched once per step, gradients sunk */
    const tt_convert_opts *convert; /* NULL: no product is converted */
    int64_t chunk_bytes;            /* with can_accumulate: the token-chunk loop; 0 = none */
    void (*describe)(tt_builder *b,
                     const void *user); /* another model than the llama, with its loss */
    const void *user;
    const tt_op_def *const *ops; /* in addition to the core's */
    size_t n_ops;
} job;

typedef struct built {
    tt_arena *arena;
    tt_graph *described, *g;
    tt_mesh mesh;
    tt_label_table labels;
    tt_op_table ops;
    tt_builder *b;
} built;

typedef void (*after_pass)(void *user, const char *pass, built *x);
const mesh_case *mesh_named(const char *name);
/* Runs all passes up to `last` (NULL = all), and calls `after` after each. Returns NULL, or the name of the
 * pass that failed with err. */
const char *build_job(const job *j, const char *last, after_pass after, void *user, built *out,
                      tt_error *err);
void built_free(built *x);

#endif
