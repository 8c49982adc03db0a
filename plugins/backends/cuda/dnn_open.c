/* SPDX-License-Identifier: Apache-2.0 */
#include "attention_dnn.h"
#include "lib.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/log.h>

/* Opens cuDNN. */

/* Before, the derivative fails in a captured graph. */
enum { OLDEST = 91501 };
#define OLDEST_NAME "9.15.1"

static tt_status open_api(cuda_dnn *d, const cuda_lib *lib, tt_error *err)
{
#define DNN_FUNCTION(name) TT_TRY(cuda_lib_symbol(lib, #name, &d->api.name, err))
    DNN_FUNCTION(cudnnGetVersion);
    DNN_FUNCTION(cudnnGetErrorString);
    DNN_FUNCTION(cudnnGetLastErrorString);
    DNN_FUNCTION(cudnnCreate);
    DNN_FUNCTION(cudnnDestroy);
    DNN_FUNCTION(cudnnSetStream);
    DNN_FUNCTION(cudnnBackendCreateDescriptor);
    DNN_FUNCTION(cudnnBackendDestroyDescriptor);
    DNN_FUNCTION(cudnnBackendFinalize);
    DNN_FUNCTION(cudnnBackendSetAttribute);
    DNN_FUNCTION(cudnnBackendGetAttribute);
    DNN_FUNCTION(cudnnBackendExecute);
#undef DNN_FUNCTION
    const size_t version = d->api.cudnnGetVersion();
    return version < OLDEST || version >= 100000
               ? TT_FAIL(err, TT_EUNSUPPORTED,
                         "%s has version %zu; " OLDEST_NAME " or a later 9 is needed", lib->path,
                         version)
               : TT_OK;
}

/* A chip that is not here, in the words of cudnnBackend's device properties. What cuda_chip lacks is
 * equal on all chips from compute capability 8.0 on, or has no influence on plans. */
static int chip_text(const cuda_chip *c, char *text, size_t room)
{
    const int many = c->sm == 80 || c->sm == 90 || c->sm == 100 || c->sm == 103;
    return snprintf(
        text, room,
        "{\"cudaDeviceId\": 0, \"deviceVer\": %d, \"driverVer\": 13000, \"totalGlobalMem\": %lld, "
        "\"maxGridSize\": [2147483647, 65535, 65535], \"maxBlockSize\": [1024, 1024, 64], "
        "\"regsPerBlock\": 65536, \"multiProcessorCount\": %d, \"warpSize\": 32, "
        "\"maxSharedMemoryPerBlock\": 49152, \"maxSharedMemoryPerBlockOptin\": %d, "
        "\"reservedSharedMemoryPerBlock\": 1024, \"maxRegistersPerSM\": 65536, \"maxCtasPerSM\": "
        "%d, "
        "\"maxThreadsPerBlock\": 1024, \"maxThreadsPerSM\": %d, \"pciDeviceId\": 0, "
        "\"isTccDriver\": 0, \"supportCoopLaunch\": 1, \"smClockRateKHz\": 1980000, "
        "\"memClockRateKHz\": 3201000, \"l2CacheSize\": %lld, \"deviceName\": \"%s\"}",
        c->sm * 10, (long long)c->memory_bytes, c->n_sms, c->shared_bytes, many ? 32 : 24,
        many ? 2048 : 1536, (long long)c->l2_bytes, c->name);
}

static tt_status open_chip(cuda_dnn *d, const cuda_chip *chip, tt_error *err)
{
    char text[1200];
    const int n = chip_text(chip, text, sizeof text) + 1;
    if (d->api.cudnnBackendCreateDescriptor(DNN_DEVICEPROP, &d->chip) != 0 ||
        d->api.cudnnBackendSetAttribute(d->chip, DNN_ATTR_DEVICEPROP_JSON, DNN_TYPE_CHAR, n,
                                        text) != 0 ||
        d->api.cudnnBackendFinalize(d->chip) != 0)
        return TT_FAIL(err, TT_EUNSUPPORTED, "cuDNN cannot plan for a chip that is not here");
    return TT_OK;
}

static tt_status open_all(cuda_backend *b, cuda_dnn *d, tt_error *err)
{
    static const char *const names[] = {"libcudnn.so.9", NULL};
    cuda_lib lib;
    TT_TRY(cuda_lib_open_new(b->config.libraries, "cudnn", names, OLDEST_NAME, &lib, err));
    TT_TRY(open_api(d, &lib, err));
    if (b->is_target)
        return open_chip(d, &b->chip, err);
    const int s = d->api.cudnnCreate(&d->handle);
    return s == 0 ? TT_OK
                  : TT_FAIL(err, TT_EUNSUPPORTED, "cudnnCreate: %s", d->api.cudnnGetErrorString(s));
}

tt_status cuda_dnn_open(cuda_backend *b, tt_error *err)
{
    const char *want = b->config.attention ? b->config.attention : "auto";
    tt_error why = {0};
    if (strcmp(want, "own") == 0)
        return TT_OK;
    cuda_dnn *d = calloc(1, sizeof *d);
    if (!d)
        return TT_FAIL(err, TT_ENOMEM, "backend cuda: out of memory");
    b->dnn = d;
    if (open_all(b, d, &why) == TT_OK)
        return TT_OK;
    cuda_dnn_close(b);
    if (strcmp(want, "cudnn") == 0)
        return TT_FAIL(err, why.code, "backend.attention: \"cudnn\": %s; use \"auto\" or \"own\"",
                       why.text);
    tt_log(TT_DEBUG, "cuda", "attention by our own kernels: %s", why.text);
    return TT_OK;
}

void cuda_dnn_close(cuda_backend *b)
{
    cuda_dnn *d = b->dnn;
    if (!d)
        return;
    cuda_dnn_plans_free(d);
    if (d->chip)
        d->api.cudnnBackendDestroyDescriptor(d->chip);
    if (d->handle)
        d->api.cudnnDestroy(d->handle);
    free(d);
    b->dnn = NULL;
}

void cuda_dnn_describe(const cuda_backend *b, char *text, size_t size)
{
    const size_t v = b->dnn ? b->dnn->api.cudnnGetVersion() : 0;
    if (v)
        snprintf(text, size, "cuDNN %zu.%zu.%zu", v / 10000, v / 100 % 100, v % 100);
    else
        snprintf(text, size, "own attention");
}
