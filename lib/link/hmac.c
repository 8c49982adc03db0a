/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>
#include <ttrun/hmac.h>

/* SHA-256 as FIPS 180-4 writes it, and HMAC of RFC 2104. */

#define BLOCK 64

typedef struct sha {
    uint32_t h[8];
    uint64_t n; /* bytes so far */
    uint8_t block[BLOCK];
} sha;

static const uint32_t k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

static uint32_t turn_right(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

static void sha_block(sha *s)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)s->block[4 * i] << 24 | (uint32_t)s->block[4 * i + 1] << 16 |
               (uint32_t)s->block[4 * i + 2] << 8 | s->block[4 * i + 3];
    for (int i = 16; i < 64; i++)
        w[i] = w[i - 16] + w[i - 7] +
               (turn_right(w[i - 15], 7) ^ turn_right(w[i - 15], 18) ^ w[i - 15] >> 3) +
               (turn_right(w[i - 2], 17) ^ turn_right(w[i - 2], 19) ^ w[i - 2] >> 10);
    memcpy(v, s->h, sizeof v);
    for (int i = 0; i < 64; i++) {
        const uint32_t a = v[0], e = v[4],
                       one = v[7] + (turn_right(e, 6) ^ turn_right(e, 11) ^ turn_right(e, 25)) +
                             ((e & v[5]) ^ (~e & v[6])) + k[i] + w[i],
                       two = (turn_right(a, 2) ^ turn_right(a, 13) ^ turn_right(a, 22)) +
                             ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += one;
        v[0] = one + two;
    }
    for (int i = 0; i < 8; i++)
        s->h[i] += v[i];
}

static void sha_begin(sha *s)
{
    *s = (sha){
        .h = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a, 0x510e527f, 0x9b05688c, 0x1f83d9ab,
              0x5be0cd19}
    };
}

static void sha_add(sha *s, const void *data, size_t n)
{
    const uint8_t *p = data;
    for (size_t i = 0; i < n; i++) {
        s->block[s->n++ % BLOCK] = p[i];
        if (s->n % BLOCK == 0)
            sha_block(s);
    }
}

static void sha_end(sha *s, uint8_t out[TT_HMAC_BYTES])
{
    const uint64_t bits = 8 * s->n;
    uint8_t length[8];
    for (int i = 0; i < 8; i++)
        length[i] = (uint8_t)(bits >> (56 - 8 * i));
    sha_add(s, "\x80", 1);
    while (s->n % BLOCK != BLOCK - 8)
        sha_add(s, "", 1);
    sha_add(s, length, 8);
    for (int i = 0; i < TT_HMAC_BYTES; i++)
        out[i] = (uint8_t)(s->h[i / 4] >> (24 - 8 * (i % 4)));
}

void tt_hmac_sha256(const void *key, size_t n_key, const void *data, size_t n,
                    uint8_t out[TT_HMAC_BYTES])
{
    uint8_t inner[BLOCK] = {0}, outer[BLOCK];
    sha s;
    if (n_key > BLOCK) {
        sha_begin(&s);
        sha_add(&s, key, n_key);
        sha_end(&s, inner);
    } else if (n_key) {
        memcpy(inner, key, n_key);
    }
    for (int i = 0; i < BLOCK; i++) {
        outer[i] = inner[i] ^ 0x5c;
        inner[i] ^= 0x36;
    }
    sha_begin(&s);
    sha_add(&s, inner, BLOCK);
    sha_add(&s, data, n);
    sha_end(&s, out);
    sha_begin(&s);
    sha_add(&s, outer, BLOCK);
    sha_add(&s, out, TT_HMAC_BYTES);
    sha_end(&s, out);
}

void tt_comm_code(const void *data, size_t n, uint8_t out[TT_HMAC_BYTES])
{
    const char *secret = getenv("TTRUN_COMM_SECRET");
    tt_hmac_sha256(secret ? secret : "", secret ? strlen(secret) : 0, data, n, out);
}

bool tt_hmac_equal(const uint8_t a[TT_HMAC_BYTES], const uint8_t b[TT_HMAC_BYTES])
{
    int differ = 0;
    for (int i = 0; i < TT_HMAC_BYTES; i++)
        differ |= a[i] ^ b[i];
    return !differ;
}
