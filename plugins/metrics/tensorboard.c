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
#include <ttrun/metrics.h>
#include <unistd.h>

/* tensorboard: event files in dump_folder/tb, or of each rank in its rank_N, with torchtitan's tags, one record per
 * logged step.
 * The protobuf messages are written by hand: Event{1 wall_time, 2 step, 3 file_version, 5 summary,
 * 7 session_log}, Summary{1 value*}, Value{1 tag, 2 simple_value}, SessionLog{1 status}. Each run
 * opens a new file and writes SessionLog START at its first step, which makes readers drop what
 * earlier files hold from that step on. Source: tensorflow/core/util/event.proto,
 * framework/summary.proto, lib/io/record_writer.cc. */

typedef struct {
    const char *folder;
    bool all_ranks;
} config;

static const tt_option options[] = {
    TT_OPTION(config, folder, TT_OPT_STRING, "\"tb\"", 0, 0,
              "folder of the files, below dump_folder unless absolute"),
    TT_OPTION(config, all_ranks, TT_OPT_BOOL, "false", 0, 0,
              "every rank writes files, with its own times and memory, in rank_N of the folder"),
};

typedef struct {
    uint8_t *p;
    size_t n, cap;
    bool failed; /* out of memory */
} bytes;

typedef struct {
    int fd;
    char *path;
    bytes event, summary, record; /* the buffer is kept, so that a step allocates nothing */
} sink;

#define USUAL_RECORD ((size_t)8192)

/* ---- encoding ---- */

static bool tb_reserve(bytes *b, size_t cap)
{
    uint8_t *grown = cap > b->cap ? realloc(b->p, cap) : b->p;
    if (!grown)
        return false;
    b->p = grown;
    b->cap = cap > b->cap ? cap : b->cap;
    return true;
}

static void tb_add(bytes *b, const void *p, size_t n)
{
    if (n == 0)
        return;
    if (b->n + n > b->cap && !tb_reserve(b, 2 * (b->n + n) + 256)) {
        b->failed = true;
        return;
    }
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

static void reset(bytes *b)
{
    b->n = 0;
    b->failed = false;
}

static void add_fixed(bytes *b, uint64_t x, int n_bytes) /* little endian */
{
    uint8_t out[8];
    for (int i = 0; i < n_bytes; i++)
        out[i] = (uint8_t)(x >> (8 * i));
    tb_add(b, out, (size_t)n_bytes);
}

static void add_varint(bytes *b, uint64_t x)
{
    uint8_t out[10];
    size_t n = 0;
    for (; x >= 0x80; x >>= 7)
        out[n++] = (uint8_t)(x | 0x80);
    out[n++] = (uint8_t)x;
    tb_add(b, out, n);
}

enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 }; /* protobuf wire types */

static void add_key(bytes *b, unsigned field, unsigned wire)
{
    add_varint(b, field << 3 | wire);
}

static void add_block(bytes *b, unsigned field, const void *p, size_t n)
{
    add_key(b, field, LENGTH);
    add_varint(b, n);
    tb_add(b, p, n);
}

static void add_event_head(bytes *b, double wall, int64_t step)
{
    uint64_t bits;
    memcpy(&bits, &wall, sizeof bits);
    add_key(b, 1, FIXED64);
    add_fixed(b, bits, 8);
    if (step != 0) {
        add_key(b, 2, VARINT);
        add_varint(b, (uint64_t)step);
    }
}

static void add_scalar(bytes *summary, const char *tag, double x)
{
    uint8_t room[400]; /* a tag has fewer than 256 bytes */
    bytes value = {.p = room, .cap = sizeof room};
    const float f = (float)x;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    add_block(&value, 1, tag, strlen(tag));
    add_key(&value, 2, FIXED32);
    add_fixed(&value, bits, 4);
    add_block(summary, 1, value.p, value.n);
}

/* CRC-32C (Castagnoli), reflected polynomial 0x82f63b78. A record is a few hundred bytes, so
 * computing it bit by bit is fast enough. */
