/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/job.h"
#include "plan/plan_impl.h"

/* Every rank of a mesh with the program its plan gives it, begun and awaited collectives and
 * messages included, in an abstract run: none waits for ever, and all members of a group begin the
 * same in the same order. */

typedef struct world {
    job j;
    tt_plan *plans[8]; /* by pipeline rank */
    int n_groups, size[512];
    struct {
        uint16_t atoms;
        int first;
        bool beside;
    } group[512];
    tt_wire *items[16];
    int n_items[16];
} world;

typedef struct writer { /* of one rank */
    world *w;
    const tt_plan *p;
    int rank;
    int32_t coords[TT_MAX_ATOMS];
    int begun[512];  /* by group */
    int *nth, *in;   /* by node id: what is under way, and its group; -1 = not */
    int pipeline[8]; /* world ranks of its pipeline */
} writer;

static void put(writer *x, tt_wire_kind kind, int to, int64_t tag, int nth)
{
    world *w = x->w;
    assert_true(w->n_items[x->rank] < 200000);
    w->items[x->rank][w->n_items[x->rank]++] = (tt_wire){kind, to, tag, nth};
}

static int group_of(writer *x, const tt_atom_list *atoms, bool beside)
{
    int ranks[16];
    world *w = x->w;
    uint16_t mask = 0;
    const int n = tt_mesh_group(&w->j.setup.mesh, x->rank, atoms, ranks);
    int first = ranks[0];
    for (int i = 0; i < n; i++)
        first = TT_MIN(first, ranks[i]);
    for (int i = 0; i < atoms->n; i++)
        mask |= (uint16_t)(1u << TT_ATOM(atoms->atom[i]));
    for (int g = 0; g < w->n_groups; g++)
        if (w->group[g].atoms == mask && w->group[g].first == first && w->group[g].beside == beside)
            return g;
    assert_true(w->n_groups < 512);
    w->group[w->n_groups].atoms = mask;
    w->group[w->n_groups].first = first;
    w->group[w->n_groups].beside = beside;
    w->size[w->n_groups] = n;
    return w->n_groups++;
}

static void put_waits(writer *x, const tt_nodes *l, int before)
{
    for (int k = 0; k < l->n_waits; k++) {
        const int id = l->waits[k].node->id;
        if (l->waits[k].before != before || x->nth[id] < 0)
            continue;
        put(x, TT_WIRE_WAIT, x->in[id], 0, x->nth[id]);
        x->nth[id] = -1;
    }
}

static void put_node(writer *x, const tt_node *n, int64_t micro)
{
    const int64_t tag = n->id * 1024 + micro;
    const tt_axis *pp = tt_mesh_axis(&x->w->j.setup.mesh, "pp");
    if (n->op == &tt_op_stage_sum && !n->twins)
        put(x, TT_WIRE_MEET, group_of(x, &pp->atoms, false), 0, 0);
    if (!n->step || tt_step_is_local(n->step->kind))
        return;
    const int g = group_of(x, &n->step->atoms, n->async);
    if (!n->async) {
        put(x, TT_WIRE_MEET, g, tag, 0);
        return;
    }
    put(x, TT_WIRE_BEGIN, g, tag, x->begun[g]);
    x->nth[n->id] = x->begun[g]++;
    x->in[n->id] = g;
}

static void put_list(writer *x, const tt_nodes *l, int64_t micro, bool first)
{
    for (int i = 0; i < l->n; i++) {
        put_waits(x, l, i);
        if (first || !l->items[i]->once)
            put_node(x, l->items[i], micro);
    }
    put_waits(x, l, l->n);
}

static void put_item(writer *x, const tt_item *i)
{
    const tt_action *a = &i->action;
    const tt_stage_plan *s = tt_plan_stage(x->p, a->stage);
    if (i->kind != TT_ITEM_RUN) {
        const int64_t tag = ((int64_t)a->stage * 4 + (int)a->kind) * 4096 + a->micro;
        if (i->kind != TT_ITEM_WAIT)
            put(x, i->kind == TT_ITEM_SEND ? TT_WIRE_SEND : TT_WIRE_RECV, x->pipeline[i->peer], tag,
                0);
        return;
    }
    if (a->kind == TT_ACTION_F)
        put_list(x, &s->part[TT_PART_F], a->micro, a->micro == s->first[0]);
    if (a->kind == TT_ACTION_B || a->kind == TT_ACTION_I)
        put_list(x, &s->part[TT_PART_I], a->micro, a->micro == s->first[1]);
    if (a->kind == TT_ACTION_B || a->kind == TT_ACTION_W)
        put_list(x, &s->part[TT_PART_W], a->micro, a->micro == s->first[1]);
}

