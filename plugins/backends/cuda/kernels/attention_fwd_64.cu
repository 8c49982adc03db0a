/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_fwd.h"

TT_KERNEL(128, attention_fwd_64, attention_args a)
{
    forward<64, 64, 2, 4, 64>(a);
}
