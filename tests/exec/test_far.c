/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "exec/exec_impl.h"
#include "exec/far_folder.h"
#include "exec/steps.h"
#include "heap.h"
#include "plugins/far/far.h"
#include "tier.h"
#include <unistd.h>

/* Programs on the device of tests/plugins/far: their numbers are the reference's, in whatever order the
 * device runs what the program leaves open, and each instruction that is left out is found. */

#define ACTIVATIONS                                                                                \
    "activation_checkpoint.offload all training.seq_len 12 training.local_batch_size 2 "           \
    "model.args.n_layers 3 "

static const char *const meshes[] = {
    "parallelism.data_parallel_shard_degree 2 comm.overlap on training.seq_len 9 "
    "training.local_batch_size 2 training.global_batch_size 8 model.args.n_layers 2",
    "parallelism.tensor_parallel_degree 2 parallelism.enable_async_tensor_parallel true "
    "comm.overlap on training.seq_len 16 training.local_batch_size 2 model.args.dim 96 "
    "model.args.n_layers 1",
    "parallelism.pipeline_parallel_degree 2 parallelism.data_parallel_shard_degree 2 comm.overlap "
    "on "
    "training.seq_len 9 training.local_batch_size 4 "
    "parallelism.pipeline_parallel_microbatches 2 model.args.n_layers 2",
    ACTIVATIONS,
    ACTIVATIONS "activation_checkpoint.mode full parallelism.pipeline_parallel_degree 2 "
                "training.local_batch_size 4 parallelism.pipeline_parallel_microbatches 2 "
                "model.args.n_layers 4",
    "training.enable_cpu_offload true training.seq_len 9 training.local_batch_size 2 "
    "model.args.n_layers 2",
};

enum { N_COMMUNICATING = 3, N_MUTATED = 5 }; /* of meshes: the first ones */
enum { N_STEPS = 2, N_SEEDS = 20, N_MUTATED_SEEDS = 4 };

static void open_far(job *j, const char *overrides, const char *comm)
{
    char text[1000];
    snprintf(text, sizeof text, "%s backend.name far comm.backend %s", overrides, comm);
    job_open(j, text);
}

static void set_seed(job *j, int seed)
{
    ((far_config *)(void *)(uintptr_t)j->setup.backend.config)->seed = seed;
}

static bool same_steps(const steps *a, const steps *b)
{
    bool same = true;
    for (int i = 0; i < N_STEPS; i++)
        same &= !memcmp(&a->loss[i], &b->loss[i], sizeof *a->loss) &&
                !memcmp(&a->norm[i], &b->norm[i], sizeof *a->norm);
    for (int r = 0; r < 16; r++)
        same &= a->ranks[r].bits == b->ranks[r].bits && a->metrics[r] == b->metrics[r];
    return same;
}

static void reference_steps(const char *overrides, steps *s)
{
    char text[1000];
    snprintf(text, sizeof text, "%s backend.name reference", overrides);
    steps_run(text, N_STEPS, s);
}

/* How many seeds of N_SEEDS a test takes, and the k-th of them for a job: others for each. */
static int seeds(void)
{
    return is_long() ? N_SEEDS : 2;
}
static int seed_of(size_t which, int k)
{
    return 1 + (int)(2 * which + (size_t)k) % N_SEEDS;
}

/* With far's communicator, and with the host's between copies. */
static void test_every_seed_gives_the_numbers_of_the_reference(void **state)
{
    (void)state;
    for (size_t m = 0; m < TT_COUNT(meshes); m++) {
        steps right;
        reference_steps(meshes[m], &right);
        for (int staged = 0; staged < 2; staged++) {
            job j;
            steps s;
            open_far(&j, meshes[m], staged ? "local" : "far");
            for (int k = 0; k < seeds(); k++) {
                tt_error err = {0};
                const int seed = seed_of(2 * m + (size_t)staged, k);
                set_seed(&j, seed);
                if (steps_of_job(&j, N_STEPS, &s, &err) != TT_OK)
                    fail_msg("%s: seed %d: %s", meshes[m], seed, err.text);
                steps_same_bits(&right, &s, meshes[m]);
                assert_memory_equal(right.metrics, s.metrics, sizeof s.metrics);
            }
            job_close(&j);
        }
    }
}

/* ---- one instruction left out ---- */

/* Every one in make test-long; elsewhere one of so many, which ones differs by job. */
enum { ONE_OF = 24 };

typedef struct left_out {
    int at;
    bool needed; /* no other instruction orders what this one orders */
    char text[160];
} left_out;

