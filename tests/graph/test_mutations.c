/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/sim.h"
#include <math.h>

#include "graph/llama.c"
#include "graph/sim.c"

/* Each test puts a mistake into a graph. The sim must find it at the node or in the results of the
 * step, or tt_graph_verify must refuse the graph (as test_mutations of the specification does). */

static bool communicates(const tt_graph *g, const tt_node *n)
{
    tt_lower_step steps[TT_MAX_STEPS];
    if (n->op != &tt_op_redistribute && n->op != &tt_op_fetch)
        return false;
    const int k = tt_lower(g->mesh, n->out[0]->type.dims, n->out[0]->type.n_dims, &n->in[0]->place,
                           &n->out[0]->place, steps);
    for (int i = 0; i < k; i++)
        if (steps[i].kind != TT_STEP_SLICE && n->in[0]->node->op != &tt_op_input)
            return true;
    return false;
}

static void build_or_fail(const job *j, const char *last, built *x)
{
    tt_error err = {0};
    const char *bad = build_job(j, last, NULL, NULL, x, &err);
    if (bad)
        fail_msg("%s: %s", bad, err.text);
}

static double gap(const double *a, const double *b, int64_t n)
{
    double worst = 0;
    for (int64_t i = 0; i < n; i++)
        if (!(fabs(a[i] - b[i]) <= worst))
            worst = fabs(a[i] - b[i]);
    return worst;
}

/* assemble() refuses replicas that differ; this reads a mutated run without that check. */
static bool state_is(const sim *s, const tt_state *st, const sim *ref)
{
    const char *why = NULL;
    const tt_tensor a =
        assemble((sim *)(uintptr_t)s, &st->type, &st->place, state_local(s, st, 0), &why);
    int64_t n;
    const double *have = as_doubles(s, &a, &n),
                 *want = as_doubles(ref, &ref->state_global[st->id], NULL);
    return !why && gap(have, want, n) < 1e-7;
}

/* Do the results of the step (parameters, gradients, norm, loss) differ from those of the run without
 * the mistake? */
static bool outputs_differ(const sim *s, const sim *ref)
{
    for (size_t i = 0; i < s->g->states.n; i++)
        if (!state_is(s, s->g->states.items[i], ref))
            return true;
    return false;
}

/* The feed of the runs below; NULL = sim_feed. */
static void (*feed)(const tt_graph *g, const char *name, const tt_type *t, int micro, double *out);

/* Sequences of 13 tokens in another order, so that the queries of every rank see keys of all others. */
static void feed_mixed(const tt_graph *g, const char *name, const tt_type *t, int micro,
                       double *out)
{
    sim_feed(g, name, t, micro, out);
    for (int64_t i = 0; i < t->dims[0].size; i++) {
        if (!strcmp(name, "seg"))
            out[i] = (double)(i / 13);
        if (!strcmp(name, "pos"))
            out[i] = (double)(i % 13 * 5 % 13);
    }
}

static bool sim_sees(const tt_graph *g, int drop)
{
    const sim_opts o = {.drop = drop, .feed = feed};
    sim *s = sim_run(g, &o);
    const bool seen = s->failure[0] != 0;
    sim_free(s);
    return seen;
}

static void check_dropped(const job *j, int *total, int *rewired, int *refused)
{
    built x;
    build_or_fail(j, "update", &x);
    const sim_opts whole = {.feed = feed};
    sim *ref = sim_run(x.g, &whole);
    sim_require(ref);
    for (size_t i = 0; i < x.g->nodes.n; i++) {
        tt_node *n = x.g->nodes.items[i];
        if (!communicates(x.g, n))
            continue;
        ++*total;
        const sim_opts o = {.drop = n->id + 1, .unchecked = true, .feed = feed};
        sim *s = sim_run(x.g, &o);
        if (!outputs_differ(s, ref))
            fail_msg("dropping node %d (%s in %s) changes nothing", n->id, n->op->name, n->scope);
        sim_free(s);
        if (!sim_sees(x.g, n->id + 1))
            fail_msg("the sim does not see node %d dropped", n->id);
        for (size_t k = i + 1; k < x.g->nodes.n; k++) { /* wire its first consumer past it */
            tt_node *u = x.g->nodes.items[k];
            int at = -1;
            for (int q = 0; q < u->n_in; q++)
                if (u->in[q] == n->out[0])
                    at = q;
            if (at < 0 || !u->rule || u->role == TT_NODE_EXPANDED)
                continue;
            u->in[at] = n->in[0];
            ++*rewired;
            *refused += tt_graph_verify(x.g, "rewiring", NULL) != TT_OK;
            u->in[at] = n->out[0];
            break;
        }
    }
    sim_free(ref);
    built_free(&x);
}

