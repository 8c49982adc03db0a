/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_H
#define TT_BASE_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <ttrun/codes.h>
#include <ttrun/files.h>
#include <ttrun/log.h>
#include <ttrun/patience.h>
#include <ttrun/status.h>
#include <ttrun/tensor.h>

/* core/base: functions that every folder may use. It needs libc and pthreads only. */

#define TT_MIN(a, b) ((a) < (b) ? (a) : (b))
#define TT_MAXV(a, b) ((a) > (b) ? (a) : (b))
/* Compiles a function for several instruction sets; the loader chooses one at the program's start.
 * For loops whose results do not depend on the instruction set. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) &&                            \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TT_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define TT_CLONES
#endif
/* For bugs of ttrun only, never for user errors: logs file, line and condition, then aborts. */
#define TT_ASSERT(cond) ((cond) ? (void)0 : tt_assert_failed(#cond, __FILE__, __LINE__))
_Noreturn void tt_assert_failed(const char *cond, const char *file, int line);

/* Checked arithmetic: false on overflow, *out untouched. */
bool tt_mul_i64(int64_t a, int64_t b, int64_t *out);
bool tt_add_i64(int64_t a, int64_t b, int64_t *out);

/* Every call of a plugin's function that can fail goes through TT_PLUGIN_CALL. It makes err agree
 * with the returned status: if the plugin wrote no text, the text names the plugin, and a status
 * that <ttrun/status.h> does not define becomes TT_EIO. name may be NULL.
 *   TT_TRY(TT_PLUGIN_CALL(vt->open(config, &self, err), err, "hook", part->name)); */
#define TT_PLUGIN_CALL(call, err, kind, name)                                                      \
    (tt_error_clear(err), tt_plugin_status((call), (err), (kind), (name)))
tt_status tt_plugin_status(tt_status s, tt_error *err, const char *kind, const char *name);
void tt_error_clear(tt_error *err); /* NULL is fine */

#define TT_ALIGNMENT 64 /* of tensors in host memory: a cache line */
static inline int64_t tt_tensor_bytes(const tt_tensor *t)
{
    return tt_tensor_numel(t) * (int64_t)tt_dtype_size(t->dtype);
}

/* ---- arena: memory that is freed together (per process, program or step) ----
 * For small metadata only, zeroed. Out of memory ends the process: size and place, status 1. One
 * thread at a time uses an arena. */
typedef struct tt_arena tt_arena;
tt_arena *tt_arena_new(void);
void tt_arena_free(tt_arena *a); /* runs the cleanups in reverse order; NULL is fine */
void *tt_arena_alloc(tt_arena *a, size_t size);           /* zeroed, 16-byte aligned */
void *tt_arena_array(tt_arena *a, size_t n, size_t elem); /* checked n*elem */
void *tt_arena_dup(tt_arena *a, const void *p, size_t size);
char *tt_arena_str(tt_arena *a, const char *s); /* NULL → NULL */
char *tt_arena_strn(tt_arena *a, const char *s, size_t n);
char *tt_arena_printf(tt_arena *a, const char *fmt, ...) TT_PRINTF(2, 3);
char *tt_arena_vprintf(tt_arena *a, const char *fmt, va_list ap);
void tt_arena_cleanup(tt_arena *a, void (*fn)(void *), void *arg);
size_t tt_arena_used(const tt_arena *a);

/* ---- str: growable text, always NUL-terminated; all zero is a valid empty text ----
 * Owner: the caller, by tt_str_free. */
typedef struct tt_str {
    char *s;
    size_t n, cap;
} tt_str;
void tt_str_free(tt_str *s);
void tt_str_clear(tt_str *s);
void tt_str_add(tt_str *s, const char *text);
void tt_str_addn(tt_str *s, const char *text, size_t n);
void tt_str_addc(tt_str *s, char c);
void tt_str_printf(tt_str *s, const char *fmt, ...) TT_PRINTF(2, 3);
void tt_str_json(tt_str *s, const char *text); /* a JSON string literal, quotes included */
void tt_str_json_byte(tt_str *s, char c);      /* the escape of one byte in such a literal */
void tt_str_json_number(tt_str *s, double v);  /* shortest that reads back; NaN and Inf → null */
const char *tt_str_get(const tt_str *s);       /* never NULL */
bool tt_ends_with(const char *text, const char *end);
/* The candidate with the least edit distance to `word`; NULL if none is similar enough. */
const char *tt_nearest(const char *word, const char *const *candidates, size_t n);

/* ---- vec: TT_VEC(type) declares a growable array in an arena: tt_vec_push(arena, &v, item) */
#define TT_VEC(type)                                                                               \
    struct {                                                                                       \
        type *items;                                                                               \
        size_t n, cap;                                                                             \
    }
