/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_plain.h"

/* attention_max: the largest scale q·k of each head over the pairs that are seen. attention_max_tiles has a block for each
 * head and tile of ROWS queries, attention_max_heads one for each head; NaN wins. */

TT_KERNEL(256, attention_max_tiles, attention_args a, float *tops)
{
    plain_room *room = (plain_room *)tt_shared;
    const int head = (int)(blockIdx.x % (u32)a.heads), row = (int)threadIdx.x / 16 * 4,
              col = (int)threadIdx.x % 16;
    const i64 tile = blockIdx.x / (u32)a.heads, first = tile * ROWS,
              tiles = (a.n_q + ROWS - 1) / ROWS;
    const plain_rows q = plain_q(a, head), k = plain_k(a, attn_kv_head(a, head));
    float most = -INF;
    attn_walk w;
    attn_walk_begin(&w, 0);
    for (int whole, t;
         (t = attn_walk_next<false, ROWS, ROWS>(&w, a, blockIdx.x, a.heads, &whole)) >= 0;) {
        const i64 inner = (i64)t * ROWS;
        float s[4][4];
        plain_dots(s, room, q, first, k, inner);
        for (int i = 0; i < 4; i++)
            for (int j = 0; j < 4; j++) {
                const i64 query = first + row + i, key = inner + col + 16 * j;
                if (query < a.n_q && key < a.n_k &&
                    attn_sees(a, a.pos_q[query] - a.pos_k[key], a.seg_q[query], a.seg_k[key]))
                    most = tt_max(most, s[i][j] * a.scale);
            }
    }
    most = tt_block_max(most, &room->tile[0][0]);
    if (threadIdx.x == 0)
        tops[head * tiles + tile] = most;
}

TT_KERNEL(256, attention_max_heads, const float *tops, float *out, i64 tiles)
{
    float most = -INF;
    for (i64 i = threadIdx.x; i < tiles; i += 256)
        most = tt_max(most, tops[blockIdx.x * tiles + i]);
    most = tt_block_max(most, (float *)tt_shared);
    if (threadIdx.x == 0)
        out[blockIdx.x] = most;
}
