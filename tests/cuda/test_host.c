/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "cuda/no_families.h"

#include "../../plugins/backends/cuda/cache.c"
#include "../../plugins/backends/cuda/chip.c"
#include "../../plugins/backends/cuda/cuda.c"
#include "../../plugins/backends/cuda/device.c"
#include "../../plugins/backends/cuda/driver.c"
#include "../../plugins/backends/cuda/files.c"
#include "../../plugins/backends/cuda/launch.c"
#include "../../plugins/backends/cuda/lib.c"
#include "../../plugins/backends/cuda/module.c"
#include "../../plugins/backends/cuda/rtc.c"

/* The host side of the cuda backend on the driver of tests/fake: device memory, queues, capture, and
 * kernels that NVRTC compiles. The kernels here are the test's own. */

#define ADD_KERNEL(name, op)                                                                       \
    "TT_KERNEL(256, " name ", float *y, float x, i64 n)\n"                                         \
    "{\n"                                                                                          \
    "    for (i64 i = (i64)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (i64)gridDim.x * "   \
    "blockDim.x)\n"                                                                                \
    "        y[i] = y[i] " op " x;\n"                                                              \
    "}\n"
static const char first_text[] =
    "#include \"dialect.h\"\n" ADD_KERNEL("test_add", "+") ADD_KERNEL("test_multiply", "*");
static const char second_text[] = "#include \"dialect.h\"\n"
                                  "TT_KERNEL(64, test_reverse, float *y)\n"
                                  "{\n"
                                  "    float *room = (float *)tt_shared;\n"
                                  "    const int t = (int)threadIdx.x, n = (int)blockDim.x;\n"
                                  "    room[16384 + t] = y[t];\n"
                                  "    tt_sync();\n"
                                  "    y[t] = room[16384 + n - 1 - t];\n"
                                  "}\n";
static const char spare_text[] = "#include \"dialect.h\"\n"
                                 "TT_KERNEL(32, test_spare, float *y) { y[0] = 3.0f; }\n";
static const char nothing[1];
static char dialect[1 << 16];
const cuda_embedded cuda_embedded_kernels[] = {
    {"first",      first_text, nothing, nothing},
    {"second",     second_text, nothing, nothing},
    {"spare",            spare_text, nothing, nothing},
    {0}
};
const cuda_embedded cuda_embedded_headers[] = {
    {"dialect.h", dialect, NULL, NULL},
    {0      }
};

static cuda_backend *b;
static tt_device_queue *q[2];
static tt_device_event *done_;
static char cache[600];

