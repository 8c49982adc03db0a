/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
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
#include <unistd.h>

/* wandb: dump_folder/wandb/offline-run-<time>-<id>/run-<id>.wandb, the file of an offline run of
 * Weights & Biases, which `wandb sync` uploads. The file is a LevelDB log whose header is ":W&B",
 * 0xBEE1, 0 and whose checksum is CRC-32 over type and payload; each record is a protobuf message
 * Record{1 num, one of 2 history, 3 summary, 17 run, 18 exit, 21 header}. Every start of a run writes a file
 * of its own with the same id, which is in wandb/id. Source: wandb, core/internal/transactionlog,
 * wandb/proto/wandb_internal.proto; LevelDB, doc/log_format.md. */

typedef struct {
    const char *project, *entity, *run_name, *group, *notes;
    tt_strings tags;
} config;

#define TEXT(field, default_, doc)                                                                 \
    TT_OPTION_MORE(config, field, TT_OPT_STRING, default_, 0, 0, NULL, TT_OPT_NULLABLE, NULL, doc)

static const tt_option options[] = {
    TEXT(project, "\"ttrun\"", "project of the run"),
    TEXT(entity, "null", "user or team; null = the one who runs wandb sync"),
    TEXT(run_name, "null", "shown name of the run; null = the last part of dump_folder"),
    TEXT(group, "null", "group of runs"),
    TEXT(notes, "null", "a longer description"),
    TT_OPTION(config, tags, TT_OPT_STRINGS, "[]", 0, 0, "tags of the run"),
};

typedef struct {
    uint8_t *p;
    size_t n, cap;
    bool failed; /* out of memory */
} bytes;

typedef struct {
    int fd;
    char *path;
    int64_t num;     /* of the last record */
    size_t in_block; /* bytes written in the current block of the log */
    double start;    /* unix seconds */
    bool broken;     /* it ends with a part of a record, and takes no more */
    bytes record, inner, item;
    bytes newest[2]; /* items of the last record of a step, and of a validation */
} sink;

#define BLOCK ((size_t)32768)
#define HEAD ((size_t)7) /* of a part of a record, and of the file */
#define USUAL_RECORD ((size_t)16384)

/* ---- protobuf ---- */

static bool wandb_reserve(bytes *b, size_t cap)
{
    uint8_t *grown = cap > b->cap ? realloc(b->p, cap) : b->p;
    if (!grown)
        return false;
    b->p = grown;
    b->cap = cap > b->cap ? cap : b->cap;
    return true;
}

static void wandb_add(bytes *b, const void *p, size_t n)
{
    if (n == 0)
        return;
    if (b->n + n > b->cap && !wandb_reserve(b, 2 * (b->n + n) + 256)) {
        b->failed = true;
        return;
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

static void wandb_varint(bytes *b, uint64_t x)
{
    uint8_t out[10];
    size_t n = 0;
    for (; x >= 0x80; x >>= 7)
        out[n++] = (uint8_t)(x | 0x80);
    out[n++] = (uint8_t)x;
    wandb_add(b, out, n);
}

static void add_integer(bytes *b, unsigned field, int64_t x)
{
    wandb_varint(b, field << 3);
    wandb_varint(b, (uint64_t)x);
}

static void add_bytes(bytes *b, unsigned field, const void *p, size_t n)
{
    wandb_varint(b, field << 3 | 2);
    wandb_varint(b, n);
    wandb_add(b, p, n);
}

static void wandb_text(bytes *b, unsigned field, const char *s)
{
    if (s && *s)
        add_bytes(b, field, s, strlen(s));
}

static void add_message(bytes *b, unsigned field, const bytes *message)
{
    add_bytes(b, field, message->p, message->n);
    b->failed |= message->failed;
}

/* ---- the log ---- */

/* CRC-32 of IEEE 802.3, reflected polynomial 0xedb88320, bit by bit: a record is small. */
static uint32_t crc32(uint32_t crc, const uint8_t *p, size_t n)
{
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0xedb88320u : 0);
    }
    return ~crc;
}

