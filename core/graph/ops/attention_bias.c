/* SPDX-License-Identifier: Apache-2.0 */
#include "graph/ops/internal.h"
#include <math.h>
#include <stdlib.h>

/* The biases by distance of ALiBi and T5, for tt_attention_opts.bias: functions that build several ops
 * and have no op of their own. Element i of a row belongs to distance i - zero, in tokens from the key
 * on to the query, where zero is 0, and n / 2 if bidirectional. */

static bool bias_size_is_valid(tt_builder *b, const char *what, tt_dim heads, int64_t n)
{
    if (heads.size >= 1 && n >= 1 && n <= INT32_MAX / heads.size)
        return true;
    tt_builder_fail(b, TT_EINVAL, "%s: %lld heads and %lld distances; both must be at least 1",
                    what, (long long)heads.size, (long long)n);
    return false;
}

/* Press et al. 2022, arXiv:2108.12409: for 2^k heads a geometric series that ends at 2^-8; for another
 * number those of the power of two below, then every second one of twice that power. */
static double alibi_slope(int64_t head, int64_t heads)
{
    int64_t power = 1;
    while (power * 2 <= heads)
        power *= 2;
    if (head < power)
        return pow(2.0, -8.0 * (double)(head + 1) / (double)power);
    return pow(2.0, -8.0 * (double)(2 * (head - power) + 1) / (double)(2 * power));
}

tt_value *tt_alibi(tt_builder *b, tt_dim heads, int64_t n, int bidirectional)
{
    const int64_t zero = bidirectional ? n / 2 : 0;
    if (!bias_size_is_valid(b, "alibi", heads, n))
        return NULL;
    float *x = malloc((size_t)(heads.size * n) * sizeof *x);
    if (!x)
        return tt_builder_fail(b, TT_ENOMEM, "alibi: out of memory");
    for (int64_t h = 0; h < heads.size; h++)
        for (int64_t i = 0; i < n; i++)
            x[h * n + i] =
                (float)(-alibi_slope(h, heads.size) * (double)(i < zero ? zero - i : i - zero));
    const tt_dim dims[2] = {heads, TT_DIM(n, NULL)};
    tt_value *bias = tt_const_array(b, x, dims, 2);
    free(x);
    return bias;
}

/* Raffel et al. 2020, arXiv:1910.10683: exact buckets for half of the distances, then logarithmic ones
 * up to max_distance; if bidirectional, the second half of all buckets is for keys after the query. In
 * f32, as PyTorch computes it. */
static int64_t t5_bucket(int64_t distance, int64_t buckets, int64_t max_distance,
                         bool bidirectional)
{
    int64_t first = 0;
    if (bidirectional) {
        buckets /= 2;
        first = distance < 0 ? buckets : 0;
        distance = distance < 0 ? -distance : distance;
    }
    const int64_t exact = buckets / 2;
    if (distance < exact)
        return first + (distance > 0 ? distance : 0);
    const float range = (float)log((double)max_distance / (double)exact);
    const float at = logf((float)distance / (float)exact) / range * (float)(buckets - exact);
    const int64_t bucket = exact + (int64_t)at;
    return first + (bucket < buckets ? bucket : buckets - 1);
}

tt_value *tt_t5_bias(tt_builder *b, const char *name, tt_dim heads, int64_t n,
                     const tt_t5_bias_opts *opts)
{
    static const int perm[2] = {1, 0};
    tt_t5_bias_opts o = {0};
    if (opts)
        o = *opts;
    const int64_t buckets = o.buckets ? o.buckets : 32, far = o.max_distance ? o.max_distance : 128,
                  exact = buckets / (o.bidirectional ? 4 : 2), zero = o.bidirectional ? n / 2 : 0;
    if (!bias_size_is_valid(b, "t5_bias", heads, n))
        return NULL;
    if (exact < 1 || far <= exact || buckets > (1 << 24))
        return tt_builder_fail(
            b, TT_EINVAL,
            "t5_bias %s: %lld buckets up to distance %lld; at least %d buckets and a "
            "distance above %lld are needed",
            name, (long long)buckets, (long long)far, o.bidirectional ? 4 : 2, (long long)exact);
    float *x = malloc((size_t)n * sizeof *x);
    if (!x)
        return tt_builder_fail(b, TT_ENOMEM, "t5_bias: out of memory");
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)t5_bucket(i - zero, buckets, far, o.bidirectional != 0);
    const tt_dim rows[1] = {TT_DIM(n, NULL)}, table[2] = {TT_DIM(buckets, NULL), heads};
    tt_value *bucket = tt_cast(b, tt_const_array(b, x, rows, 1), TT_I32);
    free(x);
    tt_value *learned = tt_param(b, name, table, 2, &(tt_param_opts){.init = o.init});
    return tt_transpose(b, tt_gather(b, learned, bucket), perm);
}
