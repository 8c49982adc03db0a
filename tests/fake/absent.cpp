/* SPDX-License-Identifier: Apache-2.0 */
/* Functions that NVIDIA's libraries look up when they are opened, and that nothing here calls. */
#include "driver.h"

#define ABSENT(name)                                                                               \
    FAKE_API name()                                                                                \
    {                                                                                              \
        return fake_refuse(CUDA_ERROR_NOT_SUPPORTED, "%s", __func__);                              \
    }
ABSENT(cuCtxGetLimit)
ABSENT(cuCtxPopCurrent)
ABSENT(cuCtxPushCurrent)
ABSENT(cuKernelGetAttribute)
ABSENT(cuLaunchCooperativeKernel)
ABSENT(cuLaunchKernelEx)
ABSENT(cuLibraryLoadFromFile)
ABSENT(cuLinkAddData)
ABSENT(cuLinkComplete)
ABSENT(cuLinkCreate)
ABSENT(cuLinkDestroy)
ABSENT(cuOccupancyMaxPotentialClusterSize)