static void put_rank(world *w, int rank)
{
    const tt_mesh *m = &w->j.setup.mesh;
    const tt_axis *pp = tt_mesh_axis(m, "pp");
    writer x = {.w = w, .rank = rank};
    tt_mesh_coords(m, rank, x.coords);
    const int c = pp ? x.coords[TT_ATOM(pp->atoms.atom[0])] : 0;
    x.p = w->plans[c];
    if (pp)
        tt_mesh_group(m, rank, &pp->atoms, x.pipeline);
    const size_t n = (size_t)x.p->graph->n_ids + 1;
    x.nth = tt_arena_array(w->j.arena, n, sizeof *x.nth);
    x.in = tt_arena_array(w->j.arena, n, sizeof *x.in);
    memset(x.nth, 0xff, n * sizeof *x.nth);
    w->items[rank] = calloc(200000, sizeof(tt_wire));
    for (int i = 0; i < x.p->programs->n_items[c]; i++)
        put_item(&x, &x.p->programs->items[c][i]);
    put_list(&x, &x.p->epilogue, 0, true);
    put_list(&x, &x.p->update, 0, true);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(x.nth[i], -1); /* what was begun was waited for */
}

static void open_world(world *w, const char *overrides)
{
    tt_error err = {0};
    memset(w, 0, sizeof *w);
    job_open(&w->j, overrides);
    const tt_setup *s = &w->j.setup;
    for (int r = 0; r < s->pipeline_ranks; r++)
        if (tt_setup_plan(s, s->graph, s->schedule, r, w->j.arena, &w->plans[r], &err) != TT_OK)
            fail_msg("%s: %s", overrides, err.text);
    for (int r = 0; r < s->world; r++)
        put_rank(w, r);
}

static tt_status run(world *w, tt_error *err)
{
    const tt_wires wires = {w->j.setup.world, w->n_groups, w->size, w->items, w->n_items};
    return tt_wires_run(&wires, TT_BUFFERED_SENDS, err);
}

static void close_world(world *w)
{
    for (int r = 0; r < w->j.setup.world; r++)
        free(w->items[r]);
    job_close(&w->j);
}

static const char *const more[] = {
    "parallelism.data_parallel_shard_degree 2 parallelism.tensor_parallel_degree 2 "
    "parallelism.pipeline_parallel_degree 2 training.global_batch_size 16",
    "parallelism.data_parallel_replicate_degree 2 parallelism.data_parallel_shard_degree 2 "
    "parallelism.context_parallel_degree 2 training.seq_len 36",
    "parallelism.pipeline_parallel_degree 4 parallelism.data_parallel_shard_degree 2 "
    "training.global_batch_size 16 parallelism.fsdp_reshard_after_forward always",
    "parallelism.data_parallel_shard_degree 2 parallelism.tensor_parallel_degree 3 "
    "parallelism.pipeline_parallel_degree 2 training.global_batch_size 16 "
    "parallelism.enable_async_tensor_parallel true",
};

static void test_every_mesh_runs_to_its_end(void **state)
{
    static world w;
    int n_begun = 0;
    (void)state;
    for (size_t i = 0; i < TT_COUNT(job_meshes) + TT_COUNT(more); i++) {
        tt_error err = {0};
        char text[500];
        const char *mesh =
            i < TT_COUNT(job_meshes) ? job_meshes[i] : more[i - TT_COUNT(job_meshes)];
        snprintf(text, sizeof text, "%s%scomm.overlap on", mesh, *mesh ? " " : "");
        open_world(&w, text);
        if (run(&w, &err) != TT_OK)
            fail_msg("%s: %s", text, err.text);
        for (int r = 0; r < w.j.setup.world; r++)
            for (int k = 0; k < w.n_items[r]; k++)
                n_begun += w.items[r][k].kind == TT_WIRE_BEGIN;
        close_world(&w);
    }
    assert_true(n_begun > 1000);
}

/* One rank begins two collectives of a group the other way round, or leaves one out. */
static void test_another_order_on_one_rank_is_found(void **state)
{
    static world w;
    tt_error err = {0};
    int a = -1, b = -1;
    (void)state;
    open_world(&w, "parallelism.data_parallel_shard_degree 2 comm.overlap on");
    for (int k = 0; k < w.n_items[1] && b < 0; k++)
        if (w.items[1][k].kind == TT_WIRE_BEGIN)
            *(a < 0 ? &a : &b) = k;
    const tt_wire x = w.items[1][a], y = w.items[1][b];
    w.items[1][a].tag = y.tag;
    w.items[1][b].tag = x.tag;
    assert_int_equal(run(&w, &err), TT_EINVAL);
    w.items[1][a] = x;
    w.items[1][b] = y;
    assert_int_equal(run(&w, &err), TT_OK);
    for (int k = a; k + 1 < w.n_items[1]; k++)
        w.items[1][k] = w.items[1][k + 1];
    w.n_items[1]--;
    assert_int_equal(run(&w, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "rank 0 waits in group"));
    close_world(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_mesh_runs_to_its_end),
        cmocka_unit_test(test_another_order_on_one_rank_is_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
