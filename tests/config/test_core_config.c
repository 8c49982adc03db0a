/* SPDX-License-Identifier: Apache-2.0 */
#include "config_test.h"
#include <math.h>
#include <stdlib.h>

/* The core's sections: the documented defaults, conditions between keys, and a table of bad input
 * generated from every row of every option table. */

static void test_core_defaults_are_the_documented_ones(void **state)
{
    static const char contract[] =
        "{\"spec\": \"llama3\", \"dump_folder\": \"./outputs\", \"model\": {\"flavor\": "
        "\"debugmodel\", \"hf_assets_path\": null},"
        "\"training\": {\"local_batch_size\": 8, \"global_batch_size\": -1, \"seq_len\": 2048, "
        "\"steps\": 10000, \"max_norm\": 1.0,"
        "\"dtype\": \"float32\", \"mixed_precision_param\": \"float32\", "
        "\"mixed_precision_reduce\": \"float32\", \"seed\": 0},"
        "\"parallelism\": {\"data_parallel_replicate_degree\": 1, \"data_parallel_shard_degree\": "
        "-1, \"tensor_parallel_degree\": 1,"
        "\"context_parallel_degree\": 1, \"pipeline_parallel_degree\": 1, "
        "\"expert_parallel_degree\": 1,"
        "\"pipeline_parallel_schedule\": \"1F1B\", \"pipeline_parallel_microbatches\": -1, "
        "\"fsdp_reshard_after_forward\": \"default\"},"
        "\"activation_checkpoint\": {\"mode\": \"none\"},"
        "\"checkpoint\": {\"enable\": true, \"folder\": \"checkpoint\", \"interval\": 500, "
        "\"async_mode\": \"async\", \"keep_latest_k\": 10,"
        "\"initial_load_path\": null, \"initial_load_in_hf\": false, \"load_step\": -1,"
        "\"last_save_model_only\": false, \"last_save_in_hf\": false},"
        "\"validation\": {\"enable\": false, \"freq\": 100, \"steps\": -1}, \"metrics\": "
        "{\"log_freq\": 10, \"enable_tensorboard\": true},"
        "\"profiling\": {\"enable\": false}, \"comm\": {\"backend\": \"auto\", "
        "\"train_timeout_seconds\": 100},"
        "\"debug\": {}}";
    tt_core_config c;
    tt_error err = {0};
    tt_str said = {0}, silent = {0}, diff = {0};
    tt_job *job = must_load(*state, contract, NULL);
    if (tt_core_config_parse(job, &c, &err) != TT_OK || tt_job_finish(job, &err) != TT_OK)
        fail_msg("%s", err.text);
    tt_job_print(job, false, &said);
    job = must_load(*state, "{}", NULL);
    assert_int_equal(tt_core_config_parse(job, &c, &err), TT_OK);
    tt_job_print(job, false, &silent);
    tt_job_diff(said.s, silent.s, &diff);
    assert_string_equal(tt_str_get(&diff), "");
    tt_job_changes("{\"training\": {\"steps\": 7}, \"gone\": 1}", job, &diff);
    assert_string_equal(tt_str_get(&diff), "training.steps: 7 → 10000\ngone: 1 → (absent)\n");
    tt_str_clear(&diff);
    job = must_load(*state, "{\"training\": {\"seq_len\": 2048}}",
                    NULL); /* it says what the default is */
    assert_int_equal(tt_core_config_parse(job, &c, &err), TT_OK);
    tt_job_changes("{\"training\": {\"steps\": 10000}}", job, &diff);
    assert_string_equal(tt_str_get(&diff), "training.seq_len: (absent) → 2048\n");
    tt_str_free(&diff);
    tt_str_free(&said);
    tt_str_free(&silent);
}

/* clang-format aligns the columns of plain rows; these are too wide for that. */
#define BAD(text, error)                                                                           \
    {                                                                                              \
        text, error                                                                                \
    }

#define NORM(value, said)                                                                          \
    BAD("{\"training\": {\"clip_norm_type\": " value "}}",                                         \
        "job.json:1:33: training.clip_norm_type: expected a number above 0, or \"inf\"; "          \
        "got " said)

