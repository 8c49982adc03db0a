/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/mesh.h"

/* torchtitan's integration tests of llama3, by their names, disabled ones too: the meshes,
 * schedules and accumulations they name. Leftover ranks are FSDP's, as there; a pipeline has eight
 * micro-batches of one sample. Each trains what one rank trains: initial values to the bit, every
 * gradient, and ten AdamW steps within 1e-5 of loss and norm.
 *
 * Pipelines of many stages have torchtitan's six layers: the embedding and the head are the first
 * and the last of eight stages, alone. custom_schedule.csv is a list of ours that no generator
 * gives: two stages a rank, every third backward whole, the others in halves. */

#define GLOBAL "8" /* samples of a step */
#define SIX "model.args.n_layers 6"

typedef struct row {
    const char *name, *mesh, *job; /* job: what one rank is told as well */
} row;

static const row rows[] = {
  /* clang-format off */
    {"default", "shard 4 local 2", NULL},
    {"1d_compile", "shard 4 local 2", NULL},
    {"1d_compile_sac_op", "shard 4 local 2 ac selective", NULL},
    {"2d_eager", "shard 2 tp 2 local 4", NULL},
    {"2d_eager_no_sp", "shard 2 tp 2 local 4 sp false", NULL},
    {"2d_compile", "shard 2 tp 2 local 4", NULL},
    {"2d_asynctp_compile", "shard 4 tp 2 local 2 async true", NULL},
    {"pp_1f1b", "pp 2 local 8 mb 8 schedule 1F1B", NULL},
    {"pp_dp_1f1b", "shard 2 pp 2 local 4 mb 4 schedule 1F1B", NULL},
    {"pp_dp_1f1b, layers_per_stage 4", "shard 2 pp 2 local 4 mb 4 schedule 1F1B parallelism.pipeline_parallel_layers_per_stage 4", SIX},
    {"pp_looped_1f1b", "pp 4 local 8 mb 8 schedule Interleaved1F1B", SIX},
    {"pp_looped_1f1b, layers_per_stage 1", "pp 4 local 8 mb 8 schedule Interleaved1F1B parallelism.pipeline_parallel_layers_per_stage 1", SIX},
    {"pp_looped_zero_bubble", "pp 4 local 8 mb 8 ac full schedule InterleavedZeroBubble", SIX},
    {"pp_zbv", "pp 2 local 8 mb 8 schedule ZBVZeroBubble", SIX},
    {"pp_custom_csv", "pp 2 local 8 mb 8 parallelism.pipeline_parallel_schedule_csv custom_schedule.csv", SIX},
    {"pp_tp_gpipe", "tp 2 pp 2 local 8 mb 8 schedule GPipe", NULL},
    {"pp_dp_tp", "shard 2 tp 2 pp 2 local 4 mb 4 schedule 1F1B", NULL},
    {"3d_compile", "shard 2 tp 2 pp 2 local 4 mb 4 schedule 1F1B", NULL},
    {"ddp", "rep 4 shard 1 local 2", NULL},
    {"hsdp", "rep 2 shard 2 local 2", NULL},
    {"cp", "cp 4 shard 1 local 8", NULL},
    {"hsdp+tp", "rep 2 shard 2 tp 2 local 2", NULL},
    {"fsdp+cp", "shard 2 cp 2 local 4", NULL},
    {"hsdp+cp_without_dp_shard", "rep 2 shard 1 cp 2 local 4", NULL},
    {"hsdp+cp_with_dp_shard", "rep 2 shard 2 cp 2 local 2", NULL},
    {"fsdp+tp+cp", "shard 2 tp 2 cp 2 local 4", NULL},
    {"fsdp_reshard_always", "shard 2 local 4 reshard always", NULL},
    {"gradient_accumulation", "shard 2 local 2", NULL},
    {"validation_tp_cp_pp", "tp 2 cp 2 pp 2 local 8 mb 8 schedule 1F1B", NULL},
    {"override_fused_swiglu", "shard 2 tp 2 local 4", NULL},
    {"fsdp+varlen_attn+per_op_sac", "shard 4 local 2 ac selective", "dataloader.document_mask true"},
    {"torchcomms_3d_dp+cp+pp", "shard 2 cp 2 pp 2 local 4 mb 4 schedule 1F1B", NULL},
    {"torchcomms_3d_dp+tp+pp", "shard 2 tp 2 pp 2 local 4 mb 4 schedule 1F1B", NULL},
    {"fsdp_symm_mem", "shard 2 local 4", NULL},
    {"fsdp+tp+cp+compile+float8", "shard 2 tp 2 pp 2 local 4 mb 4 ac full async true", NULL},
    {"hsdp+cp+compile+float8", "rep 2 shard 2 cp 2 local 2", NULL},
    {"dist_gemm", "shard 2 tp 2 local 4 async true", NULL},
    {"loss_compare, FSDP8", "shard 8 local 1", NULL},
    {"loss_compare, HSDP", "rep 2 shard 4 local 1", NULL},
    {"graph_pp, Interleaved1F1B", "shard 2 pp 2 local 4 mb 4 schedule Interleaved1F1B", SIX},
    {"graph_pp, ZBVZeroBubble", "shard 2 pp 2 local 4 mb 4 schedule ZBVZeroBubble", SIX},
    {"graph_pp, DualPipeV", "shard 2 pp 2 local 4 mb 4 schedule DualPipeV", SIX},
    {"dense_fsdp+tp+pp", "shard 2 tp 2 pp 2 local 4 mb 4 schedule 1F1B", NULL},
    {"dense_cp+pp", "cp 2 pp 2 local 8 mb 8 schedule 1F1B", NULL},
    /* context parallel within one sample, rings and Ulysses: ours */
    {"cp, one sample", "cp 4 shard 1 local 1", NULL},
    {"fsdp+cp, one sample", "shard 2 cp 2 local 1", NULL},
    {"fsdp+tp+cp, one sample", "shard 2 tp 2 cp 2 local 1", NULL},
    {"3d_dp+cp+pp, one sample", "shard 2 cp 2 pp 2 local 4 mb 4", NULL},
    {"cp ring", "cp 4 shard 1 local 1 rotate ring", NULL},
    {"fsdp+cp ring", "shard 2 cp 2 local 1 rotate alltoall", NULL},
    {"tp+cp ring, selective", "shard 1 tp 2 cp 3 local 1 rotate ring ac selective", NULL},
    {"fsdp+tp+cp ring, full", "shard 2 tp 2 cp 2 local 1 rotate ring ac full balance none", NULL},
    {"cp+pp ring", "shard 1 cp 2 pp 2 local 4 mb 4 rotate ring", NULL},
    {"cp ulysses", "cp 2 shard 1 local 1 rotate ulysses", NULL},
    {"tp+cp ulysses", "shard 1 tp 3 cp 2 local 1 rotate ulysses", NULL},
    {"cp+pp ulysses", "shard 1 cp 2 pp 2 local 4 mb 4 rotate ulysses", NULL},
  /* clang-format on */
};

