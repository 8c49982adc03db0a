/* SPDX-License-Identifier: Apache-2.0 */
#include "golden.h"

static tt_mesh mesh_of(tt_arena *a, const char *const *names, const int32_t *sizes, int n)
{
    tt_mesh m;
    tt_error err;
    assert_int_equal(tt_mesh_make_atoms(names, sizes, n, NULL, 0, a, &m, &err), TT_OK);
    return m;
}

static void test_boxes_agree_with_the_specification(void **state)
{
    golden *g = golden_open();
    const json_t *vectors = get(g->root, "boxes");
    size_t n = json_array_size(vectors);
    (void)state;
    assert_true(n > 400);
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(vectors, i);
        const tt_mesh *m = &g->mesh[get_int(v, "mesh")];
        tt_dim dims[TT_MAX_DIMS];
        int nd = read_dims(get(v, "dims"), dims);
        tt_placement p = read_placement(m, get(v, "place"));
        char text[256];
        tt_error err;
        assert_int_equal(tt_placement_check(m, &p, nd, &err), TT_OK);
        tt_placement_print(m, &p, nd, text, sizeof text);
        assert_string_equal(text, json_string_value(get(v, "text")));
        int64_t numel = 1;
        for (int d = 0; d < nd; d++) {
            int64_t want = json_integer_value(json_array_get(get(v, "chunk"), (size_t)d));
            assert_int_equal(tt_chunk(m, &dims[d], p.atom[d], p.n[d]), want);
            numel *= want;
        }
        assert_int_equal(tt_max_local_numel(m, dims, nd, &p), numel);
        const json_t *boxes = get(v, "box");
        assert_int_equal(json_array_size(boxes), m->world);
        for (int r = 0; r < m->world; r++) {
            const json_t *want = json_array_get(boxes, (size_t)r);
            int32_t coords[TT_MAX_ATOMS];
            tt_box b;
            tt_mesh_coords(m, r, coords);
            tt_box_of(m, dims, nd, &p, coords, &b);
            for (int d = 0; d < nd; d++) {
                assert_int_equal(b.begin[d],
                                 json_integer_value(json_array_get(want, (size_t)(2 * d))));
                assert_int_equal(b.end[d],
                                 json_integer_value(json_array_get(want, (size_t)(2 * d + 1))));
                assert_true(b.end[d] - b.begin[d] <= tt_chunk(m, &dims[d], p.atom[d], p.n[d]));
            }
        }
    }
    golden_close(g);
}

/* Every element lies in exactly as many boxes as there are replicas of a shard. */
static void check_tiles(const tt_mesh *m, const tt_dim *dims, int nd, const tt_placement *p)
{
    int count[20 * 20] = {0};
    int replicas = m->world / tt_mesh_degree_mask(m, tt_placement_shard_atoms(p, nd));
    int64_t rows = dims[0].size, cols = dims[1].size;
    for (int r = 0; r < m->world; r++) {
        int32_t coords[TT_MAX_ATOMS];
        tt_box b;
        tt_mesh_coords(m, r, coords);
        tt_box_of(m, dims, nd, p, coords, &b);
        for (int64_t i = b.begin[0]; i < b.end[0]; i++)
            for (int64_t j = b.begin[1]; j < b.end[1]; j++)
                count[i * cols + j]++;
    }
    for (int64_t i = 0; i < rows * cols; i++)
        assert_int_equal(count[i], replicas);
}

static void check_prefixes_enclose(const tt_mesh *m, const tt_dim *d, const uint16_t *atoms, int n)
{
    for (int r = 0; r < m->world; r++) {
        int32_t coords[TT_MAX_ATOMS];
        int64_t begin = 0, end = d->size;
        tt_mesh_coords(m, r, coords);
        for (int k = 0; k <= n; k++) {
            int64_t b, e;
            tt_dim_box(m, d, atoms, k, coords, &b, &e);
            assert_true(b >= begin && e <= end && b <= e);
            bool units = k > 0 && !(atoms[k - 1] & TT_IGNORE_UNIT);
            for (int i = 0; i < k; i++)
                units = units && !(atoms[i] & TT_IGNORE_UNIT);
            if (units && e > b) /* a cut that respects the unit falls on a multiple of it */
                assert_true(b % d->unit == 0 && (e % d->unit == 0 || e == d->size));
            begin = b;
            end = e;
        }
    }
}

static void test_boxes_tile_and_prefixes_enclose(void **state)
{
    static const char *const names[] = {"a", "b", "c", "d"};
    tt_rng_key key = {2024};
    uint64_t counter = 0;
    (void)state;
    for (int trial = 0; trial < 400; trial++) {
        uint32_t u[12];
        int32_t sizes[4];
        tt_arena *a = tt_arena_new();
        for (int i = 0; i < 3; i++)
            tt_rng_u32x4(key, counter++, u + 4 * i);
        for (int i = 0; i < 4; i++)
            sizes[i] = (int32_t)(1 + u[i] % 4);
        tt_mesh m = mesh_of(a, names, sizes, 4);
        tt_dim dims[2];
        for (int d = 0; d < 2; d++)
            dims[d] = TT_DIM_UNIT(1 + u[4 + d] % 20, NULL, 1 + u[6 + d] % 4);
        tt_placement p;
        memset(&p, 0, sizeof p);
        for (int i = 0; i < m.n_atoms; i++) {
            int d = (int)((u[8] >> (4 * i)) % 3);
            unsigned no_unit = (u[9] >> i & 1) ? TT_IGNORE_UNIT : 0;
            if (d < 2)
                p.atom[d][p.n[d]++] = TT_SHIFTED((unsigned)i | no_unit,
                                                 (u[10] >> (4 * i)) % (unsigned)m.atom_size[i]);
        }
        check_tiles(&m, dims, 2, &p);
        for (int d = 0; d < 2; d++)
            check_prefixes_enclose(&m, &dims[d], p.atom[d], p.n[d]);
        tt_arena_free(a);
    }
}

