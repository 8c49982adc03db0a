/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_OPS_TENSORS_H
#define TT_TESTS_OPS_TENSORS_H
#include "graph/graph.h"
#include <dlfcn.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/backend.h>
#include <ttrun/plugin.h>

#include <cmocka.h>

/* Backends loaded from $PLUGINS, random numbers, and elements of tensors as doubles. */

static inline const tt_backend_vt *backend_load(const char *name)
{
    char path[1024];
    const char *plugins = getenv("PLUGINS");
    snprintf(path, sizeof path, "%s/backends/%s.so",
             plugins != NULL ? plugins : "build/release/plugins", name);
    void *so = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (so == NULL)
        fail_msg("%s", dlerror());
    const tt_plugin *p = dlsym(so, "tt_plugin_entry");
    if (p == NULL)
        fail_msg("%s has no tt_plugin_entry", path);
    return p->components[0].vtable;
}

static inline double eval_uniform(uint64_t *s) /* [0,1): splitmix64, the same on every machine */
{
    uint64_t z = (*s += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static inline double get(const tt_tensor *t, int64_t i)
{
    switch (t->dtype) {
    case TT_F64:
        return ((const double *)t->data)[i];
    case TT_F32:
        return (double)((const float *)t->data)[i];
    case TT_I32:
        return (double)((const int32_t *)t->data)[i];
    case TT_BF16: {
        uint32_t u = (uint32_t)((const uint16_t *)t->data)[i] << 16;
        float f;
        memcpy(&f, &u, sizeof f);
        return (double)f;
    }
    default:
        return (double)((const uint8_t *)t->data)[i];
    }
}

static inline void put(const tt_tensor *t, int64_t i, double v)
{
    switch (t->dtype) {
    case TT_F64:
        ((double *)t->data)[i] = v;
        break;
    case TT_F32:
        ((float *)t->data)[i] = (float)v;
        break;
    case TT_I32:
        ((int32_t *)t->data)[i] = (int32_t)floor(v);
        break;
    case TT_BF16: {
        float f = (float)v;
        uint32_t u;
        memcpy(&u, &f, sizeof u);
        ((uint16_t *)t->data)[i] = (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
        break;
    }
    case TT_U8:
        ((uint8_t *)t->data)[i] = (uint8_t)v;
        break;
    default:
        ((uint8_t *)t->data)[i] = v > 0.0;
        break;
    }
}

static inline tt_tensor tensor_of(tt_arena *a, const tt_type *t)
{
    tt_tensor x = {.dtype = t->dtype, .n_dims = t->n_dims};
    for (int d = 0; d < t->n_dims; d++)
        x.shape[d] = x.global[d] = t->dims[d].size;
    x.data = tt_arena_array(a, (size_t)tt_tensor_numel(&x) + 1, tt_dtype_size(t->dtype));
    return x;
}

#endif
