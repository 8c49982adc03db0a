/* SPDX-License-Identifier: Apache-2.0 */
#include "delta_rule.h"

/* The derivative of delta_rule, after delta_inside and delta_keep. delta_back walks over the chunks from the last one on and
 * computes dv and what is passed on along the tokens: with dS' of the state behind the chunk
 *   dD = (Q Kᵀ L)ᵀ dO + e K dS'    dY = (1 + A)^-ᵀ dD    dV = beta dY
 *   dS = m[last] dS' + Qᵀ m dO - Kᵀ m beta dY
 * delta_give has a block for each chunk and group, whose chunks are independent now:
 *   dQ = m dO Sᵀ + W K    W = (dO Dᵀ) L
 *   dK = e D dS'ᵀ - beta m dY Sᵀ + Wᵀ Q + (U + Uᵀ) K    U = -beta (dY Dᵀ) L strictly below the diagonal */

/* ---- along the chunks ---- */

struct back_room {
    delta_room room;
    float y[C][LD]; /* dD, then -m beta dY */
    float m[C], e[C], beta[C];
    alignas(16) float state[1]; /* dS [dk][C], if args.in_shared */
};

/* dY of the chunk: to args.drows and, with its factor, to the room; dv. */
TT_DEV void back_rows(const delta_args &a, const delta_chunk &c, back_room *r, delta_tile s, int e0)
{
    const int row = DELTA_ROW, col = DELTA_COL;
    const float *qk = delta_qk(a, c), *inverse = delta_inverse(a, c);
    float acc[4][4] = {};
    delta_times_tile(
        acc, &r->room, a, [&](int i, int d) { return delta_k(a, c, i, d); }, s, e0);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            acc[i][j] *= r->e[row + i];
    delta_product<true, false>(
        acc, &r->room, C, [&](int i, int k) { return qk[k * C + i]; },
        [&](int k, int e) { return delta_dout(a, c, k, e0 + e); });
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            r->y[row + i][col + j] = acc[i][j];
    delta_clear(acc);
    delta_product<true, false>(
        acc, &r->room, C, [&](int i, int k) { return inverse[k * C + i]; },
        [&](int k, int e) { return r->y[k][e]; });
    tt_sync(); /* nobody reads dD any more */
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            const int x = row + i, e = e0 + col + j;
            r->y[x][col + j] = -r->m[x] * r->beta[x] * acc[i][j];
            if (e >= a.dv_dim)
                continue;
            delta_rows(a, a.drows, c)[(i64)x * a.dv_dim + e] = acc[i][j];
            if (x < c.n)
                tt_store_any(a.dv, delta_gate(a, c, x) * a.dv_dim + e, a.halves & DELTA_V,
                             r->beta[x] * acc[i][j]);
        }
}

/* to = dS, the derivative of the state before the chunk */
TT_DEV void back_advance(const delta_args &a, const delta_chunk &c, back_room *r, delta_tile s,
                         delta_tile to, int e0)
{
    for (int d0 = 0; d0 < a.dk_dim; d0 += C) {
        float acc[4][4] = {};
        delta_product<true, false>(
            acc, &r->room, C, [&](int d, int k) { return delta_q(a, c, k, d0 + d); },
            [&](int k, int e) { return r->m[k] * delta_dout(a, c, k, e0 + e); });
        delta_product<true, false>(
            acc, &r->room, C, [&](int d, int k) { return delta_k(a, c, k, d0 + d); },
            [&](int k, int e) { return r->y[k][e]; });
        delta_pass_on(a, acc, r->m[c.n - 1], s, to, d0, e0);
    }
}

/* A block for each head, tile of columns, and chunk after which no state is read. */
TT_KERNEL(DELTA_ROOMY, delta_back, delta_args a)
{
    back_room *r = (back_room *)tt_shared;
    const int e0 = (int)(blockIdx.x % (u32)a.tiles) * C;
    const i64 last = blockIdx.x / (u32)a.tiles % a.chunks,
              local = blockIdx.x / (u32)a.tiles / a.chunks;
    if (delta_continues(a, (last + 1) * C))
        return; /* the whole block: another one comes along here */
    delta_chunk c = delta_chunk_of(a, last, local);
    delta_tile s = a.in_shared ? delta_tile{r->state, C} : delta_tile_of(a, a.dstates, c, e0);
    delta_copy_tile(a, s, nullptr, e0);
    for (;;) {
        const bool goes_on = delta_continues(a, c.t);
        delta_load_gates(a, c, r);
        if (a.in_shared)
            delta_copy_tile(a, delta_tile_of(a, a.dstates, c, e0), &s, e0);
        back_rows(a, c, r, s, e0);
        if (!goes_on)
            return;
        const delta_chunk next = delta_chunk_of(a, c.c - 1, local);
        const delta_tile to = a.in_shared ? s : delta_tile_of(a, a.dstates, next, e0);
        back_advance(a, c, r, s, to, e0);
        tt_sync(); /* nobody reads the gates any more, and the state is here */
        c = next;
        s = to;
    }
}

