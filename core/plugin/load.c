/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "internal.h"
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <ltdl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define ENTRY "tt_plugin_entry"
#define TICK_NS 20000000 /* at least one step of the clock that stamps files */

/* libltdl keeps its handles in process-wide lists and is not thread-safe; ranks may be threads. */
static pthread_mutex_t ltdl_mutex = PTHREAD_MUTEX_INITIALIZER;

tt_status tt_plugin_loader_begin(tt_error *err)
{
    pthread_mutex_lock(&ltdl_mutex);
    int failed = lt_dlinit();
    pthread_mutex_unlock(&ltdl_mutex);
    return failed ? TT_FAIL(err, TT_EINTERNAL, "libltdl could not be initialised: %s", lt_dlerror())
                  : TT_OK;
}

void tt_plugin_loader_end(void)
{
    pthread_mutex_lock(&ltdl_mutex);
    lt_dlexit();
    pthread_mutex_unlock(&ltdl_mutex);
}

/* ---- the loader ---- */

/* The file that this thread loads, for the handler of faults; NULL: none. */
static _Thread_local const char *volatile being_loaded;

const char *tt_plugin_being_loaded(void)
{
    return being_loaded;
}

/* dlerror's text without the name of the private copy. */
static tt_status loader_error(const char *private_path, tt_error *err)
{
    const char *text = dlerror();
    text = text ? text : "the dynamic loader gave no reason";
    size_t n = strlen(private_path);
    if (strncmp(text, private_path, n) == 0 && text[n] == ':')
        text += n + 1 + (text[n + 1] == ' ');
    const char *hint =
        strstr(text, "undefined symbol") ? "; this ttrun lacks it: link the library it is in, or "
                                           "rebuild against this ttrun's headers"
        : strstr(text, "cannot open shared object file") ? "; a library it needs is not installed"
                                                         : "";
    return TT_FAIL(err, TT_EABI, "%s%s", text, hint);
}

/* Finds the descriptor in this object itself; dlsym also searches the libraries that it needs. */
static tt_status find_entry(void *handle, const tt_plugin **out, tt_error *err)
{
    struct link_map *own = NULL, *where = NULL;
    Dl_info info;
    void *symbol = dlsym(handle, ENTRY);
    if (!symbol || dlinfo(handle, RTLD_DI_LINKMAP, &own) != 0 ||
        !dladdr1(symbol, &info, (void **)&where, RTLD_DL_LINKMAP) || where != own)
        return TT_FAIL(err, TT_EABI,
                       "no ttrun plugin: it exports no " ENTRY
                       " (TT_PLUGIN(name, version, components) defines it)");
    *out = symbol;
    return TT_OK;
}

static tt_status own_by_ltdl(const char *path, void **out, tt_error *err)
{
    pthread_mutex_lock(&ltdl_mutex);
    lt_dlhandle handle = lt_dlopen(path);
    const char *text = handle ? NULL : lt_dlerror();
    pthread_mutex_unlock(&ltdl_mutex);
    if (!handle)
        return TT_FAIL(err, TT_EABI, "libltdl refuses it: %s", text ? text : "no reason given");
    *out = handle;
    return TT_OK;
}

/* libltdl binds lazily and reports every fault as "file not found" (seen in 2.4.7). So dlopen tries
 * the file first, for its error text, and libltdl opens it only if that worked. */
static tt_status open_copy(const char *path, const char *file, tt_loaded *out, tt_error *err)
{
    const tt_plugin *plugin = NULL;
    void *owned = NULL;
    being_loaded = file;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
        being_loaded = NULL;
        return tt_error_context((loader_error(path, err), err), "%s", file);
    }
    tt_status status = find_entry(handle, &plugin, err);
    if (status != TT_OK)
        tt_error_context(err, "%s", file);
    if (status == TT_OK)
        status = tt_plugin_verify(plugin, file, err);
    if (status == TT_OK)
        status = own_by_ltdl(path, &owned, err);
    dlclose(handle);
    being_loaded = NULL;
    if (status == TT_OK)
        *out = (tt_loaded){
            .handle = owned, .plugin = plugin, .name = tt_copy_remember(path, file, plugin)};
    return status;
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

