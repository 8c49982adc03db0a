/* SPDX-License-Identifier: Apache-2.0 */
/* The fake driver with several devices and threads, and the items of tests/fake/queue.h; and the fake NVRTC. */
#define _GNU_SOURCE
#include "../fake/queue.h"
#include "fake_rig.h"
#include <pthread.h>
#include <stdatomic.h>

enum { RANKS = 4, N = 256, STEPS = 5 };
enum { RIGHT, ONE_IS_MISSING, NO_WAIT };

/* Each rank fills its own memory, and all sum up what all have, in a collective made of items. */
typedef struct collective {
    int n_arrived, n_left;
    float *data[RANKS];
} collective;
typedef struct member {
    int rank, mistake;
    void *data, *stream;
    collective steps[STEPS];
} member;
static collective shared[STEPS];
typedef struct call {
    collective *c;
    int rank;
    float *data;
} call;

static void on_arrival(void *arg)
{
    call *x = arg;
    x->c->data[x->rank] = x->data;
    x->c->n_arrived++;
}
static bool all_here(void *arg)
{
    const call *x = arg;
    return x->c->n_arrived == RANKS;
}
/* The first that runs sums for all. */
static void sum_all(void *arg)
{
    call *x = arg;
    if (x->c->n_left++)
        return;
    for (int i = 0; i < N; i++) {
        float sum = 0;
        for (int k = 0; k < RANKS; k++)
            sum += x->c->data[k][i];
        for (int k = 0; k < RANKS; k++)
            x->c->data[k][i] = sum;
    }
}

static void *rank_main(void *arg)
{
    const member *m = arg;
    void *context, *stream, *comm, *ready, *done, *data = NULL;
    OK(fake.cuDevicePrimaryCtxRetain(&context, m->rank));
    OK(fake.cuCtxSetCurrent(context));
    OK(fake.cuStreamCreateWithPriority(&stream, 1, 0));
    OK(fake.cuStreamCreateWithPriority(&comm, 1, 0));
    OK(fake.cuEventCreate(&ready, 2));
    OK(fake.cuEventCreate(&done, 2));
    OK(fake.cuMemAlloc_v2(&data, N * 4));
    uint32_t *out = rig_pinned(N * 4);
    for (int s = 0; s < STEPS; s++) {
        const float value = (float)(m->rank + s);
        uint32_t bits;
        memcpy(&bits, &value, 4);
        OK(fake.cuMemsetD32Async(data, bits, N, stream));
        OK(fake.cuEventRecord(ready, stream));
        if (m->mistake != NO_WAIT)
            OK(fake.cuStreamWaitEvent(comm, ready, 0));
        call *x = malloc(sizeof *x);
        *x = (call){&shared[s], m->rank, data};
        const fake_item item = {"test_sum", x, on_arrival, all_here, sum_all, free};
        if (m->mistake != ONE_IS_MISSING || m->rank != 2)
            OK(fake.fake_queue_add(comm, &item));
        OK(fake.cuEventRecord(done, comm));
        OK(fake.cuStreamWaitEvent(stream, done, 0));
        OK(fake.cuMemcpyAsync(out, data, N * 4, stream));
        OK(fake.cuStreamSynchronize(stream));
        const float want = (float)(RANKS * (RANKS - 1) / 2 + RANKS * s);
        for (int i = 0; i < N; i++)
            CHECK(!memcmp(&out[i], &want, 4));
    }
    return NULL;
}
static void run_ranks(int mistake)
{
    pthread_t threads[RANKS];
    member members[RANKS];
    setenv("FAKE_CUDA_DEVICES", "4", 1);
    fake_load();
    OK(fake.cuInit(0));
    for (int i = 0; i < RANKS; i++) {
        members[i] = (member){.rank = i, .mistake = mistake};
        pthread_create(&threads[i], NULL, rank_main, &members[i]);
    }
    for (int i = 0; i < RANKS; i++)
        pthread_join(threads[i], NULL);
}

static void test_fake_driver_serves_ranks(void **state)
{
    (void)state;
    rig_expect_right(run_ranks, RIGHT);
    rig_expect_found(run_ranks, NO_WAIT, 4);
}
static void run_missing(int arg)
{
    (void)arg;
    rig r = rig_open();
    call *x = calloc(1, sizeof *x);
    x->c = &shared[0];
    const fake_item item = {"test_sum", x, on_arrival, all_here, sum_all, free};
    OK(fake.fake_queue_add(r.stream, &item));
    fake.cuStreamSynchronize(r.stream);
}
static void test_fake_driver_tells_a_deadlock(void **state)
{
    (void)state;
    static const char *const settings[] = {"FAKE_CUDA_PATIENCE=1", NULL};
    rig_expect_fault(run_missing, 0, settings, SIGABRT, "is at test_sum");
}

