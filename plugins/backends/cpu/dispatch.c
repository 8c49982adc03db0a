/* SPDX-License-Identifier: Apache-2.0 */
#include "cpu.h"
#include <string.h>

/* Rows of experts that are cut over ranks (docs/design/experts.md). B parts of the tokens, in G groups of P; M
 * places per part, in P bins; E experts, D elements per row. A rank usually has one part. Naive
 * twins: backends/reference/dispatch.c. */

static size_t sort_scratch(const tt_kernel_call *c, int n_threads)
{
    (void)n_threads;
    return (size_t)c->out[1].shape[2] * sizeof(int32_t);
}

/* The slots of one part, without the first `first` of each bin: places [M], counts [E]; next [E] is
 * scratch. */
static void sort_part(const int32_t *assign, int64_t slots, int64_t members, int64_t m,
                      int64_t first, int64_t experts, int32_t *places, int32_t *counts,
                      int32_t *next)
{
    const int64_t local = experts / members, room = m / members;
    memset(places, 0xff, (size_t)m * sizeof *places); /* -1 */
    memset(counts, 0, (size_t)experts * sizeof *counts);
    for (int64_t i = 0; i < slots; i++)
        if (assign[i] >= 0 && assign[i] < experts)
            counts[assign[i]]++;
    for (int64_t e = 0; e < experts; e++)
        next[e] = e % local == 0 ? 0 : next[e - 1] + counts[e - 1];
    memset(counts, 0, (size_t)experts * sizeof *counts);
    for (int64_t i = 0; i < slots; i++) {
        const int32_t e = assign[i];
        if (e < 0 || e >= experts)
            continue;
        const int64_t at = next[e]++ - first;
        if (at < 0 || at >= room)
            continue;
        places[e / local * room + at] = (int32_t)i;
        counts[e]++;
    }
}

/* assign [T,k] -> places [B,M], counts [G,P,E] */
static tt_status dispatch_sort(void *self, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *places = &c->out[0], *counts = &c->out[1];
    const int64_t parts = places->shape[0], m = places->shape[1], experts = counts->shape[2],
                  slots = tt_tensor_numel(&c->in[0]) / cpu_max(parts, 1),
                  first = ((const tt_attrs_dims *)c->attrs)->dims[4].size;
    (void)self;
    (void)err;
    for (int64_t b = 0; b < parts; b++)
        sort_part((const int32_t *)c->in[0].data + b * slots, slots, counts->global[1], m, first,
                  experts, (int32_t *)places->data + b * m, (int32_t *)counts->data + b * experts,
                  c->scratch);
    return TT_OK;
}

/* ---- tokens and places ---- */

typedef struct moved {
    const int32_t *places;
    const float *x;
    float *y;
    int64_t m, n, width; /* places and rows of a part; elements per row */
} moved;

static moved moved_of(const tt_kernel_call *c, const tt_tensor *rows)
{
    const tt_tensor *places = &c->in[1];
    const int64_t width = rows->shape[rows->n_dims - 1];
    return (moved){.places = places->data,
                   .x = cpu_f32(&c->in[0]),
                   .y = c->out[0].data,
                   .m = places->shape[1],
                   .n = tt_tensor_numel(rows) / cpu_max(width, 1) / cpu_max(places->shape[0], 1),
                   .width = width};
}

static void gather_places(void *arg, int64_t begin, int64_t end, int thread)
{
    const moved *w = arg;
    const size_t bytes = (size_t)w->width * sizeof(float);
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        if (w->places[i] >= 0)
            memcpy(w->y + i * w->width, w->x + (i / w->m * w->n + w->places[i]) * w->width, bytes);
        else
            memset(w->y + i * w->width, 0, bytes);
}

