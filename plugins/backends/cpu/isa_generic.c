/* SPDX-License-Identifier: Apache-2.0 */
/* The level that runs on every machine: four lanes, by GCC's vector extension. */
#define _GNU_SOURCE /* clock_gettime */
#define CPU_LEVEL 0
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

#include "attention_cached_impl.h"

#include "scan_impl.h"

#include "rope_impl.h"

const cpu_isa cpu_isa_generic = {
    .name = "generic",
    .half = &half,
    CPU_ISA_ENTRIES,
};
