/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CUDA_LIB_H
#define TT_CUDA_LIB_H
#include <stddef.h>
#include <ttrun/status.h>

/* Finds and opens NVIDIA's shared libraries. It needs no other file of this plugin: plugins/comms/nccl
 * is built with it too.
 *
 * The places, in this order:
 *   1. `folder`, the option backend.libraries. If it holds a libcuda.so.1, nothing else is searched.
 *   2. $CUDA_HOME/lib64, $CUDA_PATH/lib64, /usr/local/cuda/lib64
 *   3. what ld.so searches
 *   4. the wheels of Python: site-packages/nvidia/{cu13,<wheel>}/lib of $VIRTUAL_ENV, $CONDA_PREFIX,
 *      the python3 of PATH, ~/.local and the system
 * The driver (wheel NULL) is searched in 1, 3 and in the folders where containers put it. */
typedef struct cuda_lib {
    void *handle;
    char path[512];
} cuda_lib;

/* Opens the first of the names, a list that ends with NULL: every name in one place, then the next
 * place. wheel: the folder of the wheel, "cublas". TT_ENOTFOUND: the text says what was searched, and
 * why a file that is there could not be opened. A library is never closed. [any-thread] */
tt_status cuda_lib_open(const char *folder, const char *wheel, const char *const *names,
                        cuda_lib *out, tt_error *err);
/* The same, passing over files that are older than `oldest` ("9.15.1"; NULL: none is) by the version at
 * the end of their names, links followed. A file that does not name its version is taken: ask it. */
tt_status cuda_lib_open_new(const char *folder, const char *wheel, const char *const *names,
                            const char *oldest, cuda_lib *out, tt_error *err);
/* One function of a library; TT_EUNSUPPORTED names the library that lacks it. out: the address of a
 * pointer to a function. */
tt_status cuda_lib_symbol(const cuda_lib *lib, const char *name, void *out, tt_error *err);

#endif
