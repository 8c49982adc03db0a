/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"
/* ckpt_test.h must be first: it defines what libc's headers declare */
#include "interchange/formats/dcp.h"
#include "interchange/install.h"

/* torch.distributed.checkpoint's own form: tests/golden/dcp.json has a folder that two ranks of PyTorch
 * wrote, its tensors, and .metadata files that are refused (dcp_golden.py). What is written here is read
 * here; tests/peers/dcp_peer.py reads it with PyTorch. */

static const tt_json *golden(fixture *f)
{
    char *text = NULL;
    size_t n = 0;
    const tt_json *root = NULL;
    assert_ok(tt_read_file("tests/golden/dcp.json", 0, &text, &n, &f->err), f);
    assert_ok(tt_json_parse(f->a, "golden", tt_arena_strn(f->a, text, n), n, &root, &f->err), f);
    free(text);
    return root;
}

static const char *text_of(const tt_json *object, const char *key)
{
    return tt_json_get(object, key)->string;
}

static uint8_t *bytes_of(fixture *f, const char *hex, size_t *n)
{
    *n = strlen(hex) / 2;
    uint8_t *out = tt_arena_alloc(f->a, *n + 1);
    for (size_t i = 0; i < *n; i++) {
        unsigned x = 0;
        assert_int_equal(sscanf(hex + 2 * i, "%2x", &x), 1);
        out[i] = (uint8_t)x;
    }
    return out;
}

static void put_hex(fixture *f, const char *name, const char *hex)
{
    size_t n = 0;
    const uint8_t *bytes = bytes_of(f, hex, &n);
    put_file(in(f, name), bytes, n);
}

static void put_files(fixture *f, const tt_json *root)
{
    const tt_json *files = tt_json_get(root, "files");
    assert_int_equal(files->n, 3);
    for (size_t i = 0; i < files->n; i++)
        put_hex(f, text_of(files->items[i], "name"), text_of(files->items[i], "hex"));
}

/* The part [begin, end) of dim 0 of a tensor, as its own dtype. */
static tt_status load_rows(tt_ckpt_reader *r, const tt_ckpt_tensor *t, int64_t begin, int64_t end,
                           void *data, tt_error *err)
{
    tt_ckpt_piece p = {
        .name = t->name, .dtype = tt_ckpt_dtype(r, t->name), .n_dims = t->n_dims, .data = data};
    for (int d = 0; d < t->n_dims; d++)
        p.global[d] = p.box.end[d] = t->shape[d];
    p.box.begin[0] = begin;
    if (t->n_dims)
        p.box.end[0] = end;
    return tt_ckpt_load(r, &p, 1, err);
}

static tt_ckpt_tensor tensor_named(const tt_ckpt_reader *r, const char *name)
{
    for (size_t i = 0; i < tt_ckpt_n_tensors(r); i++)
        if (!strcmp(tt_ckpt_tensor_at(r, i).name, name))
            return tt_ckpt_tensor_at(r, i);
    fail_msg("no tensor %s", name);
    return (tt_ckpt_tensor){0};
}

static void test_a_folder_of_two_ranks_on_any_mesh(void **state)
{
    fixture *f = *state;
    const tt_json *root = golden(f), *tensors = tt_json_get(root, "tensors");
    tt_ckpt_reader *r = NULL;
    put_files(f, root);
    assert_ok(tt_ckpt_open(f->folder, &r, &f->err), f);
    assert_int_equal(tt_ckpt_n_tensors(r), tensors->n);
    for (size_t i = 0; i < tensors->n; i++) {
        const tt_json *want = tensors->items[i], *shape = tt_json_get(want, "shape");
        const tt_ckpt_tensor t = tensor_named(r, text_of(want, "name"));
        size_t n = 0;
        const uint8_t *bytes = bytes_of(f, text_of(want, "hex"), &n);
        assert_string_equal(t.dtype_name, text_of(want, "dtype"));
        assert_int_equal(t.n_dims, shape->n);
        const int64_t rows = shape->n ? shape->items[0]->integer : 1;
        for (int64_t ranks = 1; ranks <= 4; ranks++) { /* each reads its rows, uneven ones */
            uint8_t got[128] = {0};
            for (int64_t k = 0; k < ranks; k++) {
                const int64_t b = rows * k / ranks, e = rows * (k + 1) / ranks;
                if (e > b)
                    assert_ok(load_rows(r, &t, b, e, got + (size_t)b * n / (size_t)rows, &f->err),
                              f);
            }
            assert_memory_equal(got, bytes, n);
        }
    }
    tt_ckpt_close(r);
}

static void test_numbers_of_tensors_and_of_values(void **state)
{
    static const char *const names[] = {"optimizer.state.w.step", "train_state.step",
                                        "lr_scheduler.last_epoch"};
    fixture *f = *state;
    tt_ckpt_reader *r = NULL;
    double x = 0;
    bool found = false;
    put_files(f, golden(f));
    assert_ok(tt_ckpt_open(f->folder, &r, &f->err), f);
    for (size_t i = 0; i < TT_COUNT(names); i++) {
        assert_ok(tt_dcp_number(r, names[i], &x, &found, &f->err), f);
        assert_true(found && x == 7.0);
    }
    assert_ok(tt_dcp_number(r, "none", &x, &found, &f->err), f);
    assert_false(found);
    assert_true(tt_dcp_number(r, "bytes", &x, &found, &f->err) != TT_OK);
    assert_has(f->err.text, "'bytes' is a call, not a number");
    assert_true(tt_dcp_number(r, "w", &x, &found, &f->err) != TT_OK);
    assert_has(f->err.text, "'w' is not one number");
    tt_ckpt_close(r);
}

