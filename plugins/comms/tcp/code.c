/* SPDX-License-Identifier: Apache-2.0 */
#define XXH_INLINE_ALL
#include "tcp.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* The codes of what the ranks send each other: XXH3, so that a bit that has changed on the way ends the run. TCP's own
 * sum has 16 bits, and a card or a tunnel between two kernels may leave it out. They are sent where there is a secret:
 * without one a machine's own loopback, which is as fast as its memory, would lose 15 %. The secret is in the codes, which
 * still are no signature: XXH3 was not made against attackers. */

uint64_t tcp_code(const tcp_end *e, uint64_t before, const void *p, size_t n)
{
    if (!n || !e->coded)
        return before;
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return tcp_code_avx2(before, p, n);
#endif
    return XXH3_64bits_withSeed(p, n, before);
}

void tcp_choose_codes(tcp_end *e)
{
    uint8_t code[TT_HMAC_BYTES];
    const char *secret = getenv("TTRUN_COMM_SECRET");
    e->coded = secret && *secret;
    if (!e->coded)
        return;
    tt_comm_code(&e->start, sizeof e->start, code);
    memcpy(&e->first_code, code, sizeof e->first_code);
}

void tcp_seal(void *frame, size_t n)
{
    tt_comm_code(frame, n, (uint8_t *)frame + n);
}

bool tcp_is_sealed(const void *frame, size_t n)
{
    uint8_t code[TT_HMAC_BYTES];
    tt_comm_code(frame, n, code);
    return tt_hmac_equal(code, (const uint8_t *)frame + n);
}

void tcp_damage_text(const tcp_end *e, int rank, const char *what, char text[TEXT])
{
    const char *host = e->peers[rank].host;
    snprintf(text, TEXT,
             "%s: bits have changed between rank %d%s%s and rank %d (a network card, a cable or "
             "memory?); start again to continue from the last checkpoint",
             what, rank, *host ? " on " : "", host, e->rank);
}

tt_status tcp_damaged(const tt_comm *c, int member, const char *what, uint64_t number,
                      tt_error *err)
{
    char call[64], text[TEXT];
    snprintf(call, sizeof call, "%s number %llu", what, (unsigned long long)number);
    tcp_damage_text(c->e, c->p.ranks[member], call, text);
    return TT_FAIL(err, TT_ECOMM, "%s", text);
}
