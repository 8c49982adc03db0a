/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "module.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ttrun/log.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* A folder of compiled kernels: <key>.cubin is a head and the code. */

typedef struct head {
    char magic[8];
    cuda_key key;
    uint64_t bytes, hash; /* of the code */
} head;
static const char magic[8] = {'t', 't', 'c', 'u', 'b', 'i', 'n', '1'};

cuda_key cuda_key_of(const char *const *texts, int n)
{
    XXH3_state_t s;
    XXH3_128bits_reset(&s);
    for (int i = 0; i < n; i++)
        XXH3_128bits_update(&s, texts[i], strlen(texts[i]) + 1);
    const XXH128_hash_t h = XXH3_128bits_digest(&s);
    return (cuda_key){h.low64, h.high64};
}

void cuda_cache_folder(const char *folder, char *path, size_t size)
{
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int n = 0;
    if (folder && *folder)
        n = snprintf(path, size, "%s", folder);
    else if (cache && *cache)
        n = snprintf(path, size, "%s/ttrun/cubin", cache);
    else if (home && *home)
        n = snprintf(path, size, "%s/.cache/ttrun/cubin", home);
    if (n <= 0 || (size_t)n >= size)
        path[0] = '\0';
}

static bool cache_path(const char *folder, cuda_key key, char *path, size_t size)
{
    const int n = snprintf(path, size, "%s/%016llx%016llx.cubin", folder,
                           (unsigned long long)key.hi, (unsigned long long)key.lo);
    return folder[0] && (size_t)n < size;
}

static bool cache_read_all(int fd, void *to, size_t n)
{
    char *at = to;
    while (n) {
        const ssize_t got = read(fd, at, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        at += got;
        n -= (size_t)got;
    }
    return true;
}

static bool cache_write_all(int fd, const void *from, size_t n)
{
    const char *at = from;
    while (n) {
        const ssize_t put = write(fd, at, n);
        if (put < 0 && errno == EINTR)
            continue;
        if (put <= 0)
            return false;
        at += put;
        n -= (size_t)put;
    }
    return true;
}

static bool cache_load(int fd, cuda_key key, cuda_code *out)
{
    head h;
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || !cache_read_all(fd, &h, sizeof h) ||
        memcmp(h.magic, magic, sizeof magic) != 0 || h.key.lo != key.lo || h.key.hi != key.hi ||
        h.bytes != (uint64_t)st.st_size - sizeof h)
        return false;
    cuda_code c = {malloc(h.bytes + 1), h.bytes};
    if (c.data && cache_read_all(fd, c.data, c.bytes) && XXH3_64bits(c.data, c.bytes) == h.hash) {
        ((char *)c.data)[c.bytes] = '\0'; /* PTX is a text */
        *out = c;
        return true;
    }
    free(c.data);
    return false;
}

bool cuda_cache_read(const char *folder, cuda_key key, cuda_code *out)
{
    char path[PATH_MAX];
    if (!cache_path(folder, key, path, sizeof path))
        return false;
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    const bool ok = cache_load(fd, key, out);
    close(fd);
    if (!ok)
        tt_log(TT_INFO, "backend", "%s is damaged or another's: it is made again", path);
    return ok;
}

/* The folder and those above it. */
static bool cache_make_folder(const char *folder)
{
    char path[PATH_MAX];
    const int n = snprintf(path, sizeof path, "%s", folder);
    if ((size_t)n >= sizeof path)
        return false;
    for (char *p = path + 1; *p; p++)
        if (*p == '/') {
            *p = '\0';
            mkdir(path, 0777);
            *p = '/';
        }
    return mkdir(path, 0777) == 0 || errno == EEXIST;
}

static void cache_complain(const char *folder, int why)
{
    static int said;
    if (!__atomic_exchange_n(&said, 1, __ATOMIC_RELAXED))
        tt_log(TT_WARN, "backend",
               "compiled kernels cannot be kept in \"%s\" (%s): they are compiled at every start; "
               "backend.cache names another folder",
               folder, strerror(why));
}

void cuda_cache_write(const char *folder, cuda_key key, const cuda_code *code)
{
    static unsigned number;
    char path[PATH_MAX], made[PATH_MAX];
    head h = {.key = key, .bytes = code->bytes, .hash = XXH3_64bits(code->data, code->bytes)};
    memcpy(h.magic, magic, sizeof magic);
    const unsigned mine = __atomic_fetch_add(&number, 1, __ATOMIC_RELAXED);
    const int n = snprintf(made, sizeof made, "%s/.%ld.%u.new", folder, (long)getpid(), mine);
    if (!cache_path(folder, key, path, sizeof path) || (size_t)n >= sizeof made) {
        cache_complain(folder, ENOENT);
        return;
    }
    int fd = -1;
    if (cache_make_folder(folder))
        fd = open(made, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        cache_complain(folder, errno);
        return;
    }
    bool ok = cache_write_all(fd, &h, sizeof h) && cache_write_all(fd, code->data, code->bytes);
    int why = errno;
    if (close(fd) != 0 && ok) {
        ok = false;
        why = errno;
    }
    if (ok && rename(made, path) != 0) {
        ok = false;
        why = errno;
    }
    if (!ok) {
        unlink(made);
        cache_complain(folder, why);
    }
}
