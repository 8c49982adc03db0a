/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt_test.h"

/* Any mesh loads what any other mesh saved: random tensors, saved by the boxes of one random mesh,
 * loaded by those of others. */

typedef struct random_mesh {
    tt_mesh mesh;
    tt_placement *placements; /* of each tensor */
    tt_dim (*dims)[TT_MAX_DIMS];
} random_mesh;

static uint64_t draw(uint64_t *s, uint64_t n)
{
    uint32_t r[4];
    tt_rng_u32x4(tt_rng_key_make(11, "test_load", 0), (*s)++, r);
    return r[0] % n;
}

static random_mesh make_mesh(fixture *f, uint64_t *s, const model_tensor *t, size_t n)
{
    static const char *const names[] = {"a", "b", "c"};
    static const int32_t sizes_of[][3] = {
        {1, 1, 1},
        {2, 1, 1},
        {3, 2, 1},
        {2, 2, 2},
        {4, 3, 1},
        {7, 1, 1},
        {5, 2, 1}
    };
    random_mesh m = {.placements = tt_arena_array(f->a, n, sizeof(tt_placement))};
    m.dims = tt_arena_array(f->a, n, sizeof *m.dims);
    tt_axis no_axis = {.name = "none"};
    assert_ok(
        tt_mesh_make_atoms(names, sizes_of[draw(s, 7)], 3, &no_axis, 0, f->a, &m.mesh, &f->err), f);
    for (size_t i = 0; i < n; i++) {
        for (int d = 0; d < t[i].n_dims; d++)
            m.dims[i][d] = TT_DIM_UNIT(t[i].shape[d], NULL, (int64_t)(1 + draw(s, 2)));
        for (int atom = 0; atom < m.mesh.n_atoms && t[i].n_dims > 0; atom++) {
            int d =
                (int)draw(s, (uint64_t)t[i].n_dims + 1); /* the last: replicated over this atom */
            if (d < t[i].n_dims)
                m.placements[i].atom[d][m.placements[i].n[d]++] =
                    (uint16_t)(atom | (draw(s, 2) ? TT_IGNORE_UNIT : 0));
        }
    }
    return m;
}

static tt_ckpt_piece *pieces_of(fixture *f, const random_mesh *m, const model_tensor *t, size_t n,
                                int rank, bool fill)
{
    int32_t coords[TT_MAX_ATOMS];
    tt_ckpt_piece *p = tt_arena_array(f->a, n, sizeof *p);
    tt_mesh_coords(&m->mesh, rank, coords);
    for (size_t i = 0; i < n; i++) {
        tt_box box;
        bool owner = true;
        uint16_t cut = tt_placement_shard_atoms(&m->placements[i], t[i].n_dims);
        for (int atom = 0; atom < m->mesh.n_atoms; atom++)
            owner = owner && ((cut >> atom & 1) || coords[atom] == 0);
        tt_box_of(&m->mesh, m->dims[i], t[i].n_dims, &m->placements[i], coords, &box);
        p[i] = piece_of(f->a, &t[i], &box, owner, fill);
    }
    return p;
}

static void random_tensors(fixture *f, uint64_t *s, model_tensor *t, size_t n)
{
    static const tt_dtype kinds[] = {TT_F32, TT_BF16, TT_F16, TT_F64, TT_I32, TT_I64, TT_U8};
    for (size_t i = 0; i < n; i++) {
        t[i] = (model_tensor){.name = tt_arena_printf(f->a, "model.t%zu", i),
                              .dtype = kinds[draw(s, 7)]};
        t[i].n_dims = (int)draw(s, 5);
        t[i].salt = (int64_t)draw(s, 50);
        for (int d = 0; d < t[i].n_dims; d++)
            t[i].shape[d] = draw(s, 12) ? (int64_t)(1 + draw(s, 9)) : 0;
    }
}

static void save_with(fixture *f, const random_mesh *m, const char *folder, int64_t step,
                      const model_tensor *t, size_t n)
{
    tt_trainer_state state = {.step = step, .world = m->mesh.world};
    assert_ok(tt_ckpt_begin(folder, step, &f->err), f);
    for (int r = 0; r < m->mesh.world; r++)
        assert_ok(tt_ckpt_write(folder, step, r, pieces_of(f, m, t, n, r, true), n, &f->err), f);
    assert_ok(tt_ckpt_commit(folder, step, &state, &f->err), f);
}

