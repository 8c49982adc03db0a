/* SPDX-License-Identifier: Apache-2.0 */
#include "cost/cost.h"
#include <string.h>
#include <strings.h>

/* The machines that have a name.
 *
 * Peaks are the vendors' dense numbers (data sheets: NVIDIA A100 SXM 80 GB, H100 SXM, H200 SXM, HGX B200;
 * AMD Instinct MI300X); the network is one card per device. What is reached of them:
 *   matmul     cuBLAS, bf16, long runs within the power limit. H200: 680 of 989 TFLOP/s at 8192³, 770 in
 *              short runs; 780 is the best published on H100. A tile's begin and end take as long as a
 *              sum over 256 elements (its pipeline's depth: 4 stages of 64).
 *   attention  cuDNN 9.19 on H200, causal, 128 per head, 2k … 32k tokens: forward 484, 591, 644, 673, 688,
 *              backward 370, 474, 541, 579, 581 TFLOP/s (cudnn-frontend's benchmark). Those of H100 at 8k:
 *              566 and 470; with FlashAttention 2, 306 and 166 (flash-attention PR 1893).
 *   network    NCCL's bus bandwidth of large messages: 360 of 450 GB/s over NVLink.
 *   host       PCIe, generation 4 or 5, 16 lanes: 25 and 50 of 32 and 64 GB/s.
 *   overlap    NCCL's kernels take 16 to 24 of 132 multiprocessors, and a part of the memory's bandwidth.
 * h100-500w is the machine of torchtitan's published runs: limited to 500 W, HBM2e of 2.4 TB/s, PyTorch's
 * attention (FlashAttention 2). tests/estimate/test_published.c compares the estimates with published
 * runs on h100-500w, h100 and a100. B200's and MI300X's efficiencies are not compared with any run. */
#define NVIDIA                                                                                     \
    .op_latency = 3e-6, .memory_efficiency = 0.85, .network_efficiency = 0.8,                      \
    .net_efficiency = 0.92, .link_latency = 8e-6, .net_latency = 15e-6, .turn_latency = 1.5e-6,    \
    .ranks_per_node = 8, .matmul_ramp = 400, .attention_ramp = 750, .overlap_efficiency = 0.85

static const tt_machine machines[] = {
    {.name = "a100",
     .flops_f32 = 19.5e12,
     .flops_bf16 = 312e12,
     .flops_f16 = 312e12,
     .flops_f8 = 0,
     .flops_f4 = 0,
     .memory_bytes = 80e9,
     .memory_bandwidth = 2.039e12,
     .link_bandwidth = 300e9,
     .net_bandwidth = 25e9,
     .host_bandwidth = 25e9,
     .matmul_efficiency = 0.80,
     .attention_efficiency = 0.70,
     .attention_backward_efficiency = 0.60,
     NVIDIA},
    {.name = "h100",
     .flops_f32 = 67e12,
     .flops_bf16 = 989e12,
     .flops_f16 = 989e12,
     .flops_f8 = 1979e12,
     .flops_f4 = 0,
     .memory_bytes = 80e9,
     .memory_bandwidth = 3.35e12,
     .link_bandwidth = 450e9,
     .net_bandwidth = 50e9,
     .host_bandwidth = 50e9,
     .matmul_efficiency = 0.74,
     .attention_efficiency = 0.62,
     .attention_backward_efficiency = 0.52,
     NVIDIA},
    {.name = "h100-500w",
     .flops_f32 = 67e12,
     .flops_bf16 = 989e12,
     .flops_f16 = 989e12,
     .flops_f8 = 1979e12,
     .flops_f4 = 0,
     .memory_bytes = 96e9,
     .memory_bandwidth = 2.4e12,
     .link_bandwidth = 450e9,
     .net_bandwidth = 50e9,
     .host_bandwidth = 50e9,
     .matmul_efficiency = 0.53,
     .attention_efficiency = 0.34,
     .attention_backward_efficiency = 0.185,
     NVIDIA},
    {.name = "h200",
     .flops_f32 = 67e12,
     .flops_bf16 = 989e12,
     .flops_f16 = 989e12,
     .flops_f8 = 1979e12,
     .flops_f4 = 0,
     .memory_bytes = 141e9,
     .memory_bandwidth = 4.8e12,
     .link_bandwidth = 450e9,
     .net_bandwidth = 50e9,
     .host_bandwidth = 50e9,
     .matmul_efficiency = 0.74,
     .attention_efficiency = 0.70,
     .attention_backward_efficiency = 0.60,
     NVIDIA},
    {.name = "b200",
     .flops_f32 = 80e12,
     .flops_bf16 = 2250e12,
     .flops_f16 = 2250e12,
     .flops_f8 = 4500e12,
     .flops_f4 = 9000e12,
     .memory_bytes = 180e9,
     .memory_bandwidth = 8e12,
     .link_bandwidth = 900e9,
     .net_bandwidth = 50e9,
     .host_bandwidth = 50e9,
     .matmul_efficiency = 0.74,
     .attention_efficiency = 0.65,
     .attention_backward_efficiency = 0.50,
     NVIDIA},
    {.name = "mi300x",
     .flops_f32 = 163.4e12,
     .flops_bf16 = 1307e12,
     .flops_f16 = 1307e12,
     .flops_f8 = 2615e12,
     .flops_f4 = 0,
     .memory_bytes = 192e9,
     .memory_bandwidth = 5.3e12,
     .link_bandwidth = 448e9,
     .net_bandwidth = 50e9,
     .host_bandwidth = 50e9,
     .matmul_efficiency = 0.55,
     .attention_efficiency = 0.40,
     .attention_backward_efficiency = 0.30,
     NVIDIA},
};

/* A core of 50 GFLOP/s with 12 and 5 GB/s. Attention's FLOPs, with exponentials among them, take
 * about three times as long as a product's (measured on a CPU with AMX, debugmodel, 256 tokens:
 * replays of traced steps then have the planned bubble within 2 points, bench/parallel/README.md). */
static const tt_ratios order_ratios = {.flop = 1, .attention_flop = 3, .byte = 4, .byte_sent = 10};
const tt_machine tt_machine_order = {.name = "order", .ratios = &order_ratios};

const tt_machine *tt_machine_find(const char *name)
{
    for (size_t i = 0; i < TT_COUNT(machines); i++)
        if (!strcasecmp(machines[i].name, name))
            return &machines[i];
    return NULL;
}

void tt_machine_names(tt_str *out)
{
    for (size_t i = 0; i < TT_COUNT(machines); i++)
        tt_str_printf(out, "%s%s", i ? ", " : "", machines[i].name);
}

double tt_machine_flops(const tt_machine *m, tt_dtype t)
{
    if (tt_dtype_is_float8(t))
        return m->flops_f8;
    return t == TT_BF16 ? m->flops_bf16 : t == TT_F16 ? m->flops_f16 : m->flops_f32;
}
