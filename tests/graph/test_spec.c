/* SPDX-License-Identifier: Apache-2.0 */
#include "mesh/golden.h"

#include "graph/llama.c"
#include "graph/sim.c"

/* The C placer against the executable specification, node by node
 * (tests/golden/placement_graphs.json, which placement_vectors.py writes). The signature of a value is a
 * hash of its op and of its operands' signatures; redistributes do not count. Nodes with the same
 * signature compute the same value: both placers must store it alike, read operands in the same
 * placements, and leave the same partial sums.
 *
 * The two graphs differ on purpose in these points:
 *   - rms_dx and rms_dw are the outputs of rms_norm_bwd, and attention_d{q,k,v} those of attention_bwd,
 *     which also reads out and lse.
 *   - bias is add, and bias_db is reduce_sum.
 *   - The specification writes the loss in separate ops. Ours is cross_entropy, which expands where the
 *     vocabulary is cut: max, sum of exponentials and pick correspond, and select is nll. Its derivative
 *     is one op, cross_entropy_bwd = sumexp_dx + pick_dx. Ours places the first three in follow mode (as
 *     inner ops of an expansion), with the same result. The logit of the label stays pending through
 *     the subtraction and is reduced after it, by one all-reduce, too. total, spread and the scale by
 *     1/N correspond to the seed.
 *   - Both uses of a tied embedding are outside the blocks and share one fetch. The specification
 *     fetches twice.
 *   - Gradients are reduced to their storage once per micro-batch, in the backward (sunk=False in the
 *     specification).
 *   - The regions of the step work on stacks. test_update_stays_where_parameters_are_stored checks
 *     their placements.
 *   - The specification has two graphs for two micro-batches. Here accumulation is a state, and
 *     test_sim.c tests it. */

typedef uint64_t sig; /* 0 = a value without a counterpart */

static sig sig_of(const char *op, int out, const sig *in, int n)
{
    struct {
        char op[24];
        int64_t out;
        sig in[TT_MAX_INS];
    } key;
    memset(&key, 0, sizeof key);
    snprintf(key.op, sizeof key.op, "%s", op);
    key.out = out;
    for (int i = 0; i < n; i++) {
        if (!in[i])
            return 0;
        key.in[i] = in[i];
    }
    return tt_hash64(&key, sizeof key, 1);
}

static bool is_any(const char *op, const char *list)
{
    const size_t n = strlen(op);
    for (const char *p = strstr(list, op); p; p = strstr(p + 1, op))
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || !p[n]))
            return true;
    return false;
}

/* ---- ours ---- */

static sig c_sig(const tt_value *v, sig *memo);

static sig c_node_sig(const tt_node *n, int out, sig *memo)
{
    const char *op = n->op->name;
    sig in[TT_MAX_INS];
    int k = 0;
    if (!strcmp(op, "redistribute") || !strcmp(op, "fetch") || !strcmp(op, "stop_gradient"))
        return c_sig(n->in[0], memo);
    if (!strcmp(op, "param"))
        return sig_of(n->param->name, 0, NULL, 0);
    if (!strcmp(op, "input"))
        return sig_of(n->input_name, 100, NULL, 0);
    if (!strcmp(op, "select") || !strcmp(op, "cross_entropy"))
        return sig_of("nll", 0, NULL, 0);
    if (!strcmp(op, "cross_entropy_bwd"))
        return sig_of("dz", 0, NULL, 0);
    if (n->role == TT_NODE_INNER && !is_any(op, "max_last sum_exp pick"))
        return 0;
    for (int i = 0; i < n->n_in; i++)
        if (strcmp(op, "attention_bwd") || (i != 3 && i != 4))
            in[k++] = c_sig(n->in[i], memo);
    if (!strcmp(op, "rope") && ((const tt_attrs_rope *)n->attrs)->inverse)
        op = "rope inverse";
    return sig_of(op, out, in, k);
}

