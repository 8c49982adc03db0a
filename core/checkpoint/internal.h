/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CHECKPOINT_INTERNAL_H
#define TT_CHECKPOINT_INTERNAL_H
#include "checkpoint/convert.h"
#include "checkpoint/folder.h"
#include "checkpoint/reader.h"
#include "config/config.h"

/* Shared by the files of core/checkpoint only (and their tests and fuzzers). */

#define TT_STATE_FILE "trainer.json"
#define TT_STATE_MAX_BYTES ((size_t)256 << 20)

/* ---- state.c: trainer.json, and the part of it each rank leaves in step-N.tmp ---- */
void tt_manifest_print(const tt_manifest *m, tt_str *out); /* {"files":…,"tensors":…} */
tt_status tt_manifest_parse(tt_arena *a, const char *path, const char *text, size_t n,
                            tt_manifest *out, tt_error *err);
tt_status tt_state_print(const tt_trainer_state *s, const tt_manifest *m, tt_str *out,
                         tt_error *err);
/* state or manifest may be NULL where not wanted; both are checked. */
tt_status tt_state_parse(tt_arena *a, const char *path, const char *text, size_t n,
                         tt_trainer_state *state, tt_manifest *manifest, tt_error *err);
tt_status tt_ckpt_state_from_file(tt_arena *a, const char *step_folder, tt_trainer_state *state,
                                  tt_manifest *manifest, tt_error *err);

/* ---- load.c ---- */
/* Has the tensor the shape of the piece? */
bool tt_ckpt_fits(const struct tt_entry *e, const tt_ckpt_piece *p);
/* A tensor there whose name is like this one, or NULL. */
const char *tt_ckpt_nearest(const tt_ckpt_reader *r, tt_arena *a, const char *name);
/* What the line about an absent tensor adds: that the step leaves out frozen parameters; else "". */
const char *tt_ckpt_why_absent(const tt_ckpt_reader *r, tt_arena *a);
void tt_ckpt_add_shape(tt_str *s, const int64_t *shape, int n_dims);

/* ---- open.c ---- */
void tt_entry_sort(tt_entry *e); /* its shards, by begin[0] */

/* Two shards of a tensor that overlap are an error: which of them counts is not said. */
tt_status tt_entry_check_disjoint(const tt_ckpt_reader *r, tt_entry *e, tt_error *err);
/* The same, and that the shards cover all of it. */
tt_status tt_entry_check_whole(const tt_ckpt_reader *r, tt_entry *e, tt_error *err);
/* The shards cover the box; needs known_disjoint. An error names the tensor and an uncovered range.
 */
tt_status tt_entry_check_covers(const tt_ckpt_reader *r, const tt_entry *e, const tt_box *box,
                                tt_error *err);
tt_dtype tt_entry_dtype(const tt_entry *e); /* of its first shard; TT_N_DTYPES: one not read here */
/* The whole tensor as `dtype`. A file may say any shape. */
tt_status tt_entry_bytes(const tt_ckpt_reader *r, const tt_entry *e, tt_dtype dtype, int64_t *out,
                         tt_error *err);
/* Rows [begin, end) of dim 0 as a piece, into data. */
tt_ckpt_piece tt_entry_rows(const tt_entry *e, tt_dtype dtype, int64_t begin, int64_t end,
                            void *data);

/* ---- dequantize.c ---- */
/* Marks the quantized tensors of a folder whose form is known, and their scales. */
void tt_ckpt_find_quantized(tt_ckpt_reader *r);
/* Fills a piece of a floating-point dtype. */
tt_status tt_ckpt_dequantize(tt_ckpt_reader *r, const tt_entry *e, const tt_ckpt_piece *p,
                             tt_error *err);
/* codes.c: weights that ttrun stores as codes, <name>.nf4 or <name>.int8 with <name>.absmax. find fills
 * `coded`. fit: the entry's rows are as long as the piece's, but for a short last block. */
struct tt_coded;
void tt_ckpt_find_coded(tt_ckpt_reader *r);
bool tt_ckpt_codes_fit(const tt_entry *e, const tt_ckpt_piece *p);
tt_status tt_ckpt_check_codes(const tt_ckpt_reader *r, const tt_entry *e, const tt_ckpt_piece *p,
                              tt_error *err);
tt_status tt_ckpt_decode(tt_ckpt_reader *r, const tt_entry *e, const tt_ckpt_piece *p,
                         tt_error *err);

/* ---- commit.c: tmp takes final's name, in two renames; final is removed ---- */
tt_status tt_ckpt_replace_by_renames(tt_arena *a, const char *tmp, const char *final,
                                     tt_error *err);

/* ---- write_file.c ---- */
typedef struct tt_file_part {
    const void *data;
    size_t bytes;
} tt_file_part;

#define TT_FILE_ALIGNMENT ((size_t)4096)
static inline size_t tt_file_aligned(size_t n) /* rounded up */
{
    return (n + TT_FILE_ALIGNMENT - 1) / TT_FILE_ALIGNMENT * TT_FILE_ALIGNMENT;
}
#define TT_LARGE_FILE ((size_t)1 << 20) /* a smaller one is written as it comes */
/* Writes a file of the parts one after the other, syncs it, and compares a sample of what the disk
 * then has (all of a file of up to 4 MiB) with the parts. hash may be NULL. */
tt_status tt_write_parts(const char *path, const tt_file_part *parts, size_t n, char hash[33],
                         tt_error *err);

/* ---- read_file.c ---- */
#define TT_READ_BLOCK ((size_t)4 << 20)
typedef struct tt_file_run { /* bytes [at, at + bytes) of a file, and where they go */
    size_t at, bytes;
    void *to;
} tt_file_run;

/* A hash that is taken while a file is read. Blocks are hashed in their order, each once. */
typedef struct tt_file_check {
    const struct tt_ckpt_file *file; /* what the hash must be; NULL: another rank checks the file */
    tt_hasher *hasher;               /* NULL: nothing is hashed yet */
    size_t blocks; /* how many of TT_READ_BLOCK are; the file may end in the last one */
} tt_file_check;

/* Reads the runs, which are ordered by `at`; none crosses a multiple of TT_READ_BLOCK. check, which may be NULL: hashes
 * all blocks up to that of the last run, from the same bytes. */
tt_status tt_read_runs(const char *path, const tt_file_run *runs, size_t n, tt_file_check *check,
                       tt_error *err);
/* Hashes what is left of the file. */
tt_status tt_hash_rest(const char *path, tt_file_check *check, int64_t *bytes, char hash[33],
                       tt_error *err);
/* Size and hash of a file as the disk has it, not as the page cache has it, where that works. */
tt_status tt_hash_file(const char *path, int64_t *bytes, char hash[33], tt_error *err);

#endif
