/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_fwd.h"

TT_KERNEL(128, attention_fwd_192_128, attention_args a)
{
    forward<192, 128, 2, 4, 32>(a);
}
