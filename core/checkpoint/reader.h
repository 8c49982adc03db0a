/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_READER_H
#define TT_READER_H
#include "checkpoint/checkpoint.h"

/* What a folder of tensors is once it is open: by name, where the parts of each tensor lie. */

typedef struct tt_ckpt_file {
    const char *name; /* in the step's folder */
    int64_t bytes;
    char hash[33]; /* XXH3, 128 bit */
} tt_ckpt_file;

typedef struct tt_manifest {
    TT_VEC(tt_ckpt_file) files;
    TT_VEC(tt_ckpt_tensor) tensors;
} tt_manifest;

typedef struct tt_shard {
    tt_box box;
    const tt_st_tensor *tensor;
    const tt_st_file *file;
} tt_shard;

typedef struct tt_entry { /* a tensor by name */
    const char *name;
    int n_dims;
    int64_t global[TT_MAX_DIMS];
    TT_VEC(tt_shard) shards; /* by begin[0] */
    /* It is read as a tensor of so many rows, of which only its own are filled; 0: as it is. */
    int64_t rows_as;
    int64_t n_read; /* elements that loads have copied, each as often as it was */
    bool known_disjoint;
    bool is_scale;                        /* a part of another tensor, which is quantized */
    const struct tt_coded *coded;         /* it is made of codes, which have names of their own */
    const struct tt_quantized *quantized; /* NULL: its values are in the shards as they are */
} tt_entry;

struct tt_ckpt_reader {
    tt_arena *arena;
    const char *path;
    size_t n_files;
    tt_st_file *files;
    tt_map *entries; /* name → tt_entry */
    tt_map *
        coded; /* the same: weights that are in the files as codes, which entries has; NULL: none */
    bool has_manifest;
    tt_manifest manifest;
    struct tt_file_check *checks; /* of the files; NULL: none is checked */
    const char *shapes_in;        /* the file that says the tensors' shapes */
    tt_map *values;               /* what its format has beside tensors, by name; NULL: nothing */
};

/* ---- open.c ---- */
/* Adds what a folder has to a new reader. */
typedef tt_status (*tt_ckpt_fill_fn)(tt_ckpt_reader *r, const void *user, tt_error *err);
/* Makes a reader of a folder, which `fill` fills. */
tt_status tt_ckpt_open_with(const char *folder, tt_ckpt_fill_fn fill, const void *user,
                            tt_ckpt_reader **out, tt_error *err);
/* Opens a file of tensors. */
typedef tt_status (*tt_ckpt_file_fn)(const char *path, tt_arena *a, tt_st_file *out, tt_error *err);
/* Opens the files of the folder, r->files; add: adds all of their tensors, too. */
tt_status tt_ckpt_open_files(tt_ckpt_reader *r, const char *const *names, size_t n,
                             tt_ckpt_file_fn open, tt_error *err);
tt_status tt_ckpt_add_files(tt_ckpt_reader *r, const char *const *names, size_t n,
                            tt_ckpt_file_fn open, tt_error *err);
/* The files that an index ("weight_map") names, each one in the folder that ends with `suffix`. */
tt_status tt_ckpt_names_of_index(tt_ckpt_reader *r, const char *index, const char *suffix,
                                 const char ***names, size_t *n, tt_error *err);
/* Adds a part of a tensor, where its offset says. */
tt_status tt_ckpt_add_shard(tt_ckpt_reader *r, const tt_st_file *f, const tt_st_tensor *t,
                            tt_error *err);
/* load.c: the tensor of this name, also one that is in the files as codes; NULL: there is none. */
tt_entry *tt_ckpt_entry(const tt_ckpt_reader *r, const char *name);

/* A format that tt_ckpt_open reads besides step folders and safetensors: a folder that has the file `marker`, but no
 * trainer.json. */
typedef struct tt_ckpt_format {
    const char *marker;
    tt_ckpt_fill_fn fill; /* user: NULL */
} tt_ckpt_format;
/* The formats of this program, of which the first one counts. They are set once, before a folder is opened. */
void tt_ckpt_set_formats(const tt_ckpt_format *all, size_t n);

#endif
