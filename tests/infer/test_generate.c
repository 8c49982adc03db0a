/* SPDX-License-Identifier: Apache-2.0 */
#include "infer/decode.h"
#include "infer/generate.h"

/* Texts of several prompts, with fewer slots than prompts and with more. */

#define TEXTS 7

typedef struct texts {
    int32_t ids[TEXTS][LENGTH];
    size_t n[TEXTS];
    tt_finish finish[TEXTS];
} texts;

static void generate(texts *out, int64_t slots, const tt_model_vt *vt, size_t only, int32_t stop)
{
    static const int64_t prompts[TEXTS] = {1, 5, LENGTH - 20, 16, 17, 2, LENGTH};
    const tt_decode_opts d = {.rows = PIECE, .slots = slots, .length = LENGTH, .cache = cache};
    int32_t ids[TEXTS][LENGTH];
    tt_sequence s[TEXTS];
    tt_engine *engine;
    tt_error err = {0};
    program p;
    open_program(&p, "llama3", LLAMA3_ARGS, vt,
                 vt ? "backend.name reference" : "backend.name cpu backend.blas own",
                 TT_MODE_DECODE, &d);
    for (size_t i = 0; i < TEXTS; i++) {
        for (int64_t t = 0; t < prompts[i]; t++)
            ids[i][t] = token((int64_t)i, t);
        s[i] = (tt_sequence){.prompt = ids[i], .n_prompt = prompts[i], .stream = i};
    }
    const tt_engine_opts eo = {.exec = p.rank.exec,
                               .graph = p.j.setup.graph,
                               .vocab = 260,
                               .forgets = true,
                               .prompts_first = true};
    assert_int_equal(tt_engine_open(&eo, &engine, &err), TT_OK);
    const tt_generate_opts o = {
        .engine = engine,
        .max_new = 30,
        .stop_ids = &stop,
        .n_stop_ids = stop >= 0,
        .sampling = {.temperature = 1.3, .top_k = 50, .top_p = 0.9, .seed = 5}
    };
    const bool one = only < TEXTS;
    if (tt_generate(&o, one ? &s[only] : s, one ? 1 : TEXTS, &err) != TT_OK)
        fail_msg("%s", err.text);
    tt_engine_close(engine);
    for (size_t i = one ? only : 0; i < (one ? only + 1 : TEXTS); i++) {
        out->n[i] = s[i].ids.n;
        out->finish[i] = s[i].finish;
        memcpy(out->ids[i], s[i].ids.ids, s[i].ids.n * sizeof(int32_t));
        for (size_t k = 0; k < s[i].ids.n; k++)
            assert_in_range(s[i].ids.ids[k], 0, 259);
        tt_ids_free(&s[i].ids);
    }
    close_program(&p);
}

static void same_text(const texts *a, const texts *b, size_t i)
{
    assert_int_equal(a->n[i], b->n[i]);
    assert_int_equal(a->finish[i], b->finish[i]);
    assert_memory_equal(a->ids[i], b->ids[i], a->n[i] * sizeof(int32_t));
}

static void test_a_text_does_not_depend_on_other_texts(void **state)
{
    texts all, few, single;
    (void)state;
    generate(&all, TEXTS, NULL, TEXTS, -1);
    generate(&few, 2, NULL, TEXTS, -1);
    for (size_t i = 0; i < TEXTS; i++) {
        same_text(&all, &few, i);
        generate(&single, 1, NULL, i, -1);
        same_text(&all, &single, i);
    }
    assert_int_equal(all.n[0], 30);
    assert_int_equal(all.finish[0], TT_FINISH_LENGTH);
    assert_int_equal(all.n[2], 21); /* the last one needs no position of its own */
    assert_int_equal(all.finish[2], TT_FINISH_CONTEXT);
    assert_int_equal(all.n[6], 1);
    assert_true(memcmp(all.ids[0], all.ids[1], 30 * sizeof(int32_t)) != 0);
}

static void test_an_id_that_ends_a_text_is_not_in_it(void **state)
{
    texts all, cut;
    (void)state;
    generate(&all, 3, NULL, TEXTS, -1);
    const int32_t stop = all.ids[1][11];
    generate(&cut, 3, NULL, TEXTS, stop);
    size_t first = 0;
    while (all.ids[1][first] != stop)
        first++;
    assert_int_equal(cut.n[1], first);
    assert_int_equal(cut.finish[1], TT_FINISH_STOP);
    assert_memory_equal(all.ids[1], cut.ids[1], first * sizeof(int32_t));
}

static void test_generation_without_a_cache_recomputes_the_context(void **state)
{
    texts a, b;
    (void)state;
    generate(&a, 3, &sums_vt, TEXTS, -1);
    generate(&b, 1, &sums_vt, 3, -1);
    same_text(&a, &b, 3);
    assert_int_equal(a.n[0], 30);
    assert_int_equal(a.finish[2], TT_FINISH_CONTEXT);
}

static void test_logits_that_are_not_finite_are_an_error(void **state)
{
    const tt_decode_opts d = {.rows = PIECE, .slots = 2, .length = LENGTH};
    const int32_t prompt[2] = {7, 8};
    tt_sequence s = {.prompt = prompt, .n_prompt = 2};
    tt_exec_tensor *t = NULL;
    tt_engine *engine;
    tt_error err = {0};
    program p;
    (void)state;
    open_program(&p, "llama3", LLAMA3_ARGS, NULL, "backend.name cpu", TT_MODE_DECODE, &d);
    const size_t n = tt_exec_tensors(p.rank.exec, p.j.arena, &t);
    for (size_t i = 0; i < n; i++)
        if (strstr(t[i].name, "norm"))
            *(float *)t[i].tensor.data = NAN;
    const tt_engine_opts eo = {.exec = p.rank.exec, .graph = p.j.setup.graph, .vocab = 260};
    assert_int_equal(tt_engine_open(&eo, &engine, &err), TT_OK);
    const tt_generate_opts o = {.engine = engine, .max_new = 5};
    assert_int_equal(tt_generate(&o, &s, 1, &err), TT_ENUMERIC);
    assert_non_null(strstr(err.text, "the logits of token 2 are not finite"));
    assert_int_equal(s.finish, TT_FINISH_NONE);
    assert_false(tt_engine_is_busy(engine));
    tt_engine_close(engine);
    close_program(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_text_does_not_depend_on_other_texts),
        cmocka_unit_test(test_an_id_that_ends_a_text_is_not_in_it),
        cmocka_unit_test(test_generation_without_a_cache_recomputes_the_context),
        cmocka_unit_test(test_logits_that_are_not_finite_are_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
