/* SPDX-License-Identifier: Apache-2.0 */
#include "driver.h"
#include "lib.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

/* The driver: its functions and its errors. */

enum { OLDEST_DRIVER = 12000 }; /* cuLibraryLoadData came with CUDA 12.0 */

cuda_driver cu;
static struct {
    pthread_mutex_t lock;
    bool open;
    int version, n_devices;
} driver = {.lock = PTHREAD_MUTEX_INITIALIZER};

int cuda_driver_version(void)
{
    return driver.version;
}

int cuda_driver_device_count(void)
{
    return driver.n_devices;
}

/* ---- errors ---- */

static const char *driver_hint(CUresult r)
{
    switch ((int)r) {
    case CUDA_NO_DEVICE:
        return "; the driver sees no GPU: look at nvidia-smi and CUDA_VISIBLE_DEVICES";
    case CUDA_STUB_LIBRARY:
        return "; this libcuda.so.1 is the toolkit's stub: install the NVIDIA driver, or take the "
               "folder of stubs out of LD_LIBRARY_PATH";
    case CUDA_SYSTEM_DRIVER_MISMATCH:
        return "; libcuda.so.1 and the kernel module are of different versions: reboot, or install "
               "matching ones";
    case CUDA_INVALID_CONTEXT:
        return "; this thread did not enter the device";
    case CUDA_NOT_INITIALIZED:
        return "; this process was forked from one that used CUDA";
    default:
        return "";
    }
}

static tt_status driver_status(CUresult r)
{
    switch ((int)r) {
    case CUDA_OUT_OF_MEMORY:
        return TT_ENOMEM;
    case CUDA_NO_DEVICE:
    case CUDA_STUB_LIBRARY:
    case CUDA_SYSTEM_DRIVER_MISMATCH:
    case CUDA_NOT_FOUND:
        return TT_ENOTFOUND;
    default:
        return TT_EINTERNAL;
    }
}

tt_status cuda_check(CUresult r, tt_error *err, const char *fmt, ...)
{
    if ((int)r == CUDA_SUCCESS_)
        return TT_OK;
    char what[512];
    const char *name = NULL, *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    if (cu.cuGetErrorName)
        cu.cuGetErrorName(r, &name);
    if (cu.cuGetErrorString)
        cu.cuGetErrorString(r, &text);
    return TT_FAIL(err, driver_status(r), "%s: CUDA error %d, %s: %s%s", what, (int)r,
                   name ? name : "without a name", text ? text : "no text", driver_hint(r));
}

/* ---- open ---- */

static tt_status driver_load(const char *folder, cuda_lib *lib, tt_error *err)
{
    static const char *const names[] = {"libcuda.so.1", NULL};
    cuda_driver table;
    if (cuda_lib_open(folder, NULL, names, lib, err) != TT_OK)
        return tt_error_context(err, "no NVIDIA driver");
    TT_TRY(cuda_lib_symbol(lib, "cuDriverGetVersion", &table.cuDriverGetVersion, err));
    int version = 0;
    if ((int)table.cuDriverGetVersion(&version) == CUDA_SUCCESS_ && version < OLDEST_DRIVER)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "the NVIDIA driver (%s) is of CUDA %d.%d; CUDA %d.%d (driver 525) or newer "
                       "is needed",
                       lib->path, version / 1000, version % 1000 / 10, OLDEST_DRIVER / 1000,
                       OLDEST_DRIVER % 1000 / 10);
#define CUDA_DRIVER_LOAD(name, parameters) TT_TRY(cuda_lib_symbol(lib, #name, &table.name, err));
    CUDA_DRIVER_FUNCTIONS(CUDA_DRIVER_LOAD)
#undef CUDA_DRIVER_LOAD
    cu = table;
    driver.version = version;
    return TT_OK;
}

static tt_status driver_open_locked(const char *folder, tt_error *err)
{
    cuda_lib lib;
    TT_TRY(driver_load(folder, &lib, err));
    TT_TRY(cuda_check(cu.cuInit(0), err, "cuInit of %s", lib.path));
    TT_TRY(cuda_check(cu.cuDeviceGetCount(&driver.n_devices), err, "cuDeviceGetCount"));
    if (driver.n_devices < 1) {
        const char *visible = getenv("CUDA_VISIBLE_DEVICES");
        return TT_FAIL(err, TT_ENOTFOUND, "the NVIDIA driver sees no GPU%s%s",
                       visible ? "; CUDA_VISIBLE_DEVICES is " : "", visible ? visible : "");
    }
    driver.open = true;
    return TT_OK;
}

tt_status cuda_driver_open(const char *folder, tt_error *err)
{
    pthread_mutex_lock(&driver.lock);
    const tt_status s = driver.open ? TT_OK : driver_open_locked(folder, err);
    pthread_mutex_unlock(&driver.lock);
    return s;
}
