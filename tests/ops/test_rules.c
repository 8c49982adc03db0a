/* SPDX-License-Identifier: Apache-2.0 */
#include "cases.h"

/* For every node of every case (forward and backward): its sharding rule parses, binds letters to
 * equal unit counts, and is true: if a letter is cut in two, the kernels of two ranks on their boxes
 * compute boxes, or partial sums (maxima), of the whole result. This also tests that kernels respect
 * begin[] and global[]. */

static const tt_backend_vt *backend;
static int cuts; /* cuts that the whole run has tried */

typedef struct cut { /* letters cut together, and the box of rank `half` in a dim of theirs */
    uint32_t letters;
    int half;
} cut;

static void box_of(const tt_dim *d, int half, int64_t *begin, int64_t *end)
{
    int64_t units = d->size / d->unit, mid = (units + 1) / 2 * d->unit;
    *begin = half == 0 ? 0 : mid;
    *end = half == 0 ? mid : d->size;
}

/* A rank's box of a whole tensor; the copy goes to (load) or comes from (store) the local one. */
static void local_shape(const tt_type *t, const int8_t *letters, cut c, tt_tensor *x)
{
    for (int d = 0; d < t->n_dims; d++) {
        int64_t begin = 0, end = t->dims[d].size;
        if (c.letters >> letters[d] & 1u)
            box_of(&t->dims[d], c.half, &begin, &end);
        x->shape[d] = end - begin;
        x->begin[d] = begin;
        x->global[d] = t->dims[d].size;
    }
}

typedef enum { LOAD, STORE, ADD, MAXIMUM } copy_kind;

static void copy_box(const tt_tensor *whole, const tt_tensor *local, copy_kind kind)
{
    int64_t n = tt_tensor_numel(local);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = 0, stride = 1;
        for (int d = local->n_dims - 1; d >= 0; d--) {
            at += (local->begin[d] + rest % local->shape[d]) * stride;
            rest /= local->shape[d];
            stride *= local->global[d];
        }
        double v = kind == LOAD ? get(whole, at) : get(local, i);
        if (kind == ADD)
            v += get(whole, at);
        if (kind == MAXIMUM)
            v = fmax(v, get(whole, at));
        put(kind == LOAD ? local : whole, kind == LOAD ? i : at, v);
    }
}

static void check_cut(eval *e, const tt_node *n, const tt_rule *r, uint32_t letters,
                      const char *what)
{
    tt_tensor got[TT_MAX_OUTS];
    for (int k = 0; k < n->n_out; k++) {
        got[k] = tensor_of(e->arena, &n->out[k]->type);
        for (int64_t i = 0; i < tt_tensor_numel(&got[k]); i++)
            put(&got[k], i, n->op->reduce_max ? (double)-INFINITY : 0.0);
    }
    for (int half = 0; half < 2; half++) {
        tt_tensor in[TT_MAX_INS], out[TT_MAX_OUTS];
        cut c = {letters, half};
        for (int k = 0; k < n->n_in; k++) {
            in[k] = tensor_of(e->arena, &n->in[k]->type);
            local_shape(&n->in[k]->type, r->in[k], c, &in[k]);
            copy_box(&e->tensors[n->in[k]->id], &in[k], LOAD);
        }
        for (int k = 0; k < n->n_out; k++) {
            out[k] = tensor_of(e->arena, &n->out[k]->type);
            local_shape(&n->out[k]->type, r->out[k], c, &out[k]);
        }
        eval_call(e, n, in, out);
        for (int k = 0; k < n->n_out; k++) {
            bool sharded = false;
            for (int d = 0; d < out[k].n_dims; d++)
                sharded |= letters >> r->out[k][d] & 1u;
            copy_box(&got[k], &out[k], sharded ? STORE : n->op->reduce_max ? MAXIMUM : ADD);
        }
    }
    for (int k = 0; k < n->n_out; k++)
        for (int64_t i = 0; i < tt_tensor_numel(&got[k]); i++) {
            double a = get(&e->tensors[n->out[k]->id], i), b = get(&got[k], i);
            if (!(fabs(a - b) <= 1e-12 * (1.0 + fabs(a))) && a != b)
                fail_msg("%s with %s cut: output %d element %lld: %.15g whole, %.15g on two ranks",
                         n->op->name, what, k, (long long)i, a, b);
        }
    cuts++;
}

/* Every dim of these letters has at least two units (lines, for the letter that stands for them).
 */
static bool can_cut(const tt_node *n, const tt_rule *r, uint32_t letters)
{
    bool met = false;
    for (int s = 0; s < n->n_in + n->n_out; s++) {
        const tt_type *t = s < n->n_in ? &n->in[s]->type : &n->out[s - n->n_in]->type;
        const int8_t *l = s < n->n_in ? r->in[s] : r->out[s - n->n_in];
        for (int d = 0; d < t->n_dims; d++) {
            if (!(letters >> l[d] & 1u))
                continue;
            met = true;
            if (t->dims[d].size / t->dims[d].unit < 2)
                return false;
        }
    }
    return met;
}

