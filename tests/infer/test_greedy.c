/* SPDX-License-Identifier: Apache-2.0 */
#include "exec/job.h"
#include "infer/generate.h"

/* Greedy texts of every model against transformers' generate: tests/golden/generate.json, by
 * generate_golden.py. Prompts of different lengths go through one call, with fewer slots than
 * prompts and with more. */

enum { PIECE = 16, NEW = 64, TEXTS = 4, LONGEST = 31 };

typedef struct program {
    job j;
    tt_rank rank;
} program;

static const tt_json *get(const tt_json *object, const char *key)
{
    const tt_json *v = tt_json_get(object, key);
    if (!v)
        fail_msg("generate.json: no \"%s\"", key);
    return v;
}

static const tt_json *read_golden(tt_arena *a)
{
    const char *src = getenv("SRC");
    const char *path = tt_path_join(a, src ? src : ".", "tests/golden/generate.json");
    const tt_json *root = NULL;
    tt_error err = {0};
    char *text = NULL;
    size_t n = 0;
    if (tt_read_file(path, 0, &text, &n, &err) != TT_OK ||
        tt_json_parse(a, path, text, n, &root, &err) != TT_OK)
        fail_msg("%s", err.text);
    free(text);
    return get(root, "models");
}

/* Changes initial values as lively() in the script does. */
static void make_lively(program *p)
{
    tt_exec_tensor *t = NULL;
    const size_t n = tt_exec_tensors(p->rank.exec, p->j.arena, &t);
    for (size_t i = 0; i < n; i++) {
        float *x = t[i].tensor.data;
        const bool embedding = strstr(t[i].name, ".wte.") || strstr(t[i].name, "embed");
        if (strstr(t[i].name, "e_score_correction_bias"))
            continue; /* a buffer, 0 at first */
        assert_int_equal(t[i].tensor.dtype, TT_F32);
        for (int64_t k = 0; k < tt_tensor_numel(&t[i].tensor); k++)
            x[k] = t[i].tensor.n_dims < 2 ? x[k] + (float)(k * 37 % 101 - 50) / 256.0f
                                          : x[k] * (embedding ? 4.0f : 16.0f);
    }
}

static void open_program(program *p, const tt_json *model, const char *overrides, int64_t slots)
{
    const tt_setup_opts parts = {.mode = TT_MODE_DECODE, .data = true};
    const tt_setup_opts whole = {
        .mode = TT_MODE_DECODE, .decode = {.rows = PIECE, .slots = slots, .length = LONGEST + NEW}
    };
    const tt_dist one = {.world = 1};
    tt_str text = {0};
    tt_error err = {0};
    memset(p, 0, sizeof *p);
    tt_log_setup(TT_ERROR, 0, 1, false);
    tt_str_printf(&text, "{\"spec\":\"%s\",\"model\":{\"flavor\":\"debugmodel\",\"args\":",
                  get(model, "spec")->string);
    tt_json_write(get(model, "args"), &text);
    tt_str_printf(&text, "},\"training\":{\"local_batch_size\":1,\"seq_len\":%d,\"seed\":%lld}}",
                  LONGEST + NEW, (long long)get(model, "seed")->integer);
    if (job_try(&p->j, tt_str_get(&text), overrides, &parts, &err) != TT_OK ||
        tt_setup_compile(&p->j.setup, &whole, &err) != TT_OK ||
        tt_rank_open(&p->j.setup, &one, false, &p->rank, &err) != TT_OK)
        fail_msg("%s: %s", get(model, "spec")->string, err.text);
    tt_str_free(&text);
    assert_int_equal(p->j.setup.graph->slots, slots); /* keys and values are cached */
    assert_int_equal(tt_rank_init_params(&p->rank, &err), TT_OK);
    make_lively(p);
}

static int32_t *ids_of(tt_arena *a, const tt_json *list)
{
    int32_t *ids = tt_arena_array(a, list->n, sizeof *ids);
    for (size_t i = 0; i < list->n; i++)
        ids[i] = (int32_t)list->items[i]->integer;
    return ids;
}

static void check_model(tt_arena *a, const tt_json *model, const char *overrides, int64_t slots)
{
    const tt_json *texts = get(model, "texts");
    tt_sequence s[TEXTS] = {{0}};
    tt_engine *engine;
    tt_error err = {0};
    program p;
    open_program(&p, model, overrides, slots);
    assert_int_equal(texts->n, TEXTS);
    for (size_t i = 0; i < TEXTS; i++) {
        const tt_json *prompt = get(texts->items[i], "prompt");
        s[i] =
            (tt_sequence){.prompt = ids_of(a, prompt), .n_prompt = (int64_t)prompt->n, .stream = i};
    }
    const tt_engine_opts eo = {.exec = p.rank.exec,
                               .graph = p.j.setup.graph,
                               .vocab = get(get(model, "args"), "vocab_size")->integer,
                               .forgets = true,
                               .prompts_first = true};
    assert_int_equal(tt_engine_open(&eo, &engine, &err), TT_OK);
    const tt_generate_opts o = {.engine = engine, .max_new = NEW};
    if (tt_generate(&o, s, TEXTS, &err) != TT_OK)
        fail_msg("%s", err.text);
    tt_engine_close(engine);
    for (size_t i = 0; i < TEXTS; i++) {
        const tt_json *ids = get(texts->items[i], "ids");
        const int32_t *want = ids_of(a, ids);
        assert_int_equal(ids->n, NEW);
        assert_int_equal(s[i].ids.n, NEW);
        for (size_t k = 0; k < NEW; k++)
            if (s[i].ids.ids[k] != want[k])
                fail_msg("%s, %lld slots, %s: text %zu, token %zu: %d, transformers wrote %d",
                         get(model, "spec")->string, (long long)slots, overrides, i, k,
                         s[i].ids.ids[k], want[k]);
        tt_ids_free(&s[i].ids);
    }
    tt_rank_close(&p.rank);
    job_close(&p.j);
}

static void test_greedy_equals_transformers(void **state)
{
    static const char *const specs[] = {"llama3",      "gpt2",     "qwen3",     "qwen2",
                                        "mistral",     "mixtral",  "qwen3_moe", "qwen3_next",
                                        "deepseek_v3", "glm4_moe", "llama4",    "gpt_oss",
                                        "gemma2",      "gemma3",   "phi3",      "olmo2"};
    tt_arena *a = tt_arena_new();
    const tt_json *models = read_golden(a);
    (void)state;
    assert_int_equal(models->n, TT_COUNT(specs));
    for (size_t i = 0; i < models->n; i++) {
        assert_string_equal(get(models->items[i], "spec")->string, specs[i]);
        check_model(a, models->items[i], "backend.name cpu", TEXTS + 1);
        check_model(a, models->items[i], "backend.name cpu", 3);
        check_model(a, models->items[i], "backend.name cpu backend.blas own", 1);
    }
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_greedy_equals_transformers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
