/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "json_text.h"
#include <ctype.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <ttrun/files.h>
#include <ttrun/metrics.h>
#include <ttrun/patience.h>
#include <unistd.h>

/* trackio: rows of the table metrics in <folder>/<project>.db, the SQLite file that `trackio show` reads, one row
 * per logged step or validation. SQLite is loaded when a job names this sink (libsqlite3.so.0), so ttrun builds and
 * runs without it. A run keeps its id, dump_folder/trackio.id, when it resumes, and the rows of later steps are
 * deleted. Source: trackio 0.43, trackio/sqlite_storage.py (init_db, bulk_log), trackio/utils.py.
 *
 * Nothing is sent to a Space or a self-hosted server: docs/features.md says why, and what does it instead. */

typedef struct {
    const char *project, *run_name, *folder;
} config;

static const tt_option options[] = {
    TT_OPTION(config, project, TT_OPT_STRING, "\"ttrun\"", 0, 0,
              "project, which names the file; characters other than letters, digits, - and _ are "
              "left out"),
    TT_OPTION_MORE(config, run_name, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL,
                   "shown name of the run; null = the last part of dump_folder"),
    TT_OPTION_MORE(config, folder, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE | TT_OPT_PATH,
                   NULL,
                   "folder of the projects; null = trackio's: $TRACKIO_DIR, $HF_HOME/trackio or "
                   "~/.cache/huggingface/trackio"),
};

/* ---- SQLite's interface: https://sqlite.org/c3ref; these names have not changed since version 3 ---- */

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;
enum { SQLITE_DONE = 101 };

typedef struct sqlite {
    int (*open)(const char *, sqlite3 **);
    int (*close)(sqlite3 *);
    int (*busy_timeout)(sqlite3 *, int);
    int (*exec)(sqlite3 *, const char *, int (*)(void *, int, char **, char **), void *, char **);
    int (*prepare)(sqlite3 *, const char *, int, sqlite3_stmt **, const char **);
    int (*bind_text)(sqlite3_stmt *, int, const char *, int, void (*)(void *));
    int (*bind_int64)(sqlite3_stmt *, int, long long);
    int (*step)(sqlite3_stmt *);
    int (*reset)(sqlite3_stmt *);
    int (*finalize)(sqlite3_stmt *);
    const char *(*errmsg)(sqlite3 *);
} sqlite;

static const char *const functions[] = {
    "sqlite3_open",       "sqlite3_close",     "sqlite3_busy_timeout", "sqlite3_exec",
    "sqlite3_prepare_v2", "sqlite3_bind_text", "sqlite3_bind_int64",   "sqlite3_step",
    "sqlite3_reset",      "sqlite3_finalize",  "sqlite3_errmsg",
};

typedef struct {
    char *path, *run_name, *json;
    size_t json_size;
    char id[33];
    void *library;
    sqlite q;
    sqlite3 *db;
    sqlite3_stmt *insert;
} sink;

static tt_status load_sqlite(sink *s, tt_error *err)
{
    void *found[TT_COUNT(functions)];
    s->library = dlopen("libsqlite3.so.0", RTLD_NOW | RTLD_LOCAL);
    if (!s->library)
        return TT_FAIL(err, TT_ENOTFOUND, "trackio needs SQLite (apt-get install libsqlite3-0): %s",
                       dlerror());
    for (size_t i = 0; i < TT_COUNT(functions); i++) {
        found[i] = dlsym(s->library, functions[i]);
        if (!found[i])
            return TT_FAIL(err, TT_ENOTFOUND, "libsqlite3.so.0 has no %s", functions[i]);
    }
    _Static_assert(sizeof found == sizeof s->q, "a function each");
    memcpy(&s->q, found, sizeof s->q);
    return TT_OK;
}

static tt_status sql_fail(const sink *s, tt_error *err)
{
    return TT_FAIL(err, TT_EIO, "cannot write %s: %s", s->path,
                   s->db ? s->q.errmsg(s->db) : "it cannot be opened");
}

static tt_status run_sql(const sink *s, const char *sql, tt_error *err)
{
    return s->q.exec(s->db, sql, NULL, NULL, NULL) == 0 ? TT_OK : sql_fail(s, err);
}

static tt_status trackio_prepare(const sink *s, const char *sql, sqlite3_stmt **out, tt_error *err)
{
    return s->q.prepare(s->db, sql, -1, out, NULL) == 0 ? TT_OK : sql_fail(s, err);
}

/* ---- a row ---- */

/* The shortest text that reads back as the same number; trackio's words for what JSON does not have. */
static void trackio_value(FILE *f, double x)
{
    char text[40];
    if (!isfinite(x)) {
        fputs(isnan(x) ? "\"NaN\"" : x > 0 ? "\"Infinity\"" : "\"-Infinity\"", f);
        return;
    }
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    fputs(text, f);
}

