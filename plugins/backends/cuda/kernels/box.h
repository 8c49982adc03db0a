/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of copy.cu, in C too. */
#pragma once

#define BOX_DIMS 6
#define BOX_THREADS 256
#define BOX_TILE 32

/* A box of n elements, or of larger units, with strides; from NULL: zeros. */
typedef struct box_copy {
    const void *from;
    void *to;
    long long n;
    int n_dims; /* at least 1 */
    long long size[BOX_DIMS], from_stride[BOX_DIMS], to_stride[BOX_DIMS];
    int from_dtype, to_dtype; /* of tt_copy_convert */
} box_copy;

/* Many matrices, each turned: element (r, c) is at r + c from_stride in `from`, and at r to_stride + c in
 * `to`. The dims of `size` count the matrices. */
typedef struct box_turn {
    const void *from;
    void *to;
    long long rows, cols, from_stride, to_stride;
    long long n_tiles; /* of all matrices */
    int n_dims;
    long long size[BOX_DIMS], from_step[BOX_DIMS], to_step[BOX_DIMS];
} box_turn;
