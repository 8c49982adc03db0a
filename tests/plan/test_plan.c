/* SPDX-License-Identifier: Apache-2.0 */
#include "plan/planned.h"

/* Plans of whole small models on every mesh of exec/job.h: an independent comparison of lifetimes
 * with offsets, mutations that tt_plan_verify must refuse, slots, and the places of accumulated and
 * assigned values. */

static void test_no_two_values_alive_share_a_byte(void **state)
{
    (void)state;
    for (size_t i = 0; i < TT_COUNT(job_meshes); i++) {
        int stages = 1;
        for (int r = 0; r < stages; r++) {
            planned x;
            open_plan(&x, job_meshes[i], r);
            stages = x.j.setup.pipeline_ranks;
            no_two_alive_share_a_byte(x.p, job_meshes[i]);
            job_close(&x.j);
        }
    }
}

/* ---- mutations ---- */

static bool refused(const tt_plan *p)
{
    tt_error err = {0};
    if (verify_again(p, &err) == TT_OK)
        return false;
    assert_non_null(strstr(err.text, "memory plan: "));
    return true;
}

/* Is a value read after another one was written? Moving such values must be found; a value that
 * is read at once may move freely. */
static int n_readers(const tt_graph *g, const tt_value *root)
{
    int n = 0;
    for (size_t i = 0; i < g->nodes.n; i++)
        for (int j = 0; j < g->nodes.items[i]->n_in; j++)
            n += tt_plan_alias(g->nodes.items[i]->in[j]) == root;
    return n;
}

/* Every value in work is moved to the offset of the next one that lives at the same time; the
 * verifier must refuse each. */
static void test_moved_values_are_refused(void **state)
{
    static const char *const meshes[] = {"", "parallelism.tensor_parallel_degree 2",
                                         "parallelism.pipeline_parallel_degree 2"};
    (void)state;
    for (size_t k = 0; k < TT_COUNT(meshes); k++) {
        planned x;
        open_plan(&x, meshes[k], 0);
        const tt_graph *g = x.p->graph;
        use *u = calloc((size_t)g->n_values, sizeof *u);
        collect(x.p, 0, u);
        int moved = 0;
        for (int a = 0; a < g->n_values; a++) {
            if (!u[a].root || u[a].first == u[a].last || !n_readers(g, u[a].root))
                continue;
            for (int b = 0; b < g->n_values; b++) {
                if (!u[b].root || x.p->value[a].space != x.p->value[b].space ||
                    !tt_plan_value_bytes(g, u[a].root) || !tt_plan_value_bytes(g, u[b].root) ||
                    u[b].first <= u[a].first || u[b].first >= u[a].last)
                    continue;
                const tt_loc was = x.p->value[a]; /* b is written while a waits for a reader */
                x.p->value[a].offset = x.p->value[b].offset;
                if (!refused(x.p))
                    fail_msg("%s: value %d on top of %d is not refused", meshes[k], a, b);
                x.p->value[a] = was;
                moved++;
                break;
            }
        }
        assert_true(moved > 40);
        assert_false(refused(x.p));
        free(u);
        job_close(&x.j);
    }
}

static void test_values_outside_their_space_are_refused(void **state)
{
    planned x;
    open_plan(&x, "", 0);
    const tt_graph *g = x.p->graph;
    int n = 0;
    (void)state;
    for (int v = 0; v < g->n_values; v++) {
        if (x.p->value[v].space != TT_SPACE_WORK)
            continue;
        const int64_t was = x.p->value[v].offset;
        x.p->value[v].offset = x.p->bytes[TT_SPACE_WORK];
        n += refused(x.p);
        x.p->value[v].offset = -64;
        n += refused(x.p);
        x.p->value[v].offset = was;
    }
    assert_true(n > 100);
    x.p->bytes[TT_SPACE_WORK] -= TT_ALIGNMENT; /* a space too small by one unit */
    assert_true(refused(x.p));
    job_close(&x.j);
}

static void test_scratch_on_operands_is_refused(void **state)
{
    planned x;
    open_plan(&x, "backend.threads 2", 0);
    const tt_graph *g = x.p->graph;
    int n = 0;
    (void)state;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *e = g->nodes.items[i];
        const int64_t was = x.p->scratch[e->id];
        if (was < 0 || !e->n_in || x.p->value[e->in[0]->id].space != TT_SPACE_WORK)
            continue;
        x.p->scratch[e->id] = x.p->value[e->in[0]->id].offset;
        assert_true(refused(x.p));
        x.p->scratch[e->id] = was;
        n++;
    }
    assert_true(n > 5);
    assert_false(refused(x.p));
    job_close(&x.j);
}