static const char *const refused[][2] = {
    BAD("{\"training\": {\"global_batch_size\": 0}}",
        "job.json:1:36: training.global_batch_size: expected 1 or more, or -1, got 0"),
    BAD("{\"parallelism\": {\"data_parallel_shard_degree\": 0}}",
        "job.json:1:48: parallelism.data_parallel_shard_degree: expected 1 or more, or -1, got 0"),
    BAD("{\"parallelism\": {\"num_pp_microbatches\": 0}}",
        "job.json:1:41: parallelism.pipeline_parallel_microbatches: expected 1 or more, or -1, got "
        "0"),
    BAD("{\"validation\": {\"steps\": 0}}",
        "job.json:1:26: validation.steps: expected 1 or more, or -1, got 0"),
    BAD("{\"training\": {\"global_batch_size\": 12}}",
        "job.json:1:36: training.global_batch_size: 12 is not a multiple of local_batch_size 8 "
        "times "
        "data_parallel_replicate_degree 1"),
    BAD("{\"training\": {\"global_batch_size\": 16}, \"parallelism\": "
        "{\"data_parallel_shard_degree\": 4}}",
        "job.json:1:36: training.global_batch_size: 16 is not a multiple of local_batch_size 8 "
        "times "
        "data-parallel degree 4"),
    BAD("{\"parallelism\": {\"pipeline_parallel_degree\": 2, \"pipeline_parallel_microbatches\": "
        "3}}",
        "job.json:1:83: parallelism.pipeline_parallel_microbatches: training.local_batch_size 8 "
        "does not divide into 3 microbatches"),
    BAD("{\"spec\": \"\"}", "job.json:1:10: spec: expected a name, got \"\""),
    BAD("{\"model\": {\"flavor\": \"hf\"}}", "job.json:1:22: model.flavor: \"hf\" takes the sizes "
                                             "from model.hf_assets_path, which is not set"),
    BAD("{\"checkpoint\": {\"folder\": \"\"}}",
        "job.json:1:27: checkpoint.folder: expected a name, got \"\""),
    BAD("{\"profiler\": {\"profile_freq\": 0}}",
        "job.json:1:31: profiling.freq: expected 1 to 1000000000000, got 0"),
    BAD("{\"parallelism\": {\"expert_parallel_degree\": 0}}",
        "job.json:1:44: parallelism.expert_parallel_degree: expected 1 to 1000000, got 0"),
    BAD("{\"training\": {\"seq_len\": 4, \"max_context_length\": 4}}",
        "job.json:1:29: training.max_context_length: the same option as training.seq_len; keep one "
        "of them"),
    BAD("{\"training\": {\"num_tokens_per_train_step\": 4097}}",
        "job.json:1:44: training.num_tokens_per_train_step: 4097 tokens are not a multiple "
        "of training.seq_len 2048"),
    BAD("{\"training\": {\"num_tokens_per_train_step\": \"x\"}}",
        "job.json:1:44: training.num_tokens_per_train_step: expected an integer, got \"x\""),
    BAD("{\"training\": {\"num_tokens_per_microbatch_per_dp_rank\": 4096, \"local_batch_size\": "
        "2}}",
        "job.json:1:56: training.num_tokens_per_microbatch_per_dp_rank: sets the same as "
        "training.local_batch_size; keep one of them"),
    BAD("{\"training\": {\"num_tokens_per_train_step\": 1e15, \"seq_len\": 1}}",
        "job.json:1:44: training.num_tokens_per_train_step: 1000000000000000 tokens are too many"),
    BAD("{\"training\": {\"lr\": 1}}",
        "job.json:1:15: training.lr: unknown key (did you mean optimizer.lr?)"),
    BAD("{\"training\": {\"log_freq\": 1}}",
        "job.json:1:15: training.log_freq: unknown key (did you mean metrics.log_freq?)"),
    BAD("{\"training\": {\"tensor_parallel_degree\": 1}}",
        "job.json:1:15: training.tensor_parallel_degree: unknown key (did you mean "
        "parallelism.tensor_parallel_degree?)"),
    BAD("{\"parallelism\": {\"tensor_paralel_degre\": 1}}",
        "job.json:1:18: parallelism.tensor_paralel_degre: unknown key (did you mean "
        "parallelism.tensor_parallel_degree?)"),
    NORM("0", "0"),
    NORM("-1", "-1"),
    NORM("\"\"", "\"\""),
    NORM("\"nan\"", "\"nan\""),
    NORM("\"2x\"", "\"2x\""),
    NORM("\"two\"", "\"two\""),
    NORM("[2]", "[2]"),
    BAD("{\"job\": {\"folder\": \"x\"}}",
        "job.json:1:2: job: unknown key (did you mean dump_folder?)"),
    BAD("{\"steps\": 1}", "job.json:1:2: steps: unknown key (did you mean training.steps?)"),
};

