/* SPDX-License-Identifier: Apache-2.0 */
#include "config/reserved.h"
#include "config_test.h"

/* Names of other trainers: answered, taken as ours, or taken as what changes nothing. */

static const char *refusal(tt_arena *a, const char *text, const char *const *pairs)
{
    tt_core_config c;
    tt_error err = {0};
    if (parse_core(a, text, pairs, &c, &err) == TT_OK)
        fail_msg("accepted: %s", text);
    return tt_arena_str(a, err.text);
}

/* Parses the core's sections of a job that must be right, and gives its notices as lines. */
static const char *notices(tt_arena *a, const char *text, const char *const *pairs,
                           tt_core_config *c)
{
    tt_error err = {0};
    tt_job *job = NULL;
    tt_str all = {0};
    size_t n;
    if (load(a, text, pairs, &job, &err) != TT_OK || tt_core_config_parse(job, c, &err) != TT_OK ||
        tt_job_finish(job, &err) != TT_OK)
        fail_msg("%s: %s", text, err.text);
    const char *const *lines = tt_job_notices(job, &n);
    for (size_t i = 0; i < n; i++)
        tt_str_printf(&all, "%s\n", lines[i]);
    const char *copy = tt_arena_str(a, tt_str_get(&all));
    tt_str_free(&all);
    return copy;
}

static void test_reserved_table_is_sorted_and_holds_no_key_of_ours(void **state)
{
    size_t n, n_docs;
    const tt_reserved *r = tt_reserved_table(&n);
    const tt_section_doc *d = tt_core_config_docs(&n_docs);
    assert_true(n > 200);
    for (size_t i = 0; i < n; i++) {
        if (i && strcmp(r[i - 1].key, r[i].key) >= 0)
            fail_msg("%s stands before %s", r[i - 1].key, r[i].key);
        assert_true(*r[i].text && strlen(r[i].text) < 160);
        assert_ptr_equal(tt_reserved_find(r[i].key), &r[i]);
        if (r[i].values)
            assert_non_null(r[i].otherwise);
    }
    for (size_t k = 0; k < n_docs; k++)
        for (size_t i = 0; i < d[k].n_options; i++) {
            const char *path = tt_arena_printf(*state, "%s%s%s", d[k].key, *d[k].key ? "." : "",
                                               d[k].options[i].name);
            if (tt_reserved_find(path))
                fail_msg("%s is a key of ttrun and a reserved name", path);
        }
}

/* What an answer tells to use must exist. */
static void test_reserved_names_of_ours_are_keys(void **state)
{
    size_t n, n_docs;
    const tt_reserved *r = tt_reserved_table(&n);
    const tt_section_doc *d = tt_core_config_docs(&n_docs);
    for (size_t i = 0; i < n; i++) {
        const char *key = tt_arena_strn(*state, r[i].text, strcspn(r[i].text, " ,:;("));
        bool found = strncmp(key, "optimizer.", 10) == 0 || strncmp(key, "model.args", 10) == 0 ||
                     strncmp(key, "lr_scheduler.", 13) == 0 || strstr(key, "dataloader.") ||
                     strncmp(key, "tokenizer.", 10) == 0 || strncmp(key, "loss.", 5) == 0 ||
                     *key == '`' || *key == '-' ||
                     strcmp(key, "converters") == 0; /* of plugins, options, commands */
        for (size_t k = 0; k < n_docs && !found; k++)
            for (size_t j = 0; j < d[k].n_options && !found; j++)
                found =
                    strcmp(key, tt_arena_printf(*state, "%s%s%s", d[k].key, *d[k].key ? "." : "",
                                                d[k].options[j].name)) == 0;
        const bool names_a_key = r[i].kind == TT_RESERVED_MOVED || r[i].kind == TT_RESERVED_SAME ||
                                 r[i].kind == TT_RESERVED_ALIAS;
        if (names_a_key && !found)
            fail_msg("%s leads to %s, which is no key", r[i].key, key);
    }
}

