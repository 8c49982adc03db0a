/* SPDX-License-Identifier: Apache-2.0 */
#include "delta_rule.h"

/* delta_rule in three kernels: delta_inside computes what a chunk and head need of no other chunk; delta_forward walks over
 * the chunks, with a block for each head, tile of C columns of the state, and chunk at which no state comes from
 * before; delta_cached is the form for decoding. The derivative is in delta_rule_bwd.cu. */

/* ---- inside of a chunk ---- */

struct inside_room {
    delta_room room;
    float lower[C][LD], inverse[C][LD]; /* A; (1 + A)^-1 */
    float m[C], e[C], sum[C], begin[C], beta[C], g[C];
};

/* Of each token: the sum of g, the token of the chunk at which its segment begins (-1: before the chunk), m and e. */
TT_DEV void inside_gates(const delta_args &a, const delta_chunk &c, inside_room *r)
{
    const int i = (int)threadIdx.x;
    if (i < C) {
        r->g[i] = i < c.n ? tt_load_any(a.g, delta_gate(a, c, i), a.halves & DELTA_G) : 0.0f;
        r->beta[i] = delta_beta(a, c, i);
        r->begin[i] = i < c.n && !delta_continues(a, c.t + i) ? 1.0f : 0.0f;
    }
    tt_sync();
    if (i == 0) {
        float sum = 0.0f, begin = -1.0f;
        for (int t = 0; t < C; t++) {
            sum = r->begin[t] != 0.0f ? 0.0f : sum + r->g[t];
            begin = r->begin[t] != 0.0f ? (float)t : begin;
            r->sum[t] = sum;
            r->begin[t] = begin;
        }
    }
    tt_sync();
    if (i < C) {
        const bool in = i < c.n, before = r->begin[i] < 0.0f,
                   lasts = r->begin[i] == r->begin[c.n - 1];
        r->m[i] = in && before ? expf(r->sum[i]) : 0.0f;
        r->e[i] = in && lasts ? expf(r->sum[c.n - 1] - r->sum[i]) : 0.0f;
        float *to = delta_tokens(a, c);
        to[i] = r->m[i];
        to[C + i] = r->e[i];
        to[2 * C + i] = r->sum[i];
        to[3 * C + i] = r->begin[i];
    }
}

/* inverse = (1 + lower)^-1 in blocks of EDGE rows and columns: those on the diagonal by forward substitution, a thread a
 * column; then the blocks below it, diagonal by diagonal. Blocks of lower above the diagonal are overwritten. */
constexpr int EDGE = 16, EDGES = C / EDGE;

TT_DEV void inside_invert(inside_room *r)
{
    const int x = (int)threadIdx.x;
    for (int i = x; i < C * C; i += DELTA_THREADS)
        if (i / C / EDGE < i % C / EDGE)
            r->inverse[i / C][i % C] = 0.0f;
    for (int i = 0; x < C && i < EDGE; i++) {
        const int first = x / EDGE * EDGE, row = first + i;
        float v = row == x ? 1.0f : 0.0f;
        for (int l = x; l < row; l++)
            v = fmaf(-r->lower[row][l], r->inverse[l][x], v);
        r->inverse[row][x] = v;
    }
    tt_sync();
    const int row = x / EDGE,
              col = x % EDGE; /* in a block: there are as many elements as threads */
    for (int d = 1; d < EDGES; d++) {
        for (int j = 0; j < EDGES - d; j++) {
            const int above = j * EDGE, below = (j + d) * EDGE;
            float sum = 0.0f;
            for (int k = above; k < below; k++)
                sum = fmaf(r->lower[below + row][k], r->inverse[k][above + col], sum);
            r->lower[above + row][below + col] = sum;
        }
        tt_sync();
        for (int j = 0; j < EDGES - d; j++) {
            const int above = j * EDGE, below = (j + d) * EDGE;
            float sum = 0.0f;
            for (int k = 0; k < EDGE; k++)
                sum =
                    fmaf(r->inverse[below + row][below + k], r->lower[above + k][below + col], sum);
            r->inverse[below + row][above + col] = -sum;
        }
        tt_sync();
    }
}

