/* SPDX-License-Identifier: Apache-2.0 */
/* Names of errors, and of functions. */
#include "driver.h"
#include <dlfcn.h>

static const struct {
    int result;
    const char *name, *text;
} errors[] = {
    {0,   "CUDA_SUCCESS",                           "no error"                                },
    {1,   "CUDA_ERROR_INVALID_VALUE",               "invalid argument"                        },
    {2,   "CUDA_ERROR_OUT_OF_MEMORY",               "out of memory"                           },
    {3,   "CUDA_ERROR_NOT_INITIALIZED",             "initialization error"                    },
    {100, "CUDA_ERROR_NO_DEVICE",                   "no CUDA-capable device is detected"      },
    {101, "CUDA_ERROR_INVALID_DEVICE",              "invalid device ordinal"                  },
    {200, "CUDA_ERROR_INVALID_IMAGE",               "device kernel image is invalid"          },
    {201, "CUDA_ERROR_INVALID_CONTEXT",             "invalid device context"                  },
    {209, "CUDA_ERROR_NO_BINARY_FOR_GPU",
     "no kernel image is available for execution on the device"                               },
    {400, "CUDA_ERROR_INVALID_HANDLE",              "invalid resource handle"                 },
    {500, "CUDA_ERROR_NOT_FOUND",                   "named symbol not found"                  },
    {600, "CUDA_ERROR_NOT_READY",                   "device not ready"                        },
    {700, "CUDA_ERROR_ILLEGAL_ADDRESS",             "an illegal memory access was encountered"},
    {701, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",     "too many resources requested for launch" },
    {702, "CUDA_ERROR_LAUNCH_TIMEOUT",              "the launch timed out and was terminated" },
    {704, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"          },
    {705, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",     "peer access has not been enabled"        },
    {716, "CUDA_ERROR_MISALIGNED_ADDRESS",          "misaligned address"                      },
    {719, "CUDA_ERROR_LAUNCH_FAILED",               "unspecified launch failure"              },
    {801, "CUDA_ERROR_NOT_SUPPORTED",               "operation not supported"                 },
    {802, "CUDA_ERROR_SYSTEM_NOT_READY",            "system not yet initialized"              },
    {900, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"                                       },
    {901, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"                                },
    {903, "CUDA_ERROR_STREAM_CAPTURE_UNMATCHED",    "capture was not initiated in this stream"},
    {904, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED",     "capturing stream has unjoined work"      },
    {905, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION",
     "dependency created on uncaptured work in another stream"                                },
    {907, "CUDA_ERROR_CAPTURED_EVENT",
     "operation not permitted on an event last recorded in a capturing stream"                },
    {999, "CUDA_ERROR_UNKNOWN",                     "unknown error"                           },
};

static int find_error(int result, const char **name, const char **text)
{
    for (const auto &e : errors)
        if (e.result == result) {
            *name = e.name;
            *text = e.text;
            return CUDA_SUCCESS;
        }
    *name = *text = nullptr;
    return CUDA_ERROR_INVALID_VALUE;
}
FAKE_API cuGetErrorName(int result, const char **out)
{
    const char *text;
    return find_error(result, out, &text);
}
FAKE_API cuGetErrorString(int result, const char **out)
{
    const char *name;
    return find_error(result, &name, out);
}

/* The newest of a function's versions that there is: cuMemAlloc is cuMemAlloc_v2. status: 0 found, 1 not found. */
FAKE_API cuGetProcAddress_v2(const char *symbol, void **out, int, uint64_t, int *status)
{
    Dl_info info;
    *out = nullptr;
    void *self = dladdr(reinterpret_cast<void *>(find_error), &info)
                     ? dlopen(info.dli_fname, RTLD_NOW | RTLD_NOLOAD)
                     : nullptr;
    for (const char *version : {"_v3", "_v2", ""})
        if (self && !*out)
            *out = dlsym(self, (std::string(symbol) + version).c_str());
    if (self)
        dlclose(self);
    if (status)
        *status = *out ? 0 : 1;
    return *out ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}
FAKE_API cuGetProcAddress(const char *symbol, void **out, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(symbol, out, version, flags, nullptr);
}
