/* SPDX-License-Identifier: Apache-2.0 */
#include "passes/passes.h"
#include "plan/planned.h"

/* The programs of a few small jobs equal tests/golden/programs exactly, and tt_program_verify
 * refuses each program in which one wait, one event or one predicate is missing or changed.
 * TT_UPDATE_GOLDEN=1 writes the golden files instead: read the diff before committing it. */

typedef struct golden {
    const char *name, *options;
    int pp_rank;
} golden;

static const golden jobs[] = {
    {"one",       "training.global_batch_size 8",                                                 0},
    {"fsdp2",     "parallelism.data_parallel_shard_degree 2 comm.overlap on",                     0},
    {"tp2_async",
     "parallelism.tensor_parallel_degree 2 parallelism.enable_async_tensor_parallel true "
     "model.args.dim 96 comm.overlap on",                                                         0},
    {"pp2_first", "parallelism.pipeline_parallel_degree 2 model.args.n_layers 2",                 0},
    {"pp2_last",  "parallelism.pipeline_parallel_degree 2 model.args.n_layers 2",                 1},
    {"chunks",    "training.seq_len 400 training.local_batch_size 1 model.args.vocab_size 90001", 0},
    {"decode",    "",                                                                             0},
};

/* The reference backend's scratch and fusions are the same on every machine. */
static const char small[] =
    "backend.name reference model.args.n_layers 1 model.args.dim 16 model.args.n_heads 2 "
    "model.args.n_kv_heads 2 model.args.hidden_dim 24 training.seq_len 8 ";

static void open_golden(const golden *g, job *j, tt_plan **p)
{
    char options[600];
    const tt_setup_opts o = {
        .mode = !strcmp(g->name, "decode") ? TT_MODE_DECODE : TT_MODE_TRAIN,
        .decode = {4, 2, 40},
        .compile = true,
        .data = true
    };
    tt_error err = {0};
    tt_log_setup(TT_ERROR, 0, 1, false);
    snprintf(options, sizeof options, "%s%s", small, g->options);
    if (job_try(j, job_text, options, &o, &err) != TT_OK ||
        tt_setup_plan(&j->setup, j->setup.graph, j->setup.schedule, g->pp_rank, j->arena, p,
                      &err) != TT_OK)
        fail_msg("%s: %s", g->name, err.text);
}

static void compare(const char *path, const char *have, const char *want)
{
    int line = 1;
    size_t at = 0, i = 0;
    for (; have[i] && have[i] == want[i]; i++)
        if (have[i] == '\n') {
            line++;
            at = i + 1;
        }
    if (have[i] || want[i])
        fail_msg("%s:%d\n  printed: %.*s\n  golden:  %.*s\n(TT_UPDATE_GOLDEN=1 rewrites it)", path,
                 line, (int)strcspn(have + at, "\n"), have + at, (int)strcspn(want + at, "\n"),
                 want + at);
}

static void test_programs_are_the_golden_ones(void **state)
{
    const char *src = getenv("SRC");
    (void)state;
    for (size_t k = 0; k < TT_COUNT(jobs); k++) {
        char path[1024], *want = NULL;
        size_t n;
        job j;
        tt_plan *p;
        tt_error err = {0};
        tt_str have = {0};
        open_golden(&jobs[k], &j, &p);
        tt_program_print(p->program, &have);
        snprintf(path, sizeof path, "%s/tests/golden/programs/%s.txt", src ? src : ".",
                 jobs[k].name);
        if (getenv("TT_UPDATE_GOLDEN")) {
            assert_int_equal(tt_write_file_atomic(path, tt_str_get(&have), have.n, &err), TT_OK);
        } else {
            if (tt_read_file(path, 0, &want, &n, &err) != TT_OK)
                fail_msg("%s", err.text);
            compare(path, tt_str_get(&have), want);
            free(want);
        }
        tt_str_free(&have);
        job_close(&j);
    }
}

/* debug.dump_program writes the text that tt_program_print gives, for the rank whose program it
 * is. */
static void test_a_dump_is_the_program(void **state)
{
    char folder[512], options[1024], path[1024], *text;
    size_t n;
    tt_error err = {0};
    tt_str print = {0};
    (void)state;
    snprintf(folder, sizeof folder, "%s/programs", job_folder());
    snprintf(options, sizeof options,
             "parallelism.data_parallel_shard_degree 2 parallelism.pipeline_parallel_degree 2 "
             "debug.dump_program %s",
             folder);
    planned x;
    open_plan(&x, options, 1);
    x.j.setup.graph->mesh = &x.j.setup.mesh; /* where it lies now */
    for (int r = 2; r < 4; r++) {
        assert_int_equal(tt_setup_rank_plan(&x.j.setup, x.j.setup.graph, x.j.setup.schedule, r,
                                            NULL, x.j.arena, &x.p, &err),
                         TT_OK);
        assert_int_equal(x.p->pp_rank, 1);
        snprintf(path, sizeof path, "%s/program-rank%d.txt", folder, r);
        tt_str_clear(&print);
        tt_program_print(x.p->program, &print);
        assert_int_equal(tt_read_file(path, 0, &text, &n, &err), TT_OK);
        assert_string_equal(text, tt_str_get(&print));
        assert_non_null(strstr(text, r == 2 ? "dp_shard 0" : "dp_shard 1"));
        free(text);
    }
    tt_str_free(&print);
    job_close(&x.j);
}

