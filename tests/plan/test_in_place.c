/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/planned.h"

/* Outputs that reuse an operand's bytes. For a backend that allows it everywhere, the plan does so
 * only if nothing reads the operand again; each kind of refusal occurs; and tt_plan_verify refuses
 * plans that break a condition. */

static int everywhere(void *user, const char *op)
{
    (void)user, (void)op;
    return ~0;
}

static int nowhere(void *user, const char *op)
{
    (void)user, (void)op;
    return 0;
}

static void plan_again(planned *x, int (*in_place)(void *user, const char *op), int pp_rank)
{
    tt_error err = {0};
    x->j.setup.graph->mesh = &x->j.setup.mesh; /* where it lies now */
    const tt_plan_opts o = {
        .schedule = x->j.setup.schedule, .in_place = in_place, .pp_rank = pp_rank};
    if (tt_plan_make(x->j.setup.graph, &o, x->j.arena, &x->p, &err) != TT_OK)
        fail_msg("%s", err.text);
}

/* Why an output must not take over operand i, by the graph alone; the first reason that holds. */
typedef enum why {
    MAY,
    NOT_OWN, /* a state's memory, or the output is one's */
    TWICE,   /* another operand too */
    NEXT_CHUNK,
    LATER, /* read again, or crosses to another stage */
    GIVEN, /* filled before the list runs */
    OTHER_SIZE,
    OTHER_TYPE,
    BESIDE, /* for a collective under way */
    N_WHY
} why;

static int64_t numel(const tt_plan *p, const tt_value *v)
{
    tt_tensor t;
    tt_plan_tensor(p->graph, v, NULL, &t);
    return tt_tensor_numel(&t);
}

static bool chunked(const tt_value *v)
{
    return tt_plan_alias(v)->chunked;
}

static bool given(const tt_node *n)
{
    return n->op == &tt_op_input || n->op == &tt_op_transfer;
}

static bool writes_state(const tt_node *n)
{
    return n->accumulate_into || (n->assign_to && n->assign_to[0]);
}

/* Is root an operand of a collective that runs concurrently with e? */
static bool under_way(const tt_nodes *l, int at, const tt_value *root)
{
    for (int w = 0; w < l->n_waits; w++) {
        const tt_node *c = l->waits[w].node;
        int begun = -1;
        for (int i = 0; i < l->n; i++)
            begun = l->items[i] == c ? i : begun;
        for (int j = 0; begun < at && at < l->waits[w].before && j < c->n_in; j++)
            if (tt_plan_alias(c->in[j]) == root)
                return true;
    }
    return false;
}

static why reason(const tt_plan *p, const use *u, const tt_nodes *l, int at, int i)
{
    const tt_node *e = l->items[at];
    const tt_value *in = tt_plan_alias(e->in[i]), *out = e->out[0];
    const use *a = &u[in->id], *b = &u[out->id];
    if (!a->root || !b->root || writes_state(e))
        return NOT_OWN;
    for (int j = 0; j < e->n_in; j++)
        if (j != i && tt_plan_alias(e->in[j]) == in)
            return TWICE;
    if (e->when->in_chunk_loop && (!chunked(in) || !chunked(out)))
        return NEXT_CHUNK;
    if (a->phase_mask >> (phase_of(e) + 1) || p->graph->nodes.items[a->last] != e)
        return LATER;
    if (given(in->node))
        return GIVEN;
    if (numel(p, e->in[i]) != numel(p, out))
        return OTHER_SIZE;
    if (in->type.dtype != out->type.dtype)
        return OTHER_TYPE;
    return under_way(l, at, in) ? BESIDE : MAY;
}

