/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/peer.h"
#include "base/thread.h"
#include "train/loop.h"
#include "train/peer_index.h"
#include "train/peer_memory.h"
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct tt_peer {
    int fd;
    tt_arena *arena;
    const tt_exec *exec; /* the program whose states these are; NULL: none */
    tt_ckpt_piece *pieces;
    size_t n;
    void *index; /* what each copy begins with (peer_index.h) */
    int64_t index_bytes;
    uint64_t layout; /* the hash of the index */
    int64_t bytes;
    tt_peer_head *head;
    tt_exec_reader *reader;
    bool failed; /* a line has said why there are no copies */
    bool told;   /* a line has said how much memory they take */
    /* the copy that is made */
    int slot;
    pthread_t thread;
    bool has_thread;
    /* protected by lock */
    bool copying; /* the states may not change */
    bool busy;    /* the copy is not whole yet */
    bool quit;
    pthread_mutex_t lock;
    pthread_cond_t changed;
};

/* ---- the memory ---- */

static char *slot_data(const tt_peer *p, int slot)
{
    return (char *)p->head + TT_PEER_PAGE + slot * p->bytes;
}

/* What the job says, without the sections that say where it runs. */
static uint64_t job_hash(const tt_loop *l, bool with_mesh)
{
    static const char *const of_mesh[] = {"parallelism", "comm"};
    tt_arena *a = tt_arena_new();
    tt_str text = {0}, all = {0};
    const tt_json *job = NULL;
    tt_job_print(l->s->job, false, &text);
    if (tt_json_parse(a, "job", tt_str_get(&text), text.n, &job, NULL) != TT_OK)
        job = NULL;
    for (size_t i = 0; job && i < job->n; i++) {
        bool out = false;
        for (size_t k = 0; k < TT_COUNT(of_mesh); k++)
            out = out || (!with_mesh && !strcmp(job->keys[i], of_mesh[k]));
        if (out)
            continue;
        tt_str_printf(&all, "%s:", job->keys[i]);
        tt_json_write(job->items[i], &all);
    }
    tt_str_printf(&all, " %s %s", l->s->model_fingerprint, l->data.tokenizer_info.fingerprint);
    if (with_mesh)
        tt_str_printf(&all, " %d", l->s->world);
    const uint64_t hash = tt_hash64(tt_str_get(&all), all.n, TT_PEER_MAGIC);
    tt_str_free(&text);
    tt_str_free(&all);
    tt_arena_free(a);
    return hash;
}

uint64_t tt_loop_peer_job(const tt_loop *l)
{
    return job_hash(l, false);
}

static void unmap_copies(tt_peer *p)
{
    if (p->head)
        munmap(p->head, (size_t)tt_peer_size(p->bytes));
    p->head = NULL;
}

/* Whether the memory has copies of these states of this rank. */
static bool has_copies(const tt_peer *p)
{
    struct stat st;
    tt_peer_head *h = tt_peer_map_head(p->fd);
    const bool same = h && atomic_load(&h->magic) == TT_PEER_MAGIC && h->layout == p->layout &&
                      h->bytes == p->bytes && !fstat(p->fd, &st) &&
                      st.st_size == tt_peer_size(p->bytes);
    tt_peer_unmap_head(h);
    return same;
}