static sig c_sig(const tt_value *v, sig *memo)
{
    if (!memo[v->id])
        memo[v->id] = c_node_sig(v->node, v->out, memo);
    return memo[v->id];
}

/* ---- the specification's ---- */

typedef struct spec {
    const json_t *nodes;
    sig *sigs;
} spec;

static const json_t *field(const spec *s, int64_t id, size_t i)
{
    return json_array_get(json_array_get(s->nodes, (size_t)id), i);
}
static const char *op_at(const spec *s, int64_t id)
{
    return json_string_value(field(s, id, 0));
}
static const char *place_at(const spec *s, int64_t id)
{
    return json_string_value(field(s, id, 6));
}
static int64_t input_at(const spec *s, int64_t id, size_t i)
{
    return json_integer_value(json_array_get(field(s, id, 2), i));
}
static int64_t root_at(const spec *s, int64_t id)
{
    while (!strcmp(op_at(s, id), "redistribute"))
        id = input_at(s, id, 0);
    return id;
}

static const struct {
    const char *theirs, *ours;
    int out;
} names[] = {
    {"rms",          "rms_norm",      0},
    {"head_rms",     "rms_norm",      0},
    {"rms_dx",       "rms_norm_bwd",  0},
    {"rms_dw",       "rms_norm_bwd",  1},
    {"head_rms_dx",  "rms_norm_bwd",  0},
    {"head_rms_dw",  "rms_norm_bwd",  1},
    {"bias",         "add",           0},
    {"bias_db",      "reduce_sum",    0},
    {"silu_dx",      "silu_bwd",      0},
    {"attention_dq", "attention_bwd", 0},
    {"attention_dk", "attention_bwd", 1},
    {"attention_dv", "attention_bwd", 2},
    {"max_v",        "max_last",      0},
    {"sumexp",       "sum_exp",       0}
};

static sig spec_sig(const spec *s, int64_t id)
{
    const char *op = op_at(s, id), *name = json_string_value(field(s, id, 1));
    sig in[TT_MAX_INS];
    int n = (int)json_array_size(field(s, id, 2)), out = 0;
    char input[16];
    for (int i = 0; i < n; i++)
        in[i] = s->sigs[input_at(s, id, (size_t)i)];
    if (is_any(op, "redistribute fetch"))
        return in[0];
    if (!strcmp(op, "param"))
        return sig_of(name, 0, NULL, 0);
    if (!strcmp(op, "input")) {
        snprintf(input, sizeof input, "%.*s", (int)strcspn(name, "0"), name);
        return sig_of(!strcmp(input, "lab") ? "labels" : input, 100, NULL, 0);
    }
    if (is_any(op, "scale total spread nll_dse nll_dpick sumexp_dx pick_dx sumsq"))
        return 0;
    if (!strcmp(op, "nll"))
        return sig_of("nll", 0, NULL, 0);
    if (!strcmp(op, "add") && is_any(op_at(s, root_at(s, input_at(s, id, 0))), "sumexp_dx pick_dx"))
        return sig_of("dz", 0, NULL, 0);
    if (!strcmp(op, "rope") && !strcmp(json_string_value(field(s, id, 3)), "bwd"))
        op = "rope inverse";
    if (!strncmp(op, "attention_d", 11)) { /* q k v, dout, pos seg pos seg */
        const sig dout = in[7];
        memmove(in + 4, in + 3, 4 * sizeof *in);
        in[3] = dout;
    }
    for (size_t k = 0; k < TT_COUNT(names); k++)
        if (!strcmp(op, names[k].theirs)) {
            out = names[k].out;
            op = names[k].ours;
            break;
        }
    return sig_of(op, out, in, n);
}

/* ---- comparing ---- */

typedef struct comparison {
    const char *graph;
    const built *x;
    sig *memo;
    spec s;
    bool expanded;
    int nodes, moves;
} comparison;

static void c_place(const comparison *c, const tt_value *v, char *text, size_t size)
{
    tt_placement_print(c->x->g->mesh, &v->place, v->type.n_dims, text, size);
}