#define tt_vec_push(arena, v, item)                                                                \
    do {                                                                                           \
        if ((v)->n == (v)->cap)                                                                    \
            (v)->items = tt_vec_grow((arena), (v)->items, (v)->n, &(v)->cap, sizeof *(v)->items);  \
        (v)->items[(v)->n++] = (item);                                                             \
    } while (0)
void *tt_vec_grow(tt_arena *a, void *items, size_t n, size_t *cap, size_t elem);

/* A number in decimal, without printf: for what prints thousands. Returns where in `text` it
 * begins. */
#define TT_I64_TEXT 24
const char *tt_i64_text(int64_t number, char text[TT_I64_TEXT]);

/* ---- map: string → pointer, insertion-ordered, in an arena; keys are copied */
typedef struct tt_map tt_map;
tt_map *tt_map_new(tt_arena *a);
void tt_map_set(tt_map *m, const char *key, void *value);
void *tt_map_get(const tt_map *m, const char *key); /* NULL = absent */
size_t tt_map_size(const tt_map *m);
const char *tt_map_key(const tt_map *m, size_t i);
void *tt_map_value(const tt_map *m, size_t i);

/* ---- rng: counter-based, Philox 4x32-10 (Salmon et al. 2011, doi:10.1145/2063384.2063405) */
typedef struct tt_rng_key {
    uint64_t k;
} tt_rng_key;
tt_rng_key tt_rng_key_make(uint64_t seed, const char *name, uint64_t extra); /* hash of all three */
void tt_rng_u32x4(tt_rng_key key, uint64_t counter, uint32_t out[4]);
double tt_rng_uniform(tt_rng_key key, uint64_t index); /* (0,1), 53 bits: a function of both */
double
tt_normal_quantile(double p); /* inverse normal CDF, ~1e-15 relative (Wichura 1988, AS 241) */
double tt_normal_cdf(double x);
/* The same for n numbers at once, with equal bits: u[i] is the number of index + i; x may be p. */
void tt_rng_uniforms(tt_rng_key key, uint64_t index, int64_t n, double *u);
void tt_normal_quantiles(int64_t n, const double *p, double *x);
/* Element `index` of a random permutation of [0,n), computed in O(1) memory by a keyed Feistel
 * network with cycle walking. */
uint64_t tt_rng_permute(tt_rng_key key, uint64_t n, uint64_t index);

/* ---- hash: XXH3 (libxxhash) */
uint64_t tt_hash64(const void *p, size_t n, uint64_t seed);
void tt_hash128_hex(const void *p, size_t n, char out[33]);
typedef struct tt_hasher tt_hasher; /* streaming, 128 bit */
tt_hasher *tt_hasher_new(void);
void tt_hasher_update(tt_hasher *h, const void *p, size_t n);
void tt_hasher_hex(tt_hasher *h, char out[33]);
void tt_hasher_free(tt_hasher *h);

/* ---- clock */
int64_t tt_now_ns(void);                     /* monotonic */
double tt_wall_seconds(void);                /* unix time */
void tt_wall_iso(double wall, char out[32]); /* "2026-11-21T08:00:00.123Z" */
/* The factor of tt_patience(). TT_EINVAL: the environment has something else; *out is untouched. */
tt_status tt_patience_read(double *out, tt_error *err);

/* ---- memory */
/* The bytes of memory that a process's control groups (v1 or v2, nested or not) allow it; INFINITY
 * if there is no limit. cgroup_file: /proc/self/cgroup; root: /sys/fs/cgroup. */
double tt_memory_limit(const char *cgroup_file, const char *root);
/* The bytes of this machine or container, swap included; INFINITY = not known. */
double tt_memory_here(void);
/* This process's peak resident bytes since it started to run this program; 0 = not known. */
double tt_memory_most(void);

/* ---- log settings: level, origin of times, whose lines are shown */
void tt_log_setup(tt_log_level level, int rank, int world, bool color);
void tt_log_set_level(tt_log_level level); /* from now on */
tt_log_level tt_log_get_level(void);
void tt_log_set_thread_rank(int rank); /* of the calling thread; -1 = the process's rank */
/* Is the rank in "0", "0,3" or "all"? 1 or 0; -1: the text is no such list. */
int tt_rank_listed(const char *ranks, int rank);
/* ranks: such a list; returns false and changes nothing for another text */
bool tt_log_show_ranks(const char *ranks);
void tt_log_hold(bool hold); /* true: a progress bar is shown; erase and redraw it around lines */
void tt_log_set_redraw(void (*fn)(void *), void *arg);
/* log_file.c: the lines of a rank also go to a file, whose old lines stay; to the first one also what this
 * process has said before. Lines there begin with the wall time, and those of every rank are there. */
tt_status tt_log_file_open(int rank, const char *path, tt_error *err);
void tt_log_file_close(int rank);
void tt_log_to_file(tt_log_level level, const char *area, const char *text); /* not to stderr */
/* A line without the head of rank, time, level and area, for a terminal. */
void tt_log_bare(tt_log_level level, const char *text);

