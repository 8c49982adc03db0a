/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/peer.h"
#include "base/thread.h"
#include "train/loop.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x7474727565657231) /* changes with the layout of peer_head */
#define PAGE ((int64_t)4096)
#define N_SLOTS 2

typedef struct peer_slot {
    _Atomic int64_t step; /* -1: no whole copy */
    uint64_t check;       /* of its bytes */
    tt_trainer_state st;  /* without its strings, which are the job's */
} peer_slot;

typedef struct peer_head { /* the first page of the memory */
    uint64_t magic;
    uint64_t layout; /* of the job, the mesh, the rank and its tensors */
    int64_t bytes;   /* of a copy, whole pages */
    peer_slot slots[N_SLOTS];
} peer_head;
_Static_assert(sizeof(peer_head) <= 4096, "a page");

struct tt_peer {
    int fd;
    tt_arena *arena;
    const tt_exec *exec; /* the program whose states these are; NULL: none */
    tt_ckpt_piece *pieces;
    size_t n;
    uint64_t layout;
    int64_t bytes;
    peer_head *head;
    tt_exec_reader *reader;
    bool failed; /* a line has said why there are no copies */
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

static int64_t size_of(const tt_ckpt_piece *p)
{
    return tt_box_numel(&p->box, p->n_dims) * (int64_t)tt_dtype_size(p->dtype);
}

static char *slot_data(const tt_peer *p, int slot)
{
    return (char *)p->head + PAGE + slot * p->bytes;
}

static uint64_t layout_of(const tt_loop *l, const tt_peer *p)
{
    tt_str text = {0};
    tt_job_print(l->s->job, false, &text);
    tt_str_printf(&text, " %s %s %d of %d", l->s->model_fingerprint,
                  l->data.tokenizer_info.fingerprint, l->rank.dist.rank, l->s->world);
    for (size_t i = 0; i < p->n; i++) {
        const tt_ckpt_piece *t = &p->pieces[i];
        tt_str_printf(&text, "\n%s %d %lld", t->name, (int)t->dtype, (long long)size_of(t));
        for (int d = 0; d < t->n_dims; d++)
            tt_str_printf(&text, " %lld:%lld:%lld", (long long)t->global[d],
                          (long long)t->box.begin[d], (long long)t->box.end[d]);
    }
    const uint64_t hash = tt_hash64(tt_str_get(&text), text.n, MAGIC);
    tt_str_free(&text);
    return hash;
}

static void unmap_copies(tt_peer *p)
{
    if (p->head)
        munmap(p->head, (size_t)(PAGE + N_SLOTS * p->bytes));
    p->head = NULL;
}

/* The limit on file sizes (ulimit -f) is also one on a memfd. */
static bool set_size(int fd, int64_t bytes)
{
    struct rlimit before = {RLIM_INFINITY, RLIM_INFINITY}, most;
    getrlimit(RLIMIT_FSIZE, &before);
    most = (struct rlimit){before.rlim_max, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &most);
    const bool good = !ftruncate(fd, (off_t)bytes);
    setrlimit(RLIMIT_FSIZE, &before);
    return good;
}

/* Copies of another layout are dropped. */
static bool map_copies(tt_peer *p)
{
    struct stat st;
    const int64_t all = PAGE + N_SLOTS * p->bytes;
    if (fstat(p->fd, &st) || (st.st_size != all && (!set_size(p->fd, 0) || !set_size(p->fd, all))))
        return false;
    void *at = mmap(NULL, (size_t)all, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
    if (at == MAP_FAILED)
        return false;
    p->head = at;
    if (p->head->magic == MAGIC && p->head->layout == p->layout && p->head->bytes == p->bytes)
        return true;
    for (int i = 0; i < N_SLOTS; i++)
        atomic_store(&p->head->slots[i].step, -1);
    p->head->magic = MAGIC;
    p->head->layout = p->layout;
    p->head->bytes = p->bytes;
    return true;
}

static bool open_program(tt_loop *l, tt_peer *p)
{
    tt_error e = {0};
    if (p->exec == l->rank.exec)
        return true;
    p->arena = tt_arena_new();
    p->n = tt_rank_pieces(&l->rank, p->arena, true, &p->pieces);
    p->bytes = 0;
    for (size_t i = 0; i < p->n; i++)
        p->bytes += size_of(&p->pieces[i]);
    p->bytes = (p->bytes + PAGE - 1) / PAGE * PAGE;
    p->layout = layout_of(l, p);
    p->exec = l->rank.exec;
    if (map_copies(p) && tt_exec_reader_new(l->rank.exec, &p->reader, &e) == TT_OK)
        return true;
    tt_log(TT_WARN, "checkpoint", "checkpoint.peer_copy_interval: no copies are kept: %s",
           p->head ? e.text : strerror(errno));
    p->failed = true;
    return false;
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

static uint64_t check_of(const tt_peer *p, int slot)
{
    const peer_slot *s = &p->head->slots[slot];
    const uint64_t seed = tt_hash64(&s->st, sizeof s->st, p->layout);
    return tt_hash64(slot_data(p, slot), (size_t)p->bytes, seed);
}

static tt_status copy_pieces(tt_peer *p, tt_error *err)
{
    char *to = slot_data(p, p->slot);
    for (size_t i = 0; i < p->n; i++) {
        const size_t bytes = (size_t)size_of(&p->pieces[i]);
        if (bytes)
            TT_TRY(tt_exec_reader_copy(p->reader, to, p->pieces[i].data, bytes, err));
        to += bytes;
    }
    return TT_OK;
}

static void copy_once(tt_peer *p)
{
    peer_slot *s = &p->head->slots[p->slot];
    tt_error e = {0};
    if (copy_pieces(p, &e) != TT_OK) {
        tt_log(TT_WARN, "checkpoint", "no copy of step %lld is kept: %s", (long long)s->st.step,
               e.text);
        return;
    }
    /* From here on the states may change: the checksum is the copy's. */
    pthread_mutex_lock(&p->lock);
    p->copying = false;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    s->check = check_of(p, p->slot);
    atomic_store(&s->step, s->st.step);
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
static int slot_to_replace(const peer_head *h)
{
    return atomic_load(&h->slots[0].step) > atomic_load(&h->slots[1].step);
}

static tt_status start_copy(tt_loop *l, tt_error *err)
{
    tt_peer *p = l->peer;
    if (p->failed || !open_program(l, p))
        return TT_OK;
    TT_TRY(tt_exec_reader_begin(p->reader, err));
    p->slot = slot_to_replace(p->head);
    peer_slot *s = &p->head->slots[p->slot];
    atomic_store(&s->step, -1);
    s->st = tt_loop_trainer_state(l);
    pthread_mutex_lock(&p->lock);
    p->copying = p->busy = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    return TT_OK;
}

/* No rank replaces a copy before all have a whole one that is newer. */
tt_status tt_loop_peer_copy(tt_loop *l, tt_error *err)
{
    const tt_dist *d = &l->rank.dist;
    const int64_t t0 = tt_now_ns();
    int32_t none = 0;
    TT_TRY(
        tt_loop_written(l, err)); /* the run may go on from here: no line of metrics is missing */
    wait_for_copy(l->peer, &l->peer->busy);
    TT_TRY(tt_dist_reduce(d, &none, 1, TT_I32, TT_MAX, err));
    TT_TRY(start_copy(l, err));
    l->t.checkpoint += tt_seconds_since(t0);
    return TT_OK;
}

/* ---- loading ---- */

/* The slot of this step; -1: there is none. */
static int peer_slot_of(const peer_head *h, int64_t step)
{
    for (int i = 0; i < N_SLOTS; i++)
        if (step >= 0 && atomic_load(&h->slots[i].step) == step)
            return i;
    return -1;
}

static int64_t newest_of(const peer_head *h)
{
    return TT_MAXV(atomic_load(&h->slots[0].step), atomic_load(&h->slots[1].step));
}

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
    const char *from = slot_data(p, slot);
    for (size_t i = 0; i < p->n; i++) {
        const size_t bytes = (size_t)size_of(&p->pieces[i]);
        if (bytes)
            TT_TRY(tt_exec_write(l->rank.exec, p->pieces[i].data, from, bytes, err));
        from += bytes;
    }
    return TT_OK;
}

tt_status tt_loop_peer_load(tt_loop *l, int64_t saved, tt_trainer_state *st, bool *found,
                            tt_error *err)
{
    tt_peer *p = l->peer;
    *found = false;
    if (!p)
        return TT_OK;
    const bool open = !p->failed && open_program(l, p);
    int64_t step = open ? newest_of(p->head) : -1;
    TT_TRY(all_min(&l->rank.dist, &step, err));
    const int slot = open ? peer_slot_of(p->head, step) : -1;
    int64_t good = slot >= 0 && step >= saved && p->head->slots[slot].check == check_of(p, slot) &&
                   tt_converters_equal(l->s, l->s->converters_at, step);
    TT_TRY(all_min(&l->rank.dist, &good, err));
    if (!good)
        return TT_OK;
    TT_TRY(tt_agree(&l->rank.dist, load_pieces(l, slot, err), err));
    *st = p->head->slots[slot].st;
    *found = true;
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
    const int rank = l->rank.dist.rank;
    if (!c->peer_copy_interval)
        return TT_OK;
    const bool kept = r && r->n_copies >= l->s->world && c->enable && !c->load_only;
    if (!kept && l->main)
        tt_log(TT_WARN, "checkpoint", "checkpoint.peer_copy_interval has no effect: %s",
               r && r->n_copies >= l->s->world
                   ? "nothing is saved (checkpoint.enable, checkpoint.load_only)"
                   : "copies belong to a supervisor: start with --max-restarts");
    if (!kept)
        return TT_OK;
    l->peer = peer_new(r->copies[rank]);
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

/* ---- the supervisor's side ---- */

static peer_head *map_head(int fd)
{
    struct stat st;
    if (fstat(fd, &st) || st.st_size < PAGE)
        return NULL;
    void *p = mmap(NULL, (size_t)PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return NULL;
    if (((const peer_head *)p)->magic == MAGIC)
        return p;
    munmap(p, (size_t)PAGE);
    return NULL;
}

int64_t tt_peer_newest(const int *fds, int n)
{
    int64_t newest = INT64_MAX;
    for (int i = 0; i < n; i++) {
        peer_head *h = map_head(fds[i]);
        newest = TT_MIN(newest, h ? newest_of(h) : -1);
        if (h)
            munmap(h, (size_t)PAGE);
    }
    return n ? newest : -1;
}

void tt_peer_forget(const int *fds, int n)
{
    for (int i = 0; i < n; i++) {
        const int gone = ftruncate(fds[i], 0);
        (void)gone; /* if it fails the copies stay, and a start takes them */
    }
}
