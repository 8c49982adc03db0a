/* SPDX-License-Identifier: Apache-2.0 */
#include "launch/say.h"
#include "base/shown.h"
#include "launch/line.h"
#include "train/train.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static void print_line(const char *prefix, const char *text)
{
    tt_str o = {0};
    tt_str_add(&o, prefix);
    tt_str_shown(&o, text, strlen(text));
    tt_str_addc(&o, '\n');
    fwrite(tt_str_get(&o), 1, o.n, stderr);
    tt_str_free(&o);
}

/* torchrun names this file in the environment of each rank and shows what the first failing rank
 * wrote. The members are those of torch.distributed.elastic's ErrorHandler; an error file that a
 * launcher's other process wrote before is replaced. It is written beside stderr, which has the
 * error in any case, so a failure is a warning. */
static void write_error_file(const char *text)
{
    const char *path = getenv("TORCHELASTIC_ERROR_FILE");
    if (!path || !*path)
        return;
    tt_str o = {0};
    tt_str_add(&o, "{\"message\": {\"message\": ");
    tt_str_json(&o, text);
    tt_str_printf(&o, ", \"extraInfo\": {\"py_callstack\": \"\", \"timestamp\": \"%lld\"}}}\n",
                  (long long)time(NULL));
    FILE *f = fopen(path, "we");
    const bool written = f && fwrite(tt_str_get(&o), 1, o.n, f) == o.n;
    if ((f && fclose(f) != 0) || !written)
        tt_log(TT_WARN, "cli", "TORCHELASTIC_ERROR_FILE: cannot write %s: %s", path,
               strerror(errno));
    tt_str_free(&o);
}

void tt_say_error(tt_status s, tt_error *err)
{
    if (s == TT_OK || !err->text[0]) /* another rank prints the error, or it is printed already */
        return;
    const bool told = s != TT_ESIGNAL && tt_line_say_failure(s, err->text);
    if (!told)
        tt_line_say(TT_LINE_SPOKE);
    if (s == TT_ESIGNAL)
        tt_log(TT_WARN, "train", "%s", err->text);
    else if (!told)
        print_line(tt_error_place(err->text) ? "" : "ttrun: ", err->text);
    if (s != TT_ESIGNAL && !told) /* the supervisor may recover from what it is told */
        write_error_file(err->text);
    err->text[0] = 0;
}

void tt_say_from(int verbose, int rank, int world)
{
    tt_log_setup(verbose > 0   ? TT_DEBUG
                 : verbose < 0 ? TT_WARN
                               : TT_INFO,
                 rank, world, tt_terminal_colors());
}