static struct {
    int rank, at;   /* which is left out; at < 0: none */
    uint32_t kinds; /* bit per tt_instr_kind: which ones are left out in turn */
    int n[16];
    left_out *list[16];
} out;

typedef struct place { /* bytes of a space that an instruction touches */
    int space;
    int64_t begin, end; /* empty: none */
} place;

/* A collective uses its scratch only for boxes that do not lie one behind the other. */
static bool uses_scratch(const tt_bound *b)
{
    const tt_exchange *e = b->exchange;
    return b->scratch && (!e || (e->kind != TT_STEP_ALL_GATHER && !e->packed) ||
                          (e->kind != TT_STEP_REDUCE_SCATTER && !e->unpacked));
}

/* Operand k of an instruction, its inputs first, its scratch last; of a slot all micro-batches'. */
static place place_of(const tt_exec *x, const tt_bound *b, int k)
{
    const tt_instr *i = b->instr;
    if (k == i->n_in + i->n_out)
        return (place){TT_SPACE_WORK, i->scratch,
                       i->scratch + (uses_scratch(b) ? i->scratch_bytes : 0)};
    const tt_operand *o = &x->p->operands[k < i->n_in ? i->in[k] : i->out[k - i->n_in]];
    place p = {o->space, o->offset, o->offset + (o->here ? tt_tensor_bytes(&o->tensor) : 0)};
    if (o->slot >= 0 && p.end > p.begin) {
        const tt_slot_rule *s = &x->p->slots[o->slot];
        p.begin += s->base;
        p.end += s->base + (s->n - 1) * s->bytes;
    }
    return p;
}

/* Do both touch a byte, and one of them writes it? */
static bool conflict(const tt_exec *x, const tt_bound *a, const tt_bound *b)
{
    if (a->kind == TT_INSTR_ADOPT)
        return false;
    for (int i = 0; i <= a->n_in + a->n_out; i++)
        for (int k = 0; k <= b->n_in + b->n_out; k++) {
            const place p = place_of(x, a, i), q = place_of(x, b, k);
            if ((i >= a->n_in || k >= b->n_in) && p.space == q.space && p.begin < p.end &&
                q.begin < q.end && p.begin < q.end && q.begin < p.end)
                return true;
        }
    return false;
}

static int event_before(const tt_program *p, int at, int first, tt_instr_kind kind, int queue,
                        int event)
{
    while (--at >= first)
        if (p->instrs[at].kind == kind && p->instrs[at].queue == queue &&
            (!event || p->instrs[at].event == event))
            return at;
    return -1;
}

/* A group's queue waits for queue 0 before each of its collectives. That wait, and the record that it
 * refers to, orders nothing new if no other queue has touched the operands of the collective since
 * the record that the group's queue waited for before. Every other event orders something. */
static bool orders_something(const tt_exec *x, int at)
{
    const tt_program *p = x->p;
    const tt_instr *i = &p->instrs[at];
    int s = 0;
    while (at >= p->sections[s].end)
        s++;
    const int first = p->sections[s].begin;
    const int wait = i->kind == TT_INSTR_RECORD && !i->queue ? at + 1 : at;
    const int queue = p->instrs[wait].queue;
    if (!queue || p->instrs[wait].kind != TT_INSTR_WAIT)
        return true;
    const int earlier = event_before(p, wait, first, TT_INSTR_WAIT, queue, 0);
    if (earlier < 0 || p->instrs[earlier].predicate != i->predicate)
        return true;
    const int since = event_before(p, earlier, first, TT_INSTR_RECORD, 0, p->instrs[earlier].event);
    for (int k = since; k <= wait; k++)
        if (p->instrs[k].queue != queue && conflict(x, &x->code[k], &x->code[wait + 1]))
            return true;
    return false;
}

static void list_instructions(tt_rank *r)
{
    const tt_program *p = r->plan->program;
    const int rank = r->dist.rank;
    const bool events = out.kinds >> TT_INSTR_WAIT & 1;
    left_out *list = tt_arena_array(r->s->arena, (size_t)p->n, sizeof *list);
    int n = 0;
    for (int i = 0; i < p->n; i++) {
        const tt_instr *k = &p->instrs[i];
        if (!(out.kinds >> k->kind & 1))
            continue;
        list[n] = (left_out){i, !events || orders_something(r->exec, i), ""};
        snprintf(list[n++].text, sizeof list->text,
                 "rank %d, instruction %d: %s %s on queue %d, before %s in \"%s\"", rank, i,
                 tt_instr_kind_name((tt_instr_kind)k->kind), k->input ? k->input : "", k->queue,
                 i + 1 < p->n ? k[1].op : "", i + 1 < p->n ? k[1].scope : k->scope);
    }
    out.list[rank] = list;
    out.n[rank] = n;
}

