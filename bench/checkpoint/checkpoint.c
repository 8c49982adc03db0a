/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "checkpoint/checkpoint.h"
#include "base/pages.h"
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

/* Saves and loads the state of GPT-2 124M (or DIVIDE times fewer layers' width) with AdamW, as one rank.
 * Reads commands from stdin, a line each, and answers each with "seconds cpu_seconds":
 *   save FOLDER STEP     begin, write, commit: the step is on the disk at the end
 *   async FOLDER STEP    the same from the staging copy, which "copy" has made
 *   copy                 the state into the staging copy, in the order of the file
 *   load FOLDER STEP     all tensors into memory that was written before, without the check of hashes
 *   resume FOLDER STEP   the same with all checks, the hashes from the bytes that are loaded: what a run does
 *   verify FOLDER STEP   the check of hashes */

typedef struct state {
    tt_ckpt_piece pieces[600], staged[600];
    size_t n, bytes;
    uint8_t *data, *copy;
} state;

static void add(tt_arena *a, state *s, const char *name, int64_t rows, int64_t cols)
{
    static const char *const of[] = {"", "exp_avg", "exp_avg_sq"};
    for (int i = 0; i < 3; i++) {
        tt_ckpt_piece *p = &s->pieces[s->n++];
        *p = (tt_ckpt_piece){.dtype = TT_F32, .n_dims = cols ? 2 : 1, .owner = true};
        p->name = i ? tt_arena_printf(a, "optimizer.state.%s.%s", name, of[i]) : name;
        p->global[0] = p->box.end[0] = rows;
        p->global[1] = p->box.end[1] = cols;
        s->bytes += (size_t)(rows * (cols ? cols : 1)) * sizeof(float);
    }
}

static void add_layer(tt_arena *a, state *s, int layer, int64_t d)
{
    const struct {
        const char *name;
        int64_t rows, cols;
    } of[] = {
        {"ln_1.weight",        d,     0    },
        {"ln_1.bias",          d,     0    },
        {"ln_2.weight",        d,     0    },
        {"ln_2.bias",          d,     0    },
        {"attn.c_attn.weight", 3 * d, d    },
        {"attn.c_attn.bias",   3 * d, 0    },
        {"attn.c_proj.weight", d,     d    },
        {"attn.c_proj.bias",   d,     0    },
        {"mlp.c_fc.weight",    4 * d, d    },
        {"mlp.c_fc.bias",      4 * d, 0    },
        {"mlp.c_proj.weight",  d,     4 * d},
        {"mlp.c_proj.bias",    d,     0    },
    };
    for (size_t i = 0; i < TT_COUNT(of); i++)
        add(a, s, tt_arena_printf(a, "transformer.h.%d.%s", layer, of[i].name), of[i].rows,
            of[i].cols);
}

static uint8_t *memory(size_t bytes)
{
    void *p = tt_pages_new(bytes); /* as the states and a save's staging copy have it */
    if (!p)
        exit(1);
    return p;
}

static void fill(tt_arena *a, state *s, int64_t d)
{
    add(a, s, "transformer.wte.weight", 50257, d);
    add(a, s, "transformer.wpe.weight", 1024, d);
    for (int i = 0; i < 12; i++)
        add_layer(a, s, i, d);
    add(a, s, "transformer.ln_f.weight", d, 0);
    add(a, s, "transformer.ln_f.bias", d, 0);
    s->data = memory(s->bytes);
    size_t at = 0;
    for (size_t i = 0; i < s->n; i++) {
        s->pieces[i].data = s->data + at;
        at += (size_t)tt_box_numel(&s->pieces[i].box, s->pieces[i].n_dims) * sizeof(float);
    }
    for (size_t i = 0; i < s->bytes / 8; i++)
        ((uint64_t *)(void *)s->data)[i] = i * 0x9e3779b97f4a7c15u;
}

static void make_copy(state *s)
{
    if (!s->copy)
        s->copy = memory(tt_ckpt_stage(s->pieces, s->n, s->staged, NULL));
    tt_ckpt_stage(s->pieces, s->n, s->staged, s->copy);
    for (size_t i = 0; i < s->n; i++)
        memcpy(s->staged[i].data, s->pieces[i].data,
               (size_t)tt_box_numel(&s->pieces[i].box, s->pieces[i].n_dims) * sizeof(float));
}

static tt_status save(const tt_ckpt_piece *p, size_t n, const char *folder, int64_t step,
                      tt_error *err)
{
    const tt_trainer_state st = {.step = step, .world = 1};
    TT_TRY(tt_ckpt_begin(folder, step, err));
    TT_TRY(tt_ckpt_write(folder, step, 0, p, n, err));
    return tt_ckpt_commit(folder, step, &st, err);
}

static tt_status load(const char *at, const tt_ckpt_piece *p, size_t n, tt_error *err)
{
    tt_ckpt_reader *r;
    TT_TRY(tt_ckpt_open(at, &r, err));
    const tt_status st = tt_ckpt_load(r, p, n, err);
    tt_ckpt_close(r);
    return st;
}

static tt_status resume(const char *at, const tt_ckpt_piece *p, size_t n, tt_error *err)
{
    tt_ckpt_reader *r;
    tt_str faults = {0};
    tt_status st = tt_ckpt_check_written(at, &faults, err);
    tt_str_free(&faults);
    if (st != TT_OK)
        return st;
    TT_TRY(tt_ckpt_open(at, &r, err));
    tt_ckpt_check_share(r, 1, 0, 1);
    st = tt_ckpt_load(r, p, n, err);
    if (st == TT_OK)
        st = tt_ckpt_check_rest(r, err);
    tt_ckpt_close(r);
    return st;
}

static tt_status verify(const char *at, tt_error *err)
{
    tt_str faults = {0};
    const tt_status st = tt_ckpt_verify(at, &faults, err);
    tt_str_free(&faults);
    return st;
}

static tt_status answer(state *s, const char *what, const char *folder, int64_t step, tt_error *err)
{
    char at[4096];
    snprintf(at, sizeof at, "%s/step-%lld", folder, (long long)step);
    if (!strcmp(what, "save"))
        return save(s->pieces, s->n, folder, step, err);
    if (!strcmp(what, "async"))
        return save(s->staged, s->n, folder, step, err);
    if (!strcmp(what, "load"))
        return load(at, s->pieces, s->n, err);
    if (!strcmp(what, "resume"))
        return resume(at, s->pieces, s->n, err);
    if (!strcmp(what, "verify"))
        return verify(at, err);
    make_copy(s);
    return TT_OK;
}

static double cpu_seconds(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

int main(int argc, char **argv)
{
    char what[16], folder[2048], line[4096];
    long long step;
    static state s;
    tt_arena *a = tt_arena_new();
    fill(a, &s, argc > 1 ? atoi(argv[1]) : 768);
    make_copy(&s);
    printf("%zu\n", s.bytes);
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        tt_error err = {0};
        folder[0] = 0;
        step = 0;
        if (sscanf(line, "%15s %2047s %lld", what, folder, &step) < 1)
            continue;
        const int64_t t0 = tt_now_ns();
        const double cpu = cpu_seconds();
        if (answer(&s, what, folder, step, &err) != TT_OK) {
            fprintf(stderr, "%s: %s\n", what, err.text);
            return 1;
        }
        printf("%.4f %.4f\n", 1e-9 * (double)(tt_now_ns() - t0), cpu_seconds() - cpu);
        fflush(stdout);
    }
    tt_arena_free(a);
    return 0;
}