static void expect(const comparison *c, int64_t id, const char *what, const tt_value *v,
                   const char *want)
{
    char have[256];
    c_place(c, v, have, sizeof have);
    if (strcmp(have, want))
        fail_msg("%s: node %d %s (ours: node %d %s): %s is %s, the specification says %s", c->graph,
                 (int)id, op_at(&c->s, id), v->node->id, v->node->op->name, what, have, want);
}

static const tt_node *find(const comparison *c, sig s, int *out)
{
    const tt_node *found = NULL;
    for (size_t i = 0; i < c->x->g->nodes.n; i++) {
        const tt_node *n = c->x->g->nodes.items[i];
        if (n->role == TT_NODE_EXPANDED ||
            is_any(n->op->name, "redistribute fetch param input stop_gradient"))
            continue;
        for (int o = 0; o < n->n_out; o++) {
            if (c_sig(n->out[o], c->memo) != s || (!strcmp(n->op->name, "cross_entropy") && o))
                continue;
            if (found && found != n)
                fail_msg("%s: nodes %d and %d are one meaning", c->graph, found->id, n->id);
            found = n;
            *out = o;
        }
    }
    return found;
}

static void compare_keep(const comparison *c, int64_t id, const tt_node *n)
{
    uint16_t kept = 0;
    char have[128] = "";
    for (int i = 0; i < n->n_in; i++)
        kept |= n->keep[i];
    const tt_atom_list l = tt_mesh_atoms_by_name(c->x->g->mesh, kept);
    for (int i = 0; i < l.n; i++)
        snprintf(have + strlen(have), sizeof have - strlen(have), "%s%s", i ? "," : "",
                 c->x->g->mesh->atom_name[l.atom[i]]);
    if (strcmp(have, json_string_value(field(&c->s, id, 8))))
        fail_msg("%s: node %d %s lets P(%s) pass, the specification P(%s)", c->graph, (int)id,
                 op_at(&c->s, id), have, json_string_value(field(&c->s, id, 8)));
}

static void compare_op(comparison *c, int64_t id)
{
    const char *op = op_at(&c->s, id);
    const bool loss =
        is_any(op, "max_v sumexp pick nll") || c->s.sigs[id] == sig_of("dz", 0, NULL, 0);
    int out = 0;
    if (loss && !c->expanded && !is_any(op, "nll add"))
        return;
    const tt_node *n = find(c, c->s.sigs[id], &out);
    if (!n)
        fail_msg("%s: node %d %s has no counterpart", c->graph, (int)id, op);
    c->nodes++;
    expect(c, id, "the result", n->out[out], place_at(&c->s, id));
    if (is_any(op, "nll") || (loss && !strcmp(op, "add")))
        return;
    const bool attention = !strncmp(op, "attention_d", 11);
    for (int i = 0; i < (int)json_array_size(field(&c->s, id, 2)); i++) {
        char what[32];
        const int at = attention ? (i < 3 ? i : i < 7 ? i + 3 : 5) : i;
        snprintf(what, sizeof what, "operand %d", i);
        expect(c, id, what, n->in[attention ? at : i],
               place_at(&c->s, input_at(&c->s, id, (size_t)i)));
    }
    compare_keep(c, id, n);
    if (!loss && n->follow != (bool)json_integer_value(field(&c->s, id, 9)))
        fail_msg("%s: node %d %s: follow is %d", c->graph, (int)id, op, n->follow);
}

static bool for_accumulate(const tt_graph *g, const tt_value *v)
{
    for (size_t i = 0; i < g->nodes.n; i++)
        if (g->nodes.items[i]->op == &tt_op_accumulate && g->nodes.items[i]->in[0] == v)
            return true;
    return false;
}

