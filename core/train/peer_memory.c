/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "train/peer_memory.h"
#include "train/peer.h"
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

bool tt_peer_set_size(int fd, int64_t size)
{
    struct rlimit before = {RLIM_INFINITY, RLIM_INFINITY}, most;
    getrlimit(RLIMIT_FSIZE, &before);
    most = (struct rlimit){before.rlim_max, before.rlim_max};
    setrlimit(RLIMIT_FSIZE, &most);
    const bool good = !ftruncate(fd, (off_t)size);
    setrlimit(RLIMIT_FSIZE, &before);
    return good;
}

tt_peer_head *tt_peer_map_head(int fd)
{
    struct stat st;
    if (fstat(fd, &st) || st.st_size < TT_PEER_PAGE)
        return NULL;
    void *p = mmap(NULL, (size_t)TT_PEER_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return p == MAP_FAILED ? NULL : p;
}

void tt_peer_unmap_head(tt_peer_head *h)
{
    if (h)
        munmap(h, (size_t)TT_PEER_PAGE);
}

bool tt_peer_prepare(int fd, tt_peer_head *h, uint64_t layout, int64_t bytes)
{
    for (int i = 0; i < TT_PEER_SLOTS; i++)
        atomic_store(&h->slots[i].step, -1);
    if (!tt_peer_set_size(fd, TT_PEER_PAGE) || !tt_peer_set_size(fd, tt_peer_size(bytes)))
        return false;
    h->layout = layout;
    h->bytes = bytes;
    atomic_store(&h->magic, TT_PEER_MAGIC);
    return true;
}

static tt_trainer_state without_strings(const tt_trainer_state *st)
{
    tt_trainer_state s = *st;
    s.job_json = s.model_fingerprint = s.tokenizer_fingerprint = NULL;
    s.converters = s.converters_of_job = s.averaged = NULL;
    s.frozen_from = s.initial_identity = NULL;
    s.losses = NULL;
    s.n_losses = 0;
    return s;
}

static void keep_text(const char *text, char *to, size_t room)
{
    const size_t n = text ? strlen(text) : 0;
    if (n && n < room)
        memcpy(to, text, n);
}

void tt_peer_state_write(const tt_trainer_state *st, tt_peer_state *to)
{
    memset(to, 0, sizeof *to);
    to->st = without_strings(st);
    keep_text(st->frozen_from, to->frozen_from, sizeof to->frozen_from);
    keep_text(st->initial_identity, to->initial_identity, sizeof to->initial_identity);
}

void tt_peer_state_read(const tt_peer_state *from, tt_arena *a, tt_trainer_state *out)
{
    *out = from->st;
    out->frozen_from = *from->frozen_from ? tt_arena_str(a, from->frozen_from) : NULL;
    out->initial_identity =
        *from->initial_identity ? tt_arena_str(a, from->initial_identity) : NULL;
}

uint64_t tt_peer_check(const tt_peer_head *h, int slot, const void *data)
{
    const tt_peer_slot *s = &h->slots[slot];
    const uint64_t seed = tt_hash64(&s->state, sizeof s->state, h->layout);
    return tt_hash64(data, (size_t)h->bytes, seed);
}

int64_t tt_peer_newest_of(const tt_peer_head *h)
{
    int64_t newest = -1;
    if (atomic_load(&h->magic) == TT_PEER_MAGIC)
        for (int i = 0; i < TT_PEER_SLOTS; i++)
            newest = TT_MAXV(newest, atomic_load(&h->slots[i].step));
    return newest;
}

int tt_peer_slot_of(const tt_peer_head *h, int64_t step)
{
    for (int i = 0; i < TT_PEER_SLOTS; i++)
        if (step >= 0 && atomic_load(&h->magic) == TT_PEER_MAGIC &&
            atomic_load(&h->slots[i].step) == step)
            return i;
    return -1;
}

void tt_peer_drop_after(tt_peer_head *h, int64_t step)
{
    for (int i = 0; i < TT_PEER_SLOTS; i++)
        if (atomic_load(&h->slots[i].step) > step)
            atomic_store(&h->slots[i].step, -1);
}

/* ---- of the ranks of one machine ---- */

int64_t tt_peer_newest(const int *fds, int n)
{
    int64_t newest = INT64_MAX;
    for (int i = 0; i < n; i++) {
        tt_peer_head *h = tt_peer_map_head(fds[i]);
        newest = TT_MIN(newest, h ? tt_peer_newest_of(h) : -1);
        tt_peer_unmap_head(h);
    }
    return n ? newest : -1;
}

void tt_peer_keep_step(int fd, int64_t step)
{
    tt_peer_head *h = tt_peer_map_head(fd);
    for (int i = 0; h && tt_peer_newest_of(h) >= 0 && i < TT_PEER_SLOTS; i++) {
        if (atomic_load(&h->slots[i].step) == step)
            continue;
        atomic_store(&h->slots[i].step, -1);
        const int kept = fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                   TT_PEER_PAGE + i * h->bytes, h->bytes);
        (void)kept; /* if it fails the memory is freed later */
    }
    tt_peer_unmap_head(h);
}

void tt_peer_forget(const int *fds, int n)
{
    for (int i = 0; i < n; i++) {
        const int gone = ftruncate(fds[i], 0);
        (void)gone; /* if it fails the copies stay, and a start takes them */
    }
}
