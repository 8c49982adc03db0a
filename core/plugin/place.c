/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "internal.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unwind.h>

/* What an address of code belongs to: a plugin, and which of its components the core called. The
 * handler of crashes asks; so all that it needs is collected when a plugin is loaded, in tables that
 * it reads without a lock and without calling the plugin. */

#define LABEL_BYTES 96 /* of `lr_scheduler "NAME"`: a name has at most 64 */

typedef struct {
    uintptr_t begin;
    size_t component;
} function;

typedef struct {
    char label[LABEL_BYTES]; /* "": of a kind that this ttrun does not know */
    _Atomic(bool) used;      /* someone looked it up */
} part;

/* Entries are added and used again, never freed, so that a handler can read them at any time. */
struct tt_copy_name {
    _Atomic(bool) used;
    char path[256], file[256];
    part *parts;
    function *functions;
    size_t n_parts, n_functions;
    struct tt_copy_name *next;
};
static _Atomic(tt_copy_name *) copy_names;
static pthread_mutex_t copy_names_lock = PTHREAD_MUTEX_INITIALIZER;

typedef struct {
    tt_copy_name *of;
    size_t component, n, room;
} collecting;

static void collect_function(void *arg, uintptr_t code)
{
    collecting *c = arg;
    if (c->n < c->room)
        c->of->functions[c->n] = (function){code, c->component};
    c->n++;
}

/* Calls collect_function with the functions of all components. Those of unknown kinds were not
 * checked, so nothing of them is read. */
static size_t collect_functions(tt_copy_name *of, const tt_plugin *p, size_t room)
{
    collecting c = {of, 0, 0, room};
    for (; c.component < p->n_components; c.component++)
        if (tt_kind_known(tt_component_at(p, c.component)->kind))
            tt_component_functions(tt_component_at(p, c.component), collect_function, &c);
    return c.n;
}

/* Without memory for the tables, only the file is known. */
static void describe_parts(tt_copy_name *c, const tt_plugin *p)
{
    const size_t n = collect_functions(c, p, 0);
    c->n_parts = c->n_functions = 0;
    c->parts = calloc(p->n_components, sizeof *c->parts);
    c->functions = calloc(n + 1, sizeof *c->functions);
    if (!c->parts || !c->functions)
        return;
    for (size_t i = 0; i < p->n_components; i++) {
        const tt_component *k = tt_component_at(p, i);
        if (tt_kind_known(k->kind))
            snprintf(c->parts[i].label, LABEL_BYTES, "%s \"%s\"", tt_kind_name(k->kind), k->name);
    }
    c->n_parts = p->n_components;
    c->n_functions = collect_functions(c, p, n);
}

tt_copy_name *tt_copy_remember(const char *path, const char *file, const tt_plugin *plugin)
{
    pthread_mutex_lock(&copy_names_lock);
    tt_copy_name *first = atomic_load(&copy_names), *c = first;
    while (c && atomic_load(&c->used))
        c = c->next;
    tt_copy_name *fresh = c ? NULL : calloc(1, sizeof *fresh);
    c = c ? c : fresh;
    if (c) { /* without memory for it, the copy has no name */
        free(c->parts);
        free(c->functions);
        snprintf(c->path, sizeof c->path, "%s", path);
        snprintf(c->file, sizeof c->file, "%s", file);
        describe_parts(c, plugin);
        atomic_store(&c->used, true);
    }
    if (fresh) {
        fresh->next = first;
        atomic_store(&copy_names, fresh);
    }
    pthread_mutex_unlock(&copy_names_lock);
    return c;
}

void tt_copy_forget(tt_copy_name *name)
{
    if (name)
        atomic_store(&name->used, false);
}

void tt_copy_component_used(tt_copy_name *name, size_t i)
{
    if (name && i < name->n_parts)
        atomic_store(&name->parts[i].used, true);
}

/* ---- in handlers of faults ---- */

static tt_copy_name *copy_at(const void *address, const char **function_name)
{
    Dl_info info;
    if (!dladdr(address, &info) || !info.dli_fname)
        return NULL;
    for (tt_copy_name *c = atomic_load(&copy_names); c; c = c->next) {
        if (!atomic_load(&c->used) || strcmp(c->path, info.dli_fname) != 0)
            continue;
        if (function_name)
            *function_name = info.dli_sname;
        return c;
    }
    return NULL;
}