static void test_core_refuses_impossible_values(void **state)
{
    for (size_t i = 0; i < TT_COUNT(refused); i++) {
        tt_core_config c, before;
        tt_error err = {0};
        memset(&c, 0x5a, sizeof c);
        before = c;
        if (parse_core(*state, refused[i][0], NULL, &c, &err) == TT_OK)
            fail_msg("accepted: %s", refused[i][0]);
        assert_string_equal(err.text, refused[i][1]);
        if (i + 2 < TT_COUNT(refused)) /* the last two are found by finish */
            assert_memory_equal(&c, &before, sizeof c);
    }
}

static void test_core_takes_torchtitans_token_budgets(void **state)
{
    tt_core_config c;
    tt_error err = {0};
    const char *text = "{\"training\": {\"num_tokens_per_microbatch_per_dp_rank\": 8192, "
                       "\"num_tokens_per_train_step\": 16384}}";
    assert_int_equal(parse_core(*state, text, NULL, &c, &err), TT_OK);
    assert_int_equal(c.training.local_batch_size, 4);
    assert_int_equal(c.training.global_batch_size, 8);
    assert_int_equal(parse_core(*state, text,
                                PAIRS("training.local_batch_size", "2",
                                      "training.num_tokens_per_train_step", "-1"),
                                &c, &err),
                     TT_OK);
    assert_int_equal(c.training.local_batch_size, 2);
    assert_int_equal(c.training.global_batch_size, -1);
    assert_int_equal(parse_core(*state, text,
                                PAIRS("parallelism.pipeline_parallel_degree", "2",
                                      "parallelism.num_pp_microbatches", "2"),
                                &c, &err),
                     TT_OK);
    assert_int_equal(c.training.local_batch_size, 8); /* a round is all its microbatches */
}

static void test_core_takes_norms_of_any_order(void **state)
{
    static const struct {
        const char *text;
        double order;
    } taken[] = {
        {"{}",                                            2.0             },
        {"{\"training\": {\"clip_norm_type\": 1}}",       1.0             },
        {"{\"training\": {\"clip_norm_type\": \"2.5\"}}", 2.5             },
        {"{\"training\": {\"clip_norm_type\": \"inf\"}}", (double)INFINITY},
    };
    for (size_t i = 0; i < TT_COUNT(taken); i++) {
        tt_core_config c;
        tt_error err = {0};
        assert_int_equal(parse_core(*state, taken[i].text, NULL, &c, &err), TT_OK);
        assert_true(c.training.clip_norm_order >= taken[i].order &&
                    c.training.clip_norm_order <= taken[i].order);
    }
}

static void test_core_backend_section(void **state)
{
    tt_backend_section b;
    tt_error err = {0};
    tt_job *job = must_load(*state, "{\"backend\": {\"threads\": 3}}", NULL);
    assert_int_equal(tt_backend_section_parse(job, NULL, &b, &err), TT_OK);
    assert_string_equal(b.name, "auto");
    assert_int_equal(b.threads, 3);
    job = must_load(*state, "{\"backend\": {\"threads\": -1}}", NULL);
    assert_int_equal(tt_backend_section_parse(job, NULL, &b, &err), TT_EINVAL);
}

/* ---- generated: every row × every kind of bad value */

typedef struct counts {
    int cases, unknown, null, above;
} counts;

/* The section's object with one member, inside the job. */
static char *job_text(tt_arena *a, const char *section, const char *key, const char *value)
{
    return *section ? tt_arena_printf(a, "{\n  \"%s\": {\"%s\": %s}}", section, key, value)
                    : tt_arena_printf(a, "{\n  \"%s\": %s}", key, value);
}

/* The value must be refused at its position in line 2, with the key's path. */
static void must_refuse(tt_arena *a, const char *section, const tt_option *o, const char *value,
                        const char *expect)
{
    const char *key = o->name;
    const char *text = job_text(a, section, key, value);
    const char *path = *section ? tt_arena_printf(a, "%s.%s", section, key) : key;
    size_t column = 3 + strlen(key) + 2 + 2 + (*section ? strlen(section) + 2 + 3 : 0);
    const char *prefix = tt_arena_printf(a, "job.json:2:%zu: %s: %s", column, path, expect);
    tt_core_config c;
    tt_backend_section b;
    tt_error err = {0};
    tt_job *job = must_load(a, text, NULL);
    tt_status s = tt_core_config_parse(job, &c, &err);
    if (s == TT_OK)
        s = tt_backend_section_parse(job, NULL, &b, &err);
    if (s != TT_EINVAL || strncmp(err.text, prefix, strlen(prefix)) != 0)
        fail_msg("%s\n  wanted: %s…\n  got:    %s", text, prefix,
                 s == TT_OK ? "no error" : err.text);
    if (strchr(err.text, '\n'))
        fail_msg("more than one line: %s", err.text);
    if (o->type == TT_OPT_STRING) /* on the command line anything is a string */
        return;
    const char *option = tt_arena_printf(a, "--%s: %s", path, expect);
    job = must_load(a, "{}", PAIRS(path, value));
    s = tt_core_config_parse(job, &c, &err);
    if (s == TT_OK)
        s = tt_backend_section_parse(job, NULL, &b, &err);
    if (s != TT_EINVAL || strncmp(err.text, option, strlen(option)) != 0)
        fail_msg("--%s %s: %s", path, value, s == TT_OK ? "no error" : err.text);
}

