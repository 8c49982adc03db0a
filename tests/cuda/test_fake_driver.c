/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver finds what a program does wrong with streams, events and memory, and lets right programs be right for
 * every order of streams. */
#define _GNU_SOURCE
#include "fake_rig.h"

enum { N = 1000, BYTES = N * 4 };
enum { RIGHT, NO_WAIT, NO_SYNC, SOURCE_CHANGED, HOST_READS, HOST_READS_FREED };

/* in → device on one stream; doubled and shifted on another; back to the host on a third. */
static void run_three_streams(int mistake)
{
    rig r = rig_open();
    rig_load(&r);
    void *up, *down, *arrived, *computed, *done;
    OK(fake.cuStreamCreateWithPriority(&up, 1, 0));
    OK(fake.cuStreamCreateWithPriority(&down, 1, -1));
    OK(fake.cuEventCreate(&arrived, 2));
    OK(fake.cuEventCreate(&computed, 0));
    OK(fake.cuEventCreate(&done, 0));
    float *in = rig_pinned(BYTES), *out = rig_pinned(BYTES);
    void *from = rig_device(NULL, BYTES), *to = rig_device(NULL, BYTES);
    struct {
        double scale;
        int64_t n;
        float shift;
        uint8_t twice;
    } f = {0.5, N, 3.0f, 1};
    uint8_t on = 1;
    void *parameters[] = {&to, &from, &f, &on};
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < N; i++)
            in[i] = (float)(i + step);
        OK(fake.cuMemcpyAsync(from, in, BYTES, up));
        OK(fake.cuEventRecord(arrived, up));
        if (mistake != NO_WAIT)
            OK(fake.cuStreamWaitEvent(r.stream, arrived, 0));
        OK(rig_launch(&r, "selftest_affine_map", 3, 1, 64, 0, parameters));
        OK(fake.cuEventRecord(computed, r.stream));
        OK(fake.cuStreamWaitEvent(down, computed, 0));
        OK(fake.cuMemcpyAsync(out, to, BYTES, down));
        OK(fake.cuEventRecord(done, down));
        if (mistake == SOURCE_CHANGED)
            in[0] = 99;
        if (mistake == HOST_READS && step == 1) /* memory was open before */
            CHECK(*(volatile float *)to < 0);
        if (mistake != NO_SYNC)
            OK(fake.cuEventSynchronize(done));
        for (int i = 0; i < N; i++)
            CHECK(out[i] == (float)(i + step) + 3.0f);
    }
    float ms = -1;
    OK(fake.cuEventElapsedTime(&ms, computed, done));
    CHECK(ms >= 0);
    OK(fake.cuEventQuery(done));
    OK(fake.cuMemFree_v2(to));
    if (mistake == HOST_READS_FREED)
        CHECK(*(volatile float *)to < 0);
    OK(fake.cuMemFreeHost(out));
    OK(fake.cuStreamDestroy_v2(down));
    CHECK(fake.cuStreamSynchronize(down) == 400);
}

static void test_fake_driver_runs_right_programs_right(void **state)
{
    (void)state;
    rig_expect_right(run_three_streams, RIGHT);
}
static void test_fake_driver_finds_waits_left_out(void **state)
{
    (void)state;
    rig_expect_found(run_three_streams, NO_WAIT, 4);
    rig_expect_found(run_three_streams, NO_SYNC, 8);
    rig_expect_found(run_three_streams, SOURCE_CHANGED, 8);
}
static void test_fake_driver_finds_a_touch_of_the_host(void **state)
{
    (void)state;
    rig_expect_fault(run_three_streams, HOST_READS, NULL, SIGSEGV,
                     "the host touches device memory");
    rig_expect_fault(run_three_streams, HOST_READS_FREED, NULL, SIGSEGV,
                     "device memory that was freed");
}

/* ---- memory ---- */
static void run_memory(int arg)
{
    (void)arg;
    rig r = rig_open();
    size_t free_bytes, total, before;
    void *p, *big;
    char plain[64] = {0};
    OK(fake.cuMemGetInfo_v2(&before, &total));
    CHECK(total == (size_t)64 << 20 && before == total);
    OK(fake.cuMemAlloc_v2(&p, 1000));
    CHECK((uintptr_t)p % 256 == 0);
    OK(fake.cuMemGetInfo_v2(&free_bytes, &total));
    CHECK(before - free_bytes == 1000);
    CHECK(fake.cuMemAlloc_v2(&big, 64 << 20) == 2);
    CHECK(fake.cuMemcpyAsync(p, plain, sizeof plain, r.stream) == 1);
    char *pinned = rig_pinned(64);
    CHECK(fake.cuMemcpyAsync(p, pinned, 65, r.stream) == 1);
    CHECK(fake.cuMemcpyAsync((char *)p + 990, pinned, 11, r.stream) == 1);
    OK(fake.cuMemcpyAsync((char *)p + 990, pinned, 10, r.stream));
    CHECK(fake.cuMemsetD32Async((char *)p + 2, 0, 1, r.stream) == 1);
    OK(fake.cuMemsetD32Async(p, 0x01020304, 250, r.stream));
    OK(fake.cuStreamSynchronize(r.stream));
    OK(fake.cuMemcpyDtoH_v2(plain, (char *)p + 936, 64));
    CHECK(plain[0] == 4 && plain[63] == 1);
    CHECK(fake.cuMemFree_v2((char *)p + 256) == 1);
    OK(fake.cuMemFree_v2(p));
    CHECK(fake.cuMemFree_v2(p) == 1);
}
static void test_fake_driver_checks_memory(void **state)
{
    (void)state;
    static const char *const settings[] = {"FAKE_CUDA_MEMORY_MIB=64", NULL};
    if (rig_run(run_memory, 0, settings))
        fail_msg("%s", rig_text);
}