TT_KERNEL(DELTA_ROOMY, delta_inside, delta_args a)
{
    inside_room *r = (inside_room *)tt_shared;
    const delta_chunk c = delta_chunk_of(a, blockIdx.x % a.chunks, blockIdx.x / a.chunks);
    const int row = DELTA_ROW, col = DELTA_COL;
    float qk[4][4] = {}, kk[4][4] = {};
    inside_gates(a, c, r);
    const auto key = [&](int d, int j) { return delta_k(a, c, j, d); };
    delta_product<false, true>(
        qk, &r->room, a.dk_dim, [&](int i, int d) { return delta_q(a, c, i, d); }, key);
    delta_product<false, true>(
        kk, &r->room, a.dk_dim, [&](int i, int d) { return delta_k(a, c, i, d); }, key);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            const int x = row + i, y = col + j;
            const bool same = y <= x && x < c.n && r->begin[x] == r->begin[y];
            const float decay = same ? expf(r->sum[x] - r->sum[y]) : 0.0f;
            delta_qk(a, c)[x * C + y] = same ? qk[i][j] * decay : 0.0f;
            r->lower[x][y] = same && y < x ? r->beta[x] * kk[i][j] * decay : 0.0f;
        }
    tt_sync();
    inside_invert(r); /* ends with a barrier */
    for (int i = (int)threadIdx.x; i < C * C; i += DELTA_THREADS)
        delta_inverse(a, c)[i] = r->inverse[i / C][i % C];
}

/* ---- along the chunks ---- */

struct walk_room {
    delta_room room;
    float y[C][LD], d[C][LD];
    float m[C], e[C], beta[C];
    alignas(16) float state[1]; /* [dk][C], if args.in_shared */
};

/* D of the chunk, from the state before it; rows that are kept go to args.rows. */
template <bool KEEP>
TT_DEV void walk_rows(const delta_args &a, const delta_chunk &c, walk_room *r, delta_tile s, int e0)
{
    const int row = DELTA_ROW, col = DELTA_COL;
    const float *inverse = delta_inverse(a, c);
    float acc[4][4] = {};
    delta_times_tile(
        acc, &r->room, a, [&](int i, int d) { return delta_k(a, c, i, d); }, s, e0);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            r->y[row + i][col + j] = r->beta[row + i] * (delta_v(a, c, row + i, e0 + col + j) -
                                                         r->m[row + i] * acc[i][j]);
    delta_clear(acc);
    delta_product<false, false>(
        acc, &r->room, C, [&](int i, int k) { return inverse[i * C + k]; },
        [&](int k, int e) { return r->y[k][e]; });
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++) {
            r->d[row + i][col + j] = acc[i][j];
            if (KEEP && e0 + col + j < a.dv_dim)
                delta_rows(a, a.rows, c)[(i64)(row + i) * a.dv_dim + e0 + col + j] = acc[i][j];
        }
}

TT_DEV void walk_output(const delta_args &a, const delta_chunk &c, walk_room *r, delta_tile s,
                        int e0)
{
    const int row = DELTA_ROW, col = DELTA_COL;
    const float *qk = delta_qk(a, c);
    float acc[4][4] = {};
    delta_times_tile(
        acc, &r->room, a, [&](int i, int d) { return delta_q(a, c, i, d); }, s, e0);
    for (int i = 0; i < 4; i++)
        for (int j = 0; j < 4; j++)
            acc[i][j] *= r->m[row + i];
    delta_product<false, false>(
        acc, &r->room, C, [&](int i, int k) { return qk[i * C + k]; },
        [&](int k, int e) { return r->d[k][e]; });
    for (int i = 0; i < 4 && row + i < c.n; i++)
        for (int j = 0; j < 4 && e0 + col + j < a.dv_dim; j++)
            tt_store_any(a.out, delta_gate(a, c, row + i) * a.dv_dim + e0 + col + j,
                         a.halves & DELTA_OUT, acc[i][j]);
}

