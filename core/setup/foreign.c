/* SPDX-License-Identifier: Apache-2.0 */
#include "setup/foreign.h"
#include "setup/setup_impl.h"
#include <string.h>

static const tt_foreign *installed;

void tt_foreign_install(const tt_foreign *f)
{
    installed = f;
}

const tt_foreign *tt_foreign_installed(void)
{
    return installed;
}

tt_status tt_setup_check_foreign(const tt_setup *s, tt_error *err)
{
    const tt_checkpoint_config *c = &s->core.checkpoint;
    const char *key = s->core.hf                      ? "model.hf"
                      : !strcmp(s->core.flavor, "hf") ? "model.flavor"
                      : c->initial_load_in_hf         ? "checkpoint.initial_load_in_hf"
                      : c->last_save_in_hf            ? "checkpoint.last_save_in_hf"
                      : c->hf_interval                ? "checkpoint.hf_interval"
                                                      : NULL;
    return s->foreign || !key ? TT_OK
                              : tt_job_fail(s->job, key, err,
                                            "this program has nothing that reads or writes the "
                                            "folders of other programs");
}

bool tt_setup_is_foreign(const tt_setup *s, const char *folder)
{
    return s->foreign && s->foreign->has_weights(folder);
}

bool tt_setup_is_adapter(const tt_setup *s, const char *folder)
{
    return s->foreign && s->foreign->is_adapter(folder);
}

const char *tt_setup_assets(const tt_setup *s)
{
    return s->core.hf_assets_path
               ? tt_path_join(s->arena, tt_job_dir(s->job), s->core.hf_assets_path)
               : NULL;
}

void tt_setup_note_folder(const tt_setup *s)
{
    const char *used = s->core.hf_assets_path;
    if (s->core.hf && used && strcmp(used, s->core.hf) != 0 && !tt_path_exists(s->core.hf))
        tt_log(TT_INFO, "model",
               "model.hf: %s is gone; the run's own copy of its config is used, %s", s->core.hf,
               used);
    if (s->core.hf)
        tt_log(TT_INFO, "model", "model.hf %s: model %s, sequences of %lld tokens", s->core.hf,
               s->model.name, (long long)s->core.training.seq_len);
}

/* ---- the weights that a run begins with ---- */

const char *tt_setup_foreign_weights(const tt_setup *s)
{
    const char *path = s->core.checkpoint.initial_load_path;
    path = path ? tt_path_join(s->arena, tt_job_dir(s->job), path) : NULL;
    return path && tt_setup_is_foreign(s, path) ? path : NULL;
}

const char *tt_setup_unused_weights(const tt_setup *s)
{
    const char *folder = tt_setup_assets(s);
    return folder && tt_setup_is_foreign(s, folder) ? folder : NULL;
}

tt_status tt_setup_initial_load(tt_setup *s, tt_error *err)
{
    tt_checkpoint_config *c = &s->core.checkpoint;
    if (!c->initial_load_in_hf || c->initial_load_path)
        return TT_OK;
    if (!s->core.hf_assets_path)
        return tt_job_fail(s->job, "checkpoint.initial_load_in_hf", err,
                           "needs checkpoint.initial_load_path, the folder of the weights, or "
                           "model.hf_assets_path");
    c->initial_load_path = s->core.hf_assets_path; /* both paths are relative to the job's folder */
    return TT_OK;
}

/* ---- exports ---- */

tt_status tt_setup_check_exports(const tt_setup *s, tt_error *err)
{
    const tt_checkpoint_config *c = &s->core.checkpoint;
    const char *key = c->last_save_in_hf ? "checkpoint.last_save_in_hf" : "checkpoint.hf_interval";
    if (!c->last_save_in_hf && !c->hf_interval)
        return TT_OK;
    if (!c->enable)
        return tt_job_fail(s->job, key, err,
                           "nothing is saved while checkpoint.enable is false; set it to true");
    if (c->load_only)
        return tt_job_fail(s->job, key, err,
                           "nothing is saved while checkpoint.load_only is true; leave one of them "
                           "out");
    if (c->interval == INT64_MIN)
        return tt_job_fail(s->job, key, err,
                           "nothing is saved while checkpoint.interval is null; -1 saves the last "
                           "step alone");
    if (!tt_setup_model_hf(s->model.component))
        return tt_job_fail(s->job, key, err, "model %s cannot be exported in Hugging Face's format",
                           s->model.name);
    return TT_OK;
}
