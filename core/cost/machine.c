/* SPDX-License-Identifier: Apache-2.0 */
#include "cost/cost.h"
#include <string.h>

/* The machines that have a name.
 *
 * Peaks are the vendors' dense numbers (data sheets: NVIDIA H100 SXM, H200 SXM, HGX B200; AMD
 * Instinct MI300X), the network is one 400 Gb/s card per device. Efficiencies are what
 * tuned libraries reach: 0.75 of a large bf16 matmul, 0.5 to 0.6 of attention, 0.85 of the memory's bandwidth. */
#define GPU_EFFICIENCY                                                                             \
    .op_latency = 3e-6, .matmul_efficiency = 0.75, .attention_efficiency = 0.55,                   \
    .memory_efficiency = 0.85, .network_efficiency = 0.8, .link_latency = 8e-6,                    \
    .net_latency = 15e-6, .net_bandwidth = 50e9, .ranks_per_node = 8

static const tt_machine machines[] = {
    {.name = "h100",
     .flops_f32 = 67e12,
     .flops_bf16 = 989e12,
     .flops_f16 = 989e12,
     .memory_bytes = 80e9,
     .memory_bandwidth = 3.35e12,
     .link_bandwidth = 450e9,
     GPU_EFFICIENCY},
    {.name = "h200",
     .flops_f32 = 67e12,
     .flops_bf16 = 989e12,
     .flops_f16 = 989e12,
     .memory_bytes = 141e9,
     .memory_bandwidth = 4.8e12,
     .link_bandwidth = 450e9,
     GPU_EFFICIENCY},
    {.name = "b200",
     .flops_f32 = 80e12,
     .flops_bf16 = 2250e12,
     .flops_f16 = 2250e12,
     .memory_bytes = 180e9,
     .memory_bandwidth = 8e12,
     .link_bandwidth = 900e9,
     GPU_EFFICIENCY},
    {.name = "mi300x",
     .flops_f32 = 163.4e12,
     .flops_bf16 = 1307e12,
     .flops_f16 = 1307e12,
     .memory_bytes = 192e9,
     .memory_bandwidth = 5.3e12,
     .link_bandwidth = 448e9,
     GPU_EFFICIENCY},
};

/* A core of 50 GFLOP/s with 12 and 5 GB/s. Attention's FLOPs, with exponentials among them, take
 * about three times as long as a product's (measured on a CPU with AMX, debugmodel, 256 tokens:
 * replays of traced steps then have the planned bubble within 2 points, bench/parallel/README.md). */
static const tt_ratios order_ratios = {.flop = 1, .attention_flop = 3, .byte = 4, .byte_sent = 10};
const tt_machine tt_machine_order = {.name = "order", .ratios = &order_ratios};

const tt_machine *tt_machine_find(const char *name)
{
    for (size_t i = 0; i < TT_COUNT(machines); i++)
        if (!strcmp(machines[i].name, name))
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
    return t == TT_BF16 ? m->flops_bf16 : t == TT_F16 ? m->flops_f16 : m->flops_f32;
}
