/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SLURM_H
#define TT_SLURM_H
#include "launch/environment.h"

/* Where the ranks of a Slurm step meet, from its environment variables. */

#define TT_SLURM_PORT                                                                              \
    20000 /* the port is one of 20000, 20002, … 39998: two steps rarely share one */
#define TT_SLURM_PORTS 10000

typedef struct tt_slurm {
    char host[256]; /* the first of the step's nodes */
    int64_t n_hosts;
    int port;    /* from the numbers of job and step */
    char id[64]; /* job, step and how often Slurm has restarted the job */
} tt_slurm;

/* A list of hosts as Slurm writes it, "n[01-03,7],gpu-1": the first one, and how many there are. The text may
 * be anything: errors name what is wrong, and the work is linear in its length. */
tt_status tt_slurm_list(const char *list, char *first, size_t size, int64_t *n, tt_error *err);
tt_status tt_slurm_read(tt_getenv get, tt_slurm *out, tt_error *err);

#endif
