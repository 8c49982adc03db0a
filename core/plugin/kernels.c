/* SPDX-License-Identifier: Apache-2.0 */
#include "internal.h"
#include <string.h>
#include <ttrun/kernels.h>

/* Kernels that plugins bring for another plugin's backend. */

const tt_kernel *tt_kernel_at(const tt_kernels_vt *v, size_t i)
{
    return (const void *)((const char *)v->kernels + i * v->kernel_size);
}

const tt_kernel *tt_component_kernel(const tt_component *c, const char *op)
{
    const tt_kernels_vt *v = c->vtable;
    for (size_t i = 0; i < v->n_kernels; i++) {
        const tt_kernel *k = tt_kernel_at(v, i);
        if (strcmp(k->op, op) == 0)
            return k;
    }
    return NULL;
}

/* Folders of other kinds hold none, but in files that were opened for something else. */
static bool may_hold(tt_registry *r, tt_plugin_file *f, const char *backend, const char *op)
{
    return (f->folder == TT_KIND_KERNELS || f->folder == TT_KIND_END) &&
           tt_scan_may_have(r->arena, f, TT_KIND_KERNELS, NULL) && tt_scan_mentions(f->path, op) &&
           tt_scan_mentions(f->path, backend);
}

static tt_status kernels_take(const tt_plugin_file *f, const char *backend, const char *op,
                              tt_plugin_kernel *out, const tt_plugin_file **from, tt_error *err)
{
    for (size_t j = 0; j < f->loaded.plugin->n_components; j++) {
        const tt_component *c = tt_component_at(f->loaded.plugin, j);
        if (c->kind != TT_KIND_KERNELS ||
            strcmp(((const tt_kernels_vt *)c->vtable)->backend, backend) != 0)
            continue;
        const tt_kernel *k = tt_component_kernel(c, op);
        if (k && out->kernel && f->own && !(*from)->own)
            continue; /* ttrun's own, which come last, give way */
        if (k && out->kernel)
            return TT_FAIL(err, TT_EEXIST,
                           "op %s has a kernel for backend %s in both kernels \"%s\" (%s) and "
                           "kernels \"%s\" (%s): name one of them in backend.kernels",
                           op, backend, out->component->name, (*from)->path, c->name, f->path);
        if (k) {
            *out = (tt_plugin_kernel){k, c};
            *from = f;
        }
    }
    return TT_OK;
}

static tt_status find_kernel(tt_registry *r, const char *backend, const char *op,
                             const tt_component *own, tt_plugin_kernel *out, tt_error *err)
{
    const tt_plugin_file *only = own ? tt_registry_file_of(r, own) : NULL, *from = NULL;
    *out = (tt_plugin_kernel){0};
    for (size_t i = 0; i < r->files.n; i++) {
        tt_plugin_file *f = r->files.items[i];
        if (own && f != only)
            continue;
        if (f->state == TT_FILE_CLOSED && may_hold(r, f, backend, op) &&
            tt_registry_open(r, f) == TT_FILE_FAULTY)
            tt_log(TT_WARN, "plugin", "no kernels are taken from it: %s", f->fault);
        if (f->state == TT_FILE_LOADED)
            TT_TRY(kernels_take(f, backend, op, out, &from, err));
    }
    return TT_OK;
}

tt_status tt_registry_kernel(tt_registry *r, const char *backend, const char *op,
                             const tt_component *own, tt_plugin_kernel *out, tt_error *err)
{
    pthread_mutex_lock(&r->lock);
    const tt_status status = find_kernel(r, backend, op, own, out, err);
    pthread_mutex_unlock(&r->lock);
    return status;
}
