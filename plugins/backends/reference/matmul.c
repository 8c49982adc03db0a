/* SPDX-License-Identifier: Apache-2.0 */
#include "reference.h"

/* Products of matrices, and of rows that are grouped by expert. */

/* o[m,n] = Σ_k a[m,k] b[k,n]; each operand is given by the distances of its rows and of its
 * columns */
typedef struct view {
    const tt_tensor *t;
    int64_t at, row, column;
} view;

enum { N_SUMS = 32 };

/* sum[w] += x b[in + w * distance] for `width` sums. */
static void add_row(double *sum, double x, const tt_tensor *b, int64_t in, int64_t distance,
                    int64_t width)
{
    const float *f = b->dtype == TT_F32 ? (const float *)b->data + in : NULL;
    if (!f)
        for (int64_t w = 0; w < width; w++)
            sum[w] += x * ref_load_any(b, in + w * distance);
    else if (distance == 1)
        for (int64_t w = 0; w < width; w++)
            sum[w] += x * (double)f[w];
    else
        for (int64_t w = 0; w < width; w++)
            sum[w] += x * (double)f[w * distance];
}

/* Some sums of a row are made side by side, so that none waits for its own last addition; each has its
 * terms in order. */
static void sum_product(view o, view a, view b, int64_t m, int64_t n, int64_t k, bool add)
{
    for (int64_t i = 0; i < m; i++)
        for (int64_t j = 0; j < n; j += N_SUMS) {
            const int64_t width = n - j < N_SUMS ? n - j : N_SUMS;
            const int64_t out = o.at + i * o.row + j * o.column;
            double sum[N_SUMS];
            for (int64_t w = 0; w < width; w++)
                sum[w] = add ? ref_load(o.t, out + w * o.column) : 0.0;
            for (int64_t l = 0; l < k; l++)
                add_row(sum, ref_load(a.t, a.at + i * a.row + l * a.column), b.t,
                        b.at + l * b.row + j * b.column, b.column, width);
            for (int64_t w = 0; w < width; w++)
                ref_store(o.t, out + w * o.column, sum[w]);
        }
}

static void product(view o, view a, view b, int64_t m, int64_t n, int64_t k)
{
    sum_product(o, a, b, m, n, k, false);
}

static view plain(const tt_tensor *t, int64_t at, int64_t width)
{
    return (view){.t = t, .at = at, .row = width, .column = 1};
}

static view swapped(const tt_tensor *t, int64_t at, int64_t width)
{
    return (view){.t = t, .at = at, .row = 1, .column = width};
}

tt_status ref_linear(void *backend, const tt_kernel_call *c, tt_error *err) /* x [T,i] w [o,i] */
{
    int64_t t = c->in[0].shape[0], i = c->in[0].shape[1], o = c->in[1].shape[0];
    (void)backend, (void)err;
    product(plain(&c->out[0], 0, o), plain(&c->in[0], 0, i), swapped(&c->in[1], 0, i), t, o, i);
    return TT_OK;
}

tt_status ref_linear_dx(void *backend, const tt_kernel_call *c,
                        tt_error *err) /* dy [T,o] w [o,i] */
{
    int64_t t = c->in[0].shape[0], o = c->in[0].shape[1], i = c->in[1].shape[1];
    (void)backend, (void)err;
    product(plain(&c->out[0], 0, i), plain(&c->in[0], 0, o), plain(&c->in[1], 0, i), t, i, o);
    return TT_OK;
}

tt_status ref_linear_dw(void *backend, const tt_kernel_call *c,
                        tt_error *err) /* dy [T,o] x [T,i] */
{
    int64_t t = c->in[0].shape[0], o = c->in[0].shape[1], i = c->in[1].shape[1];
    (void)backend, (void)err;
    product(plain(&c->out[0], 0, i), swapped(&c->in[0], 0, o), plain(&c->in[1], 0, i), o, i, t);
    return TT_OK;
}

/* x [T,H*i], w [H*p,R]: of each head's p rows of w, rows [begin, begin + n), or their transpose. */
tt_status ref_linear_heads(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_heads *a = c->attrs;
    const tt_tensor *x = &c->in[0], *w = &c->in[1], *y = &c->out[0];
    const int64_t latent = w->shape[1], k = a->trans ? latent : a->n, n = a->trans ? a->n : latent;
    (void)backend, (void)err;
    for (int64_t h = 0; h < w->shape[0] / a->unit; h++) {
        const int64_t at = (h * a->unit + a->begin) * latent;
        sum_product(plain(y, h * n, y->shape[1]), plain(x, h * k, x->shape[1]),
                    a->trans ? swapped(w, at, latent) : plain(w, at, latent), x->shape[0], n, k,
                    c->accumulate != 0);
    }
    return TT_OK;
}

tt_status ref_matmul(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_attrs_matmul *a = c->attrs;
    const tt_tensor *x = &c->in[0], *y = &c->in[1], *o = &c->out[0];
    int s = x->n_dims - 2;
    int64_t batches = 1;
    for (int d = 0; d < s; d++)
        batches *= x->shape[d];
    int64_t m = o->shape[s], n = o->shape[s + 1], k = x->shape[s + !a->trans_a];
    (void)backend, (void)err;
    for (int64_t z = 0; z < batches; z++) {
        view va = a->trans_a ? swapped(x, z * m * k, m) : plain(x, z * m * k, k);
        view vb = a->trans_b ? swapped(y, z * k * n, k) : plain(y, z * k * n, n);
        product(plain(o, z * m * n, n), va, vb, m, n, k);
    }
    return TT_OK;
}

