/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_FILES_H
#define TTRUN_FILES_H
#include <ttrun/status.h>
#ifdef __cplusplus
extern "C" {
#endif

/* Opens a file that ttrun alone writes: a lock, an id, metrics that go on, a part that is renamed later. What has its
 * name must be a regular file, no link to one, without a second name (hard link), of this process's user; for root, of
 * any user. Whoever may write in a folder cannot make ttrun write into a file elsewhere so.
 *   path   its folder may be reached through links
 *   flags  of open(2): how to open, with O_CREAT, O_EXCL, O_APPEND and O_TRUNC, which cuts only what may be opened;
 *          mode is the new file's, before umask
 *   fd     (out) closed on exec; owner: the caller, by close(2)
 * TT_ENOTFOUND: there is no such file, or no such folder. TT_EEXIST: O_EXCL, and there is one. TT_EINVAL: what is there
 * is not such a file. TT_EIO: anything else. [any-thread] */
TT_EXPORT tt_status tt_open_own(const char *path, int flags, unsigned mode, int *fd, tt_error *err);

#ifdef __cplusplus
}
#endif
#endif