/* ---- each chunk ---- */

struct give_room {
    delta_room room;
    float w[C][LD], u[C][LD], f[C][LD]; /* W, U; what the pairs give to G of their later token */
    float m[C], e[C], sum[C], begin[C], beta[C], dbeta[C], ends[C];
    alignas(8) double dsum[C],
        whole[DELTA_THREADS / 32]; /* dsum: the derivative of G, whose terms cancel */
};

TT_DEV void give_gates(const delta_args &a, const delta_chunk &c, give_room *r)
{
    const int x = (int)threadIdx.x;
    tt_sync(); /* nobody reads those of the head before */
    if (x < C) {
        const float *t = delta_tokens(a, c);
        r->m[x] = t[x];
        r->e[x] = t[C + x];
        r->sum[x] = t[2 * C + x];
        r->begin[x] = t[3 * C + x];
        r->beta[x] = delta_beta(a, c, x);
        r->dbeta[x] = r->ends[x] = 0.0f;
        r->dsum[x] = 0.0;
    }
    tt_sync();
}

/* W, U and f, and what the pairs give to beta. */
TT_DEV void give_pairs(const delta_args &a, const delta_chunk &c, give_room *r)
{
    const int row = DELTA_ROW, col = DELTA_COL, dv = a.dv_dim;
    const float *rows = delta_rows(a, a.rows, c), *drows = delta_rows(a, a.drows, c),
                *qk = delta_qk(a, c);
    float p[4][4] = {}, n[4][4] = {}, kk[4][4] = {};
    const auto row_of_d = [&](int e, int j) { return rows[(i64)j * dv + e]; };
    delta_product<false, true>(
        p, &r->room, dv, [&](int i, int e) { return delta_dout(a, c, i, e); }, row_of_d);
    delta_product<false, true>(
        n, &r->room, dv, [&](int i, int e) { return drows[(i64)i * dv + e]; }, row_of_d);
    delta_product<false, true>(
        kk, &r->room, a.dk_dim, [&](int i, int d) { return delta_k(a, c, i, d); },
        [&](int d, int j) { return delta_k(a, c, j, d); });
    for (int i = 0; i < 4; i++) {
        const int x = row + i;
        float dbeta = 0.0f;
        for (int j = 0; j < 4; j++) {
            const int y = col + j;
            const bool same = y <= x && x < c.n && r->begin[x] == r->begin[y];
            const float decay = same ? expf(r->sum[x] - r->sum[y]) : 0.0f,
                        below = y < x ? -n[i][j] * decay : 0.0f;
            r->w[x][y] = p[i][j] * decay;
            r->u[x][y] = r->beta[x] * below;
            r->f[x][y] = (same ? p[i][j] * qk[x * C + y] : 0.0f) + r->beta[x] * below * kk[i][j];
            dbeta = fmaf(below, kk[i][j], dbeta);
        }
        dbeta = delta_row_sum(dbeta);
        if (threadIdx.x % 16 == 0)
            r->dbeta[x] = dbeta;
    }
    tt_sync();
    const int t = (int)threadIdx.x / 4, part = (int)threadIdx.x % 4;
    double sum = 0.0;
    float value = 0.0f;
    for (int j = part; j < C; j += 4)
        sum += (double)r->f[t][j] - (double)r->f[j][t];
    for (int e = part; e < dv; e += 4)
        value = fmaf(drows[(i64)t * dv + e], delta_v(a, c, t, e), value);
    for (int o = 1; o < 4; o *= 2) {
        sum += tt_shuffle_xor(sum, o);
        value += tt_shuffle_xor(value, o);
    }
    if (part == 0) {
        r->dsum[t] = sum;
        r->dbeta[t] += value;
    }
    tt_sync();
}

/* Adds a tile's rows, or stores those of the first head; those of the last one are rounded. */
TT_DEV void give_rows(const delta_args &a, const delta_chunk &c, float *sums, void *to, int half,
                      int d0, const float (*v)[4])
{
    for (int i = 0; i < 4 && DELTA_ROW + i < c.n; i++)
        for (int j = 0; j < 4 && d0 + DELTA_COL + j < a.dk_dim; j++) {
            const i64 at = delta_key(a, c, DELTA_ROW + i) + d0 + DELTA_COL + j;
            const float sum = c.head == 0 ? v[i][j] : sums[at] + v[i][j];
            if (c.head < a.heads - 1)
                sums[at] = sum;
            else
                tt_store_any(to, at, half, sum);
        }
}

/* The sum over columns of x y, of each row, where y has C columns from d0 on: to *to of the row, times f. */
template <class Y, class F> TT_DEV void give_dots(const float (*x)[4], const Y &y, const F &f)
{
    for (int i = 0; i < 4; i++) {
        float sum = 0.0f;
        for (int j = 0; j < 4; j++)
            sum = fmaf(x[i][j], y(DELTA_ROW + i, DELTA_COL + j), sum);
        sum = delta_row_sum(sum);
        if (threadIdx.x % 16 == 0)
            f(DELTA_ROW + i, sum);
    }
}