/* to = m[last] s + Kᵀ e D */
TT_DEV void walk_advance(const delta_args &a, const delta_chunk &c, walk_room *r, delta_tile s,
                         delta_tile to, int e0)
{
    for (int d0 = 0; d0 < a.dk_dim; d0 += C) {
        float acc[4][4] = {};
        delta_product<true, false>(
            acc, &r->room, C, [&](int d, int k) { return delta_k(a, c, k, d0 + d); },
            [&](int k, int e) { return r->e[k] * r->d[k][e]; });
        delta_pass_on(a, acc, r->m[c.n - 1], s, to, d0, e0);
    }
}

/* KEEP: for the derivative: states before each chunk and rows D are kept, and there is no output. */
template <bool KEEP> TT_DEV void walk(const delta_args &a)
{
    walk_room *r = (walk_room *)tt_shared;
    const int e0 = (int)(blockIdx.x % (u32)a.tiles) * C;
    const i64 first = blockIdx.x / (u32)a.tiles % a.chunks,
              local = blockIdx.x / (u32)a.tiles / a.chunks;
    if (delta_continues(a, first * C))
        return; /* the whole block: another one comes along here */
    delta_chunk c = delta_chunk_of(a, first, local);
    delta_tile s = a.in_shared ? delta_tile{r->state, C} : delta_tile_of(a, a.states, c, e0);
    delta_copy_tile(a, s, nullptr, e0);
    for (;;) {
        const bool goes_on = delta_continues(a, c.t + C);
        delta_load_gates(a, c, r);
        if (KEEP && a.in_shared)
            delta_copy_tile(a, delta_tile_of(a, a.states, c, e0), &s, e0);
        walk_rows<KEEP>(a, c, r, s, e0);
        if (!KEEP)
            walk_output(a, c, r, s, e0);
        if (!goes_on)
            return;
        const delta_chunk next = delta_chunk_of(a, c.c + 1, local);
        const delta_tile to = KEEP && !a.in_shared ? delta_tile_of(a, a.states, next, e0) : s;
        walk_advance(a, c, r, s, to, e0);
        tt_sync(); /* nobody reads the gates any more, and the state is here */
        c = next;
        s = to;
    }
}

TT_KERNEL(DELTA_ROOMY, delta_forward, delta_args a)
{
    walk<false>(a);
}
TT_KERNEL(DELTA_ROOMY, delta_keep, delta_args a)
{
    walk<true>(a);
}

/* ---- decoding ---- */

enum { CACHED_COLS = 32, CACHED_PARTS = DELTA_THREADS / CACHED_COLS };

struct cached_room {
    float known[CACHED_PARTS][CACHED_COLS + 1], out[CACHED_PARTS][CACHED_COLS + 1];
    alignas(16) float keys
        [1]; /* [2][dk]: k and q; then the state [dk][CACHED_COLS], if args.in_shared */
};

TT_DEV bool cached_is(const delta_args &a, i64 t) /* is the token of a sequence? */
{
    return a.seg[t] >= 0 && a.seg[t] < a.slots && a.pos[t] >= 0;
}