static void check_unknown_sibling(tt_arena *a, const char *section, const char *key)
{
    tt_core_config c;
    tt_backend_section b;
    tt_error err = {0};
    const char *wrong = tt_arena_printf(a, "%sx", key), *text = job_text(a, section, wrong, "1");
    tt_job *job = must_load(a, text, NULL);
    tt_status s = tt_core_config_parse(job, &c, &err);
    if (s == TT_OK)
        s = tt_backend_section_parse(job, NULL, &b, &err);
    if (s == TT_OK)
        s = tt_job_finish(job, &err);
    const char *path = *section ? tt_arena_printf(a, "%s.%s", section, wrong) : wrong;
    const char *wanted = tt_arena_printf(a, "job.json:2:%zu: %s: unknown key (did you mean ",
                                         *section ? 3 + strlen(section) + 2 + 3 : 3, path);
    if (s != TT_EINVAL || strncmp(err.text, wanted, strlen(wanted)) != 0)
        fail_msg("%s\n  wanted: %s…\n  got:    %s", text, wanted,
                 s == TT_OK ? "no error" : err.text);
}

static const char *number(tt_arena *a, double v)
{
    tt_str s = {0};
    tt_str_json_number(&s, v);
    const char *text = tt_arena_str(a, s.s);
    tt_str_free(&s);
    return text;
}

static void check_row(tt_arena *a, const char *section, const tt_option *o, counts *n)
{
    static const char *const wrong[][5] = {
  /* by tt_option_type */
        {"1",     "\"true\"",           "[]", "{}", "0.5"  },
        {"\"7\"", "0.5",                "[]", "{}", "true" },
        {"\"7\"", "\"\"",               "[]", "{}", "true" },
        {"7",     "1.5",                "[]", "{}", "true" },
        {"7",     "\"no such choice\"", "[]", "{}", "false"},
    };
    const tt_option_type type = o->type == TT_OPT_CHOICE ? TT_OPT_ENUM : o->type;
    bool numeric = o->type == TT_OPT_INT || o->type == TT_OPT_FLOAT;
    /* lists take any one text, nested JSON is checked by its owner */
    for (size_t i = 0; type <= TT_OPT_ENUM && i < 5; i++, n->cases++)
        must_refuse(a, section, o, wrong[type][i], "expected ");
    if (type <= TT_OPT_ENUM && !(o->flags & TT_OPT_NULLABLE)) {
        must_refuse(a, section, o, "null", "expected ");
        n->null++;
    }
    if (numeric && !(o->flags & TT_OPT_NOT_YET)) {
        must_refuse(a, section, o, number(a, o->min - 1), "expected ");
        must_refuse(a, section, o, number(a, o->min - 1e6), "expected ");
        n->cases += 2;
    }
    if (numeric && o->max < 1e18) {
        must_refuse(a, section, o, number(a, o->max + 1), "expected ");
        n->above++;
    }
    if (o->type == TT_OPT_INT)
        must_refuse(a, section, o, "1e300", "expected an integer");
    if (o->flags & TT_OPT_NOT_YET)
        must_refuse(a, section, o, o->type == TT_OPT_BOOL ? "true" : "2", "not built yet");
    for (const char *p = o->choices; p && *p;) {
        size_t k = strcspn(p, "|");
        if (*p == '~')
            must_refuse(a, section, o, tt_arena_printf(a, "\"%.*s\"", (int)k - 1, p + 1),
                        tt_arena_printf(a, "\"%.*s\" is not built yet", (int)k - 1, p + 1));
        p += k + (p[k] == '|');
    }
    check_unknown_sibling(a, section, o->name);
    n->unknown++;
}

