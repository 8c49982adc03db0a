/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_bwd.h"

TT_KERNEL(128, attention_dq_192_128, attention_args a)
{
    backward<192, 128, 1, 4, 32, 2, DQ>(a);
}
TT_KERNEL(128, attention_dkdv_192_128, attention_args a)
{
    backward<192, 128, 1, 4, 16, 2, DK | DV_>(a);
}
