/* SPDX-License-Identifier: Apache-2.0 */
/* A main() for LLVMFuzzerTestOneInput on systems without libFuzzer. driver CORPUS_FOLDER runs every
 * seed, then as many mutations of them as FUZZ_RUNS says (20,000, of a slow target fewer: about a
 * second), drawn with the seed FUZZ_SEED (2026): the same inputs on every machine. An input that
 * crashes, or takes a minute of CPU time, is saved as fuzz-crash.bin; driver FILE runs that one
 * again. */
#define _GNU_SOURCE
#include "base/base.h"
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <ttrun/option.h>
#include <unistd.h>

#define LARGEST ((size_t)1 << 16)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const int fuzz_runs __attribute__((weak)); /* of a slow target */
void __asan_set_death_callback(void (*fn)(void));
TT_EXPORT const char *__asan_default_options(void);

typedef struct seed {
    uint8_t *data;
    size_t n;
} seed;

static seed seeds[4096];
static size_t n_seeds;
static const uint8_t *running; /* the input being tried, for the report */
static size_t running_size;
static const char *crash_path = "fuzz-crash.bin";

/* A failed TT_ASSERT is a finding like any other. */
const char *__asan_default_options(void)
{
    return "handle_abort=1";
}

static void keep_crash(void)
{
    const uint8_t *data = running;
    running = NULL;
    if (data && tt_write_file_atomic(crash_path, data, running_size, NULL) == TT_OK)
        fprintf(stderr, "fuzz: the input is in %s (%zu bytes)\n", crash_path, running_size);
}

static void on_alarm(int signal_number)
{
    (void)signal_number;
    fprintf(stderr, "fuzz: one input took more than a minute of CPU time\n");
    keep_crash();
    _Exit(1);
}

/* Of the process's CPU time, which does not pass while other processes have the machine; 0: no limit. */
static void limit_cpu(int seconds)
{
    const struct itimerval t = {.it_value = {.tv_sec = seconds}};
    setitimer(ITIMER_PROF, &t, NULL);
}

/* The input is in a block of exactly its size, so that the address sanitizer sees a read past the
 * end. */
