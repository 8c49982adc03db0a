/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_bwd.h"

TT_KERNEL(128, attention_dq_256, attention_args a)
{
    backward<256, 256, 1, 4, 16, 1, DQ>(a);
}
TT_KERNEL(128, attention_dk_256, attention_args a)
{
    backward<256, 256, 1, 4, 16, 1, DK>(a);
}
TT_KERNEL(128, attention_dv_256, attention_args a)
{
    backward<256, 256, 1, 4, 16, 1, DV_>(a);
}
