/* SPDX-License-Identifier: Apache-2.0 */
/* Runs kernels on the host. A thread of a block is a fiber, but a thread that never waits needs none of its own: threads
 * run one after another on one stack until one of them waits. One warp runs as far as it can before the next begins, in an
 * order drawn from the seed: who relies on luck between two barriers is found. */
#define EMU_CORE
#include "emulator.h"
#include "emulate.h"
#include "fiber.h"
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <vector>

enum { MAX_THREADS = 1024, MAX_SHARED = 256 << 10, PAGE = 4096, POISON = 0xff, CANARY = 0xa5 };

enum emu_state { AT_START, RUNNING, AT_BARRIER, AT_WARP, DONE };
struct emu_copy {
    void *to;
    const void *from;
};
struct emu_thread {
    emu_fiber *fiber; /* NULL: not started, or done */
    emu_state state;
    int line, kind;
    emu_lane *lane;
    std::vector<emu_copy> open; /* copies since the last commit */
    std::vector<std::vector<emu_copy>> groups;
};
struct emu_warp {
    int size, n_waiting, n_done;
    uint32_t can_run; /* a bit per lane */
};

/* One launch at a time: the driver's lock is held. */
static emu_block block;
static emu_thread threads[MAX_THREADS];
static emu_warp warps[MAX_THREADS / 32];
static int n_threads, n_warps, current, n_at_barrier, n_live;
static bool lanes_backwards;
static void *scheduler_sp;
static const emu_kernel *kernel;
static void **arguments;
static uint64_t random_state;
static unsigned char *shared_end; /* a page that nobody may touch begins here */
static size_t shared_bytes;

const char *emu_running(char *text, size_t size)
{
    if (!kernel)
        return NULL;
    snprintf(text, size, "kernel %s, block (%u, %u, %u), thread (%u, %u, %u)", kernel->name,
             block.block.x, block.block.y, block.block.z, block.thread.x, block.thread.y,
             block.thread.z);
    return text;
}

bool emu_outside_shared(const void *p)
{
    const unsigned char *at = static_cast<const unsigned char *>(p);
    return shared_end && ((at >= shared_end && at < shared_end + PAGE) ||
                          (at >= shared_end - MAX_SHARED - PAGE && at < shared_end - MAX_SHARED));
}

[[noreturn]] static void fault(const char *why, int line)
{
    char where[256];
    fprintf(stderr, "emulator: %s", emu_running(where, sizeof where));
    if (line)
        fprintf(stderr, ", line %d", line);
    fprintf(stderr, ": %s\n", why);
    abort();
}

static unsigned draw(unsigned n)
{
    random_state = random_state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(random_state >> 33) % n;
}

/* ---- fibers ---- */
static void set_current(int t)
{
    const unsigned x = block.threads.x, y = block.threads.y, i = (unsigned)t;
    current = t;
    block.thread = {i % x, i / x % y, i / x / y};
}

/* A thread of warp w that can run, -1: none. */
static int pick(int w)
{
    const uint32_t can = warps[w].can_run;
    if (!can)
        return -1;
    return 32 * w + (lanes_backwards ? 31 - __builtin_clz(can) : __builtin_ctz(can));
}

static void resume(int t, void **save)
{
    set_current(t);
    if (!threads[t].fiber)
        threads[t].fiber = emu_fiber_take();
    emu_switch(save, threads[t].fiber->sp);
}

/* Ends only by emu_switch: a fiber that has run its thread goes on with the next one that has not begun. */
void emu_fiber_main(void)
{
    for (;;) {
        kernel->call(kernel->function, arguments);
        const int t = current, w = t / 32;
        emu_fiber *self = threads[t].fiber;
        threads[t].fiber = NULL;
        threads[t].state = DONE;
        threads[t].open.clear();
        threads[t].groups.clear();
        warps[w].can_run &= ~(1u << t % 32);
        warps[w].n_done++;
        n_live--;
        const int next = pick(w);
        if (next >= 0 && !threads[next].fiber) {
            set_current(next);
            threads[next].fiber = self;
            continue;
        }
        emu_fiber_give(self);
        if (next >= 0)
            resume(next, &self->sp);
        else
            emu_switch(&self->sp, scheduler_sp);
    }
}

