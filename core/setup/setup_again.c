/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup_impl.h"

/* The setup of a job that runs, once more with other converters. It is made from the resolved job, so
 * every check of a start is made again. */

tt_status tt_setup_again(const tt_setup *old, const char *converters, int64_t at, tt_arena *a,
                         tt_setup *out, tt_error *err)
{
    const tt_override list = {"converters", converters};
    tt_setup_opts o = *old->opts;
    tt_job *job = NULL;
    tt_str text = {0};
    tt_job_print(old->job, false, &text);
    tt_status s = tt_job_load_text(a, "the running job", tt_str_get(&text), text.n, &list,
                                   converters ? 1 : 0, &job, err);
    tt_str_free(&text);
    o.compile = false;
    if (s == TT_OK)
        s = tt_setup_make(&o, old->registry, job, a, out, err);
    out->converters_at = at;
    return s == TT_OK ? tt_setup_compile(out, old->opts, err) : s;
}