static void test_every_dropped_redistribute_is_caught(void **state)
{
    int total = 0, rewired = 0, refused = 0;
    (void)state;
    job j = {
        .c = {19, 10, 6, 2, 4, 14, 1, false, true, false},
        .mesh = mesh_named("fsdp2 tp2 cp2"),
        .tokens = 14,
        .metrics = true
    };
    check_dropped(&j, &total, &rewired, &refused);
    j.no_sp = true;
    check_dropped(&j, &total, &rewired, &refused);
    j.mesh = mesh_named("hsdp2x2");
    j.tokens = 28;
    check_dropped(&j, &total, &rewired, &refused);
    j.context = TT_CONTEXT_HEADS;
    j.mesh = mesh_named("cp2");
    j.tokens = 13;
    check_dropped(&j, &total, &rewired, &refused);
    print_message("%d dropped redistributes caught, %d of %d rewired consumers refused\n", total,
                  refused, rewired);
    assert_true(total > 100);
    assert_int_equal(refused, rewired);
}

/* If a rotation of the forward or the backward is left out, or a step reads the keys of another step,
 * the results differ. */
static void test_every_dropped_rotation_is_caught(void **state)
{
    static const char *const meshes[] = {"cp2", "cp3", "cp2x2", "fsdp2 tp2 cp2"};
    int total = 0, rewired = 0, refused = 0, rotations = 0;
    (void)state;
    feed = feed_mixed;
    for (size_t m = 0; m < TT_COUNT(meshes); m++) {
        built x;
        job j = {
            .c = {19, 10, 8, 2, 4, 14, 1, false, true, false},
            .mesh = mesh_named(meshes[m]),
            .context = TT_CONTEXT_RING,
            .metrics = true
        };
        j.tokens = 13 * data_ranks(j.mesh);
        j.c.H = strstr(meshes[m], "3") ? 6 : 8;
        check_dropped(&j, &total, &rewired, &refused);
        build_or_fail(&j, "order", &x);
        for (size_t i = 0; i < x.g->nodes.n; i++) {
            const tt_node *n = x.g->nodes.items[i];
            if (n->op != &tt_op_collective || n->step->kind != TT_STEP_SHIFT)
                continue;
            rotations++;
            assert_true(sim_sees(x.g, n->id + 1));
        }
        built_free(&x);
    }
    feed = NULL;
    print_message("%d dropped redistributes caught, %d of %d rewired consumers refused, %d "
                  "rotations\n",
                  total, refused, rewired, rotations);
    assert_int_equal(rotations, 6 + 2 * 6 + 3 * 6 + 6);
    assert_int_equal(refused, rewired);
}

static void test_every_dropped_collective_is_caught(void **state)
{
    int total = 0, caught = 0;
    (void)state;
    job j = {
        .c = LLAMA_DEFAULT, .mesh = mesh_named("fsdp2 tp2 cp2"), .tokens = 14, .metrics = true};
    built x;
    build_or_fail(&j, "order", &x);
    for (size_t i = 0; i < x.g->nodes.n; i++) {
        const tt_node *n = x.g->nodes.items[i];
        if (n->op != &tt_op_collective || n->step->kind == TT_STEP_SLICE)
            continue;
        total++;
        caught += sim_sees(x.g, n->id + 1);
    }
    print_message("%d of %d dropped collectives caught\n", caught, total);
    assert_true(total > 50);
    assert_int_equal(caught, total);
    built_free(&x);
}

