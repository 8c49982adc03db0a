/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CUDA_PROGRAM_H
#define TT_CUDA_PROGRAM_H
#include "cuda.h"
#include "kernels/point_shape.h"

/* Pointwise programs on the device. A program of tensors of known shapes runs as a kernel that is
 * compiled for it (fused_source.c) or, without NVRTC, in the interpreter (kernels/interpret.cu), with
 * the same bits. */

/* The number of a pointwise op, or -1. */
int cuda_point_op(const char *op);

/* Puts the program on the queue; in and out are the operands of the op "fused". */
tt_status cuda_program_run(cuda_backend *b, tt_device_queue *q, const tt_fused *f,
                           const tt_tensor *in, const tt_tensor *out, tt_error *err);
/* Can it run? If there is a device, its kernel will be compiled with those of all other programs that were
 * asked for, by cuda_program_prepare or when the first of them runs. b may be NULL. */
bool cuda_program_supports(cuda_backend *b, const tt_fused *f, const tt_tensor *in,
                           const tt_tensor *out);
/* Compiles what was asked for and is not compiled yet. */
tt_status cuda_program_prepare(cuda_backend *b, tt_error *err);

/* ---- within the files of programs ---- */
/* What a compiled kernel is for. All of its bytes count, so it is zeroed before it is filled. */
typedef struct cuda_program_key {
    int n_dims, is_small; /* is_small: indices fit into 31 bits */
    /* of each operand: bit d is set if its stride in dim d is not 0; whole: it has each element once,
     * in the order of the result */
    unsigned char strided[POINT_INS], whole[POINT_INS];
    point_program program;
} cuda_program_key;

/* ---- fused_table.c ---- */
/* The kernel of this key will be compiled with the next one that is needed. */
void cuda_program_want(cuda_backend *b, const cuda_program_key *key);
/* The kernel of a key, compiled now if it was not before. *out NULL: there is no NVRTC. */
tt_status cuda_program_find(cuda_backend *b, const cuda_program_key *key, cuda_kernel **out,
                            tt_error *err);

/* ---- fused_source.c ---- */
/* The name of the kernel in the source. */
#define CUDA_PROGRAM_NAME "tt_point_program"
/* Do the operand's elements go on within a row of the result, so that it is read in words? */
bool cuda_program_goes_on(const cuda_program_key *k, int operand);
/* Elements that a thread works on at a time, where alignment and shape allow. */
int cuda_program_width(const cuda_program_key *k);
size_t cuda_point_size(int dtype); /* bytes of an element */
bool cuda_point_is_f64(int dtype); /* as in point.h */
/* The source of a kernel with one argument, a point_shape; the caller frees it. NULL: no memory. */
char *cuda_program_source(const cuda_program_key *k);

#endif
