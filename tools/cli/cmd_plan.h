/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CMD_PLAN_H
#define TT_CMD_PLAN_H
#include "cli/cli.h"

/* Prints the plan of a job that is set up: for ttrun plan and train --dry-run. */
tt_status tt_cli_plan(tt_cli *cli, const tt_setup *s, tt_error *err);

#endif