static void test_reserved_errors_have_their_place(void **state)
{
    assert_string_equal(
        refusal(*state, "{\n \"metrics\": {\"enable_wandb\": true}}", NULL),
        "job.json:2:14: metrics.enable_wandb: metrics.sinks with {\"name\": \"wandb\"} "
        "writes an offline run for `wandb sync`; there are jsonl, tensorboard, "
        "csv, prometheus and trackio too");
    assert_string_equal(refusal(*state, "{\"per_device_train_batch_size\": 4}", NULL),
                        "job.json:1:2: per_device_train_batch_size: the same as "
                        "training.local_batch_size (Hugging Face's name)");
    assert_string_equal(refusal(*state, "{\"float8\": {\"recipe_name\": \"rowwise\"}}", NULL),
                        "job.json:1:13: float8.recipe_name: it is a converter: "
                        "converters: [{\"name\": \"float8\"}]");
    assert_string_equal(refusal(*state, "{\"training\": {\"dataset\": \"c4\"}}", NULL),
                        "job.json:1:15: training.dataset: data are files: dataloader.path, and "
                        "their form dataloader.name: text, jsonl, chat or bin");
    assert_string_equal(refusal(*state, "{\"model\": {\"dim\": 512}}", NULL),
                        "job.json:1:12: model.dim: unknown key; sizes of a model are in "
                        "model.args, as in model.args.dim");
    assert_non_null(strstr(refusal(*state,
                                   "{\"compile\": {\"enable\": true, \"x\": 1}, "
                                   "\"comm\": {\"trace_buf\": 1}}",
                                   NULL),
                           "comm.trace_buf: unknown key"));
    assert_non_null(strstr(refusal(*state, "{\"job\": {\"x\": 1}}", NULL), "1:2: job: unknown"));
    assert_non_null(strstr(refusal(*state, "{\"job\": {}}", NULL), "1:2: job: unknown"));
}

/* A job of another trainer is not tried once per key: the error of one names the others. Keys that
 * are taken, with or without an effect, are not among them. */
static void test_reserved_errors_name_all_keys_of_others(void **state)
{
    assert_string_equal(
        refusal(*state,
                "{\"job\": {\"dump_folder\": \"x\"}, \"model\": {\"converters\": [\"float8\"]},\n"
                " \"training\": {\"gc_freq\": 1, \"dataset\": \"c4\", \"lr\": 1, \"stpes\": 3},\n"
                " \"float8\": {\"recipe_name\": \"rowwise\", \"filter_fqns\": []},\n"
                " \"compile\": {\"enable\": true}, \"learning_rate\": 1}",
                NULL),
        "job.json:1:41: model.converters: converters, a list of objects beside model, as in "
        "[{\"name\": \"float8\"}]; other keys to change: training.dataset, training.lr (here "
        "optimizer.lr), float8.recipe_name, learning_rate (here optimizer.lr)");
    tt_str many = {0};
    size_t n;
    const tt_reserved *r = tt_reserved_table(&n);
    for (size_t i = 0; i < n; i++)
        if (!strpbrk(r[i].key, ".*") && r[i].kind == TT_RESERVED_SAME)
            tt_str_printf(&many, "%s\"%s\": 1", many.n ? ", " : "", r[i].key);
    const char *text = refusal(*state, tt_arena_printf(*state, "{%s}", tt_str_get(&many)), NULL);
    tt_str_free(&many);
    assert_true(strlen(text) < 1000 && strcmp(text + strlen(text) - 3, "…") == 0);
}