/* Async TP: if a message, a piece of a join or a share of a sum is left out, the results differ. */
static void test_every_dropped_piece_is_caught(void **state)
{
    static const char *const meshes[] = {"tp3", "tp4=2x2", "fsdp2 tp2 cp2"};
    int total = 0, caught = 0;
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++) {
        built x;
        job j = {.c = LLAMA_DEFAULT,
                 .mesh = mesh_named(meshes[m]),
                 .metrics = true,
                 .fuse = true,
                 .can_accumulate = true,
                 .async_tp = true};
        j.tokens = 13 * data_ranks(j.mesh);
        j.c.H = strstr(meshes[m], "tp4") ? 8 : 6;
        build_or_fail(&j, NULL, &x);
        for (size_t i = 0; i < x.g->nodes.n; i++) {
            const tt_node *n = x.g->nodes.items[i];
            if (n->op != &tt_op_collective ||
                (n->step->kind != TT_STEP_SHIFT && n->step->kind < TT_STEP_JOIN))
                continue;
            total++;
            caught += sim_sees(x.g, n->id + 1);
        }
        built_free(&x);
    }
    print_message("%d of %d dropped pieces caught\n", caught, total);
    assert_true(total > 100);
    assert_int_equal(caught, total);
}

/* ---- wrong placement of a cotangent: its bytes are read as if they were stored otherwise ---- */

/* All later readers get v's bytes as if they were stored as `to` (a transfer moves nothing),
 * redistributed to v's placement. An autodiff that is wrong about v's placement would build this.
 * tt_graph_verify cannot find it; the sim must. */
static void insert_relabel(built *x, size_t at, tt_value *v, const tt_placement *to)
{
    tt_graph *g = x->g;
    const size_t n = g->nodes.n;
    tt_node **items = tt_arena_array(x->arena, n + 8, sizeof *items);
    tt_builder_at(x->b, v->node->when->region, v->node->when->stage, v->node->block, "mutation");
    tt_node *a = tt_node_new(x->b, &tt_op_transfer, &v, 1, &v->type, to, 1);
    tt_node *b = tt_node_new(x->b, &tt_op_redistribute, a->out, 1, &v->type, &v->place, 1);
    for (size_t i = 0, k = 0; i < n; i++) {
        items[k++] = g->nodes.items[i];
        for (int q = 0; i > at && q < g->nodes.items[i]->n_in; q++)
            if (g->nodes.items[i]->in[q] == v)
                g->nodes.items[i]->in[q] = b->out[0];
        if (i != at)
            continue;
        items[k++] = a;
        items[k++] = b;
    }
    g->nodes.items = items;
    g->nodes.cap = n + 8;
    g->nodes.n = n + 2;
}

/* "The transpose of psum is psum": where the forward reduced a partial sum, this reduces the replicated
 * cotangent again. */
static bool psum_transpose(const tt_graph *g, const tt_node *n, tt_placement *to)
{
    if (n->when->region != TT_BACKWARD || n->role == TT_NODE_EXPANDED || n->n_out < 1)
        return false;
    for (size_t i = 0; i < g->nodes.n;
         i++) { /* n is the derivative of a reduced value's reader: same dims, same storage */
        const tt_node *f = g->nodes.items[i];
        if (f->op != &tt_op_redistribute || f->when->region != TT_FORWARD ||
            !f->in[0]->place.partial || f->in[0]->place.partial_max)
            continue;
        const tt_value *v = n->out[0];
        const uint16_t more =
            (uint16_t)(f->in[0]->place.partial &
                       ~tt_placement_shard_atoms(&v->place, v->type.n_dims) & ~v->place.partial);
        if (!more || v->place.partial_max || v->type.dtype != TT_F32)
            continue;
        to->partial |= more;
        return true;
    }
    return false;
}

/* A reduction is forgotten: every rank takes its partial sum for the whole. */
static bool lost_pending(const tt_graph *g, const tt_node *n, tt_placement *to)
{
    (void)g;
    if (n->when->region != TT_BACKWARD || n->role == TT_NODE_EXPANDED || n->n_out < 1 ||
        !n->out[0]->place.partial)
        return false;
    to->partial = 0;
    return true;
}

static bool read_later(const tt_graph *g, size_t at)
{
    const tt_value *v = g->nodes.items[at]->out[0];
    for (size_t i = at + 1; i < g->nodes.n; i++)
        for (int q = 0; g->nodes.items[i]->role != TT_NODE_EXPANDED && q < g->nodes.items[i]->n_in;
             q++)
            if (g->nodes.items[i]->in[q] == v)
                return true;
    return false;
}

