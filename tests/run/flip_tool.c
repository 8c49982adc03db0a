/* SPDX-License-Identifier: Apache-2.0 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* flip_tool IN OUT SEED: copies a file with 1 to 20 of its bits flipped. */

static uint64_t state;

static uint64_t draw(uint64_t n)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (state >> 33) % n;
}

int main(int argc, char **argv)
{
    static unsigned char bytes[64 << 20];
    FILE *in = argc == 4 ? fopen(argv[1], "rb") : NULL, *out = in ? fopen(argv[2], "wb") : NULL;
    const size_t n = out ? fread(bytes, 1, sizeof bytes, in) : 0;
    if (!n)
        return 1;
    state = strtoull(argv[3], NULL, 10);
    for (uint64_t i = 0, flips = 1 + draw(20); i < flips; i++)
        bytes[draw(n)] ^= (unsigned char)(1u << draw(8));
    return fwrite(bytes, 1, n, out) == n && fclose(out) == 0 ? 0 : 1;
}