#define OK(call)                                                                                   \
    do {                                                                                           \
        tt_error e_ = {0};                                                                         \
        tt_error *const e = &e_;                                                                   \
        if ((call) != TT_OK)                                                                       \
            fail_msg("%s: %s", #call, e_.text);                                                    \
    } while (0)
#define FAILS(call, status, words)                                                                 \
    do {                                                                                           \
        tt_error e_ = {0};                                                                         \
        tt_error *const e = &e_;                                                                   \
        assert_int_equal(call, status);                                                            \
        if (!strstr(e_.text, words))                                                               \
            fail_msg("no \"%s\" in: %s", words, e_.text);                                          \
    } while (0)

static cuda_backend *open_rank(int rank, int world)
{
    const cuda_config config = {.libraries = getenv("TT_FAKE"), .cache = cache, .device = -1};
    const tt_backend_env env = {.struct_size = sizeof env,
                                .n_threads = 2,
                                .rank = rank,
                                .world = world,
                                .local_rank = rank,
                                .local_world = world};
    void *self = NULL;
    OK(cuda_vt.open(&config, &env, &self, e));
    return self;
}

static int setup(void **state)
{
    char path[1000];
    const char *tmp = getenv("TMPDIR"), *src = getenv("SRC"), *build = getenv("BUILD");
    (void)state;
    snprintf(path, sizeof path, "%s/tests/fake/lib", build ? build : "build/release");
    setenv("TT_FAKE", path, 1);
    setenv("FAKE_CUDA_SEED", "2", 0); /* streams run as late as waits allow */
    setenv("FAKE_CUDA_DEVICES", "2", 1);
    setenv("FAKE_CUDA_MEMORY_MIB", "64", 1);
    snprintf(cache, sizeof cache, "%s/host.XXXXXX", tmp ? tmp : "/tmp");
    snprintf(path, sizeof path, "%s/plugins/backends/cuda/kernels/dialect.h", src ? src : ".");
    FILE *f = fopen(path, "r");
    if (!f || !mkdtemp(cache))
        return -1;
    dialect[fread(dialect, 1, sizeof dialect - 1, f)] = '\0';
    fclose(f);
    b = open_rank(0, 2);
    OK(cuda_device_vt.enter(b, e));
    for (int i = 0; i < 2; i++)
        OK(cuda_device_vt.queue_new(b, i, &q[i], e));
    OK(cuda_device_vt.event_new(b, 1, &done_, e));
    return 0;
}

static int teardown(void **state)
{
    char command[700];
    (void)state;
    for (int i = 0; i < 2; i++)
        cuda_device_vt.queue_free(b, q[i]);
    cuda_device_vt.event_free(b, done_);
    cuda_vt.close(b);
    snprintf(command, sizeof command, "rm -rf '%s'", cache);
    return system(command);
}

static void finish(tt_device_queue *queue)
{
    OK(cuda_device_vt.record(b, done_, queue, e));
    OK(cuda_device_vt.sync(b, done_, e));
    assert_true(cuda_device_vt.done(b, done_));
}

static void *get(size_t bytes, bool pinned)
{
    void *p = NULL;
    if (pinned)
        OK(cuda_device_vt.alloc_pinned(b, bytes, &p, e));
    else
        OK(cuda_device_vt.alloc(b, bytes, &p, e));
    assert_int_equal((uintptr_t)p % (pinned ? 4 : cuda_device_vt.alignment), 0);
    return p;
}

static cuda_kernel add = CUDA_KERNEL("first", "test_add");
static cuda_kernel multiply = CUDA_KERNEL("first", "test_multiply");
static cuda_kernel reverse = CUDA_KERNEL("second", "test_reverse");

static tt_status run(cuda_kernel *k, tt_device_queue *queue, float *y, float x, int64_t n,
                     tt_error *err)
{
    const cuda_grid g = {cuda_blocks(n, 256, 3), 1, 1, 256, 0};
    return cuda_launch(b, queue, k, g, (void *const[]){&y, &x, &n}, err);
}

static void test_fill_writes_every_byte_and_no_other(void **state)
{
    unsigned char *d = get(256, false), *h = get(256, true);
    (void)state;
    for (size_t from = 0; from <= 4; from++)
        for (size_t bytes = 0; bytes <= 23; bytes++)
            for (int even = 0; even < 2; even++) {
                const uint32_t pattern = even ? 0x5a5a5a5au : 0x44332211u;
                if (!even && bytes > 4 && from % 4)
                    continue; /* device.h: aligned then */
                OK(cuda_device_vt.fill(b, q[0], d, 0xeeeeeeeeu, 64, e));
                OK(cuda_device_vt.fill(b, q[0], d + from, pattern, bytes, e));
                OK(cuda_device_vt.copy(b, q[0], h, d, 64, e));
                finish(q[0]);
                for (size_t i = 0; i < 64; i++) {
                    const bool in = i >= from && i < from + bytes;
                    const size_t at = in ? (i - from) % 4 : 0;
                    assert_int_equal(h[i], in ? pattern >> 8 * at & 255 : 0xee);
                }
            }
    cuda_device_vt.free(b, d);
    cuda_device_vt.free_pinned(b, h);
}

static void test_zero_and_copy_take_any_address_and_no_bytes(void **state)
{
    unsigned char *d = get(256, false), *h = get(256, true);
    (void)state;
    memset(h, 7, 64);
    OK(cuda_device_vt.copy(b, q[0], d, h, 64, e));
    OK(cuda_zero(b, q[0], d + 3, 7, e));
    OK(cuda_zero(b, q[0], d + 1, 0, e));
    OK(cuda_copy(b, q[0], d + 31, d + 2, 5, e));
    OK(cuda_copy(b, q[0], d, d, 64, e));
    OK(cuda_copy(b, q[0], NULL, NULL, 0, e));
    OK(cuda_device_vt.copy(b, q[0], h, d, 64, e));
    finish(q[0]);
    for (int i = 0; i < 64; i++)
        assert_int_equal(h[i], (i >= 3 && i < 10) || (i >= 32 && i < 36) ? 0 : 7);
    cuda_device_vt.free(b, d);
    cuda_device_vt.free_pinned(b, h);
}

static void test_queues_wait_for_events(void **state)
{
    enum { N = 1000 };
    float *d = get(N * sizeof(float), false), *h = get(N * sizeof(float), true);
    tt_device_event *filled = NULL, *from = NULL;
    double seconds = -1;
    (void)state;
    OK(cuda_device_vt.event_new(b, 0, &filled, e));
    OK(cuda_device_vt.event_new(b, 1, &from, e));
    assert_true(cuda_device_vt.done(b, filled)); /* never recorded */
    OK(cuda_device_vt.sync(b, filled, e));
    OK(cuda_device_vt.wait(b, q[0], filled, e));
    OK(cuda_device_vt.record(b, from, q[0], e));
    OK(cuda_device_vt.fill(b, q[0], d, 0x3f800000u, N * sizeof(float), e)); /* ones */
    OK(cuda_device_vt.record(b, filled, q[0], e));
    OK(cuda_device_vt.wait(b, q[1], filled, e));
    OK(run(&add, q[1], d, 2.0f, N, e));
    OK(run(&multiply, q[1], d, 5.0f, N, e));
    OK(cuda_device_vt.copy(b, q[1], h, d, N * sizeof(float), e));
    finish(q[1]);
    for (int i = 0; i < N; i++)
        assert_true(h[i] == 15.0f);
    OK(cuda_device_vt.seconds(b, from, done_, &seconds, e));
    assert_true(seconds >= 0);
    cuda_device_vt.event_free(b, filled);
    cuda_device_vt.event_free(b, from);
    cuda_device_vt.free(b, d);
    cuda_device_vt.free_pinned(b, h);
}

static void test_a_graph_runs_again(void **state)
{
    enum { N = 300 };
    float *d = get(N * sizeof(float), false), *h = get(N * sizeof(float), true);
    tt_device_graph *graph = NULL;
    (void)state;
    OK(cuda_zero(b, q[0], d, N * sizeof(float), e));
    OK(cuda_device_vt.capture_begin(b, q[0], e));
    OK(run(&add, q[0], d, 1.0f, N, e));
    OK(run(&multiply, q[0], d, 2.0f, N, e));
    OK(cuda_device_vt.capture_end(b, q[0], &graph, e));
    for (int i = 0; i < 3; i++)
        OK(cuda_device_vt.launch(b, graph, q[0], e));
    OK(cuda_device_vt.copy(b, q[0], h, d, N * sizeof(float), e));
    finish(q[0]);
    for (int i = 0; i < N; i++)
        assert_true(h[i] == 14.0f); /* ((0+1)2+1)2+1)2 */
    cuda_device_vt.graph_free(b, graph);
    FAILS(cuda_device_vt.capture_end(b, q[0], &graph, e), TT_EINTERNAL, "cuStreamEndCapture");
    cuda_device_vt.free(b, d);
    cuda_device_vt.free_pinned(b, h);
}

static void test_no_memory_says_how_much_is_free(void **state)
{
    void *p = NULL;
    uint64_t left = 0, all = 0, after = 0;
    (void)state;
    OK(cuda_device_vt.memory(b, &left, &all, e));
    assert_int_equal(all, 64 << 20);
    char words[64];
    snprintf(words, sizeof words, "%llu of %llu bytes are free", (unsigned long long)left,
             (unsigned long long)all);
    FAILS(cuda_device_vt.alloc(b, 100 << 20, &p, e), TT_ENOMEM, words);
    assert_null(p);
    p = get(10 << 20, false);
    OK(cuda_device_vt.memory(b, &after, &all, e));
    assert_true(after + (10 << 20) <= left);
    cuda_device_vt.free(b, p);
    OK(cuda_device_vt.memory(b, &after, &all, e));
    assert_int_equal(after, left);
}

static void test_launch_checks_its_grid(void **state)
{
    float *y = NULL;
    void *const params[] = {&y};
    (void)state;
    const cuda_grid none = {0, 5, 5, 64, 0}, wide = {(int64_t)1 << 31, 1, 1, 64, 0},
                    deep = {1, 1, 65536, 64, 0}, shared = {1, 1, 1, 64, 300 << 10},
                    many = {1, 1, 1, 2048, 0}, under = {-1, 1, 1, 64, 0};
    static cuda_kernel absent = CUDA_KERNEL("first", "test_absent");
    static cuda_kernel no_file = CUDA_KERNEL("third", "test_add");
    OK(cuda_launch(b, q[0], &absent, none, params, e)); /* nothing is looked for */
    FAILS(cuda_launch(b, q[0], &reverse, wide, params, e), TT_EUNSUPPORTED,
          "kernel test_reverse: a grid of 2147483648 × 1 × 1");
    FAILS(cuda_launch(b, q[0], &reverse, deep, params, e), TT_EUNSUPPORTED, "1 × 1 × 65536");
    FAILS(cuda_launch(b, q[0], &reverse, under, params, e), TT_EUNSUPPORTED, "-1 × 1 × 1");
    FAILS(cuda_launch(b, q[0], &reverse, shared, params, e), TT_EUNSUPPORTED,
          "307200 bytes of shared memory");
    FAILS(cuda_launch(b, q[0], &reverse, many, params, e), TT_EINTERNAL, "2048 threads");
    const cuda_grid one = {1, 1, 1, 64, 0};
    FAILS(cuda_launch(b, q[0], &absent, one, params, e), TT_ENOTFOUND,
          "kernels/first.cu: kernel test_absent on device 0");
    FAILS(cuda_launch(b, q[0], &no_file, one, params, e), TT_EINTERNAL, "no kernels/third.cu");
}

static void test_a_kernel_gets_more_than_48_KiB(void **state)
{
    float *d = get(256, false), *h = get(256, true);
    (void)state;
    for (int i = 0; i < 64; i++)
        h[i] = (float)i;
    OK(cuda_device_vt.copy(b, q[0], d, h, 256, e));
    for (int i = 0; i < 3; i++) {
        const cuda_grid g = {1, 1, 1, 64, (16384 + 64) * 4};
        OK(cuda_launch(b, q[0], &reverse, g, (void *const[]){&d}, e));
    }
    OK(cuda_device_vt.copy(b, q[0], h, d, 256, e));
    finish(q[0]);
    for (int i = 0; i < 64; i++)
        assert_true(h[i] == (float)(63 - i));
    assert_int_equal(reverse.wide, 1);
    cuda_device_vt.free(b, d);
    cuda_device_vt.free_pinned(b, h);
}

static void test_generated_sources_have_one_library_each(void **state)
{
    static char texts[5][600], names[5][16];
    cuda_source sources[10];
    void *libraries[10] = {0}, *again = NULL;
    (void)state;
    for (int i = 0; i < 10; i++) { /* every text twice */
        snprintf(names[i / 2], sizeof names[0], "generated%d", i / 2);
        snprintf(texts[i / 2], sizeof texts[0], "#include \"dialect.h\"\n%s/* %d */\n",
                 ADD_KERNEL("generated", "-"), i / 2);
        sources[i] = (cuda_source){names[i / 2], texts[i / 2]};
    }
    const int before = module.n_compiled;
    OK(cuda_module_sources(b, sources, 10, libraries, e));
    assert_int_equal(module.n_compiled - before, 5);
    for (int i = 0; i < 10; i++)
        for (int k = 0; k < i; k++)
            assert_int_equal(libraries[i] == libraries[k], i / 2 == k / 2);
    OK(cuda_module_source(b, "again", texts[3], &again, e));
    assert_ptr_equal(again, libraries[6]);
    float *d = get(4, false), *h = get(4, true);
    cuda_kernel k = {.name = "generated"};
    OK(cuda_module_get(b, again, "generated", &k.handle, e));
    OK(cuda_zero(b, q[0], d, 4, e));
    OK(run(&k, q[0], d, 2.5f, 1, e));
    OK(cuda_device_vt.copy(b, q[0], h, d, 4, e));
    finish(q[0]);
    assert_true(*h == -2.5f);
    cuda_device_vt.free(b, d);
    cuda_device_vt.free_pinned(b, h);
    FAILS(cuda_module_source(b, "wrong", "#include \"dialect.h\"\nTT_KERNEL(1, x) { no_such(); }",
                             &again, e),
          TT_EINTERNAL, "NVRTC 13.0 does not compile wrong");
    FAILS(cuda_module_source(b, "wrong", "#include \"dialect.h\"\nTT_KERNEL(1, x) { no_such(); }",
                             &again, e),
          TT_EINTERNAL, "no_such");
}

static void test_files_are_compiled_when_they_are_needed(void **state)
{
    cuda_kernel spare = CUDA_KERNEL("spare", "test_spare"), wrong = CUDA_KERNEL("fourth", "x");
    const cuda_grid one = {1, 1, 1, 32, 0};
    float *d = get(4, false);
    int before = cuda_module_compiled();
    cuda_backend target = {.is_target = true};
    (void)state;
    cuda_files_need(NULL, "spare");
    cuda_files_need(&target, "spare");
    OK(cuda_files_prepare(b, e));
    assert_int_equal(cuda_module_compiled(), before);
    cuda_files_need(b, "no_such spare");
    OK(cuda_vt.prepare(b, e));
    assert_int_equal(cuda_module_compiled(), before + 1);
    OK(cuda_vt.prepare(b, e));
    OK(cuda_launch(b, q[0], &spare, one, (void *const[]){&d}, e));
    assert_int_equal(cuda_module_compiled(), before + 1);
    FAILS(cuda_launch(b, q[0], &wrong, one, (void *const[]){&d}, e), TT_EINTERNAL,
          "there is no kernels/fourth.cu");
    finish(q[0]);
    cuda_device_vt.free(b, d);
}

/* What NVRTC made is in the folder, one file a text, and is taken from there. */
static void test_the_cache_is_used(void **state)
{
    static const char text[] = "#include \"dialect.h\"\n" ADD_KERNEL("cached", "+");
    const cuda_source s = {"cached", text};
    const cuda_key key = cuda_rtc_key(text, b->chip.sm);
    CUlibrary library;
    cuda_code code;
    (void)state;
    const int before = module.n_compiled;
    assert_false(cuda_cache_read(cache, key, &code));
    OK(module_compile(b, &s, key, &library, e));
    assert_int_equal(module.n_compiled, before + 1);
    OK(module_compile(b, &s, key, &library, e));
    assert_int_equal(module.n_compiled, before + 1);
    assert_true(cuda_cache_read(cache, key, &code));
    memset((char *)code.data + 64, 0, code.bytes - 64); /* well kept, but the driver refuses it */
    cuda_cache_write(cache, key, &code);
    free(code.data);
    OK(module_compile(b, &s, key, &library, e));
    assert_int_equal(module.n_compiled, before + 2);
    assert_true(cuda_cache_read(cache, cuda_rtc_key(first_text, b->chip.sm), &code));
    free(code.data);
}

static void *rank_thread(void *arg)
{
    int64_t n = 500;
    float x = 1.0f, *d = NULL, *h = NULL;
    tt_device_queue *queue = NULL;
    tt_device_event *event = NULL;
    cuda_backend *mine = open_rank((int)(intptr_t)arg, 2);
    OK(cuda_device_vt.enter(mine, e));
    OK(cuda_device_vt.queue_new(mine, 0, &queue, e));
    OK(cuda_device_vt.event_new(mine, 0, &event, e));
    OK(cuda_device_vt.alloc(mine, 500 * sizeof(float), (void **)&d, e));
    OK(cuda_device_vt.alloc_pinned(mine, 500 * sizeof(float), (void **)&h, e));
    OK(cuda_zero(mine, queue, d, 500 * sizeof(float), e));
    for (int i = 0; i < 20; i++)
        OK(cuda_launch(mine, queue, &add, (cuda_grid){2, 1, 1, 256, 0}, (void *const[]){&d, &x, &n},
                       e));
    OK(cuda_device_vt.copy(mine, queue, h, d, 500 * sizeof(float), e));
    OK(cuda_device_vt.record(mine, event, queue, e));
    OK(cuda_device_vt.sync(mine, event, e));
    for (int i = 0; i < 500; i++)
        assert_true(h[i] == 20.0f);
    const int device = mine->device;
    cuda_device_vt.free_pinned(mine, h);
    cuda_device_vt.free(mine, d);
    cuda_device_vt.event_free(mine, event);
    cuda_device_vt.queue_free(mine, queue);
    cuda_vt.close(mine);
    return (void *)(intptr_t)device;
}

static void test_ranks_of_one_process_have_a_device_each(void **state)
{
    pthread_t threads[4];
    void *device[4];
    (void)state;
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, rank_thread, (void *)(intptr_t)i), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], &device[i]);
        assert_int_equal((intptr_t)device[i], i % 2);
    }
    OK(cuda_device_vt.enter(b, e));
}

