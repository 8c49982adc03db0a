/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

#include "graph/sim.c"

/* A placed graph computes the values of the unplaced graph, for every case of cases.h, forward and
 * backward, with kernels and decomposed. Leaves have random placements (sharded, partial, replicated)
 * over 2, 4 and 6 ranks, and the placer places each op by a random label table or in follow mode. Then
 * the shards of every value must be the global value. Dims are small, so some ranks have empty boxes.
 * (test_derivatives.c compares derivatives with differences and decompositions with kernels;
 * test_rules.c compares each letter of a rule with the kernel.) */

static const tt_backend_vt *backend;
static const eval *fed;       /* whose leaves the sim reads */
static int ops, cut, pending; /* ops, those with a cut letter, those that let a partial pass */

static void feed_leaf(const tt_graph *g, const char *name, const tt_type *t, int micro, double *out)
{
    (void)g, (void)micro;
    for (size_t i = 0; i < fed->g->nodes.n; i++) {
        const tt_node *n = fed->g->nodes.items[i];
        const char *have = n->input_name ? n->input_name : n->param ? n->param->name : NULL;
        if (!have || strcmp(have, name))
            continue;
        for (int64_t k = 0; k < tt_type_numel(t); k++)
            out[k] = get(&fed->tensors[n->out[0]->id], k);
        return;
    }
    fail_msg("no leaf %s", name);
}

static uint32_t below(uint64_t *random, uint32_t n)
{
    const uint32_t v = (uint32_t)(eval_uniform(random) * (double)n);
    return v < n ? v : n - 1;
}

/* Every atom cuts a dim, is partial, or is not used. Integers are never partial. */
static tt_placement random_placement(const tt_mesh *m, const tt_type *t, uint64_t *random)
{
    tt_placement p = {0};
    for (int i = 0; i < m->n_atoms; i++) {
        const int a = (i + (int)below(random, 2)) % m->n_atoms;
        const uint32_t w = below(random, (uint32_t)t->n_dims + 2);
        if ((tt_placement_shard_atoms(&p, t->n_dims) | p.partial) >> a & 1u)
            continue;
        if (w < (uint32_t)t->n_dims)
            p.atom[w][p.n[w]++] = (uint16_t)a;
        else if (w == (uint32_t)t->n_dims && tt_dtype_size(t->dtype) >= 4 && t->dtype <= TT_F64)
            p.partial |= (uint16_t)(1u << a);
    }
    return p;
}

static tt_label_table random_table(uint64_t *random)
{
    static const char *const labels[] = {"tokens", "heads", "kv_heads", "ffn",
                                         "vocab",  "embed", "experts"};
    static const char *const axes[] = {"a", "b", "c"};
    tt_label_table t = {.sequence_parallel = true};
    const uint32_t shift = below(random, TT_COUNT(labels));
    for (size_t i = 0; i < TT_COUNT(labels); i++) {
        tt_label_entry *e = &t.entries[t.n++];
        e->label = labels[(i + shift) % TT_COUNT(labels)];
        e->policy = !strcmp(e->label, "kv_heads") ? TT_POLICY_PREFIX : TT_POLICY_PAD;
        for (size_t k = 0; k < TT_COUNT(axes); k++)
            if (below(random, 2))
                e->axes[e->n_axes++] = axes[k];
    }
    return t;
}

static void make_test_mesh(tt_arena *a, int which, tt_mesh *m)
{
    static const char *const names[] = {"a", "b", "c"};
    static const int32_t sizes[][3] = {
        {2, 1, 1},
        {2, 2, 1},
        {3, 2, 1},
        {2, 2, 2}
    };
    tt_axis axes[3];
    tt_error err;
    memset(axes, 0, sizeof axes);
    for (int i = 0; i < 3; i++) {
        axes[i].name = names[i];
        axes[i].atoms.n = 1;
        axes[i].atoms.atom[0] = (uint16_t)i;
    }
    if (tt_mesh_make_atoms(names, sizes[which], 3, axes, 3, a, m, &err) != TT_OK)
        fail_msg("%s", err.text);
}

static tt_value *replay_leaf(tt_builder *b, const tt_node *n, uint64_t *random)
{
    const tt_placement whole = {0};
    tt_builder_at(b, TT_FORWARD, 0, -1, "leaf");
    tt_node *l = tt_node_new(b, n->op, NULL, 0, &n->out[0]->type, &whole, 1);
    l->input_name = n->input_name;
    l->param = n->param;
    const tt_placement to = random_placement(tt_builder_graph(b)->mesh, &n->out[0]->type, random);
    return tt_redistribute(b, l->out[0], &to);
}