/* {"loss":2.5,…} in s->json, which stays there for the next record */
static tt_status write_json(sink *s, const tt_metrics_record *r, tt_error *err)
{
    size_t need = 3;
    for (size_t i = 0; i < r->n_metrics; i++)
        need += 6 * strlen(r->metrics[i].name) + 40;
    if (need > s->json_size) {
        char *grown = realloc(s->json, 2 * need);
        if (!grown)
            return TT_FAIL(err, TT_ENOMEM, "out of memory for a row of %s", s->path);
        s->json = grown;
        s->json_size = 2 * need;
    }
    FILE *f = fmemopen(s->json, s->json_size, "w");
    if (!f)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a row of %s", s->path);
    const char *before = "{";
    for (size_t i = 0; i < r->n_metrics; i++) {
        if (strcmp(r->metrics[i].name, "step") == 0)
            continue;
        fputs(before, f);
        json_put_string(f, r->metrics[i].name, strlen(r->metrics[i].name));
        fputc(':', f);
        trackio_value(f, r->metrics[i].value);
        before = ",";
    }
    fputs(*before == '{' ? "{}" : "}", f);
    fclose(f);
    return TT_OK;
}

/* 2026-11-25T21:40:05.125000+00:00, as Python's isoformat() */
static void format_time(double unix_seconds, char text[64])
{
    const time_t whole = (time_t)floor(unix_seconds);
    struct tm tm;
    char day[32] = "1970-01-01T00:00:00";
    if (gmtime_r(&whole, &tm))
        strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(text, 64, "%s.%06d+00:00", day, (int)((unix_seconds - floor(unix_seconds)) * 1e6));
}

static tt_status log_record(void *self, const tt_metrics_record *r, tt_error *err)
{
    sink *s = self;
    char when[64];
    TT_TRY(write_json(s, r, err));
    format_time(r->wall_time, when);
    s->q.bind_text(s->insert, 1, s->id, -1, NULL);
    s->q.bind_text(s->insert, 2, when, -1, NULL);
    s->q.bind_text(s->insert, 3, s->run_name, -1, NULL);
    s->q.bind_int64(s->insert, 4, r->step);
    s->q.bind_text(s->insert, 5, s->json, -1, NULL);
    const bool done = s->q.step(s->insert) == SQLITE_DONE;
    const tt_status status = done ? TT_OK : sql_fail(s, err);
    s->q.reset(s->insert);
    return status;
}

/* ---- opening ---- */

/* The file as trackio makes it at first use; trackio itself adds its other tables when it opens the file. */
static const char schema[] =
    "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
    "CREATE TABLE IF NOT EXISTS metrics (id INTEGER PRIMARY KEY AUTOINCREMENT, run_id TEXT NOT "
    "NULL,"
    " timestamp TEXT NOT NULL, run_name TEXT NOT NULL, step INTEGER NOT NULL, metrics TEXT NOT "
    "NULL);"
    "CREATE INDEX IF NOT EXISTS idx_metrics_run_step ON metrics(run_id, step);";

static tt_status delete_later(const sink *s, const tt_metrics_env *env, tt_error *err)
{
    static const char *const rows[] = {
        "DELETE FROM metrics WHERE run_id = ? AND step > ?",
        "DELETE FROM metrics WHERE run_id = ? AND step = ? AND metrics LIKE "
        "'%\"validation/loss\"%'",
    };
    const bool again = TT_HAS(env, tt_metrics_env, validates_again) && env->validates_again;
    for (int i = 0; i < 1 + again; i++) {
        sqlite3_stmt *st = NULL;
        TT_TRY(trackio_prepare(s, rows[i], &st, err));
        s->q.bind_text(st, 1, s->id, -1, NULL);
        s->q.bind_int64(st, 2, env->resume_step);
        const bool done = s->q.step(st) == SQLITE_DONE;
        const tt_status status = done ? TT_OK : sql_fail(s, err);
        s->q.finalize(st);
        TT_TRY(status);
    }
    return TT_OK;
}

static tt_status open_database(sink *s, const tt_metrics_env *env, tt_error *err)
{
    if (s->q.open(s->path, &s->db) != 0)
        return sql_fail(s, err);
    s->q.busy_timeout(s->db, tt_patience_ms(TT_SQLITE_BUSY_NS));
    TT_TRY(run_sql(s, schema, err));
    TT_TRY(delete_later(s, env, err));
    return trackio_prepare(s,
                           "INSERT INTO metrics (run_id, timestamp, run_name, step, metrics) "
                           "VALUES (?, ?, ?, ?, ?)",
                           &s->insert, err);
}

