/* SPDX-License-Identifier: Apache-2.0 */
#include "program.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

/* The kernels that were compiled for programs, by what a program is (cuda_program_key). */

#define BUCKETS 512

typedef struct compiled {
    struct compiled *next, *next_wanted;
    uint64_t hash;
    cuda_program_key key;
    cuda_kernel kernel; /* without a handle: it is wanted, and not compiled yet */
} compiled;

struct cuda_fused {
    pthread_mutex_t lock;
    bool is_interpreted; /* there is no NVRTC */
    compiled *buckets[BUCKETS];
    compiled *wanted;
    int n_wanted;
};

static uint64_t hash_key(const cuda_program_key *k)
{
    const unsigned char *p = (const unsigned char *)k;
    const size_t n = offsetof(cuda_program_key, program.steps) +
                     (size_t)k->program.n_steps * sizeof k->program.steps[0];
    uint64_t h = UINT64_C(0xcbf29ce484222325), word;
    for (size_t i = 0; i + sizeof word <= n; i += sizeof word) {
        memcpy(&word, p + i, sizeof word);
        h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 32;
    }
    return h;
}
_Static_assert(offsetof(cuda_program_key, program.steps) % 8 == 0 && sizeof(point_step) % 8 == 0,
               "the hash is of words of 8 bytes");

static bool same_key(const cuda_program_key *a, const cuda_program_key *b)
{
    return memcmp(a, b,
                  offsetof(cuda_program_key, program.steps) +
                      (size_t)a->program.n_steps * sizeof a->program.steps[0]) == 0;
}

static struct cuda_fused *fused_of(cuda_backend *b)
{
    static pthread_mutex_t first = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&first);
    if (!b->fused && (b->fused = calloc(1, sizeof *b->fused)) != NULL) {
        pthread_mutex_init(&b->fused->lock, NULL);
        b->fused->is_interpreted =
            b->config.kernel_code && strcmp(b->config.kernel_code, "embedded") == 0;
    }
    pthread_mutex_unlock(&first);
    return b->fused;
}

/* The entry of a key, made if there is none. Within the lock. */
static compiled *entry_of(struct cuda_fused *f, const cuda_program_key *key)
{
    const uint64_t hash = hash_key(key);
    compiled **bucket = &f->buckets[hash % BUCKETS], *c = *bucket;
    while (c && (c->hash != hash || !same_key(&c->key, key)))
        c = c->next;
    if (c)
        return c;
    c = calloc(1, sizeof *c);
    if (!c)
        return NULL;
    *c = (compiled){.next = *bucket, .next_wanted = f->wanted, .hash = hash, .key = *key};
    c->kernel.name = CUDA_PROGRAM_NAME;
    *bucket = f->wanted = c;
    f->n_wanted++;
    return c;
}

static tt_status compile_sources(cuda_backend *b, struct cuda_fused *f, cuda_source *sources,
                                 void **libraries, tt_error *err)
{
    int n = 0;
    for (compiled *c = f->wanted; c; c = c->next_wanted, n++) {
        sources[n] = (cuda_source){"a fused program", cuda_program_source(&c->key)};
        if (!sources[n].text)
            return TT_FAIL(err, TT_ENOMEM, "no memory for the source of a fused program");
    }
    TT_TRY(cuda_module_sources(b, sources, n, libraries, err));
    n = 0;
    for (compiled *c = f->wanted; c; c = c->next_wanted, n++)
        TT_TRY(cuda_module_get(b, libraries[n], CUDA_PROGRAM_NAME, &c->kernel.handle, err));
    f->wanted = NULL;
    f->n_wanted = 0;
    return TT_OK;
}

/* All programs that are wanted at a time, because NVRTC uses all threads then. */
static tt_status compile_wanted(cuda_backend *b, struct cuda_fused *f, tt_error *err)
{
    const size_t n = (size_t)f->n_wanted;
    cuda_source *sources = calloc(n, sizeof *sources);
    void **libraries = calloc(n, sizeof *libraries);
    tt_status s = TT_OK;
    if (!sources || !libraries)
        s = TT_FAIL(err, TT_ENOMEM, "no memory for the sources of %zu fused programs", n);
    else
        s = compile_sources(b, f, sources, libraries, err);
    for (size_t i = 0; sources && i < n; i++)
        free((char *)(uintptr_t)sources[i].text);
    free(sources);
    free(libraries);
    return s;
}

/* Without NVRTC programs are interpreted from now on. Within the lock. */
static tt_status compile_or_interpret(cuda_backend *b, struct cuda_fused *f, tt_error *err)
{
    const tt_status s = compile_wanted(b, f, err);
    if (s != TT_EUNSUPPORTED)
        return s;
    f->is_interpreted = true;
    return TT_OK;
}

tt_status cuda_program_prepare(cuda_backend *b, tt_error *err)
{
    struct cuda_fused *f = b->fused; /* NULL: no program was asked for */
    tt_status s = TT_OK;
    if (!f)
        return TT_OK;
    pthread_mutex_lock(&f->lock);
    if (f->n_wanted && !f->is_interpreted)
        s = compile_or_interpret(b, f, err);
    pthread_mutex_unlock(&f->lock);
    return s;
}

void cuda_program_want(cuda_backend *b, const cuda_program_key *key)
{
    struct cuda_fused *f = fused_of(b);
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    if (!f->is_interpreted)
        entry_of(f, key);
    pthread_mutex_unlock(&f->lock);
}

tt_status cuda_program_find(cuda_backend *b, const cuda_program_key *key, cuda_kernel **out,
                            tt_error *err)
{
    struct cuda_fused *f = fused_of(b);
    tt_status s = TT_OK;
    *out = NULL;
    if (!f)
        return TT_FAIL(err, TT_ENOMEM, "no memory for the table of fused programs");
    pthread_mutex_lock(&f->lock);
    if (!f->is_interpreted) {
        compiled *c = entry_of(f, key);
        if (!c)
            s = TT_FAIL(err, TT_ENOMEM, "no memory for a fused program");
        else if (!c->kernel.handle)
            s = compile_or_interpret(b, f, err);
        if (s == TT_OK && !f->is_interpreted)
            *out = &c->kernel;
    }
    pthread_mutex_unlock(&f->lock);
    return s;
}

void cuda_fused_close(cuda_backend *b)
{
    if (!b->fused)
        return;
    for (int i = 0; i < BUCKETS; i++)
        for (compiled *c = b->fused->buckets[i], *next; c; c = next) {
            next = c->next;
            free(c);
        }
    pthread_mutex_destroy(&b->fused->lock);
    free(b->fused);
    b->fused = NULL;
}