static void check_node(eval *e, const tt_node *n, const char *name)
{
    char text[512];
    tt_error err = {0};
    tt_rule r;
    int in_ranks[TT_MAX_INS], out_ranks[TT_MAX_OUTS];
    const tt_type *types[TT_MAX_INS];
    for (int k = 0; k < n->n_in; k++) {
        types[k] = &n->in[k]->type;
        in_ranks[k] = types[k]->n_dims;
    }
    for (int k = 0; k < n->n_out; k++)
        out_ranks[k] = n->out[k]->type.n_dims;
    tt_shape_query q = {sizeof q, n->n_in, types, n->attrs, n->op->name};
    if (n->op->rule != NULL)
        snprintf(text, sizeof text, "%s", n->op->rule);
    else
        n->op->rule_for(&q, text, sizeof text);
    if (tt_rule_parse(text, in_ranks, n->n_in, out_ranks, n->n_out, &r, &err) != TT_OK)
        fail_msg("%s: %s: %s", name, n->op->name, err.text);
    for (int x = 0; x < r.n_letters; x++) {
        uint32_t letters = 1u << x;
        bool whole = r.whole >> x & 1u;
        for (int g = 0; g < r.n_groups; g++) {
            if (r.groups[g].first == x)
                letters |= 1u << r.groups[g].x; /* cutting b cuts t and s */
            if (r.groups[g].x == x)
                whole |= r.whole >> r.groups[g].rest & 1u; /* s=(b !p): s alone cannot be cut */
        }
        if (!whole && can_cut(n, &r, letters))
            check_cut(e, n, &r, letters, r.name[x]);
    }
}

static void test_rules_hold_on_two_ranks(void **state)
{
    (void)state;
    for (size_t c = 0; c < TT_COUNT(cases); c++) {
        eval e;
        tt_value *y[TT_MAX_OUTS] = {0}, *dy[TT_MAX_OUTS] = {0}, *grads[24] = {0};
        eval_init(&e, backend, false);
        int n_y = cases[c].fn(&e, y);
        for (int k = 0; k < n_y; k++)
            dy[k] = leaf_of(&e, TT_F64, -1, 1, y[k]->type.n_dims, y[k]->type.dims);
        e.n_leaves -= n_y; /* eval_backward looks at the case's own leaves */
        eval_backward(&e, y, dy, n_y, grads);
        e.n_leaves += n_y;
        eval_prepare(&e);
        eval_run(&e, e.g->nodes.n);
        for (size_t i = 0; i < e.g->nodes.n; i++)
            if (!eval_is_leaf(e.g->nodes.items[i]))
                check_node(&e, e.g->nodes.items[i], cases[c].name);
        eval_release(&e);
    }
    assert_true(cuts > 300);
}

/* What the rules of a few ops promise about bytes. Placement depends on them; the specification has
 * them. */
static void test_rules_are_the_specification(void **state)
{
    static const struct {
        const char *op, *rule;
    } want[] = {
        {"linear",       "t i, o i -> t o"},
        {"linear_dx",    "t o, o i -> t i"},
        {"linear_dw",    "t o, t i -> o i"},
        {"embedding",    "t, v d -> t d"  },
        {"embedding_dw", "t, t d -> v d"  },
        {"rope",         "t h, t -> t h"  },
        {"max_last",     "t v -> t"       },
        {"sum_exp",      "t v, t -> t"    },
        {"pick",         "t v, t -> t"    },
        {"sum_squares",  "* ->"           },
    };
    size_t n = 0;
    tt_op_table t = {.core = tt_core_ops(&n)};
    (void)state;
    t.n_core = n;
    for (size_t i = 0; i < TT_COUNT(want); i++)
        assert_string_equal(tt_op_find(&t, want[i].op)->rule, want[i].rule);
}

/* The list of R1: only these ops take a pending sum and give one. */
static void test_linear_inputs_are_the_declared_list(void **state)
{
    static const struct {
        const char *op;
        uint32_t linear;
    } want[] = {
        {"add",           TT_LINEAR_JOINT},
        {"sub",           TT_LINEAR_JOINT},
        {"concat",        TT_LINEAR_JOINT},
        {"scale",         1              },
        {"scale_by",      1              },
        {"neg",           1              },
        {"cast",          1              },
        {"cast_down",     0              },
        {"rope",          1              },
        {"linear_dx",     1              },
        {"linear_dw",     1              },
        {"reduce_sum",    1              },
        {"embedding_dw",  2              },
        {"mul",           0              },
        {"linear",        0              },
        {"matmul",        0              },
        {"silu",          0              },
        {"rms_norm",      0              },
        {"attention",     0              },
        {"cross_entropy", 0              },
    };
    tt_op_table t = {0};
    (void)state;
    t.core = tt_core_ops(&t.n_core);
    for (size_t i = 0; i < TT_COUNT(want); i++)
        if (tt_op_find(&t, want[i].op)->linear_inputs != want[i].linear)
            fail_msg("%s", want[i].op);
}