/* ---- slots ---- */

#define PP4                                                                                        \
    "parallelism.pipeline_parallel_degree 4 training.local_batch_size 8 "                          \
    "parallelism.pipeline_parallel_schedule "

static void test_slots_follow_the_schedule(void **state)
{
    (void)state;
    for (int gpipe = 0; gpipe < 2; gpipe++)
        for (int r = 0; r < 4; r++) {
            planned x;
            open_plan(&x, gpipe ? PP4 "GPipe" : PP4 "1F1B", r);
            const tt_stage_plan *s = &x.p->stages[0];
            const int micro = (int)x.j.setup.micro_batches;
            assert_int_equal(micro, 8);
            assert_int_equal(x.p->n_stages, 1);
            assert_int_equal(s->stage, r);
            assert_true(s->in_slots && !s->part[TT_PART_W].n);
            /* a message may arrive before its forward: at most one slot more for each buffered
             * message */
            assert_in_range(s->n_slots[TT_HOLD_SLOT], gpipe ? micro : 4 - r,
                            gpipe ? micro : 4 - r + TT_BUFFERED_SENDS);
            assert_int_equal(s->slot_bytes[TT_HOLD_KEEP], 0); /* no W, nothing for it */
            for (int h = 0; h < TT_N_HOLDS; h++) {
                assert_int_equal(x.p->bytes[TT_SPACE_SLOT + h], s->n_slots[h] * s->slot_bytes[h]);
                for (int m = 0; m < micro; m++)
                    assert_in_range(s->slot[h][m], 0, s->n_slots[h] - 1);
            }
            job_close(&x.j);
        }
}

/* Zero bubble: values that I reads and W does not are freed after I; the received cotangent is
 * in wgrad; the two stages of a rank have slots of their own. */
static void test_split_backward_has_three_classes(void **state)
{
    planned x;
    open_plan(&x,
              "parallelism.pipeline_parallel_degree 2 training.local_batch_size 8 "
              "parallelism.pipeline_parallel_schedule ZBVZeroBubble",
              0);
    const tt_graph *g = x.p->graph;
    int64_t end[TT_N_HOLDS] = {0};
    (void)state;
    assert_int_equal(x.p->n_stages, 2);
    assert_int_equal(x.p->stages[1].stage, 3);
    for (int i = 0; i < 2; i++) {
        const tt_stage_plan *s = &x.p->stages[i];
        assert_true(s->part[TT_PART_W].n > 5 && s->part[TT_PART_I].n > 5);
        for (int h = 0; h < TT_N_HOLDS; h++) {
            assert_int_equal(s->slot_base[h], end[h]);
            end[h] += s->n_slots[h] * s->slot_bytes[h];
            assert_true(s->slot_bytes[h] > 0);
        }
    }
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        if (n->op != &tt_op_transfer || !tt_plan_here(x.p, n->when->stage))
            continue;
        const tt_space sp = x.p->value[n->out[0]->id].space;
        assert_true(n->when->region == TT_BACKWARD ? sp == TT_SPACE_WGRAD
                                                   : sp == TT_SPACE_SLOT || sp == TT_SPACE_KEEP);
    }
    job_close(&x.j);
}

/* Two micro-batches in one slot, for each slot class that holds values. */
static void test_slots_reused_early_are_refused(void **state)
{
    static const char *const names[] = {"1F1B", "GPipe", "InterleavedZeroBubble"};
    int n = 0;
    (void)state;
    for (size_t k = 0; k < TT_COUNT(names); k++) {
        char text[200];
        snprintf(text, sizeof text, PP4 "%s%s", names[k], k == 2 ? " model.args.n_layers 8" : "");
        planned x;
        open_plan(&x, text, 0);
        for (int i = 0; i < x.p->n_stages; i++)
            for (int h = 0; h < TT_N_HOLDS; h++) {
                tt_stage_plan *s = &x.p->stages[i];
                const int was = s->slot[h][1];
                if (s->slot[h][0] == was || !s->slot_bytes[h])
                    continue;
                s->slot[h][1] = s->slot[h][0];
                refused_as(x.p, "slot is reused");
                s->slot[h][1] = s->n_slots[h];
                refused_as(x.p, "no such slot");
                s->slot[h][1] = was;
                assert_int_equal(verify_again(x.p, NULL), TT_OK);
                n++;
            }
        job_close(&x.j);
    }
    assert_true(n >= 6);
}

