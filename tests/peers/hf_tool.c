/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "../plugins/hf_sources.h"
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

/* For hf_tokenizer_peer.py, tiktoken_peer.py and bench/tokenizer:
 *   hf_tool TOKENIZER TEXTS [IDS [THREADS [REPEATS]]]
 *   TEXTS                u32 bytes, text, …
 *   IDS                  u32 count, i32 ids, …; "-": no ids
 *   HF_ALLOW_SPECIAL=1   special tokens are read as such
 *   HF_PATTERN, HF_SPECIAL_TOKENS   for a tiktoken file
 *   HF_SPECIALS=1        a line of the ids of bos, eos and pad
 *   HF_DECODED=FILE      what the ids decode to: u32 bytes, text, …
 * Decodes what it encoded and compares; a line of MB/s on standard output. */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

typedef struct job {
    void *self;
    const char *texts;
    size_t n, tokens;
    FILE *out, *decoded;
    _Atomic size_t *next; /* where the next text begins that nobody has */
    bool failed;
} job;

/* The next text, *n bytes of it; NULL: none is left. */
static const char *take_text(job *j, uint32_t *n)
{
    size_t at = atomic_load(j->next);
    do {
        if (at + 4 > j->n)
            return NULL;
        memcpy(n, j->texts + at, 4);
    } while (!atomic_compare_exchange_weak(j->next, &at, at + 4 + *n));
    return j->texts + at + 4;
}

static bool same_text(void *self, const tt_ids *ids, const char *text, size_t n)
{
    size_t at = 0;
    for (size_t i = 0; i < ids->n; i++) {
        char buf[1024];
        const size_t k = hf_decode_token(self, ids->ids[i], buf, sizeof buf);
        if (k > n - at || memcmp(buf, text + at, k) != 0)
            return false;
        at += k;
    }
    return at == n;
}

/* Writes the text of the ids, as one that begins with them. */
static void put_decoded(void *self, const tt_ids *ids, FILE *out)
{
    hf_bytes text = {0};
    bool first = true;
    for (size_t i = 0; i < ids->n; i++) {
        char buf[4096];
        size_t k = hf_decode_token(self, ids->ids[i], buf, sizeof buf);
        if (k && first)
            k = hf_decode_first(self, ids->ids[i], buf, sizeof buf);
        const bool begins = hf_decode_token(self, ids->ids[i], buf + k, sizeof buf - k) > 0;
        first = first && (!begins || (((const hf_tokenizer *)self)->trims_begin && k == 0));
        hf_bytes_add(&text, buf, k, NULL);
    }
    const uint32_t n = (uint32_t)text.n;
    fwrite(&n, 4, 1, out);
    fwrite(text.s, 1, n, out);
    free(text.s);
}

/* Each free thread takes the next text. */
static void *work_through(void *arg)
{
    job *j = arg;
    tt_ids ids = {0};
    tt_error err;
    int differs = 0;
    uint32_t n = 0;
    for (const char *text; (text = take_text(j, &n)) != NULL;) {
        ids.n = 0;
        if (hf_encode(j->self, text, n, &ids, &err) != TT_OK) {
            fprintf(stderr, "hf_tool: the text at byte %zu: %s\n", (size_t)(text - j->texts),
                    err.text);
            j->failed = true;
            break;
        }
        j->tokens += ids.n;
        if (j->out) {
            const uint32_t count = (uint32_t)ids.n;
            fwrite(&count, 4, 1, j->out);
            fwrite(ids.ids, 4, ids.n, j->out);
            if (j->decoded)
                put_decoded(j->self, &ids, j->decoded);
            differs += !same_text(j->self, &ids, text, n);
        }
    }
    if (differs)
        printf("%d texts decode to something else\n", differs);
    tt_ids_free(&ids);
    return NULL;
}

static tt_status pass(void *self, const char *texts, size_t n, int n_threads, FILE *out,
                      FILE *decoded)
{
    pthread_t threads[64];
    job jobs[64];
    bool failed = false;
    size_t tokens = 0;
    _Atomic size_t next = 0;
    const double start = seconds();
    for (int i = 0; i < n_threads; i++) {
        jobs[i] = (job){
            .self = self, .texts = texts, .n = n, .out = out, .decoded = decoded, .next = &next};
        if (pthread_create(&threads[i], NULL, work_through, &jobs[i]) != 0)
            return TT_EINTERNAL;
    }
    for (int i = 0; i < n_threads; i++) {
        pthread_join(threads[i], NULL);
        failed = failed || jobs[i].failed;
        tokens += jobs[i].tokens;
    }
    const double s = seconds() - start;
    if (!out)
        printf("%.2f MB/s, %zu tokens, %d threads\n", (double)n / 1e6 / s, tokens, n_threads);
    return failed ? TT_EINVAL : TT_OK;
}

int main(int argc, char **argv)
{
    const char *special = getenv("HF_ALLOW_SPECIAL");
    hf_options o = {.path = argc > 1 ? argv[1] : NULL,
                    .allow_special = special && *special == '1',
                    .pattern = getenv("HF_PATTERN"),
                    .special_tokens = getenv("HF_SPECIAL_TOKENS")};
    const int n_threads = argc > 4 ? atoi(argv[4]) : 1, repeats = argc > 5 ? atoi(argv[5]) : 1;
    void *self = NULL;
    tt_error err = {0};
    char *texts = NULL;
    size_t n = 0;
    const char *decoded_path = getenv("HF_DECODED");
    FILE *decoded = decoded_path ? fopen(decoded_path, "wb") : NULL;
    FILE *out = argc > 3 && strcmp(argv[3], "-") != 0 ? fopen(argv[3], "wb") : NULL;
    tt_status s = open_hf(&o, &self, &err);
    if (s == TT_OK && argc > 2)
        s = hf_read_file(argv[2], true, &texts, &n, &err);
    if (s != TT_OK)
        fprintf(stderr, "hf_tool: %s\n", err.text);
    if (s == TT_OK && getenv("HF_SPECIALS")) {
        const hf_tokenizer *t = self;
        printf("bos %d eos %d pad %d\n", t->bos, t->eos, t->pad);
    }
    for (int i = 0; s == TT_OK && texts && i < repeats; i++)
        s = pass(self, texts, n, n_threads < 1 || n_threads > 64 || out ? 1 : n_threads, out,
                 decoded);
    if (out)
        fclose(out);
    if (decoded)
        fclose(decoded);
    free(texts);
    hf_close(self);
    return s == TT_OK ? 0 : 1;
}