/* One token of a column and a part of the rows: S, and out. */
TT_DEV void cached_token(const delta_args &a, const delta_chunk &c, cached_room *r, delta_tile s,
                         int e0)
{
    const int col = (int)threadIdx.x % CACHED_COLS, part = (int)threadIdx.x / CACHED_COLS,
              n = a.dk_dim;
    const float *k = r->keys, *q = r->keys + n;
    const bool in = e0 + col < a.dv_dim, begins = a.pos[c.t] == 0;
    const float decay =
        begins ? 0.0f : expf(tt_load_any(a.g, delta_gate(a, c, 0), a.halves & DELTA_G));
    float known = 0.0f, out = 0.0f, sum = 0.0f;
    for (int d = part; in && !begins && d < n; d += CACHED_PARTS)
        known = fmaf(s.at[(i64)d * s.ld + col], k[d], known);
    r->known[part][col] = known;
    tt_sync();
    for (int p = 0; p < CACHED_PARTS; p++)
        sum += r->known[p][col];
    const float delta = delta_beta(a, c, 0) * (delta_v(a, c, 0, e0 + col) - decay * sum);
    for (int d = part; in && d < n; d += CACHED_PARTS) {
        float *at = s.at + (i64)d * s.ld + col;
        *at = fmaf(k[d], delta, begins ? 0.0f : decay * *at);
        out = fmaf(*at, q[d], out);
    }
    r->out[part][col] = out;
    tt_sync();
    if (part == 0 && in) {
        for (int p = 1; p < CACHED_PARTS; p++)
            out += r->out[p][col];
        tt_store_any(a.out, delta_gate(a, c, 0) * a.dv_dim + e0 + col, a.halves & DELTA_OUT, out);
    }
}

/* A block for each head, CACHED_COLS columns and token (blockIdx.y): that of the first token of a sequence goes through
 * all tokens of the sequence, in order. A slot that the state has no room for is no sequence; its output is 0. */
TT_KERNEL(DELTA_ROOMY, delta_cached, delta_args a)
{
    cached_room *r = (cached_room *)tt_shared;
    const int e0 = (int)(blockIdx.x % (u32)a.tiles) * CACHED_COLS, x = (int)threadIdx.x;
    const i64 local = blockIdx.x / (u32)a.tiles, first = blockIdx.y;
    delta_chunk c = delta_chunk_of(a, 0, local);
    c.n = 1;
    c.t = first;
    if (!cached_is(a, first)) {
        if (x < CACHED_COLS && e0 + x < a.dv_dim)
            tt_store_any(a.out, delta_gate(a, c, 0) * a.dv_dim + e0 + x, a.halves & DELTA_OUT,
                         0.0f);
        return;
    }
    for (i64 t = first - 1; t >= 0; t--)
        if (a.seg[t] == a.seg[first] && cached_is(a, t))
            return; /* the whole block */
    float *state = a.state + ((i64)a.seg[first] * a.groups * a.heads + c.group * a.heads + c.head) *
                                 a.dk_dim * a.dv_dim;
    const delta_tile whole = {state + e0, a.dv_dim},
                     s = a.in_shared ? delta_tile{r->keys + 2 * a.dk_dim, CACHED_COLS} : whole;
    const int width = a.dv_dim - e0 < CACHED_COLS ? a.dv_dim - e0 : CACHED_COLS;
    for (int i = x; a.in_shared && i < a.dk_dim * width; i += DELTA_THREADS)
        s.at[i / width * s.ld + i % width] = whole.at[(i64)(i / width) * whole.ld + i % width];
    for (; c.t < a.tokens; c.t++) {
        if (a.seg[c.t] != a.seg[first] || !cached_is(a, c.t))
            continue;
        tt_sync(); /* nobody reads keys any more, and the state is here */
        for (int d = x; d < a.dk_dim; d += DELTA_THREADS) {
            r->keys[d] = delta_k(a, c, 0, d);
            r->keys[a.dk_dim + d] = delta_q(a, c, 0, d);
        }
        tt_sync();
        cached_token(a, c, r, s, e0);
    }
    tt_sync();
    for (int i = x; a.in_shared && i < a.dk_dim * width; i += DELTA_THREADS)
        whole.at[(i64)(i / width) * whole.ld + i % width] = s.at[i / width * s.ld + i % width];
}
