/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* verify: reads every byte. A commit checks what it is about to publish without the hashes. A resume does the same, and
 * takes the hashes from what its loads read. */

static size_t add_fault(tt_str *out, const char *text)
{
    tt_str_add(out, text);
    tt_str_addc(out, '\n');
    return 1;
}

/* hash NULL: the size alone is compared. */
static tt_status compare_file(const char *path, const tt_ckpt_file *f, int64_t bytes,
                              const char *hash, tt_error *err)
{
    if (bytes != f->bytes)
        return TT_FAIL(err, TT_EFORMAT, "%s: %lld bytes, %lld in " TT_STATE_FILE, path,
                       (long long)bytes, (long long)f->bytes);
    if (hash && strcmp(hash, f->hash) != 0)
        return TT_FAIL(err, TT_EFORMAT,
                       "%s: XXH3 is %s, %s in " TT_STATE_FILE "; the data has changed", path, hash,
                       f->hash);
    return TT_OK;
}

/* hashes: reads every byte, else the size alone is compared. */
static size_t check_file(tt_arena *a, const char *folder, const tt_ckpt_file *f, bool hashes,
                         tt_str *out)
{
    int64_t bytes = 0;
    char hash[33] = "";
    tt_error why = {0};
    const char *path = tt_path_join(a, folder, f->name);
    struct stat st = {0};
    tt_status s = TT_OK;
    if (hashes)
        s = tt_hash_file(path, &bytes, hash, &why);
    else if (stat(path, &st) != 0)
        s = tt_fail_system(&why, errno, "read", path);
    if (s == TT_OK)
        s = compare_file(path, f, hashes ? bytes : st.st_size, hashes ? hash : NULL, &why);
    return s == TT_OK ? 0 : add_fault(out, why.text);
}

static size_t check_files(tt_arena *a, const char *folder, const tt_manifest *m, bool hashes,
                          tt_str *out)
{
    const char **names = NULL;
    size_t n = 0, faults = 0;
    tt_error why = {0};
    tt_map *listed = tt_map_new(a);
    for (size_t i = 0; i < m->files.n; i++) {
        faults += check_file(a, folder, &m->files.items[i], hashes, out);
        tt_map_set(listed, m->files.items[i].name, &m->files.items[i]);
    }
    if (tt_folder_names(a, folder, tt_is_safetensors_name, &names, &n, &why) != TT_OK)
        return faults + add_fault(out, why.text);
    for (size_t i = 0; i < n; i++) {
        if (tt_map_get(listed, names[i]))
            continue;
        tt_str_printf(out, "%s/%s: not in " TT_STATE_FILE "\n", folder, names[i]);
        faults++;
    }
    return faults;
}

static size_t check_tensors(const char *folder, tt_str *out)
{
    size_t faults = 0;
    tt_ckpt_reader *r = NULL;
    tt_error why = {0};
    if (tt_ckpt_open(folder, &r, &why) != TT_OK)
        return add_fault(out, why.text);
    for (size_t i = 0; i < tt_map_size(r->entries); i++) {
        tt_entry *e = tt_map_value(r->entries, i);
        if (tt_entry_check_whole(r, e, &why) != TT_OK)
            faults += add_fault(out, why.text);
    }
    tt_ckpt_close(r);
    return faults;
}

/* A step folder that was renamed, or whose trainer.json was changed, would be trained on from
 * another step than its name says. Folders with other names are not compared. */
static size_t check_name(tt_arena *a, const char *folder, const tt_trainer_state *state,
                         tt_str *out)
{
    size_t n = strlen(folder);
    while (n > 0 && folder[n - 1] == '/')
        n--;
    const char *path = tt_arena_strn(a, folder, n), *slash = strrchr(path, '/');
    const int64_t step = tt_step_of_name(slash ? slash + 1 : path, NULL);
    if (step < 0 || step == state->step)
        return 0;
    tt_str_printf(out,
                  "%s/" TT_STATE_FILE ": step is %lld, but the folder is called step-%lld; if it "
                  "was renamed, call it step-%lld again\n",
                  path, (long long)state->step, (long long)step, (long long)state->step);
    return 1;
}

static tt_status check_folder(const char *step_folder, bool hashes, tt_str *out, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_manifest m = {0};
    tt_trainer_state state;
    tt_error why = {0};
    size_t faults;
    if (tt_ckpt_state_from_file(a, step_folder, &state, &m, &why) == TT_OK)
        faults =
            check_name(a, step_folder, &state, out) + check_files(a, step_folder, &m, hashes, out);
    else
        faults = add_fault(out, why.text);
    faults += check_tensors(step_folder, out);
    tt_arena_free(a);
    if (faults)
        return TT_FAIL(err, TT_EFORMAT, "%s: %zu fault%s; load another step", step_folder, faults,
                       faults == 1 ? "" : "s");
    return TT_OK;
}

tt_status tt_ckpt_verify(const char *step_folder, tt_str *out, tt_error *err)
{
    return check_folder(step_folder, true, out, err);
}

tt_status tt_ckpt_check_written(const char *step_folder, tt_str *out, tt_error *err)
{
    return check_folder(step_folder, false, out, err);
}

/* ---- the hashes of a share of the files, while they are loaded ---- */

/* The rank that wrote a file, by its name; -1: it has another one. */
static int writer_of(const tt_ckpt_file *f)
{
    char *end = NULL;
    static const char prefix[] = "shard-";
    if (strncmp(f->name, prefix, sizeof prefix - 1) != 0 ||
        !isdigit((unsigned char)f->name[sizeof prefix - 1]))
        return -1;
    const long rank = strtol(f->name + sizeof prefix - 1, &end, 10);
    return *end == '-' && rank >= 1 && rank <= INT_MAX ? (int)rank - 1 : -1;
}

void tt_ckpt_check_share(tt_ckpt_reader *r, int writers, int rank, int world)
{
    double total = 0, before = 0;
    if (!r->has_manifest)
        return;
    r->checks = tt_arena_array(r->arena, r->n_files + 1, sizeof *r->checks);
    for (size_t i = 0; i < r->n_files; i++)
        total += (double)r->manifest.files.items[i].bytes;
    for (size_t i = 0; i < r->n_files; i++) {
        const tt_ckpt_file *f = &r->manifest.files.items[i];
        const double middle = before + (double)f->bytes / 2;
        const int place = total > 0 ? (int)(middle / total * world) : 0, writer = writer_of(f);
        const int of =
            writers == world && writer >= 0 && writer < world ? writer : TT_MIN(place, world - 1);
        if (of == rank)
            r->checks[i].file = f;
        before += (double)f->bytes;
    }
}

tt_status tt_ckpt_check_rest(tt_ckpt_reader *r, tt_error *err)
{
    for (size_t i = 0; r->checks && i < r->n_files; i++) {
        tt_file_check *c = &r->checks[i];
        int64_t bytes = 0;
        char hash[33] = "";
        if (!c->file)
            continue;
        TT_TRY(tt_hash_rest(r->files[i].path, c, &bytes, hash, err));
        TT_TRY(compare_file(r->files[i].path, c->file, bytes, hash, err));
    }
    return TT_OK;
}
