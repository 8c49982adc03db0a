/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/local.h"

/* One op with TT_OP_LOCAL after a linear: contracted letters, several results, derivatives of its own. */

static tt_status infer_twice(const tt_shape_query *q, tt_type *out, tt_error *err)
{
    (void)err;
    out[0] = out[1] = *q->in[0];
    return TT_OK;
}

/* A contracted letter: the decomposition gives the partial sum that the rule says, and adds to it. */
DECOMPOSE(sum_of_rows)
{
    tt_value *one = tt_broadcast_to(b, tt_const(b, 1, TT_F32), q->in[0]->dims, 1);
    outs[0] = tt_add(b, one, tt_sum(b, in[0], 1, 0));
}

static void check_partial(void *user, const char *pass, built *x)
{
    bool found = false;
    check_pass(user, pass, x);
    for (size_t i = 0; i < x->g->nodes.n && !strcmp(pass, "place"); i++) {
        const tt_node *n = x->g->nodes.items[i];
        if (n->block < 0 || strcmp(n->op->name, "add") || n->out[0]->type.n_dims != 1)
            continue;
        found = true;
        assert_int_equal(n->out[0]->place.partial != 0, ranks_of(user, "tp") > 1);
    }
    assert_true(found || strcmp(pass, "place"));
}

static void test_a_contracted_letter_gives_a_partial_result(void **state)
{
    static const tt_op_def def = {LOCAL_OP(infer_row, "t f -> t", 0, sum_of_rows)};
    static const tt_op_def *const defs[] = {&def};
    static const single m = {&def};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(mesh_cases); i++) {
        const job j = single_job(defs, &m, mesh_cases[i].name);
        built x;
        tt_error err = {0};
        const char *bad =
            build_job(&j, NULL, check_partial, (void *)(uintptr_t)&mesh_cases[i], &x, &err);
        if (bad)
            fail_msg("%s: %s: %s", mesh_cases[i].name, bad, err.text);
        built_free(&x);
    }
}

/* ---- an op with a derivative of its own ---- */

static void threefold(tt_builder *b, tt_vjp *c)
{
    c->din[0] = tt_scale(b, c->dout[0], 3);
    if (c->n_out > 1 && c->dout[1])
        c->din[0] = tt_add(b, c->din[0], tt_scale(b, c->dout[1], 5));
}

DECOMPOSE(itself_twice)
{
    (void)b, (void)q;
    outs[0] = outs[1] = in[0];
}

static void ratio_of_gradients(const tt_op_def *a, const tt_op_def *c, const char *mesh,
                               double wanted)
{
    const tt_op_def *const first[] = {a}, *const second[] = {c};
    const single m = {a}, n = {c};
    const job j = single_job(first, &m, mesh), k = single_job(second, &n, mesh);
    tt_arena *arena = tt_arena_new();
    int64_t count;
    const double *x = gradient(&j, "0.up", arena, &count), *y = gradient(&k, "0.up", arena, &count);
    double worst = 0, largest = 0;
    for (int64_t i = 0; i < count; i++) {
        worst = TT_MAXV(worst, fabs(x[i] - wanted * y[i]));
        largest = TT_MAXV(largest, fabs(y[i]));
    }
    assert_true(largest > 0);
    if (worst > 1e-5 * largest)
        fail_msg("%s: the gradient is not %g times the other", mesh, wanted);
    tt_arena_free(arena);
}

static void test_a_derivative_of_its_own_replaces_that_of_the_ops(void **state)
{
    static const tt_op_def plain = {LOCAL_OP(infer_same, "* -> *", 0, itself)},
                           own = {LOCAL_OP(infer_same, "* -> *", 0, itself), .vjp = threefold},
                           half = {LOCAL_OP(infer_same, "* -> *", 0, halved)},
                           half_own = {LOCAL_OP(infer_same, "* -> *", 0, halved), .vjp = threefold};
    static const char *const meshes[] = {"1", "tp2", "fsdp2 tp2 cp2"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(meshes); i++) {
        ratio_of_gradients(&own, &plain, meshes[i], 3);
        ratio_of_gradients(&half_own, &half, meshes[i], 6);
    }
}

/* Both outputs are the operand: each has the cotangent of its own readers. */
static void test_outputs_that_are_one_value_are_told_apart(void **state)
{
    static tt_op_def plain = {LOCAL_OP(infer_twice, "* -> *, *", 0, itself_twice)};
    static tt_op_def own = {LOCAL_OP(infer_twice, "* -> *, *", 0, itself_twice), .vjp = threefold};
    static const char *const meshes[] = {"tp2", "fsdp2 cp2"};
    plain.n_out = own.n_out = 2;
    (void)state;
    for (size_t i = 0; i < TT_COUNT(meshes); i++)
        for (int k = 0; k < 2; k++) {
            const tt_op_def *const defs[] = {k ? &own : &plain};
            const single m = {defs[0]};
            const job j = single_job(defs, &m, meshes[i]);
            run_job(&j, meshes[i], check_pass);
        }
    const tt_op_def *const defs[] = {&own};
    const single m = {&own};
    const job j = single_job(defs, &m, "1");
    built x;
    tt_error err = {0};
    assert_null(build_job(&j, "place", NULL, NULL, &x, &err));
    for (size_t i = 0; i < x.g->nodes.n; i++) {
        const tt_node *n = x.g->nodes.items[i];
        if (n->role != TT_NODE_EXPANDED)
            continue;
        assert_ptr_not_equal(n->out[0], n->out[1]);
        assert_ptr_not_equal(n->out[0], n->in[0]);
        assert_ptr_not_equal(n->out[1], n->in[0]);
    }
    built_free(&x);
}