static tt_status write_all(sink *s, const uint8_t *p, size_t n, tt_error *err)
{
    for (size_t done = 0; done < n;) {
        const ssize_t k = write(s->fd, p + done, n - done);
        if (k >= 0) {
            done += (size_t)k;
        } else if (errno != EINTR) {
            return TT_FAIL(err, TT_EIO, "cannot write %s: %s", s->path, strerror(errno));
        }
    }
    s->in_block = (s->in_block + n) % BLOCK;
    return TT_OK;
}

/* crc u32 | length u16 | type u8 (1 whole, 2 first, 3 middle, 4 last) | payload */
static tt_status write_part(sink *s, uint8_t type, const uint8_t *p, size_t n, tt_error *err)
{
    const uint32_t crc = crc32(crc32(0, &type, 1), p, n);
    uint8_t head[HEAD];
    for (int i = 0; i < 4; i++)
        head[i] = (uint8_t)(crc >> (8 * i));
    head[4] = (uint8_t)n;
    head[5] = (uint8_t)(n >> 8);
    head[6] = type;
    TT_TRY(write_all(s, head, HEAD, err));
    return write_all(s, p, n, err);
}

/* Cut where a block ends. */
static tt_status write_parts(sink *s, const bytes *r, tt_error *err)
{
    static const uint8_t zeros[HEAD];
    size_t done = 0;
    do {
        if (BLOCK - s->in_block < HEAD)
            TT_TRY(write_all(s, zeros, BLOCK - s->in_block, err));
        const size_t left = BLOCK - s->in_block - HEAD, rest = r->n - done;
        const size_t n = rest < left ? rest : left;
        const bool first = done == 0, last = n == rest;
        const uint8_t type = first && last ? 1 : first ? 2 : last ? 4 : 3;
        TT_TRY(write_part(s, type, r->p + done, n, err));
        done += n;
    } while (done < r->n);
    return TT_OK;
}

/* The record's number and one message of it. */
static tt_status write_record(sink *s, unsigned field, const bytes *message, tt_error *err)
{
    bytes *r = &s->record;
    const off_t end = lseek(s->fd, 0, SEEK_END);
    const size_t in_block = s->in_block;
    r->n = 0;
    r->failed = false;
    add_integer(r, 1, s->num + 1);
    add_message(r, field, message);
    if (r->failed)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a record of %s", s->path);
    if (s->broken)
        return TT_FAIL(err, TT_EIO, "%s ends with a part of a record", s->path);
    const tt_status status = write_parts(s, r, err);
    if (status == TT_OK) {
        s->num++;
        return TT_OK;
    }
    s->in_block = in_block;
    s->broken = end < 0 || ftruncate(s->fd, end) != 0;
    return status;
}

/* ---- records ---- */

static bytes *cleared(bytes *b)
{
    b->n = 0;
    b->failed = false;
    return b;
}

static void wandb_item(sink *s, const char *key, double x)
{
    char text[40];
    bytes *item = cleared(&s->item);
    if (isfinite(x)) {
        for (int digits = 6; digits <= 17; digits++) {
            snprintf(text, sizeof text, "%.*g", digits, x);
            if (strtod(text, NULL) == x)
                break;
        }
    } else { /* wandb writes these as JSON strings */
        snprintf(text, sizeof text, "\"%s\"", x > 0 ? "Infinity" : "-Infinity");
    }
    wandb_text(item, 2, key);
    wandb_text(item, 16, text);
    add_message(&s->inner, 1, item);
}

/* HistoryRecord{1 item{2 nested_key, 16 value_json}*, 2 step{1 num}} */
static tt_status log_record(void *self, const tt_metrics_record *r, tt_error *err)
{
    sink *s = self;
    bytes *history = cleared(&s->inner);
    for (size_t i = 0; i < r->n_metrics; i++)
        if (!isnan(r->metrics[i].value) && strcmp(r->metrics[i].name, "step") != 0)
            wandb_item(s, r->metrics[i].name, r->metrics[i].value);
    wandb_item(s, "_step", (double)r->step);
    wandb_item(s, "_timestamp", r->wall_time);
    wandb_item(s, "_runtime", r->wall_time - s->start);
    bytes *newest = cleared(&s->newest[r->validation != 0]), *step = cleared(&s->item);
    wandb_add(newest, history->p, history->n);
    add_integer(step, 1, r->step);
    add_message(history, 2, step);
    return write_record(s, 2, history, err);
}