/* Counts the reasons over a list; an output with a reason must not take over anything. */
static void check_list(const tt_plan *p, const use *u, const tt_nodes *l, int *met,
                       const char *what)
{
    for (int at = 0; at < l->n; at++) {
        const tt_node *e = l->items[at];
        const int taken = p->in_place[e->id];
        if (taken >= 0) {
            met[MAY]++;
            assert_true(!e->async && e->role != TT_NODE_EXPANDED && !(e->op->flags & TT_OP_VIEW));
            assert_int_equal(p->value[e->out[0]->id].offset,
                             p->value[tt_plan_alias(e->in[taken])->id].offset);
        }
        for (int i = 0; e->n_out && tt_plan_here(p, e->when->stage) && i < e->n_in; i++) {
            const why r =
                tt_plan_here(p, e->in[i]->node->when->stage) ? reason(p, u, l, at, i) : NOT_OWN;
            if (r == MAY)
                continue;
            met[r]++;
            if (i == taken)
                fail_msg("%s: %s in \"%s\" takes over operand %d in spite of reason %d", what,
                         e->op->name, e->scope ? e->scope : "", i, (int)r);
        }
    }
}

static void check_plan(const tt_plan *p, int *met, const char *what)
{
    use *u = calloc((size_t)p->graph->n_values, sizeof *u);
    for (int s = 0; s < p->n_stages; s++) {
        memset(u, 0, (size_t)p->graph->n_values * sizeof *u);
        collect(p, p->stages[s].stage, u);
        for (int k = 0; k < TT_N_PARTS; k++)
            check_list(p, u, &p->stages[s].part[k], met, what);
    }
    memset(u, 0, (size_t)p->graph->n_values * sizeof *u);
    collect(p, -1, u);
    check_list(p, u, &p->epilogue, met, what);
    check_list(p, u, &p->update, met, what);
    free(u);
}

static void test_only_dying_operands_are_reused(void **state)
{
    static const char *const more[] = {
        "training.seq_len 400 model.args.vocab_size 70000", /* the loss in chunks of tokens */
        "parallelism.data_parallel_shard_degree 2 comm.overlap on",
        "parallelism.context_parallel_degree 2 parallelism.context_parallel_rotate_method ring "
        "comm.overlap on"};
    int met[N_WHY] = {0};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(job_meshes) + TT_COUNT(more); i++) {
        const char *mesh =
            i < TT_COUNT(job_meshes) ? job_meshes[i] : more[i - TT_COUNT(job_meshes)];
        int stages = 1;
        for (int r = 0; r < stages; r++) {
            planned x;
            open_plan(&x, mesh, r);
            stages = x.j.setup.pipeline_ranks;
            plan_again(&x, everywhere, r); /* it verifies what it makes */
            check_plan(x.p, met, mesh);
            no_two_alive_share_a_byte(x.p, mesh);
            job_close(&x.j);
        }
    }
    for (int r = 0; r < BESIDE; r++) /* for that, see below */
        if (met[r] < 5)
            fail_msg("reason %d was met %d times only", r, met[r]);
}

/* ---- each condition alone, on one node whose output otherwise takes over its operand's bytes
 * ---- */

typedef struct lone {
    planner p;
    tt_node *e;
    tt_nodes list;
    tt_value *in, *out;
    tt_live a, b; /* as they may be */
} lone;

static lone lone_of(planned *x)
{
    lone l = {.p.a = x->j.arena, .p.plan = x->p};
    for (size_t i = 0; i < x->p->graph->nodes.n && !l.e; i++) {
        tt_node *e = x->p->graph->nodes.items[i];
        if (e->n_in == 2 && x->p->in_place[e->id] == 0 && tt_plan_alias(e->in[0]) == e->in[0] &&
            e->in[0]->type.dtype == TT_F32 && !e->when->in_chunk_loop)
            l.e = e;
    }
    assert_non_null(l.e);
    l.list = (tt_nodes){.items = &l.e, .n = 1};
    l.in = l.e->in[0];
    l.out = l.e->out[0];
    const int64_t bytes = tt_plan_value_bytes(x->p->graph, l.in);
    l.a =
        (tt_live){.known = true, .first = 2, .last = 5, .bytes = bytes, .value = l.in, .parts = 1};
    l.b = l.a;
    l.b.first = 5;
    l.b.last = 9;
    l.b.value = l.out;
    return l;
}

