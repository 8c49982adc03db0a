/* SPDX-License-Identifier: Apache-2.0 */
#include "train/peer_index.h"
#include "train/peer_memory.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* The index of a copy says what was written, and a damaged one is refused without reading beyond the copy. */

static tt_ckpt_piece pieces[] = {
    {.name = "model.embed_tokens.weight",
     .dtype = TT_BF16,
     .n_dims = 2,
     .global = {262, 31},
     .box = {{88, 0}, {175, 31}},
     .owner = true},
    {.name = "optimizer.state.model.norm.weight.exp_avg",
     .dtype = TT_F32,
     .n_dims = 1,
     .global = {31},
     .box = {{31}, {31}},
     .exact = true},
    {.name = "optimizer.loss_scale",                       .dtype = TT_F32,                                       .n_dims = 0, .owner = true, .exact = true},
};
enum { N = (int)TT_COUNT(pieces), DATA = 87 * 31 * 2 + 4 };

/* A copy in memory of exactly its size, which ASan watches. */
static char *make_copy(int64_t *bytes)
{
    const tt_peer_index of = {.job = 4711, .mesh = 42, .rank = 1, .world = 3};
    const int64_t index = tt_peer_index_size(pieces, N);
    char *copy = malloc((size_t)index + DATA);
    assert_non_null(copy);
    tt_peer_index_write(&of, pieces, N, copy);
    memset(copy + index, 7, DATA);
    *bytes = index + DATA;
    return copy;
}

static void test_peer_index_says_what_was_written(void **state)
{
    (void)state;
    tt_arena *a = tt_arena_new();
    tt_peer_index head;
    tt_ckpt_piece *p;
    int64_t bytes;
    char *copy = make_copy(&bytes);
    assert_true(tt_peer_index_read(copy, bytes, a, &head, &p));
    assert_true(head.job == 4711 && head.mesh == 42 && head.rank == 1 && head.world == 3);
    assert_int_equal(head.n, N);
    assert_int_equal(head.bytes % TT_PEER_PAGE, 0);
    const char *data = copy + head.bytes;
    for (int i = 0; i < N; i++) {
        assert_string_equal(p[i].name, pieces[i].name);
        assert_true(p[i].dtype == pieces[i].dtype && p[i].n_dims == pieces[i].n_dims &&
                    p[i].owner == pieces[i].owner && p[i].exact == pieces[i].exact);
        assert_memory_equal(&p[i].box, &pieces[i].box, sizeof p[i].box);
        assert_memory_equal(p[i].global, pieces[i].global, sizeof p[i].global);
        assert_ptr_equal(p[i].data, data);
        data += tt_peer_piece_bytes(&pieces[i]);
    }
    assert_ptr_equal(data, copy + bytes);
    free(copy);
    tt_arena_free(a);
}

/* What lay in the memory before is not among the bytes that other ranks get. */
static void test_peer_index_has_no_other_bytes(void **state)
{
    (void)state;
    const tt_peer_index of = {.job = 4711, .mesh = 42, .rank = 1, .world = 3};
    const size_t n = (size_t)tt_peer_index_size(pieces, N);
    char *a = malloc(n), *b = malloc(n);
    assert_true(a && b);
    memset(a, 0x55, n);
    memset(b, 0xaa, n);
    tt_peer_index_write(&of, pieces, N, a);
    tt_peer_index_write(&of, pieces, N, b);
    assert_memory_equal(a, b, n);
    free(a);
    free(b);
}

/* Each 8 bytes of the index become other numbers; a copy that is too short is none. */
static void test_peer_index_refuses_damage(void **state)
{
    (void)state;
    static const int64_t values[] = {-1, INT64_MIN, INT64_MAX, INT64_C(1) << 40, 4095};
    tt_arena *a = tt_arena_new();
    tt_peer_index head;
    tt_ckpt_piece *p;
    int64_t bytes;
    int refused = 0;
    char *copy = make_copy(&bytes);
    const int64_t index = tt_peer_index_size(pieces, N);
    for (int64_t at = 0; at < index; at += 8)
        for (size_t k = 0; k < TT_COUNT(values); k++) {
            int64_t before;
            memcpy(&before, copy + at, sizeof before);
            memcpy(copy + at, &values[k], sizeof before);
            if (!tt_peer_index_read(copy, bytes, a, &head, &p))
                refused++;
            else
                for (int64_t i = 0; i < head.n; i++) /* within the copy */
                    assert_true(strlen(p[i].name) < (size_t)bytes &&
                                (char *)p[i].data + tt_peer_piece_bytes(&p[i]) <= copy + bytes);
            memcpy(copy + at, &before, sizeof before);
        }
    assert_true(refused > 50);
    assert_false(tt_peer_index_read(copy, bytes - 1, a, &head, &p));
    assert_false(tt_peer_index_read(copy, 8, a, &head, &p));
    assert_true(tt_peer_index_read(copy, bytes, a, &head, &p));
    free(copy);
    tt_arena_free(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peer_index_says_what_was_written),
        cmocka_unit_test(test_peer_index_has_no_other_bytes),
        cmocka_unit_test(test_peer_index_refuses_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
