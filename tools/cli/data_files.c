/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/data_files.h"
#include <string.h>

static bool has_ending(const char *text, const char *const *ends)
{
    while (*ends && !tt_ends_with(text, *ends))
        ends++;
    return *ends != NULL;
}

/* The run's own one stays where it reads such files: chat reads JSON and Parquet, and what a plugin's loader reads only
 * the run knows. */
const char *tt_cli_loader_for(const char *data, const char *own)
{
    static const char *const rows[] = {".jsonl",   ".jsonl.gz", ".jsonl.zst", ".json",
                                       ".json.gz", ".json.zst", ".parquet",   NULL},
                             *const ids[] = {".bin", ".pbin", NULL},
                             *const plain[] = {"text", "jsonl", "bin", "chat", NULL};
    const bool json = has_ending(data, rows);
    bool known = false;
    for (size_t i = 0; own && plain[i]; i++)
        known = known || !strcmp(plain[i], own);
    if (own && (!known || (json && !strcmp(own, "chat"))))
        return own;
    return json ? "jsonl" : has_ending(data, ids) ? "bin" : "text";
}

tt_status tt_cli_blame_options(tt_status s, const char *const (*options)[2], size_t n,
                               tt_error *err)
{
    for (size_t i = 0; s != TT_OK && err && i < n; i++) {
        const char *key = options[i][0], *option = options[i][1];
        char *at = strstr(err->text, key);
        if (!at)
            continue;
        const char *rest = at + strlen(key);
        if (at - err->text >= 2 && !strncmp(at - 2, "--", 2))
            at -= 2;
        memcpy(at, option, strlen(option)); /* options are shorter than keys */
        memmove(at + strlen(option), rest, strlen(rest) + 1);
    }
    return s;
}
