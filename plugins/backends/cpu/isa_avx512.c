/* SPDX-License-Identifier: Apache-2.0 */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
#define _GNU_SOURCE /* clock_gettime */
#define CPU_LEVEL 5
#include "vec.h"
#include "vec_double.h"
#include "vec_math.h"

#include "pointwise_impl.h"

#include "convert_impl.h"

#include "chain_impl.h"

#include "rows_impl.h"

#include "norm_impl.h"

#include "gemm_impl.h"

#include "gemm_few_impl.h"

#include "check_impl.h"

#include "half_impl.h"

#include "attention_tile_impl.h"

#include "attention_drop_impl.h"

#include "attention_impl.h"

#include "attention_bwd_impl.h"

#include "attention_amx_impl.h"

#include "attention_cached_impl.h"

#include "scan_impl.h"

#include "rope_impl.h"

const cpu_isa cpu_isa_avx512 = {
    .name = "avx512",
    .half = &half,
    CPU_ISA_ENTRIES,
};

/* The same, except for what AMX tiles compute. */
const cpu_isa cpu_isa_amx = {
    .name = "amx",
    .half = &cpu_half_amx,
    .bf16x6 = &cpu_tiles_bf16x6,
    .attn_tiles = &six_tiles,
    CPU_ISA_ENTRIES,
};
#else
typedef int cpu_no_avx512; /* another architecture */
#endif