/* The derivatives of inner ops keep cuts as the ops do, whatever the order of their operands. */
static tt_value *doubled(tt_builder *b, tt_value *const *xs, int n, void *user)
{
    (void)n, (void)user;
    return tt_scale(b, xs[0], 2);
}

static void constant_first(tt_builder *b, tt_value *const *xs, int n, tt_value *y, tt_value *dy,
                           tt_value **dxs, void *user)
{
    const tt_type *t = tt_value_type(y);
    (void)xs, (void)n, (void)user;
    dxs[0] = tt_mul(b, tt_broadcast_to(b, tt_const(b, 2, TT_F32), t->dims, t->n_dims), dy);
}

DECOMPOSE(doubled_by_hand)
{
    (void)q;
    outs[0] = tt_custom_vjp(b, in, 1, doubled, constant_first, NULL);
}

static void check_backward(void *user, const char *pass, built *x)
{
    tt_lower_step steps[TT_MAX_STEPS];
    check_pass(user, pass, x);
    for (size_t i = 0; i < x->g->nodes.n && !strcmp(pass, "autodiff"); i++) {
        const tt_node *n = x->g->nodes.items[i];
        const tt_value *v = n->n_out ? n->out[0] : NULL;
        if (n->op != &tt_op_redistribute || v->type.n_dims != 2 || v->type.dims[1].size != 12 ||
            v->type.dims[0].size != x->g->tokens)
            continue;
        const int k = tt_lower(&x->mesh, v->type.dims, 2, &n->in[0]->place, &v->place, steps);
        for (int at = 0; at < k; at++)
            if (steps[at].kind != TT_STEP_SLICE)
                fail_msg("%s: node %d communicates a cotangent", (const char *)user, n->id);
    }
}

static void test_derivatives_of_inner_ops_keep_the_cut(void **state)
{
    static const tt_op_def def = {LOCAL_OP(infer_same, "* -> *", 0, doubled_by_hand)};
    static const tt_op_def *const defs[] = {&def};
    static const single m = {&def};
    static const char *const meshes[] = {"tp2", "fsdp2 tp2", "tp4=2x2"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(meshes); i++) {
        const job j = single_job(defs, &m, meshes[i]);
        run_job(&j, meshes[i], check_backward);
    }
}

static void test_an_op_without_gradient_has_none(void **state)
{
    static const tt_op_def def = {LOCAL_OP(infer_same, "* -> *", TT_OP_NO_GRADIENT, halved)};
    static const tt_op_def *const defs[] = {&def};
    static const single m = {&def};
    const job j = single_job(defs, &m, "tp2");
    built x;
    tt_error err = {0};
    (void)state;
    const char *bad = build_job(&j, NULL, NULL, NULL, &x, &err);
    assert_string_equal(bad, "autodiff");
    assert_non_null(strstr(err.text, "parameter 0.up does not influence the loss"));
    built_free(&x);
}

/* ---- what the dims of a result mean ---- */

static enum { LABEL, UNIT, LINES, N_MEANINGS } forgotten;

/* Gives a value whose dims say something else than infer. */
DECOMPOSE(forgetful)
{
    tt_type t = *q->in[0];
    t.dims[1].unit = forgotten == UNIT ? 3 : 1;
    t.dims[1].label = forgotten == LABEL ? NULL : t.dims[1].label;
    t.dims[0].lines = forgotten == LINES ? 1 : t.dims[0].lines;
    outs[0] = tt_reshape(b, tt_scale(b, in[0], 0.5), t.dims, 2);
}

static void test_a_result_means_what_infer_says(void **state)
{
    static const tt_op_def def = {LOCAL_OP(infer_same, "* -> *", 0, forgetful)};
    static const tt_op_def *const defs[] = {&def};
    static const single m = {&def};
    const job j = single_job(defs, &m, "1");
    (void)state;
    for (forgotten = LABEL; forgotten < N_MEANINGS; forgotten++) {
        built x;
        tt_error err = {0};
        int n = 0;
        const char *bad = build_job(&j, "place", NULL, NULL, &x, &err);
        if (bad)
            fail_msg("%s: %s", bad, err.text);
        for (size_t i = 0; i < x.g->nodes.n; i++) {
            const tt_node *reader = x.g->nodes.items[i];
            if (strcmp(reader->op->name, "linear") || reader->in[0]->type.dims[1].size != 12)
                continue;
            const tt_dim *d = reader->in[0]->type.dims;
            assert_int_equal(d[0].lines, j.lines);
            assert_int_equal(d[1].unit, 1);
            assert_true(d[1].label && !strcmp(d[1].label, "ffn"));
            n++;
        }
        assert_int_equal(n, 1);
        built_free(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_contracted_letter_gives_a_partial_result),
        cmocka_unit_test(test_a_derivative_of_its_own_replaces_that_of_the_ops),
        cmocka_unit_test(test_outputs_that_are_one_value_are_told_apart),
        cmocka_unit_test(test_derivatives_of_inner_ops_keep_the_cut),
        cmocka_unit_test(test_an_op_without_gradient_has_none),
        cmocka_unit_test(test_a_result_means_what_infer_says),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