static void test_what_is_refused_is_named(void **state)
{
    fixture *f = *state;
    const tt_json *root = golden(f), *refused = tt_json_get(root, "refused");
    char before[4096];
    put_files(f, root);
    assert_int_equal(refused->n, 16);
    assert_non_null(getcwd(before, sizeof before));
    assert_int_equal(chdir(f->folder), 0); /* where a pickle that runs would make a file */
    for (size_t i = 0; i < refused->n; i++) {
        tt_ckpt_reader *r = NULL;
        uint8_t data[128];
        put_hex(f, TT_DCP_METADATA, text_of(refused->items[i], "metadata"));
        tt_error err = {0};
        tt_status s = tt_ckpt_open(f->folder, &r, &err);
        if (s == TT_OK) { /* holes and overlaps are looked for where a tensor is loaded */
            const tt_ckpt_tensor w = tensor_named(r, "w");
            s = load_rows(r, &w, 0, 5, data, &err);
            tt_ckpt_close(r);
        }
        if (s == TT_OK || !strstr(err.text, text_of(refused->items[i], "says")) ||
            strchr(err.text, '\n') || !strstr(err.text, f->folder))
            fail_msg("%s: %s", text_of(refused->items[i], "name"), s == TT_OK ? "taken" : err.text);
    }
    assert_int_not_equal(access("the-pickle-was-run", F_OK), 0);
    assert_int_equal(chdir(before), 0);
}

static void test_files_that_are_cut_short(void **state)
{
    fixture *f = *state;
    const tt_json *root = golden(f), *files = tt_json_get(root, "files");
    for (size_t i = 0; i < files->n; i++) {
        size_t n = 0;
        const char *name = text_of(files->items[i], "name");
        const uint8_t *bytes = bytes_of(f, text_of(files->items[i], "hex"), &n);
        put_files(f, root);
        for (size_t cut = 0; cut < n; cut += 1 + n / 24) {
            tt_ckpt_reader *r = NULL;
            put_file(in(f, name), bytes, cut);
            if (tt_ckpt_open(f->folder, &r, &f->err) == TT_OK)
                fail_msg("%s of %zu bytes is taken", name, cut);
            assert_has(f->err.text, name);
            assert_null(strchr(f->err.text, '\n'));
        }
    }
}

static void test_what_is_written_is_read(void **state)
{
    static const float values[] = {1, -2, 3.5f, 0, 5, 1e-30f};
    static const int64_t count = INT64_C(1) << 40;
    static const uint8_t f8[] = {0x38, 0xc4, 0x01};
    fixture *f = *state;
    const char *folder = in(f, "out");
    const tt_dcp_tensor tensors[] = {
        {"a.weight",                         TT_F32,    2, {2, 3}, values},
        {"optimizer.state.a.weight.exp_avg", TT_F32,    1, {6},    values},
        {"optimizer.state.a.weight.step",    TT_F32,    0, {0},    values},
        {"train_state.ntokens_seen",         TT_I64,    0, {0},    &count},
        {"empty",                            TT_BF16,   2, {0, 4}, values},
        {"eight",                            TT_F8E4M3, 1, {3},    f8    },
    };
    const tt_dcp_value real =
                           {
                               .kind = TT_DCP_REAL, .real = {0.25, 0}
    },
                       integer = {.kind = TT_DCP_INT, .integer = -300};
    tt_dcp_writer *w = NULL;
    assert_ok(tt_dcp_create(folder, &w, &f->err), f);
    for (size_t i = 0; i < TT_COUNT(tensors); i++)
        assert_ok(tt_dcp_put_tensor(w, &tensors[i], &f->err), f);
    assert_ok(tt_dcp_put_value(w, "optimizer.lr", &real, &f->err), f);
    assert_ok(tt_dcp_put_value(w, "epoch", &integer, &f->err), f);
    assert_true(tt_dcp_put_value(w, "epoch", &integer, &f->err) != TT_OK);
    assert_has(f->err.text, "'epoch' is written twice");
    assert_ok(tt_dcp_finish(w, &f->err), f);
    tt_dcp_close(w);
    tt_ckpt_reader *r = NULL;
    assert_ok(tt_ckpt_open(folder, &r, &f->err), f);
    for (size_t i = 0; i < TT_COUNT(tensors); i++) {
        const tt_ckpt_tensor t = tensor_named(r, tensors[i].name);
        uint8_t got[64] = {0};
        size_t n = tt_dtype_size(tensors[i].dtype);
        assert_int_equal(t.n_dims, tensors[i].n_dims);
        for (int d = 0; d < t.n_dims; d++) {
            assert_int_equal(t.shape[d], tensors[i].shape[d]);
            n *= (size_t)t.shape[d];
        }
        if (n)
            assert_ok(load_rows(r, &t, 0, t.shape[0], got, &f->err), f);
        assert_memory_equal(got, tensors[i].data, n);
    }
    double x = 0;
    bool found = false;
    assert_ok(tt_dcp_number(r, "optimizer.lr", &x, &found, &f->err), f);
    assert_true(found && x == 0.25);
    assert_ok(tt_dcp_number(r, "epoch", &x, &found, &f->err), f);
    assert_true(found && x == -300.0);
    assert_ok(tt_dcp_number(r, "train_state.ntokens_seen", &x, &found, &f->err), f);
    assert_true(found && x == (double)count);
    tt_ckpt_close(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_a_folder_of_two_ranks_on_any_mesh), TEST(test_numbers_of_tensors_and_of_values),
        TEST(test_what_is_refused_is_named),          TEST(test_files_that_are_cut_short),
        TEST(test_what_is_written_is_read),
    };
    tt_interchange_install();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
