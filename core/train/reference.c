/* SPDX-License-Identifier: Apache-2.0 */
#include "train/reference.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

/* Numbers per token that a loss compares with: what its reference() gives with the weights that the run began
 * with. They are computed once for every sample and kept in dump_folder/reference, one file per data set, so that
 * training holds one model. A file is taken if it was made of the same samples (all their arrays are hashed), the
 * same model and the same weights. Of a run that resumes, the weights are those of its checkpoint, and the file
 * belongs to those that it began with; if it is missing or of other samples, they are loaded once more. */

#define MAGIC "ttrun reference 1"

typedef struct header {
    char magic[24];
    int64_t n_samples, seq_len;
    char samples[40], model[40], weights[40]; /* hashes */
    char values[40];                          /* of what follows: f32 [n_samples][seq_len] */
} header;

typedef struct data_set {
    const tt_part *part;
    void *loader;
    const char *path, *title;
    const tt_graph *graph;
    int64_t n_samples, seq_len, local;
    header want;
} data_set;

/* ---- what a file must have been made of ---- */

static data_set set_of(const tt_loop *l, int i, tt_arena *a)
{
    const tt_setup *s = l->s;
    const tt_validation_set *v = i ? &s->validation[i - 1] : NULL;
    data_set x = {.part = i ? &v->data : &s->dataloader,
                  .loader = i ? l->data.validation[i - 1] : l->data.loader,
                  .title = i ? (v->name ? v->name : "validation") : "training",
                  .graph = i ? s->eval_reference_graph : s->reference_graph,
                  .seq_len = i ? s->eval_seq_len : s->core.training.seq_len,
                  .local = i ? s->eval_local : s->local};
    x.n_samples = ((const tt_dataloader_vt *)x.part->component->vtable)->n_samples(x.loader);
    x.path = i ? tt_arena_printf(a, "%s/reference/validation-%d.bin", s->core.dump_folder, i - 1)
               : tt_arena_printf(a, "%s/reference/training.bin", s->core.dump_folder);
    return x;
}

/* Every sample of a set in its order, `local` at a time of each of `world` ranks. */
static tt_status open_samples(const tt_loop *l, const data_set *d, int64_t local, int rank,
                              int world, tt_stream **out, tt_error *err)
{
    const tt_model_vt *model = l->s->model.component->vtable;
    const int64_t batch = local * world;
    const tt_stream_opts o = {
        .loader = d->part->component->vtable,
        .loader_self = d->loader,
        .loader_name = d->part->name,
        .order = {.n_samples = d->n_samples},
        .seq_len = d->seq_len,
        .local = local,
        .micro_batches = 1,
        .global_batch = batch,
        .data_rank = rank,
        .data_world = world,
        .inputs = &l->s->inputs,
        .one_segment = tt_setup_one_segment(d->part),
        .n_steps = d->n_samples / batch + (d->n_samples % batch != 0),
        .by_epoch = true,
        .vocab_size = model->vocab_size(l->s->model.config),
    };
    return tt_stream_new(&o, out, err);
}

static void hash_batch(tt_hasher *h, const tt_batch *b)
{
    const size_t bytes = (size_t)b->n_tokens * sizeof(int32_t);
    tt_hasher_update(h, b->ids, bytes);
    tt_hasher_update(h, b->labels, bytes);
    tt_hasher_update(h, b->pos, bytes);
    tt_hasher_update(h, b->seg, bytes);
    for (int i = 0; i < b->inputs->n_of_loader; i++)
        tt_hasher_update(h, b->more[i], b->inputs->items[i].per_sample ? sizeof(int32_t) : bytes);
}

static tt_status hash_samples(const tt_loop *l, const data_set *d, char *hex, tt_error *err)
{
    tt_stream *stream;
    const tt_batch *b;
    int64_t epoch;
    tt_status s = TT_OK;
    TT_TRY(open_samples(l, d, 1, 0, 1, &stream, err));
    tt_hasher *h = tt_hasher_new();
    for (int64_t i = 0; s == TT_OK && i < d->n_samples; i++) {
        s = tt_stream_next(stream, &b, &epoch, err);
        if (s == TT_OK)
            hash_batch(h, b);
        if (s == TT_OK && i % 256 == 0 && tt_loop_stop_signal(l))
            s = TT_FAIL(err, TT_ESIGNAL, "stopped before the first step");
    }
    tt_hasher_hex(h, hex);
    tt_hasher_free(h);
    tt_stream_free(stream);
    return s;
}

