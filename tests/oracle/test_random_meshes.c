/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/mesh.h"

#include "random_test.h"
#include "tier.h"

/* Random jobs: mesh × schedule × accumulation × odd sizes × model, each compared with one rank that
 * has the same global batch. The runs do two steps of sgd with momentum: the results compared at
 * the end contain both gradients, the second at moved parameters. 16 seeds, or with TEST_LONG=1
 * all SEEDS, and SOME_EXPERTS or MOST_SEEDS of the jobs whose model has experts; one number as argument runs that seed
 * alone, two numbers run the seeds from the first to before the second. Seeds from EXPERTS on are
 * those with experts. */

#define SEEDS 240
#define SOME 16
#define EXPERTS 1000 /* the first seed with experts */
#define MOST_SEEDS 96
#define SOME_EXPERTS 32
#define LETTERS 6000 /* of the text in which each token goes to the same experts */

static int64_t pick(test_rng *d, const int64_t *of, int n)
{
    return of[random_between(d, 0, n - 1)];
}

typedef struct sizes {
    int64_t rep, shard, tp, cp, pp, ep, micro, accumulate, global, heads, seq;
    const char *schedule;
    int64_t fewest_layers; /* embedding and head may be stages of their own */
    bool alone;            /* each token sees itself alone */
    int64_t experts;       /* of a layer */
} sizes;

static void random_schedule(test_rng *d, sizes *s)
{
    static const char *const names[] = {"1F1B",      "GPipe",         "Interleaved1F1B",
                                        "LoopedBFS", "ZBVZeroBubble", "InterleavedZeroBubble",
                                        "DualPipeV"};
    const tt_schedule_kind *k;
    s->schedule = names[random_between(d, 0, TT_COUNT(names) - 1)];
    if (!strcmp(s->schedule, "DualPipeV") && s->micro * s->accumulate < 2 * s->pp)
        s->schedule = "ZBVZeroBubble"; /* too few micro-batches */
    assert_int_equal(tt_schedule_find(s->schedule, &k, NULL), TT_OK);
    s->fewest_layers = s->pp > 1 ? TT_MAXV(k->usual_chunks * s->pp - 2, (int64_t)1) : 1;
}

static sizes random_mesh(test_rng *d)
{
    static const int64_t degrees[] = {1, 1, 1, 2, 2, 3, 4};
    sizes s = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, NULL, 1, false, 1};
    int64_t *const axes[] = {&s.rep, &s.shard, &s.tp, &s.cp, &s.pp};
    int64_t world = 1;
    for (int first = (int)random_between(d, 0, 4), i = 0; i < 5; i++) {
        const int64_t n = pick(d, degrees, 7);
        if (world * n > 8)
            continue;
        *axes[(first + i) % 5] = n;
        world *= n;
    }
    s.micro = s.pp > 1 ? s.pp * random_between(d, 1, 2) + random_between(d, 0, 1) : 1;
    s.accumulate = random_between(d, 1, 3);
    s.global = s.rep * s.shard * s.micro * random_between(d, 1, 2) * s.accumulate;
    random_schedule(d, &s);
    return s;
}

/* A divisor of n. */
static int64_t divisor(test_rng *d, int64_t n)
{
    for (;;) {
        const int64_t k = random_between(d, 1, n);
        if (n % k == 0)
            return k;
    }
}

/* The model's sizes divide as little as possible. */
static void random_model(test_rng *d, const char *golden, sizes *s, tt_str *t)
{
    const int64_t heads = s->tp * random_between(d, 1, 3), head_dim = 2 * random_between(d, 1, 5);
    const int64_t kv = divisor(d, heads), seq = random_between(d, 5, 41);
    const bool gpt2 = !strncmp(golden, "gpt2", 4);
    s->heads = heads;
    tt_str_printf(t, "model.args.n_layers %lld model.args.vocab_size %lld ",
                  (long long)(s->fewest_layers + random_between(d, 0, 3)),
                  (long long)random_between(d, 262, 420));
    tt_str_printf(t, "model.args.n_heads %lld model.args.hidden_dim %lld training.seq_len %lld ",
                  (long long)heads, (long long)random_between(d, 5, 60), (long long)seq);
    if (gpt2)
        tt_str_printf(t, "model.args.dim %lld ", (long long)(heads * head_dim));
    else
        tt_str_printf(t, "model.args.dim %lld model.args.head_dim %lld model.args.n_kv_heads %lld ",
                      (long long)random_between(d, 7, 50), (long long)head_dim, (long long)kv);
    tt_str_printf(t, "model.args.tie_embeddings %s ", random_between(d, 0, 1) ? "true" : "false");
    tt_str_printf(t, "dataloader.document_mask %s ", random_between(d, 0, 1) ? "true" : "false");
}