/* HeaderRecord{1 version_info{1 producer, 2 min_consumer}} */
static tt_status write_header(sink *s, tt_error *err)
{
    static const uint8_t magic[HEAD] = {':', 'W', '&', 'B', 0xe1, 0xbe, 0};
    TT_TRY(write_all(s, magic, HEAD, err));
    bytes *version = cleared(&s->item), *header = cleared(&s->inner);
    wandb_text(version, 1, "ttrun");
    wandb_text(version, 2, "0.40.0");
    add_message(header, 1, version);
    return write_record(s, 21, header, err);
}

/* RunRecord; its start_time is Timestamp{1 seconds, 2 nanos} */
static tt_status write_run(sink *s, const config *c, const char *id, const tt_metrics_env *env,
                           tt_error *err)
{
    char host[65] = "localhost";
    gethostname(host, sizeof host - 1);
    const char *slash = strrchr(env->dump_folder, '/');
    bytes *run = cleared(&s->inner), *time = cleared(&s->item);
    wandb_text(run, 1, id);
    wandb_text(run, 2, c->entity);
    wandb_text(run, 3, c->project);
    wandb_text(run, 6, c->group);
    wandb_text(run, 8,
               c->run_name         ? c->run_name
               : slash && slash[1] ? slash + 1
                                   : env->dump_folder);
    wandb_text(run, 9, c->notes);
    for (size_t i = 0; i < c->tags.n; i++)
        wandb_text(run, 10, c->tags.items[i]);
    wandb_text(run, 13, host);
    if (env->resume_step > 0) {
        add_integer(run, 14, env->resume_step + 1);
        add_integer(run, 18, 1);
    }
    add_integer(time, 1, (int64_t)s->start);
    add_integer(time, 2, (int64_t)((s->start - floor(s->start)) * 1e9));
    add_message(run, 17, time);
    return write_record(s, 17, run, err);
}

/* SummaryRecord{1 update{2 nested_key, 16 value_json}*}: the newest values, which wandb shows for
 * the run; then RunExitRecord{1 exit_code}. A run that was killed has neither. */
static tt_status write_end(sink *s, tt_error *err)
{
    bytes *summary = cleared(&s->inner);
    wandb_add(summary, s->newest[1].p, s->newest[1].n);
    wandb_add(summary, s->newest[0].p, s->newest[0].n);
    TT_TRY(write_record(s, 3, summary, err));
    bytes *end = cleared(&s->inner);
    add_integer(end, 1, 0);
    return write_record(s, 18, end, err);
}

/* ---- the component ---- */

static void close_sink(void *self)
{
    sink *s = self;
    if (!s)
        return;
    if (s->fd >= 0 && s->num > 0 && !s->broken) {
        tt_error err = {0};
        (void)write_end(s, &err);
    }
    if (s->fd >= 0)
        close(s->fd);
    free(s->record.p);
    free(s->inner.p);
    free(s->item.p);
    free(s->newest[0].p);
    free(s->newest[1].p);
    free(s->path);
    free(s);
}

static bool is_id(const char *id)
{
    return strlen(id) == 8 && strspn(id, "abcdefghijklmnopqrstuvwxyz0123456789") == 8;
}

/* The id of the run: that of the start before when the run resumes, else eight new characters. */
static tt_status find_id(const char *folder, bool resumed, char id[9], tt_error *err)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz0123456789";
    char *path = NULL;
    tt_status status = TT_OK;
    uint8_t random[8];
    if (asprintf(&path, "%s/id", folder) < 0)
        return TT_FAIL(err, TT_ENOMEM, "out of memory opening a .wandb file");
    FILE *f = resumed ? fopen(path, "re") : NULL;
    if (!f || !fgets(id, 9, f) || !is_id(id)) {
        if (f)
            fclose(f);
        if (getentropy(random, sizeof random) != 0)
            memset(random, 0, sizeof random);
        for (int i = 0; i < 8; i++)
            id[i] = letters[random[i] % (sizeof letters - 1)];
        id[8] = '\0';
        int fd;
        status = tt_open_own(path, O_WRONLY | O_CREAT | O_TRUNC, 0666, &fd, err);
        f = status == TT_OK ? fdopen(fd, "w") : NULL;
        if (status == TT_OK &&
            (!f || fprintf(f, "%s\n", id) < 0 || fflush(f) != 0 || fsync(fileno(f)) != 0))
            status = TT_FAIL(err, TT_EIO, "cannot write %s: %s", path, strerror(errno));
    }
    if (f && fclose(f) != 0 && status == TT_OK)
        status = TT_FAIL(err, TT_EIO, "cannot write %s: %s", path, strerror(errno));
    free(path);
    return status;
}

