/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/steps.h"

/* tt_kernel.supports is asked by every pass that chooses a kernel, and when a program is bound. A
 * backend that refuses a form gets a program without it, which computes the same bits. */

static tt_backend_vt picky;
static const tt_backend_vt *real;
static tt_kernel kernels[512];
static size_t n_kernels;
static bool (*refuses)(const tt_kernel_call *c);
static int64_t n_asked, n_refused;
static const void *asked_for;

static int supports(const tt_kernel_call *c)
{
    for (int i = 0; i < c->n_in; i++)
        assert_null(c->in[i].data);
    for (int i = 0; i < c->n_out; i++)
        assert_null(c->out[i].data);
    asked_for = c->backend;
    n_asked++;
    const bool no = refuses && refuses(c);
    n_refused += no;
    return !no;
}

static const tt_kernel *picky_kernel(void *self, const char *op)
{
    const tt_kernel *k = real->kernel(self, op);
    for (size_t i = 0; k && i < n_kernels; i++)
        if (!strcmp(kernels[i].op, op))
            return &kernels[i];
    if (!k)
        return NULL;
    assert_true(n_kernels < TT_COUNT(kernels));
    kernels[n_kernels] = *k;
    kernels[n_kernels].supports = supports;
    return &kernels[n_kernels++];
}

/* ---- what a backend may refuse ---- */

static const tt_fused *program_of(const tt_kernel_call *c)
{
    if (!strcmp(c->op, "fused"))
        return c->attrs;
    if (!strcmp(c->op, "linear_fused") || !strcmp(c->op, "linear_dx_fused"))
        return &((const tt_fused_product *)c->attrs)->program;
    return NULL;
}

static bool has_instr(const tt_fused *f, const char *op)
{
    for (int i = 0; f && i < f->n_instr; i++)
        if (!strcmp(f->instr[i].op, op))
            return true;
    return false;
}

static bool no_silu_in_products(const tt_kernel_call *c)
{
    return strcmp(c->op, "fused") != 0 && has_instr(program_of(c), "silu");
}

/* A product that others read, too, has its results for itself. */
static bool no_second_result(const tt_kernel_call *c)
{
    return strcmp(c->op, "fused") != 0 && program_of(c) && program_of(c)->n_out > 1;
}

static bool no_rope_of_q(const tt_kernel_call *c)
{
    return !strcmp(c->op, "linear_fused_rope") && c->out[0].global[1] == 48;
}

static bool no_long_programs(const tt_kernel_call *c)
{
    return !strcmp(c->op, "fused") && program_of(c)->n_instr > 2;
}

static bool no_adding(const tt_kernel_call *c)
{
    return c->accumulate && strcmp(c->op, "add") != 0;
}

static bool nothing(const tt_kernel_call *c)
{
    (void)c;
    return false;
}

/* ---- programs ---- */

static void open_picky(job *j, const char *overrides, bool (*rule)(const tt_kernel_call *c))
{
    const tt_setup_opts o = {.mode = TT_MODE_TRAIN, .data = true};
    tt_error err = {0};
    tt_log_setup(TT_ERROR, 0, 1, false);
    if (job_try(j, job_text, overrides, &o, &err) != TT_OK)
        fail_msg("%s", err.text);
    real = j->setup.kernels.backend;
    picky = *real;
    picky.kernel = picky_kernel;
    j->setup.kernels.backend = &picky;
    refuses = rule;
    n_kernels = 0; /* of a plugin that is no longer here */
    n_asked = n_refused = 0;
    if (tt_setup_compile(&j->setup, &o, &err) != TT_OK)
        fail_msg("%s", err.text);
}

/* The nodes that a backend with this rule would not run. */
static int nodes_against(const tt_graph *g, bool (*rule)(const tt_kernel_call *c))
{
    tt_tensor in[TT_MAX_INS], out[TT_MAX_OUTS];
    int n = 0;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *e = g->nodes.items[i];
        if (tt_op_is_structural(e->op->name) || e->n_in > TT_MAX_INS)
            continue;
        for (int k = 0; k < e->n_in; k++)
            tt_whole_tensor(&e->in[k]->type, &in[k]);
        for (int k = 0; k < e->n_out; k++)
            tt_whole_tensor(&e->out[k]->type, &out[k]);
        const tt_kernel_call c = {.op = e->op->name,
                                  .in = in,
                                  .n_in = e->n_in,
                                  .out = out,
                                  .n_out = e->n_out,
                                  .attrs = e->attrs,
                                  .accumulate = e->accumulate_into != NULL};
        n += rule(&c);
    }
    return n;
}