static void test_load_on_any_mesh_what_any_mesh_wrote(void **state)
{
    enum { N = 9, ROUNDS = 25 };
    fixture *f = *state;
    uint64_t s = 0;
    for (int64_t round = 0; round < ROUNDS; round++) {
        model_tensor t[N];
        random_tensors(f, &s, t, N);
        random_mesh writer = make_mesh(f, &s, t, N);
        save_with(f, &writer, f->folder, round, t, N);
        for (int again = 0; again < 3; again++) {
            tt_ckpt_reader *r;
            random_mesh reader = make_mesh(f, &s, t, N);
            for (size_t i = 0; i < N && again; i++) /* the floating-point ones into another dtype */
                t[i].dtype = t[i].dtype <= TT_F64 ? (tt_dtype)draw(&s, 4) : t[i].dtype;
            assert_ok(tt_ckpt_open(tt_arena_printf(f->a, "%s/step-%d", f->folder, (int)round), &r,
                                   &f->err),
                      f);
            for (int rank = 0; rank < reader.mesh.world; rank++) {
                tt_ckpt_piece *p = pieces_of(f, &reader, t, N, rank, false);
                assert_ok(tt_ckpt_load(r, p, N, &f->err), f);
                for (size_t i = 0; i < N; i++)
                    assert_piece(f->a, &t[i], &p[i]);
            }
            tt_ckpt_close(r);
        }
    }
}

/* A folder of safetensors files as PyTorch writes them: no trainer.json. */
static void put_shard(fixture *f, const char *file, const model_tensor *t, const tt_box *box)
{
    tt_ckpt_piece p = piece_of(f->a, t, box, true, true);
    tt_st_tensor s = {.name = t->name, .dtype = t->dtype, .n_dims = t->n_dims, .data = p.data};
    for (int d = 0; d < t->n_dims; d++) {
        s.shape[d] = box->end[d] - box->begin[d];
        s.offset[d] = box->begin[d];
    }
    s.bytes = (size_t)tt_box_numel(box, t->n_dims) * tt_dtype_size(t->dtype);
    assert_ok(tt_st_write(in(f, file), &s, 1, true, NULL, NULL, 0, NULL, &f->err), f);
}

static const model_tensor w = {
    "w", TT_F32, 2, {4, 6},
       3
};

static tt_status load_whole(fixture *f, const model_tensor *t, void **data)
{
    tt_ckpt_reader *r;
    tt_box box = whole_box(t);
    tt_ckpt_piece p = piece_of(f->a, t, &box, true, false);
    memset(p.data, 0x55, (size_t)tt_box_numel(&box, t->n_dims) * tt_dtype_size(t->dtype));
    *data = p.data;
    TT_TRY(tt_ckpt_open(f->folder, &r, &f->err));
    tt_status status = tt_ckpt_load(r, &p, 1, &f->err);
    tt_ckpt_close(r);
    return status;
}

static void test_load_names_the_uncovered_range(void **state)
{
    fixture *f = *state;
    uint8_t *data;
    put_shard(f, "a.safetensors", &w,
              &(tt_box){
                  {0, 0},
                  {2, 6}
    });
    put_shard(f, "b.safetensors", &w,
              &(tt_box){
                  {2, 4},
                  {4, 6}
    });
    assert_int_equal(load_whole(f, &w, (void **)&data), TT_EFORMAT);
    assert_has(f->err.text, "tensor 'w': [2:4, 0:4] is in no file (16 of 24 elements are)");
    assert_int_equal(data[0], 0x55); /* nothing copied */
    put_shard(f, "c.safetensors", &w,
              &(tt_box){
                  {2, 0},
                  {4, 4}
    });
    assert_ok(load_whole(f, &w, (void **)&data), f);
}

static void test_load_refuses_overlaps(void **state)
{
    fixture *f = *state;
    void *data;
    put_shard(f, "a.safetensors", &w,
              &(tt_box){
                  {0, 0},
                  {3, 6}
    });
    put_shard(f, "b.safetensors", &w,
              &(tt_box){
                  {2, 0},
                  {4, 6}
    });
    assert_int_equal(load_whole(f, &w, &data), TT_EFORMAT);
    assert_has(f->err.text, "[2:3, 0:6] is in two files");
    assert_has(f->err.text, "a.safetensors");
    assert_has(f->err.text, "b.safetensors");
    /* as many elements too many as are missing: the total alone would not show it */
    put_shard(f, "b.safetensors", &w,
              &(tt_box){
                  {2, 0},
                  {4, 3}
    });
    assert_int_equal(load_whole(f, &w, &data), TT_EFORMAT);
}

static void test_load_refuses_other_shapes_names_and_dtypes(void **state)
{
    fixture *f = *state;
    void *data;
    model_tensor t = w;
    tt_box box = whole_box(&w);
    put_shard(f, "a.safetensors", &w, &box);
    t.shape[1] = 7;
    assert_int_equal(load_whole(f, &t, &data), TT_EINVAL);
    assert_has(f->err.text, "'w' is [4,6] there, [4,7] in the model");
    t = w;
    t.n_dims = 1;
    assert_int_equal(load_whole(f, &t, &data), TT_EINVAL);
    t = w;
    t.name = "ww";
    assert_int_equal(load_whole(f, &t, &data), TT_ENOTFOUND);
    assert_has(f->err.text, "no tensor 'ww'");
    t = w;
    t.dtype = TT_I32;
    assert_int_equal(load_whole(f, &t, &data), TT_EINVAL);
    assert_has(f->err.text, "is F32 there, i32 in the model");
}

