/* SPDX-License-Identifier: Apache-2.0 */
#include <ttrun/status.h>

TT_EXPORT int tt_cli_main(int argc, char **argv, const char *commit);

int main(int argc, char **argv)
{
    return tt_cli_main(argc, argv, TT_BUILD_COMMIT);
}
