/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_fwd.h"

TT_KERNEL(128, attention_fwd_128, attention_args a)
{
    forward<128, 128, 2, 4, 48>(a);
}