static void scatter_places(void *arg, int64_t begin, int64_t end, int thread)
{
    const moved *w = arg;
    const size_t bytes = (size_t)w->width * sizeof(float);
    (void)thread;
    for (int64_t i = begin; i < end; i++)
        if (w->places[i] >= 0)
            memcpy(w->y + (i / w->m * w->n + w->places[i]) * w->width, w->x + i * w->width, bytes);
}

/* How many places count: where the graph counts the rows, there are fewer rows than places. */
static int64_t places_of(const tt_kernel_call *c, const tt_tensor *rows)
{
    const int64_t width = cpu_max(rows->shape[rows->n_dims - 1], 1);
    return cpu_min(tt_tensor_numel(&c->in[1]), tt_tensor_numel(rows) / width);
}

/* x [T,D] or [T,k,D], places [B,M] -> y [B,M,D] or [B*M,D] */
static tt_status dispatch_gather(void *self, const tt_kernel_call *c, tt_error *err)
{
    moved w = moved_of(c, &c->in[0]);
    (void)self;
    (void)err;
    tt_parallel_for(c->pool, places_of(c, &c->out[0]), cpu_max(1, 16384 / cpu_max(1, w.width)),
                    gather_places, &w);
    return TT_OK;
}

/* x [B,M,D] or [B*M,D], places [B,M] -> y [T,k,D]; a slot has one place at most */
static tt_status dispatch_scatter(void *self, const tt_kernel_call *c, tt_error *err)
{
    moved w = moved_of(c, &c->out[0]);
    (void)self;
    (void)err;
    memset(w.y, 0, (size_t)tt_tensor_numel(&c->out[0]) * sizeof(float));
    tt_parallel_for(c->pool, places_of(c, &c->in[0]), cpu_max(1, 16384 / cpu_max(1, w.width)),
                    scatter_places, &w);
    return TT_OK;
}

/* ---- places and rows ---- */

typedef struct packing {
    const int32_t *counts;                   /* [groups, senders, experts] */
    int64_t groups, senders, experts, local; /* local: experts of a bin */
    int64_t bins, each, m, width, first;     /* each: rows of a bin's part; first: expert 0 */
    const float *x;
    float *y;
} packing;

static packing packing_of(const tt_kernel_call *c, const tt_tensor *counts, int64_t rows)
{
    packing w = {.counts = counts->data,
                 .groups = counts->shape[0],
                 .senders = counts->shape[1],
                 .experts = counts->shape[2],
                 .local = counts->global[2] / counts->global[1],
                 .first = counts->begin[2],
                 .x = c->in[0].data,
                 .y = c->out[0].data};
    w.bins = w.experts / w.local;
    w.each = rows / cpu_max(w.groups * w.bins, 1);
    return w;
}

/* Where the rows of sender s and expert e begin, in its bin and among the bin's rows. */
static void offsets(const packing *w, int64_t g, int64_t s, int64_t e, int64_t *place, int64_t *row)
{
    const int32_t *n = w->counts + g * w->senders * w->experts;
    *place = *row = 0;
    for (int64_t f = e / w->local * w->local; f <= e; f++)
        for (int64_t t = 0; t < w->senders; t++) {
            *row += f < e || t < s ? n[t * w->experts + f] : 0;
            *place += f < e && t == s ? n[t * w->experts + f] : 0;
        }
}

/* One expert of one group: the rows of each sender. */
static void pack_expert(void *arg, int64_t begin, int64_t end, int thread)
{
    const packing *w = arg;
    const size_t bytes = (size_t)w->width * sizeof(float);
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t g = i / w->experts, e = i % w->experts, bin = e / w->local;
        float *y = w->y + (g * w->bins + bin) * w->each * w->width;
        int64_t place, row = 0, n = 0;
        for (int64_t s = 0; s < w->senders; s++) {
            offsets(w, g, s, e, &place, &row);
            n = w->counts[(g * w->senders + s) * w->experts + e];
            memcpy(y + row * w->width,
                   w->x + ((g * w->senders + s) * w->m + bin * (w->m / w->bins) + place) * w->width,
                   (size_t)n * bytes);
        }
        if ((e + 1) % w->local == 0)
            memset(y + (row + n) * w->width, 0, (size_t)(w->each - row - n) * bytes);
    }
}

