/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plugin_new.h"

/* What `ttrun plugins new` writes: the files of share/templates (mk/embed.sh puts their texts
 * here), with @NAME@, @KIND@, @USE@ and @HEADER@ filled in. tests/abi/test_install.sh builds each.
 */

extern const char tt_template_model_c[], tt_template_optimizer_c[], tt_template_loss_c[],
    tt_template_lr_scheduler_c[], tt_template_tokenizer_c[], tt_template_dataloader_c[],
    tt_template_metrics_c[], tt_template_hook_c[], tt_template_op_c[], tt_template_train_spec_c[],
    tt_template_kernels_c[], tt_template_converter_c[], tt_template_Makefile_in[],
    tt_template_README_md_in[];

static const tt_template templates[] = {
    {TT_KIND_MODEL,        tt_template_model_c,
     "`\"model\": {\"name\": \"@NAME@\", \"args\": {\"dim\": 128}}`"                               },
    {TT_KIND_OPTIMIZER,    tt_template_optimizer_c,
     "`\"optimizer\": {\"name\": \"@NAME@\", \"lr\": 0.01}`"                                       },
    {TT_KIND_LOSS,         tt_template_loss_c,         "`\"loss\": {\"name\": \"@NAME@\"}`"        },
    {TT_KIND_LR_SCHEDULER, tt_template_lr_scheduler_c,
     "`\"lr_scheduler\": {\"name\": \"@NAME@\"}`"                                                  },
    {TT_KIND_TOKENIZER,    tt_template_tokenizer_c,    "`\"tokenizer\": {\"name\": \"@NAME@\"}`"   },
    {TT_KIND_DATALOADER,   tt_template_dataloader_c,   "`\"dataloader\": {\"name\": \"@NAME@\"}`"  },
    {TT_KIND_METRICS,      tt_template_metrics_c,
     "`\"metrics\": {\"sinks\": [{\"name\": \"@NAME@\"}]}`"                                        },
    {TT_KIND_HOOK,         tt_template_hook_c,         "`\"hooks\": [{\"name\": \"@NAME@\"}]`"     },
    {TT_KIND_OP,           tt_template_op_c,           "nothing; models call it through tt_op()."  },
    {TT_KIND_KERNELS,      tt_template_kernels_c,
     "nothing for the op @NAME@ of the same file; for other ops `\"backend\": {\"kernels\": "
     "[\"@NAME@\"]}`"                                                                              },
    {TT_KIND_TRAIN_SPEC,   tt_template_train_spec_c,   "`\"spec\": \"@NAME@\"`, or --spec @NAME@"  },
    {TT_KIND_CONVERTER,    tt_template_converter_c,    "`\"converters\": [{\"name\": \"@NAME@\"}]`"},
};

const tt_template *tt_plugin_template(tt_kind kind)
{
    for (size_t i = 0; i < TT_COUNT(templates); i++)
        if (templates[i].kind == kind)
            return &templates[i];
    return NULL;
}

const char *tt_plugin_template_makefile(void)
{
    return tt_template_Makefile_in;
}

const char *tt_plugin_template_readme(void)
{
    return tt_template_README_md_in;
}
