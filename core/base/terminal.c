/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "base.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* The terminal behind stderr. mpirun puts a pipe between a rank and the terminal; the launcher then
 * describes the terminal by TTRUN_TTY=COLUMNS[:DEVICE]. */

#define VARIABLE "TTRUN_TTY"
#define MOST_COLUMNS 1000

static int columns_of(int fd)
{
    struct winsize w = {0};
    return ioctl(fd, TIOCGWINSZ, &w) == 0 && w.ws_col > 0 ? TT_MIN((int)w.ws_col, MOST_COLUMNS) : 0;
}

/* The columns of the launcher's terminal now; of its start, if the device cannot be opened here. */
static int columns_through(const char *through)
{
    const char *device = strchr(through, ':');
    const int fd = device ? open(device + 1, O_RDONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC) : -1;
    const int now = fd >= 0 && isatty(fd) ? columns_of(fd) : 0;
    if (fd >= 0)
        close(fd);
    return now ? now : TT_MIN(TT_MAXV(atoi(through), 0), MOST_COLUMNS);
}

bool tt_terminal(void)
{
    return isatty(STDERR_FILENO) || getenv(VARIABLE) != NULL;
}

int tt_terminal_columns(void)
{
    const char *through = getenv(VARIABLE);
    if (!tt_terminal())
        return 0;
    int n = columns_of(STDERR_FILENO);
    if (!n && through)
        n = columns_through(through);
    return n ? n : 80;
}

/* TERM is not set where nobody knows what the terminal understands. */
bool tt_terminal_moves(void)
{
    const char *term = getenv("TERM");
    return tt_terminal() && term && *term && strcmp(term, "dumb") != 0;
}

bool tt_terminal_colors(void)
{
    const char *no = getenv("NO_COLOR");
    return tt_terminal_moves() && !(no && *no);
}

void tt_terminal_pass_on(void)
{
    char text[128], device[96];
    if (!isatty(STDERR_FILENO))
        return;
    const int n = columns_of(STDERR_FILENO);
    if (ttyname_r(STDERR_FILENO, device, sizeof device))
        device[0] = 0;
    snprintf(text, sizeof text, "%d%s%s", n ? n : 80, device[0] ? ":" : "", device);
    setenv(VARIABLE, text, 1);
}