/* The flags by which passes and the cost model recognize ops: only these ops have each flag. */
static void test_traits_are_the_declared_lists(void **state)
{
    static const struct {
        uint32_t flag;
        const char *ops;
    } want[] = {
        {TT_OP_HEAVY,
         "attention attention_merge attention_ring conv1d delta_rule grouped_linear linear "
         "linear_heads matmul "                                               },
        {TT_OP_MAY_BE_INFINITE, "attention attention_max max_last reduce_max "},
        {TT_OP_PROJECTION,      "linear "                                     },
        {TT_OP_ROTARY,          "rope "                                       },
        {TT_OP_CAST,            "cast cast_down "                             },
        {TT_OP_BY_PLACE,        "iota random random_keys "                    },
        {TT_OP_STOPS_GRADIENT,  "stop_gradient "                              },
        {TT_OP_NAMES_DIMS,      "broadcast reshape "                          },
    };
    static const struct {
        tt_op_class cls;
        const char *ops;
    } classes[] = {
        {TT_CLASS_MATMUL,
         "grouped_linear grouped_linear_dw grouped_linear_dx linear linear_dw linear_dx "
         "linear_dx_fused linear_fused linear_fused_rope linear_heads matmul "          },
        {TT_CLASS_ATTENTION,          "attention attention_cached attention_latent attention_merge "
                             "attention_ring latent_cached "},
        {TT_CLASS_ATTENTION_BACKWARD,
         "attention_bias_bwd attention_bwd attention_ring_bias_bwd attention_ring_bwd " },
        {TT_CLASS_LOOKUP,             "embedding gather "                               },
    };
    tt_op_table t = {0};
    (void)state;
    t.core = tt_core_ops(&t.n_core);
    for (size_t k = 0; k < TT_COUNT(want) + TT_COUNT(classes); k++) {
        const bool flag = k < TT_COUNT(want);
        char have[600] = "";
        for (size_t i = 0; i < t.n_core; i++)
            if (flag ? (t.core[i]->flags & want[k].flag) != 0
                     : tt_op_class_of(t.core[i]) == classes[k - TT_COUNT(want)].cls)
                strcat(strcat(have, t.core[i]->name), " ");
        assert_string_equal(have, flag ? want[k].ops : classes[k - TT_COUNT(want)].ops);
    }
    assert_int_equal(tt_op_lookup_table(tt_op_find(&t, "embedding")), 1);
    assert_int_equal(tt_op_lookup_table(tt_op_find(&t, "gather")), 0);
    assert_int_equal(tt_op_lookup_table(tt_op_find(&t, "linear")), -1);
}

static void test_a_form_is_an_op_of_the_same_attributes(void **state)
{
    tt_op_table t = {0};
    (void)state;
    t.core = tt_core_ops(&t.n_core);
    const tt_op_def *linear = tt_op_find(&t, "linear"), *fused = tt_op_find(&t, "linear_fused");
    assert_string_equal(tt_op_ring_form(&t, tt_op_find(&t, "attention"))->name, "attention_ring");
    assert_ptr_equal(tt_op_epilogue_form(&t, linear), fused);
    assert_string_equal(tt_op_epilogue_form(&t, tt_op_find(&t, "linear_dx"))->name,
                        "linear_dx_fused");
    assert_string_equal(tt_op_rope_form(&t, fused)->name, "linear_fused_rope");
    assert_null(tt_op_rope_form(&t, linear));
    assert_null(tt_op_epilogue_form(&t, tt_op_find(&t, "linear_dw")));
    tt_op_def other = *linear; /* a plugin's: its forms are names it may have wrong */
    other.epilogue_form = "attention";
    assert_null(tt_op_epilogue_form(&t, &other));
    other.epilogue_form = "no such op";
    assert_null(tt_op_epilogue_form(&t, &other));
    other.ring_form = "linear_dw";
    assert_string_equal(tt_op_ring_form(&t, &other)->name, "linear_dw");
    other.ring_form = "attention_bwd";
    assert_null(tt_op_ring_form(&t, &other));
}

