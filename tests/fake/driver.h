/* SPDX-License-Identifier: Apache-2.0 */
/* The fake CUDA driver, inside. Device memory is memory that the host may touch in copies and kernels only. A stream is a
 * list of operations that runs as late as the program's own waits allow: inside the calls of a thread that waits. Which
 * stream runs next is drawn from FAKE_CUDA_SEED, so an event that should be waited for and is not is found by some seeds.
 *
 *   FAKE_CUDA_SEED=1          odd: any stream may run; even: only what the wait needs, where that is known
 *   FAKE_CUDA_DEVICES=1       devices
 *   FAKE_CUDA_CHIP=h200       device.cpp has the list
 *   FAKE_CUDA_MEMORY_MIB=     of each device; default: the chip's
 *   FAKE_CUDA_PROTECT=1       0: the host may touch device memory once it was used: quicker with much memory
 *   FAKE_CUDA_PATIENCE=       seconds without anything that could run until a waiting thread says deadlock, and what
 *                             each stream waits for; default: none, since other threads may just be slow
 *   FAKE_CUDA_FAIL=           fail.cpp: failures to inject
 *   FAKE_CUDA_KERNELS=        folder of the images that stand for machine code of a GPU */
#pragma once
#include "emulate.h"
#include "queue.h"
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <stdint.h>
#include <string>
#include <vector>

#define FAKE_API extern "C" __attribute__((visibility("default"))) int
/* First line of every function of the API: injected and sticky errors, then the lock. */
#define FAKE_ENTER                                                                                 \
    const int entered = fake_enter(__func__);                                                      \
    if (entered)                                                                                   \
        return entered;                                                                            \
    std::lock_guard<std::recursive_mutex> locked(fake_lock)

enum { /* CUresult */
       CUDA_SUCCESS = 0,
       CUDA_ERROR_INVALID_VALUE = 1,
       CUDA_ERROR_OUT_OF_MEMORY = 2,
       CUDA_ERROR_NOT_INITIALIZED = 3,
       CUDA_ERROR_INVALID_DEVICE = 101,
       CUDA_ERROR_INVALID_IMAGE = 200,
       CUDA_ERROR_INVALID_CONTEXT = 201,
       CUDA_ERROR_INVALID_HANDLE = 400,
       CUDA_ERROR_NOT_FOUND = 500,
       CUDA_ERROR_NOT_READY = 600,
       CUDA_ERROR_ILLEGAL_ADDRESS = 700,
       CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
       CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED = 704,
       CUDA_ERROR_NOT_SUPPORTED = 801,
       CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
       CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
       CUDA_ERROR_STREAM_CAPTURE_UNMATCHED = 903,
       CUDA_ERROR_STREAM_CAPTURE_UNJOINED = 904,
       CUDA_ERROR_STREAM_CAPTURE_ISOLATION = 905,
       CUDA_ERROR_CAPTURED_EVENT = 907
};

struct fake_chip {
    const char *id, *name;
    int sm; /* compute capability × 10 */
    int n_sms, clock_mhz, memory_mhz, bus_bits;
    size_t memory_mib, l2_bytes, shared_optin, shared_per_sm;
};
struct fake_stream;
/* A CUcontext is the address of one: only primary contexts. */
struct fake_device {
    int ordinal;
    const fake_chip *chip;
    size_t total, used;
    int failed;          /* sticky CUresult */
    int retained;        /* of the primary context */
    std::set<int> peers; /* whose memory its kernels may touch */
    fake_stream *legacy; /* stream 0 */
};