/* Weights of a quantized Hugging Face folder have scales beside them. */
static void test_load_refuses_float8_without_scales(void **state)
{
    fixture *f = *state;
    void *data;
    model_tensor t = w;
    tt_box box = whole_box(&w);
    t.dtype = TT_F8E4M3;
    put_shard(f, "a.safetensors", &t, &box);
    assert_ok(load_whole(f, &t, &data), f);
    t.dtype = TT_F32;
    assert_int_equal(load_whole(f, &t, &data), TT_EUNSUPPORTED);
    assert_has(f->err.text, "is F8_E4M3 there, but no 'w_scale_inv' or 'w_scale' of a form");
}

/* Batches of sorted pieces read each file from its begin to its end: by dtype, then by name; a tensor that is in no file
 * comes last. */
static void test_pieces_are_sorted_as_they_lie_in_the_files(void **state)
{
    fixture *f = *state;
    static const model_tensor of[] = {
        {"d",    TT_BF16, 1, {9},    1},
        {"none", TT_F32,  1, {0},    1},
        {"c",    TT_F32,  2, {6, 5}, 2},
        {"b",    TT_F32,  1, {7},    3},
        {"a",    TT_BF16, 1, {3},    4},
    };
    const char *want[] = {"b", "a", "c", "d", "none"};
    const tt_trainer_state st = {.step = 1, .world = 2, .job_json = "{}"};
    tt_ckpt_piece p[TT_COUNT(of)];
    for (size_t i = 0; i < TT_COUNT(of); i++) {
        const tt_box box = whole_box(&of[i]);
        p[i] = piece_of(f->a, &of[i], &box, true, true);
    }
    const tt_ckpt_piece files[2][3] = {
        {p[3], p[4], p[1]},
        {p[0],    p[2]    }
    };
    assert_ok(tt_ckpt_begin(f->folder, 1, &f->err), f);
    for (int rank = 0; rank < 2; rank++)
        assert_ok(tt_ckpt_write(f->folder, 1, rank, files[rank], rank ? 2 : 3, &f->err), f);
    assert_ok(tt_ckpt_commit(f->folder, 1, &st, &f->err), f);
    tt_ckpt_reader *r = NULL;
    assert_ok(tt_ckpt_open(in(f, "step-1"), &r, &f->err), f);
    tt_ckpt_sort(r, p, TT_COUNT(of));
    for (size_t i = 0; i < TT_COUNT(of); i++)
        assert_string_equal(p[i].name, want[i]);
    tt_ckpt_close(r);
}

/* What an export has not read is in none of its files. */
static void test_a_tensor_was_read_when_all_of_it_was(void **state)
{
    fixture *f = *state;
    tt_ckpt_reader *r;
    tt_box box = whole_box(&w);
    put_shard(f, "a.safetensors", &w, &box);
    assert_ok(tt_ckpt_open(f->folder, &r, &f->err), f);
    for (int64_t row = 0; row < w.shape[0]; row++) {
        assert_false(tt_ckpt_was_read(r, "w"));
        box.begin[0] = row;
        box.end[0] = row + 1;
        const tt_ckpt_piece p = piece_of(f->a, &w, &box, true, false);
        assert_ok(tt_ckpt_load(r, &p, 1, &f->err), f);
    }
    assert_true(tt_ckpt_was_read(r, "w"));
    assert_false(tt_ckpt_was_read(r, "none"));
    tt_ckpt_close(r);
}

static tt_status take_rows(void *taker, const tt_ckpt_piece *rows, tt_error *err)
{
    (void)taker;
    (void)rows;
    (void)err;
    return TT_OK;
}

static void test_pieces_at_once_have_bytes_for_the_limit(void **state)
{
    tt_ckpt_piece p[] = {
        {.dtype = TT_F32,  .n_dims = 1, .box = {{3}, {7}}      },
        {.dtype = TT_BF16, .n_dims = 2, .box = {{0, 2}, {4, 4}}},
        {.dtype = TT_F32,  .n_dims = 1, .box = {{0}, {9}}      }
    }; /* 16, 16 and 36 bytes */
    (void)state;
    assert_int_equal(tt_ckpt_at_once(p, 3, 1), 1);
    assert_int_equal(tt_ckpt_at_once(p, 3, 16), 1);
    assert_int_equal(tt_ckpt_at_once(p, 3, 17), 2);
    assert_int_equal(tt_ckpt_at_once(p, 3, 33), 3);
    assert_int_equal(tt_ckpt_at_once(p + 2, 1, 1), 1);
    p[0].take = take_rows;
    assert_int_equal(tt_ckpt_at_once(p, 3, 16), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_load_on_any_mesh_what_any_mesh_wrote),
        TEST(test_load_names_the_uncovered_range),
        TEST(test_load_refuses_overlaps),
        TEST(test_load_refuses_other_shapes_names_and_dtypes),
        TEST(test_load_refuses_float8_without_scales),
        TEST(test_a_tensor_was_read_when_all_of_it_was),
        TEST(test_pieces_are_sorted_as_they_lie_in_the_files),
        TEST(test_pieces_at_once_have_bytes_for_the_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