/* Sets *begin to the first row of expert e of group g, and returns the number of its rows. counts [E], or
 * [G,P,E]: the rows are G·P equal parts, of which part (g, p) has those of E/P experts; an expert has the sum
 * over P. */
static int64_t expert_rows(const tt_tensor *counts, int64_t g, int64_t e, int64_t rows,
                           int64_t *begin)
{
    const bool grouped = counts->n_dims == 3;
    const int64_t groups = grouped ? counts->shape[0] : 1, senders = grouped ? counts->shape[1] : 1,
                  experts = counts->shape[grouped ? 2 : 0],
                  local = grouped ? counts->global[2] / counts->global[1] : experts,
                  bins = experts / local, each = rows / (groups * bins);
    int64_t at = 0, n = 0;
    for (int64_t i = e / local * local; i <= e; i++) {
        at += n;
        n = 0;
        for (int64_t p = 0; p < senders; p++) {
            const int64_t here = ref_index(counts, (g * senders + p) * experts + i);
            n += here > 0 ? here : 0;
        }
        n = n > each - at ? each - at : n;
    }
    *begin = (g * bins + e / local) * each + at;
    return n;
}

static int64_t n_groups(const tt_tensor *counts)
{
    return counts->n_dims == 3 ? counts->shape[0] : 1;
}

tt_status ref_grouped_linear(void *backend, const tt_kernel_call *c,
                             tt_error *err) /* x [R,i] w [E,o,i] */
{
    const tt_tensor *x = &c->in[0], *w = &c->in[1];
    int64_t rows = x->shape[0], i = x->shape[1], o = w->shape[1], at = 0;
    (void)backend, (void)err;
    ref_clear(&c->out[0]);
    for (int64_t z = 0; z < n_groups(&c->in[2]) * w->shape[0]; z++) {
        const int64_t g = z / w->shape[0], e = z % w->shape[0];
        int64_t n = expert_rows(&c->in[2], g, e, rows, &at);
        product(plain(&c->out[0], at * o, o), plain(x, at * i, i), swapped(w, e * o * i, i), n, o,
                i);
    }
    return TT_OK;
}

tt_status ref_grouped_linear_dx(void *backend, const tt_kernel_call *c,
                                tt_error *err) /* dy [R,o] w [E,o,i] */
{
    const tt_tensor *dy = &c->in[0], *w = &c->in[1];
    int64_t rows = dy->shape[0], o = dy->shape[1], i = w->shape[2], at = 0;
    (void)backend, (void)err;
    ref_clear(&c->out[0]);
    for (int64_t z = 0; z < n_groups(&c->in[2]) * w->shape[0]; z++) {
        const int64_t g = z / w->shape[0], e = z % w->shape[0];
        int64_t n = expert_rows(&c->in[2], g, e, rows, &at);
        product(plain(&c->out[0], at * i, i), plain(dy, at * o, o), plain(w, e * o * i, i), n, i,
                o);
    }
    return TT_OK;
}

tt_status ref_grouped_linear_dw(void *backend, const tt_kernel_call *c,
                                tt_error *err) /* dy [R,o] x [R,i] → [E,o,i] */
{
    const tt_tensor *dy = &c->in[0], *x = &c->in[1];
    int64_t rows = dy->shape[0], o = dy->shape[1], i = x->shape[1], at = 0;
    (void)backend, (void)err;
    for (int64_t z = 0; z < n_groups(&c->in[2]) * c->out[0].shape[0]; z++) {
        const int64_t g = z / c->out[0].shape[0], e = z % c->out[0].shape[0];
        int64_t n = expert_rows(&c->in[2], g, e, rows, &at);
        sum_product(plain(&c->out[0], e * o * i, i), swapped(dy, at * o, o), plain(x, at * i, i), o,
                    i, n, g > 0);
    }
    return TT_OK;
}

tt_status ref_expert_count(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *assign = &c->in[0];
    (void)backend, (void)err;
    for (int64_t e = 0; e < c->out[0].shape[0]; e++) {
        double n = 0.0;
        for (int64_t s = 0; s < tt_tensor_numel(assign); s++)
            n += ref_index(assign, s) == e;
        ref_store(&c->out[0], e, n);
    }
    return TT_OK;
}

/* The slots of each expert in ascending order; slots of no expert come last. */
tt_status ref_expert_sort(void *backend, const tt_kernel_call *c, tt_error *err)
{
    const tt_tensor *assign = &c->in[0];
    int64_t slots = tt_tensor_numel(assign), experts = c->out[1].shape[0], at = 0;
    int32_t *order = c->out[0].data, *counts = c->out[1].data;
    (void)backend, (void)err;
    for (int64_t e = 0; e <= experts; e++) {
        int64_t first = at;
        for (int64_t s = 0; s < slots; s++) {
            int64_t is = ref_index(assign, s);
            if (e < experts ? is == e : is < 0 || is >= experts)
                order[at++] = (int32_t)s;
        }
        if (e < experts)
            counts[e] = (int32_t)(at - first);
    }
    return TT_OK;
}
