/* SPDX-License-Identifier: Apache-2.0 */
#include "base/number.h"
#include "base/pool.h"
#include "cli/data_files.h"
#include "train/console.h"
#include <errno.h>
#include <glob.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <ttrun/dataloader.h>
#include <ttrun/parquet.h>
#include <ttrun/tokenizer.h>

/* tokenizer train: learns a tokenizer from text files. */

typedef struct files {
    TT_VEC(const char *) paths;
    tt_mapping *maps; /* empty: of files that a loader reads */
    TT_VEC(tt_text) texts;
} files;

/* Names and patterns like the shell's; the files that a pattern matches are sorted by bytes. */
static tt_status add_paths(tt_arena *a, files *f, const char *pattern, tt_error *err)
{
    glob_t found = {0};
    const int rc = glob(pattern, GLOB_ERR, NULL, &found);
    if (rc != 0) {
        globfree(&found);
        return rc == GLOB_NOMATCH ? TT_FAIL(err, TT_ENOTFOUND, "--data %s: no such file", pattern)
                                  : TT_FAIL(err, TT_EIO, "--data %s: %s", pattern, strerror(errno));
    }
    for (size_t i = 0; i < found.gl_pathc; i++)
        tt_vec_push(a, &f->paths, tt_arena_str(a, found.gl_pathv[i]));
    globfree(&found);
    return TT_OK;
}

typedef struct document_sink {
    const tt_cli *cli;
    files *f;
    int64_t *total;
} document_sink;

static tt_status take_document(void *user, const char *text, size_t n, tt_error *err)
{
    const document_sink *to = user;
    (void)err;
    const tt_text t = {tt_arena_strn(to->cli->arena, text, n), n};
    tt_vec_push(to->cli->arena, &to->f->texts, t);
    *to->total += (int64_t)n;
    return TT_OK;
}

/* The documents of a file as the loaders read it: rows of JSON and Parquet, compressed text. */
static tt_status load_documents(const tt_cli *cli, tt_registry *r, const char *path,
                                const document_sink *to, tt_error *err)
{
    static const char *const options[][2] = {
        {"dataloader.path",  "--data" },
        {"dataloader.field", "--field"}
    };
    const char *field = tt_cli_option(cli, "field");
    const char *name = tt_parquet_is(path) ? "jsonl" : tt_cli_loader_for(path, NULL);
    const tt_override over[] = {
        {"dataloader.name",  name                  },
        {"dataloader.path",  path                  },
        {"dataloader.field", field ? field : "text"}
    };
    tt_job *job;
    tt_part part;
    void *self = NULL;
    TT_TRY(tt_job_load(cli->arena, NULL, over, TT_COUNT(over), &job, err));
    tt_status s = tt_registry_part(r, job, TT_KIND_DATALOADER, "dataloader", name, NULL, cli->arena,
                                   &part, err);
    const tt_dataloader_env env = {.struct_size = sizeof env,
                                   .seq_len = 1,
                                   .document = take_document,
                                   .document_user = (void *)to};
    const tt_dataloader_vt *vt = s == TT_OK ? part.component->vtable : NULL;
    if (vt)
        s = TT_PLUGIN_CALL(vt->open(part.config, &env, &self, err), err, "dataloader", NULL);
    return tt_cli_blame_options(s, options, TT_COUNT(options), err);
}

/* A file that is read as it lies on the disk: one document. */
static bool is_plain(const char *path)
{
    const char *dot = strrchr(path, '.');
    return strcmp(tt_cli_loader_for(path, NULL), "jsonl") != 0 && !tt_parquet_is(path) &&
           !(dot && (!strcmp(dot, ".gz") || !strcmp(dot, ".zst")));
}