/* "12,345.6": x with `digits` decimals and commas between thousands; returns the length. */
int tt_grouped(char *buf, size_t size, double x, int digits);

/* ---- terminal.c: the terminal of stderr, or that of the launcher behind mpirun's pipe */
bool tt_terminal(void);         /* there is one */
int tt_terminal_columns(void);  /* its width now; 0: there is no terminal */
bool tt_terminal_moves(void);   /* it understands escape sequences: TERM is set, and not "dumb" */
bool tt_terminal_colors(void);  /* and NO_COLOR is not set */
void tt_terminal_pass_on(void); /* tells the processes that this one starts about its terminal */

/* ---- files */
/* *text is NUL-terminated and the caller frees it; max_bytes 0 = no limit */
tt_status tt_read_file(const char *path, size_t max_bytes, char **text, size_t *n, tt_error *err);
/* Writes all n bytes to fd, however often a write is interrupted or takes only a part. False: a
 * write failed, and errno says why. */
bool tt_write_all(int fd, const void *p, size_t n);
/* Writes and fsyncs a temporary file, renames it to path, and fsyncs the folder. */
tt_status tt_write_file_atomic(const char *path, const void *p, size_t n, tt_error *err);
/* Removes the temporary files that killed processes left in a folder, and no live process's. */
void tt_unfinished_clear(const char *folder);
/* A folder TMPDIR/ttrun-KIND-XXXXXX for this process alone. False: none can be made. Owner: the
 * caller, by tt_temporary_remove, which removes what is in it too. clear removes those that killed
 * processes left. */
typedef struct tt_temporary {
    char *path; /* NULL: none */
    int fd;
} tt_temporary;
bool tt_temporary_new(const char *kind, tt_temporary *out);
void tt_temporary_remove(tt_temporary *t);
void tt_temporary_clear(const char *kind);
tt_status tt_mkdirs(const char *path, tt_error *err);
tt_status tt_remove_tree(const char *path, tt_error *err);
/* What follows "FOLDER/" in a path, "" for the folder itself; NULL: the path does not begin with it. Links are not looked at. */
const char *tt_path_below(const char *folder, const char *path);
/* Removes a path that begins with "FOLDER/", and never what lies elsewhere: no part behind FOLDER may be a link or "..". */
tt_status tt_remove_below(const char *folder, const char *path, tt_error *err);
/* Whether `path` is a folder, no link, of this user (root: of any), with a file `mark` that holds this text. remove: such
 * a folder; the mark goes last, so what a kill leaves still has it. */
bool tt_has_mark(const char *path, const char *mark, const char *text);
tt_status tt_remove_marked(const char *path, const char *mark, const char *text, tt_error *err);
/* Runs a command by /bin/sh, with args as $1, $2, … out (may be NULL: its stdout joins stderr) gets
 * what it prints. An error unless it ends with status 0. */
tt_status tt_shell(const char *command, const char *const *args, size_t n, tt_str *out,
                   tt_error *err);
/* The same without output, in a process group of its own, which is killed after so many seconds; 0: never. Then
 * TT_ETIMEOUT. */
tt_status tt_shell_within(const char *command, const char *const *args, size_t n, double seconds,
                          tt_error *err);
tt_status tt_fsync_path(const char *path, tt_error *err);           /* a file or a folder */
char *tt_path_join(tt_arena *a, const char *dir, const char *name); /* an absolute name alone */
char *tt_path_dir(tt_arena *a, const char *path);
bool tt_path_exists(const char *path);
bool tt_path_is_fd(const char *path, int fd); /* whether path still names the open file */
typedef struct tt_mapping {
    const uint8_t *p;
    size_t n;
} tt_mapping;
/* Maps a file read-only; n is 0 for an empty file. Owner: the caller, by tt_unmap_file. */
tt_status tt_map_file(const char *path, tt_mapping *out, tt_error *err);
void tt_unmap_file(tt_mapping *m);

/* ---- codes.c: weights as codes (<ttrun/codes.h>). A row of `cols` elements has this many scales and
 * bytes of codes; encode rounds one row. */
int64_t tt_codes_blocks(tt_codes format, int64_t cols);
int64_t tt_codes_bytes(tt_codes format, int64_t cols);
void tt_codes_encode(tt_codes format, const float *x, int64_t cols, uint8_t *codes, float *absmax);
const char *tt_codes_name(tt_codes format); /* "nf4" */

/* The length of the longest prefix of s[n] that is valid UTF-8. */
size_t tt_utf8_valid(const char *s, size_t n);
/* The number of bytes at the front of s that are complete characters or cannot become part of one. */
size_t tt_utf8_whole(const char *s, size_t n);

#endif