/* The current thread cannot go on: another lane of its warp, or the scheduler. */
static void leave(emu_state state)
{
    emu_thread *t = &threads[current];
    const int w = current / 32;
    t->state = state;
    warps[w].can_run &= ~(1u << current % 32);
    const int next = pick(w);
    if (next >= 0)
        resume(next, &t->fiber->sp);
    else
        emu_switch(&t->fiber->sp, scheduler_sp);
}

/* ---- what kernels call ---- */
static void block_sync(int line)
{
    threads[current].line = line;
    n_at_barrier++;
    leave(AT_BARRIER);
}

static void check_shared(const void *p, size_t bytes, const char *what, int line)
{
    char text[160];
    const unsigned char *at = static_cast<const unsigned char *>(p);
    if ((uintptr_t)p % 16) {
        snprintf(text, sizeof text, "%s: the address %p in shared memory is not aligned to 16",
                 what, p);
        fault(text, line);
    }
    if (at < block.shared || at + bytes > block.shared + shared_bytes) {
        snprintf(text, sizeof text,
                 "%s: offset %td is outside of the launch's %zu bytes of shared memory", what,
                 at - block.shared, shared_bytes);
        fault(text, line);
    }
}

static void complete(int w, emu_kind kind)
{
    emu_lane *lane[32];
    for (int i = 0; i < 32; i++)
        lane[i] = threads[32 * w + i].lane;
    if (kind == EMU_SHUFFLE)
        emu_do_shuffle(lane);
    else if (kind == EMU_BALLOT)
        emu_do_ballot(lane);
    else if (kind == EMU_LDMATRIX)
        emu_do_ldmatrix(lane);
    else if (kind == EMU_MMA)
        emu_do_mma(lane);
}

static void warp_function(emu_kind kind, int line, emu_lane *lane)
{
    const int w = current / 32;
    emu_thread *t = &threads[current];
    if (warps[w].size < 32)
        fault("a warp function needs 32 lanes; this warp has fewer threads", line);
    if (warps[w].n_done)
        fault("a warp function after a lane has left the kernel", line);
    if (kind == EMU_LDMATRIX)
        check_shared(lane->row, 16, "tt_ldmatrix4", line);
    t->line = line;
    t->kind = kind;
    t->lane = lane;
    if (++warps[w].n_waiting < 32)
        return leave(AT_WARP);
    for (int i = 32 * w; i < 32 * w + 32; i++)
        if (threads[i].kind != kind || threads[i].line != line)
            fault("lanes of one warp wait in different warp functions", line);
    complete(w, kind);
    warps[w].n_waiting = 0;
    warps[w].can_run = 0xffffffffu;
}

static void copy16(void *shared, const void *global, int line)
{
    check_shared(shared, 16, "tt_copy16", line);
    if ((uintptr_t)global % 16)
        fault("tt_copy16: the address in global memory is not aligned to 16", line);
    memset(shared, POISON, 16);
    threads[current].open.push_back({shared, global});
}
static void copy_commit()
{
    threads[current].groups.push_back(std::move(threads[current].open));
    threads[current].open.clear();
}
static void copy_wait(int n)
{
    std::vector<std::vector<emu_copy>> &groups = threads[current].groups;
    while ((int)groups.size() > n) {
        for (const emu_copy &c : groups[0])
            memcpy(c.to, c.from, 16);
        groups.erase(groups.begin());
    }
}

/* ---- one block ---- */
static void start_block(bool seeded)
{
    n_live = n_threads;
    n_at_barrier = 0;
    lanes_backwards = seeded && draw(2);
    for (int w = 0; w < n_warps; w++) {
        const int size = n_threads - 32 * w < 32 ? n_threads - 32 * w : 32;
        warps[w] = {size, 0, 0, size == 32 ? 0xffffffffu : (1u << size) - 1};
    }
    for (int t = 0; t < n_threads; t++)
        threads[t].state = AT_START;
    memset(block.shared, POISON, shared_bytes);
    memset(block.shared + shared_bytes, CANARY, (size_t)(shared_end - block.shared) - shared_bytes);
}

