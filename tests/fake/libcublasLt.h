/* SPDX-License-Identifier: Apache-2.0 */
/* Between libcublasLt.cpp and libcublasLt_product.cpp. */
#pragma once
#include <stddef.h>
#include <stdint.h>

typedef int status; /* cublasStatus_t */
enum { OK = 0, INVALID_VALUE = 7, NOT_SUPPORTED = 15 };
enum { R_32F = 0, R_16BF = 14, COMPUTE_32F = 68, COMPUTE_32F_FAST_TF32 = 77 };
enum { VERSION = 139900, MIN_ALIGNMENT = 16, WORKSPACE = 64 << 10 };
static constexpr uint64_t MAGIC = 0x66616b65626c6173;

struct desc {
    int compute, transposed[2];
};
struct layout {
    int type;
    int64_t rows, columns, ld, stride;
    int batch;
};
struct preference {
    uint64_t workspace;
    uint32_t align[4]; /* A, B, C, D */
};
struct algo {
    uint64_t data[8]; /* MAGIC, of which product, workspace, alignment, of this machine's library */
};
struct result {
    algo a;
    size_t workspace;
    status state;
    float waves;
    int reserved[4];
};

/* What a product reads and writes. */
struct work {
    desc d;
    layout l[4]; /* A, B, C, D */
    const char *in[3];
    char *to;
    void *workspace;
    size_t workspace_bytes;
    float alpha, beta;
    bool halves; /* of k are summed apart */
};
void work_run(void *arg);

static inline int64_t size_of(int type)
{
    return type == R_32F ? 4 : 2;
}