/* Copies of another layout are dropped. The supervisor may have mapped the first page, which stays. */
static bool map_copies(tt_peer *p)
{
    const int64_t all = tt_peer_size(p->bytes);
    if (p->head)
        return true;
    const bool same = has_copies(p);
    if (!same && (!tt_peer_set_size(p->fd, TT_PEER_PAGE) || !tt_peer_set_size(p->fd, all)))
        return false;
    void *at = mmap(NULL, (size_t)all, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
    if (at == MAP_FAILED)
        return false;
    tt_peer_head *h = p->head = at;
    if (same)
        return true;
    for (int i = 0; i < TT_PEER_SLOTS; i++)
        atomic_store(&h->slots[i].step, -1);
    h->layout = p->layout;
    h->bytes = p->bytes;
    atomic_store(&h->magic, TT_PEER_MAGIC);
    return true;
}

static bool keep_none(tt_peer *p, const char *why)
{
    tt_log(TT_WARN, "checkpoint", "checkpoint.peer_copy_interval: no copies are kept: %s", why);
    p->failed = true;
    return false;
}

static void describe_states(const tt_loop *l, tt_peer *p)
{
    p->arena = tt_arena_new();
    p->n = tt_rank_pieces(&l->rank, p->arena, true, &p->pieces);
    const tt_peer_index of = {.job = job_hash(l, false),
                              .mesh = job_hash(l, true),
                              .rank = l->rank.dist.rank,
                              .world = l->s->world};
    p->index_bytes = tt_peer_index_size(p->pieces, p->n);
    p->index = tt_arena_alloc(p->arena, (size_t)p->index_bytes);
    tt_peer_index_write(&of, p->pieces, p->n, p->index);
    p->layout = tt_hash64(p->index, (size_t)p->index_bytes, TT_PEER_MAGIC);
    p->bytes = p->index_bytes;
    for (size_t i = 0; i < p->n; i++)
        p->bytes += tt_peer_piece_bytes(&p->pieces[i]);
    p->bytes = tt_peer_pages(p->bytes);
}

/* Finds out which copies belong to the program, and leaves those that are there. */
static bool open_program(tt_loop *l, tt_peer *p)
{
    tt_error e = {0};
    if (p->exec == l->rank.exec)
        return true;
    describe_states(l, p);
    p->exec = l->rank.exec;
    return tt_exec_reader_new(l->rank.exec, &p->reader, &e) == TT_OK || keep_none(p, e.text);
}

static void wait_for_copy(tt_peer *p, const bool *what)
{
    pthread_mutex_lock(&p->lock);
    while (*what)
        pthread_cond_wait(&p->changed, &p->lock);
    pthread_mutex_unlock(&p->lock);
}

void tt_loop_peer_leave(tt_loop *l)
{
    tt_peer *p = l->peer;
    if (!p || !p->exec)
        return;
    wait_for_copy(p, &p->busy);
    tt_exec_reader_free(p->reader);
    p->reader = NULL;
    unmap_copies(p);
    tt_arena_free(p->arena);
    p->arena = NULL;
    p->exec = NULL;
}

/* ---- copying, on a thread of its own ---- */

static tt_status copy_pieces(tt_peer *p, tt_error *err)
{
    char *to = slot_data(p, p->slot);
    memcpy(to, p->index, (size_t)p->index_bytes);
    to += p->index_bytes;
    for (size_t i = 0; i < p->n; i++) {
        const size_t bytes = (size_t)tt_peer_piece_bytes(&p->pieces[i]);
        if (bytes)
            TT_TRY(tt_exec_reader_copy(p->reader, to, p->pieces[i].data, bytes, err));
        to += bytes;
    }
    return TT_OK;
}

static void copy_once(tt_peer *p)
{
    tt_peer_slot *s = &p->head->slots[p->slot];
    tt_error e = {0};
    if (copy_pieces(p, &e) != TT_OK) {
        tt_log(TT_WARN, "checkpoint", "no copy of step %lld is kept: %s",
               (long long)s->state.st.step, e.text);
        return;
    }
    /* From here on the states may change: the checksum is the copy's. */
    pthread_mutex_lock(&p->lock);
    p->copying = false;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    s->check = tt_peer_check(p->head, p->slot, slot_data(p, p->slot));
    atomic_store(&s->step, s->state.st.step);
}

static void *peer_thread(void *arg)
{
    tt_peer *p = arg;
    tt_locale_fix();
    pthread_mutex_lock(&p->lock);
    for (;;) {
        while (!p->busy && !p->quit)
            pthread_cond_wait(&p->changed, &p->lock);
        if (p->quit)
            break;
        pthread_mutex_unlock(&p->lock);
        copy_once(p);
        pthread_mutex_lock(&p->lock);
        p->copying = false;
        p->busy = false;
        pthread_cond_broadcast(&p->changed);
    }
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

void tt_loop_peer_wait(tt_loop *l)
{
    if (l->peer)
        wait_for_copy(l->peer, &l->peer->copying);
}

bool tt_loop_peer_due(const tt_loop *l)
{
    const int64_t every = l->s->core.checkpoint.peer_copy_interval;
    return l->peer && l->step % every == 0 && l->step < l->steps && !l->stopped_by &&
           !tt_loop_has_own_converters(l);
}

/* The older copy, or one that is not whole. */
static int slot_to_replace(const tt_peer_head *h)
{
    return atomic_load(&h->slots[0].step) > atomic_load(&h->slots[1].step);
}

static tt_status start_copy(tt_loop *l, tt_error *err)
{
    tt_peer *p = l->peer;
    if (p->failed || !open_program(l, p) || (!map_copies(p) && !keep_none(p, strerror(errno))))
        return TT_OK;
    TT_TRY(tt_exec_reader_begin(p->reader, err));
    p->slot = slot_to_replace(p->head);
    tt_peer_slot *s = &p->head->slots[p->slot];
    atomic_store(&s->step, -1);
    tt_trainer_state st = tt_loop_trainer_state(l);
    st.world = l->s->world;
    st.frozen_from = l->frozen_from;
    st.initial_identity = l->initial_identity;
    tt_peer_state_write(&st, &s->state);
    pthread_mutex_lock(&p->lock);
    p->copying = p->busy = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return TT_OK;
}

/* Whether the newest copy is still on its way to another node. */
static bool is_on_its_way(const tt_peer *p)
{
    const tt_peer_head *h = p->head;
    const int64_t newest = p->exec && h ? tt_peer_newest_of(h) : -1;
    return newest >= 0 && atomic_load(&h->gated) && atomic_load(&h->sent) != newest;
}

/* Says once how much memory the copies take, as ttrun plan does. [collective] */
static tt_status tell_memory(tt_loop *l, tt_error *err)
{
    tt_peer *p = l->peer;
    const double gib = 1.0 / (1 << 30);
    int64_t mine = p->exec && !p->failed ? tt_peer_size(p->bytes) : 0, most = mine, all = mine;
    if (p->told)
        return TT_OK;
    p->told = true;
    TT_TRY(tt_dist_reduce(&l->rank.dist, &most, 1, TT_I64, TT_MAX, err));
    TT_TRY(tt_dist_reduce(&l->rank.dist, &all, 1, TT_I64, TT_SUM, err));
    if (l->main)
        tt_log(TT_INFO, "checkpoint",
               "copies of the states: %.3f GiB of host memory per rank, %.3f of all %d ranks, in "
               "the supervisor's memory",
               gib * (double)most, gib * (double)all, l->s->world);
    return TT_OK;
}

/* No rank replaces a copy before all have a whole one that is newer, and before the nodes that keep copies of
 * others have it, too: with a slow network there are fewer copies, and no rank waits. */
tt_status tt_loop_peer_copy(tt_loop *l, tt_error *err)
{
    const tt_dist *d = &l->rank.dist;
    const int64_t t0 = tt_now_ns();
    TT_TRY(
        tt_loop_written(l, err)); /* the run may go on from here: no line of metrics is missing */
    wait_for_copy(l->peer, &l->peer->busy);
    const bool mine = is_on_its_way(l->peer);
    int32_t skip = mine;
    TT_TRY(tt_dist_reduce(d, &skip, 1, TT_I32, TT_MAX, err));
    if (mine)
        atomic_fetch_add(&l->peer->head->skipped, 1);
    if (!skip)
        TT_TRY(start_copy(l, err));
    TT_TRY(tell_memory(l, err));
    l->t.checkpoint += tt_seconds_since(t0);
    return TT_OK;
}

/* ---- loading ---- */

static tt_status all_min(const tt_dist *d, int64_t *v, tt_error *err)
{
    int64_t less = -*v;
    TT_TRY(tt_dist_reduce(d, &less, 1, TT_I64, TT_MAX, err));
    *v = -less;
    return TT_OK;
}

static tt_status load_pieces(tt_loop *l, int slot, tt_error *err)
{
    const tt_peer *p = l->peer;
    const char *from = slot_data(p, slot) + p->index_bytes;
    for (size_t i = 0; i < p->n; i++) {
        const size_t bytes = (size_t)tt_peer_piece_bytes(&p->pieces[i]);
        if (bytes)
            TT_TRY(tt_exec_write(l->rank.exec, p->pieces[i].data, from, bytes, err));
        from += bytes;
    }
    return TT_OK;
}

/* From this rank's own copy, if all ranks have one. */
static tt_status load_own(tt_loop *l, int64_t saved, bool own, tt_trainer_state *st, bool *found,
                          tt_error *err)
{
    const tt_peer *p = l->peer;
    int64_t step = own ? tt_peer_newest_of(p->head) : -1;
    TT_TRY(all_min(&l->rank.dist, &step, err));
    const int slot = own ? tt_peer_slot_of(p->head, step) : -1;
    int64_t good = slot >= 0 && step >= saved &&
                   p->head->slots[slot].check == tt_peer_check(p->head, slot, slot_data(p, slot)) &&
                   tt_converters_equal(l->s, l->s->converters_at, step);
    TT_TRY(all_min(&l->rank.dist, &good, err));
    if (!good)
        return TT_OK;
    TT_TRY(tt_agree(&l->rank.dist, load_pieces(l, slot, err), err));
    tt_peer_state_read(&p->head->slots[slot].state, l->rank.arena, st);
    *found = true;
    return TT_OK;
}

tt_status tt_loop_peer_load(tt_loop *l, int64_t saved, tt_trainer_state *st, bool *found,
                            tt_error *err)
{
    tt_peer *p = l->peer;
    *found = false;
    if (!p)
        return TT_OK;
    const bool open = !p->failed && open_program(l, p),
               own = open && has_copies(p) && map_copies(p);
    TT_TRY(load_own(l, saved, own, st, found, err));
    if (!*found)
        TT_TRY(tt_loop_peer_load_others(l, saved, st, found, err));
    if (own)
        tt_peer_drop_after(p->head, *found ? st->step : -1);
    else if (open && !*found && !map_copies(p))
        keep_none(p, strerror(errno));
    return TT_OK;
}

/* ---- life ---- */

static tt_peer *peer_new(int fd)
{
    tt_peer *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->fd = fd;
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->changed, NULL);
    p->has_thread = tt_thread_start(&p->thread, peer_thread, p) == 0;
    p->failed = !p->has_thread;
    return p;
}

tt_status tt_loop_open_peer(tt_loop *l, tt_error *err)
{
    const tt_checkpoint_config *c = &l->s->core.checkpoint;
    const tt_restart *r = l->o->restart;
    const int world = l->s->world, n = r ? r->n_copies : 0;
    if (!c->peer_copy_interval)
        return TT_OK;
    const bool has = n > 0 && (n >= world || world % n == 0);
    const bool kept = has && c->enable && !c->load_only;
    if (!kept && l->main)
        tt_log(TT_WARN, "checkpoint", "checkpoint.peer_copy_interval has no effect: %s",
               has ? "nothing is saved (checkpoint.enable, checkpoint.load_only)"
                   : "copies belong to a supervisor: start with --max-restarts");
    if (!kept)
        return TT_OK;
    l->peer = peer_new(r->copies[l->rank.dist.rank % n]);
    return l->peer ? TT_OK : TT_FAIL(err, TT_ENOMEM, "no memory for copies of the states");
}

void tt_loop_close_peer(tt_loop *l)
{
    tt_peer *p = l->peer;
    if (!p)
        return;
    tt_loop_peer_leave(l);
    pthread_mutex_lock(&p->lock);
    p->quit = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    if (p->has_thread)
        pthread_join(p->thread, NULL);
    pthread_mutex_destroy(&p->lock);
    pthread_cond_destroy(&p->changed);
    free(p);
    l->peer = NULL;
}