static void test_targets_have_the_chips_facts(void **state)
{
    static const char *const names[] = {"a100", "h100",    "h200",    "b200", "gb200",
                                        "l40s", "rtx4090", "rtx5090", NULL};
    void *self = NULL;
    char text[200];
    (void)state;
    for (int i = 0; names[i]; i++) {
        OK(cuda_vt.target(NULL, names[i], &self, e));
        const cuda_backend *t = self;
        assert_true(t->is_target && t->chip.sm >= 80 && t->chip.n_sms > 100 &&
                    t->chip.shared_bytes >= 99 << 10 && t->chip.memory_bytes >= 24000000000);
        assert_true(cuda_vt.peak_flops(self, TT_BF16) > cuda_vt.peak_flops(self, TT_F32));
        assert_true(cuda_vt.peak_flops(self, TT_F32) == cuda_vt.peak_vector_flops(self));
        assert_true(cuda_vt.peak_flops(self, TT_I32) == 0);
        FAILS(cuda_device_vt.enter(self, e), TT_EINVAL, "there is no device");
        cuda_vt.close(self);
    }
    FAILS(cuda_vt.target(NULL, "mi300x", &self, e), TT_ENOTFOUND, "not \"mi300x\"");
    OK(cuda_vt.target(&b->config, NULL, &self, e));
    cuda_vt.describe(self, text, sizeof text);
    assert_string_equal(text, "NVIDIA H200, sm_90, 132 SMs");
    assert_true(cuda_vt.peak_flops(self, TT_BF16) == 989e12);
    cuda_vt.close(self);
    cuda_vt.describe(b, text, sizeof text);
    assert_string_equal(text, "NVIDIA H200, sm_90, 132 SMs, driver 13.0, own products, own "
                              "attention, kernels by NVRTC 13.0");
}

