/* SPDX-License-Identifier: Apache-2.0 */
/* Failures: those that FAKE_CUDA_FAIL injects, refused calls, and faults of kernels and of the host.
 *   FAKE_CUDA_FAIL="cuMemAlloc_v2:3=2,kernel.rms_norm_f32:1=700"
 * the third call of cuMemAlloc_v2 returns 2; the first launch of the kernel fails when it runs: its device answers 700 from
 * then on. "*" for the count: every one. */
#include "driver.h"
#include "fiber.h"
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

struct injection {
    std::string what;
    long call; /* 0: every one */
    int result;
    long n_calls;
};

static std::vector<injection> parse_injections()
{
    std::vector<injection> list;
    const char *text = getenv("FAKE_CUDA_FAIL");
    std::string rest = text ? text : "";
    while (!rest.empty()) {
        const size_t end = rest.find(',');
        const std::string one = rest.substr(0, end);
        const size_t colon = one.rfind(':'), equals = one.rfind('=');
        if (colon == std::string::npos || equals == std::string::npos || equals < colon)
            fake_abort("FAKE_CUDA_FAIL: \"%s\" is not NAME:CALL=RESULT", one.c_str());
        list.push_back({one.substr(0, colon), atol(one.c_str() + colon + 1),
                        atoi(one.c_str() + equals + 1), 0});
        rest = end == std::string::npos ? "" : rest.substr(end + 1);
    }
    return list;
}

static std::vector<injection> &all_injections()
{
    static std::vector<injection> list = parse_injections();
    return list;
}

/* The call-th call of the function from now on returns the result. */
extern "C" __attribute__((visibility("default"))) int fake_inject(const char *function, int call,
                                                                   int result)
{
    std::lock_guard<std::recursive_mutex> locked(fake_lock);
    all_injections().push_back({function, call, result, 0});
    return 0;
}

extern "C" __attribute__((visibility("default"))) int fake_injected(const char *function)
{
    std::lock_guard<std::recursive_mutex> locked(fake_lock);
    int result = 0;
    for (injection &i : all_injections())
        if (i.what == function && (++i.n_calls == i.call || !i.call))
            result = i.result;
    return result;
}

int fake_enter(const char *function)
{
    const int result = fake_injected(function);
    if (result)
        return result;
    std::lock_guard<std::recursive_mutex> locked(fake_lock);
    if (fake_devices.empty())
        return fake_refuse(CUDA_ERROR_NOT_INITIALIZED, "%s: before cuInit", function);
    const fake_device *d = fake_current();
    return d ? d->failed : CUDA_SUCCESS;
}

int fake_refuse(int result, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("fake cuda: ", stderr);
    vfprintf(stderr, format, list);
    fputs("\n", stderr);
    va_end(list);
    return result;
}

void fake_abort(const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fputs("fake cuda: ", stderr);
    vfprintf(stderr, format, list);
    fputs("\n", stderr);
    va_end(list);
    abort();
}

/* ---- faults ---- */
static const int signals[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
static struct sigaction was[NSIG];

static void describe_address(const void *p)
{
    const fake_memory *m = fake_find(p, 0, true);
    const fake_memory *before = fake_find_before(p);
    if (m && m->is_freed)
        fprintf(stderr, ": %p is in device memory that was freed\n", p);
    else if (m && m->device >= 0 && p != m->base + m->bytes)
        fprintf(stderr, ": %p is in memory of device %d, offset %td of %zu bytes\n", p, m->device,
                static_cast<const char *>(p) - m->base, m->bytes);
    else if (before)
        fprintf(stderr, ": %p is %td bytes behind the end of a block of %zu bytes\n", p,
                static_cast<const char *>(p) - before->base - static_cast<ptrdiff_t>(before->bytes),
                before->bytes);
    else if (emu_fiber_overflow(p))
        fputs(": the thread's stack is too small\n", stderr);
    else if (emu_outside_shared(p))
        fputs(": outside of the launch's shared memory\n", stderr);
    else
        fprintf(stderr, ": %p is no device memory\n", p);
}

/* Opens device memory that is touched for the first time; else it says what is known and leaves the rest to the handler that was there before: the instruction faults again. */
static void on_fault(int signal, siginfo_t *info, void *)
{
    char where[256];
    if (signal == SIGSEGV && fake_open_at(info->si_addr))
        return;
    const char *running = emu_running(where, sizeof where);
    sigaction(signal, &was[signal], NULL);
    if (running && signal == SIGILL)
        fprintf(stderr,
                "emulator: %s: an address that is not aligned to its type, or an index outside of "
                "an array\n",
                running);
    else if (running && signal == SIGFPE)
        fprintf(stderr, "emulator: %s: an integer division by 0\n", running);
    else if (running) {
        fprintf(stderr, "emulator: %s touches what it may not", running);
        describe_address(info->si_addr);
    } else if (fake_find(info->si_addr, 0, true)) {
        fputs("fake cuda: the host touches device memory", stderr);
        describe_address(info->si_addr);
    }
}

void fake_watch_faults()
{
    for (int s : signals) {
        struct sigaction a = {};
        sigaction(s, NULL, &a);
        if (a.sa_sigaction == on_fault)
            continue;
        a = {};
        a.sa_sigaction = on_fault;
        a.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(s, &a, &was[s]);
    }
}

struct signal_stack {
    char *memory = nullptr;
    ~signal_stack()
    {
        stack_t none = {};
        none.ss_flags = SS_DISABLE;
        if (memory)
            sigaltstack(&none, NULL);
        free(memory);
    }
};
void fake_watch_thread()
{
    static thread_local signal_stack own;
    stack_t now;
    if (own.memory || sigaltstack(NULL, &now) || !(now.ss_flags & SS_DISABLE))
        return;
    const size_t size = 64 << 10;
    own.memory = static_cast<char *>(malloc(size));
    stack_t s = {};
    s.ss_sp = own.memory;
    s.ss_size = size;
    sigaltstack(&s, NULL);
}