static void check_relabelled(const job *j,
                             bool (*fn)(const tt_graph *, const tt_node *, tt_placement *),
                             int *total, int *node, int *outputs)
{
    built x;
    build_or_fail(j, "update", &x);
    sim *ref = sim_run(x.g, NULL);
    sim_require(ref);
    const size_t n = x.g->nodes.n;
    for (size_t i = 0; i < n; i++) {
        tt_placement to;
        built y;
        if (x.g->nodes.items[i]->n_out < 1)
            continue;
        to = x.g->nodes.items[i]->out[0]->place;
        if (!fn(x.g, x.g->nodes.items[i], &to) || !read_later(x.g, i))
            continue;
        build_or_fail(j, "update", &y); /* fresh: the mutation rewires */
        insert_relabel(&y, i, y.g->nodes.items[i]->out[0], &to);
        ++*total;
        assert_int_equal(tt_graph_verify(y.g, "relabelling", NULL), TT_OK);
        *node += sim_sees(y.g, 0);
        const sim_opts o = {.unchecked = true};
        sim *s = sim_run(y.g, &o);
        *outputs += outputs_differ(s, ref);
        sim_free(s);
        built_free(&y);
    }
    sim_free(ref);
    built_free(&x);
}

static void test_wrong_cotangent_storage_is_caught(void **state)
{
    int total = 0, node = 0, outputs = 0;
    (void)state;
    for (int no_sp = 0; no_sp < 2; no_sp++) {
        job j = {.c = LLAMA_DEFAULT, .mesh = mesh_named("tp2"), .tokens = 12, .no_sp = no_sp};
        j.c.L = 1;
        check_relabelled(&j, psum_transpose, &total, &node, &outputs);
        check_relabelled(&j, lost_pending, &total, &node, &outputs);
        j.mesh = mesh_named("fsdp2 tp2");
        check_relabelled(&j, lost_pending, &total, &node, &outputs);
    }
    print_message("%d of %d relabelled cotangents caught at the node, %d in what the step leaves\n",
                  node, total, outputs);
    assert_true(total > 20);
    assert_int_equal(node, total);
    assert_int_equal(outputs, total);
}

/* replicate → partial keeps the value at coordinate 0 only; without the mask a replicated operand
 * counts n times. */
static void test_unmasked_partial_is_caught(void **state)
{
    int total = 0, caught = 0;
    (void)state;
    job j = {.c = LLAMA_DEFAULT,
             .mesh = mesh_named("fsdp2 tp2"),
             .tokens = 12,
             .metrics = true,
             .no_sp = true};
    built x;
    build_or_fail(&j, "order", &x);
    for (size_t i = 0; i < x.g->nodes.n; i++) {
        const tt_node *n = x.g->nodes.items[i];
        if (n->op != &tt_op_collective || n->step->kind != TT_STEP_MASK)
            continue;
        total++;
        caught += sim_sees(x.g, n->id + 1);
    }
    print_message("%d of %d missing masks caught\n", caught, total);
    assert_true(total > 0);
    assert_int_equal(caught, total);
    built_free(&x);
}

/* ---- data that breaks R4: a segment that lies in two sequences ---- */

static void feed_across(const tt_graph *g, const char *name, const tt_type *t, int micro,
                        double *out)
{
    sim_feed(g, name, t, micro, out);
    for (int64_t i = 0; i < t->dims[0].size; i++) {
        if (!strcmp(name, "seg"))
            out[i] = 0;
        if (!strcmp(name, "pos"))
            out[i] = (double)i;
    }
}

static void test_segment_across_sequences_is_caught(void **state)
{
    (void)state;
    const sim_opts o = {.feed = feed_across};
    job j = {.c = LLAMA_DEFAULT, .mesh = mesh_named("fsdp2"), .tokens = 12};
    built x;
    build_or_fail(&j, "place", &x);
    sim *s = sim_run(x.g, &o);
    assert_true(strstr(s->failure, "attention") != NULL);
    sim_free(s);
    built_free(&x);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_dropped_redistribute_is_caught),
        cmocka_unit_test(test_every_dropped_rotation_is_caught),
        cmocka_unit_test(test_every_dropped_collective_is_caught),
        cmocka_unit_test(test_every_dropped_piece_is_caught),
        cmocka_unit_test(test_wrong_cotangent_storage_is_caught),
        cmocka_unit_test(test_unmasked_partial_is_caught),
        cmocka_unit_test(test_segment_across_sequences_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
