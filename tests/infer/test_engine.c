/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/decode_compare.h"
#include "infer/engine.h"

/* The engine: logprobs of prompts, in calls of any size and with what the cache has; which of several requests is computed
 * next. */

enum { LONG = 100, TOP = 3 };

static int64_t n_slots = SLOTS;
static int64_t n_sampled = 263; /* ids that may be sampled: as many as the head has rows */

static tt_engine *open_engine(program *p, const tt_model_vt *vt, int64_t picked, bool forgets,
                              bool prompts_first)
{
    const tt_decode_opts d = {
        .rows = PIECE, .picked = picked, .slots = n_slots, .length = LENGTH, .cache = cache};
    tt_engine *e;
    tt_error err = {0};
    open_program(p, "llama3", LLAMA3_ARGS, vt, OWN " backend.threads 2", TT_MODE_DECODE, &d);
    const tt_engine_opts o = {.exec = p->rank.exec,
                              .graph = p->j.setup.graph,
                              .pool = picked ? p->rank.pool : NULL,
                              .vocab = n_sampled,
                              .forgets = forgets,
                              .prompts_first = prompts_first};
    if (tt_engine_open(&o, &e, &err) != TT_OK)
        fail_msg("%s", err.text);
    return e;
}

typedef struct answer {
    tt_token tokens[LENGTH + 1];
    int64_t n, n_new, n_cached;
    tt_finish finish;
    bool ended;
} answer;

static bool on_token(void *user, const tt_token *t)
{
    answer *a = user;
    a->tokens[a->n++] = *t;
    a->n_new += !t->of_prompt;
    return true;
}

static void on_end(void *user, tt_finish finish, const char *error)
{
    answer *a = user;
    assert_null(error);
    a->finish = finish;
    a->ended = true;
}

static tt_request request(answer *a, const int32_t *prompt, int64_t n, int64_t max_new)
{
    *a = (answer){0};
    return (tt_request){.prompt = prompt,
                        .n_prompt = n,
                        .max_new = max_new,
                        .scored = true,
                        .n_top = TOP,
                        .of_prompt = true,
                        .n_cached = &a->n_cached,
                        .on_token = on_token,
                        .on_end = on_end,
                        .user = a};
}

static void compute(tt_engine *e, const tt_request *r)
{
    const answer *a = r->user;
    tt_error err = {0};
    assert_int_equal(tt_engine_check(e, "the prompt", r->prompt, r->n_prompt, &err), TT_OK);
    assert_int_equal(tt_engine_add(e, r, &err), TT_OK);
    while (!a->ended)
        assert_int_equal(tt_engine_step(e, &err), TT_OK);
    assert_false(tt_engine_is_busy(e));
}

static void same_tokens(const answer *a, const answer *b)
{
    assert_int_equal(a->n, b->n);
    assert_int_equal(a->finish, b->finish);
    for (int64_t i = 0; i < a->n; i++) {
        const tt_token *x = &a->tokens[i], *y = &b->tokens[i];
        if (x->id != y->id || x->of_prompt != y->of_prompt || x->has_logprob != y->has_logprob ||
            x->logprob != y->logprob || x->n_top != y->n_top)
            fail_msg("token %lld: %d with %.17g and %d more, %d with %.17g and %d more",
                     (long long)i, x->id, x->logprob, x->n_top, y->id, y->logprob, y->n_top);
        for (int k = 0; k < x->n_top; k++)
            if (x->top[k].id != y->top[k].id || x->top[k].logprob != y->top[k].logprob)
                fail_msg("token %lld, place %d of the most likely ones", (long long)i, k);
    }
}

/* The logprobs of a prompt by the logits of its whole context. */
static void check_logprobs(const answer *a, const want *w)
{
    assert_int_equal(a->n, LONG);
    assert_false(a->tokens[0].has_logprob);
    for (int64_t i = 1; i < LONG; i++) {
        const float *x = w->logits + (i - 1) * w->vocab;
        const tt_token *t = &a->tokens[i];
        double sum = 0;
        assert_true(t->of_prompt && t->has_logprob);
        assert_int_equal(t->id, token(0, i));
        assert_int_equal(t->n_top, TOP);
        for (int64_t k = 0; k < w->vocab; k++)
            sum += exp((double)x[k]);
        if (!(fabs(t->logprob - ((double)x[t->id] - log(sum))) < 1e-9))
            fail_msg("token %lld: logprob %.12g", (long long)i, t->logprob);
        for (int k = 0; k < TOP; k++) {
            int64_t before = 0;
            for (int64_t j = 0; j < w->vocab; j++)
                before += x[j] > x[t->top[k].id] || (x[j] == x[t->top[k].id] && j < t->top[k].id);
            assert_int_equal(before, k);
        }
    }
}

