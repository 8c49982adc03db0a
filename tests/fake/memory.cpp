/* SPDX-License-Identifier: Apache-2.0 */
/* Device and pinned memory, and copies. A block ends, rounded up to 256 bytes, where a page begins that nobody may touch;
 * what is left of its own pages holds a pattern that is checked. New memory holds 0xff: NaN in every float type. */
#include "driver.h"
#include <algorithm>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

enum {
    PAGE = 4096,
    ALIGN = 256,
    EDGE = 256,
    POISON = 0xff,
    CANARY = 0xa5,
    KEEP_FREED = 64,
    HUGE_PAGES_FROM = 4 << 20
};

/* By the address behind the last byte, so that a search finds the block. */
static std::map<uintptr_t, fake_memory> &blocks = *new std::map<uintptr_t, fake_memory>;
static std::deque<uintptr_t> freed;
/* Device memory is closed but while operations run, and then a block opens when one of them first touches it: of some hundred
 * blocks a few, each with thousands of pages. */
static std::vector<fake_memory *> &opened = *new std::vector<fake_memory *>;
static bool is_open_time;
static int open_to; /* the device whose operation runs; -1: any */
static pthread_t runs;

double fake_now()
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

fake_memory *fake_find(const void *p, size_t n, bool with_freed)
{
    const uintptr_t at = reinterpret_cast<uintptr_t>(p);
    const auto i = blocks.lower_bound(at); /* key: one past the last byte */
    if (i == blocks.end() || (i->second.is_freed && !with_freed))
        return nullptr;
    const uintptr_t base = reinterpret_cast<uintptr_t>(i->second.base);
    return at >= base && n <= i->first - at ? &i->second : nullptr;
}

fake_memory *fake_find_before(const void *p)
{
    auto i = blocks.upper_bound(reinterpret_cast<uintptr_t>(p));
    return i != blocks.begin() && reinterpret_cast<uintptr_t>(p) - (--i)->first < PAGE ? &i->second
                                                                                       : nullptr;
}

static size_t up(size_t n, size_t to)
{
    return (n + to - 1) / to * to;
}

/* NULL: out of memory. */
static fake_memory *take(size_t bytes, int device)
{
    const size_t inner = up(up(bytes, ALIGN) + EDGE, PAGE);
    void *at =
        mmap(NULL, inner + 2 * PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at == MAP_FAILED)
        return nullptr;
    fake_memory m = {};
    m.low = static_cast<char *>(at) + PAGE;
    m.high = m.low + inner;
    m.base = m.high - up(bytes, ALIGN);
    m.bytes = bytes;
    m.device = device;
    m.is_open = device < 0;
    mprotect(m.low, inner, PROT_READ | PROT_WRITE);
    if (bytes >= HUGE_PAGES_FROM)
        madvise(m.low, inner, MADV_HUGEPAGE); /* quicker to open and close */
    memset(m.low, CANARY, static_cast<size_t>(m.base - m.low));
    memset(m.base, POISON, bytes);
    memset(m.base + bytes, CANARY, static_cast<size_t>(m.high - m.base) - bytes);
    if (!m.is_open)
        mprotect(m.low, inner, PROT_NONE);
    return &(blocks[reinterpret_cast<uintptr_t>(m.base + bytes)] = m);
}

/* Its address space is kept for a while, so that who uses it after all is found. */
static void drop(fake_memory *m)
{
    const uintptr_t key = reinterpret_cast<uintptr_t>(m->base + m->bytes);
    m->is_freed = true;
    opened.erase(std::remove(opened.begin(), opened.end(), m), opened.end());
    mprotect(m->low, static_cast<size_t>(m->high - m->low), PROT_NONE);
    madvise(m->low, static_cast<size_t>(m->high - m->low), MADV_DONTNEED);
    freed.push_back(key);
    if (freed.size() <= KEEP_FREED)
        return;
    const fake_memory &old = blocks[freed.front()];
    munmap(old.low - PAGE, static_cast<size_t>(old.high - old.low) + 2 * PAGE);
    blocks.erase(freed.front());
    freed.pop_front();
}

