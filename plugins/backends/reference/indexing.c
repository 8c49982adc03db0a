/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"
#include <math.h>
#include <string.h>
#include <ttrun/codes.h>

/* Rows by index, read or added to, and the k largest elements of a row. */

static int64_t row_size(const tt_tensor *t)
{
    int64_t n = 1;
    for (int d = 1; d < t->n_dims; d++)
        n *= t->shape[d];
    return n;
}

/* out[i] = x[idx[i] - first], zeros if the row is not on this rank */
static void read_rows(const tt_tensor *x, const tt_tensor *idx, int64_t first, const tt_tensor *out)
{
    int64_t n = row_size(x);
    size_t bytes = (size_t)n * tt_dtype_size(x->dtype);
    for (int64_t i = 0; i < idx->shape[0]; i++) {
        int64_t r = ref_index(idx, i) - first;
        char *to = (char *)out->data + (size_t)i * bytes;
        if (r >= 0 && r < x->shape[0])
            memcpy(to, (const char *)x->data + (size_t)r * bytes, bytes);
        else
            memset(to, 0, bytes);
    }
}

/* out[r] = Σ of the x[i] with idx[i] - first = r. It works element by element so that each sum is
 * f64. */
static void add_rows(const tt_tensor *x, const tt_tensor *idx, int64_t first, const tt_tensor *out)
{
    int64_t n = row_size(x);
    for (int64_t r = 0; r < out->shape[0]; r++)
        for (int64_t j = 0; j < n; j++) {
            double sum = 0.0;
            for (int64_t i = 0; i < idx->shape[0]; i++)
                if (ref_index(idx, i) - first == r)
                    sum += ref_load(x, i * n + j);
            ref_store(out, r * n + j, sum);
        }
}

tt_status ref_embedding(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    read_rows(&c->in[1], &c->in[0], c->in[1].begin[0], &c->out[0]);
    return TT_OK;
}

tt_status ref_embedding_dw(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    add_rows(&c->in[1], &c->in[0], c->out[0].begin[0], &c->out[0]);
    return TT_OK;
}

tt_status ref_gather(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    read_rows(&c->in[0], &c->in[1], c->in[0].begin[0], &c->out[0]);
    return TT_OK;
}

tt_status ref_scatter_add(void *backend, const tt_kernel_call *c, tt_error *err)
{
    (void)backend, (void)err;
    add_rows(&c->in[0], &c->in[1], c->out[0].begin[0], &c->out[0]);
    return TT_OK;
}

/* Does element a of a row, at index i, come before element b at index j? The larger first, then the
 * lower index; NaNs after all others. */
static bool comes_before(double a, int64_t i, double b, int64_t j)
{
    if (a == b || (isnan(a) && isnan(b)))
        return i < j;
    return isnan(b) || a > b;
}

tt_status ref_top_k(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *x = &c->in[0];
    int64_t n = x->shape[x->n_dims - 1], k = c->out[0].shape[x->n_dims - 1],
            rows = n > 0 ? tt_tensor_numel(x) / n : 0;
    int32_t *index = c->out[1].data;
    (void)backend, (void)err;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0, last = -1; i < k; i++) {
            int64_t best = -1;
            for (int64_t j = 0; j < n; j++) { /* the first of those that come after the last */
                const double v = ref_load(x, r * n + j);
                if ((last < 0 || comes_before(ref_load(x, r * n + last), last, v, j)) &&
                    (best < 0 || comes_before(v, j, ref_load(x, r * n + best), best)))
                    best = j;
            }
            last = best;
            index[r * k + i] = (int32_t)best;
            ref_store(&c->out[0], r * k + i, ref_load(x, r * n + best));
        }
    return TT_OK;
}

tt_status ref_top_k_bwd(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *idx = &c->in[0], *o = &c->out[0];
    int64_t k = idx->shape[idx->n_dims - 1], n = o->shape[o->n_dims - 1],
            rows = k > 0 ? tt_tensor_numel(idx) / k : 0;
    (void)backend, (void)err;
    ref_clear(o);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t i = 0; i < k; i++) {
            int64_t at = ref_index(idx, r * k + i);
            if (at >= 0 && at < n)
                ref_store(o, r * n + at, ref_load(&c->in[1], r * k + i));
        }
    return TT_OK;
}

/* codes [o,n,32] or [o,i], absmax [o,n] → [o,n,64] or [o,i] */
tt_status ref_decode_codes(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_codes *a = c->attrs;
    const tt_tensor *x = &c->in[0];
    const int64_t bytes = x->shape[1] * (a->format == TT_CODES_NF4 ? x->shape[2] : 1),
                  cols = a->format == TT_CODES_NF4 ? 2 * bytes : bytes;
    (void)backend, (void)err;
    for (int64_t r = 0; r < x->shape[0]; r++)
        for (int64_t k = 0; k < cols; k++)
            ref_store(
                &c->out[0], r * cols + k,
                (double)tt_codes_value((tt_codes)a->format, (const uint8_t *)x->data + r * bytes,
                                       (const float *)c->in[1].data + r * c->in[1].shape[1], k));
    return TT_OK;
}