/* ---- one item missing or changed ---- */

static const char *const meshes[] = {
    "training.global_batch_size 8",
    "parallelism.data_parallel_shard_degree 2 training.global_batch_size 16 comm.overlap on",
    "parallelism.data_parallel_shard_degree 2 training.global_batch_size 16 comm.overlap on "
    "parallelism.fsdp_reshard_after_forward never",
    "parallelism.tensor_parallel_degree 2 parallelism.enable_async_tensor_parallel true "
    "comm.overlap on model.args.dim 96 training.global_batch_size 8",
    "parallelism.data_parallel_shard_degree 2 parallelism.pipeline_parallel_degree 2 "
    "training.global_batch_size 16 parallelism.pipeline_parallel_schedule ZBVZeroBubble "
    "comm.overlap on",
    "training.seq_len 513 training.local_batch_size 1 training.global_batch_size 2 "
    "model.args.vocab_size 9001",
};

typedef struct found {
    int waits, records, events, predicates, queues, conditions;
} found;

static void refused_program(const tt_program *p, const tt_instr *i, const char *how)
{
    tt_error err = {0};
    if (tt_program_verify(p, &err) == TT_OK)
        fail_msg("instruction %d, %s in \"%s\": %s is not refused", (int)(i - p->instrs), i->op,
                 i->scope, how);
    assert_non_null(strstr(err.text, "memory plan: "));
}

/* An instruction that never runs. */
static void without(tt_program *p, tt_instr *i, const char *how)
{
    const tt_predicate was = i->predicate;
    i->predicate = TT_PRED_NEVER;
    refused_program(p, i, how);
    i->predicate = was;
}

static void with_another_event(tt_program *p, tt_instr *i)
{
    const int was = i->event;
    i->event = was > 2 ? was - 2 : was + 2;
    if (i->event <= p->n_events)
        refused_program(p, i, "another event");
    i->event = was;
}

/* Does the instruction write a state that each step writes anew? */
static bool stores(const tt_program *p, const tt_instr *i)
{
    for (int j = 0; j < i->n_out; j++)
        for (int s = 0; s < p->n_states; s++) {
            const tt_operand *o = &p->operands[i->out[j]];
            const tt_program_state *t = &p->states[s];
            if (o->space == TT_SPACE_STATE && o->here && tt_tensor_numel(&o->tensor) && t->fresh &&
                o->offset >= t->offset &&
                o->offset < t->offset + tt_tensor_numel(&t->tensor) *
                                            (int64_t)tt_dtype_size(t->tensor.dtype))
                return true;
        }
    return false;
}

static void with_another_predicate(tt_program *p, tt_instr *i, found *n)
{
    const tt_predicate predicate = i->predicate, adds = i->adds;
    if (predicate != TT_PRED_ALWAYS) {
        i->predicate = TT_PRED_ALWAYS;
        refused_program(p, i, "always");
        i->predicate = TT_PRED_NEVER;
        refused_program(p, i, "never");
        i->predicate = predicate;
        n->predicates += 2;
    }
    if (adds) {
        i->adds = TT_PRED_NEVER;
        refused_program(p, i, "never to add");
        i->adds = TT_PRED_ALWAYS;
        if (adds != TT_PRED_ALWAYS)
            refused_program(p, i, "always to add");
        i->adds = adds;
        n->predicates += 2;
    }
}

static void change_each(tt_program *p, found *n)
{
    for (tt_instr *i = p->instrs; i < p->instrs + p->sections[p->epilogue].begin; i++) {
        if (i->kind == TT_INSTR_WAIT || i->kind == TT_INSTR_RECORD) {
            without(p, i, "one less");
            with_another_event(p, i);
            *(i->kind == TT_INSTR_WAIT ? &n->waits : &n->records) += 1;
            n->events++;
        } else if (stores(p, i)) {
            with_another_predicate(p, i, n);
        }
        if (i->kind == TT_INSTR_COLLECTIVE && i->queue) {
            const uint8_t was = i->queue;
            i->queue = 0;
            refused_program(p, i, "queue 0");
            i->queue = was;
            n->queues++;
        }
    }
}

