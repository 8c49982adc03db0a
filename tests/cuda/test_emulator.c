/* SPDX-License-Identifier: Apache-2.0 */
/* The emulator runs right kernels right, for every order of warps and lanes, and finds the mistakes that a GPU may leave to
 * luck. Kernels: tests/fake/selftest.cu. */
#define _GNU_SOURCE
#include "fake_rig.h"
#include <math.h>

enum { /* selftest_mistake */
       RIGHT,
       WAIT_TOO_FEW,
       NO_BARRIER,
       MISALIGNED_COPY,
       OUTSIDE,
       SOME_LEAVE,
       HALF_WARP,
       TWO_BARRIERS,
       BEHIND_END,
       MISALIGNED_FLOAT,
       MISALIGNED_MATRIX
};

static void reverse(int mistake, int threads)
{
    enum { MAX = 3 * 128 };
    const int N = 3 * threads;
    rig r = rig_open();
    rig_load(&r);
    float in[MAX], out[MAX];
    for (int i = 0; i < N; i++)
        in[i] = (float)i;
    void *from = rig_device(in, (size_t)N * 4), *to = rig_device(NULL, (size_t)N * 4);
    int64_t n = N;
    void *parameters[] = {&to, &from, &n, &mistake};
    OK(rig_launch(&r, "selftest_reverse", 3, 1, (unsigned)threads, (unsigned)threads * 4,
                  parameters));
    OK(fake.cuStreamSynchronize(r.stream));
    OK(fake.cuMemcpyDtoH_v2(out, to, (size_t)N * 4));
    for (int i = 0; i < N; i++)
        CHECK(out[i] == (float)(N - 1 - i));
    OK(fake.cuMemFree_v2(to));
}
static void run_reverse(int mistake)
{
    reverse(mistake, 128);
}
static void run_reverse_80(int mistake) /* half a warp; the blocks do not end where a page does */
{
    reverse(mistake, 80);
}

static void run_warp(int arg)
{
    enum { N = 256 };
    (void)arg;
    rig r = rig_open();
    rig_load(&r);
    float v[N], sums[4], sum = 0, most = -INFINITY;
    int neighbour[N], count = 0, n_positive = 0;
    unsigned positive = 0;
    int64_t least = 0;
    for (int i = 0; i < N; i++) {
        v[i] = (float)((i * 37) % 101 - 50);
        sum += v[i];
        most = fmaxf(most, v[i]);
        n_positive += v[i] > 0;
        positive |= i < 32 && v[i] > 0 ? 1u << i : 0;
    }
    void *d_sums = rig_device(NULL, sizeof sums), *d_v = rig_device(v, sizeof v);
    void *d_next = rig_device(NULL, sizeof neighbour), *d_count = rig_device(&count, sizeof count);
    void *d_least = rig_device(&least, sizeof least);
    void *parameters[] = {&d_sums, &d_v, &d_next, &d_count, &d_least};
    OK(rig_launch(&r, "selftest_warp", 1, 1, N, 32 * 4, parameters));
    OK(fake.cuStreamSynchronize(r.stream));
    OK(fake.cuMemcpyDtoH_v2(sums, d_sums, sizeof sums));
    OK(fake.cuMemcpyDtoH_v2(neighbour, d_next, sizeof neighbour));
    OK(fake.cuMemcpyDtoH_v2(&count, d_count, sizeof count));
    OK(fake.cuMemcpyDtoH_v2(&least, d_least, sizeof least));
    CHECK(sums[0] == sum && sums[1] == most && sums[2] == (float)positive);
    float first = 0;
    for (int i = 0; i < 32; i++)
        first += v[i];
    CHECK(sums[3] == first && count == n_positive && least == -50);
    for (int i = 0; i < N; i++)
        CHECK(neighbour[i] == i / 32 * 32 + (i + 1) % 32);
}