/* The one default of torchtitan that changes losses and speed of a job as it stands. */
static void test_reserved_precision_of_torchtitan_is_told(void **state)
{
    tt_core_config c;
    static const char line[] = "training.mixed_precision_param: float32 unless it is set; "
                               "torchtitan's default is bfloat16\n";
    const char *const set[] = {"training.mixed_precision_param", "float32", NULL};
    static const char titan[] = "{\"job\": {\"description\": \"d\"}}";
    assert_non_null(strstr(notices(*state, titan, NULL, &c), line));
    assert_null(strstr(notices(*state, titan, set, &c), line));
    assert_non_null(strstr(notices(*state, "{\"compile\": {\"enable\": true}}", NULL, &c), line));
    assert_string_equal(notices(*state, "{\"description\": \"d\"}", NULL, &c), "");
}

static void test_reserved_idle_keys_change_nothing_but_tell(void **state)
{
    tt_core_config c;
    const char *text = notices(*state,
                               "{\"training\": {\"gc_freq\": 50, \"steps\": 7},\n"
                               " \"compile\": {\"enable\": true, \"components\": [\"model\"]},\n"
                               " \"model\": {\"converters\": []},\n"
                               " \"metrics\": {\"enable_wandb\": false}}",
                               NULL, &c);
    assert_int_equal(c.training.steps, 7);
    assert_non_null(strstr(text, "job.json:1:26: training.gc_freq: changes nothing here: ttrun has "
                                 "no garbage collector\n"));
    assert_non_null(strstr(text, "job.json:2:24: compile.enable: changes nothing here: every "));
    assert_non_null(strstr(text, "compile.components: "));
    assert_non_null(strstr(text, "metrics.enable_wandb: "));
    assert_non_null(strstr(text, "model.converters: changes nothing here: there are none\n"));
    const char *const pairs[] = {"debug.deterministic", "true", NULL};
    assert_string_equal(
        notices(*state, "{}", pairs, &c),
        "--debug.deterministic: changes nothing here: every run is deterministic\n");
    assert_string_equal(notices(*state, "{}", NULL, &c), "");
}

static void test_reserved_aliases_set_our_keys(void **state)
{
    tt_core_config c;
    const char *text = notices(*state,
                               "{\"job\": {\"dump_folder\": \"x\", \"description\": \"d\"},\n"
                               " \"hf_assets_path\": \"y\", \"debug\": {\"seed\": 5}}",
                               NULL, &c);
    assert_string_equal(strrchr(c.dump_folder, '/'), "/x");
    assert_string_equal(strrchr(c.hf_assets_path, '/'), "/y");
    assert_int_equal(c.training.seed, 5);
    assert_non_null(strstr(text, "job.json:1:25: job.dump_folder: taken as dump_folder\n"));
    const char *const both[] = {"dump_folder", "z", NULL}, *const later[] = {"job.dump_folder", "z",
                                                                             NULL};
    (void)notices(*state, "{\"job\": {\"dump_folder\": \"x\"}}", both, &c);
    assert_string_equal(strrchr(c.dump_folder, '/'), "/z");
    (void)notices(*state, "{\"dump_folder\": \"x\"}", later, &c);
    assert_string_equal(strrchr(c.dump_folder, '/'), "/z");
    assert_string_equal(
        refusal(*state, "{\"dump_folder\": \"x\", \"job\": {\"dump_folder\": \"y\"}}", NULL),
        "job.json:1:45: job.dump_folder: the same option as dump_folder; keep one of them");
    assert_non_null(strstr(refusal(*state, "{\"debug\": {\"seed\": \"x\"}}", NULL),
                           "training.seed: expected an integer"));
}

