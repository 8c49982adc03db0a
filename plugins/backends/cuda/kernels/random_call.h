/* SPDX-License-Identifier: Apache-2.0 */
/* The argument of tt_random (random.cu), in C too. */
#pragma once

#define RANDOM_STREAM 240 /* bytes of a stream's name at most */

typedef struct random_call {
    const void *seed, *step; /* u64 and f64, on the device */
    void *out;
    long long n, shape[6], begin[6], global[6];
    int dtype, n_dims, is_normal, stream_bytes;
    unsigned char stream[RANDOM_STREAM];
} random_call;
