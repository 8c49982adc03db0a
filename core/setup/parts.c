/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/setup.h"
#include <string.h>

/* What components declare about themselves, and how their errors are raised. */

tt_status tt_setup_fail(const tt_job *job, const char *section, const char *text, tt_error *err)
{
    const char *dot = strrchr(section, '.'), *starts[] = {section, dot ? dot + 1 : section};
    for (size_t i = 0; i < TT_COUNT(starts); i++) {
        const size_t n = strlen(starts[i]), key = strcspn(text, ": ");
        char path[256];
        if (strncmp(text, starts[i], n) || key < n || key - n > 128 || strncmp(text + key, ": ", 2))
            continue;
        if (text[n] != '.' && text[n] != ':')
            continue;
        snprintf(path, sizeof path, "%s%.*s", section, (int)(key - n), text + n);
        return tt_job_fail(job, path, err, "%s", text + key + 2);
    }
    return tt_job_fail(job, section, err, "%s", text);
}

const tt_model_meta *tt_setup_model_meta(const tt_component *c)
{
    const tt_model_meta *m = c->extension ? c->extension(TT_MODEL_META) : NULL;
    return m && TT_HAS(m, tt_model_meta, name_size) ? m : NULL;
}

const tt_model_titan *tt_setup_model_titan(const tt_component *c)
{
    const tt_model_titan *m = c->extension ? c->extension(TT_MODEL_TITAN) : NULL;
    return m && TT_HAS(m, tt_model_titan, name_size) ? m : NULL;
}

const double *tt_optimizer_rate(const tt_component *c, const void *config)
{
    const tt_optimizer_vt *vt = c->vtable;
    const char *name = TT_HAS(vt, tt_optimizer_vt, rate) && vt->rate ? vt->rate : "lr";
    return tt_part_value(c, config, name, TT_OPT_FLOAT);
}

const char *tt_model_blocks_option(const tt_component *c)
{
    const tt_model_vt *vt = c->vtable;
    return TT_HAS(vt, tt_model_vt, blocks) ? vt->blocks : NULL;
}

const tt_model_hf *tt_setup_model_hf(const tt_component *c)
{
    const tt_model_hf *hf = c->extension ? c->extension(TT_MODEL_HF) : NULL;
    return hf && TT_HAS(hf, tt_model_hf, config_json) ? hf : NULL;
}

bool tt_is_dropout(const char *option)
{
    return strstr(option, "dropout") || strstr(option, "pdrop");
}
