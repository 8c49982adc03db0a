/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_fwd.h"

TT_KERNEL(128, attention_fwd_256, attention_args a)
{
    forward<256, 256, 1, 4, 32>(a);
}
