/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_HMAC_H
#define TTRUN_HMAC_H
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <ttrun/status.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define TT_HMAC_BYTES 32

/* HMAC-SHA-256 of n bytes (RFC 2104, FIPS 180-4).   [any-thread] */
TT_EXPORT void tt_hmac_sha256(const void *key, size_t n_key, const void *data, size_t n,
                              uint8_t out[TT_HMAC_BYTES]);
/* The same, keyed by the environment variable TTRUN_COMM_SECRET; without it by nothing.   [any-thread] */
TT_EXPORT void tt_comm_code(const void *data, size_t n, uint8_t out[TT_HMAC_BYTES]);
/* Compares all bytes, so the time does not tell where they differ.   [any-thread] */
TT_EXPORT bool tt_hmac_equal(const uint8_t a[TT_HMAC_BYTES], const uint8_t b[TT_HMAC_BYTES]);

#if defined(__cplusplus)
}
#endif
#endif