static float from_bf16(uint16_t x)
{
    const uint32_t u = (uint32_t)x << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* Numbers with few bits, so that every order of the sum gives the same bits. */
static void fill(uint16_t *p, int n, unsigned seed)
{
    for (int i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        const float f = (float)(int)(seed >> 28) - 7.5f;
        uint32_t u;
        memcpy(&u, &f, 4);
        p[i] = (uint16_t)(u >> 16);
    }
}

static void product(int mistake, int transposed)
{
    enum { M = 64, N = 96, K = 160, SHARED = 4 * 32 * 40 * 2 };
    rig r = rig_open();
    rig_load(&r);
    static uint16_t x[M * K], w[N * K];
    static float y[M * N];
    fill(x, M * K, 1);
    fill(w, N * K, 2);
    void *d_x = rig_device(x, sizeof x), *d_w = rig_device(w, sizeof w),
         *d_y = rig_device(NULL, sizeof y);
    int n = N, k = K;
    void *parameters[] = {&d_y, &d_x, &d_w, &n, &k, &transposed, &mistake};
    OK(rig_launch(&r, "selftest_product", N / 32, M / 32, 128, SHARED, parameters));
    OK(fake.cuStreamSynchronize(r.stream));
    OK(fake.cuMemcpyDtoH_v2(y, d_y, sizeof y));
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            double sum = 0;
            for (int e = 0; e < K; e++)
                sum += (double)from_bf16(x[i * K + e]) *
                       (double)from_bf16(transposed ? w[e * N + j] : w[j * K + e]);
            CHECK((double)y[i * N + j] == sum);
        }
}
static void run_product(int mistake)
{
    product(mistake, 0);
}
static void run_product_transposed(int mistake)
{
    product(mistake, 1);
}

static void run_structs(int grid)
{
    enum { N = 1000 };
    struct affine {
        double scale;
        int64_t n;
        float shift;
        uint8_t twice;
    } f = {0.5, N, 3.0f, 1};
    uint8_t on = 1;
    rig r = rig_open();
    rig_load(&r);
    float in[N], out[N];
    for (int i = 0; i < N; i++)
        in[i] = (float)i;
    void *from = rig_device(in, sizeof in), *to = rig_device(NULL, sizeof in);
    void *parameters[] = {&to, &from, &f, &on};
    OK(rig_launch(&r, "selftest_affine_map", (unsigned)grid, 1, 96, 0, parameters));
    f.shift = 0; /* parameters are copied at the launch */
    OK(fake.cuStreamSynchronize(r.stream));
    OK(fake.cuMemcpyDtoH_v2(out, to, sizeof out));
    for (int i = 0; i < N; i++)
        CHECK(out[i] == (float)i + 3.0f);
}

static void test_emulator_runs_right_kernels_right(void **state)
{
    (void)state;
    rig_expect_right(run_reverse, RIGHT);
    rig_expect_right(run_reverse_80, RIGHT);
    rig_expect_right(run_warp, 0);
    rig_expect_right(run_product, RIGHT);
    rig_expect_right(run_product_transposed, RIGHT);
    rig_expect_right(run_structs, 1);
    rig_expect_right(run_structs, 40);
}

static void test_emulator_finds_barriers_left_out(void **state)
{
    (void)state;
    rig_expect_found(run_reverse, NO_BARRIER, 8);
    rig_expect_found(run_product, NO_BARRIER, 4);
    rig_expect_found(run_product_transposed, NO_BARRIER, 4);
}

static void test_emulator_finds_copies_not_awaited(void **state)
{
    (void)state;
    rig_expect_found(run_product, WAIT_TOO_FEW, 8);
}