/* No structural op is in the table of ops with kernels, and a search does not find it. */
static void test_structural_ops_are_in_no_table(void **state)
{
    (void)state;
    static const char *const names[] = {"param",      "input",  "state",      "fetch",
                                        "transfer",   "assign", "accumulate", "redistribute",
                                        "collective", "custom", "stage_sum"};
    tt_op_table t = {0};
    t.core = tt_core_ops(&t.n_core);
    for (size_t i = 0; i < TT_COUNT(names); i++) {
        assert_true(tt_op_is_structural(names[i]));
        assert_null(tt_op_find(&t, names[i]));
    }
    for (size_t i = 0; i < t.n_core; i++)
        assert_false(tt_op_is_structural(t.core[i]->name));
    assert_false(tt_op_is_structural("a plugin's op"));
}

/* A plugin that was built before there were traits has a shorter definition. */
static void test_an_older_definition_has_no_traits(void **state)
{
    tt_op_table t = {0};
    (void)state;
    t.core = tt_core_ops(&t.n_core);
    tt_op_def old = *tt_op_find(&t, "linear");
    old.struct_size = offsetof(tt_op_def, cls);
    old.table = 7;
    assert_int_equal(tt_op_class_of(&old), TT_CLASS_OTHER);
    old.flags |= TT_OP_POINTWISE;
    assert_int_equal(tt_op_class_of(&old), TT_CLASS_POINTWISE);
    assert_int_equal(tt_op_lookup_table(&old), -1);
    assert_true(tt_op_immediate(&old, NULL) == 0);
    assert_null(tt_op_epilogue_form(&t, &old));
    assert_null(tt_op_ring_form(&t, &old));
}

static void test_table_is_sorted_and_complete(void **state)
{
    tt_op_table t = {0};
    (void)state;
    t.core = tt_core_ops(&t.n_core);
    for (size_t i = 0; i < t.n_core; i++) {
        const tt_op_def *d = t.core[i];
        if (i > 0)
            assert_true(strcmp(t.core[i - 1]->name, d->name) < 0);
        assert_ptr_equal(tt_op_find(&t, d->name), d);
        assert_non_null(d->infer);
        assert_non_null(d->cost);
        assert_non_null(d->doc);
        assert_true((d->rule != NULL) != (d->rule_for != NULL));
        const bool expands = (d->expand_letters && !d->expand_letters[0]) ||
                             (d->flags & TT_OP_LOCAL); /* of described graphs alone */
        if (!expands && backend->kernel(NULL, d->name) == NULL)
            fail_msg("the reference backend has no %s", d->name);
    }
    assert_null(tt_op_find(&t, "no such op"));
}

/* How many operands or results a list names: "ids i[T], w f[V,D]" is two; "" none. */
static int count_named(const char *s, const char *end)
{
    int depth = 0, n = 0;
    bool word = false;
    for (; s < end && *s != ';'; s++) {
        depth += *s == '[' ? 1 : *s == ']' ? -1 : 0;
        if (*s == ',' && depth == 0)
            word = false;
        else if (*s != ' ' && !word) {
            word = true;
            n++;
        }
    }
    return n;
}

static int count_commas(const char *s, const char *end)
{
    int n = 0;
    for (; s < end; s++)
        n += *s == ',';
    return n;
}

/* docs/ops.md and ops.h are made of `operands`: they must name as many as the rule has. */
static void test_operands_are_those_of_the_rule(void **state)
{
    size_t n;
    const tt_op_def *const *ops = tt_core_ops(&n);
    (void)state;
    for (size_t i = 0; i < n; i++) {
        const tt_op_def *d = ops[i];
        const char *arrow = d->operands ? strstr(d->operands, "→") : NULL;
        if (!arrow || !d->doc || !d->attributes != !d->attrs_size)
            fail_msg("%s: operands, doc and attributes are incomplete", d->name);
        if (!d->rule || !strncmp(d->operands, "as ", 3) || strstr(d->operands, "two sets"))
            continue;
        const char *to = strstr(d->rule, "->");
        const int n_in = count_commas(d->rule, to) + (to != d->rule);
        if (count_named(d->operands, arrow) != n_in ||
            count_named(arrow + strlen("→"), d->operands + strlen(d->operands)) !=
                count_commas(to, to + strlen(to)) + 1)
            fail_msg("%s: \"%s\" is not the rule's \"%s\"", d->name, d->operands, d->rule);
    }
}

static int load(void **state)
{
    (void)state;
    backend = backend_load("reference");
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_hold_on_two_ranks),
        cmocka_unit_test(test_rules_are_the_specification),
        cmocka_unit_test(test_linear_inputs_are_the_declared_list),
        cmocka_unit_test(test_traits_are_the_declared_lists),
        cmocka_unit_test(test_a_form_is_an_op_of_the_same_attributes),
        cmocka_unit_test(test_structural_ops_are_in_no_table),
        cmocka_unit_test(test_an_older_definition_has_no_traits),
        cmocka_unit_test(test_table_is_sorted_and_complete),
        cmocka_unit_test(test_operands_are_those_of_the_rule),
    };
    return cmocka_run_group_tests(tests, load, NULL);
}
