/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/checkpoint.h"
#include "checkpoint/internal.h"
#include "interchange/install.h"
#include <stdlib.h>
#include <string.h>

/* For safetensors_peer.py and checkpoint_peer.py: core/checkpoint from the command line.
 *   rewrite IN OUT                     IN's tensors, last first, through tt_st_write
 *   save SRC FOLDER STEP WORLD         SRC's tensors as WORLD ranks hold them (below): begin,
 *                                      write, commit
 *   load STEP_FOLDER LIKE OUT WORLD    tensors named and typed as in LIKE, by the boxes of WORLD
 *                                      ranks, to OUT
 *   verify STEP_FOLDER                 faults on stdout */

static tt_status rewrite(tt_arena *a, const char *in, const char *out, tt_error *err)
{
    tt_st_file f;
    TT_TRY(tt_st_open(in, a, &f, err));
    tt_st_tensor *t = tt_arena_array(a, f.n_tensors, sizeof *t);
    for (size_t i = 0; i < f.n_tensors; i++)
        t[i] = f.tensors[f.n_tensors - 1 - i];
    tt_status status = tt_st_write(out, t, f.n_tensors, false, f.metadata_keys, f.metadata_values,
                                   f.n_metadata, NULL, err);
    tt_st_close(&f);
    return status;
}

static int64_t chunk_begin(int64_t n, int64_t parts, int64_t i)
{
    int64_t chunk = (n + parts - 1) / parts;
    return TT_MIN(i * chunk, n);
}

/* How rank r of `world` holds a tensor: the index-th tensors take turns in being cut along dim 0,
 * along the last dim, in both, in twice as many parts of which each rank has two that are not
 * neighbours, and not at all. Returns boxes. */
static int boxes_of(const tt_st_tensor *t, size_t index, int world, int r, tt_box out[2],
                    bool *owner)
{
    int n = t->n_dims, last = n - 1, parts = index % 5 == 3 ? 2 * world : world,
        count = index % 5 == 3 ? 2 : 1;
    *owner = n > 0 && index % 5 != 4 ? true : r == (int)(index % (size_t)world);
    for (int k = 0; k < count; k++) {
        tt_box b = {{0}, {0}};
        memcpy(b.end, t->shape, sizeof b.end);
        int64_t i = r + (int64_t)k * world;
        if (n > 0 && index % 5 == 1) {
            b.begin[last] = chunk_begin(t->shape[last], world, r);
            b.end[last] = chunk_begin(t->shape[last], world, r + 1);
        } else if (n > 1 && index % 5 == 2 && world % 2 == 0) {
            b.begin[0] = chunk_begin(t->shape[0], 2, r % 2);
            b.end[0] = chunk_begin(t->shape[0], 2, r % 2 + 1);
            b.begin[1] = chunk_begin(t->shape[1], world / 2, r / 2);
            b.end[1] = chunk_begin(t->shape[1], world / 2, r / 2 + 1);
        } else if (n > 0 && index % 5 != 4) {
            b.begin[0] = chunk_begin(t->shape[0], parts, i);
            b.end[0] = chunk_begin(t->shape[0], parts, i + 1);
        }
        out[k] = b;
    }
    return count;
}

static void copy_part(const tt_st_tensor *t, const tt_box *b, uint8_t *part, uint8_t *whole)
{
    size_t elem = tt_dtype_size(t->dtype);
    int64_t n = tt_box_numel(b, t->n_dims);
    for (int64_t i = 0; i < n; i++) {
        int64_t rest = i, at = 0, stride = 1;
        for (int d = t->n_dims - 1; d >= 0; d--) {
            int64_t length = b->end[d] - b->begin[d];
            at += (b->begin[d] + rest % length) * stride;
            rest /= length;
            stride *= t->shape[d];
        }
        if (whole) /* a loaded part goes into the whole */
            memcpy(whole + (size_t)at * elem, part + (size_t)i * elem, elem);
        else
            memcpy(part + (size_t)i * elem, (const uint8_t *)t->data + (size_t)at * elem, elem);
    }
}