/* C columns of dq and dk of the head, and what their parts from states give to G and beta. */
TT_DEV void give_keys(const delta_args &a, const delta_chunk &c, give_room *r, int d0)
{
    const int row = DELTA_ROW, dv = a.dv_dim;
    const float *s = delta_state(a, a.states, c), *ds = delta_state(a, a.dstates, c),
                *rows = delta_rows(a, a.rows, c), *drows = delta_rows(a, a.drows, c);
    float dq[4][4] = {}, z[4][4] = {}, dk[4][4] = {};
    const auto state = [&](int e, int d) {
        return d0 + d < a.dk_dim ? s[(i64)(d0 + d) * dv + e] : 0.0f;
    };
    const auto dstate = [&](int e, int d) {
        return d0 + d < a.dk_dim ? ds[(i64)(d0 + d) * dv + e] : 0.0f;
    };
    const auto key = [&](int i, int d) { return delta_k(a, c, i, d0 + d); };
    const auto query = [&](int i, int d) { return delta_q(a, c, i, d0 + d); };
    delta_product<false, true>(
        dq, &r->room, dv, [&](int i, int e) { return delta_dout(a, c, i, e); }, state);
    delta_product<false, true>(
        z, &r->room, dv, [&](int i, int e) { return drows[(i64)i * dv + e]; }, state);
    delta_product<false, true>(
        dk, &r->room, dv, [&](int i, int e) { return rows[(i64)i * dv + e]; }, dstate);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            dq[i][j] *= r->m[row + i];
            z[i][j] *= r->m[row + i];
            dk[i][j] *= r->e[row + i];
        }
    give_dots(dq, query, [&](int i, float x) { r->dsum[i] += (double)x; });
    give_dots(z, key, [&](int i, float x) {
        r->dsum[i] -= (double)(r->beta[i] * x);
        r->dbeta[i] -= x;
    });
    give_dots(dk, key, [&](int i, float x) {
        r->dsum[i] -= (double)x;
        r->ends[i] += x;
    });
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            dk[i][j] = fmaf(-r->beta[row + i], z[i][j], dk[i][j]);
    delta_product<false, false>(
        dq, &r->room, C, [&](int i, int k) { return r->w[i][k]; }, key);
    delta_product<true, false>(
        dk, &r->room, C, [&](int i, int k) { return r->w[k][i]; }, query);
    delta_product<false, false>(
        dk, &r->room, C, [&](int i, int k) { return r->u[i][k] + r->u[k][i]; }, key);
    give_rows(a, c, a.dq_sum, a.dq, a.halves & DELTA_Q, d0, dq);
    give_rows(a, c, a.dk_sum, a.dk, a.halves & DELTA_K, d0, dk);
}

/* dg: the sum of dG over the tokens from t on of its segment; 0 for the first token of a segment. */
TT_DEV void give_dgates(const delta_args &a, const delta_chunk &c, give_room *r)
{
    const float *s = delta_state(a, a.states, c), *ds = delta_state(a, a.dstates, c);
    const int x = (int)threadIdx.x, last = c.n - 1;
    double whole = 0.0;
    for (i64 i = x; i < (i64)a.dk_dim * a.dv_dim; i += DELTA_THREADS)
        whole += (double)s[i] * (double)ds[i];
    whole = tt_warp_sum(whole);
    if (x % 32 == 0)
        r->whole[x / 32] = whole;
    tt_sync();
    if (x == 0) {
        double sum = 0.0;
        for (int i = 0; i < DELTA_THREADS / 32; i++)
            sum += r->whole[i];
        sum *= (double)r->m[last];
        for (int i = 0; i < c.n; i++)
            sum += (double)r->ends[i];
        r->dsum[last] += sum;
    }
    tt_sync();
    if (x >= c.n)
        return;
    double sum = 0.0;
    for (int i = last; i >= x; i--)
        sum += r->begin[i] == r->begin[x] ? r->dsum[i] : 0.0;
    const i64 at = ((c.t + x) * a.groups + c.group) * 2 * a.heads + c.head;
    a.dgates[at] = r->begin[x] == (float)x ? 0.0f : (float)sum;
    a.dgates[at + a.heads] = r->dbeta[x];
}

TT_KERNEL(256, delta_give, delta_args a)
{
    give_room *r = (give_room *)tt_shared;
    const i64 number = blockIdx.x % a.chunks, group = blockIdx.x / a.chunks;
    for (int head = 0; head < a.heads; head++) {
        const delta_chunk c = delta_chunk_of(a, number, group * a.heads + head);
        give_gates(a, c, r);
        give_pairs(a, c, r);
        for (int d0 = 0; d0 < a.dk_dim; d0 += C)
            give_keys(a, c, r, d0);
        tt_sync(); /* all has been added */
        give_dgates(a, c, r);
    }
}
