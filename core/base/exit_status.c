/* SPDX-License-Identifier: Apache-2.0 */
#include "base/exit_status.h"

int tt_exit_status(tt_status s)
{
    switch (s) {
    case TT_OK:
        return 0;
    case TT_ENUMERIC:
        return 3;
    case TT_ESIGNAL:
        return 4;
    case TT_EINVAL:
    case TT_EFORMAT:
    case TT_ENOTFOUND:
    case TT_EEXIST:
    case TT_EABI:
    case TT_EUNSUPPORTED:
    case TT_EBUSY:
        return 2;
    default:
        return 1;
    }
}