/* ---- experts ---- */

/* The innermost ranks: a divisor of tp, or all of tp and a divisor of cp, or both and a divisor of
 * dp_shard. */
static int64_t random_ep(test_rng *d, const sizes *s)
{
    const int64_t axes[] = {s->tp, s->cp, s->shard};
    int64_t ep = 1;
    for (int i = 0; i < 3; i++) {
        const int64_t n = random_between(d, 0, 1) ? axes[i] : divisor(d, axes[i]);
        ep *= n;
        if (n != axes[i])
            break;
    }
    return ep;
}

/* Groups of experts, and a limit that leaves enough of them. */
static void random_groups(test_rng *d, int64_t experts, int64_t *k, tt_str *t)
{
    int64_t groups = divisor(d, experts);
    if (experts / groups < 2)
        groups = 1;
    const int64_t limit = random_between(d, 1, groups);
    *k = random_between(d, 1, limit * (experts / groups));
    tt_str_printf(t, "model.args.n_group %lld model.args.topk_group %lld ", (long long)groups,
                  (long long)limit);
    tt_str_printf(t, "model.args.n_shared_experts %lld ", (long long)random_between(d, 0, 2));
}

static bool begins(const char *text, const char *start)
{
    return strncmp(text, start, strlen(start)) == 0;
}

/* Delta nets and attention in turn; the heads of keys of a delta net are cut like those of attention. A norm divides
 * outputs of delta nets by their lengths, which are short where a query and its keys are nearly orthogonal, and so enlarges
 * rounding: with the usual epsilon of 1e-6 gradients of seed 1052 (7 layers, tp 2, pp 4, ep 2) differ by 3.4 tolerances,
 * and by 3.5 between one rank and the same in micro-batches of one; in that element one rank is 4.7 off float64, the mesh 1.3.
 * With 1e-2 one rank and the mesh are 0.36 apart, and both 1.0 off float64 at most. */
static void random_delta_nets(test_rng *d, const sizes *s, tt_str *t)
{
    const int64_t keys = s->tp * random_between(d, 1, 2);
    tt_str_printf(t, "model.args.linear_num_key_heads %lld model.args.linear_num_value_heads %lld ",
                  (long long)keys, (long long)(keys * random_between(d, 1, 3)));
    tt_str_printf(t, "model.args.linear_key_head_dim %lld model.args.linear_value_head_dim %lld ",
                  (long long)random_between(d, 1, 9), (long long)random_between(d, 1, 9));
    tt_str_printf(t,
                  "model.args.linear_conv_kernel_dim %lld model.args.full_attention_interval %lld ",
                  (long long)random_between(d, 1, 5), (long long)random_between(d, 1, 3));
    tt_str_printf(t, "model.args.shared_expert_intermediate_size %lld model.args.norm_eps 1e-2 ",
                  (long long)random_between(d, 1, 30));
}

/* Chunks of tokens, of which one may be a sequence; and layers without positions or without experts. */
static void random_chunks(test_rng *d, sizes *s, tt_str *t)
{
    if (random_between(d, 0, 3)) {
        const int64_t chunk = random_between(d, 1, s->seq + 3);
        tt_str_printf(t, "model.args.attention_chunk_size %lld ", (long long)chunk);
        s->alone = chunk == 1;
    }
    tt_str_printf(t, "model.args.no_rope_layer_interval %lld model.args.floor_scale %lld ",
                  (long long)random_between(d, 2, 3), (long long)random_between(d, 1, 9));
    tt_str_printf(t, "model.args.interleave_moe_layer_step %lld ",
                  (long long)random_between(d, 1, 2));
}

/* A model with experts, of which each rank of ep has from 1 to 4: all may be chosen, or most may
 * have no token. */
