/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CUDA_BOX_H
#define TT_CUDA_BOX_H
#include "cuda.h"

/* Copies of boxes within the device (box.c). */

/* All numbers are elements. Element (i0, i1, …), i < size, is read at Σ i from_stride and written at
 * Σ i to_stride. from NULL: zeros. The dtypes may differ only where from is not NULL. */
typedef struct cuda_box {
    const void *from;
    void *to;
    tt_dtype from_dtype, to_dtype;
    int n_dims;
    int64_t size[TT_MAX_DIMS], from_stride[TT_MAX_DIMS], to_stride[TT_MAX_DIMS];
} cuda_box;
/* Puts the copy on the queue; a box without elements is nothing. Addresses are aligned to one element. */
tt_status cuda_box_copy(cuda_backend *b, tt_device_queue *q, const cuda_box *box, tt_error *err);

#endif