/* The model's function for given weights. */
static void hash_model(const tt_setup *s, char *hex)
{
    static const char *const keys[] = {"model.args", "converters", "training.dtype",
                                       "training.mixed_precision_param"};
    tt_str t = {0};
    tt_str_printf(&t, "%s %s %s %s", s->model.name, s->core.flavor ? s->core.flavor : "",
                  s->model_fingerprint, s->loss.name);
    for (size_t i = 0; i < TT_COUNT(keys); i++) {
        const char *text = tt_job_text(s->job, keys[i]);
        tt_str_printf(&t, "\n%s", text ? text : "");
    }
    tt_hash128_hex(tt_str_get(&t), t.n, hex);
    tt_str_free(&t);
}

/* ---- the weights, hashed so that no mesh changes the result: the sum over all elements ---- */

typedef struct hashing {
    const tt_tensor *t;
    const uint8_t *host;
    uint64_t name;
    _Atomic uint64_t sum[2];
} hashing;

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

/* Rows [begin, end) of the box: a row lies along the last dim. */
static void hash_rows(void *arg, int64_t begin, int64_t end, int thread)
{
    hashing *h = arg;
    const tt_tensor *t = h->t;
    const int last = t->n_dims - 1;
    const int64_t width = last >= 0 ? t->shape[last] : 1;
    const size_t size = tt_dtype_size(t->dtype);
    uint64_t sum[2] = {0, 0};
    (void)thread;
    for (int64_t r = begin; r < end; r++) {
        uint64_t at = 0, stride = 1;
        int64_t rest = r;
        for (int d = last; d >= 0; d--) {
            const int64_t i = d == last ? 0 : rest % t->shape[d];
            at += stride * (uint64_t)(t->begin[d] + i);
            stride *= (uint64_t)t->global[d];
            rest = d == last ? rest : rest / t->shape[d];
        }
        for (int64_t i = 0; i < width; i++) {
            uint64_t bits = 0;
            memcpy(&bits, h->host + (size_t)(r * width + i) * size, size);
            const uint64_t x = mix(h->name + at + (uint64_t)i) ^ bits;
            sum[0] += mix(x);
            sum[1] += mix(x + UINT64_C(0x9e3779b97f4a7c15));
        }
    }
    atomic_fetch_add(&h->sum[0], sum[0]);
    atomic_fetch_add(&h->sum[1], sum[1]);
}

static tt_status hash_tensor(const tt_loop *l, const tt_exec_tensor *x, hashing *h, tt_error *err)
{
    const tt_tensor *t = &x->tensor;
    const int64_t n = tt_tensor_numel(t), width = t->n_dims ? t->shape[t->n_dims - 1] : 1;
    void *host = NULL;
    if (!n)
        return TT_OK;
    TT_TRY(tt_exec_map(l->rank.exec, t, true, &host, err));
    h->t = t;
    h->host = host;
    h->name = mix(tt_hash64(x->name, strlen(x->name), 0));
    tt_parallel_for(l->rank.pool, n / width, (1 << 16) / width + 1, hash_rows, h);
    return tt_exec_unmap(l->rank.exec, t, host, false, err);
}