/* Every redistribute: same meaning, same placements. */
static void compare_move(comparison *c, int64_t id)
{
    char have[256], from[256];
    for (size_t i = 0; i < c->x->g->nodes.n; i++) {
        const tt_node *n = c->x->g->nodes.items[i];
        if (n->op != &tt_op_redistribute && n->op != &tt_op_fetch)
            continue;
        if (c_sig(n->out[0], c->memo) != c->s.sigs[id])
            continue;
        c_place(c, n->out[0], have, sizeof have);
        c_place(c, n->in[0], from, sizeof from);
        if (strcmp(have, place_at(&c->s, id)) ||
            strcmp(from, place_at(&c->s, input_at(&c->s, id, 0))))
            continue;
        c->moves++;
        return;
    }
    fail_msg("%s: node %d redistribute %s to %s of node %d %s has no counterpart", c->graph,
             (int)id, place_at(&c->s, input_at(&c->s, id, 0)), place_at(&c->s, id),
             (int)root_at(&c->s, id), op_at(&c->s, root_at(&c->s, id)));
}

static bool fetched_before(const spec *s, int64_t id)
{
    for (int64_t i = 0; !strcmp(op_at(s, id), "fetch") && i < id; i++)
        if (!strcmp(op_at(s, i), "fetch") && input_at(s, i, 0) == input_at(s, id, 0))
            return true;
    return false;
}

static int our_moves(const comparison *c)
{
    int n = 0;
    for (size_t i = 0; i < c->x->g->nodes.n; i++) {
        const tt_node *e = c->x->g->nodes.items[i];
        if (e->when->region > TT_BACKWARD ||
            (e->op != &tt_op_redistribute && e->op != &tt_op_fetch))
            continue;
        if (for_accumulate(c->x->g, e->out[0]) || !c_sig(e->out[0], c->memo))
            continue;
        if (!strcmp(tt_value_root(e->out[0])->node->op->name, "pick"))
            continue;
        n++;
    }
    return n;
}

static job job_of(const json_t *g, const json_t *meshes)
{
    const json_t *cfg = get(g, "cfg");
    job j = {.mesh = mesh_named(json_string_value(
                 get(json_array_get(meshes, (size_t)get_int(g, "mesh")), "name"))),
             .tokens = get_int(g, "tokens"),
             .lines = get_int(g, "lines"),
             .no_sp = !json_is_true(get(get(g, "build"), "sp"))};
    j.c = (llama){get_int(cfg, "V"),
                  get_int(cfg, "D"),
                  get_int(cfg, "H"),
                  get_int(cfg, "K"),
                  get_int(cfg, "hd"),
                  get_int(cfg, "F"),
                  get_int(cfg, "L"),
                  json_is_true(get(cfg, "tied")),
                  json_is_true(get(cfg, "bias")),
                  json_is_true(get(cfg, "qk_norm"))};
    return j;
}

static void build_or_fail(const job *j, const char *last, built *x, const char *name)
{
    tt_error err = {0};
    const char *bad = build_job(j, last, NULL, NULL, x, &err);
    if (bad)
        fail_msg("%s: %s: %s", name, bad, err.text);
}

static void compare_graph(const json_t *g, const json_t *meshes, int *nodes, int *moves)
{
    comparison c = {.graph = json_string_value(get(g, "name"))};
    const job j = job_of(g, meshes);
    built x;
    build_or_fail(&j, "autodiff", &x, c.graph);
    c.x = &x;
    c.memo = tt_arena_array(x.arena, (size_t)x.g->n_values + 1, sizeof *c.memo);
    c.s.nodes = get(g, "nodes");
    const size_t n = json_array_size(c.s.nodes);
    c.s.sigs = tt_arena_array(x.arena, n + 1, sizeof *c.s.sigs);
    for (size_t i = 0; i < x.g->nodes.n; i++)
        c.expanded = c.expanded || !strcmp(x.g->nodes.items[i]->op->name, "max_last");
    int spec_moves = 0;
    for (size_t i = 0; i < n; i++) {
        const char *op = op_at(&c.s, (int64_t)i),
                   *phase = json_string_value(field(&c.s, (int64_t)i, 3));
        c.s.sigs[i] = spec_sig(&c.s, (int64_t)i);
        if (!strcmp(phase, "step") || !c.s.sigs[i] || is_any(op, "param input"))
            continue;
        if (!is_any(op, "redistribute fetch")) {
            compare_op(&c, (int64_t)i);
            continue;
        }
        if (!strcmp(op_at(&c.s, root_at(&c.s, (int64_t)i)), "pick") ||
            fetched_before(&c.s, (int64_t)i))
            continue;
        spec_moves++;
        compare_move(&c, (int64_t)i);
    }
    if (our_moves(&c) != spec_moves)
        fail_msg("%s: %d redistributes, the specification has %d", c.graph, our_moves(&c),
                 spec_moves);
    *nodes += c.nodes;
    *moves += c.moves;
    built_free(&x);
}