/* The nodes of an unplaced graph, through a placed builder. */
static void replay(const eval *e, tt_builder *b, uint64_t *random)
{
    tt_value **map = tt_arena_array(e->arena, (size_t)e->g->n_values + 1, sizeof *map);
    for (size_t i = 0; i < e->g->nodes.n; i++) {
        const tt_node *n = e->g->nodes.items[i];
        tt_value *in[TT_MAX_INS], *out[TT_MAX_OUTS];
        if (eval_is_leaf(n)) {
            map[n->out[0]->id] = replay_leaf(b, n, random);
            continue;
        }
        for (int k = 0; k < n->n_in; k++)
            in[k] = map[n->in[k]->id];
        const uint32_t mode = below(random, 3);
        tt_builder_follow(b, mode > 0);
        tt_builder_finest(b, mode > 1);
        tt_op(b, n->op->name, in, n->n_in, n->attrs, out, n->n_out);
        for (int k = 0; k < n->n_out; k++)
            map[n->out[k]->id] = out[k];
    }
}

static void count_cuts(const tt_graph *g)
{
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        bool any = false, keeps = false;
        if (!n->rule || n->role == TT_NODE_EXPANDED)
            continue;
        for (int x = 0; x < n->rule->n_letters; x++)
            any = any || n->letters[x].n;
        for (int k = 0; k < n->n_in; k++)
            keeps = keeps || n->keep[k];
        ops++;
        cut += any;
        pending += keeps;
    }
}

static int check_placed(const eval *e, const char *name, int which, uint64_t seed)
{
    tt_arena *a = tt_arena_new();
    tt_mesh mesh;
    tt_error err = {0};
    uint64_t random = seed;
    make_test_mesh(a, which, &mesh);
    tt_label_table table = random_table(&random);
    const tt_builder_opts o = {.ops = &e->table,
                               .tokens = EVAL_TOKENS,
                               .sequences = EVAL_SEQUENCES,
                               .has_kernel = eval_has_kernel,
                               .has_kernel_user = (void *)(uintptr_t)e};
    tt_builder *b = tt_builder_new_placed(a, &o, &mesh, &table);
    replay(e, b, &random);
    if (tt_builder_finish(b, &err) != TT_OK)
        fail_msg("%s, mesh %d, seed %d: %s", name, which, (int)seed, err.text);
    if (tt_graph_verify(tt_builder_graph(b), "replay", &err) != TT_OK)
        fail_msg("%s, mesh %d, seed %d: %s", name, which, (int)seed, err.text);
    const sim_opts so = {.feed = feed_leaf};
    sim *s = sim_run(tt_builder_graph(b), &so);
    if (s->failure[0]) {
        tt_str text = {0};
        tt_graph_print(s->g, &text);
        print_message("%s", tt_str_get(&text));
        fail_msg("%s, mesh %d, seed %d: %s", name, which, (int)seed, s->failure);
    }
    const int n = s->n_nodes;
    count_cuts(s->g);
    sim_free(s);
    tt_arena_free(a);
    return n;
}

static int check_case(size_t c, bool decompose, int trials)
{
    eval e;
    tt_value *y[TT_MAX_OUTS] = {0}, *dy[TT_MAX_OUTS] = {0}, *grads[24] = {0};
    int nodes = 0;
    eval_init(&e, backend, decompose);
    const int n_y = cases[c].fn(&e, y), n_leaves = e.n_leaves;
    for (int k = 0; k < n_y; k++)
        dy[k] = leaf_of(&e, TT_F64, -1, 1, y[k]->type.n_dims, y[k]->type.dims);
    e.n_leaves = n_leaves;
    eval_backward(&e, y, dy, n_y, grads);
    for (int k = 0; k < n_y; k++)
        e.leaves[e.n_leaves++] = (leaf){.v = dy[k], .lo = -1, .hi = 1};
    eval_prepare(&e);
    fed = &e;
    for (int which = 0; which < 4; which++)
        for (int t = 0; t < trials; t++)
            nodes += check_placed(&e, cases[c].name, which, (uint64_t)(which * 1000 + t + 1));
    eval_release(&e);
    return nodes;
}

static void check_all(bool decompose)
{
    int nodes = 0;
    ops = cut = pending = 0;
    for (size_t c = 0; c < TT_COUNT(cases); c++)
        nodes += check_case(c, decompose, 25);
    print_message("%d cases, %d nodes; of %d ops %d are cut, %d let a partial pass\n",
                  (int)TT_COUNT(cases), nodes, ops, cut, pending);
    assert_true(cut > ops / 4 && pending > ops / 50);
}

static void test_placed_equals_unplaced(void **state)
{
    (void)state;
    check_all(false);
}

static void test_placed_equals_unplaced_decomposed(void **state)
{
    (void)state;
    check_all(true);
}

static int load(void **state)
{
    (void)state;
    backend = sim_backend();
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_placed_equals_unplaced),
        cmocka_unit_test(test_placed_equals_unplaced_decomposed),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
