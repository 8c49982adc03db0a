/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_fwd.h"

TT_KERNEL(128, attention_fwd_96, attention_args a)
{
    forward<96, 96, 2, 4, 32>(a);
}
