/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/loop.h"
#include "train/peer_index.h"
#include "train/peer_memory.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A start from the copies of all ranks of this machine. They are read as a checkpoint is: each has the boxes of its
 * rank, and every rank takes what it needs. All ranks see the same copies and choose the same step, since nobody
 * writes copies before all ranks have loaded. */

typedef struct found_copy {
    const char *data;
    int64_t bytes, step;
    const tt_peer_state *state;
    bool good, tried;
    tt_peer_index index;
    tt_ckpt_piece *pieces;
} found_copy;

typedef struct mapped {
    void *at; /* NULL: not mapped */
    size_t n;
} mapped;

typedef struct reading {
    tt_loop *l;
    tt_arena *arena;
    mapped *memories;
    int n_memories;
    found_copy *copies; /* TT_PEER_SLOTS of each memory */
    int n;
    int64_t saved; /* copies of earlier steps are of no use */
    char why[512]; /* why those of step `not_taken` are not taken; "": nothing to say */
    int64_t not_taken;
    bool unfinished; /* why: not all ranks had finished that copy, as is usual for the newest one */
} reading;

/* ---- the copies that are there ---- */

static int descriptor(const tt_restart *r, int i)
{
    return i < r->n_before ? r->before[i] : r->copies[i - r->n_before];
}

static void map_memory(reading *x, int i, int fd)
{
    struct stat st;
    if (fstat(fd, &st) || st.st_size < TT_PEER_PAGE)
        return;
    void *at = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, fd, 0);
    if (at == MAP_FAILED)
        return;
    x->memories[i] = (mapped){at, (size_t)st.st_size};
    const tt_peer_head *h = at;
    if (atomic_load(&h->magic) != TT_PEER_MAGIC || h->bytes < 0 || st.st_size < tt_peer_size(0) ||
        h->bytes > (st.st_size - TT_PEER_PAGE) / TT_PEER_SLOTS)
        return;
    for (int slot = 0; slot < TT_PEER_SLOTS; slot++) {
        found_copy *c = &x->copies[i * TT_PEER_SLOTS + slot];
        c->step = atomic_load(&h->slots[slot].step);
        c->state = &h->slots[slot].state;
        c->bytes = h->bytes;
        c->data = (const char *)at + TT_PEER_PAGE + slot * h->bytes;
    }
}

static void map_memories(reading *x)
{
    const tt_restart *r = x->l->o->restart;
    x->n_memories = r->n_before + r->n_copies;
    x->memories = tt_arena_array(x->arena, (size_t)x->n_memories + 1, sizeof *x->memories);
    x->n = x->n_memories * TT_PEER_SLOTS;
    x->copies = tt_arena_array(x->arena, (size_t)x->n + 1, sizeof *x->copies);
    for (int i = 0; i < x->n; i++)
        x->copies[i].step = -1;
    for (int i = 0; i < x->n_memories; i++)
        map_memory(x, i, descriptor(r, i));
}

static void unmap_memories(const reading *x)
{
    for (int i = 0; i < x->n_memories; i++)
        if (x->memories[i].at)
            munmap(x->memories[i].at, x->memories[i].n);
}

static bool is_of_use(const reading *x, const found_copy *c)
{
    return c->step >= 0 && c->step >= x->saved;
}

/* Each copy's checksum is computed by one rank; what that rank cannot read is not used. [collective] */
static tt_status check_copies(reading *x, tt_error *err)
{
    const tt_dist *d = &x->l->rank.dist;
    int32_t *bad = tt_arena_array(x->arena, (size_t)x->n + 1, sizeof *bad);
    for (int i = 0; i < x->n; i++) {
        const found_copy *c = &x->copies[i];
        if (i % x->l->s->world != d->rank)
            continue;
        bad[i] = 1;
        if (!is_of_use(x, c))
            continue;
        const tt_peer_head *h = x->memories[i / TT_PEER_SLOTS].at;
        const int slot = i % TT_PEER_SLOTS;
        bad[i] = tt_peer_check(h, slot, c->data) != h->slots[slot].check;
    }
    TT_TRY(tt_dist_reduce(d, bad, x->n, TT_I32, TT_MAX, err));
    for (int i = 0; i < x->n; i++) {
        found_copy *c = &x->copies[i];
        c->good = is_of_use(x, c) && !bad[i] &&
                  tt_peer_index_read(c->data, c->bytes, x->arena, &c->index, &c->pieces);
    }
    return TT_OK;
}

/* ---- the step to go on from ---- */

static bool belong_together(const found_copy *a, const found_copy *b)
{
    return b->good && a->step == b->step && a->index.mesh == b->index.mesh;
}