static void random_expert_model(test_rng *d, const char *golden, sizes *s, tt_str *t)
{
    const int64_t heads = s->tp * random_between(d, 1, 3), kv = divisor(d, heads);
    const int64_t experts = s->ep * random_between(d, 1, 4), width = random_between(d, 3, 21);
    const bool latent = begins(golden, "deepseek") || begins(golden, "kimi");
    const bool qwen = begins(golden, "qwen"), glm = begins(golden, "glm"),
               llama = begins(golden, "llama");
    const int64_t layers = s->fewest_layers + random_between(d, 0, 2);
    int64_t k = random_between(d, 0, 3) ? random_between(d, 1, experts) : experts;
    s->experts = experts;
    s->heads = heads;
    s->seq = random_between(d, 0, 4) ? random_between(d, 5, 29) : s->cp; /* or a token per rank */
    tt_str_printf(t, "model.args.n_layers %lld model.args.vocab_size %lld ", (long long)layers,
                  (long long)random_between(d, 262, 320));
    tt_str_printf(t, "model.args.n_heads %lld model.args.dim %lld training.seq_len %lld ",
                  (long long)heads, (long long)(2 * heads * random_between(d, 2, 6)),
                  (long long)s->seq);
    if (latent || glm)
        random_groups(d, experts, &k, t);
    if (latent)
        tt_str_printf(t, "model.args.kv_lora_rank %lld ", (long long)random_between(d, 3, 20));
    else
        tt_str_printf(t, "model.args.n_kv_heads %lld ", (long long)kv);
    if (begins(golden, "qwen3_next"))
        random_delta_nets(d, s, t);
    if (llama)
        random_chunks(d, s, t);
    if (qwen)
        tt_str_printf(t, "model.args.mlp_only_layers [%s] ", layers > 1 ? "0" : "");
    tt_str_printf(t, "model.args.%s %lld ",
                  qwen || latent || glm || llama ? "moe_intermediate_size" : "hidden_dim",
                  (long long)width);
    tt_str_printf(t, "model.args.num_experts %lld model.args.num_experts_per_tok %lld ",
                  (long long)experts, (long long)k);
    tt_str_printf(t, "dataloader.document_mask %s ", random_between(d, 0, 1) ? "true" : "false");
}

/* Micro-batches that run interleaved. Schedules need a number of groups of them. */
static int64_t random_turns(test_rng *d, const sizes *s)
{
    const int64_t all = s->micro * s->accumulate, k = divisor(d, all);
    const int64_t least = !strcmp(s->schedule, "DualPipeV") ? 2 * s->pp : 1;
    return k <= 8 && all / k >= least ? k : 1;
}

static void random_options(test_rng *d, const sizes *s, tt_str *t)
{
    static const char *const reshard[] = {"default", "always", "never"};
    static const char *const balance[] = {"headtail", "none"};
    static const char *const rotate[] = {"allgather", "ring", "ulysses"};
    static const char *const ac[] = {"none", "selective", "full"};
    static const char *const buffer[] = {"null", "1", "1.3", "2"};
    tt_str_printf(t, "rep %lld shard %lld tp %lld cp %lld pp %lld ", (long long)s->rep,
                  (long long)s->shard, (long long)s->tp, (long long)s->cp, (long long)s->pp);
    if (s->pp > 1)
        tt_str_printf(t, "mb %lld schedule %s ", (long long)s->micro, s->schedule);
    tt_str_printf(t, "sp %s reshard %s ac %s ", random_between(d, 0, 2) ? "true" : "false",
                  reshard[random_between(d, 0, 2)], ac[random_between(d, 0, 2)]);
    if (s->cp > 1)
        tt_str_printf(t, "balance %s rotate %s ", balance[random_between(d, 0, 1)],
                      rotate[random_between(d, 0, s->heads % (s->tp * s->cp) ? 1 : 2)]);
    if (s->tp > 1)
        tt_str_printf(t, "async %s ", random_between(d, 0, 3) ? "true" : "false");
    if (s->ep > 1)
        tt_str_printf(t, "ep %lld buffer %s ", (long long)s->ep, buffer[random_between(d, 0, 3)]);
    if (s->ep > 1)
        tt_str_printf(t, "replicas %lld ", (long long)random_between(d, -1, TT_MIN(s->experts, 3)));
    tt_str_printf(t, "local %lld ", (long long)(s->global / (s->rep * s->shard * s->accumulate)));
    tt_str_printf(t, "turns %lld", (long long)random_turns(d, s));
}

static oracle_run *run(const oracle_golden *g, const char *common, const char *how)
{
    mesh_line m = {0};
    char text[2048];
    snprintf(text, sizeof text, "%s%s training.steps 2 optimizer.lr 0.05", common, how);
    mesh_parse(text, &m);
    return oracle_run_job(g, m.o, m.n);
}

/* Two gradients, the second at parameters that differ by the first's rounding. */
#define USUAL 3
/* The tokens of a sequence are equal, or each sees one: gradients of q and k are what remains of sums that
 * would be 0 without rounding. What a missing sum over ranks leaves is 1e5 tolerances. */
#define CANCELS 1000
/* The job on one rank and as `how` says. most: of the tolerance. */
static void compare(int seed, const char *name, const sizes *s, const char *common, const char *how,
                    double most)
{
    char global[64];
    oracle_golden g;
    print_message("    %d: %s %s%s\n", seed, name, common, how);
    snprintf(global, sizeof global, "local %lld", (long long)s->global);
    oracle_open(name, &g);
    oracle_run *one = run(&g, common, global);
    oracle_run *r = run(&g, common, how);
    (void)mesh_check_steps(r, one, 1e-5, 1e-5);
    print_message("    %d: %.2f of the tolerance\n", seed, mesh_check_gradients(r, one, most));
    oracle_free(r);
    oracle_free(one);
    tt_arena_free(g.arena);
}