static tt_status hash_weights(tt_loop *l, char *hex, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_exec_tensor *t;
    hashing h = {.t = NULL};
    tt_status s = TT_OK;
    const size_t n = tt_exec_tensors(l->rank.exec, a, &t);
    for (size_t i = 0; s == TT_OK && i < n; i++)
        if (!t[i].suffix && t[i].owner)
            s = hash_tensor(l, &t[i], &h, err);
    tt_arena_free(a);
    TT_TRY(tt_agree(&l->rank.dist, s, err));
    int64_t halves[4]; /* so that no sum over ranks overflows */
    for (int i = 0; i < 4; i++)
        halves[i] = (int64_t)(atomic_load(&h.sum[i / 2]) >> (32 * (i % 2)) & UINT32_MAX);
    TT_TRY(tt_dist_reduce(&l->rank.dist, halves, 4, TT_I64, TT_SUM, err));
    for (int i = 0; i < 4; i += 2) {
        const uint64_t sum = (uint64_t)halves[i] + ((uint64_t)halves[i + 1] << 32);
        snprintf(hex + 8 * i, 17, "%016llx", (unsigned long long)sum);
    }
    return TT_OK;
}

/* ---- files ---- */

static const float *values_of(const tt_mapping *m)
{
    return (const float *)(const void *)(m->p + sizeof(header));
}

static size_t reference_bytes(const data_set *d)
{
    return (size_t)(d->n_samples * d->seq_len) * sizeof(float);
}

/* Whether the file's values can be used. with_weights: it must name those of d->want. */
static bool is_usable(const data_set *d, bool with_weights)
{
    tt_mapping m = {0};
    header h;
    char hex[33];
    tt_error ignored = {0};
    if (!tt_path_exists(d->path) || tt_map_file(d->path, &m, &ignored) != TT_OK)
        return false;
    bool good = m.n == sizeof h + reference_bytes(d);
    if (good) {
        memcpy(&h, m.p, sizeof h);
        tt_hash128_hex(values_of(&m), reference_bytes(d), hex);
        good = !memcmp(h.magic, d->want.magic, sizeof h.magic) && h.n_samples == d->n_samples &&
               h.seq_len == d->seq_len && !memcmp(h.samples, d->want.samples, sizeof h.samples) &&
               !memcmp(h.model, d->want.model, sizeof h.model) && !strncmp(h.values, hex, 33) &&
               (!with_weights || !memcmp(h.weights, d->want.weights, sizeof h.weights));
    }
    tt_unmap_file(&m);
    return good;
}

static tt_status write_values(data_set *d, char *file, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    const char *folder = tt_path_dir(a, d->path);
    tt_hash128_hex(file + sizeof(header), reference_bytes(d), d->want.values);
    memcpy(file, &d->want, sizeof(header));
    tt_status s = tt_mkdirs(folder, err);
    if (s == TT_OK)
        s = tt_write_file_atomic(d->path, file, sizeof(header) + reference_bytes(d), err);
    tt_arena_free(a);
    return s;
}

/* ---- computing them ---- */

typedef struct computing {
    tt_loop *l;
    const data_set *d;
    tt_exec *x;
    tt_tensor per_token; /* data NULL: the loss is on other ranks */
    bool gives;          /* of the ranks that have them, this one gives the values */
    float *batch;        /* of all data ranks, then one for stop signals */
    char *file;          /* of rank 0: the whole file; else NULL */
    tt_progress progress;
} computing;

/* The values of a batch on all ranks: those of one rank, zeros of the others. */
static tt_status share_values(computing *c, int64_t n, bool *stop, tt_error *err)
{
    tt_dist *dist = &c->l->rank.dist;
    void *host = NULL;
    memset(c->batch, 0, (size_t)(n + 1) * sizeof *c->batch);
    if (c->gives) {
        TT_TRY(tt_exec_map(c->x, &c->per_token, true, &host, err));
        memcpy(c->batch, host, (size_t)n * sizeof *c->batch);
        TT_TRY(tt_exec_unmap(c->x, &c->per_token, host, false, err));
    }
    c->batch[n] = tt_loop_stop_signal(c->l) ? 1 : 0;
    TT_TRY(tt_dist_reduce(dist, c->batch, n + 1, TT_F32, TT_SUM, err));
    *stop = c->batch[n] > 0;
    return TT_OK;
}

