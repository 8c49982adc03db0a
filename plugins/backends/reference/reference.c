/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The component and its table of kernels, sorted by name; the kernels of pointwise ops are in
 * pointwise.c. */

#define KERNEL(op_, fn_)                                                                           \
    {                                                                                              \
        .struct_size = sizeof(tt_kernel), .op = op_, .run = fn_                                    \
    }
#define KERNEL_SCRATCH(op_, fn_, scratch_)                                                         \
    {                                                                                              \
        .struct_size = sizeof(tt_kernel), .op = op_, .run = fn_, .scratch_bytes = scratch_         \
    }

static const tt_kernel kernels[] = {
    KERNEL("argmax", ref_argmax),
    KERNEL_SCRATCH("attention", ref_attention, ref_attention_scratch),
    KERNEL_SCRATCH("attention_bias_bwd", ref_attention_bwd, ref_attention_scratch),
    KERNEL_SCRATCH("attention_bwd", ref_attention_bwd, ref_attention_scratch),
    KERNEL_SCRATCH("attention_cached", ref_attention_cached, ref_attention_scratch),
    KERNEL("attention_max", ref_attention_max),
    KERNEL("attention_merge", ref_attention_merge),
    KERNEL("broadcast", ref_broadcast),
    KERNEL("concat", ref_concat),
    KERNEL("const", ref_const),
    KERNEL("conv1d", ref_conv1d),
    KERNEL("conv1d_bwd", ref_conv1d_bwd),
    KERNEL("conv1d_cached", ref_conv1d_cached),
    KERNEL("cross_entropy", ref_cross_entropy),
    KERNEL("cross_entropy_bwd", ref_cross_entropy_bwd),
    KERNEL("cumsum", ref_cumsum),
    KERNEL("decode_codes", ref_decode_codes),
    KERNEL_SCRATCH("delta_rule", ref_delta_rule, ref_delta_rule_scratch),
    KERNEL_SCRATCH("delta_rule_bwd", ref_delta_rule_bwd, ref_delta_rule_bwd_scratch),
    KERNEL_SCRATCH("delta_rule_cached", ref_delta_rule_cached, ref_delta_rule_scratch),
    KERNEL("dispatch_expert", ref_dispatch_expert),
    KERNEL("dispatch_gather", ref_dispatch_gather),
    KERNEL("dispatch_pack", ref_dispatch_pack),
    KERNEL("dispatch_scatter", ref_dispatch_scatter),
    KERNEL("dispatch_sort", ref_dispatch_sort),
    KERNEL("dispatch_unpack", ref_dispatch_unpack),
    KERNEL_SCRATCH("eigenbasis", ref_eigenbasis, ref_eigenbasis_scratch),
    KERNEL("embedding", ref_embedding),
    KERNEL("embedding_dw", ref_embedding_dw),
    KERNEL("expert_count", ref_expert_count),
    KERNEL("expert_sort", ref_expert_sort),
    KERNEL("fused", ref_fused),
    KERNEL("gather", ref_gather),
    KERNEL("grouped_linear", ref_grouped_linear),
    KERNEL("grouped_linear_dw", ref_grouped_linear_dw),
    KERNEL("grouped_linear_dx", ref_grouped_linear_dx),
    KERNEL("iota", ref_iota),
    KERNEL_SCRATCH("latent_cached", ref_latent_cached, ref_attention_scratch),
    KERNEL("layer_norm", ref_layer_norm),
    KERNEL("layer_norm_bwd", ref_layer_norm_bwd),
    KERNEL("line_sum", ref_line_sum),
    KERNEL("linear", ref_linear),
    KERNEL("linear_dw", ref_linear_dw),
    KERNEL("linear_dx", ref_linear_dx),
    KERNEL("linear_dx_fused", ref_fused_product),
    KERNEL("linear_fused", ref_fused_product),
    KERNEL_SCRATCH("linear_fused_rope", ref_linear_fused_rope, ref_linear_fused_rope_scratch),
    KERNEL("linear_heads", ref_linear_heads),
    KERNEL("matmul", ref_matmul),
    KERNEL("max_last", ref_max_last),
    KERNEL("member_stats", ref_member_stats),
    KERNEL("pick", ref_pick),
    KERNEL("pick_bwd", ref_pick_bwd),
    KERNEL("random", ref_random),
    KERNEL("random_keys", ref_random_keys),
    KERNEL("reduce_max", ref_reduce_max),
    KERNEL("reduce_sum", ref_reduce_sum),
    KERNEL("reshape", ref_copy),
    KERNEL("rms_norm", ref_rms_norm),
    KERNEL("rms_norm_bwd", ref_rms_norm_bwd),
    KERNEL("roll", ref_roll),
    KERNEL_SCRATCH("rope", ref_rope, ref_rope_scratch),
    KERNEL("scan", ref_scan),
    KERNEL_SCRATCH("scan_bwd", ref_scan_bwd, ref_scan_bwd_scratch),
    KERNEL("scan_cached", ref_scan_cached),
    KERNEL("scatter_add", ref_scatter_add),
    KERNEL("segment_sum", ref_segment_sum),
    KERNEL("slice", ref_slice),
    KERNEL("slice_bwd", ref_slice_bwd),
    KERNEL("softmax", ref_softmax),
    KERNEL("softmax_bwd", ref_softmax_bwd),
    KERNEL("sum_exp", ref_sum_exp),
    KERNEL("sum_squares", ref_sum_squares),
    KERNEL("top_k", ref_top_k),
    KERNEL("top_k_bwd", ref_top_k_bwd),
    KERNEL("transpose", ref_transpose),
};

static int reference_compare_name(const void *key, const void *element)
{
    return strcmp(key, ((const tt_kernel *)element)->op);
}

const tt_kernel *ref_kernel(const char *op)
{
    const tt_kernel *k =
        bsearch(op, kernels, TT_COUNT(kernels), sizeof kernels[0], reference_compare_name);
    return k ? k : ref_pointwise_kernel(op);
}

static const tt_kernel *find_kernel(void *self, const char *op)
{
    (void)self;
    return ref_kernel(op);
}

static tt_status open_backend(const void *config, const tt_backend_env *env, void **self,
                              tt_error *err)
{
    (void)config, (void)env, (void)err;
    *self = NULL;
    return TT_OK;
}

static void close_backend(void *self)
{
    (void)self;
}

static double peak_flops(void *self, tt_dtype dtype)
{
    (void)self, (void)dtype;
    return 0.0;
}

static void reference_describe(void *self, char *text, size_t size)
{
    (void)self;
    snprintf(text, size, "plain loops, f64 sums, 1 thread");
}

static const tt_backend_vt vtable = {.struct_size = sizeof(tt_backend_vt),
                                     .open = open_backend,
                                     .close = close_backend,
                                     .kernel = find_kernel,
                                     .host_memory = 1,
                                     .peak_flops = peak_flops,
                                     .describe = reference_describe};

static const tt_component components[] = {TT_COMPONENT_PLAIN(
    TT_KIND_BACKEND, "reference", "naive kernels: slow, exact, the oracle of the others", &vtable)};
TT_PLUGIN("reference", "1.0", components);