static tt_ckpt_piece *pieces_of(tt_arena *a, const tt_st_file *f, int world, int r, size_t *n)
{
    tt_ckpt_piece *p = tt_arena_array(a, 2 * f->n_tensors, sizeof *p);
    *n = 0;
    for (size_t i = 0; i < f->n_tensors; i++) {
        const tt_st_tensor *t = &f->tensors[i];
        tt_box boxes[2];
        bool owner;
        int count = boxes_of(t, i, world, r, boxes, &owner);
        for (int k = 0; k < count; k++) {
            tt_ckpt_piece *q = &p[(*n)++];
            *q = (tt_ckpt_piece){.name = t->name,
                                 .dtype = t->dtype,
                                 .n_dims = t->n_dims,
                                 .box = boxes[k],
                                 .owner = owner};
            memcpy(q->global, t->shape, sizeof q->global);
            q->data = tt_arena_alloc(
                a, (size_t)tt_box_numel(&boxes[k], t->n_dims) * tt_dtype_size(t->dtype) + 1);
        }
    }
    return p;
}

static tt_status save(tt_arena *a, const char *src, const char *folder, int64_t step, int world,
                      tt_error *err)
{
    tt_st_file f;
    tt_trainer_state state = {.step = step,
                              .world = world,
                              .job_json = "{\"training\":{\"steps\":10}}",
                              .last_loss = 2.5};
    TT_TRY(tt_st_open(src, a, &f, err));
    TT_TRY(tt_ckpt_begin(folder, step, err));
    for (int r = 0; r < world; r++) {
        size_t n;
        tt_ckpt_piece *p = pieces_of(a, &f, world, r, &n);
        for (size_t i = 0; i < n; i++)
            copy_part(tt_st_find(&f, p[i].name), &p[i].box, p[i].data, NULL);
        TT_TRY(tt_ckpt_write(folder, step, r, p, n, err));
    }
    tt_st_close(&f);
    return tt_ckpt_commit(folder, step, &state, err);
}

static tt_status load(tt_arena *a, const char *folder, const char *like, const char *out, int world,
                      tt_error *err)
{
    tt_st_file f;
    tt_ckpt_reader *reader;
    TT_TRY(tt_st_open(like, a, &f, err));
    TT_TRY(tt_ckpt_open(folder, &reader, err));
    for (size_t i = 0; i < f.n_tensors; i++)
        f.tensors[i].data = tt_arena_alloc(a, f.tensors[i].bytes + 1);
    for (int r = 0; r < world; r++) {
        size_t n;
        tt_ckpt_piece *p = pieces_of(a, &f, world, r, &n);
        TT_TRY(tt_ckpt_load(reader, p, n, err));
        for (size_t i = 0; i < n; i++) {
            const tt_st_tensor *t = tt_st_find(&f, p[i].name);
            copy_part(t, &p[i].box, p[i].data, (uint8_t *)t->data);
        }
    }
    tt_ckpt_close(reader);
    TT_TRY(tt_st_write(out, f.tensors, f.n_tensors, false, NULL, NULL, 0, NULL, err));
    tt_st_close(&f);
    return TT_OK;
}

int main(int argc, char **argv)
{
    tt_error err = {0};
    tt_arena *a = tt_arena_new();
    tt_str faults = {0};
    tt_status status = TT_EINVAL;
    tt_interchange_install();
    if (argc == 4 && strcmp(argv[1], "rewrite") == 0)
        status = rewrite(a, argv[2], argv[3], &err);
    else if (argc == 6 && strcmp(argv[1], "save") == 0)
        status = save(a, argv[2], argv[3], atoll(argv[4]), atoi(argv[5]), &err);
    else if (argc == 6 && strcmp(argv[1], "load") == 0)
        status = load(a, argv[2], argv[3], argv[4], atoi(argv[5]), &err);
    else if (argc == 3 && strcmp(argv[1], "verify") == 0)
        status = tt_ckpt_verify(argv[2], &faults, &err);
    else
        tt_fail(&err, TT_EINVAL, "usage: ckpt_tool rewrite|save|load|verify …");
    fputs(tt_str_get(&faults), stdout);
    if (status != TT_OK)
        fprintf(stderr, "ckpt_tool: %s\n", err.text);
    tt_str_free(&faults);
    tt_arena_free(a);
    return status == TT_OK ? 0 : 1;
}