static tt_status map_files(const tt_cli *cli, tt_registry *r, files *f, int64_t *total,
                           tt_error *err)
{
    tt_arena *a = cli->arena;
    const document_sink to = {cli, f, total};
    for (size_t i = 0; i < cli->n_options; i++)
        if (!strcmp(cli->options[i].key, "data"))
            TT_TRY(add_paths(a, f, cli->options[i].value, err));
    for (int i = 1; i < cli->n_words;
         i++) /* the shell has expanded --data *.txt to several words */
        TT_TRY(add_paths(a, f, cli->words[i], err));
    if (f->paths.n == 0)
        return TT_FAIL(err, TT_EINVAL, "--data is missing: the text files to learn from");
    f->maps = tt_arena_array(a, f->paths.n, sizeof *f->maps);
    for (size_t i = 0; i < f->paths.n; i++) {
        const char *path = f->paths.items[i];
        struct stat st;
        if (stat(path, &st) == 0 && S_ISDIR(st.st_mode))
            return TT_FAIL(err, TT_EINVAL, "--data: %s is a folder; name its files, such as '%s/*'",
                           path, path);
        if (!is_plain(path)) {
            TT_TRY(load_documents(cli, r, path, &to, err));
            continue;
        }
        TT_TRY(tt_map_file(path, &f->maps[i], err));
        const tt_text t = {(const char *)f->maps[i].p, f->maps[i].n};
        tt_vec_push(a, &f->texts, t);
        *total += (int64_t)t.n;
    }
    return TT_OK;
}

typedef struct bar {
    tt_progress progress;
    const char *stage; /* the stage that is shown; NULL = none yet */
} bar;

static void show(void *arg, const char *stage, int64_t done, int64_t total)
{
    bar *b = arg;
    if (!b->stage || strcmp(b->stage, stage)) {
        if (b->stage)
            tt_progress_finish(&b->progress);
        tt_progress_init(&b->progress, stage, 0, total, false);
        b->stage = stage;
    }
    tt_progress_update(&b->progress, done, (double)NAN, (double)NAN);
}

static tt_status tokenizer_number(const tt_cli *cli, const char *name, int64_t fallback,
                                  int64_t *out, tt_error *err)
{
    const char *text = tt_cli_option(cli, name);
    *out = fallback;
    if (text && !tt_read_whole(text, strlen(text), 1, INT64_MAX, out))
        return TT_FAIL(err, TT_EINVAL, "--%s: expected a whole number from 1, got \"%s\"", name,
                       text);
    return TT_OK;
}

/* The special tokens without duplicates: BOS, EOS and PAD, then each --special. */
static void specials(const tt_cli *cli, tt_tokenizer_train *o)
{
    static const char *const names[] = {"bos", "eos", "pad", "special"};
    const char **list = tt_arena_array(cli->arena, cli->n_options + 1, sizeof *list);
    for (size_t k = 0; k < TT_COUNT(names); k++)
        for (size_t i = 0; i < cli->n_options; i++) {
            bool there = strcmp(cli->options[i].key, names[k]) != 0;
            for (size_t j = 0; k < 3 && j < o->n_special; j++)
                there = there || !strcmp(list[j], cli->options[i].value);
            if (!there)
                list[o->n_special++] = cli->options[i].value;
        }
    o->special = list;
    o->bos = tt_cli_option(cli, "bos");
    o->eos = tt_cli_option(cli, "eos");
    o->pad = tt_cli_option(cli, "pad");
}

static tt_status find_plugin(tt_registry *r, const tt_tokenizer_vt **out, tt_arena *a,
                             tt_error *err)
{
    tt_job *job;
    tt_part part;
    const tt_override over = {"tokenizer.name", "hf"};
    TT_TRY(tt_job_load(a, NULL, &over, 1, &job, err));
    TT_TRY(tt_registry_part(r, job, TT_KIND_TOKENIZER, "tokenizer", "hf", NULL, a, &part, err));
    *out = part.component->vtable;
    if (!TT_HAS(*out, tt_tokenizer_vt, train) || !(*out)->train)
        return TT_FAIL(err, TT_EUNSUPPORTED, "tokenizer hf: this plugin cannot train a tokenizer");
    return TT_OK;
}