static void test_logprobs_do_not_depend_on_the_rows_of_a_call(void **state)
{
    static const int64_t picked[] = {0, 7, PIECE};
    static answer a;
    int32_t prompt[LONG];
    want w = {0};
    (void)state;
    whole_logits(&w, "llama3", LLAMA3_ARGS, NULL, OWN " backend.threads 1");
    for (int64_t t = 0; t < LONG; t++)
        prompt[t] = token(0, t);
    for (size_t i = 0; i < TT_COUNT(picked); i++) {
        program p;
        tt_engine *e = open_engine(&p, NULL, picked[i], true, false);
        assert_int_equal(p.logits.shape[0], picked[i] ? picked[i] : SLOTS);
        const tt_request r = request(&a, prompt, LONG, 0);
        compute(e, &r);
        check_logprobs(&a, &w);
        tt_engine_close(e);
        close_program(&p);
    }
    free(w.logits);
}

static void test_logprobs_without_a_cache(void **state)
{
    static answer a;
    int32_t prompt[LONG];
    want w = {0};
    program p;
    (void)state;
    whole_logits(&w, "llama3", LLAMA3_ARGS, &sums_vt, OWN " backend.threads 1");
    for (int64_t t = 0; t < LONG; t++)
        prompt[t] = token(0, t);
    tt_engine *e = open_engine(&p, &sums_vt, PIECE, false, false);
    assert_int_equal(p.j.setup.graph->slots, 0);
    for (int i = 0; i < 2; i++) { /* nothing is left of the first */
        const tt_request r = request(&a, prompt, LONG, 0);
        compute(e, &r);
        assert_int_equal(a.n_cached, 0);
        check_logprobs(&a, &w);
    }
    const tt_request r = request(&a, prompt, 3, 5);
    assert_true(tt_engine_has_room(e));
    compute(e, &r);
    assert_int_equal(a.n_new, 5);
    /* what it wrote has the same logprobs as a prompt */
    static answer b;
    int32_t ids[8];
    for (int64_t i = 0; i < 8; i++)
        ids[i] = a.tokens[i].id;
    const tt_request s = request(&b, ids, 8, 0);
    compute(e, &s);
    assert_int_equal(b.n, 8);
    for (int64_t i = 1; i < 8; i++)
        assert_true(a.tokens[i].logprob == b.tokens[i].logprob);
    tt_engine_close(e);
    close_program(&p);
    free(w.logits);
}

static const uint64_t *few_allowed(void *user)
{
    static uint64_t words[8];
    (void)user;
    words[1] = 0xff00; /* ids 72 to 79 */
    return words;
}

/* Rows that are not sampled, and ids that a mask leaves out, still have their share of the probability. */
static void test_logprobs_are_over_all_rows_of_the_head(void **state)
{
    static answer a, all;
    int32_t prompt[LONG];
    want w = {0};
    (void)state;
    whole_logits(&w, "llama3", LLAMA3_ARGS, NULL, OWN " backend.threads 1");
    for (int64_t t = 0; t < LONG; t++)
        prompt[t] = token(0, t);
    for (int i = 0; i < 2; i++) {
        program p;
        n_sampled = i ? 100 : 263; /* a token of the prompt is beyond it */
        tt_engine *e = open_engine(&p, NULL, PIECE, true, false);
        tt_request r = request(&a, prompt, LONG, 0);
        compute(e, &r);
        check_logprobs(&a, &w);
        r = request(i ? &a : &all, prompt, LONG, 1);
        if (i)
            r.allowed = few_allowed;
        compute(e, &r);
        tt_engine_close(e);
        close_program(&p);
    }
    n_sampled = 263;
    const float *x = w.logits + (LONG - 1) * w.vocab;
    const tt_token *t = &a.tokens[LONG];
    double sum = 0;
    for (int64_t k = 0; k < w.vocab; k++)
        sum += exp((double)x[k]);
    assert_in_range(t->id, 72, 79);
    assert_true(fabs(t->logprob - ((double)x[t->id] - log(sum))) < 1e-9);
    assert_int_equal(t->n_top, TOP);
    for (int k = 0; k < TOP; k++) {
        assert_int_equal(t->top[k].id, all.tokens[LONG].top[k].id);
        assert_true(t->top[k].logprob == all.tokens[LONG].top[k].logprob);
    }
    free(w.logits);
}