/* ---- failures ---- */
static void run_failures(int arg)
{
    (void)arg;
    rig r = rig_open();
    rig_load(&r);
    void *p, *event;
    const char *name;
    OK(fake.cuMemAlloc_v2(&p, 4096));
    CHECK(fake.cuMemAlloc_v2(&event, 4096) == 2);
    OK(fake.cuMemAlloc_v2(&event, 4096));
    struct {
        double scale;
        int64_t n;
        float shift;
        uint8_t twice;
    } f = {1, 4, 0, 0};
    uint8_t on = 1;
    void *parameters[] = {&p, &p, &f, &on};
    OK(rig_launch(&r, "selftest_affine_map", 1, 1, 64, 0, parameters));
    OK(fake.cuStreamSynchronize(r.stream));
    OK(fake.cuEventCreate(&event, 0));
    OK(rig_launch(&r, "selftest_affine_map", 1, 1, 64, 0, parameters));
    OK(fake.cuEventRecord(event, r.stream)); /* nothing has run: nothing is known */
    CHECK(fake.cuEventSynchronize(event) == 700);
    CHECK(fake.cuMemAlloc_v2(&p, 4096) == 700 && fake.cuStreamSynchronize(r.stream) == 700);
    OK(fake.cuGetErrorName(700, &name));
    CHECK(!strcmp(name, "CUDA_ERROR_ILLEGAL_ADDRESS"));
}
static void test_fake_driver_injects_failures(void **state)
{
    (void)state;
    static const char *const settings[] = {
        "FAKE_CUDA_FAIL=cuMemAlloc_v2:2=2,kernel.selftest_affine_map:2=700", NULL};
    if (rig_run(run_failures, 0, settings))
        fail_msg("%s", rig_text);
}

/* ---- graphs ---- */
/* Two streams are captured: y = x + 3 on one, z = 2y on the other, then z is copied back on the first. */
static void run_graph(int replays)
{
    rig r = rig_open();
    rig_load(&r);
    void *other, *fork_event, *join, *graph, *executable;
    OK(fake.cuStreamCreateWithPriority(&other, 1, 0));
    OK(fake.cuEventCreate(&fork_event, 2));
    OK(fake.cuEventCreate(&join, 2));
    float *x = rig_pinned(BYTES), *out = rig_pinned(BYTES);
    void *d_x = rig_device(NULL, BYTES), *d_y = rig_device(NULL, BYTES),
         *d_z = rig_device(NULL, BYTES);
    struct map {
        double scale;
        int64_t n;
        float shift;
        uint8_t twice;
    } shift = {1, N, 3, 0}, twice = {1, N, 0, 1};
    uint8_t on = 1;
    void *first[] = {&d_y, &d_x, &shift, &on}, *second[] = {&d_z, &d_y, &twice, &on};
    OK(fake.cuStreamBeginCapture_v2(r.stream, 1));
    OK(fake.cuMemcpyAsync(d_x, x, BYTES, r.stream));
    OK(rig_launch(&r, "selftest_affine_map", 2, 1, 64, 0, first));
    OK(fake.cuEventRecord(fork_event, r.stream));
    OK(fake.cuStreamWaitEvent(other, fork_event, 0));
    OK(fake.cuLaunchKernel(rig_kernel(&r, "selftest_affine_map"), 2, 1, 1, 64, 1, 1, 0, other,
                           second, NULL));
    CHECK(fake.cuStreamSynchronize(r.stream) == 900);
    CHECK(fake.cuEventQuery(fork_event) == 907);
    void *none = NULL;
    if (!replays) { /* nothing joins the other stream */
        CHECK(fake.cuStreamEndCapture(r.stream, &none) == 904);
        return;
    }
    OK(fake.cuEventRecord(join, other));
    OK(fake.cuStreamWaitEvent(r.stream, join, 0));
    OK(fake.cuMemcpyAsync(out, d_z, BYTES, r.stream));
    OK(fake.cuStreamEndCapture(r.stream, &graph));
    OK(fake.cuGraphInstantiateWithFlags(&executable, graph, 0));
    OK(fake.cuGraphDestroy(graph));
    OK(fake.cuStreamSynchronize(r.stream));
    for (int step = 0; step < replays; step++) {
        for (int i = 0; i < N; i++)
            x[i] = (float)(i - step);
        OK(fake.cuGraphLaunch(executable, r.stream));
        OK(fake.cuGraphLaunch(executable, r.stream));
        OK(fake.cuStreamSynchronize(r.stream));
        for (int i = 0; i < N; i++)
            CHECK(out[i] == 2 * ((float)(i - step) + 3));
    }
    OK(fake.cuGraphExecDestroy(executable));
}
static void test_fake_driver_captures_and_replays(void **state)
{
    (void)state;
    rig_expect_right(run_graph, 3);
    rig_expect_right(run_graph, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fake_driver_runs_right_programs_right),
        cmocka_unit_test(test_fake_driver_finds_waits_left_out),
        cmocka_unit_test(test_fake_driver_finds_a_touch_of_the_host),
        cmocka_unit_test(test_fake_driver_checks_memory),
        cmocka_unit_test(test_fake_driver_injects_failures),
        cmocka_unit_test(test_fake_driver_captures_and_replays),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
