/* SPDX-License-Identifier: Apache-2.0 */
/* The argument of the kernels of members.cu, in C too. */
#pragma once

#define MEMBERS_THREADS 256
#define MEMBERS_MOST 440 /* pointers in one launch */

/* out[i] = in[0][i] op in[1][i] op …. step: bytes from each member to the next, where they are regular
 * and more than there are pointers; else 0. */
typedef struct members_call {
    void *out;
    long long n, n_wide, step; /* n_wide: pieces of 16 bytes */
    int n_members, is_max;
    const void *in[MEMBERS_MOST];
} members_call;
