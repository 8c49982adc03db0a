/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <stdlib.h>
#include <string.h>

/* Writes a step folder again with another number of files; one file at a time is in memory. */

/* Entries [begin, end) as the file of one rank; their bytes are in memory meanwhile. */
static tt_status write_part(tt_ckpt_reader *r, const char *folder, int64_t step, int rank,
                            size_t begin, size_t end, tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_ckpt_piece *p = tt_arena_array(a, end - begin + 1, sizeof *p);
    tt_status s = TT_OK;
    for (size_t i = begin; i < end && s == TT_OK; i++) {
        const tt_entry *e = tt_map_value(r->entries, i);
        int64_t bytes = 0;
        s = tt_entry_bytes(r, e, tt_entry_dtype(e), &bytes, err);
        void *data = s == TT_OK ? malloc((size_t)bytes + 1) : NULL;
        p[i - begin] = tt_entry_rows(e, tt_entry_dtype(e), 0, e->n_dims ? e->global[0] : 1, data);
        if (s != TT_OK)
            break;
        s = data ? tt_ckpt_load(r, &p[i - begin], 1, err)
                 : TT_FAIL(err, TT_ENOMEM, "no memory for %lld bytes of tensor '%s'",
                           (long long)bytes, e->name);
    }
    if (s == TT_OK)
        s = tt_ckpt_write(folder, step, rank, p, end - begin, err);
    for (size_t i = begin; i < end; i++)
        free(p[i - begin].data);
    tt_arena_free(a);
    return s;
}

static tt_status write_parts(tt_ckpt_reader *r, const char *folder, int64_t step, int n_files,
                             tt_error *err)
{
    const size_t n = tt_map_size(r->entries);
    int64_t *bytes = tt_arena_array(r->arena, n + 1, sizeof *bytes), left = 0;
    size_t begin = 0;
    for (size_t i = 0; i < n; i++) {
        const tt_entry *e = tt_map_value(r->entries, i);
        TT_TRY(tt_entry_bytes(r, e, tt_entry_dtype(e), &bytes[i], err));
        left = TT_MIN(left, INT64_MAX - bytes[i]) + bytes[i];
    }
    for (int k = 0; k < n_files; k++) {
        const int64_t share = left / (n_files - k);
        int64_t taken = 0;
        size_t end = begin;
        while (end < n && (taken < share || k == n_files - 1)) {
            taken += bytes[end];
            left -= bytes[end++];
        }
        TT_TRY(write_part(r, folder, step, k, begin, end, err));
        begin = end;
    }
    return TT_OK;
}

tt_status tt_ckpt_reshard(const char *step_folder, const char *out_folder, int n_files,
                          tt_error *err)
{
    tt_arena *a = tt_arena_new();
    tt_trainer_state st = {0};
    tt_ckpt_reader *r = NULL;
    tt_status s = tt_ckpt_read_state(step_folder, a, &st, err);
    if (s == TT_OK)
        s = tt_ckpt_open(step_folder, &r, err);
    if (s == TT_OK &&
        tt_path_exists(tt_arena_printf(a, "%s/step-%lld", out_folder, (long long)st.step)))
        s = TT_FAIL(err, TT_EEXIST,
                    "%s/step-%lld exists already; remove it, or name another folder", out_folder,
                    (long long)st.step);
    if (s == TT_OK)
        s = tt_ckpt_begin(out_folder, st.step, err);
    if (s == TT_OK)
        s = write_parts(r, out_folder, st.step, n_files, err);
    st.world = n_files;
    if (s == TT_OK)
        s = tt_ckpt_commit(out_folder, st.step, &st, err);
    tt_ckpt_close(r);
    tt_arena_free(a);
    return s;
}