static void test_errors_name_the_call_and_the_drivers_words(void **state)
{
    tt_error err = {0};
    (void)state;
    assert_int_equal(cuda_check(0, &err, "x"), TT_OK);
    assert_int_equal(cuda_check(700, &err, "what was %s", "tried"), TT_EINTERNAL);
    assert_non_null(strstr(err.text, "what was tried: CUDA error 700, CUDA_ERROR_ILLEGAL_ADDRESS"));
    assert_int_equal(cuda_check(2, &err, "x"), TT_ENOMEM);
    assert_int_equal(cuda_check(123456, &err, "x"), TT_EINTERNAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_fill_writes_every_byte_and_no_other),
        cmocka_unit_test(test_zero_and_copy_take_any_address_and_no_bytes),
        cmocka_unit_test(test_queues_wait_for_events),
        cmocka_unit_test(test_a_graph_runs_again),
        cmocka_unit_test(test_no_memory_says_how_much_is_free),
        cmocka_unit_test(test_launch_checks_its_grid),
        cmocka_unit_test(test_a_kernel_gets_more_than_48_KiB),
        cmocka_unit_test(test_generated_sources_have_one_library_each),
        cmocka_unit_test(test_files_are_compiled_when_they_are_needed),
        cmocka_unit_test(test_the_cache_is_used),
        cmocka_unit_test(test_ranks_of_one_process_have_a_device_each),
        cmocka_unit_test(test_targets_have_the_chips_facts),
        cmocka_unit_test(test_errors_name_the_call_and_the_drivers_words),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
