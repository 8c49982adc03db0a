/* SPDX-License-Identifier: Apache-2.0 */
#include "api.h"
#include "cuda/lib.h"
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

nccl_api nccl;
static struct {
    pthread_mutex_t lock;
    bool open;
    char text[600];
} library = {.lock = PTHREAD_MUTEX_INITIALIZER};

static tt_status api_load(const char *folder, tt_error *err)
{
    static const char *const names[] = {"libnccl.so.2", NULL};
    cuda_lib lib;
    nccl_api api;
    int version = 0;
    if (cuda_lib_open(folder, "nccl", names, &lib, err) != TT_OK)
        return TT_FAIL(
            err, TT_ENOTFOUND,
            "%s; install NCCL (pip install nvidia-nccl-cu13, or apt's libnccl2), name its "
            "folder in comm.args.libraries, or take comm.backend local, shm or auto",
            err ? err->text : "no NCCL");
#define NCCL_LOAD(result, name, parameters) TT_TRY(cuda_lib_symbol(&lib, #name, &api.name, err));
    NCCL_FUNCTIONS(NCCL_LOAD)
#undef NCCL_LOAD
#define NCCL_LOAD(result, name, parameters)                                                        \
    if (cuda_lib_symbol(&lib, #name, &api.name, NULL) != TT_OK)                                    \
        api.name = NULL;
    NCCL_OPTIONAL(NCCL_LOAD)
#undef NCCL_LOAD
    if (api.ncclGetVersion(&version) != NCCL_SUCCESS || version < NCCL_OLDEST)
        return TT_FAIL(err, TT_EUNSUPPORTED, "%s is NCCL %d.%d.%d; 2.18 or newer is needed",
                       lib.path, version / 10000, version / 100 % 100, version % 100);
    nccl = api;
    snprintf(library.text, sizeof library.text, "%d.%d.%d, %s", version / 10000,
             version / 100 % 100, version % 100, lib.path);
    library.open = true;
    return TT_OK;
}

tt_status nccl_api_open(const char *folder, tt_error *err)
{
    tt_error e = {0};
    pthread_mutex_lock(&library.lock);
    const tt_status s = library.open ? TT_OK : api_load(folder, &e);
    pthread_mutex_unlock(&library.lock);
    if (s != TT_OK && err)
        *err = e;
    return s;
}

const char *nccl_api_describe(void)
{
    return library.text;
}