static void release_barrier()
{
    if (n_live < n_threads)
        fault("tt_sync after a thread of the block has left the kernel", 0);
    for (int t = 1; t < n_threads; t++)
        if (threads[t].line != threads[0].line) {
            set_current(t);
            char text[96];
            snprintf(text, sizeof text,
                     "threads of one block wait at different tt_sync, one at line %d",
                     threads[0].line);
            fault(text, threads[t].line);
        }
    n_at_barrier = 0;
    for (int w = 0; w < n_warps; w++)
        warps[w].can_run = warps[w].size == 32 ? 0xffffffffu : (1u << warps[w].size) - 1;
}

[[noreturn]] static void deadlock()
{
    for (int t = 0; t < n_threads; t++)
        if (threads[t].state == AT_WARP || threads[t].state == AT_BARRIER) {
            char text[160];
            set_current(t);
            snprintf(text, sizeof text,
                     "deadlock: waits in a %s that not all threads reach (%d of %d are done)",
                     threads[t].state == AT_WARP ? "warp function" : "tt_sync", n_threads - n_live,
                     n_threads);
            fault(text, threads[t].line);
        }
    fault("deadlock", 0);
}

static void run_block(bool seeded)
{
    start_block(seeded);
    while (n_live) {
        bool moved = false;
        const int first = seeded ? (int)draw((unsigned)n_warps) : 0,
                  step = seeded && draw(2) ? n_warps - 1 : 1;
        for (int i = 0, w = first; i < n_warps; i++, w = (w + step) % n_warps) {
            const int t = pick(w);
            if (t < 0)
                continue;
            moved = true;
            resume(t, &scheduler_sp);
        }
        if (n_live && n_at_barrier == n_live)
            release_barrier();
        else if (n_live && !moved)
            deadlock();
    }
    for (const unsigned char *p = block.shared + shared_bytes; p < shared_end; p++)
        if (*p != CANARY)
            fault("wrote behind the end of the launch's shared memory", 0);
}

/* The launch's bytes end, rounded up to 16, at a page that nobody may touch. */
static void set_shared(size_t bytes)
{
    if (!shared_end) {
        char *at = static_cast<char *>(mmap(NULL, MAX_SHARED + 2 * PAGE, PROT_NONE,
                                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
        mprotect(at + PAGE, MAX_SHARED, PROT_READ | PROT_WRITE);
        shared_end = reinterpret_cast<unsigned char *>(at) + PAGE + MAX_SHARED;
    }
    shared_bytes = bytes;
    block.shared = shared_end - (bytes + 15) / 16 * 16;
}

void emu_launch(const emu_kernel *k, emu_block **now, void **args, emu_dim3 grid, emu_dim3 size,
                size_t shared, uint64_t seed)
{
    set_shared(shared);
    block.sync = block_sync;
    block.warp = warp_function;
    block.copy16 = copy16;
    block.copy_commit = copy_commit;
    block.copy_wait = copy_wait;
    block.fault = fault;
    block.grid = grid;
    block.threads = size;
    kernel = k;
    arguments = args;
    *now = &block;
    n_threads = (int)(size.x * size.y * size.z);
    n_warps = (n_threads + 31) / 32;
    random_state = seed;
    /* blocks backwards, too: no order of blocks is promised */
    const bool backwards = seed && draw(2);
    const uint64_t n = (uint64_t)grid.x * grid.y * grid.z;
    for (uint64_t i = 0; i < n; i++) {
        const uint64_t b = backwards ? n - 1 - i : i;
        block.block = {(unsigned)(b % grid.x), (unsigned)(b / grid.x % grid.y),
                       (unsigned)(b / grid.x / grid.y)};
        run_block(seed != 0);
    }
    kernel = NULL;
}
