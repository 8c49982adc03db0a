/* SPDX-License-Identifier: Apache-2.0 */
#include "hf.h"
#include <stdio.h>
#include <string.h>
#include <ttrun/log.h>

/* Families of models, by the way they split texts into words. */

static const hf_family families[] = {
    {"gpt2",      {"gpt2"},                         false, true },
    {"llama3",    {"llama3"},                       false, true },
    {"qwen2",     {"qwen2"},                        true,  true },
    {"qwen35",    {"qwen35"},                       true,  true },
    {"deepseek3", {"numbers3", "cjk", "deepseek3"}, false, true },
    {"tekken",    {"tekken"},                       false, true },
    {"o200k",     {"o200k"},                        false, true },
    {"nanochat",  {"nanochat"},                     false, true },
    {"kimi",      {"kimi"},                         false, false},
    {"cl100k",    {"cl100k"},                       false, false},
    {"r50k",      {"r50k"},                         false, false},
    {"p50k",      {"r50k"},                         false, false},
};

bool hf_is_name(const char *pattern)
{
    return pattern[strspn(pattern, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                   "0123456789_-.")] == '\0';
}

tt_status hf_family_find(const char *name, bool json, const hf_family **out, tt_error *err)
{
    char names[200] = "";
    size_t n = 0;
    for (size_t i = 0; i < TT_COUNT(families); i++) {
        if (json && !families[i].json)
            continue;
        if (strcmp(families[i].name, name) == 0) {
            *out = &families[i];
            return TT_OK;
        }
        n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "", families[i].name);
    }
    return TT_FAIL(err, TT_EINVAL, "pattern: \"%.40s\" is not one of %s, and not an expression",
                   name, names);
}

const hf_pattern *hf_pattern_named(const char *name)
{
    for (size_t i = 0; i < hf_n_patterns; i++)
        if (strcmp(hf_patterns[i].name, name) == 0)
            return &hf_patterns[i];
    return NULL;
}

tt_status hf_set_splits(hf_tokenizer *t, const char *pattern, bool json, hf_dialect dialect,
                        tt_error *err)
{
    const hf_family *family;
    hf_split *split = t->splits;
    if (hf_is_name(pattern)) {
        TT_TRY(hf_family_find(pattern, json, &family, err));
        for (size_t i = 0; i < TT_COUNT(family->steps) && family->steps[i]; i++)
            t->splits[t->n_splits++] = (hf_split){.scan = hf_pattern_named(family->steps[i])->scan,
                                                  .keep_matches = true,
                                                  .keep_gaps = true};
        t->nfc = t->nfc || (json && family->nfc);
        return TT_OK;
    }
    const hf_pattern *known = hf_pattern_find(pattern);
    *split = (hf_split){.keep_matches = true, .keep_gaps = dialect == HF_ONIGURUMA};
    if (known) {
        split->scan = known->scan;
    } else {
        if (hf_regex_new(pattern, dialect, &split->regex, err) != TT_OK)
            return tt_error_context(err, "pattern");
        tt_log(TT_WARN, "data", "the pattern is not one of the known ones; PCRE2 reads it");
    }
    t->n_splits = 1;
    return TT_OK;
}