static void write_words(const tt_rank *r, int space, int64_t offset, int64_t bytes, uint32_t word)
{
    tt_error err = {0};
    uint32_t *x = malloc((size_t)bytes + sizeof *x);
    for (int64_t k = 0; k <= bytes / 4; k++)
        x[k] = word;
    if (tt_exec_write(r->exec, r->exec->space[space] + offset, x, (size_t)bytes, &err) != TT_OK)
        fail_msg("%s", err.text);
    free(x);
}

/* What the program stores before it reads or adds to it begins as NaN or, of states, as infinity,
 * which a maximum keeps. */
static void spoil_memory(const tt_rank *r)
{
    const tt_program *p = r->plan->program;
    for (int sp = TT_SPACE_SLOT; sp < TT_N_SPACES; sp++)
        write_words(r, sp, 0, p->bytes[sp], UINT32_MAX);
    for (int i = 0; i < p->n_states; i++) {
        const tt_program_state *s = &p->states[i];
        if (s->fresh && s->offset >= 0)
            write_words(r, TT_SPACE_STATE, s->offset, tt_tensor_bytes(&s->tensor),
                        s->tensor.dtype == TT_F32 ? 0x7f800000 : 0x7f807f80);
    }
}

/* A place that is to be filled with zeros may hold zeros already: there a fill with minus infinity
 * stands for a fill that is left out. */
static void leave_out(tt_rank *r)
{
    spoil_memory(r);
    if (out.at < 0)
        list_instructions(r);
    if (out.at < 0 || r->dist.rank != out.rank)
        return;
    tt_bound *b = &r->exec->code[out.at];
    if (b->kind == TT_INSTR_FILL && b->exchange->reduce == TT_SUM)
        b->exchange->reduce = TT_MAX;
    else
        b->predicate = TT_PRED_NEVER;
}

/* Does one of the orders lead to an error or to other numbers? */
static bool is_found(job *j, const steps *right)
{
    for (int seed = 0; seed < N_MUTATED_SEEDS; seed++) {
        steps s;
        tt_error err = {0};
        set_seed(j, seed);
        if (steps_of_job(j, N_STEPS, &s, &err) != TT_OK || !same_steps(right, &s))
            return true;
    }
    return false;
}

/* Each is found, but for events that order nothing. Returns how many were left out, one at a time. */
static int leave_out_each(uint32_t kinds)
{
    const bool all = is_long();
    int n = 0, n_wrong = 0;
    for (size_t m = 0; m < N_MUTATED; m++) {
        job j;
        steps right;
        tt_error err = {0};
        int number = 0;
        memset(&out, 0, sizeof out);
        out.at = -1;
        out.kinds = kinds;
        open_far(&j, meshes[m], "far debug.capture off"); /* around graphs queues are fenced */
        steps_break = leave_out;
        if (steps_of_job(&j, N_STEPS, &right, &err) != TT_OK)
            fail_msg("%s: %s", meshes[m], err.text);
        for (out.rank = 0; out.rank < j.setup.world; out.rank++)
            for (int i = 0; i < out.n[out.rank]; i++) {
                const left_out *l = &out.list[out.rank][i];
                if (number++ % ONE_OF && !all)
                    continue;
                out.at = l->at;
                n++;
                if (is_found(&j, &right) == l->needed)
                    continue;
                n_wrong++;
                print_message("%s: %s: %s\n", meshes[m], l->text,
                              l->needed ? "nobody noticed that it is gone"
                                        : "found, although nothing needs it");
            }
        steps_break = NULL;
        job_close(&j);
    }
    assert_int_equal(n_wrong, 0);
    return n;
}

static void test_each_event_that_is_left_out_is_found(void **state)
{
    (void)state;
    assert_true(leave_out_each(1u << TT_INSTR_RECORD | 1u << TT_INSTR_WAIT) >= 20);
}

static void test_each_copy_that_is_left_out_is_found(void **state)
{
    (void)state;
    assert_true(leave_out_each(1u << TT_INSTR_COPY | 1u << TT_INSTR_FILL | 1u << TT_INSTR_INPUT) >=
                10);
}

/* ---- the host goes on ---- */

#define WIDE /* inputs fill pages of pinned memory, which far then closes while a copy names them */ \
    "training.seq_len 300 model.args.dim 12 model.args.n_heads 2 model.args.n_kv_heads 1 "           \
    "model.args.hidden_dim 8 model.args.n_layers 1 "

