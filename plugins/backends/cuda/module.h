/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CUDA_MODULE_H
#define TT_CUDA_MODULE_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ttrun/status.h>

/* What files.c and module.c are made of: the files in the plugin, NVRTC, and the cache of what NVRTC compiled. */

/* ---- embedded.c, which mk/cuda.sh writes ---- */
typedef struct cuda_embedded {
    const char *name;                /* "norm", "dialect.h"; the last one: NULL */
    const char *text;                /* with a zero at its end */
    const char *binary, *binary_end; /* a fatbin; equal: there was no nvcc */
} cuda_embedded;
extern const cuda_embedded cuda_embedded_kernels[]; /* kernels/<name>.cu */
extern const cuda_embedded cuda_embedded_headers[]; /* kernels/<name> */

/* Machine code; malloc'ed. */
typedef struct cuda_code {
    void *data;
    size_t bytes;
} cuda_code;

/* A hash of all that some code depends on. */
typedef struct cuda_key {
    uint64_t lo, hi;
} cuda_key;

/* ---- rtc.c ---- */
/* Opens NVRTC, once per process; also the error is remembered. driver_version chooses between CUDA 12's
 * and 13's. TT_EUNSUPPORTED: there is none. */
tt_status cuda_rtc_open(const char *folder, int driver_version, tt_error *err);
int cuda_rtc_version(void); /* 13000: 13.0 */
/* The options for a chip, in a text that the cache's key has too: cubin for exactly this chip, or PTX
 * for the newest that this NVRTC knows. */
void cuda_rtc_options(int sm, char *text, size_t size);
/* Of the code of a text for a chip: NVRTC's version, the options, the text and all headers. */
cuda_key cuda_rtc_key(const char *text, int sm);
tt_status cuda_rtc_compile(const char *name, const char *text, int sm, cuda_code *out,
                           tt_error *err);

/* ---- cache.c ---- */
cuda_key cuda_key_of(const char *const *texts, int n);
/* The folder: `folder`, else $XDG_CACHE_HOME/ttrun/cubin, else ~/.cache/ttrun/cubin; "" without a home. */
void cuda_cache_folder(const char *folder, char *path, size_t size);
/* False: not there, or not what was written under this key. */
bool cuda_cache_read(const char *folder, cuda_key key, cuda_code *out);
/* Atomic: other processes see all of it or nothing. A folder that cannot be written is a line of the
 * log, once. */
void cuda_cache_write(const char *folder, cuda_key key, const cuda_code *code);

#endif
