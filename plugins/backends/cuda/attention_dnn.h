/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CUDA_ATTENTION_DNN_H
#define TT_CUDA_ATTENTION_DNN_H
#include "dnn.h"

/* attention and attention_bwd by cuDNN: bf16, lines of one segment each (tt_attrs_attention.line),
 * causal or all keys, a window, no softcap, sinks or bias. What it does not take, our own kernels
 * compute (attention.c).
 *   Memory: the scratch is cuDNN's workspace, told by the library for this chip, and the sums of a
 * row that the derivative needs. */

void cuda_dnn_plans_free(cuda_dnn *d); /* part of cuda_dnn_close */

/* Whether cuDNN computes this call, as far as shapes and attributes tell; a plan is made at the first
 * question. *scratch: bytes that it needs. */
bool cuda_dnn_takes(cuda_backend *b, const tt_kernel_call *c, size_t *scratch);
/* Whether the operands' addresses suit a call that it takes: multiples of 16. */
bool cuda_dnn_aligned(const tt_kernel_call *c);
tt_status cuda_dnn_attention(cuda_backend *b, const tt_kernel_call *c, tt_error *err);
tt_status cuda_dnn_attention_bwd(cuda_backend *b, const tt_kernel_call *c, tt_error *err);

#endif