/* The id of the run: that of the start before when the run resumes, else 32 new hexadecimal digits. */
static tt_status find_id(sink *s, const tt_metrics_env *env, tt_error *err)
{
    char *path = NULL;
    uint8_t random[16] = {0};
    tt_status status = TT_OK;
    if (asprintf(&path, "%s/trackio.id", env->dump_folder) < 0)
        return TT_FAIL(err, TT_ENOMEM, "out of memory opening a trackio project");
    FILE *f = env->resume_step > 0 ? fopen(path, "re") : NULL;
    const bool kept = f && fgets(s->id, sizeof s->id, f) && strspn(s->id, "0123456789abcdef") == 32;
    if (f)
        fclose(f);
    if (!kept) {
        if (getentropy(random, sizeof random) != 0)
            status =
                TT_FAIL(err, TT_EIO, "no random numbers for the id of a run: %s", strerror(errno));
        for (size_t i = 0; i < sizeof random; i++)
            snprintf(s->id + 2 * i, 3, "%02x", random[i]);
        int fd;
        if (status == TT_OK)
            status = tt_open_own(path, O_WRONLY | O_CREAT | O_TRUNC, 0666, &fd, err);
        f = status == TT_OK ? fdopen(fd, "w") : NULL;
        if (status == TT_OK &&
            (!f || fprintf(f, "%s\n", s->id) < 0 || fflush(f) != 0 || fsync(fileno(f)) != 0))
            status = TT_FAIL(err, TT_EIO, "cannot write %s: %s", path, strerror(errno));
        if (f)
            fclose(f);
    }
    free(path);
    return status;
}

static tt_status make_folders(char *path, tt_error *err)
{
    for (char *p = path + 1; *p; p++) {
        if (*p != '/')
            continue;
        *p = '\0';
        const bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
        const int reason = errno;
        *p = '/';
        if (!made)
            return TT_FAIL(err, TT_EIO, "cannot make the folder of %s: %s", path, strerror(reason));
    }
    return TT_OK;
}

/* <folder>/<project>.db, with trackio's own default of the folder */
static char *database_path(const config *c)
{
    const char *base[] = {c->folder, getenv("TRACKIO_DIR"), getenv("HF_HOME"),
                          getenv("XDG_CACHE_HOME"), getenv("HOME")};
    static const char *const below[] = {"", "", "/trackio", "/huggingface/trackio",
                                        "/.cache/huggingface/trackio"};
    size_t i = 0, n = 0;
    char *path = NULL, project[128];
    while (i + 1 < TT_COUNT(base) && !(base[i] && *base[i]))
        i++;
    for (const char *p = c->project; *p && n + 1 < sizeof project; p++)
        if (isalnum((unsigned char)*p) || strchr("-_", *p) || (unsigned char)*p >= 0x80)
            project[n++] = *p;
    project[n] = '\0';
    if (asprintf(&path, "%s%s/%s.db", base[i] ? base[i] : "", below[i], n ? project : "default") <
        0)
        return NULL;
    return path;
}

static void close_sink(void *self)
{
    sink *s = self;
    if (!s)
        return;
    if (s->insert)
        s->q.finalize(s->insert);
    if (s->db)
        s->q.close(s->db);
    if (s->library)
        dlclose(s->library);
    free(s->path);
    free(s->run_name);
    free(s->json);
    free(s);
}

static tt_status open_sink(const void *options_, const tt_metrics_env *env, void **self,
                           tt_error *err)
{
    const config *c = options_;
    const char *slash = strrchr(env->dump_folder, '/');
    sink *s = calloc(1, sizeof *s);
    if (!s)
        return TT_FAIL(err, TT_ENOMEM, "out of memory opening a trackio project");
    s->path = database_path(c);
    s->run_name = strdup(c->run_name         ? c->run_name
                         : slash && slash[1] ? slash + 1
                                             : env->dump_folder);
    tt_status status = TT_OK;
    if (!s->path || !s->run_name)
        status = TT_FAIL(err, TT_ENOMEM, "out of memory opening a trackio project");
    if (status == TT_OK)
        status = load_sqlite(s, err);
    if (status == TT_OK)
        status = make_folders(s->path, err);
    if (status == TT_OK)
        status = find_id(s, env, err);
    if (status == TT_OK)
        status = open_database(s, env, err);
    if (status != TT_OK) {
        close_sink(s);
        return status;
    }
    *self = s;
    return TT_OK;
}

static const tt_metrics_vt vt = {
    .struct_size = sizeof vt, .open = open_sink, .log = log_record, .close = close_sink};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_METRICS, "trackio",
                 "a project of trackio, for `trackio show` and `trackio sync`", config, options,
                 &vt),
};

TT_PLUGIN("trackio", "1.0", components);
