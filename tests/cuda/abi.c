/* SPDX-License-Identifier: Apache-2.0 */
/* Compares our prototypes and values with NVIDIA's headers, when it is compiled: tests/cuda/test_abi.sh. */
#include <cuda.h>
#include <nvrtc.h>
#define CUDA_DRIVER_OTHER_TYPES
#define CUDA_RTC_OTHER_TYPES
#include "driver.h"
#include "rtc.h"

/* The type of our pointer is that of the address of NVIDIA's function. */
#define SAME(table, name)                                                                          \
    _Static_assert(                                                                                \
        __builtin_types_compatible_p(__typeof__(((table *)0)->name), __typeof__(&name)),           \
        #name ": our prototype differs from NVIDIA's");
#define SAME_DRIVER(name, parameters) SAME(cuda_driver, name)
#define SAME_RTC(name, parameters) SAME(cuda_rtc, name)
CUDA_DRIVER_FUNCTIONS(SAME_DRIVER)
CUDA_RTC_FUNCTIONS(SAME_RTC)

#define VALUE(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours " is not " #theirs);
VALUE(CUDA_SUCCESS_, CUDA_SUCCESS)
VALUE(CUDA_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY)
VALUE(CUDA_NOT_INITIALIZED, CUDA_ERROR_NOT_INITIALIZED)
VALUE(CUDA_STUB_LIBRARY, CUDA_ERROR_STUB_LIBRARY)
VALUE(CUDA_NO_DEVICE, CUDA_ERROR_NO_DEVICE)
VALUE(CUDA_INVALID_IMAGE, CUDA_ERROR_INVALID_IMAGE)
VALUE(CUDA_INVALID_CONTEXT, CUDA_ERROR_INVALID_CONTEXT)
VALUE(CUDA_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU)
VALUE(CUDA_INVALID_PTX, CUDA_ERROR_INVALID_PTX)
VALUE(CUDA_UNSUPPORTED_PTX_VERSION, CUDA_ERROR_UNSUPPORTED_PTX_VERSION)
VALUE(CUDA_NOT_FOUND, CUDA_ERROR_NOT_FOUND)
VALUE(CUDA_NOT_READY, CUDA_ERROR_NOT_READY)
VALUE(CUDA_SYSTEM_DRIVER_MISMATCH, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH)
VALUE(CUDA_ATTRIBUTE_CLOCK_RATE, CU_DEVICE_ATTRIBUTE_CLOCK_RATE)
VALUE(CUDA_ATTRIBUTE_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT)
VALUE(CUDA_ATTRIBUTE_COMPUTE_MODE, CU_DEVICE_ATTRIBUTE_COMPUTE_MODE)
VALUE(CUDA_ATTRIBUTE_MEMORY_CLOCK_RATE, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE)
VALUE(CUDA_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH)
VALUE(CUDA_ATTRIBUTE_L2_CACHE_SIZE, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE)
VALUE(CUDA_ATTRIBUTE_UNIFIED_ADDRESSING, CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING)
VALUE(CUDA_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
VALUE(CUDA_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)
VALUE(CUDA_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
      CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
VALUE(CUDA_COMPUTEMODE_PROHIBITED, CU_COMPUTEMODE_PROHIBITED)
VALUE(CUDA_FUNC_MAX_DYNAMIC_SHARED_SIZE_BYTES, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
VALUE(CUDA_MEMHOSTALLOC_PORTABLE, CU_MEMHOSTALLOC_PORTABLE)
VALUE(CUDA_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING)
VALUE(CUDA_EVENT_DEFAULT, CU_EVENT_DEFAULT)
VALUE(CUDA_EVENT_DISABLE_TIMING, CU_EVENT_DISABLE_TIMING)
VALUE(CUDA_STREAM_CAPTURE_MODE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED)

/* Our own types, where NVIDIA's are not taken: of the same sizes. */
_Static_assert(sizeof(CUresult) == sizeof(int) && sizeof(CUdevice) == sizeof(int) &&
                   sizeof(CUdevice_attribute) == sizeof(int) &&
                   sizeof(CUfunction_attribute) == sizeof(int) &&
                   sizeof(CUstreamCaptureMode) == sizeof(int) &&
                   sizeof(CUjit_option) == sizeof(int) && sizeof(CUlibraryOption) == sizeof(int) &&
                   sizeof(CUdeviceptr) == sizeof(unsigned long long) &&
                   sizeof(nvrtcResult) == sizeof(int),
               "a type of NVIDIA's has another size");