/* The id that ends a text is told as the last one, with its logprob, and counted. */
static void test_the_id_that_ends_a_text_is_told(void **state)
{
    static answer a, b, ends;
    int32_t prompt[LONG + 1];
    program p;
    (void)state;
    tt_engine *e = open_engine(&p, NULL, PIECE, false, false);
    for (int64_t t = 0; t < LONG; t++)
        prompt[t] = token(0, t);
    tt_request r = request(&a, prompt, LONG, 4);
    compute(e, &r);
    const int64_t at = tt_engine_count(e).new_tokens;
    r = request(&ends, prompt, LONG, 4);
    r.stop_ids = &a.tokens[LONG].id; /* at once */
    r.n_stop_ids = 1;
    compute(e, &r);
    assert_int_equal(ends.n, LONG + 1);
    assert_int_equal(ends.n_new, 1);
    assert_int_equal(ends.finish, TT_FINISH_STOP);
    assert_true(ends.tokens[LONG].ends && !ends.tokens[LONG - 1].ends && !a.tokens[LONG].ends);
    assert_int_equal(tt_engine_count(e).new_tokens, at + 1);
    assert_true(ends.tokens[LONG].has_logprob);
    assert_true(ends.tokens[LONG].logprob == a.tokens[LONG].logprob);
    assert_int_equal(ends.tokens[LONG].n_top, TOP);
    /* the text with that id as a prompt has the same numbers */
    prompt[LONG] = ends.tokens[LONG].id;
    r = request(&b, prompt, LONG + 1, 0);
    compute(e, &r);
    for (int64_t t = 1; t <= LONG; t++)
        assert_true(b.tokens[t].logprob == ends.tokens[t].logprob);
    tt_engine_close(e);
    close_program(&p);
}

static void test_calls_are_as_large_as_memory_allows(void **state)
{
    (void)state;
    assert_int_equal(tt_engine_picked(256, 16, 262), 256);
    assert_int_equal(tt_engine_picked(256, 16, 128256), 130);
    assert_int_equal(tt_engine_picked(256, 16, INT64_C(1) << 30), 16);
    assert_int_equal(tt_engine_picked(2, 2, 262), 2);
}

/* ---- what the cache has ---- */

typedef struct both { /* the engine, and one that computes everything */
    tt_engine *e, *whole;
} both;

/* The answers are equal, and so many tokens of the prompt were not computed. */
static void expect(const both *x, tt_request r, int64_t n_cached, answer *a)
{
    static answer whole;
    *a = (answer){0};
    r.user = a;
    r.n_cached = &a->n_cached;
    compute(x->e, &r);
    assert_int_equal(a->n_cached, n_cached);
    whole = (answer){0};
    r.user = &whole;
    r.n_cached = NULL;
    compute(x->whole, &r);
    same_tokens(a, &whole);
}

static void test_scored_prompts_use_what_the_cache_has(void **state)
{
    static answer a;
    program p, q;
    const both x = {open_engine(&p, NULL, PIECE, false, false),
                    open_engine(&q, NULL, PIECE, true, false)};
    int32_t first[LONG], second[LONG], third[LONG + 4];
    (void)state;
    for (int64_t t = 0; t < LONG; t++) {
        first[t] = token(0, t);
        second[t] = t < 60 ? first[t] : token(1, t);
    }
    expect(&x, request(&a, first, LONG, 0), 0, &a);
    expect(&x, request(&a, first, LONG, 3), LONG - 1, &a);
    expect(&x, request(&a, second, LONG, 1), 59,
           &a); /* the logits after the 60th token are not kept */
    tt_request r = request(&a, second, LONG, 1);
    r.n_top = TOP - 1;
    expect(&x, r, LONG - 1, &a);
    r.n_top = TOP + 2; /* so many were not looked for */
    expect(&x, r, 0, &a);
    expect(&x, r, LONG - 1, &a);
    /* what it wrote is scored, too, but its last token is not computed */
    expect(&x, request(&a, first, LONG, 5), LONG - 1, &a);
    for (int64_t t = 0; t < LONG + 4; t++)
        third[t] = a.tokens[t].id;
    expect(&x, request(&a, third, LONG + 4, 0), LONG + 3, &a);
    expect(&x, request(&a, third, LONG + 2, 2), LONG + 1, &a);
    tt_engine_forget(x.e);
    expect(&x, request(&a, third, LONG + 2, 2), 0, &a);
    tt_engine_close(x.e);
    tt_engine_close(x.whole);
    close_program(&p);
    close_program(&q);
}

