/* SPDX-License-Identifier: Apache-2.0 */
#include "plugin/library.h"
#include <dlfcn.h>

tt_status tt_library_open(const char *file, const char *package, const char *const *functions,
                          size_t n, void **out, tt_error *err)
{
    void *library = dlopen(file, RTLD_NOW | RTLD_LOCAL);
    if (!library)
        return TT_FAIL(err, TT_ENOTFOUND, "%s is wanted (apt-get install %s): %s", file, package,
                       dlerror());
    for (size_t i = 0; i < n; i++) {
        out[i] = dlsym(library, functions[i]);
        if (!out[i])
            return TT_FAIL(err, TT_ENOTFOUND, "%s has no %s", file, functions[i]);
    }
    return TT_OK;
}
