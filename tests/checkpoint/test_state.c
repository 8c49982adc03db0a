/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"
#include <math.h>

#define HASH "0123456789abcdef0123456789abcdef"

static void test_state_reads_back_as_written(void **state)
{
    fixture *f = *state;
    tt_trainer_state in_state = {.step = 7,
                                 .tokens_seen = 1LL << 60,
                                 .samples_seen = 99,
                                 .last_loss = 0.1 + 0.2,
                                 .world = 512,
                                 .job_json = "{\"a\": [1, 2.5, \"x\\n\"], \"b\": null}",
                                 .model_fingerprint = "f\"1",
                                 .tokenizer_fingerprint = NULL};
    tt_trainer_state out;
    tt_manifest m = {0}, back;
    tt_str text = {0};
    tt_vec_push(f->a, &m.files, ((tt_ckpt_file){"a.safetensors", 12, HASH}));
    tt_vec_push(f->a, &m.tensors,
                ((tt_ckpt_tensor){
                    .name = "w \"é\"", .dtype_name = "BF16", .n_dims = 2, .shape = {3, 4}
    }));
    tt_vec_push(f->a, &m.tensors, ((tt_ckpt_tensor){.name = "step", .dtype_name = "I64"}));
    assert_ok(tt_state_print(&in_state, &m, &text, &f->err), f);
    assert_ok(tt_state_parse(f->a, "t", text.s, text.n, &out, &back, &f->err), f);
    assert_int_equal(out.step, 7);
    assert_true(out.tokens_seen == 1LL << 60 && out.samples_seen == 99 && out.world == 512);
    assert_true(out.last_loss == 0.1 + 0.2);
    assert_string_equal(out.model_fingerprint, "f\"1");
    assert_null(out.tokenizer_fingerprint);
    assert_has(out.job_json, "2.5");
    assert_int_equal(back.files.n, 1);
    assert_string_equal(back.files.items[0].hash, HASH);
    assert_string_equal(back.tensors.items[0].name, "w \"é\"");
    assert_int_equal(back.tensors.items[0].shape[1], 4);
    assert_int_equal(back.tensors.items[1].n_dims, 0);
    tt_str_free(&text);
}

/* Whichever bit is flipped, after the name of the hash. Without the first line there is no check. */
static void test_flipped_bits_of_the_state_are_found(void **state)
{
    fixture *f = *state;
    const tt_trainer_state s = {.step = 7, .samples_seen = 99, .last_loss = 0.5, .world = 2};
    const size_t key = strlen("{\"xxh3_128\":");
    tt_trainer_state out;
    tt_manifest m = {0};
    tt_str text = {0};
    tt_vec_push(f->a, &m.files, ((tt_ckpt_file){"a.safetensors", 12, HASH}));
    assert_ok(tt_state_print(&s, &m, &text, &f->err), f);
    for (size_t bit = 8 * key; bit < 8 * text.n; bit++) {
        text.s[bit / 8] ^= (char)(1 << bit % 8);
        if (tt_state_parse(f->a, "t", text.s, text.n, &out, NULL, &f->err) == TT_OK)
            fail_msg("bit %zu of byte %zu", bit % 8, bit / 8);
        text.s[bit / 8] ^= (char)(1 << bit % 8);
    }
    char *samples = strstr(text.s, ":99") + 1;
    samples[1] = '8';
    assert_int_equal(tt_state_parse(f->a, "t", text.s, text.n, &out, NULL, &f->err), TT_EFORMAT);
    assert_has(f->err.text, "the file has changed");
    char *rest = strchr(text.s, '\n');
    *rest = '{';
    assert_ok(
        tt_state_parse(f->a, "t", rest, text.n - (size_t)(rest - text.s), &out, NULL, &f->err), f);
    assert_int_equal(out.samples_seen, 98);
    tt_str_free(&text);
}

static void test_state_keeps_a_loss_that_is_nan(void **state)
{
    fixture *f = *state;
    tt_trainer_state s = {.last_loss = (double)NAN}, out;
    tt_manifest m = {0};
    tt_str text = {0};
    assert_ok(tt_state_print(&s, &m, &text, &f->err), f);
    assert_ok(tt_state_parse(f->a, "t", text.s, text.n, &out, NULL, &f->err), f);
    assert_true(isnan(out.last_loss));
    assert_null(out.job_json);
    tt_str_free(&text);
}