bool fake_may_touch(int device, const fake_memory *m)
{
    return device < 0 || m->device < 0 || m->device == device ||
           fake_devices[static_cast<size_t>(device)]->peers.count(m->device);
}

static void protect(fake_memory *m, bool open)
{
    m->is_open = open;
    if (mprotect(m->low, static_cast<size_t>(m->high - m->low),
                 open ? PROT_READ | PROT_WRITE : PROT_NONE))
        fake_abort("mprotect fails");
}
static void close_some(const std::function<bool(const fake_memory *)> &closes)
{
    size_t kept = 0;
    for (fake_memory *m : opened)
        if (closes(m))
            protect(m, false);
        else
            opened[kept++] = m;
    opened.resize(kept);
}
/* FAKE_CUDA_PROTECT=0 */
static bool stays_open()
{
    static const char *text = getenv("FAKE_CUDA_PROTECT");
    return text && !strcmp(text, "0");
}
void fake_open(int device)
{
    is_open_time = true;
    open_to = device;
    runs = pthread_self();
    fake_watch_faults(); /* a framework of tests has its own for each test */
    if (!stays_open())
        close_some([](const fake_memory *m) { return !fake_may_touch(open_to, m); });
}
void fake_close()
{
    is_open_time = false;
    if (!stays_open())
        close_some([](const fake_memory *) { return true; });
}
bool fake_open_at(const void *p)
{
    if (!is_open_time || !pthread_equal(runs, pthread_self()))
        return false;
    auto i = blocks.upper_bound(reinterpret_cast<uintptr_t>(p));
    if (i != blocks.begin() && std::prev(i)->second.high > p) /* behind its last byte */
        --i;
    if (i == blocks.end())
        return false;
    fake_memory *m = &i->second;
    if (m->low > p || m->high <= p || m->is_open || m->is_freed || !fake_may_touch(open_to, m))
        return false;
    protect(m, true);
    opened.push_back(m);
    return true;
}

static void check_edges(const fake_memory *m, const char *who)
{
    for (const char *p = m->base - EDGE; p < m->base; p++)
        if (*p != static_cast<char>(CANARY))
            fake_abort("%s wrote %td bytes before a block of %zu bytes", who, m->base - p,
                       m->bytes);
    for (const char *p = m->base + m->bytes; p < m->high; p++)
        if (*p != static_cast<char>(CANARY))
            fake_abort("%s wrote %td bytes behind the end of a block of %zu bytes", who,
                       p - m->base - static_cast<ptrdiff_t>(m->bytes), m->bytes);
}
void fake_check_edges(const char *who)
{
    for (auto &b : blocks)
        if (b.second.is_open && !b.second.is_freed && !b.second.is_foreign)
            check_edges(&b.second, who);
}

extern "C" __attribute__((visibility("default"))) int fake_memory_device(const void *p, size_t n)
{
    std::lock_guard<std::recursive_mutex> locked(fake_lock);
    const fake_memory *m = fake_find(p, n);
    return m ? m->device : -1;
}
extern "C" __attribute__((visibility("default"))) bool fake_memory_pinned(const void *p, size_t n)
{
    std::lock_guard<std::recursive_mutex> locked(fake_lock);
    const fake_memory *m = fake_find(p, n);
    return m && m->device < 0;
}

/* ---- the API ---- */
FAKE_API cuMemAlloc_v2(void **p, size_t bytes)
{
    FAKE_ENTER;
    fake_device *d = fake_current();
    if (!d)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!p || !bytes)
        return fake_refuse(CUDA_ERROR_INVALID_VALUE, "cuMemAlloc of %zu bytes", bytes);
    if (bytes > d->total - d->used)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const fake_memory *m = take(bytes, d->ordinal);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    d->used += bytes;
    *p = m->base;
    return CUDA_SUCCESS;
}