/* Does the output take over the operand's bytes at time 5? */
static bool takes(lone *l, const tt_live *a, const tt_live *b, bool in_slots)
{
    const tt_plan_opts o = {.in_place = everywhere};
    l->p.o = &o;
    l->p.live = tt_arena_array(l->p.a, (size_t)l->p.plan->graph->n_values + 1, sizeof(tt_live));
    l->p.live[l->in->id] = *a;
    l->p.live[l->out->id] = *b;
    l->p.plan->in_place[l->e->id] = -1;
    l->list.items = &l->e;
    tt_plan_take_over(&l->p, &l->list, 4, in_slots);
    const bool taken = l->p.plan->in_place[l->e->id] >= 0;
    if (taken) {
        assert_ptr_equal(l->p.live[l->out->id].host, &l->p.live[l->in->id]);
        assert_int_equal(l->p.live[l->in->id].last, b->last); /* the bytes live on */
    }
    return taken;
}

static void test_each_condition_alone_prevents_reuse(void **state)
{
    (void)state;
    planned x;
    open_plan(&x, "", 0);
    lone l = lone_of(&x);
    tt_live a = l.a, b = l.b;
    assert_true(takes(&l, &a, &b, false) && takes(&l, &a, &b, true));
#define REFUSED(live, field, bad)                                                                  \
    do {                                                                                           \
        (live).field = (bad);                                                                      \
        assert_false(takes(&l, &a, &b, false));                                                    \
        a = l.a;                                                                                   \
        b = l.b;                                                                                   \
    } while (0)
    REFUSED(a, known, false);
    REFUSED(b, known, false);
    REFUSED(a, first, 5);
    REFUSED(a, last, 6);  /* read later, or sent */
    REFUSED(a, held, 5);  /* a collective reads it concurrently */
    REFUSED(b, first, 3); /* the loop's, from its begin */
    REFUSED(a, received, true);
    REFUSED(a, bytes, a.bytes + TT_ALIGNMENT);
    a.held = 4; /* it is over */
    assert_true(takes(&l, &a, &b, false));
    a = l.a;
    a.parts = 1 << TT_PART_F | 1 << TT_PART_I; /* in a slot */
    assert_true(takes(&l, &a, &b, false));
    assert_false(takes(&l, &a, &b, true));
    a = l.a;
#undef REFUSED
#define REFUSED(place, bad)                                                                        \
    do {                                                                                           \
        const __typeof__(place) was = (place);                                                     \
        (place) = (bad);                                                                           \
        assert_false(takes(&l, &a, &b, false));                                                    \
        (place) = was;                                                                             \
    } while (0)
    REFUSED(l.e->in[1], l.in);
    const tt_when once = {.region = l.e->when->region, .per_step = true},
                  loop = {.region = l.e->when->region, .in_chunk_loop = true};
    REFUSED(l.in->node->when, tt_when_intern(x.j.setup.graph, once));
    REFUSED(l.e->when, tt_when_intern(x.j.setup.graph, once));
    REFUSED(l.e->async, true);
    REFUSED(l.e->role, TT_NODE_EXPANDED);
    /* for an operand that exists as a whole: the next chunk reads it again */
    REFUSED(l.e->when, tt_when_intern(x.j.setup.graph, loop));
    REFUSED(l.out->type.dtype, TT_BF16);
    REFUSED(l.out->type.dims[0].size, l.out->type.dims[0].size - 1);
    REFUSED(l.in->node->op, &tt_op_input);
    REFUSED(l.e->accumulate_into, x.p->graph->states.items[0]);
#undef REFUSED
    assert_true(takes(&l, &a, &b, false));
    job_close(&x.j);
}

static int n_taken(const tt_plan *p)
{
    int n = 0;
    for (int i = 0; i < p->graph->n_ids; i++)
        n += p->in_place[i] >= 0;
    return n;
}

/* For a backend that does not declare it, the plan never reuses an operand's bytes. */
static void test_kernels_reuse_operands_only_if_they_declare_it(void **state)
{
    int64_t apart, in_place;
    (void)state;
    planned x;
    open_plan(&x, "", 0);
    assert_true(n_taken(x.p) > 10); /* the cpu backend's kernels declare it */
    plan_again(&x, NULL, 0);
    assert_int_equal(n_taken(x.p), 0);
    apart = x.p->bytes[TT_SPACE_WORK];
    plan_again(&x, nowhere, 0);
    assert_int_equal(n_taken(x.p), 0);
    assert_int_equal(x.p->bytes[TT_SPACE_WORK], apart);
    plan_again(&x, everywhere, 0);
    in_place = x.p->bytes[TT_SPACE_WORK];
    assert_true(in_place < apart);
    job_close(&x.j);
}