static uint32_t crc32c(const uint8_t *p, size_t n)
{
    uint32_t crc = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        crc ^= p[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

static uint32_t masked_crc(const uint8_t *p, size_t n)
{
    const uint32_t crc = crc32c(p, n);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

/* length u64 | masked crc of it | event | masked crc of it */
static tt_status write_record(sink *s, const bytes *event, tt_error *err)
{
    bytes *r = &s->record;
    tt_status status = TT_OK;
    reset(r);
    add_fixed(r, event->n, 8);
    if (!r->failed)
        add_fixed(r, masked_crc(r->p, 8), 4);
    tb_add(r, event->p, event->n);
    add_fixed(r, masked_crc(event->p, event->n), 4);
    if (r->failed || event->failed)
        status = TT_FAIL(err, TT_ENOMEM, "out of memory for a record of %s", s->path);
    const off_t end = lseek(s->fd, 0, SEEK_END);
    for (size_t done = 0; status == TT_OK && done < r->n;) {
        const ssize_t k = write(s->fd, r->p + done, r->n - done);
        if (k >= 0)
            done += (size_t)k;
        else if (errno != EINTR)
            status = TT_FAIL(err, TT_EIO, "cannot write %s: %s", s->path, strerror(errno));
    }
    if (status != TT_OK && end >= 0 && ftruncate(s->fd, end) != 0)
        status = TT_FAIL(err, TT_EIO, "%s has a part of a record, which cannot be cut: %s", s->path,
                         strerror(errno));
    return status;
}

/* ---- tags ---- */

/* torchtitan's tag for one of our metrics, and the factor between the units. */
static const struct {
    const char *name, *tag;
    double factor;
} tags[] = {
    {"loss",              "loss_metrics/global_avg_loss", 1.0  },
    {"loss_max",          "loss_metrics/global_max_loss", 1.0  },
    {"tps",               "throughput(tps)",              1.0  },
    {"tps_global",        "throughput_global(tps)",       1.0  },
    {"mfu",               "mfu(%)",                       100.0},
    {"mem_gib",           "memory/max_active(GiB)",       1.0  },
    {"time_s",            "time_metrics/end_to_end(s)",   1.0  },
    {"time/data",         "time_metrics/data_loading(s)", 1.0  },
    {"validation/loss",   "validation_metrics/loss",      1.0  },
    {"validation/tokens", "validation_metrics/tokens",    1.0  },
};

static void add_metric(bytes *summary, const tt_metric *m)
{
    char tag[256];
    if (isnan(m->value) || strcmp(m->name, "step") == 0)
        return;
    for (size_t i = 0; i < TT_COUNT(tags); i++) {
        if (strcmp(m->name, tags[i].name) == 0) {
            add_scalar(summary, tags[i].tag, m->value * tags[i].factor);
            return;
        }
    }
    if (strncmp(m->name, "time/", 5) == 0)
        snprintf(tag, sizeof tag, "time_metrics/%s(s)", m->name + 5);
    else if (strncmp(m->name, "validation/", 11) == 0)
        snprintf(tag, sizeof tag, "validation_metrics/%s", m->name + 11);
    else
        snprintf(tag, sizeof tag, "%s", m->name);
    add_scalar(summary, tag, m->value);
}

static double metric(const tt_metrics_record *r, const char *name)
{
    for (size_t i = 0; i < r->n_metrics; i++)
        if (strcmp(r->metrics[i].name, name) == 0)
            return r->metrics[i].value;
    return (double)NAN;
}

static tt_status log_record(void *self, const tt_metrics_record *r, tt_error *err)
{
    sink *s = self;
    bytes *event = &s->event, *summary = &s->summary;
    reset(event);
    reset(summary);
    tt_status status = TT_OK;
    for (size_t i = 0; i < r->n_metrics; i++)
        add_metric(summary, &r->metrics[i]);
    const double data = metric(r, "time/data"), all = metric(r, "time_s");
    if (all > 0.0 && !isnan(data))
        add_scalar(summary, "time_metrics/data_loading(%)", 100.0 * data / all);
    if (summary->n > 0) {
        add_event_head(event, r->wall_time, r->step);
        add_block(event, 5, summary->p, summary->n);
        event->failed |= summary->failed;
        status = write_record(s, event, err);
    }
    return status;
}

/* ---- the component ---- */

static void close_sink(void *self)
{
    sink *s = self;
    if (!s)
        return;
    if (s->fd >= 0)
        close(s->fd);
    free(s->event.p);
    free(s->summary.p);
    free(s->record.p);
    free(s->path);
    free(s);
}

/* events.out.tfevents.<seconds>.<host>.<pid>.<n>: the first n that is free. */
static tt_status create(sink *s, const char *folder, double wall, tt_error *err)
{
    char host[65] = "localhost";
    gethostname(host, sizeof host - 1);
    for (int n = 0; n < 1000 && s->fd < 0; n++) {
        char *path = NULL;
        if (asprintf(&path, "%s/events.out.tfevents.%010lld.%s.%ld.%d", folder, (long long)wall,
                     host, (long)getpid(), n) < 0)
            return TT_FAIL(err, TT_ENOMEM, "out of memory opening a TensorBoard file");
        free(s->path);
        s->path = path;
        s->fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
        if (s->fd < 0 && errno != EEXIST)
            break;
    }
    if (s->fd < 0)
        return TT_FAIL(err, TT_EIO, "cannot create %s: %s", s->path, strerror(errno));
    return TT_OK;
}

static tt_status write_head(sink *s, double wall, int64_t first_step, tt_error *err)
{
    static const char version[] = "brain.Event:2";
    static const uint8_t session_start[] = {1 << 3 | VARINT, 1};
    bytes event = {0};
    add_event_head(&event, wall, 0);
    add_block(&event, 3, version, sizeof version - 1);
    tt_status status = write_record(s, &event, err);
    if (status == TT_OK) {
        event.n = 0;
        add_event_head(&event, wall, first_step);
        add_block(&event, 7, session_start, sizeof session_start);
        status = write_record(s, &event, err);
    }
    free(event.p);
    return status;
}

/* mkdir -p */
static tt_status make_folders(char *path, tt_error *err)
{
    for (char *p = path + 1;; p++) {
        const char end = *p;
        if (end && end != '/')
            continue;
        *p = '\0';
        const bool made = mkdir(path, 0777) == 0 || errno == EEXIST;
        const int reason = errno;
        if (!made)
            return TT_FAIL(err, TT_EIO, "cannot make the folder %s: %s", path, strerror(reason));
        *p = end;
        if (!end)
            return TT_OK;
    }
}

/* dump_folder/tb, or dump_folder/tb/rank_3; NULL: no memory */
static char *folder_of(const config *c, const tt_metrics_env *env)
{
    const bool absolute = c->folder[0] == '/';
    char *path = NULL, rank[32] = "";
    if (c->all_ranks && TT_HAS(env, tt_metrics_env, rank))
        snprintf(rank, sizeof rank, "/rank_%d", env->rank);
    return asprintf(&path, "%s%s%s%s", absolute ? "" : env->dump_folder, absolute ? "" : "/",
                    c->folder, rank) < 0
               ? NULL
               : path;
}

static int wants_all_ranks(const void *c)
{
    return ((const config *)c)->all_ranks;
}

static tt_status open_sink(const void *c, const tt_metrics_env *env, void **self, tt_error *err)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    const double wall = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
    char *folder = folder_of(c, env);
    sink *s = calloc(1, sizeof *s);
    if (!s || !folder) {
        free(folder);
        free(s);
        return TT_FAIL(err, TT_ENOMEM, "out of memory opening a TensorBoard file");
    }
    s->fd = -1;
    tt_status status = TT_OK;
    /* Room for a record of some hundred metrics: the writer allocates nothing while steps run. */
    if (!tb_reserve(&s->event, USUAL_RECORD) || !tb_reserve(&s->summary, USUAL_RECORD) ||
        !tb_reserve(&s->record, USUAL_RECORD))
        status = TT_FAIL(err, TT_ENOMEM, "out of memory opening a TensorBoard file");
    else
        status = make_folders(folder, err);
    if (status == TT_OK)
        status = create(s, folder, wall, err);
    if (status == TT_OK)
        status = write_head(s, wall, env->resume_step + 1, err);
    free(folder);
    if (status != TT_OK) {
        close_sink(s);
        return status;
    }
    *self = s;
    return TT_OK;
}

static const tt_metrics_vt vt = {.struct_size = sizeof vt,
                                 .open = open_sink,
                                 .log = log_record,
                                 .close = close_sink,
                                 .all_ranks = wants_all_ranks};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_METRICS, "tensorboard", "TensorBoard event files", config, options, &vt),
};

TT_PLUGIN("tensorboard", "1.0", components);