/* Sets `here` of each output of the epilogue that is this state; returns how many there are. */
static int set_here(tt_program *p, const tt_program_state *state, bool here)
{
    const tt_section *epilogue = &p->sections[p->epilogue];
    int n = 0;
    for (int k = epilogue->begin; k < epilogue->end; k++)
        for (int j = 0; j < p->instrs[k].n_out; j++) {
            tt_operand *o = &p->operands[p->instrs[k].out[j]];
            if (o->space != TT_SPACE_STATE || o->offset != state->offset)
                continue;
            o->here = here;
            n++;
        }
    return n;
}

/* The update runs only where "ok", which the epilogue writes, is not 0; every other section
 * always runs. */
static void with_another_condition(tt_program *p, found *n)
{
    tt_section *update = &p->sections[p->update];
    const int was = update->only_if;
    assert_true(was >= 0);
    assert_string_equal(p->states[was].name, TT_METRIC_OK);
    for (int s = 0; s < p->n_sections; s++)
        for (int k = -1; k < p->n_states; k++) {
            tt_section *x = &p->sections[s];
            const int own = x->only_if;
            if (k == own || x->begin == x->end)
                continue;
            x->only_if = k;
            refused_program(p, &p->instrs[x->begin], "another condition");
            x->only_if = own;
            n->conditions++;
        }
    assert_true(set_here(p, &p->states[was], false) > 0);
    refused_program(p, &p->instrs[update->begin], "an update whose condition nobody writes");
    set_here(p, &p->states[was], true);
}

static void test_a_program_that_lacks_one_thing_is_refused(void **state)
{
    found n = {0};
    (void)state;
    for (size_t k = 0; k < TT_COUNT(meshes); k++) {
        int stages = 1;
        for (int r = 0; r < stages; r++) {
            planned x;
            open_plan(&x, meshes[k], r);
            stages = x.j.setup.pipeline_ranks;
            change_each(x.p->program, &n);
            with_another_condition(x.p->program, &n);
            assert_int_equal(tt_program_verify(x.p->program, NULL), TT_OK);
            job_close(&x.j);
        }
    }
    print_message("    %d waits, %d records, %d events, %d predicates, %d queues, %d conditions\n",
                  n.waits, n.records, n.events, n.predicates, n.queues, n.conditions);
    assert_true(n.waits > 100 && n.records > 100 && n.predicates > 100 && n.queues > 50);
}

/* Moves each operand to another offset, or marks it as another rank's. */
static void test_a_value_from_elsewhere_is_refused(void **state)
{
    int n = 0;
    (void)state;
    planned x;
    open_plan(&x, "parallelism.pipeline_parallel_degree 2", 1);
    tt_program *p = x.p->program;
    for (int k = 0; k < p->n_operands; k++) {
        tt_operand *o = &p->operands[k];
        if (o->space < TT_SPACE_SLOT || !o->here || o->writer != k)
            continue;
        o->here = false;
        tt_error err = {0};
        n += tt_program_verify(p, &err) != TT_OK;
        o->here = true;
    }
    assert_true(n > 60);
    assert_int_equal(tt_program_verify(p, NULL), TT_OK);
    job_close(&x.j);
}

/* Moves each operand of a state to a place next to its space, or to one that is outside in part. */
static void test_a_state_outside_its_space_is_refused(void **state)
{
    static const char *const options[] = {
        "model.args.n_layers 2 parallelism.data_parallel_shard_degree 2",
        "model.args.n_layers 2 training.enable_cpu_offload true"};
    (void)state;
    for (size_t i = 0; i < TT_COUNT(options); i++) {
        int n = 0;
        planned x;
        open_plan(&x, options[i], 0);
        tt_program *p = x.p->program;
        for (int k = 0; k < p->n_operands; k++) {
            tt_operand *o = &p->operands[k];
            const int64_t was = o->offset, bytes = tt_tensor_bytes(&o->tensor),
                          whole = p->bytes[o->space],
                          outside[] = {-1, -bytes, whole, whole - bytes + 1};
            if ((o->space != TT_SPACE_STATE && o->space != TT_SPACE_PINNED) || !o->here || !bytes)
                continue;
            o->offset = outside[n++ % 4];
            if (tt_program_verify(p, NULL) == TT_OK)
                fail_msg("operand %d at %lld of %lld", k, (long long)o->offset, (long long)whole);
            o->offset = was;
        }
        assert_true(n > 50);
        assert_int_equal(tt_program_verify(p, NULL), TT_OK);
        job_close(&x.j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_programs_are_the_golden_ones),
        cmocka_unit_test(test_a_dump_is_the_program),
        cmocka_unit_test(test_a_program_that_lacks_one_thing_is_refused),
        cmocka_unit_test(test_a_state_outside_its_space_is_refused),
        cmocka_unit_test(test_a_value_from_elsewhere_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