static tt_status run_batches(computing *c, tt_stream *stream, tt_error *err)
{
    const data_set *d = c->d;
    const tt_setup *s = c->l->s;
    const int64_t batch = d->local * s->data_world, n = batch * d->seq_len;
    const tt_batch *b = NULL;
    int64_t epoch;
    bool stop = false;
    for (int64_t at = 0; at < d->n_samples; at += batch) {
        TT_TRY(tt_agree(&c->l->rank.dist, tt_stream_next(stream, &b, &epoch, err), err));
        tt_feed feed = {b, c->l->rank.data_rank * d->local * d->seq_len, NULL, 0};
        TT_TRY(tt_exec_micro_batches(c->x, 1, tt_feed_fill, &feed, err));
        TT_TRY(share_values(c, n, &stop, err));
        if (stop)
            return TT_FAIL(err, TT_ESIGNAL, "stopped before the first step");
        const int64_t here = TT_MIN(batch, d->n_samples - at);
        if (c->file)
            memcpy(c->file + sizeof(header) + (size_t)(at * d->seq_len) * sizeof(float), c->batch,
                   (size_t)(here * d->seq_len) * sizeof(float));
        if (c->l->main)
            tt_progress_update(&c->progress, at + here, (double)NAN, (double)NAN);
    }
    return TT_OK;
}

/* The lowest rank that has the values gives them. */
static tt_status choose_giver(computing *c, tt_error *err)
{
    tt_dist *dist = &c->l->rank.dist;
    int32_t first = -INT32_MAX; /* negated: reductions take the largest */
    tt_error ignored = {0};
    if (tt_exec_state_tensor(c->x, TT_METRIC_PER_TOKEN, &c->per_token, &ignored) == TT_OK &&
        c->per_token.data)
        first = -dist->rank;
    const int32_t mine = first;
    TT_TRY(tt_dist_reduce(dist, &first, 1, TT_I32, TT_MAX, err));
    c->gives = mine != -INT32_MAX && first == mine;
    return TT_OK;
}

static tt_status allocate(computing *c, tt_error *err)
{
    const data_set *d = c->d;
    const int64_t n = d->local * c->l->s->data_world * d->seq_len;
    c->batch = malloc((size_t)(n + 1) * sizeof *c->batch);
    if (c->l->main)
        c->file = malloc(sizeof(header) + reference_bytes(d));
    if (!c->batch || (c->l->main && !c->file))
        return TT_FAIL(err, TT_ENOMEM, "out of memory for the reference of %lld samples",
                       (long long)d->n_samples);
    return TT_OK;
}

static tt_status compute_with(computing *c, tt_arena *a, tt_error *err)
{
    tt_loop *l = c->l;
    tt_stream *stream = NULL;
    TT_TRY(tt_agree(&l->rank.dist, allocate(c, err), err));
    TT_TRY(tt_agree(&l->rank.dist,
                    tt_rank_open_beside(&l->rank, &l->rank.dist, c->d->graph, a, &c->x, err), err));
    TT_TRY(choose_giver(c, err));
    TT_TRY(tt_agree(
        &l->rank.dist,
        open_samples(l, c->d, c->d->local, l->rank.data_rank, l->s->data_world, &stream, err),
        err));
    const tt_status s = run_batches(c, stream, err);
    tt_stream_free(stream);
    return s;
}

static tt_status compute(tt_loop *l, data_set *d, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    computing c = {.l = l, .d = d};
    const int64_t began = tt_now_ns();
    if (l->main)
        tt_progress_init(&c.progress, "reference", 0, d->n_samples, l->o->verbose < 0);
    tt_status s = compute_with(&c, a, err);
    if (l->main)
        tt_progress_finish(&c.progress);
    if (s == TT_OK)
        s = tt_agree(&l->rank.dist, c.file ? write_values(d, c.file, err) : TT_OK, err);
    if (s == TT_OK && l->main)
        tt_log(TT_INFO, "train",
               "reference of the loss %s: %lld samples (%s) computed with the weights at "
               "the start in %.1f s, kept in %s",
               l->s->loss.name, (long long)d->n_samples, d->title, tt_seconds_since(began),
               d->path);
    tt_exec_free(c.x);
    free(c.batch);
    free(c.file);
    tt_arena_free(a);
    return s;
}

/* ---- all sets ---- */