static void test_state_keeps_losses_seconds_and_snapshot(void **state)
{
    fixture *f = *state;
    const tt_step_loss losses[] = {
        {1,  8.0491,       9.25       },
        {10, (double)NAN,  INFINITY   },
        {20, 0.1F + 1e-7F, 123456789.0}
    };
    const tt_trainer_state s = {
        .losses = losses, .n_losses = 3, .train_seconds = 12.375, .snapshot = true};
    tt_trainer_state out;
    tt_manifest m = {0};
    tt_str text = {0};
    assert_ok(tt_state_print(&s, &m, &text, &f->err), f);
    assert_ok(tt_state_parse(f->a, "t", text.s, text.n, &out, NULL, &f->err), f);
    assert_true(out.snapshot && out.train_seconds == 12.375);
    assert_int_equal(out.n_losses, 3);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(out.losses[i].step, losses[i].step);
    assert_true(out.losses[0].loss == 8.0491 && out.losses[0].loss_max == 9.25);
    assert_true(isnan(out.losses[1].loss) && isnan(out.losses[1].loss_max));
    assert_true((float)out.losses[2].loss == (float)losses[2].loss);
    assert_true(out.losses[2].loss_max == 123456789.0);
    tt_str_free(&text);
}

static void test_state_refuses_a_job_that_is_not_an_object(void **state)
{
    fixture *f = *state;
    tt_manifest m = {0};
    tt_str text = {0};
    tt_trainer_state s = {.job_json = "{]"};
    assert_int_not_equal(tt_state_print(&s, &m, &text, &f->err), TT_OK);
    s.job_json = "[]";
    assert_int_equal(tt_state_print(&s, &m, &text, &f->err), TT_EINVAL);
    assert_int_equal(text.n, 0);
}

#define HEAD "{\"format\":\"ttrun-checkpoint\",\"version\":1,"
#define REST "\"step\":1,\"tokens_seen\":0,\"loader\":{\"samples_seen\":0},\"world\":1"
#define PARTS(files, tensors) HEAD REST ",\"files\":" files ",\"tensors\":" tensors "}"