/* A prompt without logprobs takes what a scored one left, in place where there is one slot, else by a copy. */
static void check_unknown(int64_t slots)
{
    static answer a;
    program p, q;
    n_slots = slots;
    const both x = {open_engine(&p, NULL, PIECE, false, false),
                    open_engine(&q, NULL, PIECE, true, false)};
    int32_t ids[LONG], other[LONG];
    for (int64_t t = 0; t < LONG; t++) {
        ids[t] = token(0, t);
        other[t] = t < 50 ? ids[t] : token(2, t);
    }
    tt_request r = request(&a, ids, LONG, 2);
    r.of_prompt = false; /* scores what it writes */
    expect(&x, r, 0, &a);
    expect(&x, request(&a, ids, LONG, 2), 0, &a);
    r = request(&a, other, LONG, 2);
    r.scored = false; /* goes on where the logits are, and keeps what is known of the beginning */
    expect(&x, r, 50, &a);
    expect(&x, request(&a, other, LONG, 2), 49, &a);
    expect(&x, request(&a, other, LONG, 2), LONG - 1, &a);
    tt_engine_close(x.e);
    tt_engine_close(x.whole);
    close_program(&p);
    close_program(&q);
    n_slots = SLOTS;
}

static void test_logprobs_that_are_not_known_are_computed(void **state)
{
    (void)state;
    check_unknown(1);
    check_unknown(SLOTS);
}

static void on_failure(void *user, tt_finish finish, const char *error)
{
    answer *a = user;
    assert_non_null(strstr(error, "are not finite"));
    a->finish = finish;
    a->ended = true;
}

/* The values of a layer that is not finite are in the cache; a later prompt must not go on with them. */
static void test_what_is_not_finite_is_not_kept(void **state)
{
    static answer a;
    program p, q;
    const both x = {open_engine(&p, NULL, PIECE, false, false),
                    open_engine(&q, NULL, PIECE, true, false)};
    tt_exec_tensor *t;
    const size_t n = tt_exec_tensors(p.rank.exec, p.rank.arena, &t);
    float *weight = NULL, was;
    int32_t ids[LONG];
    (void)state;
    for (int64_t i = 0; i < LONG; i++)
        ids[i] = token(0, i);
    for (size_t i = 0; i < n; i++)
        if (strstr(t[i].name, "layers.0.") && strstr(t[i].name, "v_proj.weight"))
            weight = t[i].tensor.data;
    assert_non_null(weight);
    tt_request r = request(&a, ids, LONG, 2);
    r.of_prompt = r.scored = false;
    expect(&x, r, 0, &a);
    tt_engine_forget(x.e);
    was = *weight;
    *weight = (float)NAN;
    r.on_end = on_failure;
    r.user = &a;
    a = (answer){0};
    compute(x.e, &r);
    assert_int_equal(a.n, 0);
    *weight = was;
    r.on_end = on_end;
    expect(&x, r, 0, &a);
    expect(&x, r, LONG - 1, &a);
    tt_engine_close(x.e);
    tt_engine_close(x.whole);
    close_program(&p);
    close_program(&q);
}

/* ---- who is next ---- */

static void test_prompts_before_tokens_or_beside_them(void **state)
{
    static answer a, b;
    (void)state;
    for (int first = 0; first < 2; first++) {
        int32_t ids[3 * PIECE];
        tt_error err = {0};
        program p;
        tt_engine *e = open_engine(&p, NULL, 0, false, first);
        for (int64_t t = 0; t < 3 * PIECE; t++)
            ids[t] = token(0, t);
        tt_request r = request(&a, ids, 1, 50), s = request(&b, ids, 3 * PIECE, 2);
        r.of_prompt = s.of_prompt = false;
        assert_int_equal(tt_engine_add(e, &r, &err), TT_OK);
        assert_int_equal(tt_engine_add(e, &s, &err), TT_OK);
        int64_t others = 0;
        while (!b.n_new) {
            others = a.n_new;
            assert_int_equal(tt_engine_step(e, &err), TT_OK);
        }
        assert_int_equal(others, first ? 1 : 4);
        tt_engine_close(e);
        close_program(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logprobs_do_not_depend_on_the_rows_of_a_call),
        cmocka_unit_test(test_logprobs_without_a_cache),
        cmocka_unit_test(test_logprobs_are_over_all_rows_of_the_head),
        cmocka_unit_test(test_the_id_that_ends_a_text_is_told),
        cmocka_unit_test(test_calls_are_as_large_as_memory_allows),
        cmocka_unit_test(test_scored_prompts_use_what_the_cache_has),
        cmocka_unit_test(test_logprobs_that_are_not_known_are_computed),
        cmocka_unit_test(test_what_is_not_finite_is_not_kept),
        cmocka_unit_test(test_prompts_before_tokens_or_beside_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