static void try_input(const uint8_t *data, size_t n)
{
    uint8_t *copy = malloc(n ? n : 1);
    if (!copy)
        exit(1);
    if (n)
        memcpy(copy, data, n);
    running = copy;
    running_size = n;
    limit_cpu(60);
    LLVMFuzzerTestOneInput(copy, n);
    limit_cpu(0);
    running = NULL;
    free(copy);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* In the order of names, so that two runs try the same inputs. */
static void load_seeds(const char *folder, tt_arena *a)
{
    TT_VEC(char *) names = {0};
    DIR *dir = opendir(folder);
    if (dir) {
        for (struct dirent *e; (e = readdir(dir));)
            if (e->d_name[0] != '.')
                tt_vec_push(a, &names, tt_path_join(a, folder, e->d_name));
        closedir(dir);
    }
    if (names.n)
        qsort(names.items, names.n, sizeof *names.items, by_name);
    for (size_t i = 0; i < names.n && n_seeds < TT_COUNT(seeds) - 1; i++) {
        char *text;
        size_t n;
        if (tt_read_file(names.items[i], LARGEST, &text, &n, NULL) == TT_OK)
            seeds[n_seeds++] = (seed){(uint8_t *)text, n};
    }
    seeds[n_seeds++] = (seed){calloc(1, 1), 0};
}

static int64_t number_of(const char *variable, int64_t otherwise)
{
    const char *text = getenv(variable);
    return text && *text ? atoll(text) : otherwise;
}

static uint64_t rng_seed;

static uint64_t draw(uint64_t below)
{
    static uint64_t counter;
    uint32_t x[4];
    tt_rng_u32x4((tt_rng_key){rng_seed}, counter++, x);
    return ((uint64_t)x[0] << 32 | x[1]) % below;
}

/* Numbers and bytes at the edges of what parsers expect. */
static void splice_token(uint8_t *buf, size_t *n)
{
    static const char *const tokens[] = {
        "{",    "}",    "[",   "]",     "\"",  ":",   ",",       "\\u0000",
        "null", "true", "1e9", "-1",    "0",   "/*",  "*/",      "//",
        "\n",   "\xff", "é",   "99999", "0.1", "../", "1e99999", "-9223372036854775808"};
    const char *t = tokens[draw(TT_COUNT(tokens))];
    size_t k = strlen(t), at = draw(*n + 1);
    if (*n + k > LARGEST)
        return;
    memmove(buf + at + k, buf + at, *n - at);
    memcpy(buf + at, t, k);
    *n += k;
}

static void write_number(uint8_t *buf, size_t n)
{
    static const uint64_t edges[] = {0,          1,          0x7f,      0xff,      0xffff,
                                     0x7fffffff, 0xffffffff, INT64_MAX, UINT64_MAX};
    uint64_t v = edges[draw(TT_COUNT(edges))];
    size_t width = (size_t)1 << draw(4), at;
    if (n < width)
        return;
    at = draw(n - width + 1);
    memcpy(buf + at, &v, width);
}

static void copy_piece(uint8_t *buf, size_t *n)
{
    const seed *s = &seeds[draw(n_seeds)];
    if (!s->n)
        return;
    size_t from = draw(s->n), k = 1 + draw(s->n - from), at = draw(*n + 1);
    if (*n + k > LARGEST)
        return;
    memmove(buf + at + k, buf + at, *n - at);
    memcpy(buf + at, s->data + from, k);
    *n += k;
}

static void mutate(uint8_t *buf, size_t *n)
{
    switch (draw(7)) {
    case 0: /* a bit */
        if (*n)
            buf[draw(*n)] ^= (uint8_t)(1u << draw(8));
        break;
    case 1: /* a byte */
        if (*n)
            buf[draw(*n)] = (uint8_t)draw(256);
        break;
    case 2: /* a piece out */
        if (*n) {
            size_t at = draw(*n), k = 1 + draw(TT_MIN(*n - at, (size_t)64));
            memmove(buf + at, buf + at + k, *n - at - k);
            *n -= k;
        }
        break;
    case 3: /* cut short */
        *n = draw(*n + 1);
        break;
    case 4:
        splice_token(buf, n);
        break;
    case 5:
        write_number(buf, *n);
        break;
    default:
        copy_piece(buf, n);
    }
}

int main(int argc, char **argv)
{
    static uint8_t buf[LARGEST];
    const int64_t runs = number_of("FUZZ_RUNS", &fuzz_runs ? fuzz_runs : 20000);
    rng_seed = (uint64_t)number_of("FUZZ_SEED", 2026);
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS_FOLDER (or one input file)\n", argv[0]);
        return 2;
    }
    __asan_set_death_callback(keep_crash);
    signal(SIGPROF, on_alarm);
    char *one;
    size_t n;
    if (tt_read_file(argv[1], LARGEST, &one, &n, NULL) == TT_OK) { /* to look at a crash again */
        try_input((const uint8_t *)one, n);
        free(one);
        return 0;
    }
    tt_arena *a = tt_arena_new();
    load_seeds(argv[1], a);
    for (size_t i = 0; i < n_seeds; i++)
        try_input(seeds[i].data, seeds[i].n);
    for (int64_t i = 0; i < runs; i++) {
        const seed *s = &seeds[draw(n_seeds)];
        n = s->n;
        if (n)
            memcpy(buf, s->data, n);
        for (uint64_t k = 1 + draw(6); k > 0; k--)
            mutate(buf, &n);
        try_input(buf, n);
    }
    printf("%zu seeds, and %lld mutations of them by FUZZ_SEED=%llu\n", n_seeds, (long long)runs,
           (unsigned long long)rng_seed);
    for (size_t i = 0; i < n_seeds; i++)
        free(seeds[i].data);
    tt_arena_free(a);
    return 0;
}