const char *tt_plugin_at(const void *address, const char **function_name)
{
    const tt_copy_name *c = copy_at(address, function_name);
    return c ? c->file : NULL;
}

static void add_component(tt_plugin_crash *out, const part *p)
{
    for (size_t i = 0; i < out->n_components && i < TT_CRASH_COMPONENTS; i++)
        if (out->components[i] == p->label)
            return;
    if (out->n_components < TT_CRASH_COMPONENTS)
        out->components[out->n_components] = p->label;
    out->n_components++;
}

/* Adds the components that have the function which begins at `begin` (0: all components); with
 * only_used those that were looked up. */
static void add_components(const tt_copy_name *c, uintptr_t begin, bool only_used,
                           tt_plugin_crash *out)
{
    for (size_t i = 0; begin && i < c->n_functions; i++) {
        const part *p = &c->parts[c->functions[i].component];
        if (c->functions[i].begin == begin && (!only_used || atomic_load(&p->used)))
            add_component(out, p);
    }
    for (size_t i = 0; !begin && i < c->n_parts; i++)
        if (*c->parts[i].label && (!only_used || atomic_load(&c->parts[i].used)))
            add_component(out, &c->parts[i]);
}

/* What a frame is in: the unwinder looks up the byte before the address, because a return address
 * may be behind the function's end; of the frame that crashed it is the instruction itself. */
static uintptr_t function_begin(void *frame, bool crashed)
{
    return (uintptr_t)_Unwind_FindEnclosingFunction((char *)frame + crashed);
}

/* Whether the address is in this ttrun's own code. */
static bool of_ttrun(const void *address)
{
    Dl_info here, there;
    return dladdr((const void *)(uintptr_t)of_ttrun, &here) && dladdr(address, &there) &&
           here.dli_fbase == there.dli_fbase;
}

/* Whether the first frame behind the handler's that is a plugin's or ttrun's is ttrun's. */
static bool own_call(void *const *frames, int n)
{
    int i = 0;
    while (i < n && of_ttrun(frames[i]))
        i++;
    while (i < n && !copy_at(frames[i], NULL) && !of_ttrun(frames[i]))
        i++;
    return i < n && of_ttrun(frames[i]);
}

bool tt_plugin_of_frames(void *const *frames, int n, bool aborted, tt_plugin_crash *out)
{
    int inner = 0;
    const tt_copy_name *c = NULL;
    *out = (tt_plugin_crash){0};
    if (aborted && own_call(frames, n))
        return false;
    while (inner < n && (c = copy_at(frames[inner], &out->function)) == NULL)
        inner++;
    if (!c)
        return false;
    out->file = c->file;
    for (int only_used = 1; only_used >= 0 && !out->n_components; only_used--) {
        /* The innermost: a loss may build an op of the same plugin. */
        for (int i = inner; i < n && !out->n_components; i++)
            if (copy_at(frames[i], NULL) == c) {
                const uintptr_t begin = function_begin(frames[i], i == inner);
                if (begin)
                    add_components(c, begin, only_used, out);
            }
    }
    for (int only_used = 1; only_used >= 0 && !out->n_components; only_used--)
        add_components(c, 0, only_used, out);
    return true;
}

void tt_plugin_crash_text(const tt_plugin_crash *c, const char *signal_name, char *text,
                          size_t size)
{
    size_t n = 0;
    const size_t listed = TT_MIN(c->n_components, (size_t)TT_CRASH_COMPONENTS);
    for (size_t i = 0; i < listed && n < size; i++)
        n += (size_t)snprintf(text + n, size - n, "%s%s", i ? " or " : "", c->components[i]);
    if (n < size && c->n_components > listed)
        n += (size_t)snprintf(text + n, size - n, " or %zu more", c->n_components - listed);
    if (n < size && c->file)
        n += (size_t)snprintf(text + n, size - n, "%s%s", n ? " of " : "the plugin ", c->file);
    if (n < size)
        snprintf(text + n, size - n, "%scrashed (%s%s%s)", n ? " " : "", signal_name,
                 c->function ? " in " : "", c->function ? c->function : "");
}