/* The gradient of the logits lies in the logits' bytes. */
static void test_gradient_of_logits_takes_their_bytes(void **state)
{
    int n = 0;
    (void)state;
    planned x;
    open_plan(&x, "", 0);
    for (size_t i = 0; i < x.p->graph->nodes.n; i++) {
        const tt_node *e = x.p->graph->nodes.items[i];
        if (strcmp(e->op->name, "cross_entropy_bwd"))
            continue;
        assert_int_equal(x.p->in_place[e->id], 0);
        n++;
    }
    assert_true(n > 0);
    job_close(&x.j);
}

/* Does a node take over v? */
static bool taken_over(const tt_plan *p, const tt_value *v)
{
    for (size_t i = 0; i < p->graph->nodes.n; i++) {
        const tt_node *e = p->graph->nodes.items[i];
        if (p->in_place[e->id] >= 0 && tt_plan_alias(e->in[p->in_place[e->id]]) == v)
            return true;
    }
    return false;
}

/* A value is moved onto an operand and marked as taking it over: the verifier refuses this if
 * the operand is read later or twice. It also refuses a value that is moved off its operand. */
static void test_broken_take_overs_are_refused(void **state)
{
    int later = 0, twice = 0, elsewhere = 0;
    (void)state;
    planned x;
    open_plan(&x, "", 0);
    const tt_plan *p = x.p;
    use *u = calloc((size_t)p->graph->n_values, sizeof *u);
    const tt_nodes *lists[] = {&p->stages[0].part[TT_PART_F], &p->stages[0].part[TT_PART_I],
                               &p->epilogue, &p->update};
    for (int k = 0; k < 4; k++) {
        memset(u, 0, (size_t)p->graph->n_values * sizeof *u);
        collect(p, k < 2 ? 0 : -1, u);
        for (int at = 0; at < lists[k]->n; at++) {
            tt_node *e = lists[k]->items[at];
            if (!e->n_out || !e->n_in || !u[e->out[0]->id].root)
                continue;
            tt_loc *out = &p->value[e->out[0]->id];
            const tt_loc was = *out;
            const int8_t taken = p->in_place[e->id];
            if (taken >= 0) {
                out->offset += TT_ALIGNMENT;
                refused_as(p, "does not lie on its operand");
                *out = was;
                elsewhere++;
                tt_value *const other = e->n_in > 1 ? e->in[!taken] : NULL;
                if (other && taken < 2) {
                    e->in[!taken] = e->in[taken];
                    refused_as(p, "read twice");
                    e->in[!taken] = other;
                    twice++;
                }
                continue;
            }
            for (int i = 0; i < e->n_in; i++) {
                const why r = reason(p, u, lists[k], at, i);
                if (r != LATER || taken_over(p, e->out[0]) ||
                    tt_plan_value_bytes(p->graph, tt_plan_alias(e->in[i])) !=
                        tt_plan_value_bytes(p->graph, e->out[0]))
                    continue;
                p->in_place[e->id] = (int8_t)i;
                *out = p->value[tt_plan_alias(e->in[i])->id];
                refused_as(p, "overwritten");
                later++;
                *out = was;
                p->in_place[e->id] = taken;
            }
        }
    }
    assert_true(elsewhere > 10 && later > 10 && twice > 10);
    assert_int_equal(verify_again(p, NULL), TT_OK);
    free(u);
    job_close(&x.j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_only_dying_operands_are_reused),
        cmocka_unit_test(test_each_condition_alone_prevents_reuse),
        cmocka_unit_test(test_kernels_reuse_operands_only_if_they_declare_it),
        cmocka_unit_test(test_gradient_of_logits_takes_their_bytes),
        cmocka_unit_test(test_broken_take_overs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
