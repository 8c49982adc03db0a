/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
#include "dialect.h"

/* Philox 4x32-10, as tt_random_words of include/ttrun/random.h. c: the counter, then 128 random bits. */
TT_DEV void random_words(u64 key, u32 (&c)[4])
{
    u32 k0 = (u32)key, k1 = (u32)(key >> 32);
    for (int round = 0; round < 10; round++) {
        const u64 a = (u64)0xd2511f53u * c[0], b = (u64)0xcd9e8d57u * c[2];
        c[0] = (u32)(b >> 32) ^ c[1] ^ k0;
        c[2] = (u32)(a >> 32) ^ c[3] ^ k1;
        c[1] = (u32)b;
        c[3] = (u32)a;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
}
