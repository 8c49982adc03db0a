/* SPDX-License-Identifier: Apache-2.0 */
/* The warp functions of dialect.h, done for 32 lanes at once. */
#include "emulate.h"

void emu_do_shuffle(emu_lane *const *lane)
{
    unsigned long long v[32];
    for (int i = 0; i < 32; i++)
        v[i] = lane[i]->value;
    for (int i = 0; i < 32; i++)
        lane[i]->value = v[lane[i]->from];
}

void emu_do_ballot(emu_lane *const *lane)
{
    unsigned bits = 0;
    for (int i = 0; i < 32; i++)
        bits |= (unsigned)(lane[i]->value != 0) << i;
    for (int i = 0; i < 32; i++)
        lane[i]->value = bits;
}

/* Lane 8m + j gives row j of matrix m. */
void emu_do_ldmatrix(emu_lane *const *lane)
{
    unsigned short m[4][8][8];
    for (int i = 0; i < 32; i++)
        memcpy(m[i / 8][i % 8], lane[i]->row, 16);
    for (int i = 0; i < 32; i++) {
        const int row = i / 4, column = i % 4 * 2;
        for (int k = 0; k < 4; k++)
            lane[i]->r[k] = lane[i]->transposed
                                ? m[k][column][row] | (unsigned)m[k][column + 1][row] << 16
                                : m[k][row][column] | (unsigned)m[k][row][column + 1] << 16;
    }
}

static void put2(double *to, unsigned halves)
{
    const unsigned lo = halves << 16, hi = halves & 0xffff0000u;
    float f;
    memcpy(&f, &lo, 4);
    to[0] = static_cast<double>(f);
    memcpy(&f, &hi, 4);
    to[1] = static_cast<double>(f);
}

/* d[16,8] += a[16,16] b[8,16]^T: the sum in f64, rounded to f32 once. */
void emu_do_mma(emu_lane *const *lane)
{
    double a[16][16], b[8][16];
    for (int i = 0; i < 32; i++) {
        const int row = i / 4, column = i % 4 * 2;
        put2(&a[row][column], lane[i]->a[0]);
        put2(&a[row + 8][column], lane[i]->a[1]);
        put2(&a[row][column + 8], lane[i]->a[2]);
        put2(&a[row + 8][column + 8], lane[i]->a[3]);
        put2(&b[row][column], lane[i]->b[0]);
        put2(&b[row][column + 8], lane[i]->b[1]);
    }
    for (int i = 0; i < 32; i++)
        for (int e = 0; e < 4; e++) {
            const int row = i / 4 + e / 2 * 8, column = i % 4 * 2 + e % 2;
            double sum = 0;
            for (int k = 0; k < 16; k++)
                sum += a[row][k] * b[column][k];
            lane[i]->d[e] = static_cast<float>(static_cast<double>(lane[i]->d[e]) + sum);
        }
}
