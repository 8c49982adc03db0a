/* SPDX-License-Identifier: Apache-2.0 */
/* The arguments of tt_random, tt_random_keys and tt_initial (random.cu), in C too. */
#pragma once

#define RANDOM_STREAM 240 /* bytes of a stream's name at most */

typedef struct random_call {
    const void *seed, *step; /* u64 and f64, on the device */
    const int *rows;         /* the index of each row of dim 0; NULL: its own */
    void *out;
    long long n, shape[6], begin[6], global[6];
    int dtype, n_dims, is_normal, stream_bytes;
    unsigned char stream[RANDOM_STREAM];
} random_call;

/* The argument of tt_random_keys: some rows of dim 0, one per stream. n, shape, begin and global are of
 * the dims after it. */
#define RANDOM_STREAMS 400 /* in one launch */
typedef struct random_keys_call {
    const void *seed, *step;
    float *out;
    long long n, shape[5], begin[5], global[5];
    int n_dims, n_streams;
    unsigned long long streams[RANDOM_STREAMS];
} random_keys_call;

/* The argument of tt_initial; kind: tt_init_kind. */
typedef struct initial_call {
    void *out;
    long long n, shape[6], begin[6], global[6];
    unsigned long long key;
    double a, lo, hi, from, width;
    int dtype, n_dims, kind;
} initial_call;