/* Laid out by hand: clang-format 14 crashes on this table. */
/* clang-format off */
static const char *const malformed[][2] = {
    {"", "t:1:1"},
    {"[]", "an object is wanted"},
    {"{}", "format"},
    {"{\"format\":1}", "format"},
    {"{\"format\":\"pt\"}", "not a checkpoint"},
    {"{\"format\":\"ttrun-checkpoint\"}", "version"},
    {"{\"format\":\"ttrun-checkpoint\",\"version\":2}", "another version"},
    {"{\"format\":\"ttrun-checkpoint\",\"version\":\"1\"}", "version"},
    {HEAD "\"step\":-1}", "step: an integer from 0 to"},
    {HEAD "\"step\":1.5}", "step"},
    {HEAD "\"step\":9223372036854775808}", "step"},
    {HEAD "\"step\":1,\"step\":2}", "step"},
    {HEAD "\"step\":1}", "tokens_seen"},
    {HEAD "\"step\":1,\"tokens_seen\":0}", "loader: an object"},
    {HEAD "\"step\":1,\"tokens_seen\":0,\"loader\":{}}", "samples_seen"},
    {HEAD "\"step\":1,\"tokens_seen\":0,\"loader\":{\"samples_seen\":0}}", "world"},
    {HEAD "\"step\":1,\"tokens_seen\":0,\"loader\":{\"samples_seen\":0},\"world\":3000000000}", "world"},
    {HEAD REST ",\"model_fingerprint\":1}", "model_fingerprint"},
    {HEAD REST ",\"tokenizer_fingerprint\":[]}", "tokenizer_fingerprint"},
    {HEAD REST ",\"last_loss\":\"x\"}", "last_loss"},
    {HEAD REST ",\"job\":\"{}\"}", "job"},
    {HEAD REST ",\"train_seconds\":-1}", "train_seconds: a finite number"},
    {HEAD REST ",\"train_seconds\":\"1\"}", "train_seconds: a finite number"},
    {HEAD REST ",\"history\":[]}", "history: an object"},
    {HEAD REST ",\"history\":{\"step\":1}}", "history: an object"},
    {HEAD REST ",\"history\":{\"step\":[1,1]}}", "step: ascending"},
    {HEAD REST ",\"history\":{\"step\":[-1]}}", "step: ascending"},
    {HEAD REST ",\"history\":{\"step\":[\"1\"]}}", "step: ascending"},
    {HEAD REST ",\"history\":{\"step\":[1]}}", "loss: a list as long"},
    {HEAD REST ",\"history\":{\"step\":[1],\"loss\":[1,2]}}", "loss: a list as long"},
    {HEAD REST ",\"history\":{\"step\":[1],\"loss\":[\"1\"]}}", "loss: numbers are wanted"},
    {HEAD REST ",\"history\":{\"step\":[1],\"loss\":[1]}}", "loss_max: a list as long"},
    {HEAD REST "}", "files"},
    {HEAD REST ",\"files\":{}}", "tensors"},
    {PARTS("[]", "{}"), "files"},
    {PARTS("{\"a\":1}", "{}"), "not the name of"},
    {PARTS("{\"a.safetensors\":1}", "{}"), "an object is wanted"},
    {PARTS("{\"../a.safetensors\":{}}", "{}"), "not the name of"},
    {PARTS("{\".safetensors\":{}}", "{}"), "not the name of"},
    {PARTS("{\"a.safetensors\":{}}", "{}"), "bytes"},
    {PARTS("{\"a.safetensors\":{\"bytes\":-4}}", "{}"), "bytes"},
    {PARTS("{\"a.safetensors\":{\"bytes\":4}}", "{}"), "32 lower-case"},
    {PARTS("{\"a.safetensors\":{\"bytes\":4,\"xxh3_128\":\"0\"}}", "{}"), "32 lower-case"},
    {PARTS("{\"a.safetensors\":{\"bytes\":4,\"xxh3_128\":\"X123456789abcdef0123456789abcdef\"}}", "{}"), "32 lower-case"},
    {PARTS("{}", "{\"w\":[]}"), "an object is wanted"},
    {PARTS("{}", "{\"w\":{}}"), "dtype"},
    {PARTS("{}", "{\"w\":{\"dtype\":\"F31\"}}"), "dtype"},
    {PARTS("{}", "{\"w\":{\"dtype\":\"F32\"}}"), "shape"},
    {PARTS("{}", "{\"w\":{\"dtype\":\"F32\",\"shape\":[\"1\"]}}"), "integers are wanted"},
    {PARTS("{}", "{\"w\":{\"dtype\":\"F32\",\"shape\":[-1]}}"), "not a valid shape"},
    {PARTS("{}", "{\"w\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296]}}"), "not a valid shape"},
    {PARTS("{}", "{\"w\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1]}}"), "at most six"},
};
/* clang-format on */

static void test_state_refuses_malformed_files(void **state)
{
    fixture *f = *state;
    for (size_t i = 0; i < sizeof malformed / sizeof *malformed; i++) {
        tt_trainer_state s = {.step = -5};
        if (tt_state_parse(f->a, "t", malformed[i][0], strlen(malformed[i][0]), &s, NULL,
                           &f->err) == TT_OK)
            fail_msg("accepted: %s", malformed[i][0]);
        assert_has(f->err.text, "t:1:");
        assert_has(f->err.text, malformed[i][1]);
        assert_int_equal(s.step, -5);
    }
}

static void test_state_ignores_unknown_keys(void **state)
{
    fixture *f = *state;
    static const char text[] = HEAD REST ",\"later\":[1],\"files\":{},\"tensors\":{}}";
    tt_trainer_state s;
    assert_ok(tt_state_parse(f->a, "t", text, sizeof text - 1, &s, NULL, &f->err), f);
}

static void test_read_state_names_the_file(void **state)
{
    fixture *f = *state;
    tt_trainer_state s;
    assert_int_equal(tt_ckpt_read_state(f->folder, f->a, &s, &f->err), TT_ENOTFOUND);
    assert_has(f->err.text, "trainer.json");
    put_file(in(f, "trainer.json"), "{\n  \"format\": 3}", 16);
    assert_int_equal(tt_ckpt_read_state(f->folder, f->a, &s, &f->err), TT_EFORMAT);
    assert_has(f->err.text, "trainer.json:2:");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_state_reads_back_as_written),
        TEST(test_flipped_bits_of_the_state_are_found),
        TEST(test_state_keeps_a_loss_that_is_nan),
        TEST(test_state_keeps_losses_seconds_and_snapshot),
        TEST(test_state_refuses_a_job_that_is_not_an_object),
        TEST(test_state_refuses_malformed_files),
        TEST(test_state_ignores_unknown_keys),
        TEST(test_read_state_names_the_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