/* A value that a later part reads must be in a slot, because other values use work memory
 * between the parts. */
static void test_crossing_value_in_work_is_refused(void **state)
{
    planned x;
    open_plan(&x,
              "parallelism.pipeline_parallel_degree 2 "
              "parallelism.pipeline_parallel_schedule ZBVZeroBubble",
              0);
    int n[TT_N_SPACES] = {0};
    (void)state;
    for (int v = 0; v < x.p->graph->n_values; v++) {
        const tt_loc was = x.p->value[v];
        if (!tt_space_holds(was.space))
            continue;
        x.p->value[v] = (tt_loc){TT_SPACE_WORK, 0, NULL, -1};
        n[was.space] += refused(x.p);
        x.p->value[v] = was;
    }
    assert_true(n[TT_SPACE_SLOT] > 5 && n[TT_SPACE_KEEP] > 5 && n[TT_SPACE_WGRAD] > 5);
    job_close(&x.j);
}

/* A program that lacks a message, or has two of them in another order than the sender, is
 * refused. */
static void test_lost_messages_are_refused(void **state)
{
    planned x;
    open_plan(&x, PP4 "1F1B", 0);
    tt_programs *p = (tt_programs *)(uintptr_t)x.p->programs;
    (void)state;
    x.j.setup.graph->mesh = &x.j.setup.mesh; /* where it lies now */
    for (int r = 0; r < 4; r++)
        for (int i = 0; i < p->n_items[r]; i++) {
            const tt_item was = p->items[r][i];
            if (was.kind == TT_ITEM_RUN)
                continue;
            p->items[r][i] = (tt_item){TT_ITEM_RUN, was.action, -1};
            assert_int_equal(tt_plan_check_ranks(x.p->graph, p, NULL, NULL, NULL), TT_EINTERNAL);
            p->items[r][i] = was;
        }
    assert_int_equal(tt_plan_check_ranks(x.p->graph, p, NULL, NULL, NULL), TT_OK);
    job_close(&x.j);
}

/* ---- the memory of parameters, gradients and states ---- */

static void test_views_and_writes_share_memory(void **state)
{
    planned x;
    open_plan(&x, "", 0);
    const tt_graph *g = x.p->graph;
    int sums = 0, writes = 0, params = 0;
    (void)state;
    for (size_t i = 0; i < g->nodes.n; i++) {
        const tt_node *n = g->nodes.items[i];
        const tt_loc *l = n->n_out ? &x.p->value[n->out[0]->id] : NULL;
        if (n->op == &tt_op_param) {
            assert_int_equal(l->space, TT_SPACE_STATE);
            assert_ptr_equal(l->state, n->param->stack->param);
            assert_int_equal(l->member, n->param->index);
            params++;
        } else if (n->accumulate_into) {
            assert_int_equal(l->space, TT_SPACE_STATE);
            assert_ptr_equal(l->state, n->accumulate_into);
            assert_int_equal(l->member, n->accumulate_index);
            sums++;
        } else if ((n->op->flags & TT_OP_VIEW) && n->n_in) {
            assert_int_equal(l->space, x.p->value[n->in[0]->id].space);
            assert_int_equal(l->offset, x.p->value[n->in[0]->id].offset);
        }
        for (int o = 0; n->assign_to && o < n->n_out; o++)
            if (n->assign_to[o]) {
                assert_int_equal(x.p->value[n->out[o]->id].space, TT_SPACE_STATE);
                assert_ptr_equal(x.p->value[n->out[o]->id].state, n->assign_to[o]);
                writes++;
            }
    }
    assert_true(params > 10 && sums > 10 && writes > 5);
    job_close(&x.j);
}

/* Parameters, two moments and a gradient, once each: the state takes four times the parameters'
 * bytes, and a little more. */
