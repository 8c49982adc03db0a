/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_INTERNAL_H
#define TT_BASE_INTERNAL_H
#include "base.h"
#include <string.h>

/* Functions shared by the files of core/base only. */

/* Small metadata found no memory: logs how much and where, and ends the process. */
_Noreturn void tt_out_of_memory(size_t size, const char *where);

/* The calling thread's rank in log lines, which a pool's workers inherit; -1 = the process's. */
int tt_log_thread_rank(void);

/* log_file.c: a line with its newline, to the rank's file, or to what will be the beginning of the first one. */
void tt_log_file_put(int rank, const char *line, size_t n);

/* Raises `errno_value` about `path`: "PATH: cannot VERB: reason". */
tt_status tt_fail_errno(tt_error *err, int errno_value, const char *verb, const char *path);

/* cgroup.c: the least limit of the groups that a process is in, in either version of control groups; infinite: none.
 * cgroup_file: /proc/self/cgroup; root: /sys/fs/cgroup, where v1 has a folder (or link) per controller. limit: that of one
 * group by its folder, infinite where it has none. */
typedef double tt_cgroup_limit(const char *folder, bool v1);
double tt_cgroup_least(const char *cgroup_file, const char *root, const char *controller,
                       tt_cgroup_limit *limit);

/* path.c: removes the entries of a folder that is open, but the one with the name `but`. path is for errors. */
tt_status tt_remove_entries(int folder, const char *path, const char *but, tt_error *err);
/* file.c: whether the entry of a folder that is open, or of AT_FDCWD, is this file, not a link to it. */
bool tt_entry_is_fd(int folder, const char *name, int fd);
/* Makes and locks a temporary file beside path and gives its name; -1 and errno: it cannot. */
int tt_unfinished_open(const char *path, tt_str *name);

/* Natural logarithm of a normal x > 0, within 1 ulp, in arithmetic that vectorises. libm's last bit
 * may differ between machines, which initial values must not.
 * log(2^e m) = e log 2 + 2 atanh((m-1)/(m+1)), m in [0.70, 1.41]. */
static inline double tt_log_exact(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    const uint64_t shifted = bits - 0x3fe6a09e667f3bcdu; /* the bits of sqrt(1/2) */
    const int64_t e = (int64_t)shifted >> 52;
    bits -= (uint64_t)e << 52;
    double m;
    memcpy(&m, &bits, sizeof m);
    const double s = (m - 1.0) / (m + 1.0), z = s * s;
    double y = 1.0 / 21.0;
    y = y * z + 1.0 / 19.0;
    y = y * z + 1.0 / 17.0;
    y = y * z + 1.0 / 15.0;
    y = y * z + 1.0 / 13.0;
    y = y * z + 1.0 / 11.0;
    y = y * z + 1.0 / 9.0;
    y = y * z + 1.0 / 7.0;
    y = y * z + 1.0 / 5.0;
    y = y * z + 1.0 / 3.0;
    const double k = (double)e, tail = 2.0 * s * (y * z) + k * 1.90821492927058770002e-10;
    return k * 6.93147180369123816490e-1 + (2.0 * s + tail);
}

#endif
