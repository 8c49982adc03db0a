/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_BASE_H
#define TT_BASE_H
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <ttrun/log.h>
#include <ttrun/status.h>
#include <ttrun/tensor.h>

/* core/base: what every folder may use. libc and pthreads only. */

#define TT_MIN(a, b) ((a) < (b) ? (a) : (b))
#define TT_MAXV(a, b) ((a) > (b) ? (a) : (b))
/* A function compiled for several instruction sets, chosen when the program starts; for loops whose
 * bits do not depend on it. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) &&                            \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define TT_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define TT_CLONES
#endif
/* For our own bugs only: prints file, line and the condition, then aborts. */
#define TT_ASSERT(cond) ((cond) ? (void)0 : tt_assert_failed(#cond, __FILE__, __LINE__))
_Noreturn void tt_assert_failed(const char *cond, const char *file, int line);

/* Checked arithmetic: false on overflow, *out untouched. */
bool tt_mul_i64(int64_t a, int64_t b, int64_t *out);
bool tt_add_i64(int64_t a, int64_t b, int64_t *out);

/* Every call of a plugin's function that may fail is made through TT_PLUGIN_CALL: what it returns
 * is the status, whatever it wrote into err; one that wrote nothing is named, and a status that
 * <ttrun/status.h> does not have becomes TT_EIO. name: may be NULL.
 *   TT_TRY(TT_PLUGIN_CALL(vt->open(config, &self, err), err, "hook", part->name)); */
#define TT_PLUGIN_CALL(call, err, kind, name)                                                      \
    (tt_error_clear(err), tt_plugin_status((call), (err), (kind), (name)))
tt_status tt_plugin_status(tt_status s, tt_error *err, const char *kind, const char *name);
void tt_error_clear(tt_error *err); /* NULL is fine */

/* ---- arena: memory by lifetime (process, program, step) ----
 * Small metadata only, zeroed. Out of memory ends the process: size and place, status 1. One thread
 * at a time. */
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

/* ---- str: growable text, always NUL-terminated; zero-initialised is valid ----
 * malloc'd: tt_str_free. */
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
void tt_str_json_number(tt_str *s, double v);  /* shortest that reads back; NaN and Inf → null */
const char *tt_str_get(const tt_str *s);       /* never NULL */
/* The candidate nearest to `word` by edit distance if near enough to suggest, else NULL. */
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
double tt_rng_uniform(tt_rng_key key,
                      uint64_t index); /* (0,1), 53 bits: a function of (key, index) */
double
tt_normal_quantile(double p); /* inverse normal CDF, ~1e-15 relative (Wichura 1988, AS 241) */
double tt_normal_cdf(double x);
/* n of either at once, the same bits: u[i] of index + i; x may be p. */
void tt_rng_uniforms(tt_rng_key key, uint64_t index, int64_t n, double *u);
void tt_normal_quantiles(int64_t n, const double *p, double *x);
/* A permutation of [0,n): a bijection computed per index (keyed Feistel with cycle walking), O(1)
 * memory. */
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

/* ---- memory */
/* Bytes that the control groups of a process allow it, v1 or v2, nested or not; INFINITY: any.
 * cgroup_file: /proc/self/cgroup; root: /sys/fs/cgroup. */
double tt_memory_limit(const char *cgroup_file, const char *root);
/* Bytes this process had resident at most, since it began to run this program; 0 = not known. */
double tt_memory_most(void);

/* ---- log internals: level, origin of times, rank shown */
void tt_log_setup(tt_log_level level, int rank, int world, bool color);
void tt_log_set_thread_rank(int rank); /* rank-threads: -1 = the process's */
bool tt_log_show_ranks(
    const char *ranks); /* whose lines are shown: "0", "0,3" or "all"; false: not such a text */
bool tt_log_enabled(tt_log_level level);
void tt_log_hold(bool hold); /* progress bar: clear and redraw around lines */
void tt_log_set_redraw(void (*fn)(void *), void *arg);

/* ---- files */
tt_status tt_read_file(const char *path, size_t max_bytes, char **text, size_t *n,
                       tt_error *err); /* malloc'd, NUL-terminated; max_bytes 0: any size */
tt_status tt_write_file_atomic(const char *path, const void *p, size_t n,
                               tt_error *err); /* tmp, fsync, rename, fsync dir */
tt_status tt_mkdirs(const char *path, tt_error *err);
tt_status tt_remove_tree(const char *path, tt_error *err);
tt_status tt_fsync_path(const char *path, tt_error *err);           /* a file or a folder */
char *tt_path_join(tt_arena *a, const char *dir, const char *name); /* absolute names win */
char *tt_path_dir(tt_arena *a, const char *path);
bool tt_path_exists(const char *path);
bool tt_path_is_fd(const char *path, int fd); /* the path still names the open file */
typedef struct tt_mapping {
    const uint8_t *p;
    size_t n;
} tt_mapping;
tt_status tt_map_file(const char *path, tt_mapping *out,
                      tt_error *err); /* read-only mmap; an empty file gives n 0 */
void tt_unmap_file(tt_mapping *m);

/* UTF-8: length of the valid prefix. */
size_t tt_utf8_valid(const char *s, size_t n);

#endif