/* Passes over the micro-batches before anything has waited for the first, as in a prompt of several
 * pieces: they may write neither to inputs on their way up, nor to those that the device still reads. */
static void test_inputs_of_the_next_pass_wait_for_those_of_the_last_one(void **state)
{
    steps right;
    (void)state;
    steps_run(WIDE "backend.name reference", 1, &right);
    for (int seed = 0; seed < 2; seed++) {
        job j;
        tt_rank r;
        steps s = {0};
        tt_error err = {0};
        const tt_dist d = {.world = 1};
        job_open(&j, WIDE "backend.name far");
        set_seed(&j, seed);
        s.setup = &j.setup;
        assert_int_equal(tt_rank_open(&j.setup, &d, false, &r, &err), TT_OK);
        assert_int_equal(tt_rank_init_params(&r, &err), TT_OK);
        for (int pass = 0; pass < 2; pass++)
            if (tt_exec_micro_batches(r.exec, 1, steps_fill, &s, &err) != TT_OK)
                fail_msg("seed %d: %s", seed, err.text);
        if (steps_one(&s, &r, 0, 0, &err) != TT_OK)
            fail_msg("seed %d: %s", seed, err.text);
        assert_memory_equal(&s.loss[0], &right.loss[0], sizeof(double));
        assert_memory_equal(&s.norm[0], &right.norm[0], sizeof(double));
        tt_rank_close(&r);
        job_close(&j);
    }
}

/* ---- times ---- */

static void trace_on(tt_rank *r)
{
    tt_error err = {0};
    if (tt_exec_trace_open(r->exec, &err) != TT_OK)
        fail_msg("%s", err.text);
    tt_exec_trace(r->exec, true);
}

/* How often an instruction runs in a step outside loops. */
static int runs_of(const tt_program *p, int at, int section)
{
    const tt_instr *i = &p->instrs[at];
    int n = section >= p->epilogue && i->predicate & 1;
    for (int c = 0; c < p->n_calls; c++)
        n += p->calls[c].section == section && i->predicate >> !p->calls[c].first & 1;
    return n;
}

static int events_of(const tt_trace *t, const tt_instr *i, bool wait)
{
    int n = 0;
    for (size_t e = 0; e < t->n; e++)
        n += t->events[e].instr == i && t->events[e].wait == wait;
    return n;
}

static void check_trace(tt_rank *r)
{
    const tt_program *p = r->plan->program;
    tt_error err = {0};
    tt_exec_trace(r->exec, false);
    if (tt_exec_trace_times(r->exec, &err) != TT_OK)
        fail_msg("%s", err.text);
    const tt_trace *t = tt_exec_traced(r->exec);
    int64_t last[8] = {0}, stood = 0;
    assert_int_equal(t->dropped, 0);
    for (size_t e = 0; e < t->n; e++) {
        const tt_trace_event *v = &t->events[e];
        assert_true(v->begin_ns > last[v->queue] && v->end_ns > v->begin_ns);
        last[v->queue] = v->end_ns;
        const bool update = v->instr - p->instrs >= p->sections[p->update].begin;
        stood += !v->queue && !update && (v->wait || tt_instr_communicates(v->instr))
                     ? v->end_ns - v->begin_ns
                     : 0;
    }
    for (int s = 0; s < p->n_sections; s++)
        for (int k = p->sections[s].begin; k < p->sections[s].end; k++) {
            const tt_instr *i = &p->instrs[k];
            if (i->kind == TT_INSTR_LOOP)
                k = i->end;
            else if (i->kind < TT_INSTR_ADOPT)
                assert_int_equal(events_of(t, i, false), runs_of(p, k, s));
            if (i->kind == TT_INSTR_COLLECTIVE)
                assert_int_equal(events_of(t, i, true), i->queue ? runs_of(p, k, s) : 0);
        }
    assert_true(stood > 0);
    assert_true(1e9 * tt_exec_comm_seconds(r->exec) > (double)stood);
    assert_true(t->n_items > 0);
    for (int i = 0; i < t->n_items; i++) {
        const tt_item_time *x = &t->items[i];
        assert_true(x->begin_ns > (i ? t->items[i - 1].end_ns : 0) && x->end_ns > x->begin_ns);
        assert_true(x->message_ns >= 0 && x->cpu_ns >= 0);
        assert_true(x->message_ns + x->cpu_ns >= x->end_ns - x->begin_ns);
    }
}