/* The first of offline-run-<time>-<id>, offline-run-<time + 1 s>-<id>, … that does not exist. */
static tt_status create(sink *s, const char *folder, const char *id, tt_error *err)
{
    for (int later = 0; later < 100; later++) {
        const time_t now = (time_t)s->start + later;
        struct tm tm;
        char text[32];
        char *run = NULL;
        if (!localtime_r(&now, &tm) || !strftime(text, sizeof text, "%Y%m%d_%H%M%S", &tm))
            return TT_FAIL(err, TT_EIO, "the clock of this machine has no valid date");
        if (asprintf(&run, "%s/offline-run-%s-%s", folder, text, id) < 0)
            return TT_FAIL(err, TT_ENOMEM, "out of memory opening a .wandb file");
        const bool made = mkdir(run, 0777) == 0;
        const int reason = errno;
        free(s->path);
        if (asprintf(&s->path, "%s/run-%s.wandb", run, id) < 0)
            s->path = NULL;
        free(run);
        if (!s->path)
            return TT_FAIL(err, TT_ENOMEM, "out of memory opening a .wandb file");
        if (!made && reason == EEXIST)
            continue;
        if (made)
            s->fd = open(s->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (s->fd >= 0)
            return TT_OK;
        return TT_FAIL(err, TT_EIO, "cannot create %s: %s", s->path,
                       strerror(made ? errno : reason));
    }
    return TT_FAIL(err, TT_EEXIST, "%s has the folders of this second and of the next 99", folder);
}

static tt_status open_sink(const void *c, const tt_metrics_env *env, void **self, tt_error *err)
{
    struct timespec now;
    char id[9], *folder = NULL;
    clock_gettime(CLOCK_REALTIME, &now);
    sink *s = calloc(1, sizeof *s);
    if (!s || asprintf(&folder, "%s/wandb", env->dump_folder) < 0) {
        free(s);
        return TT_FAIL(err, TT_ENOMEM, "out of memory opening a .wandb file");
    }
    s->fd = -1;
    s->start = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    tt_status status = TT_OK;
    if (!wandb_reserve(&s->record, USUAL_RECORD) || !wandb_reserve(&s->inner, USUAL_RECORD) ||
        !wandb_reserve(&s->item, USUAL_RECORD) || !wandb_reserve(&s->newest[0], USUAL_RECORD) ||
        !wandb_reserve(&s->newest[1], USUAL_RECORD))
        status = TT_FAIL(err, TT_ENOMEM, "out of memory opening a .wandb file");
    else if (mkdir(folder, 0777) != 0 && errno != EEXIST)
        status = TT_FAIL(err, TT_EIO, "cannot make the folder %s: %s", folder, strerror(errno));
    if (status == TT_OK)
        status = find_id(folder, env->resume_step > 0, id, err);
    if (status == TT_OK)
        status = create(s, folder, id, err);
    if (status == TT_OK)
        status = write_header(s, err);
    if (status == TT_OK)
        status = write_run(s, c, id, env, err);
    free(folder);
    if (status != TT_OK) {
        s->num = 0; /* no exit record */
        close_sink(s);
        return status;
    }
    *self = s;
    return TT_OK;
}

static const tt_metrics_vt vt = {
    .struct_size = sizeof vt, .open = open_sink, .log = log_record, .close = close_sink};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_METRICS, "wandb", "an offline run of Weights & Biases, for `wandb sync`",
                 config, options, &vt),
};

TT_PLUGIN("wandb", "1.0", components);