static void test_random_job_equals_one_rank(void **state)
{
    static const char *const jobs[] = {"untied_gradient", "untied_gradient", "gpt2_untied",
                                       "qwen3_untied"};
    const int seed = (int)(intptr_t)*state;
    test_rng d = {tt_rng_key_make(1, "random meshes", (uint64_t)seed), 0};
    const char *name = jobs[random_between(&d, 0, 3)];
    sizes s = random_mesh(&d);
    tt_str common = {0}, how = {0};
    tt_str_printf(&common, "global %lld ", (long long)s.global);
    random_model(&d, name, &s, &common);
    random_options(&d, &s, &how);
    compare(seed, name, &s, tt_str_get(&common), tt_str_get(&how), USUAL);
    tt_str_free(&common);
    tt_str_free(&how);
}

/* A text of one letter: attention gives each token the same, so all go to the same experts. */
static void write_letters(const char *path)
{
    char text[LETTERS];
    tt_error err = {0};
    memset(text, 'a', sizeof text);
    assert_int_equal(tt_write_file_atomic(path, text, sizeof text, &err), TT_OK);
}

/* Products whose bits do not depend on the number of rows, so that a token's scores have no other bits
 * where another rank has it: a choice between two scores that are equal but for rounding is the same. */
#define ROWS_ALONE "backend.blas own backend.f32_products fma "

static void test_random_experts_equal_one_rank(void **state)
{
    static const char *const jobs[] = {"qwen3_moe_each", "mixtral",    "gpt_oss",    "deepseek_v3",
                                       "deepseek_v2",    "qwen3_next", "qwen3_next", "glm4_moe",
                                       "glm4_air",       "kimi_k2",    "llama4",     "llama4_two"};
    const int seed = (int)(intptr_t)*state;
    test_rng d = {tt_rng_key_make(1, "random experts", (uint64_t)seed), 0};
    const char *name = jobs[random_between(&d, 0, TT_COUNT(jobs) - 1)];
    char folder[TEST_FOLDER], letters[TEST_FOLDER + 16];
    sizes s = random_mesh(&d);
    while (s.tp * s.cp * s.shard == 1)
        s = random_mesh(&d);
    do
        s.ep = random_ep(&d, &s);
    while (s.ep == 1);
    tt_str common = {0}, how = {0};
    tt_str_printf(&common, "global %lld " ROWS_ALONE, (long long)s.global);
    random_expert_model(&d, name, &s, &common);
    assert_true(test_folder("letters", folder));
    snprintf(letters, sizeof letters, "%s/letters.txt", folder);
    const bool alike = !random_between(&d, 0, 5);
    if (alike) {
        write_letters(letters);
        tt_str_printf(&common, "dataloader.path [\"%s\"] ", letters);
    }
    random_options(&d, &s, &how);
    compare(seed, name, &s, tt_str_get(&common), tt_str_get(&how),
            alike || s.alone || s.seq <= 2 ? CANCELS : USUAL);
    (void)remove(letters);
    (void)rmdir(folder);
    tt_str_free(&common);
    tt_str_free(&how);
}

typedef struct seed_list {
    struct CMUnitTest tests[SEEDS + MOST_SEEDS]; /* what is left zero, cmocka skips */
    char names[SEEDS + MOST_SEEDS][64];
    int n;
} seed_list;

static void add_seeds(seed_list *l, int first, int end)
{
    for (int seed = first; seed < end && l->n < SEEDS + MOST_SEEDS; seed++, l->n++) {
        const bool experts = seed >= EXPERTS;
        snprintf(l->names[l->n], sizeof l->names[0], "test_random_%s_one_rank %d",
                 experts ? "experts_equal" : "job_equals", seed);
        l->tests[l->n] = (struct CMUnitTest){l->names[l->n],
                                             experts ? test_random_experts_equal_one_rank
                                                     : test_random_job_equals_one_rank,
                                             NULL, NULL, (void *)(intptr_t)seed};
    }
}

int main(int argc, char **argv)
{
    static seed_list l;
    const bool all = is_long();
    if (argc > 1) {
        add_seeds(&l, atoi(argv[1]), argc > 2 ? atoi(argv[2]) : atoi(argv[1]) + 1);
    } else {
        add_seeds(&l, 0, all ? SEEDS : SOME);
        add_seeds(&l, EXPERTS, EXPERTS + (all ? MOST_SEEDS : SOME_EXPERTS));
    }
    return cmocka_run_group_tests(l.tests, NULL, NULL);
}
