/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CLI_DATA_FILES_H
#define TT_CLI_DATA_FILES_H
#include "cli/cli.h"

/* Files of data that a command line names, --data FILE, are read by the loaders of jobs. */

/* The loader for files of a name; own: that of a run, or NULL. */
const char *tt_cli_loader_for(const char *data, const char *own);
/* A loader blames keys that the user did not write: each is replaced by the option that was written. options: pairs of a
 * key and an option, n of them. Returns s. */
tt_status tt_cli_blame_options(tt_status s, const char *const (*options)[2], size_t n,
                               tt_error *err);

#endif