static tt_status learn(const tt_cli *cli, tt_registry *r, files *f, const tt_tokenizer_vt *vt,
                       tt_error *err)
{
    tt_tokenizer_train o = {.struct_size = sizeof o};
    int64_t threads, bytes = 0;
    bar b = {.stage = NULL};
    o.pattern = tt_cli_option(cli, "pattern") ? tt_cli_option(cli, "pattern") : "llama3";
    o.out = tt_cli_option(cli, "out");
    if (!o.out)
        return TT_FAIL(err, TT_EINVAL, "--out is missing: the folder for tokenizer.json");
    if (!tt_cli_option(cli, "vocab-size"))
        return TT_FAIL(err, TT_EINVAL, "--vocab-size is missing: how many tokens to learn");
    TT_TRY(tokenizer_number(cli, "vocab-size", 0, &o.vocab_size, err));
    TT_TRY(tokenizer_number(cli, "threads", tt_cpu_count(), &threads, err));
    if (threads > 1024)
        return TT_FAIL(err, TT_EINVAL, "--threads: at most 1024, got %lld", (long long)threads);
    specials(cli, &o);
    TT_TRY(map_files(cli, r, f, &bytes, err));
    TT_TRY(tt_mkdirs(o.out, err));
    o.texts = f->texts.items;
    o.n_texts = f->texts.n;
    o.progress = show;
    o.progress_arg = &b;
    TT_TRY(tt_pool_new((int)threads, &o.pool, err));
    const int64_t begin = tt_now_ns();
    const tt_status s = TT_PLUGIN_CALL(vt->train(&o, err), err, "tokenizer", NULL);
    if (b.stage)
        tt_progress_finish(&b.progress);
    tt_pool_free(o.pool);
    if (s == TT_OK)
        tt_log(TT_INFO, "data", "%s/tokenizer.json: learned from %zu file%s, %.1f MB, in %.1f s",
               o.out, f->paths.n, f->paths.n == 1 ? "" : "s", (double)bytes / 1e6,
               (double)(tt_now_ns() - begin) / 1e9);
    return s;
}

static tt_status cmd_tokenizer_run(tt_cli *cli, tt_error *err)
{
    tt_registry *r = NULL;
    const tt_tokenizer_vt *vt = NULL;
    files f = {.maps = NULL};
    if (cli->n_words == 0 || strcmp(cli->words[0], "train"))
        return TT_FAIL(err, TT_EINVAL, "%s%s%s%s", cli->n_words ? "\"" : "",
                       cli->n_words ? cli->words[0] : "",
                       cli->n_words ? "\": expected train; " : "",
                       tt_cli_usage(cli->arena, &tt_cmd_tokenizer, NULL));
    if (cli->n_overrides)
        return TT_FAIL(err, TT_EINVAL, "--%s is a key of a job; tokenizer train takes none",
                       cli->overrides[0].key);
    TT_TRY(tt_cli_registry(cli, &r, err));
    tt_status s = find_plugin(r, &vt, cli->arena, err);
    if (s == TT_OK)
        s = learn(cli, r, &f, vt, err);
    for (size_t i = 0; f.maps && i < f.paths.n; i++)
        tt_unmap_file(&f.maps[i]);
    tt_registry_free(r);
    return s;
}

static const tt_cli_row rows[] = {
    TT_CLI_VALUE("data", "FILE...", NULL,
                 "files of text, each a document, or of JSON lines or lists or Parquet, whose rows "
                 "are; also "
                 ".gz and .zst",
                 .takes = TT_TAKES_FILE, .flags = TT_CLI_REQUIRED),
    TT_CLI_VALUE("field", "NAME", "text",
                 "of JSON the key, of Parquet the column, with the documents"),
    TT_CLI_VALUE("vocab-size", "N", NULL, "number of tokens, bytes and special tokens included",
                 .flags = TT_CLI_REQUIRED),
    TT_CLI_VALUE("out", "DIR", NULL, "folder for tokenizer.json and tokenizer_config.json",
                 .takes = TT_TAKES_FOLDER, .flags = TT_CLI_REQUIRED),
    TT_CLI_VALUE("pattern", "NAME", "llama3",
                 "how texts are cut into words: a name, or an expression", .takes = TT_TAKES_WORDS,
                 .words = "gpt2|llama3|qwen2|qwen35|deepseek3|tekken|o200k|nanochat"),
    TT_CLI_VALUE("bos", "TEXT", "none",
                 "the beginning-of-sequence token, which every document and prompt begins with"),
    TT_CLI_VALUE("eos", "TEXT", "none", "the end-of-sequence token"),
    TT_CLI_VALUE("pad", "TEXT", "none", "the padding token"),
    TT_CLI_VALUE("special", "TEXT", NULL, "another special token", .flags = TT_CLI_REPEATED),
    TT_CLI_VALUE("threads", "N", "all cores",
                 "number of threads; the result does not depend on it"),
};
const tt_command tt_cmd_tokenizer = {
    .name = "tokenizer",
    .forms = "train",
    .doc = "train: learn a byte-level BPE tokenizer from text, JSON or Parquet",
    .rows = rows,
    .n_rows = TT_COUNT(rows),
    .run = cmd_tokenizer_run,
    .words = INT_MAX};