static void test_every_node_is_placed_as_specified(void **state)
{
    json_t *root = golden_read("tests/golden/placement_graphs.json");
    const json_t *graphs = get(root, "graphs");
    int nodes = 0, moves = 0, n = 0;
    (void)state;
    for (size_t i = 0; i < json_array_size(graphs); i++) {
        const json_t *g = json_array_get(graphs, i);
        if (get_int(get(g, "build"), "micro") != 1)
            continue;
        compare_graph(g, get(root, "meshes"), &nodes, &moves);
        n++;
    }
    print_message("%d graphs: %d ops, %d redistributes as specified\n", n, nodes, moves);
    assert_true(n == 19 && nodes > 1500);
    json_decref(root);
}

/* ---- collectives of a layer ---- */

static bool in_embedding(const tt_graph *g, size_t at)
{
    bool before = false, behind = false; /* is there a block's node in this region? */
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->when->region != g->nodes.items[at]->when->region || n->block < 0 ||
            n->op == &tt_op_accumulate)
            continue;
        if (n->n_out && for_accumulate(g, n->out[0]))
            continue;
        (i < at ? &before : &behind)[0] = true;
    }
    return g->nodes.items[at]->when->region == TT_FORWARD ? !before : !behind;
}

static bool tied(const tt_graph *g)
{
    for (size_t i = 0; i < g->params.n; i++)
        if (!strcmp(g->params.items[i]->name, "head"))
            return false;
    return true;
}

static int count_steps(const tt_graph *g, bool backward, int block, bool fetches, const char *kind,
                       const char *atoms)
{
    int count = 0;
    tt_lower_step steps[TT_MAX_STEPS];
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->when->region != (backward ? TT_BACKWARD : TT_FORWARD) || n->block != block)
            continue;
        if (n->op != (fetches ? &tt_op_fetch : &tt_op_redistribute) || for_accumulate(g, n->out[0]))
            continue;
        if (block < 0 && in_embedding(g, i) && !(fetches && tied(g)))
            continue; /* the embedding stands outside blocks too, but is no part of the head */
        const int k = tt_lower(g->mesh, n->out[0]->type.dims, n->out[0]->type.n_dims,
                               &n->in[0]->place, &n->out[0]->place, steps);
        for (int s = 0; s < k; s++) {
            char text[128] = "";
            if (steps[s].kind > TT_STEP_SHIFT)
                continue;
            for (int a = 0; a < steps[s].atoms.n; a++)
                strcat(text, g->mesh->atom_name[TT_ATOM(steps[s].atoms.atom[a])]);
            if (!kind || (!strcmp(tt_step_kind_name(steps[s].kind), kind) && !strcmp(text, atoms)))
                count++;
        }
    }
    return count;
}

