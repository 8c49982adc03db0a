/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CKPT_TEST_H
#define TT_CKPT_TEST_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "checkpoint/internal.h"
#include "folder_test.h"
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
/* must be last: it needs the headers above */
#include <cmocka.h>

/* Shared by the tests of core/checkpoint: a folder and an arena per test, and tensors whose
 * elements show their position. */

typedef struct fixture {
    tt_arena *a;
    char folder[TEST_FOLDER];
    tt_error err;
} fixture;

static inline int setup(void **state)
{
    fixture *f = calloc(1, sizeof *f);
    f->a = tt_arena_new();
    *state = f;
    return test_folder("ckpt", f->folder) ? 0 : -1;
}

static inline int teardown(void **state)
{
    fixture *f = *state;
    tt_remove_tree(f->folder, &f->err);
    tt_arena_free(f->a);
    free(f);
    return 0;
}
#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#define assert_ok(expr, f)                                                                         \
    do {                                                                                           \
        if ((expr) != TT_OK)                                                                       \
            fail_msg("%s: %s", #expr, (f)->err.text);                                              \
    } while (0)

static inline void assert_has(const char *text, const char *part)
{
    if (!strstr(text, part))
        fail_msg("'%s' does not say '%s'", text, part);
}

static inline char *in(fixture *f, const char *name)
{
    return tt_path_join(f->a, f->folder, name);
}

static inline void put_file(const char *path, const void *p, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(p, 1, n, file), n);
    fclose(file);
}

/* A safetensors file in memory: length, header, n_data zero bytes. */
static inline uint8_t *st_image(fixture *f, const char *header, size_t n_data, size_t *n)
{
    size_t length = strlen(header);
    uint8_t *p = tt_arena_alloc(f->a, 8 + length + n_data + 1);
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)((uint64_t)length >> (8 * i));
    memcpy(p + 8, header, length);
    *n = 8 + length + n_data;
    return p;
}

/* A global tensor whose element i has the value salt + i. */
typedef struct model_tensor {
    const char *name;
    tt_dtype dtype;
    int n_dims;
    int64_t shape[TT_MAX_DIMS];
    int64_t salt;
} model_tensor;

static inline int64_t global_index(const model_tensor *t, const tt_box *b, int64_t i)
{
    int64_t at = 0, stride = 1;
    for (int d = t->n_dims - 1; d >= 0; d--) {
        int64_t length = b->end[d] - b->begin[d];
        at += (b->begin[d] + i % length) * stride;
        i /= length;
        stride *= t->shape[d];
    }
    return at;
}

/* Small enough to be exact in every dtype. */
static inline double value_at(const model_tensor *t, int64_t index)
{
    return (double)((t->salt + index * 7) % 100);
}

static inline void set_element(void *data, tt_dtype dtype, int64_t i, double v)
{
    int64_t as_int = (int64_t)v;
    int32_t as_i32 = (int32_t)v;
    uint8_t byte = (uint8_t)v;
    if (dtype == TT_I64)
        memcpy((uint8_t *)data + 8 * i, &as_int, 8);
    else if (dtype == TT_I32)
        memcpy((uint8_t *)data + 4 * i, &as_i32, 4);
    else if (dtype == TT_U8 || dtype == TT_BOOL)
        memcpy((uint8_t *)data + i, &byte, 1);
    else
        tt_convert((uint8_t *)data + (int64_t)tt_dtype_size(dtype) * i, dtype, &v, TT_F64, 1);
}

static inline tt_ckpt_piece piece_of(tt_arena *a, const model_tensor *t, const tt_box *box,
                                     bool owner, bool fill)
{
    tt_ckpt_piece p = {
        .name = t->name, .dtype = t->dtype, .n_dims = t->n_dims, .box = *box, .owner = owner};
    int64_t n = tt_box_numel(box, t->n_dims);
    memcpy(p.global, t->shape, sizeof p.global);
    p.data = tt_arena_alloc(a, (size_t)n * tt_dtype_size(t->dtype) + 16);
    for (int64_t i = 0; i < n && fill; i++)
        set_element(p.data, t->dtype, i, value_at(t, global_index(t, box, i)));
    return p;
}

static inline void assert_piece(tt_arena *a, const model_tensor *t, const tt_ckpt_piece *p)
{
    tt_ckpt_piece want = piece_of(a, t, &p->box, true, true);
    size_t bytes = (size_t)tt_box_numel(&p->box, p->n_dims) * tt_dtype_size(p->dtype);
    if (memcmp(want.data, p->data, bytes) != 0)
        fail_msg("tensor %s: other values", t->name);
}

static inline tt_box whole_box(const model_tensor *t)
{
    tt_box b = {{0}, {0}};
    memcpy(b.end, t->shape, sizeof b.end);
    return b;
}

/* Saves one step as one rank. keep: the latest so many stay, 0: all. */
static inline tt_status save_whole(fixture *f, const char *folder, int64_t step,
                                   const model_tensor *t, size_t n, int64_t keep, tt_error *err)
{
    tt_trainer_state s = {.step = step, .world = 1, .job_json = "{}", .samples_seen = step * 10};
    tt_ckpt_piece *p = tt_arena_array(f->a, n, sizeof *p);
    for (size_t i = 0; i < n; i++) {
        tt_box b = whole_box(&t[i]);
        p[i] = piece_of(f->a, &t[i], &b, true, true);
    }
    TT_TRY(tt_ckpt_begin(folder, step, err));
    TT_TRY(tt_ckpt_write(folder, step, 0, p, n, err));
    TT_TRY(tt_ckpt_commit(folder, step, &s, err));
    return tt_ckpt_purge(folder, step, &(tt_ckpt_keep){.latest = keep}, err);
}

#endif
