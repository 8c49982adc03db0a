/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/install.h"
#include "checkpoint/reader.h"
#include "interchange/assets.h"
#include "interchange/formats/dcp.h"
#include "interchange/hf_config.h"
#include "interchange/hf_job.h"
#include "interchange/interchange.h"
#include "setup/foreign.h"

static const tt_ckpt_format formats[] = {
    {TT_DCP_METADATA, tt_dcp_fill}
};

static tt_status export_step(const tt_setup *s, const char *step_folder, const char *folder,
                             const tt_tokenizer_info *info, void *tokenizer, tt_error *err)
{
    const tt_hf_export o = {.tokenizer = tokenizer ? info : NULL,
                            .tokenizer_self = tokenizer,
                            .step_folder = step_folder,
                            .folder = folder,
                            .run = s->core.dump_folder};
    return tt_setup_write_hf(s, &o, NULL, err);
}

static const tt_foreign hugging_face = {.has_weights = tt_hf_has_weights,
                                        .is_adapter = tt_adapter_is_folder,
                                        .take_folder = tt_setup_take_hf,
                                        .model_args = tt_setup_hf_args,
                                        .open = tt_hf_open,
                                        .load = tt_setup_load_hf,
                                        .load_adapter = tt_setup_load_adapter,
                                        .keep = tt_assets_keep,
                                        .use_kept_tokenizer = tt_assets_use_kept_tokenizer,
                                        .export_step = export_step};

void tt_interchange_install(void)
{
    tt_ckpt_set_formats(formats, TT_COUNT(formats));
    tt_foreign_install(&hugging_face);
}
