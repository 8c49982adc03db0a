/* SPDX-License-Identifier: Apache-2.0 */
/* A main() for LLVMFuzzerTestOneInput on systems without libFuzzer. driver corpus/NAME runs every
 * seed, then as many inputs as FUZZ_RUNS says (20,000, of a slow target fewer: about a second):
 * mutations of seeds and, where there is grammar/NAME.txt, every other one made from that grammar. All
 * are drawn with the seed FUZZ_SEED (2026): the same inputs on every machine. An input that crashes, or
 * takes a minute of CPU time, is saved as fuzz-crash.bin; driver FILE runs that one again. */
#define _GNU_SOURCE
#include "grammar.h"
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <ttrun/option.h>
#include <unistd.h>

#define LARGEST GRAMMAR_MOST

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const int fuzz_runs __attribute__((weak)); /* of a slow target */
void __asan_set_death_callback(void (*fn)(void));
TT_EXPORT const char *__asan_default_options(void);
TT_EXPORT const char *__ubsan_default_options(void);

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

/* UBSan has a runtime of its own, which knows nothing of the address sanitizer's callback. */
const char *__ubsan_default_options(void)
{
    return "abort_on_error=1";
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

/* An eighth of what a thread has: a parser that has no bound on its depth needs more, and is found. */
static void limit_stack(void)
{
    struct rlimit l;
    getrlimit(RLIMIT_STACK, &l);
    l.rlim_cur = TT_MIN(l.rlim_cur, (rlim_t)1 << 20);
    setrlimit(RLIMIT_STACK, &l);
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

/* The grammar of corpus/NAME; NULL: there is none. A grammar that cannot be read ends the process. */
static grammar *load_grammar(const char *folder, tt_arena *a)
{
    const char *slash = strrchr(folder, '/'), *name = slash ? slash + 1 : folder;
    const char *path =
        tt_arena_printf(a, "%.*s../grammar/%s.txt", (int)(name - folder), folder, name);
    tt_error err = {0};
    grammar *g = NULL;
    char *text;
    size_t n;
    if (access(path, F_OK) != 0)
        return NULL;
    if (tt_read_file(path, LARGEST, &text, &n, &err) != TT_OK ||
        grammar_read(a, path, text, n, &g, &err) != TT_OK) {
        fprintf(stderr, "fuzz: %s\n", err.text);
        exit(2);
    }
    free(text);
    return g;
}

/* The next input in buf. Two of three that a grammar makes stay as it made them. */
static size_t next_input(grammar *g, uint8_t *buf)
{
    size_t n;
    bool stays = false;
    if (g && draw(2)) {
        n = grammar_make(g, draw, buf);
        stays = draw(3);
    } else {
        const seed *s = &seeds[draw(n_seeds)];
        n = s->n;
        if (n)
            memcpy(buf, s->data, n);
    }
    for (uint64_t k = stays ? 0 : 1 + draw(6); k > 0; k--)
        mutate(buf, &n);
    return n;
}

int main(int argc, char **argv)
{
    static uint8_t buf[LARGEST];
    const int64_t runs = number_of("FUZZ_RUNS", &fuzz_runs ? fuzz_runs : 20000);
    rng_seed = (uint64_t)number_of("FUZZ_SEED", 2026);
    if (argc != 2) {
        fprintf(stderr, "usage: %s corpus/NAME (or one input file)\n", argv[0]);
        return 2;
    }
    limit_stack();
    __asan_set_death_callback(keep_crash);
    tt_log_set_level(TT_ERROR); /* what a grammar makes is full of what is warned of */
    signal(SIGPROF, on_alarm);
    char *one;
    size_t n;
    if (tt_read_file(argv[1], LARGEST, &one, &n, NULL) == TT_OK) { /* to look at a crash again */
        try_input((const uint8_t *)one, n);
        free(one);
        return 0;
    }
    tt_arena *a = tt_arena_new();
    grammar *g = load_grammar(argv[1], a);
    load_seeds(argv[1], a);
    for (size_t i = 0; i < n_seeds; i++)
        try_input(seeds[i].data, seeds[i].n);
    for (int64_t i = 0; i < runs; i++) {
        n = next_input(g, buf);
        try_input(buf, n);
    }
    printf("%zu seeds, and %lld inputs made from them%s by FUZZ_SEED=%llu\n", n_seeds,
           (long long)runs, g ? " and from a grammar" : "", (unsigned long long)rng_seed);
    for (size_t i = 0; i < n_seeds; i++)
        free(seeds[i].data);
    tt_arena_free(a);
    return 0;
}