static void compare_counts(const json_t *v, const built *x, const char *list, bool fetches)
{
    const json_t *want = get(v, list), *layer = get(v, "layer");
    const int block = json_is_integer(layer) ? (int)json_integer_value(layer) : -1;
    const bool backward = !strcmp(json_string_value(get(v, "phase")), "bwd");
    int total = 0;
    for (size_t i = 0; i < json_array_size(want); i++) {
        const json_t *e = json_array_get(want, i);
        const int n = (int)json_integer_value(json_array_get(e, 2));
        const int have = count_steps(x->g, backward, block, fetches, text_at(e, 0), text_at(e, 1));
        if (have != n)
            fail_msg("%s, %s of layer %d: %d %s over %s, the specification has %d",
                     json_string_value(get(v, "graph")), backward ? "backward" : "forward", block,
                     have, text_at(e, 0), text_at(e, 1), n);
        total += n;
    }
    const int have = count_steps(x->g, backward, block, fetches, NULL, NULL);
    if (have != total)
        fail_msg("%s, %s of layer %d: %d collectives, the specification has %d",
                 json_string_value(get(v, "graph")), backward ? "backward" : "forward", block, have,
                 total);
}

static void test_collectives_of_a_layer_as_specified(void **state)
{
    json_t *root = golden_read("tests/golden/placement.json"),
           *all = golden_read("tests/golden/placement_graphs.json");
    const json_t *counts = get(root, "counts"), *graphs = get(all, "graphs");
    int n = 0;
    (void)state;
    for (size_t i = 0; i < json_array_size(graphs); i++) {
        const json_t *g = json_array_get(graphs, i);
        const char *name = json_string_value(get(g, "name"));
        if (get_int(get(g, "build"), "micro") != 1)
            continue;
        const job j = job_of(g, get(all, "meshes"));
        built x;
        build_or_fail(&j, "autodiff", &x, name);
        for (size_t k = 0; k < json_array_size(counts); k++) {
            const json_t *v = json_array_get(counts, k);
            if (strcmp(json_string_value(get(v, "graph")), name))
                continue;
            compare_counts(v, &x, "acts", false);
            compare_counts(v, &x, "params", true);
            n++;
        }
        built_free(&x);
    }
    print_message("%d layers and phases\n", n);
    assert_true(n >= 19 * 6);
    json_decref(root);
    json_decref(all);
}

/* ---- the step regions ---- */

static void test_update_stays_where_parameters_are_stored(void **state)
{
    (void)state;
    for (size_t m = 0; m < TT_COUNT(mesh_cases); m++) {
        job j = {.c = LLAMA_DEFAULT, .mesh = &mesh_cases[m], .optimizer = "adamw", .max_norm = 1};
        if (j.mesh->tp2x2)
            j.c.H = 8;
        j.tokens = 7 * data_ranks(j.mesh);
        built x;
        build_or_fail(&j, "update", &x, j.mesh->name);
        int reductions = 0;
        bool cut = false;
        for (size_t i = 0; i < x.g->nodes.n; i++) {
            const tt_node *n = x.g->nodes.items[i];
            tt_lower_step steps[TT_MAX_STEPS];
            if (n->op == &tt_op_param)
                cut = cut || tt_placement_shard_atoms(&n->out[0]->place, n->out[0]->type.n_dims);
            if (n->when->region < TT_EPILOGUE || n->op != &tt_op_redistribute)
                continue;
            const int k = tt_lower(x.g->mesh, n->out[0]->type.dims, n->out[0]->type.n_dims,
                                   &n->in[0]->place, &n->out[0]->place, steps);
            for (int s = 0; s < k; s++) {
                if (n->when->region == TT_UPDATE && steps[s].kind <= TT_STEP_SHIFT)
                    fail_msg("%s: the optimizer communicates: %s", j.mesh->name,
                             tt_step_kind_name(steps[s].kind));
                reductions += !n->out[0]->type.n_dims && steps[s].kind <= TT_STEP_SHIFT;
                if (n->out[0]->type.n_dims && steps[s].kind <= TT_STEP_SHIFT)
                    assert_int_equal(
                        steps[s].kind,
                        TT_STEP_ALL_REDUCE); /* what stayed pending, on the shard (C11) */
            }
        }
        assert_int_equal(reductions, cut ? 1 : 0); /* the norm: one scalar all-reduce (R13, C13) */
        built_free(&x);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_node_is_placed_as_specified),
        cmocka_unit_test(test_collectives_of_a_layer_as_specified),
        cmocka_unit_test(test_update_stays_where_parameters_are_stored),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