/* torchtitan's form of optimizer.param_groups. */
static void test_reserved_groups_are_ours(void **state)
{
    tt_error err = {0};
    tt_job *job = must_load(
        *state,
        "{\"optimizer\": {\"param_groups\": [{\"pattern\": \"a|b\", \"optimizer_name\": "
        "\"DistMuon\",\n"
        " \"optimizer_kwargs\": {\"lr\": 0.5, \"betas\": [0.8, 0.9], \"foreach\": true}},\n"
        " {\"match\": \"c\", \"lr_factor\": 2}]}}",
        NULL);
    assert_string_equal(
        tt_job_text(job, "optimizer.param_groups"),
        "[{\"match\":\"a|b\",\"name\":\"muon\",\"lr\":0.5,\"beta1\":0.8,\"beta2\":"
        "0.9,\"weight_decay\":0.1,\"momentum\":0.95,\"nesterov\":true,\"ns_steps\":5,"
        "\"adjust_lr_fn\":\"original\",\"update\":\"muon\"},{\"match\":\"c\",\"lr_factor\":2}]");
    size_t n;
    const char *const *lines = tt_job_notices(job, &n);
    assert_true(n == 1 && strstr(lines[0], "taken as match, name and its options"));
    static const char *const wrong[][2] = {
        {"{\"pattern\": \"a\", \"optimizer_kwargs\": {\"betas\": 1}}",
         "betas: expected two numbers"                                                                             },
        {"{\"pattern\": \"a\", \"optimizer_kwargs\": 3}",              "optimizer_kwargs: expected an object"      },
        {"{\"pattern\": \"a\", \"match\": \"b\"}",                     "the same option as match; keep one of them"},
    };
    for (size_t i = 0; i < TT_COUNT(wrong); i++) {
        const char *text =
            tt_arena_printf(*state, "{\"optimizer\": {\"param_groups\": [%s]}}", wrong[i][0]);
        assert_int_equal(load(*state, text, NULL, &job, &err), TT_EINVAL);
        assert_non_null(strstr(err.text, "optimizer.param_groups[0]"));
        assert_non_null(strstr(err.text, wrong[i][1]));
    }
}

static void test_reserved_values_are_ours(void **state)
{
    tt_core_config c;
    const char *const pairs[] = {"training.mixed_precision_param", "bf16", NULL};
    const char *text = notices(*state, "{}", pairs, &c);
    assert_string_equal(text, "--training.mixed_precision_param: \"bf16\" is taken as "
                              "\"bfloat16\"\n");
    const char *const any_case[] = {"checkpoint.async_mode", "Async_With_pinned_mem", NULL},
                      *const as_ours[] = {"checkpoint.async_mode", "async", NULL};
    text = notices(*state, "{}", any_case, &c);
    assert_string_equal(text, "--checkpoint.async_mode: \"Async_With_pinned_mem\" is taken as "
                              "\"async_with_pinned_mem\"\n");
    assert_int_equal(c.checkpoint.async_mode, TT_ASYNC_PINNED);
    assert_string_equal(notices(*state, "{}", as_ours, &c), "");
    tt_job *job = must_load(*state, "{\"lr_scheduler\": {\"name\": \"cosine\"}}", NULL);
    const char *name = NULL, *type = NULL;
    assert_int_equal(tt_job_string(job, "lr_scheduler.name", NULL, &name, NULL), TT_OK);
    assert_int_equal(tt_job_string(job, "lr_scheduler.decay_type", NULL, &type, NULL), TT_OK);
    assert_string_equal(name, "wsd");
    assert_string_equal(type, "cosine");
    job = must_load(*state, "{\"lr_scheduler\": {\"name\": \"cosine\", \"decay_type\": \"sqrt\"}}",
                    NULL);
    assert_int_equal(tt_job_string(job, "lr_scheduler.decay_type", NULL, &type, NULL), TT_OK);
    assert_string_equal(type, "sqrt");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(test_reserved_table_is_sorted_and_holds_no_key_of_ours),
        CONFIG_TEST(test_reserved_names_of_ours_are_keys),
        CONFIG_TEST(test_reserved_errors_have_their_place),
        CONFIG_TEST(test_reserved_errors_name_all_keys_of_others),
        CONFIG_TEST(test_reserved_precision_of_torchtitan_is_told),
        CONFIG_TEST(test_reserved_idle_keys_change_nothing_but_tell),
        CONFIG_TEST(test_reserved_aliases_set_our_keys),
        CONFIG_TEST(test_reserved_groups_are_ours),
        CONFIG_TEST(test_reserved_values_are_ours),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
