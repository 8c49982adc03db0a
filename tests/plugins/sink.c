/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/metrics.h>

/* sink.so: "prom" writes the last loss to a file as Prometheus's text format has it; "null" reads a
 * string that its table leaves NULL. Built by test_lists.sh against the public headers alone. */

typedef struct {
    const char *path, *prefix;
} config;

static const tt_option options[] = {
    TT_OPTION(config, path, TT_OPT_STRING, "\"\"", 0, 0, "file, empty = metrics.prom"),
    TT_OPTION(config, prefix, TT_OPT_STRING, "\"ttrun_\"", 0, 0, "before each name"),
};
static const tt_option null_options[] = {
    TT_OPTION_MORE(config, path, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL, "file"),
};

typedef struct {
    const config *c;
    FILE *f;
} state;

static tt_status open_sink(const void *self, const tt_metrics_env *env, void **out, tt_error *err)
{
    const config *c = (const config *)self;
    char path[4096];
    if (strlen(c->path)) /* a NULL here is the crash that the test is about */
        snprintf(path, sizeof path, "%s", c->path);
    else
        snprintf(path, sizeof path, "%s/metrics.prom", env->dump_folder);
    state *s = (state *)malloc(sizeof *s);
    if (!s)
        return TT_FAIL(err, TT_ENOMEM, "out of memory");
    s->c = c;
    s->f = fopen(path, "w");
    if (!s->f) {
        free(s);
        return TT_FAIL(err, TT_EIO, "%s: %s", path, strerror(errno));
    }
    *out = s;
    return TT_OK;
}

static tt_status log_record(void *self, const tt_metrics_record *r, tt_error *err)
{
    state *s = (state *)self;
    (void)err;
    for (size_t i = 0; i < r->n_metrics; i++)
        if (!strcmp(r->metrics[i].name, "loss"))
            fprintf(s->f, "%sloss %g\n", s->c->prefix, r->metrics[i].value);
    fflush(s->f);
    return TT_OK;
}

static void close_sink(void *self)
{
    fclose(((state *)self)->f);
    free(self);
}

static const tt_metrics_vt vt = {.struct_size = sizeof(vt),
                                 .open = open_sink,
                                 .log = log_record,
                                 .close = close_sink,
                                 .all_ranks = NULL};
static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_METRICS, "prom", "Prometheus's text format", config, options, &vt),
    TT_COMPONENT(TT_KIND_METRICS, "null", "crashes", config, null_options, &vt),
};
TT_PLUGIN("sink", "1.0", components);