static void test_state_is_what_adamw_needs(void **state)
{
    planned x;
    open_plan(&x, "", 0);
    const int64_t params = x.j.setup.size.parameters * 4, *by = x.p->state_bytes_by_kind;
    (void)state;
    assert_in_range(by[TT_STATE_PARAM], params, params + 64 * 64);
    assert_int_equal(by[TT_STATE_OPTIMIZER], 2 * by[TT_STATE_PARAM]);
    assert_in_range(by[TT_STATE_ACCUMULATOR], by[TT_STATE_PARAM], by[TT_STATE_PARAM] + 1024);
    for (size_t i = 0; i < x.p->graph->states.n; i++)
        assert_true(x.p->state[i] >= 0 && x.p->state[i] % TT_ALIGNMENT == 0);
    job_close(&x.j);
    planned y;
    open_plan(&y, "parallelism.data_parallel_shard_degree 2", 0);
    assert_true(y.p->state_bytes_by_kind[TT_STATE_PARAM] < params * 6 / 10);
    job_close(&y.j);
}

static bool widened(const tt_value *v)
{
    return tt_node_is_cast(v->node) && v->node->in[0]->type.dtype == TT_BF16;
}

/* Bytes of a plan without its state. If activations are stored in a narrower dtype, many
 * operands of the backward are cast back; those of attention are not. */
static int64_t bytes_without_state(const char *overrides)
{
    planned x;
    open_plan(&x, overrides, 0);
    int64_t n = 0;
    int reads = 0;
    for (size_t i = 0; i < x.p->graph->nodes.n; i++) {
        const tt_node *e = x.p->graph->nodes.items[i];
        for (int j = 0; j < e->n_in; j++) {
            reads += e->when->region == TT_BACKWARD && widened(e->in[j]);
            assert_false((e->op->flags & TT_OP_MIXES_TOKENS) && widened(e->in[j]));
        }
    }
    assert_int_equal(reads > 4, x.p->graph->stored > 0);
    for (int sp = TT_SPACE_SLOT; sp < TT_N_SPACES; sp++)
        n += x.p->bytes[sp];
    job_close(&x.j);
    return n;
}

/* Values that attention does not read take half the bytes; attention's operands and values that
 * are being computed do not */
static void test_activations_stored_in_bf16_take_less(void **state)
{
    static const char *const meshes[] = {
        "", "parallelism.tensor_parallel_degree 2",
        "parallelism.pipeline_parallel_degree 2 parallelism.pipeline_parallel_schedule GPipe",
        "parallelism.pipeline_parallel_degree 2 parallelism.pipeline_parallel_schedule "
        "ZBVZeroBubble"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(meshes); i++) {
        char narrow[300];
        snprintf(narrow, sizeof narrow, "%s%sactivation_checkpoint.store_dtype bfloat16", meshes[i],
                 *meshes[i] ? " " : "");
        const int64_t a = bytes_without_state(meshes[i]), b = bytes_without_state(narrow);
        if (b > a * 85 / 100)
            fail_msg("\"%s\": %lld bytes of %lld", meshes[i], (long long)b, (long long)a);
    }
}

static void test_hash_differs_between_plans(void **state)
{
    planned x, y, z;
    open_plan(&x, "", 0);
    open_plan(&y, "", 0);
    open_plan(&z, "training.seq_len 38", 0);
    (void)state;
    assert_true(x.p->hash == y.p->hash);
    assert_true(x.p->hash != z.p->hash);
    job_close(&x.j);
    job_close(&y.j);
    job_close(&z.j);
    open_plan(&x, "parallelism.pipeline_parallel_degree 2", 0);
    open_plan(&y, "parallelism.pipeline_parallel_degree 2", 1);
    assert_true(x.p->hash == y.p->hash); /* equal on all ranks */
    job_close(&x.j);
    job_close(&y.j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_two_values_alive_share_a_byte),
        cmocka_unit_test(test_moved_values_are_refused),
        cmocka_unit_test(test_values_outside_their_space_are_refused),
        cmocka_unit_test(test_scratch_on_operands_is_refused),
        cmocka_unit_test(test_slots_follow_the_schedule),
        cmocka_unit_test(test_split_backward_has_three_classes),
        cmocka_unit_test(test_slots_reused_early_are_refused),
        cmocka_unit_test(test_crossing_value_in_work_is_refused),
        cmocka_unit_test(test_lost_messages_are_refused),
        cmocka_unit_test(test_views_and_writes_share_memory),
        cmocka_unit_test(test_state_is_what_adamw_needs),
        cmocka_unit_test(test_activations_stored_in_bf16_take_less),
        cmocka_unit_test(test_hash_differs_between_plans),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