static void test_a_trace_has_the_times_of_the_device(void **state)
{
    (void)state;
    steps_break = trace_on;
    steps_after = check_trace;
    for (size_t m = 0; m < N_COMMUNICATING; m++)
        for (int seed = 0; seed < 4; seed++) {
            job j;
            steps s;
            tt_error err = {0};
            if (!in_tier(m, (size_t)seed, 4))
                continue;
            open_far(&j, meshes[m], "far");
            set_seed(&j, seed);
            if (steps_of_job(&j, 1, &s, &err) != TT_OK)
                fail_msg("%s: seed %d: %s", meshes[m], seed, err.text);
            job_close(&j);
        }
    steps_break = steps_after = NULL;
}

/* ---- metrics.lag ---- */

enum { N_LATE = 4 };
static double in_time[N_LATE][2], late[N_LATE][2]; /* loss and norm by step */

static void put_step(tt_rank *r, int step, tt_status (*then)(tt_exec *x, tt_error *err))
{
    tt_error err = {0};
    steps of = {.setup = r->s};
    tt_exec_set_scalar(r->exec, TT_SCALAR_INV_TOKENS, 1.0 / (300 + step));
    tt_exec_set_scalar(r->exec, TT_SCALAR_LR, 1e-3 * (step + 1));
    if (tt_exec_micro_batches(r->exec, step + 1, steps_fill, &of, &err) != TT_OK ||
        (then && then(r->exec, &err) != TT_OK) || tt_exec_epilogue(r->exec, &err) != TT_OK)
        fail_msg("%s", err.text);
}

static void note_numbers(const tt_rank *r, double *to)
{
    to[0] = tt_exec_metric(r->exec, TT_METRIC_LOSS);
    to[1] = tt_exec_metric(r->exec, TT_METRIC_NORM);
}

static void steps_in_time(tt_rank *r)
{
    tt_error err;
    assert_false(r->late);
    for (int i = 0; i < N_LATE; i++) {
        put_step(r, i, NULL);
        assert_false(tt_exec_metrics_late(r->exec));
        note_numbers(r, in_time[i]);
        assert_int_equal(tt_exec_update(r->exec, &err), TT_OK);
    }
}

/* The micro-batches of step i are on the queues before the numbers of step i - 1 are waited for. */
static void steps_late(tt_rank *r)
{
    tt_error err;
    assert_true(r->late);
    for (int i = 0; i < N_LATE; i++) {
        double before[2];
        note_numbers(r, before);
        put_step(r, i, i ? tt_exec_finish_metrics : NULL);
        if (i)
            note_numbers(r, late[i - 1]);
        assert_true(tt_exec_metrics_late(r->exec));
        assert_true(!i || before[0] != late[i - 1][0]); /* it was not known before */
        assert_int_equal(tt_exec_update(r->exec, &err), TT_OK);
    }
    assert_int_equal(tt_exec_finish_metrics(r->exec, &err), TT_OK);
    assert_false(tt_exec_metrics_late(r->exec));
    assert_int_equal(tt_exec_finish_metrics(r->exec, &err), TT_OK); /* does nothing */
    note_numbers(r, late[N_LATE - 1]);
}

static void test_late_metrics_come_after_the_next_step_is_on_the_queues(void **state)
{
    static const char *const alone = "training.seq_len 9 training.local_batch_size 2 "
                                     "training.global_batch_size 4 model.args.n_layers 2";
    (void)state;
    for (int seed = 0; seed < seeds(); seed++)
        for (int lag = 0; lag < 2; lag++) {
            job j;
            steps s;
            tt_error err = {0};
            char text[400];
            snprintf(text, sizeof text, "%s metrics.lag %d", alone, lag);
            open_far(&j, text, "local");
            set_seed(&j, seed);
            steps_break = lag ? steps_late : steps_in_time;
            if (steps_of_job(&j, 0, &s, &err) != TT_OK)
                fail_msg("seed %d: %s", seed, err.text);
            job_close(&j);
            if (lag)
                assert_memory_equal(in_time, late, sizeof late);
        }
    steps_break = NULL;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_seed_gives_the_numbers_of_the_reference),
        cmocka_unit_test(test_each_event_that_is_left_out_is_found),
        cmocka_unit_test(test_each_copy_that_is_left_out_is_found),
        cmocka_unit_test(test_inputs_of_the_next_pass_wait_for_those_of_the_last_one),
        cmocka_unit_test(test_a_trace_has_the_times_of_the_device),
        cmocka_unit_test(test_late_metrics_come_after_the_next_step_is_on_the_queues),
    };

    return cmocka_run_group_tests(tests, far_folder, NULL);
}