static bool done[TT_COUNT(rows)];
static oracle_golden golden[2]; /* one step of sgd, mesh_steps() of AdamW */

static oracle_run *run(int job, const char *mesh, const char *more)
{
    char text[512];
    mesh_line m = {0};
    snprintf(text, sizeof text, "global %s %s %s", GLOBAL, mesh, more ? more : "");
    mesh_parse(text, &m);
    mesh_add(&m, "backend.blas", "own"); /* OpenBLAS rounds by the number of rows, too */
    for (int i = 0; job && i < 2; i++)
        mesh_add(&m, mesh_step_options()[i].key, mesh_step_options()[i].value);
    return oracle_run_job(&golden[job], m.o, m.n);
}

/* Runs of a job on one rank, made when they are first needed. */
static struct baseline {
    const char *job;
    oracle_run *run[2];
} baselines[4];

static const oracle_run *one_rank(const row *w, int job)
{
    const char *name = w->job ? w->job : "";
    for (size_t i = 0; i < TT_COUNT(baselines); i++) {
        struct baseline *b = &baselines[i];
        if (b->job && strcmp(b->job, name) != 0)
            continue;
        b->job = name;
        if (!b->run[job])
            b->run[job] = run(job, "local 8", name);
        return b->run[job];
    }
    fail_msg("too many jobs");
    return NULL;
}

/* An earlier row of this mesh, which ran already. */
static const row *same_mesh(const row *w)
{
    for (const row *e = rows; e < w; e++)
        if (!strcmp(e->mesh, w->mesh) && e->job == w->job && done[e - rows])
            return e;
    return NULL;
}

static void test_row_of_the_table_equals_one_rank(void **state)
{
    const row *w = *state;
    if (same_mesh(w)) {
        print_message("    the mesh of %s\n", same_mesh(w)->name);
        return;
    }
    oracle_run *r = run(0, w->mesh, w->job);
    mesh_check_initial(r, one_rank(w, 0));
    const double g = mesh_check_gradients(r, one_rank(w, 0), 1);
    (void)mesh_check_steps(r, one_rank(w, 0), 1e-5, 1e-5);
    oracle_free(r);
    r = run(1, w->mesh, w->job);
    assert_int_equal(r->n_steps, mesh_steps());
    const double s = mesh_check_steps(r, one_rank(w, 1), 1e-5, 1e-5);
    print_message("    gradients: %.3f of the tolerance, %d steps: %.1e\n", g, r->n_steps, s);
    oracle_free(r);
    done[w - rows] = true;
}

static int begin(void **state)
{
    (void)state;
    oracle_open("untied_gradient", &golden[0]);
    oracle_open("untied_adamw", &golden[1]);
    return 0;
}

static int end(void **state)
{
    (void)state;
    for (int j = 0; j < 2; j++) {
        for (size_t i = 0; i < TT_COUNT(baselines); i++)
            oracle_free(baselines[i].run[j]);
        tt_arena_free(golden[j].arena);
    }
    return 0;
}

/* test_torchtitan [PATTERN]: only rows whose name matches. */
int main(int argc, char **argv)
{
    struct CMUnitTest tests[TT_COUNT(rows)];
    static char names[TT_COUNT(rows)][80];
    for (size_t i = 0; i < TT_COUNT(rows); i++) {
        snprintf(names[i], sizeof names[0], "test_row_of_the_table_equals_one_rank %s",
                 rows[i].name);
        tests[i] = (struct CMUnitTest){names[i], test_row_of_the_table_equals_one_rank, NULL, NULL,
                                       (void *)(uintptr_t)&rows[i]};
    }
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, begin, end);
}
