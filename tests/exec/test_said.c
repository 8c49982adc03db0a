/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/exec_impl.h"
#include "exec/steps.h"
#include "plan/plan_impl.h"

/* The calls that ranks make to each other in a step equal those of the plan's abstract run:
 * every call of every rank, in order. Async collectives run where they are waited for
 * (debug.poison), so one thread makes all calls. */

enum { SENDS, RECEIVES, GATHERS, SCATTERS, REDUCES, EXCHANGES };

typedef struct said { /* of one rank */
    int *kinds;
    int n, cap;
} said;

static said of_rank[16];
static _Thread_local said *mine;
static const tt_comm_vt *real; /* of rank-threads */

static void say(int kind)
{
    if (mine->n == mine->cap) {
        mine->cap = mine->cap ? 2 * mine->cap : 256;
        mine->kinds = realloc(mine->kinds, (size_t)mine->cap * sizeof *mine->kinds);
        if (!mine->kinds)
            abort();
    }
    mine->kinds[mine->n++] = kind;
}

static tt_status gather(tt_comm *g, const void *s, void *r, const int64_t *n, tt_dtype t,
                        tt_error *err)
{
    say(GATHERS);
    return real->all_gather(g, s, r, n, t, err);
}

static tt_status scatter(tt_comm *g, const void *s, void *r, const int64_t *n, tt_dtype t,
                         tt_reduce op, tt_error *err)
{
    say(SCATTERS);
    return real->reduce_scatter(g, s, r, n, t, op, err);
}

static tt_status reduce(tt_comm *g, void *buf, int64_t n, tt_dtype t, tt_reduce op, tt_error *err)
{
    say(REDUCES);
    return real->all_reduce(g, buf, n, t, op, err);
}

static tt_status exchange(tt_comm *g, const void *s, const int64_t *ns, void *r, const int64_t *nr,
                          tt_dtype t, tt_error *err)
{
    say(EXCHANGES);
    return real->all_to_all(g, s, ns, r, nr, t, err);
}

static tt_status send_to(tt_comm *g, int to, const void *buf, int64_t bytes, tt_error *err)
{
    say(SENDS);
    return real->send(g, to, buf, bytes, err);
}

static tt_status receive(tt_comm *g, int from, void *buf, int64_t bytes, tt_error *err)
{
    say(RECEIVES);
    return real->recv(g, from, buf, bytes, err);
}

static tt_comm_vt listening;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void begin_to_listen(void)
{
    listening = *real;
    listening.all_gather = gather;
    listening.reduce_scatter = scatter;
    listening.all_reduce = reduce;
    listening.all_to_all = exchange;
    listening.send = send_to;
    listening.recv = receive;
}

static void listen_to(tt_rank *r)
{
    if (!r->dist.vt)
        return; /* alone */
    mine = &of_rank[r->dist.rank];
    pthread_once(&once, begin_to_listen);
    r->dist.data_vt = &listening; /* the program's own dist */
}

static int kind_of(const tt_message *w)
{
    const tt_instr *n = w->what;
    if (w->kind == TT_MESSAGE_SEND || w->kind == TT_MESSAGE_RECV)
        return w->kind == TT_MESSAGE_SEND ? SENDS : RECEIVES;
    if (!n->step)
        return REDUCES; /* a sum over stages */
    return n->step->kind == TT_STEP_ALL_GATHER       ? GATHERS
           : n->step->kind == TT_STEP_REDUCE_SCATTER ? SCATTERS
           : n->step->kind == TT_STEP_ALL_REDUCE     ? REDUCES
                                                     : EXCHANGES;
}

static int compare(const char *overrides)
{
    job j;
    tt_plan *p;
    tt_messages w;
    tt_error err = {0};
    int all = 0;
    job_open(&j, overrides);
    const tt_setup *s = &j.setup;
    if (tt_setup_plan(s, s->graph, s->schedule, 0, j.arena, &p, &err) != TT_OK)
        fail_msg("%s", err.text);
    const tt_messages_opts o = {
        .programs = p->programs, .concurrency = TT_CONCURRENT_AT_WAIT, .all = true};
    assert_int_equal(tt_plan_messages(s->graph, &o, j.arena, &w, &err), TT_OK);
    for (int r = 0; r < w.n_ranks; r++) {
        int at = 0;
        for (int i = 0; i < w.n_parts[r]; i++)
            for (int k = 0; k < w.traces[r][i].n; k++, at++)
                if (at >= of_rank[r].n || of_rank[r].kinds[at] != kind_of(&w.traces[r][i].items[k]))
                    fail_msg("%s: rank %d says another thing than the plan at %d of %d", overrides,
                             r, at + 1, of_rank[r].n);
        assert_int_equal(at, of_rank[r].n);
        all += at;
    }
    job_close(&j);
    return all;
}

static void test_ranks_make_the_calls_of_the_plan(void **state)
{
    static const char *const extra[] = {
        /* loops over token chunks that the second rank of cp runs through once less */
        "parallelism.context_parallel_degree 2 parallelism.tensor_parallel_degree 2 "
        "training.seq_len 513 training.local_batch_size 1 model.args.vocab_size 9001",
        "parallelism.pipeline_parallel_degree 2 parallelism.tensor_parallel_degree 2 "
        "model.args.tie_embeddings true parallelism.pipeline_parallel_schedule ZBVZeroBubble",
        "parallelism.pipeline_parallel_degree 4 model.args.tie_embeddings true "
        "parallelism.pipeline_parallel_schedule Interleaved1F1B training.local_batch_size 6 "
        "model.args.n_layers 7",
    };
    int all = 0;
    (void)state;
    for (size_t i = 0; i < TT_COUNT(job_meshes) + TT_COUNT(extra); i++) {
        const char *mesh =
            i < TT_COUNT(job_meshes) ? job_meshes[i] : extra[i - TT_COUNT(job_meshes)];
        char text[600];
        snprintf(text, sizeof text, "%s%scomm.overlap on debug.poison true", mesh,
                 *mesh ? " " : "");
        steps ran;
        memset(of_rank, 0, sizeof of_rank);
        steps_break = listen_to;
        steps_run(text, 1, &ran);
        steps_break = NULL;
        all += compare(text);
        for (size_t r = 0; r < TT_COUNT(of_rank); r++)
            free(of_rank[r].kinds);
    }
    print_message("    %d calls\n", all);
    assert_true(all > 3000);
}

int main(void)
{
    real = steps_comm();
    if (!real)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_make_the_calls_of_the_plan),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
