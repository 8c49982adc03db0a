/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include <string.h>

int tt_cli_complete_main(int argc, char **argv)
{
    tt_str o = {0};
    if (argc && !strcmp(argv[0], "--man-synopsis"))
        tt_cli_man_synopsis(&o);
    else if (argc && !strcmp(argv[0], "--man-options"))
        tt_cli_man_options(&o);
    tt_cli_print(&o);
    tt_str_free(&o);
    return 0;
}

const tt_command tt_cmd_complete = {.name = "complete", .forms = ""};
