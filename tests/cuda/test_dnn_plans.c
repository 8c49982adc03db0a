/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* setenv, mkdtemp */
#include "cuda/cuda_config.h"
#include "tier.h"
#include <dlfcn.h>
#include <glob.h>
#include <ttrun/ops.h>

/* NVIDIA's cuDNN, where it is installed, makes plans for chips that are not here. It must recognise the
 * graphs of attention_dnn.c as a whole, which the fake cuDNN of test_cuda_dnn.c cannot tell, and its
 * workspaces are part of the plan of a job. cuDNN looks for a driver when it makes plans: it finds the
 * fake one, without a device. */

enum { KNOWN = 91900 };      /* cuDNN 9.19.0 has the workspaces of `cases` */
enum { PART_OF_MEMORY = 8 }; /* a larger part of the chip's memory is too much for a workspace */

typedef struct plan_case {
    const char *chip;
    bool deterministic, bwd;
    int64_t lines, line, heads, kv_heads, hd, window;
    double mib; /* of workspace, but for some 100 bytes */
} plan_case;

#define LINES 4, 4096
static const plan_case cases[] = {
    {"a100",    true, false,     LINES,    32,       8,  128, 0,    0   },
    {"h200",    true, false,     LINES,    32,       8,  128, 0,    0   },
    {"b200",    true, false,     LINES,    32,       8,  128, 0,    0   },
    {"rtx5090", true, false,     LINES,    32,       8,  128, 0,    0   },
    {"h200",    true, false,     LINES,    32,       8,  128, 1024, 0   },
    {"a100",    true, true,      LINES,    32,       8,  128, 0,    4352},
    {"h200",    true, true,      LINES,    32,       8,  128, 0,    4352},
    {"b200",    true, true,      LINES,    32,       8,  128, 0,    4352},
    {"rtx5090", true, true,      LINES,    32,       8,  128, 0,    4352},
    {"h200",    true, true,      LINES,    32,       8,  128, 1024, 4352},
    {"h200",    true, true,      LINES,    32,       8,  64,  0,    4224},
    {"h200",    true, true,      LINES,    32,       32, 128, 0,    4096},
    {"h200",    true, true,      4,        1000,     32, 8,   128,  0,    318.5},
    {"h200",         false,        true,    LINES, 32, 8, 128,   0,    256    },
    {"b200",         false,        true,    LINES, 32, 8, 128,   0,    256},
    {"a100",         false,        true,    LINES, 32, 8, 128,   0,    512    },
    {"rtx5090",         false,     true, LINES, 32,    8,    128,   0, 512},
};

static struct {
    const tt_backend_vt *vt;
    char folder[1024];
    char caches[TT_COUNT(cases)][1100]; /* one per case */
} s;

/* ---- a chip that is not here ---- */

static tt_status open_target(const plan_case *c, const char *attention, void **out, tt_error *err)
{
    char *cache = s.caches[c - cases];
    snprintf(cache, sizeof s.caches[0], "%s/%d", s.folder, (int)(c - cases));
    const cuda_config config = {.cache = cache,
                                .device = -1,
                                .kernel_code = "auto",
                                .gemm = "auto",
                                .attention = attention,
                                .f32_products = "f32",
                                .deterministic = c->deterministic};
    return s.vt->target(&config, c->chip, out, err);
}

static tt_tensor shape_only(tt_dtype dtype, int64_t rows, int64_t columns)
{
    return (tt_tensor){
        .dtype = dtype,
        .n_dims = columns > 0 ? 2 : 1,
        .shape = {rows, columns},
        .global = {rows, columns}
    };
}

/* The scratch that the kernel asks for. */
static size_t scratch_of(void *target, const plan_case *c)
{
    const tt_attrs_attention attrs = {.head_dim = c->hd,
                                      .v_head_dim = c->hd,
                                      .scale = 1.0 / sqrt((double)c->hd),
                                      .window = c->window,
                                      .line = c->line};
    const int64_t n = c->lines * c->line;
    const tt_tensor q = shape_only(TT_BF16, n, c->heads * c->hd),
                    k = shape_only(TT_BF16, n, c->kv_heads * c->hd),
                    lse = shape_only(TT_F32, n, c->heads), ids = shape_only(TT_I32, n, 0);
    const tt_tensor in[] = {q, k, k, ids, ids, ids, ids},
                    in_bwd[] = {q, k, k, q, lse, q, ids, ids, ids, ids};
    tt_tensor out[] = {q, lse}, out_bwd[] = {q, k, k};
    const tt_kernel_call call = {.struct_size = sizeof call,
                                 .op = c->bwd ? "attention_bwd" : "attention",
                                 .in = c->bwd ? in_bwd : in,
                                 .n_in = c->bwd ? 10 : 7,
                                 .out = c->bwd ? out_bwd : out,
                                 .n_out = c->bwd ? 3 : 2,
                                 .attrs = &attrs,
                                 .backend = target};
    const tt_kernel *kernel = s.vt->kernel(target, call.op);
    assert_true(kernel->supports(&call));
    return kernel->scratch_bytes(&call, 1);
}

