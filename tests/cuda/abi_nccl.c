/* SPDX-License-Identifier: Apache-2.0 */
/* Compares our prototypes and values with NCCL's header, when it is compiled: tests/cuda/test_abi.sh. */
#include <nccl.h>
#define NCCL_OTHER_TYPES
#include "api.h"

/* The type of our pointer is that of the address of NCCL's function; its f() is our f(void). */
#define SAME(result, name, parameters)                                                             \
    _Static_assert(                                                                                \
        __builtin_types_compatible_p(__typeof__(((nccl_api *)0)->name), __typeof__(&name)),        \
        #name ": our prototype differs from NCCL's");
NCCL_FUNCTIONS(SAME)
#if NCCL_VERSION_CODE >= NCCL_VERSION(2, 19, 0)
NCCL_OPTIONAL(SAME)
#endif

#define VALUE(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is not " #theirs);
VALUE(NCCL_SUCCESS, ncclSuccess)
VALUE(NCCL_INVALID_ARGUMENT, ncclInvalidArgument)
VALUE(NCCL_INVALID_USAGE, ncclInvalidUsage)
VALUE(NCCL_IN_PROGRESS, ncclInProgress)
VALUE(NCCL_UINT8, ncclUint8)
VALUE(NCCL_INT32, ncclInt32)
VALUE(NCCL_INT64, ncclInt64)
VALUE(NCCL_FLOAT16, ncclFloat16)
VALUE(NCCL_FLOAT32, ncclFloat32)
VALUE(NCCL_FLOAT64, ncclFloat64)
VALUE(NCCL_BFLOAT16, ncclBfloat16)
VALUE(NCCL_SUM, ncclSum)
VALUE(NCCL_MAX, ncclMax)
VALUE(NCCL_UNDEFINED, NCCL_CONFIG_UNDEF_INT)
VALUE(NCCL_OLDEST, NCCL_VERSION(2, 18, 0))

static const ncclConfig_t theirs = NCCL_CONFIG_INITIALIZER;
#define FIELD(ours, of_theirs)                                                                     \
    _Static_assert(offsetof(nccl_settings, ours) == offsetof(ncclConfig_t, of_theirs),             \
                   "ncclConfig_t." #of_theirs " lies elsewhere");
FIELD(size, size)
FIELD(magic, magic)
FIELD(version, version)
FIELD(blocking, blocking)
FIELD(cga_cluster_size, cgaClusterSize)
FIELD(min_ctas, minCTAs)
FIELD(max_ctas, maxCTAs)
FIELD(net_name, netName)
FIELD(split_share, splitShare)
_Static_assert(sizeof(nccl_settings) <= sizeof theirs, "ncclConfig_t became smaller");
_Static_assert(sizeof(ncclUniqueId) == 128, "ncclUniqueId has another size");