static int nodes_named(const tt_graph *g, const char *op)
{
    int n = 0;
    for (size_t i = 0; i < g->nodes.n; i++)
        n += !strcmp(g->nodes.items[i]->op->name, op);
    return n;
}

/* The loss after three steps. */
static double train(const job *j)
{
    const tt_dist d = {.world = 1};
    steps s = {.setup = &j->setup};
    tt_error err = {0};
    tt_rank r;
    if (tt_rank_open(&j->setup, &d, false, &r, &err) != TT_OK ||
        tt_rank_init_params(&r, &err) != TT_OK)
        fail_msg("%s", err.text);
    for (int step = 0; step < 3; step++)
        if (steps_one(&s, &r, step, 0, &err) != TT_OK)
            fail_msg("%s", err.text);
    const double loss = tt_exec_metric(r.exec, TT_METRIC_LOSS);
    tt_rank_close(&r);
    return loss;
}

static void test_passes_ask(void **state)
{
    static const struct {
        bool (*rule)(const tt_kernel_call *c);
        const char *stays; /* an op of which nodes that the rule allows are in the graph still */
        bool same_bits;
    } rules[] = {
        {no_silu_in_products, "linear_fused",      true },
        {no_second_result,    "linear_fused",      true },
        {no_rope_of_q,        "linear_fused_rope", true },
        {no_long_programs,    "fused",             true },
        {no_adding,           "add",               false},
    };
    static const char jobs[] = "training.global_batch_size 8 training.max_norm 1";
    job j;
    (void)state;
    open_picky(&j, jobs, nothing);
    assert_true(n_asked > 20 && !n_refused);
    int before[TT_COUNT(rules)];
    for (size_t i = 0; i < TT_COUNT(rules); i++)
        before[i] = nodes_against(j.setup.graph, rules[i].rule);
    const double loss = train(&j);
    job_close(&j);
    for (size_t i = 0; i < TT_COUNT(rules); i++) {
        open_picky(&j, jobs, rules[i].rule);
        const tt_graph *g = j.setup.graph;
        if (!n_refused || nodes_against(g, rules[i].rule) || !nodes_named(g, rules[i].stays))
            fail_msg("rule %zu: refused %lld, before %d, now %d, %s %d", i, (long long)n_refused,
                     before[i], nodes_against(g, rules[i].rule), rules[i].stays,
                     nodes_named(g, rules[i].stays));
        if (!before[i])
            fail_msg("rule %zu: nothing to refuse", i);
        const double now = train(&j);
        if (rules[i].same_bits ? now != loss : !(now > loss - 1e-4 && now < loss + 1e-4))
            fail_msg("rule %zu: loss %.17g, not %.17g", i, now, loss);
        job_close(&j);
    }
}

/* ---- binding ---- */

static bool refuses_bf16_products(const tt_kernel_call *c)
{
    return !strncmp(c->op, "linear", 6) && c->in[0].dtype == TT_BF16;
}

static void bind_fails(const char *overrides, bool (*rule)(const tt_kernel_call *c), int world,
                       const char *const *parts)
{
    job j;
    tt_rank r;
    tt_error err = {0};
    tt_dist d = {.world = world};
    open_picky(&j, overrides, NULL);
    refuses = rule;
    assert_int_equal(tt_rank_open(&j.setup, &d, false, &r, &err), TT_EUNSUPPORTED);
    for (; *parts; parts++)
        if (!strstr(err.text, *parts))
            fail_msg("no \"%s\" in: %s", *parts, err.text);
    job_close(&j);
}

static void test_binding_asks(void **state)
{
    static const char *const bf16[] = {"kernel for op linear", "(in \"model.", "bf16[148,48]",
                                       "mixed_precision_param", NULL};
    (void)state;
    bind_fails("training.mixed_precision_param bfloat16", refuses_bf16_products, 1, bf16);
    assert_non_null(asked_for); /* the object that runs it */
    static const char *const adding[] = {"adding to the result", NULL};
    bind_fails("training.global_batch_size 8", no_adding, 1, adding);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_passes_ask),
        cmocka_unit_test(test_binding_asks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