/* Whether a file that was read is still what `st` says. Two writes within one step of the clock have the same time, so a
 * file that has just been written is looked at again a step later. */
static bool is_unchanged(const char *file, const struct stat *st)
{
    struct stat after;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const int64_t age = (int64_t)(now.tv_sec - st->st_mtim.tv_sec) * 1000000000 +
                        (now.tv_nsec - st->st_mtim.tv_nsec);
    if (age >= 0 && age < TICK_NS)
        nanosleep(&(struct timespec){0, TICK_NS}, NULL);
    return stat(file, &after) == 0 && after.st_ino == st->st_ino && after.st_dev == st->st_dev &&
           after.st_size == st->st_size && same_time(after.st_mtim, st->st_mtim) &&
           same_time(after.st_ctim, st->st_ctim);
}

static tt_status check_bytes(const char *file, const struct stat *st, const char *bytes, size_t n,
                             tt_error *err)
{
    if (!is_unchanged(file, st))
        return TT_FAIL(err, TT_EIO, "it is being written; try again when it is complete");
    return tt_elf_check((const unsigned char *)bytes, n, err);
}

static tt_status read_plugin(const char *file, char **bytes, size_t *n, tt_error *err)
{
    struct stat st;
    if (stat(file, &st) != 0)
        return TT_FAIL(err, errno == ENOENT ? TT_ENOTFOUND : TT_EIO, "%s: cannot be opened: %s",
                       file, strerror(errno));
    if (!S_ISREG(st.st_mode)) /* a pipe would block for ever */
        return TT_FAIL(err, TT_EFORMAT, "%s: not a plugin: not a regular file", file);
    TT_TRY(tt_read_file(file, TT_PLUGIN_MOST_BYTES, bytes, n, err));
    tt_status status = check_bytes(file, &st, *bytes, *n, err);
    if (status == TT_OK)
        return TT_OK;
    free(*bytes);
    *bytes = NULL;
    tt_error_context(err, "%s", file);
    return status;
}

static tt_status open_in_place(const char *file, const char *why, tt_loaded *out, tt_error *err)
{
    char *path = realpath(file, NULL);
    if (!path)
        return TT_FAIL(err, TT_EIO, "%s: cannot resolve its path: %s", file, strerror(errno));
    tt_status status = open_copy(path, file, out, err);
    free(path);
    if (status == TT_OK)
        tt_log(TT_WARN, "plugin",
               "%s: %s, so it is loaded from its place: do not overwrite it during the run", file,
               why);
    return status;
}

/* A reason why the file itself may load although its copy does not; NULL = there is none. */
static const char *reason_for_in_place(const tt_error *e)
{
    if (strstr(e->text, "failed to map segment"))
        return "the folder of its copy allows no code"; /* mounted noexec */
    if (strstr(e->text, "cannot open shared object file"))
        return "it looks for libraries in its own folder"; /* an rpath with $ORIGIN */
    return NULL;
}

tt_status tt_plugin_open(const char *path, const char *private_dir, tt_loaded *out, tt_error *err)
{
    tt_error local;
    char *bytes = NULL;
    const char *why = "no private copy of it can be written";
    size_t n = 0;
    tt_status status = TT_EIO;
    err = err ? err : &local;
    TT_TRY(read_plugin(path, &bytes, &n, err));
    const uint64_t hash = tt_hash64(bytes, n, 0);
    tt_arena *a = tt_arena_new();
    for (int again = 0; again < 2 && status != TT_OK && why; again++) {
        tt_copy c;
        if (!tt_copy_make(a, path, again ? NULL : private_dir, !again, bytes, n, &c))
            continue;
        status = open_copy(c.path, path, out, err);
        tt_copy_drop(&c);
        why = status == TT_OK ? NULL : reason_for_in_place(err);
    }
    if (status != TT_OK && why)
        status = open_in_place(path, why, out, err);
    out->hash = hash;
    tt_arena_free(a);
    free(bytes);
    return status;
}

void tt_plugin_close(tt_loaded *l)
{
    if (!l->handle)
        return;
    tt_copy_forget(l->name);
    pthread_mutex_lock(&ltdl_mutex);
    lt_dlclose(l->handle);
    pthread_mutex_unlock(&ltdl_mutex);
    *l = (tt_loaded){0};
}