/* One record of an event: what a wait refers to. */
struct fake_ticket {
    bool done = false;
    double seconds = 0;
    fake_stream *stream = nullptr;
    uint64_t capture = 0; /* not 0: part of a graph, never done itself */
};
typedef std::shared_ptr<fake_ticket> fake_ticket_ref;
enum fake_kind { FAKE_RUN, FAKE_RECORD, FAKE_WAIT, FAKE_ITEM, FAKE_HOST };
struct fake_op {
    fake_kind kind;
    std::string name;
    std::function<void()> run;       /* RUN: device memory is open; HOST: the lock is not held */
    fake_ticket_ref ticket;          /* RECORD, WAIT */
    std::shared_ptr<fake_item> item; /* ITEM */
    bool arrived;                    /* ITEM: at_head was called */
};
struct fake_branch { /* what one stream had while it was captured */
    fake_stream *stream;
    int device;
    std::vector<fake_op> ops;
};
struct fake_capture { /* and a CUgraph */
    uint64_t id = 0;
    fake_stream *origin = nullptr;
    std::vector<fake_branch> branches; /* [0] the origin's */
};
struct fake_stream {
    int id, device, priority;
    unsigned turn;     /* who runs first */
    bool in_use, busy; /* busy: a host function runs */
    std::deque<fake_op> ops;
    std::shared_ptr<fake_capture> capture; /* or NULL */
    size_t branch;
};
struct fake_event {
    fake_ticket_ref last;
    unsigned flags;
    int device;
};
/* A CUlibrary, and a CUkernel or CUfunction. */
struct fake_library;
struct fake_kernel {
    const emu_kernel *kernel;
    emu_block **now;
    fake_library *library;
    std::map<int, int> shared; /* most dynamic shared memory, by device, where it was set */
};

extern std::recursive_mutex fake_lock;
/* These and others are never destroyed: threads may still wait when the process ends. */
extern std::vector<std::unique_ptr<fake_device>> &fake_devices;

/* ---- device.cpp ---- */
fake_device *fake_current(); /* of this thread, or NULL */
/* ---- fail.cpp ---- */
int fake_enter(const char *function);
/* Prints why and returns result: the program sees only the number. */
int fake_refuse(int result, const char *format, ...) __attribute__((format(printf, 2, 3)));
[[noreturn]] void fake_abort(const char *format, ...) __attribute__((format(printf, 1, 2)));
void fake_watch_faults(); /* the process's handlers of SIGSEGV, SIGILL, SIGFPE, where they are not ours */
void fake_watch_thread(); /* a stack for handlers, for this thread */
/* ---- memory.cpp ---- */
struct fake_memory {
    char *base;
    size_t bytes;
    char *low, *high;                   /* the pages that hold it */
    int device;                         /* -1: pinned host memory */
    bool is_open, is_freed, is_foreign; /* foreign: the program's own, registered */
};
/* The block that [p, p + n] lies in, or NULL. Freed ones are found where `freed`. */
fake_memory *fake_find(const void *p, size_t n, bool freed = false);
/* The block that ends at most a page before p, or NULL. */
fake_memory *fake_find_before(const void *p);
void fake_open(int device); /* -1: of all devices */
void fake_close();
/* Opens the block at p, if this thread's operation may touch it. [in handlers of signals] */
bool fake_open_at(const void *p);
bool fake_may_touch(int device, const fake_memory *m);
void fake_check_edges(const char *who);
double fake_now();
/* ---- stream.cpp ---- */
extern std::vector<std::unique_ptr<fake_stream>> &fake_streams;
unsigned fake_draw(unsigned n);
uint64_t fake_seed();
fake_stream *
fake_stream_of(void *handle); /* NULL, 1: the default stream; NULL result: no such stream */
fake_stream *fake_stream_new(int device, int priority);
void fake_add(fake_stream *s, fake_op op);
void fake_add_run(fake_stream *s, std::string name, std::function<void()> run);
fake_ticket_ref fake_record(fake_stream *s);
/* ---- run.cpp ---- */
void fake_note_change(); /* a waiting thread looks again */
bool fake_in_operation();
int fake_await(const fake_ticket_ref &t, std::unique_lock<std::recursive_mutex> &lock, int device);
void fake_run_all();  /* what can run, without waiting */
void fake_run_some(); /* perhaps one operation: a program that only asks gets on, too */