/* The copies that belong to this one as a reader; NULL and the text why: they are not all of the states. */
static tt_ckpt_reader *open_copies(reading *x, const found_copy *of, const tt_peer_state **st,
                                   bool *unfinished, char why[512])
{
    TT_VEC(tt_ckpt_piece) all = {0};
    tt_ckpt_reader *reader = NULL;
    tt_error e = {0};
    int n = 0;
    *st = NULL;
    for (int i = 0; i < x->n; i++) {
        found_copy *c = &x->copies[i];
        if (!belong_together(of, c))
            continue;
        c->tried = true;
        n++;
        if (c->index.rank == 0) /* its numbers are those of a checkpoint */
            *st = c->state;
        for (int64_t k = 0; k < c->index.n; k++)
            tt_vec_push(x->arena, &all, c->pieces[k]);
    }
    const char *name =
        tt_arena_printf(x->arena, "the copies in memory of step %lld", (long long)of->step);
    if (of->index.job != tt_loop_peer_job(x->l))
        snprintf(why, 512, "they are of another job");
    else if (!tt_converters_equal(x->l->s, x->l->s->converters_at, of->step))
        snprintf(why, 512, "the converters have changed since");
    else if (*st && tt_ckpt_open_pieces(name, all.items, all.n, &reader, &e) == TT_OK)
        return reader;
    else if ((*unfinished = n < of->index.world))
        snprintf(why, 512, "only %d of %d ranks have one that is whole", n, of->index.world);
    else
        snprintf(why, 512, "%.500s", e.text);
    return NULL;
}

/* A copy of the newest step that was not tried, good or damaged; NULL: there is none. */
static found_copy *newest_untried(const reading *x)
{
    found_copy *newest = NULL;
    for (int i = 0; i < x->n; i++) {
        found_copy *c = &x->copies[i];
        if (is_of_use(x, c) && !c->tried && (!newest || c->step > newest->step))
            newest = c;
    }
    return newest;
}

/* The rank of this machine whose copy of this step is damaged; -1: none is. */
static int damaged_rank(const reading *x, int64_t step)
{
    const int n_before = x->l->o->restart->n_before;
    for (int i = 0; i < x->n; i++) {
        const int memory = i / TT_PEER_SLOTS;
        if (!x->copies[i].good && x->copies[i].step == step)
            return memory < n_before ? memory : memory - n_before;
    }
    return -1;
}

/* Keeps the reason of the newest step, or of one before it if the newest one was not finished. */
static void note_reason(reading *x, const found_copy *c, bool unfinished, const char *why)
{
    const int damaged = damaged_rank(x, c->step);
    unfinished = unfinished && damaged < 0;
    if (x->why[0] && (!x->unfinished || unfinished))
        return;
    x->unfinished = unfinished;
    x->not_taken = c->step;
    if (damaged >= 0)
        snprintf(x->why, sizeof x->why, "that of rank %d is damaged", damaged);
    else
        snprintf(x->why, sizeof x->why, "%s", why);
}

/* The newest step that the copies have all of; NULL: there is none. */
static tt_ckpt_reader *choose_step(reading *x, const tt_peer_state **st)
{
    char why[512] = "";
    for (found_copy *c = newest_untried(x); c; c = newest_untried(x)) {
        bool unfinished = false;
        c->tried = true;
        tt_ckpt_reader *reader = c->good ? open_copies(x, c, st, &unfinished, why) : NULL;
        if (reader)
            return reader;
        note_reason(x, c, unfinished, why);
    }
    return NULL;
}

/* Whether all ranks have found this step, -1: none. [collective] */
static tt_status all_found(const reading *x, int64_t step, bool *all, tt_error *err)
{
    int64_t most_least[2] = {step, -step};
    TT_TRY(tt_dist_reduce(&x->l->rank.dist, most_least, 2, TT_I64, TT_MAX, err));
    *all = step >= 0 && most_least[0] == step && most_least[1] == -step;
    return TT_OK;
}

static tt_status load_newest(reading *x, tt_trainer_state *out, bool *found, tt_error *err)
{
    const tt_peer_state *state = NULL;
    TT_TRY(check_copies(x, err));
    tt_ckpt_reader *reader = choose_step(x, &state);
    tt_status s = all_found(x, reader ? state->st.step : -1, found, err);
    if (s == TT_OK && !*found && x->l->main && x->why[0])
        tt_log(TT_INFO, "checkpoint", "the copies in memory of step %lld are not taken: %s",
               (long long)x->not_taken, x->why);
    if (s == TT_OK && *found)
        s = tt_agree(&x->l->rank.dist,
                     tt_rank_load_from(&x->l->rank, reader, "the copies in memory", err), err);
    if (s == TT_OK && *found)
        tt_peer_state_read(state, x->l->rank.arena, out);
    tt_ckpt_close(reader);
    return s;
}

tt_status tt_loop_peer_load_others(tt_loop *l, int64_t saved, tt_trainer_state *st, bool *found,
                                   tt_error *err)
{
    reading x = {.l = l, .saved = saved};
    *found = false;
    if (l->o->restart->n_copies <
        l->s->world) /* there are other machines, whose copies are not here */
        return TT_OK;
    x.arena = tt_arena_new();
    map_memories(&x);
    const tt_status s = load_newest(&x, st, found, err);
    unmap_memories(&x);
    tt_arena_free(x.arena);
    return s;
}