/* The workspace as attention_dnn.c keeps it in the cache, the last 8 bytes of the only file; -1: cuDNN
 * has no plan. */
static int64_t kept_workspace(const plan_case *c)
{
    char pattern[1200];
    int64_t bytes = -2;
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*.cubin", s.caches[c - cases]);
    assert_int_equal(glob(pattern, 0, NULL, &found), 0);
    assert_int_equal(found.gl_pathc, 1);
    FILE *f = fopen(found.gl_pathv[0], "rb");
    assert_non_null(f);
    assert_int_equal(fseek(f, -(long)sizeof bytes, SEEK_END), 0);
    assert_int_equal(fread(&bytes, sizeof bytes, 1, f), 1);
    fclose(f);
    globfree(&found);
    return bytes;
}

/* Memory that attention_dnn.c adds: sums of rows, and of dq where their order varies. */
static int64_t added(const plan_case *c)
{
    const int64_t rows = c->lines * c->line * c->heads * (int64_t)sizeof(float);
    return c->bwd ? (rows + 255) / 256 * 256 + (c->deterministic ? 0 : rows * c->hd) : 0;
}

static size_t version(void)
{
    size_t (*get_version)(void) = NULL;
    void *library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_NOLOAD);
    assert_non_null(library);
    *(void **)&get_version = dlsym(library, "cudnnGetVersion");
    return get_version();
}

/* Of chips and kinds (forward, backward, backward in any order) with one shape some pairs, in the long
 * tier all; the other shapes always. */
static bool is_taken(const plan_case *c)
{
    static const char *const chips[] = {"a100", "h200", "b200", "rtx5090"};
    const bool is_usual = c->line == 4096 && c->kv_heads == 8 && c->hd == 128 && c->window == 0;
    size_t chip = 0;
    while (strcmp(chips[chip], c->chip) != 0)
        chip++;
    return !is_usual || in_tier(c->bwd ? (c->deterministic ? 1 : 2) : 0, chip, 2);
}

/* ---- tests ---- */

static void test_a_plan_is_found_and_its_memory_told(void **state)
{
    const plan_case *c = *state;
    void *target = NULL, *own = NULL;
    tt_error err = {0};
    if (open_target(c, "cudnn", &target, &err) != TT_OK) {
        if (strstr(err.text, "was not found") == NULL)
            fail_msg("%s", err.text);
        printf("skipped: there is no cuDNN here\n");
        skip();
    }
    assert_int_equal(open_target(c, "own", &own, &err), TT_OK);
    const int64_t scratch = (int64_t)scratch_of(target, c),
                  own_scratch = (int64_t)scratch_of(own, c), workspace = kept_workspace(c),
                  memory = ((cuda_backend *)target)->chip.memory_bytes,
                  whole = (workspace + 255) / 256 * 256 + added(c);
    if (workspace < 0)
        fail_msg("cuDNN %zu has no plan", version());
    if (version() == KNOWN && llabs(workspace - (int64_t)(c->mib * 0x1p20)) >= 1024)
        fail_msg("a workspace of %lld bytes, %g MiB, not %g", (long long)workspace,
                 (double)workspace / 0x1p20, c->mib);
    if (workspace > memory / PART_OF_MEMORY)
        assert_int_equal(scratch, own_scratch);
    else
        assert_int_equal(scratch, whole > own_scratch ? whole : own_scratch);
    s.vt->close(target);
    s.vt->close(own);
}

static int load(void **state)
{
    char path[1100];
    const char *build = getenv("BUILD"), *tmp = getenv("TMPDIR");
    (void)state;
    snprintf(path, sizeof path, "%s/tests/fake/lib/libcuda.so.1",
             build != NULL ? build : "build/release");
    setenv("FAKE_CUDA_FAIL", "cuInit:*=100", 1); /* no device */
    if (dlopen(path, RTLD_NOW | RTLD_GLOBAL) == NULL)
        fail_msg("%s", dlerror());
    snprintf(s.folder, sizeof s.folder, "%s/dnn-plans.XXXXXX", tmp != NULL ? tmp : "/tmp");
    assert_non_null(mkdtemp(s.folder));
    s.vt = backend_load("cuda");
    return 0;
}

int main(void)
{
    struct CMUnitTest tests[TT_COUNT(cases)];
    char names[TT_COUNT(cases)][120];
    size_t n = 0;
    for (const plan_case *c = cases; c < cases + TT_COUNT(cases); c++) {
        if (!is_taken(c))
            continue;
        snprintf(names[n], sizeof names[n], "%s %s: %lld of %lld, %lld/%lld of %lld, window %lld%s",
                 c->chip, c->bwd ? "attention_bwd" : "attention", (long long)c->lines,
                 (long long)c->line, (long long)c->heads, (long long)c->kv_heads, (long long)c->hd,
                 (long long)c->window, c->deterministic ? "" : ", any order");
        tests[n] = (struct CMUnitTest){names[n], test_a_plan_is_found_and_its_memory_told, NULL,
                                       NULL, (void *)(uintptr_t)c};
        n++;
    }
    return _cmocka_run_group_tests("dnn_plans", tests, n, load, NULL);
}
