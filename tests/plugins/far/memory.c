/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "far.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ttrun/log.h>
#include <unistd.h>

/* Memory: the pages of an allocation are mapped twice. The host has an address in the visible
 * mapping, which is PROT_NONE for device memory, and for whole pages of pinned memory while a copy
 * names them. Addresses of freed memory are never given out again. */

static size_t far_page(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

/* The first allocation that ends after p; n_memory if there is none. */
static int far_memory_after(const void *p)
{
    int low = 0, high = far.n_memory;
    while (low < high) {
        const int mid = (low + high) / 2;
        if (far.memory[mid]->visible + far.memory[mid]->mapped > (const char *)p)
            high = mid;
        else
            low = mid + 1;
    }
    return low;
}

static far_memory *far_memory_at(const void *p)
{
    const int i = far_memory_after(p);
    if (i < far.n_memory && far.memory[i]->visible <= (const char *)p)
        return far.memory[i];
    return NULL;
}

const far_rank *far_owner_of(const void *p)
{
    const far_memory *m = far_memory_at(p);
    return m ? m->owner : NULL;
}

tt_status far_translate(const far_rank *r, const void *at, size_t bytes, int kinds, char **out,
                        tt_error *err)
{
    const far_memory *m = far_memory_at(at);
    if (!m)
        return TT_FAIL(err, TT_EINVAL,
                       "%p is not memory of the device%s, or it was freed: the device cannot reach "
                       "the host's ordinary memory",
                       at, kinds & FAR_PINNED ? " nor pinned memory" : "");
    if (m->owner != r && (m->pinned || !(kinds & FAR_PEER)))
        return TT_FAIL(err, TT_EINVAL, "%p is memory of rank %d, used by rank %d", at,
                       m->owner->rank, r->rank);
    if (!(kinds & (m->pinned ? FAR_PINNED : FAR_DEVICE)))
        return TT_FAIL(err, TT_EINVAL, "%p is %s memory, not %s memory", at,
                       m->pinned ? "pinned" : "device", m->pinned ? "device" : "pinned");
    if ((const char *)at < m->at || bytes > m->bytes ||
        (size_t)((const char *)at - m->at) > m->bytes - bytes)
        return TT_FAIL(err, TT_EINVAL,
                       "%zu bytes at %p leave their allocation of %zu bytes at %p (offset %lld)",
                       bytes, at, m->bytes, (void *)m->at, (long long)((const char *)at - m->at));
    *out = m->hidden + ((const char *)at - m->visible);
    return TT_OK;
}

static bool far_guard_whole(const far_memory *m)
{
    const size_t before = (size_t)(m->at - m->visible);
    const unsigned char *p = (const unsigned char *)m->hidden, *end = p + before + m->bytes;
    for (size_t i = 0; i < before; i++)
        if (p[i] != FAR_POISON)
            return false;
    for (size_t i = 0; i < FAR_GUARD && end + i < p + m->mapped; i++)
        if (end[i] != FAR_POISON)
            return false;
    return true;
}

tt_status far_check_guards(const far_range *ranges, int n, tt_error *err)
{
    for (int i = 0; i < n; i++) {
        const far_memory *m = ranges[i].bytes ? far_memory_at(ranges[i].at) : NULL;
        if (m && !m->pinned && !far_guard_whole(m))
            return TT_FAIL(err, TT_EINTERNAL,
                           "wrote outside the allocation of %zu bytes at %p, which holds its "
                           "operand %d",
                           m->bytes, (void *)m->at, i);
    }
    return TT_OK;
}

/* Two mappings of `bytes` fresh bytes. */
static tt_status far_map_twice(far_memory *m, int protection, tt_error *err)
{
    const int fd = memfd_create("far", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, (off_t)m->mapped) != 0) {
        if (fd >= 0)
            close(fd);
        return TT_FAIL(err, TT_ENOMEM, "far: no memory of %zu bytes", m->mapped);
    }
    m->visible = mmap(NULL, m->mapped, protection, MAP_SHARED, fd, 0);
    m->hidden = mmap(NULL, m->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (m->visible != MAP_FAILED && m->hidden != MAP_FAILED)
        return TT_OK;
    if (m->visible != MAP_FAILED)
        munmap(m->visible, m->mapped);
    if (m->hidden != MAP_FAILED)
        munmap(m->hidden, m->mapped);
    return TT_FAIL(err, TT_ENOMEM, "far: no address space for %zu bytes", m->mapped);
}

static tt_status far_memory_new(far_rank *r, size_t bytes, bool pinned, void **out, tt_error *err)
{
    const size_t page = far_page(), before = pinned ? 0 : FAR_GUARD,
                 n_pages = (before + bytes + FAR_GUARD + page - 1) / page;
    far_memory *m = far_calloc(1, sizeof *m);
    *m = (far_memory){.owner = r, .bytes = bytes, .pinned = pinned, .mapped = n_pages * page};
    const tt_status s = far_map_twice(m, pinned ? PROT_READ | PROT_WRITE : PROT_NONE, err);
    if (s != TT_OK) {
        free(m);
        return s;
    }
    memset(m->hidden, FAR_POISON, m->mapped);
    m->at = m->visible + before;
    m->n_pending = far_calloc(n_pages, sizeof *m->n_pending);
    if (far.n_memory == far.room_memory) {
        far.room_memory = 2 * far.room_memory + 16;
        far.memory = realloc(far.memory, (size_t)far.room_memory * sizeof *far.memory);
        if (!far.memory)
            far_misuse("no host memory for the table of allocations");
    }
    const int i = far_memory_after(m->visible);
    memmove(&far.memory[i + 1], &far.memory[i], (size_t)(far.n_memory - i) * sizeof *far.memory);
    far.memory[i] = m;
    far.n_memory++;
    *(pinned ? &r->pinned : &r->used) += bytes;
    *out = m->at;
    return TT_OK;
}

/* The visible addresses stay reserved, so that a later use of them is found. */
static void far_memory_end(far_memory *m)
{
    const int i = far_memory_after(m->visible);
    *(m->pinned ? &m->owner->pinned : &m->owner->used) -= m->bytes;
    memmove(&far.memory[i], &far.memory[i + 1],
            (size_t)(far.n_memory - i - 1) * sizeof *far.memory);
    far.n_memory--;
    munmap(m->hidden, m->mapped);
    if (mmap(m->visible, m->mapped, PROT_NONE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0) == MAP_FAILED)
        far_misuse("freed memory cannot be protected");
    free(m->n_pending);
    free(m);
}

void far_memory_drop(far_rank *r)
{
    int n = 0;
    for (int i = far.n_memory - 1; i >= 0; i--)
        if (far.memory[i]->owner == r) {
            far_memory_end(far.memory[i]);
            n++;
        }
    if (n)
        tt_log(TT_ERROR, "far", "rank %d closes the device with %d allocations not freed", r->rank,
               n);
}

tt_status far_alloc(void *self, size_t bytes, void **out, tt_error *err)
{
    far_rank *r = self;
    TT_TRY(far_begin(r, "alloc", err));
    const uint64_t total = (uint64_t)r->config.memory_mib << 20;
    tt_status s;
    if (!bytes)
        s = TT_FAIL(err, TT_EINVAL, "far: alloc of 0 bytes");
    else if (bytes > total - r->used)
        s = TT_FAIL(err, TT_ENOMEM, "far: no device memory for %zu bytes: %llu of %llu are free",
                    bytes, (unsigned long long)(total - r->used), (unsigned long long)total);
    else
        s = far_memory_new(r, bytes, false, out, err);
    return far_end(r, s);
}

tt_status far_alloc_pinned(void *self, size_t bytes, void **out, tt_error *err)
{
    far_rank *r = self;
    TT_TRY(far_begin(r, "alloc_pinned", err));
    const tt_status s = far_memory_new(r, bytes, true, out, err);
    return far_end(r, s);
}

/* Work that touches the allocation: of the rank, what its host did not await; of other ranks, what did
 * not run before all that its host has awaited. NULL: none. After a failure the host gives up and need
 * not await anything. */
static const far_node *far_user_of(const far_rank *r, const far_memory *m)
{
    for (int q = 0; q < far.n_clocks && !r->failed && !r->refused; q++)
        for (const far_node *n = far.queues[q] ? far.queues[q]->head : NULL; n; n = n->next)
            for (int i = 0; i < n->n_ranges && n->seq > r->host_clock[q]; i++)
                if (n->ranges[i].bytes && (char *)n->ranges[i].at >= m->visible &&
                    (char *)n->ranges[i].at < m->visible + m->mapped)
                    return n;
    return NULL;
}

static void far_release(far_rank *r, void *p, bool pinned, const char *what)
{
    if (!p)
        return;
    far_begin_or_die(r, what);
    far_memory *m = far_memory_at(p);
    if (!m || m->at != p || m->pinned != pinned || m->owner != r)
        far_misuse("%s of %p, which rank %d did not get as %s memory", what, p, r->rank,
                   pinned ? "pinned" : "device");
    const far_node *user = far_user_of(r, m);
    if (user)
        far_misuse("%s of %p while \"%s\" on queue %d of rank %d uses it: sync first", what, p,
                   user->name, user->queue->id, r->rank);
    if (!pinned && !r->failed && !far_guard_whole(m))
        far_misuse("something wrote outside the allocation of %zu bytes at %p", m->bytes, p);
    far_memory_end(m);
    far_unlock();
}

void far_free(void *self, void *p)
{
    far_release(self, p, false, "free");
}

void far_free_pinned(void *self, void *p)
{
    far_release(self, p, true, "free_pinned");
}

tt_status far_memory_left(void *self, uint64_t *free_bytes, uint64_t *total_bytes, tt_error *err)
{
    far_rank *r = self;
    TT_TRY(far_begin(r, "memory", err));
    *total_bytes = (uint64_t)r->config.memory_mib << 20;
    *free_bytes = *total_bytes - r->used;
    far_unlock();
    return TT_OK;
}

/* A page is closed if the copy names all bytes of the allocation that lie in it. */
void far_pinned_pending(const far_node *n, int by)
{
    for (int i = 0; i < n->n_ranges; i++) {
        const far_memory *m = n->ranges[i].bytes ? far_memory_at(n->ranges[i].at) : NULL;
        if (!m || !m->pinned)
            continue;
        const size_t page = far_page(), from = (size_t)((char *)n->ranges[i].at - m->at),
                     end = from + n->ranges[i].bytes;
        for (size_t p = from / page; p * page < end; p++) {
            const size_t last = (p + 1) * page < m->bytes ? (p + 1) * page : m->bytes;
            if (p * page < from || end < last)
                continue;
            m->n_pending[p] = (uint16_t)(m->n_pending[p] + by);
            if (m->n_pending[p] == (by > 0 ? 1 : 0))
                mprotect(m->visible + p * page, page, by > 0 ? PROT_NONE : PROT_READ | PROT_WRITE);
        }
    }
}
