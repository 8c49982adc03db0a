/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_SIM_POWER_LOSS_H
#define TT_TESTS_SIM_POWER_LOSS_H
#include "journal.h"
#include <fcntl.h>
#include <ftw.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What a loss of power takes back of a journal: names that were made, renamed or removed since the last sync of their
 * folder, back to a moment drawn per folder (or one moment for all, as on a file system with one ordered journal),
 * and bytes that were not synced: whole files, or sectors of them. */

static struct {
    uint64_t inode;
    char path[1024];
} power_found;

static inline int power_visit(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)type, (void)at;
    if ((uint64_t)st->st_ino != power_found.inode)
        return 0;
    snprintf(power_found.path, sizeof power_found.path, "%s", path);
    return 1;
}

/* The path that an inode has now; NULL: none. */
static inline const char *power_path(const sim_shared *s, uint64_t inode)
{
    power_found.inode = inode;
    return nftw(s->folder, power_visit, 16, FTW_PHYS) == 1 ? power_found.path : NULL;
}

static inline bool power_join(const sim_shared *s, uint64_t folder, const char *name,
                              char out[1200])
{
    const char *at = power_path(s, folder);
    if (at)
        snprintf(out, 1200, "%s/%s", at, name);
    return at != NULL;
}

static inline int power_remove(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type, (void)at;
    remove(path);
    return 0;
}

static inline void remove_all(const char *path)
{
    nftw(path, power_remove, 16, FTW_PHYS | FTW_DEPTH);
}

static inline void power_undo(const sim_shared *s, const sim_op *o)
{
    char from[1200], to[1200], kept[800];
    snprintf(kept, sizeof kept, "%s/%d", s->removed, o->kept);
    if (!power_join(s, o->folder, o->name, from) || !power_join(s, o->to_folder, o->to_name, to))
        return;
    if (o->kind == SIM_CREATE || o->kind == SIM_MKDIR) {
        remove_all(from);
    } else if (o->kind == SIM_RENAME) {
        rename(to, from);
        if (o->kept)
            rename(kept, to);
    } else if (o->kind == SIM_EXCHANGE) {
        renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_EXCHANGE);
    } else if (o->kind == SIM_UNLINK && o->kept) {
        rename(kept, from);
    } else if (o->kind == SIM_RMDIR) {
        rename(kept, from);
    }
}

/* Sectors of [begin, end) become zeros, or the file ends before them. */
static inline void power_tear(const sim_shared *s, uint64_t inode, int64_t begin, int64_t end,
                              uint64_t seed)
{
    const char *path = power_path(s, inode);
    const int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    struct stat st;
    if (fd < 0)
        return;
    static const char zeros[512];
    const uint64_t how = sim_mix(seed) % 4; /* all, none, sectors, cut */
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) {
        end = end < st.st_size ? end : st.st_size;
        if (how == 3 && end == st.st_size && end > begin)
            (void)!ftruncate(fd, begin + (int64_t)(sim_mix(seed + 1) % (uint64_t)(end - begin)));
        for (int64_t at = begin; how != 1 && how != 3 && at < end; at += 512 - at % 512) {
            const int64_t to = at + 512 - at % 512 < end ? at + 512 - at % 512 : end;
            if (how == 0 || sim_mix(seed + (uint64_t)at) % 2)
                (void)!pwrite(fd, zeros, (size_t)(to - at), at);
        }
    }
    close(fd);
}

static inline bool power_is_name(const sim_op *o)
{
    return o->kind != SIM_DATA;
}

/* Which names are lost: per folder, those since a moment drawn among those that no sync has kept. */
static inline void power_draw(sim_shared *s, uint64_t seed)
{
    const int n = s->n_ops;
    const bool ordered = sim_mix(seed) % 2;
    int cut_of_all = 0, open_ops = 0;
    for (int i = 0; i < n; i++)
        open_ops += power_is_name(&s->ops[i]) && !s->ops[i].after_barrier;
    cut_of_all = (int)(sim_mix(seed + 1) % (uint64_t)(open_ops + 1));
    for (int i = 0, seen = 0; i < n; i++) {
        sim_op *o = &s->ops[i];
        int since = 0, before = 0;
        if (!power_is_name(o))
            continue;
        if (ordered) {
            o->lost = !o->after_barrier && seen++ >= cut_of_all;
            continue;
        }
        for (int j = 0; j < n; j++) {
            const sim_op *x = &s->ops[j];
            const bool same = power_is_name(x) && !x->synced && x->to_folder == o->to_folder;
            since += same;
            before += same && j < i;
        }
        const uint64_t cut = sim_mix(seed + o->to_folder) % (uint64_t)(since + 1);
        o->lost = !o->synced && (uint64_t)before >= cut;
    }
}

/* All names are lost that no sync has kept. */
static inline void power_draw_all(sim_shared *s)
{
    for (int i = 0; i < s->n_ops; i++)
        s->ops[i].lost = power_is_name(&s->ops[i]) && !s->ops[i].synced;
}

/* seed: of the bytes that are lost */
static inline void power_take(sim_shared *s, uint64_t seed)
{
    for (int i = 0; i < s->n_ops; i++) {
        const sim_op *o = &s->ops[i];
        if (o->kind == SIM_DATA && !o->synced)
            power_tear(s, o->inode, o->begin, o->end, seed + 7 * o->inode);
        if (o->kind == SIM_CREATE && !o->file_synced)
            power_tear(s, o->inode, 0, INT64_MAX, seed + 7 * o->inode);
    }
    for (int i = s->n_ops; i-- > 0;)
        if (s->ops[i].lost)
            power_undo(s, &s->ops[i]);
    s->n_ops = 0; /* what is there now is on the disk */
}

static inline void lose_power(sim_shared *s, uint64_t seed)
{
    power_draw(s, seed);
    power_take(s, seed);
}

#endif