static tt_status wanted(const tt_loop *l, data_set *d, const char *weights, tt_error *err)
{
    d->want = (header){.n_samples = d->n_samples, .seq_len = d->seq_len};
    memcpy(d->want.magic, MAGIC, sizeof MAGIC);
    memcpy(d->want.weights, weights, 33);
    hash_model(l->s, d->want.model);
    return hash_samples(l, d, d->want.samples, err);
}

/* lacks[i]: whether the values of set i are to be computed. Rank 0 looks. */
static tt_status look(tt_loop *l, data_set *sets, int n, const char *weights, int32_t *lacks,
                      tt_error *err)
{
    tt_status s = TT_OK;
    for (int i = 0; i < n && s == TT_OK && l->main; i++) {
        s = wanted(l, &sets[i], weights, err);
        lacks[i] = s == TT_OK && !is_usable(&sets[i], !l->resumed);
        if (s == TT_OK && !lacks[i])
            tt_log(TT_INFO, "train", "reference of the loss %s: %lld samples (%s) from %s",
                   l->s->loss.name, (long long)sets[i].n_samples, sets[i].title, sets[i].path);
    }
    TT_TRY(tt_agree(&l->rank.dist, s, err));
    return tt_dist_reduce(&l->rank.dist, lacks, n, TT_I32, TT_MAX, err);
}

static tt_status compute_lacking(tt_loop *l, data_set *sets, int n, const int32_t *lacks,
                                 tt_error *err)
{
    char weights[33] = "";
    bool any = false;
    for (int i = 0; i < n; i++)
        any = any || lacks[i];
    if (!any)
        return TT_OK;
    if (l->resumed) {
        if (l->main)
            tt_log(TT_INFO, "train",
                   "reference of the loss %s: the file is missing, or of other samples or another "
                   "model; it is computed with the weights that the run began with",
                   l->s->loss.name);
        TT_TRY(tt_agree(&l->rank.dist, tt_loop_load_first(l, err), err));
        TT_TRY(hash_weights(l, weights, err));
        for (int i = 0; i < n; i++)
            memcpy(sets[i].want.weights, weights, 33);
    }
    for (int i = 0; i < n; i++)
        if (lacks[i])
            TT_TRY(compute(l, &sets[i], err));
    return l->resumed ? tt_agree(&l->rank.dist, tt_loop_resume(l, err), err) : TT_OK;
}

static tt_status map_files(tt_loop *l, const data_set *sets, int n, tt_error *err)
{
    for (int i = 0; i < n; i++) {
        TT_TRY(tt_map_file(sets[i].path, &l->reference[i], err));
        if (l->reference[i].n != sizeof(header) + reference_bytes(&sets[i]))
            return TT_FAIL(err, TT_EFORMAT,
                           "%s is not the file that rank 0 wrote: dump_folder must be the same "
                           "folder on all machines",
                           sets[i].path);
    }
    return TT_OK;
}

tt_status tt_loop_open_references(tt_loop *l, tt_error *err)
{
    const int n = 1 + (l->s->has_validation ? l->s->n_validation : 0);
    char weights[33] = "";
    if (!l->s->has_reference)
        return TT_OK;
    tt_arena *a = tt_arena_new();
    data_set sets[1 + TT_MAX_PARTS];
    int32_t lacks[1 + TT_MAX_PARTS] = {0};
    for (int i = 0; i < n; i++)
        sets[i] = set_of(l, i, a);
    tt_status s = l->resumed ? TT_OK : hash_weights(l, weights, err);
    if (s == TT_OK)
        s = look(l, sets, n, weights, lacks, err);
    if (s == TT_OK)
        s = compute_lacking(l, sets, n, lacks, err);
    if (s == TT_OK)
        s = tt_agree(&l->rank.dist, map_files(l, sets, n, err), err);
    tt_arena_free(a);
    return s;
}

const float *tt_loop_reference(const tt_loop *l, int set)
{
    const tt_mapping *m = &l->reference[set + 1];
    return m->p ? values_of(m) : NULL;
}

void tt_loop_close_references(tt_loop *l)
{
    for (int i = 0; i <= TT_MAX_PARTS; i++)
        if (l->reference[i].p)
            tt_unmap_file(&l->reference[i]);
}
