/* SPDX-License-Identifier: Apache-2.0 */
#include "oracle/mesh.h"

#include "random_test.h"

/* Random jobs: mesh × schedule × accumulation × odd sizes × model, each compared with one rank that
 * has the same global batch. The runs do two steps of sgd with momentum: the results compared at
 * the end contain both gradients, the second at moved parameters. 16 seeds, or with TT_TEST_LONG=1
 * all SEEDS; one number as argument runs that seed alone, two numbers run the seeds from the first
 * to before the second. */

#define SEEDS 240
#define SOME 16

static int64_t pick(test_rng *d, const int64_t *of, int n)
{
    return of[random_between(d, 0, n - 1)];
}

typedef struct sizes {
    int64_t rep, shard, tp, cp, pp, micro, accumulate, global, heads;
    const char *schedule;
    int64_t fewest_layers; /* embedding and head may be stages of their own */
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
    sizes s = {1, 1, 1, 1, 1, 1, 1, 1, 1, NULL, 1};
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

static void random_options(test_rng *d, const sizes *s, tt_str *t)
{
    static const char *const reshard[] = {"default", "always", "never"};
    static const char *const balance[] = {"headtail", "none"};
    static const char *const rotate[] = {"allgather", "ring", "ulysses"};
    static const char *const ac[] = {"none", "selective", "full"};
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
    tt_str_printf(t, "local %lld", (long long)(s->global / (s->rep * s->shard * s->accumulate)));
}

static oracle_run *run(const oracle_golden *g, const char *common, const char *how)
{
    mesh_line m = {0};
    char text[1024];
    snprintf(text, sizeof text, "%s%s training.steps 2 optimizer.lr 0.05", common, how);
    mesh_parse(text, &m);
    return oracle_run_job(g, m.o, m.n);
}

static void test_random_job_equals_one_rank(void **state)
{
    static const char *const jobs[] = {"untied_gradient", "untied_gradient", "gpt2_untied",
                                       "qwen3_untied"};
    const int seed = (int)(intptr_t)*state;
    test_rng d = {tt_rng_key_make(1, "random meshes", (uint64_t)seed), 0};
    const char *name = jobs[random_between(&d, 0, 3)];
    sizes s = random_mesh(&d);
    char global[64];
    tt_str common = {0}, how = {0};
    oracle_golden g;
    tt_str_printf(&common, "global %lld ", (long long)s.global);
    random_model(&d, name, &s, &common);
    random_options(&d, &s, &how);
    print_message("    %d: %s %s%s\n", seed, name, tt_str_get(&common), tt_str_get(&how));
    snprintf(global, sizeof global, "local %lld", (long long)s.global);
    oracle_open(name, &g);
    oracle_run *one = run(&g, tt_str_get(&common), global);
    oracle_run *r = run(&g, tt_str_get(&common), tt_str_get(&how));
    (void)mesh_check_steps(r, one, 1e-5, 1e-5);
    /* two gradients, the second at parameters that differ by the first's rounding */
    print_message("    %d: %.2f of the tolerance\n", seed, mesh_check_gradients(r, one, 3));
    oracle_free(r);
    oracle_free(one);
    tt_arena_free(g.arena);
    tt_str_free(&common);
    tt_str_free(&how);
}

int main(int argc, char **argv)
{
    static struct CMUnitTest tests[SEEDS]; /* what is left zero, cmocka skips */
    static char names[SEEDS][64];
    const bool all = getenv("TT_TEST_LONG") || getenv("TTRUN_LONG");
    const int first = argc > 1 ? atoi(argv[1]) : 0,
              end = argc > 2   ? atoi(argv[2])
                    : argc > 1 ? first + 1
                    : all      ? SEEDS
                               : SOME,
              n = TT_MIN(end - first, SEEDS);
    for (int i = 0; i < n; i++) {
        snprintf(names[i], sizeof names[0], "test_random_job_equals_one_rank %d", first + i);
        tests[i] = (struct CMUnitTest){names[i], test_random_job_equals_one_rank, NULL, NULL,
                                       (void *)(intptr_t)(first + i)};
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