/* As the driver, it first lets pending work end; work that waits for others stays. */
FAKE_API cuMemFree_v2(void *p)
{
    FAKE_ENTER;
    if (!p)
        return CUDA_SUCCESS;
    fake_memory *m = fake_find(p, 0);
    if (!m || m->base != p || m->device < 0)
        return fake_refuse(CUDA_ERROR_INVALID_VALUE,
                           "cuMemFree of %p, which cuMemAlloc did not give", p);
    fake_run_all();
    fake_open(-1);
    check_edges(m, "something");
    fake_close();
    fake_devices[static_cast<size_t>(m->device)]->used -= m->bytes;
    drop(m);
    return CUDA_SUCCESS;
}

FAKE_API cuMemHostAlloc(void **p, size_t bytes, unsigned)
{
    FAKE_ENTER;
    if (!fake_current())
        return CUDA_ERROR_INVALID_CONTEXT;
    if (!p || !bytes)
        return fake_refuse(CUDA_ERROR_INVALID_VALUE, "cuMemHostAlloc of %zu bytes", bytes);
    const fake_memory *m = take(bytes, -1);
    if (!m)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *p = m->base;
    return CUDA_SUCCESS;
}
FAKE_API cuMemAllocHost_v2(void **p, size_t bytes)
{
    return cuMemHostAlloc(p, bytes, 0);
}
FAKE_API cuMemFreeHost(void *p)
{
    FAKE_ENTER;
    fake_memory *m = fake_find(p, 0);
    if (!m || m->base != p || m->device >= 0 || m->is_foreign)
        return fake_refuse(CUDA_ERROR_INVALID_VALUE,
                           "cuMemFreeHost of %p, which cuMemHostAlloc did not give", p);
    fake_run_all();
    check_edges(m, "something");
    drop(m);
    return CUDA_SUCCESS;
}
FAKE_API cuMemHostRegister_v2(void *p, size_t bytes, unsigned)
{
    FAKE_ENTER;
    if (!p || !bytes || fake_find(p, 0))
        return fake_refuse(CUDA_ERROR_INVALID_VALUE, "cuMemHostRegister of %zu bytes at %p", bytes,
                           p);
    fake_memory m = {};
    m.base = static_cast<char *>(p);
    m.bytes = bytes;
    m.device = -1;
    m.is_open = m.is_foreign = true;
    blocks[reinterpret_cast<uintptr_t>(p) + bytes] = m;
    return CUDA_SUCCESS;
}
FAKE_API cuMemHostUnregister(void *p)
{
    FAKE_ENTER;
    const fake_memory *m = fake_find(p, 0);
    if (!m || m->base != p || !m->is_foreign)
        return fake_refuse(CUDA_ERROR_INVALID_VALUE, "cuMemHostUnregister of %p", p);
    fake_run_all();
    blocks.erase(reinterpret_cast<uintptr_t>(p) + m->bytes);
    return CUDA_SUCCESS;
}
FAKE_API cuMemHostGetDevicePointer_v2(void **out, void *p, unsigned)
{
    FAKE_ENTER;
    *out = p;
    return fake_find(p, 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE_API cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    FAKE_ENTER;
    const fake_device *d = fake_current();
    if (!d)
        return CUDA_ERROR_INVALID_CONTEXT;
    *free_bytes = d->total - d->used;
    *total = d->total;
    return CUDA_SUCCESS;
}

FAKE_API cuPointerGetAttribute(void *out, int attribute, const void *p)
{
    FAKE_ENTER;
    fake_memory *m = fake_find(p, 0);
    if (!m)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == 1 && m->device >= 0)
        *static_cast<void **>(out) = fake_devices[static_cast<size_t>(m->device)].get();
    else if (attribute == 2)
        *static_cast<unsigned *>(out) = m->device < 0 ? 1 : 2;
    else if (attribute == 3 || (attribute == 4 && m->device < 0))
        *static_cast<const void **>(out) = p;
    else if (attribute == 9)
        *static_cast<int *>(out) = m->device < 0 ? 0 : m->device;
    else if (attribute == 11)
        *static_cast<void **>(out) = m->base;
    else if (attribute == 12)
        *static_cast<size_t *>(out) = m->bytes;
    else
        return CUDA_ERROR_INVALID_VALUE;
    return CUDA_SUCCESS;
}