/* 14 over tp 2, fsdp 3: by the product rank 2 would hold [6,9), across tp's cut at 7. */
static void test_a_dim_is_cut_atom_by_atom(void **state)
{
    static const char *const names[] = {"dp_shard", "tp"};
    static const int32_t sizes[] = {3, 2};
    static const int64_t want[6][2] = {
        {0,  3 },
        {3,  6 },
        {6,  7 },
        {7,  10},
        {10, 13},
        {13, 14}
    };
    static const uint16_t atoms[] = {1, 0};
    tt_arena *a = tt_arena_new();
    tt_mesh m = mesh_of(a, names, sizes, 2);
    tt_dim d = TT_DIM(14, NULL);
    (void)state;
    for (int i = 0; i < 6; i++) {
        int32_t coords[TT_MAX_ATOMS] = {i % 3, i / 3};
        int64_t b, e;
        tt_dim_box(&m, &d, atoms, 2, coords, &b, &e);
        assert_int_equal(b, want[i][0]);
        assert_int_equal(e, want[i][1]);
    }
    tt_dim heads = TT_DIM_UNIT(80, "heads", 16);
    assert_int_equal(tt_chunk(&m, &heads, atoms, 1), 48);
    static const uint16_t no_unit[] = {1 | TT_IGNORE_UNIT};
    assert_int_equal(tt_chunk(&m, &heads, no_unit, 1), 40);
    tt_arena_free(a);
}

static void test_box_intersect_is_the_common_part(void **state)
{
    tt_box a =
               {
                   {0, 2},
                   {4, 8}
    },
           b = {{3, 0}, {9, 5}}, c = {{4, 0}, {9, 5}}, out;
    (void)state;
    assert_true(tt_box_intersect(&a, &b, 2, &out));
    assert_int_equal(out.begin[0], 3);
    assert_int_equal(out.end[0], 4);
    assert_int_equal(out.begin[1], 2);
    assert_int_equal(out.end[1], 5);
    assert_int_equal(tt_box_numel(&out, 2), 3);
    assert_false(tt_box_intersect(&a, &c, 2, &out));
    assert_int_equal(tt_box_numel(&out, 2), 0);
    assert_true(tt_box_intersect(&a, &c, 0, &out)); /* scalars meet */
    assert_int_equal(tt_box_numel(&out, 0), 1);
}

/* Fills a row-major array over a box with each element's place in the whole tensor. */
static void number_elements(const tt_box *b, const int64_t *global, int n, uint16_t *to)
{
    const int64_t all = tt_box_numel(b, n);
    for (int64_t i = 0; i < all; i++) {
        int64_t rest = i, at = 0, stride = 1;
        for (int d = n - 1; d >= 0; d--) {
            const int64_t length = b->end[d] - b->begin[d];
            at += (b->begin[d] + rest % length) * stride;
            rest /= length;
            stride *= global[d];
        }
        to[i] = (uint16_t)at;
    }
}

static void test_a_copied_box_has_its_elements_and_no_other_is_written(void **state)
{
    enum { MOST = 6 * 5 * 7 * 3 };
    static const int64_t global[] = {6, 5, 7, 3};
    uint64_t random = 1;
    int copied = 0;
    (void)state;
    for (int round = 0; round < 3000; round++) {
        const int n = round % 5;
        tt_box box[3] = {0}, both = {0};
        uint16_t from[MOST], to[MOST], was[MOST], want[MOST];
        for (int k = 0; k < 2; k++)
            for (int d = 0; d < n; d++) {
                random = random * 6364136223846793005u + 1442695040888963407u;
                const int64_t a = (int64_t)(random >> 33) % (global[d] + 1);
                const int64_t b = (int64_t)(random >> 45) % (global[d] + 1);
                box[k].begin[d] = random >> 62 ? TT_MIN(a, b) : 0; /* often whole */
                box[k].end[d] = random >> 62 ? TT_MAXV(a, b) : global[d];
            }
        const bool some = tt_box_intersect(&box[0], &box[1], n, &both);
        number_elements(&box[0], global, n, from);
        memset(to, 0xff, sizeof to);
        memcpy(was, to, sizeof to);
        tt_box_copy(&both, from, &box[0], to, &box[1], n, sizeof *to);
        number_elements(&box[1], global, n, want);
        int64_t written = 0;
        for (int64_t i = 0; i < MOST; i++) {
            if (to[i] == was[i])
                continue;
            assert_int_equal(to[i], want[i]);
            written++;
        }
        assert_int_equal(written, some ? tt_box_numel(&both, n) : 0);
        copied += written > 0;
    }
    assert_true(copied > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_boxes_agree_with_the_specification),
        cmocka_unit_test(test_boxes_tile_and_prefixes_enclose),
        cmocka_unit_test(test_a_dim_is_cut_atom_by_atom),
        cmocka_unit_test(test_box_intersect_is_the_common_part),
        cmocka_unit_test(test_a_copied_box_has_its_elements_and_no_other_is_written),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