static void test_emulator_tells_what_threads_do_wrong(void **state)
{
    (void)state;
    static const struct {
        void (*fn)(int);
        int mistake, signal;
        const char *text;
    } cases[] = {
        {run_reverse,    OUTSIDE,           SIGSEGV,
         "thread (5, 0, 0) touches what it may not: outside of the launch's shared"                      },
        {run_reverse,    SOME_LEAVE,        SIGABRT,
         "tt_sync after a thread of the block has left the kernel"                                       },
        {run_reverse,    HALF_WARP,         SIGABRT, "deadlock: waits in a "                             },
        {run_reverse,    TWO_BARRIERS,      SIGABRT, "threads of one block wait at different tt_sync"    },
        {run_reverse,    BEHIND_END,        SIGSEGV, "is 0 bytes behind the end of a block of 1536 bytes"},
        {run_reverse_80, BEHIND_END,        SIGABRT,
         "wrote 0 bytes behind the end of a block of 960 bytes"                                          },
        {run_reverse_80, HALF_WARP,         SIGABRT, "a warp function needs 32 lanes"                    },
        {run_reverse,    MISALIGNED_FLOAT,  SIGILL,  "an address that is not aligned to its type"        },
        {run_product,    MISALIGNED_COPY,   SIGABRT, "tt_copy16: the address"                            },
        {run_product,    MISALIGNED_MATRIX, SIGABRT, "tt_ldmatrix4: the address"                         },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        rig_expect_fault(cases[i].fn, cases[i].mistake, NULL, cases[i].signal, cases[i].text);
}

/* ---- launches ---- */
static void run_bad_launches(int arg)
{
    (void)arg;
    rig r = rig_open();
    rig_load(&r);
    void *p = rig_device(NULL, 4096), *k = rig_kernel(&r, "selftest_reverse");
    int64_t n = 256;
    int mistake = RIGHT;
    void *parameters[] = {&p, &p, &n, &mistake}, *missing[] = {&p, &p, &n, NULL};
    CHECK(rig_launch(&r, "selftest_reverse", 0, 1, 128, 1024, parameters) == 1);
    CHECK(rig_launch(&r, "selftest_reverse", 1, 65536, 128, 1024, parameters) == 1);
    CHECK(rig_launch(&r, "selftest_reverse", 1, 1, 512, 1024, parameters) == 1);
    CHECK(rig_launch(&r, "selftest_reverse", 1, 1, 256, 60 << 10, parameters) == 1);
    CHECK(rig_launch(&r, "selftest_reverse", 1, 1, 256, 1024, missing) == 1);
    CHECK(fake.cuKernelSetAttribute(8, 228 << 10, k, 0) == 1);
    OK(fake.cuKernelSetAttribute(8, 227 << 10, k, 0));
    OK(rig_launch(&r, "selftest_reverse", 1, 1, 256, 60 << 10, parameters));
    CHECK(fake.cuLibraryGetKernel(&k, r.library, "no_such_kernel") == 500);
    OK(fake.cuCtxSynchronize());
    OK(fake.cuLibraryUnload(r.library));
}
static void run_host_pointer(int arg)
{
    (void)arg;
    rig r = rig_open();
    rig_load(&r);
    float host[256] = {0}, *from = host;
    void *to = rig_device(NULL, sizeof host);
    int64_t n = 256;
    int mistake = RIGHT;
    void *parameters[] = {&to, &from, &n, &mistake};
    OK(rig_launch(&r, "selftest_reverse", 1, 1, 256, 1024, parameters));
    fake.cuCtxSynchronize();
}

static void test_emulator_refuses_launches_that_a_gpu_refuses(void **state)
{
    (void)state;
    rig_expect_right(run_bad_launches, 0);
    rig_expect_fault(run_host_pointer, 0, NULL, SIGABRT, "kernel selftest_reverse, argument 1:");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_emulator_runs_right_kernels_right),
        cmocka_unit_test(test_emulator_finds_barriers_left_out),
        cmocka_unit_test(test_emulator_finds_copies_not_awaited),
        cmocka_unit_test(test_emulator_tells_what_threads_do_wrong),
        cmocka_unit_test(test_emulator_refuses_launches_that_a_gpu_refuses),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
