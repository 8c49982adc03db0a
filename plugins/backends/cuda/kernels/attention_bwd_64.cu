/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_bwd.h"

TT_KERNEL(128, attention_dq_64, attention_args a)
{
    backward<64, 64, 2, 4, 32, 2, DQ>(a);
}
TT_KERNEL(128, attention_dkdv_64, attention_args a)
{
    backward<64, 64, 1, 4, 64, 2, DK | DV_>(a);
}