/* An event of one device's stream is awaited by another's; a kernel touches the other's memory. */
static void run_peers(int enabled)
{
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    rig r = rig_open();
    rig_load(&r);
    void *second, *stream, *event, *p;
    float *in = rig_pinned(N * 4), out[N];
    for (int i = 0; i < N; i++)
        in[i] = (float)i;
    OK(fake.cuDevicePrimaryCtxRetain(&second, 1));
    OK(fake.cuCtxSetCurrent(second));
    OK(fake.cuStreamCreateWithPriority(&stream, 1, 0));
    OK(fake.cuEventCreate(&event, 2));
    OK(fake.cuMemAlloc_v2(&p, N * 4));
    OK(fake.cuMemcpyAsync(p, in, N * 4, stream));
    CHECK(fake.cuEventRecord(event, r.stream) == 400);
    OK(fake.cuEventRecord(event, stream));
    OK(fake.cuCtxSetCurrent(r.context));
    if (enabled) {
        OK(fake.cuCtxEnablePeerAccess(second, 0));
        CHECK(fake.cuCtxEnablePeerAccess(second, 0) == 704);
    }
    void *to = rig_device(NULL, N * 4);
    int64_t n = N;
    int mistake = 0;
    void *parameters[] = {&to, &p, &n, &mistake};
    OK(fake.cuStreamWaitEvent(r.stream, event, 0));
    OK(rig_launch(&r, "selftest_reverse", 1, 1, N, N * 4, parameters));
    OK(fake.cuStreamSynchronize(r.stream));
    OK(fake.cuMemcpyDtoH_v2(out, to, sizeof out));
    for (int i = 0; i < N; i++)
        CHECK(out[i] == (float)(N - 1 - i));
    OK(fake.cuCtxSetCurrent(second));
    CHECK(rig_launch(&r, "selftest_reverse", 1, 1, N, N * 4, parameters) == 201);
}
static void test_fake_driver_keeps_devices_apart(void **state)
{
    (void)state;
    rig_expect_right(run_peers, 1);
    rig_expect_fault(run_peers, 0, NULL, SIGABRT, "is not memory of device 0");
}

/* ---- host functions ---- */
static atomic_int n_called;
static void count(void *arg)
{
    atomic_fetch_add(&n_called, *(int *)arg);
}
static void run_host_function(int arg)
{
    (void)arg;
    rig r = rig_open();
    int add = 5;
    OK(fake.cuLaunchHostFunc(r.stream, count, &add));
    CHECK(atomic_load(&n_called) == 0);
    while (fake.cuStreamQuery(r.stream) == 600) /* asking is enough, some time */
        continue;
    CHECK(atomic_load(&n_called) == 5);
}
static void test_fake_driver_calls_host_functions(void **state)
{
    (void)state;
    rig_expect_right(run_host_function, 0);
}

/* ---- NVRTC ---- */
static int compile(const char *text, char **image, char *log, size_t log_size)
{
    static const char header[] = "#define SHIFT 2\n";
    FILE *f = fopen("plugins/backends/cuda/kernels/dialect.h", "rb");
    const char *source = getenv("SRC");
    char path[4096];
    snprintf(path, sizeof path, "%s/plugins/backends/cuda/kernels/dialect.h",
             source ? source : ".");
    f = f ? f : fopen(path, "rb");
    CHECK(f);
    static char dialect[1 << 16];
    dialect[fread(dialect, 1, sizeof dialect - 1, f)] = 0;
    fclose(f);
    const char *names[] = {"dialect.h", "shift.h"}, *texts[] = {dialect, header};
    const char *options[] = {"--gpu-architecture=sm_90", "-std=c++17", "-DFACTOR=3"};
    void *p;
    size_t n = 0, n_log = 0;
    OK(fake.nvrtcCreateProgram(&p, text, "test.cu", 2, texts, names));
    const int r = fake.nvrtcCompileProgram(p, 3, options);
    OK(fake.nvrtcGetProgramLogSize(p, &n_log));
    CHECK(n_log >= 1 && n_log <= log_size);
    OK(fake.nvrtcGetProgramLog(p, log));
    OK(fake.nvrtcGetCUBINSize(p, &n));
    *image = malloc(n + 1);
    OK(fake.nvrtcGetCUBIN(p, *image));
    OK(fake.nvrtcDestroyProgram(&p));
    return r;
}
static void run_nvrtc(int arg)
{
    (void)arg;
    rig r = rig_open();
    char *image, *bad, log[1 << 14];
    fake_load_nvrtc();
    OK(compile(
        "#include \"dialect.h\"\n#include \"shift.h\"\n"
        "TT_KERNEL(64, affine, int *p) { p[threadIdx.x] = (int)threadIdx.x * FACTOR + SHIFT; }\n",
        &image, log, sizeof log));
    OK(fake.cuLibraryLoadData(&r.library, image, NULL, NULL, 0, NULL, NULL, 0));
    free(image);
    void *p = rig_device(NULL, 64 * 4), *parameters[] = {&p};
    int out[64];
    OK(rig_launch(&r, "affine", 1, 1, 64, 0, parameters));
    OK(fake.cuStreamSynchronize(r.stream));
    OK(fake.cuMemcpyDtoH_v2(out, p, sizeof out));
    for (int i = 0; i < 64; i++)
        CHECK(out[i] == 3 * i + 2);
    CHECK(compile("#include \"dialect.h\"\nTT_KERNEL(64, broken, int *p) { p[0] = nothing; }\n",
                  &bad, log, sizeof log) == 6);
    CHECK(strstr(log, "test.cu:2") && strstr(log, "nothing"));
    free(bad);
}
static void test_fake_nvrtc_compiles(void **state)
{
    (void)state;
    char cache[256];
    const char *folder = getenv("TMPDIR");
    snprintf(cache, sizeof cache, "FAKE_NVRTC_CACHE=%s/fake-cache-%d", folder ? folder : "/tmp",
             (int)getpid());
    const char *const settings[] = {cache, NULL};
    for (int i = 0; i < 2; i++) /* the second time from the cache */
        if (rig_run(run_nvrtc, 0, settings))
            fail_msg("%s", rig_text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fake_driver_serves_ranks),
        cmocka_unit_test(test_fake_driver_tells_a_deadlock),
        cmocka_unit_test(test_fake_driver_keeps_devices_apart),
        cmocka_unit_test(test_fake_driver_calls_host_functions),
        cmocka_unit_test(test_fake_nvrtc_compiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
