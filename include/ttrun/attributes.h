/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_ATTRIBUTES_H
#define TTRUN_ATTRIBUTES_H
#include <ttrun/op.h>

/* The attributes of the core's ops, as the table of ops.h names them: what a node has besides its operands, and what a
 * kernel finds in tt_kernel_call.attrs. */

/* Equal attributes are equal bytes (op.h), so no struct has padding: it is a member that is 0. */
typedef struct tt_attrs_dims { /* all dims of the output, or in dims[0] the one the table names */
    int32_t n_dims;
    int32_t reserved; /* 0 */
    tt_dim dims[TT_MAX_DIMS];
} tt_attrs_dims;
typedef struct tt_attrs_matmul {
    int32_t trans_a, trans_b; /* 1: the last two dims of a (b) are swapped first */
} tt_attrs_matmul;
typedef struct tt_attrs_norm {
    double eps;
} tt_attrs_norm;
typedef struct tt_attrs_rope {
    tt_rope_opts opts; /* with the defaults filled in: here a zero means zero */
    int32_t inverse;   /* 1: rotate by the negative angle, as the derivative does */
    int32_t reserved;  /* 0 */
} tt_attrs_rope;
typedef struct tt_attrs_attention {
    int64_t head_dim, v_head_dim;
    int64_t window; /* 0 = none */
    double softcap; /* 0 = none */
    double scale;
    int32_t bidirectional;
    /* For the sharding rule alone; a kernel ignores both. ring: the number of ranks that share a
     * sequence, 0 = no ring. Each has its piece of the queries and the keys of the rank ring_step
     * further. */
    int32_t ring, ring_step;
    int32_t bias;     /* 1: the last operand is bias, see above */
    int32_t own_keys; /* for the graph alone: pos_k and seg_k are not the queries' (no decoding) */
    int32_t chunk;    /* > 0: for the graph alone: pos and seg are of chunks of so many positions */
    /* > 0: the core promises that queries and keys are the same tokens, in runs of `line`, and that
     * each run is one segment with the positions 0 … line - 1; a kernel need not look. 0: pos and seg
     * may say anything. */
    int64_t line;
    double dropout;  /* > 0: the last operand is token_index, see above */
    uint64_t stream; /* of dropout's random numbers: tt_random_stream() of its name */
} tt_attrs_attention;
/* How many operands dropout adds to a call of attention or of its derivatives. */
static inline int tt_attention_drops(const tt_attrs_attention *a)
{
    return a->dropout > 0.0;
}
#define TT_CACHE_BLOCK                                                                             \
    32 /* positions per block of attention_cached's keys; caches have whole blocks */
typedef struct tt_attrs_reduce {
    int32_t dim, keep;
} tt_attrs_reduce;
typedef struct tt_attrs_cumsum {
    int32_t dim, reverse, exclusive;
} tt_attrs_cumsum;
typedef struct tt_attrs_arg {
    int32_t dim, keep;
    int32_t smallest; /* 1: the index of the smallest element */
} tt_attrs_arg;
typedef struct tt_attrs_roll {
    int32_t dim;
    int32_t reserved; /* 0 */
    int64_t shift;    /* from 0 to below dim's size */
} tt_attrs_roll;
typedef struct tt_attrs_perm {
    int32_t perm[TT_MAX_DIMS];
} tt_attrs_perm;
typedef struct tt_attrs_slice {
    int32_t dim;
    int32_t reserved; /* 0 */
    int64_t begin, end;
    tt_dim full; /* slice_bwd: the dim before slice */
} tt_attrs_slice;
typedef struct tt_attrs_concat {
    int32_t dim;
} tt_attrs_concat;
typedef struct tt_attrs_random {
    tt_attrs_dims dims;
    const char *stream;
    int32_t normal;
    int32_t reserved; /* 0 */
} tt_attrs_random;
/* random_keys: row i of dim 0 has the stream streams[i], a hash of a name. The array outlives the
 * graph. */
typedef struct tt_attrs_random_keys {
    tt_attrs_dims dims;
    int64_t n_streams; /* the size of dim 0 */
    const uint64_t *streams;
} tt_attrs_random_keys;
typedef struct tt_attrs_const {
    double value;
    tt_dtype dtype;
    int32_t reserved; /* 0 */
} tt_attrs_const;
typedef struct tt_attrs_cast {
    tt_dtype to;
} tt_attrs_cast;
typedef struct tt_attrs_scale {
    double factor;
} tt_attrs_scale;

#endif
