/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/install.h"
#include "checkpoint/reader.h"
#include "interchange/formats/dcp.h"

static const tt_ckpt_format formats[] = {
    {TT_DCP_METADATA, tt_dcp_fill}
};

void tt_interchange_install(void)
{
    tt_ckpt_set_formats(formats, TT_COUNT(formats));
}