/* Sections of components are documented here but read by their owners. */
static bool is_cores(const char *key)
{
    static const char *const theirs[] = {"tokenizer",    "dataloader",   "loss",   "optimizer",
                                         "lr_scheduler", "converters[]", "hooks[]"};
    for (size_t i = 0; i < TT_COUNT(theirs); i++)
        if (strcmp(key, theirs[i]) == 0)
            return false;
    return true;
}

/* Keys of a core section that another table reads: model.name, and the token budgets tested above.
 */
static bool is_theirs(const tt_option *o)
{
    return !o->default_json || strncmp(o->name, "num_tokens", 10) == 0;
}

static void test_core_bad_input_of_every_row(void **state)
{
    size_t n_docs;
    const tt_section_doc *docs = tt_core_config_docs(&n_docs);
    counts n = {0};
    (void)state;
    for (size_t d = 0; d < n_docs; d++) {
        for (size_t i = 0; is_cores(docs[d].key) && i < docs[d].n_options; i++) {
            tt_arena *a = tt_arena_new();
            if (!is_theirs(&docs[d].options[i]))
                check_row(a, docs[d].key, &docs[d].options[i], &n);
            tt_arena_free(a);
        }
    }
    assert_true(n.unknown >= 50);
    assert_true(n.cases >= 250);
    assert_true(n.null >= 45);
    assert_true(n.above >= 15);
}

static void test_core_defaults_read_back_as_values(void **state)
{
    size_t n_docs;
    const tt_section_doc *docs = tt_core_config_docs(&n_docs);
    for (size_t d = 0; d < n_docs; d++)
        for (size_t i = 0; is_cores(docs[d].key) && i < docs[d].n_options; i++) {
            const tt_option *o = &docs[d].options[i];
            tt_core_config c;
            tt_backend_section b;
            tt_error err = {0};
            assert_non_null(o->doc);
            if (is_theirs(o))
                continue;
            tt_job *job =
                must_load(*state, job_text(*state, docs[d].key, o->name, o->default_json), NULL);
            if (tt_core_config_parse(job, &c, &err) != TT_OK ||
                tt_backend_section_parse(job, NULL, &b, &err) != TT_OK)
                fail_msg("%s", err.text);
        }
}

/* The table's words and the enumerators they are stored as. */
static void test_core_choices_are_their_enumerators(void **state)
{
    static const struct {
        const char *key, *word;
        int value;
        size_t offset;
    } cases[] = {
#define CASE(section, field, word, value)                                                          \
    {#section "." #field, word, value, offsetof(tt_core_config, section.field)}
        CASE(training, dtype, "bfloat16", TT_BF16),
        CASE(training, mixed_precision_param, "float32", TT_F32),
        CASE(training, mixed_precision_reduce, "bfloat16", TT_BF16),
        CASE(parallelism, context_parallel_load_balancer, "none", TT_BALANCE_NONE),
        CASE(parallelism, context_parallel_rotate_method, "ring", TT_ROTATE_RING),
        CASE(parallelism, context_parallel_rotate_method, "ulysses", TT_ROTATE_ULYSSES),
        CASE(parallelism, fsdp_reshard_after_forward, "never", TT_RESHARD_NEVER),
        CASE(activation_checkpoint, mode, "selective", TT_CHECKPOINT_SELECTIVE),
        CASE(activation_checkpoint, store_dtype, "bfloat16", TT_BF16),
        CASE(checkpoint, async_mode, "async_with_pinned_mem", TT_ASYNC_PINNED),
        CASE(comm, overlap, "off", TT_OVERLAP_OFF),
    };
    for (size_t i = 0; i < TT_COUNT(cases); i++) {
        const tt_override o = {cases[i].key, cases[i].word};
        tt_core_config c;
        tt_error err = {0};
        tt_job *job;
        int stored;
        assert_int_equal(tt_job_load(*state, NULL, &o, 1, &job, &err), TT_OK);
        assert_int_equal(tt_core_config_parse(job, &c, &err), TT_OK);
        memcpy(&stored, (const char *)&c + cases[i].offset, sizeof stored);
        if (stored != cases[i].value)
            fail_msg("%s %s is stored as %d", cases[i].key, cases[i].word, stored);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(test_core_defaults_are_the_documented_ones),
        CONFIG_TEST(test_core_refuses_impossible_values),
        CONFIG_TEST(test_core_takes_torchtitans_token_budgets),
        CONFIG_TEST(test_core_choices_are_their_enumerators),
        CONFIG_TEST(test_core_takes_norms_of_any_order),
        CONFIG_TEST(test_core_backend_section),
        CONFIG_TEST(test_core_bad_input_of_every_row),
        CONFIG_TEST(test_core_defaults_read_back_as_values),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