static void unpack_expert(void *arg, int64_t begin, int64_t end, int thread)
{
    const packing *w = arg;
    const size_t bytes = (size_t)w->width * sizeof(float);
    (void)thread;
    for (int64_t i = begin; i < end; i++) {
        const int64_t g = i / w->experts, e = i % w->experts, bin = e / w->local,
                      places = w->m / w->bins;
        const float *x = w->x + (g * w->bins + bin) * w->each * w->width;
        for (int64_t s = 0; s < w->senders; s++) {
            const int64_t n = w->counts[(g * w->senders + s) * w->experts + e];
            float *y = w->y + ((g * w->senders + s) * w->m + bin * places) * w->width;
            int64_t place, row;
            offsets(w, g, s, e, &place, &row);
            memcpy(y + place * w->width, x + row * w->width, (size_t)n * bytes);
            if ((e + 1) % w->local == 0)
                memset(y + (place + n) * w->width, 0, (size_t)(places - place - n) * bytes);
        }
    }
}

/* x [B,M,D], counts [G,P,E] -> y [B*M,D] */
static tt_status dispatch_pack(void *self, const tt_kernel_call *c, tt_error *err)
{
    packing w = packing_of(c, &c->in[1], c->out[0].shape[0]);
    (void)self;
    (void)err;
    w.m = c->in[0].shape[1];
    w.width = c->in[0].shape[2];
    tt_parallel_for(c->pool, w.groups * w.experts, 1, pack_expert, &w);
    return TT_OK;
}

/* x [B*M,D], counts [G,P,E] -> y [B,M,D] */
static tt_status dispatch_unpack(void *self, const tt_kernel_call *c, tt_error *err)
{
    packing w = packing_of(c, &c->in[1], c->in[0].shape[0]);
    (void)self;
    (void)err;
    w.m = c->out[0].shape[1];
    w.width = c->out[0].shape[2];
    tt_parallel_for(c->pool, w.groups * w.experts, 1, unpack_expert, &w);
    return TT_OK;
}

/* counts [G,P,E] -> the expert of each row [R]; -1 after the last of a part */
static tt_status dispatch_expert(void *self, const tt_kernel_call *c, tt_error *err)
{
    packing w = packing_of(c, &c->in[0], c->out[0].shape[0]);
    int32_t *expert = c->out[0].data;
    (void)self;
    (void)err;
    memset(expert, 0xff, (size_t)c->out[0].shape[0] * sizeof *expert); /* -1 */
    for (int64_t i = 0; i < w.groups * w.experts; i++) {
        const int64_t g = i / w.experts, e = i % w.experts;
        int64_t place, row;
        offsets(&w, g, w.senders, e, &place, &row); /* the end of e's rows */
        int32_t *of = expert + (g * w.bins + e / w.local) * w.each;
        for (int64_t s = 0; s < w.senders; s++)
            for (int64_t j = 0; j < w.counts[(g * w.senders + s) * w.experts + e]; j++)
                of[--row] = (int32_t)(w.first + e);
    }
    return TT_OK;
}

const cpu_kernel cpu_kernels_dispatch[] = {
    CPU_KERNEL("dispatch_sort", dispatch_sort, sort_scratch, 0, 0),
    CPU_KERNEL("dispatch_gather", dispatch_gather, NULL, 0, 0),
    CPU_KERNEL("dispatch_scatter", dispatch_scatter, NULL, 0, 0),
    CPU_KERNEL("dispatch_pack", dispatch_pack, NULL, 0, 0),
    CPU_KERNEL("dispatch_unpack", dispatch_unpack, NULL, 0, 0),
    CPU_KERNEL("dispatch_expert", dispatch_expert, NULL, 0, 0),
    CPU_KERNEL_END,
};
