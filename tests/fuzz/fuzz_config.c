/* SPDX-License-Identifier: Apache-2.0 */
#include "config/job_core.h"
#include <string.h>

/* Any bytes as a job file: refused with one line or parsed, printed and read back. A first line
 * "#key value" is an override as on the command line. */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The input may name files of this machine. */
static bool names_files(const char *text, size_t n)
{
    for (size_t i = 0; i + 7 <= n; i++)
        if (memcmp(text + i, "extends", 7) == 0 || text[i] == '\\')
            return true;
    return false;
}

static size_t take_override(tt_arena *a, const char *text, size_t n, tt_override *o)
{
    const char *end = n && text[0] == '#' ? memchr(text, '\n', n) : NULL;
    const char *blank = end ? memchr(text, ' ', (size_t)(end - text)) : NULL;
    if (!blank)
        return 0;
    o->key = tt_arena_strn(a, text + 1, (size_t)(blank - text) - 1);
    o->value = tt_arena_strn(a, blank + 1, (size_t)(end - blank) - 1);
    return (size_t)(end - text) + 1;
}

static void read_back(tt_arena *a, const tt_job *job)
{
    tt_core_config c;
    tt_error err = {0};
    tt_str text = {0};
    tt_job *again;
    tt_job_print(job, true, &text);
    tt_status s = tt_job_load_text(a, "printed", text.s, text.n, NULL, 0, &again, &err);
    TT_ASSERT(s == TT_OK);
    s = tt_core_config_parse(again, &c, &err);
    TT_ASSERT(s == TT_OK);
    tt_str_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    tt_arena *a = tt_arena_new();
    tt_core_config c;
    tt_error err = {0};
    tt_job *job;
    tt_override o = {NULL, NULL};
    const tt_json *v;
    const char *text = (const char *)data;
    size_t used = take_override(a, text, size, &o), n = size - used;
    (void)!tt_json_parse(a, "any", text, size, &v, &err);
    if (!names_files(text + used, n)) {
        tt_status s = tt_job_load_text(a, "job", text + used, n, &o, used > 0, &job, &err);
        if (s == TT_OK)
            s = tt_core_config_parse(job, &c, &err);
        if (s == TT_OK && tt_job_finish(job, &err) == TT_OK)
            read_back(a, job);
        TT_ASSERT(s == TT_OK || (err.text[0] && !strchr(err.text, '\n')));
    }
    tt_arena_free(a);
    return 0;
}
