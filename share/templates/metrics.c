/* SPDX-License-Identifier: Apache-2.0 */
/* @NAME@: a CSV of the logged steps, one line per value, in dump_folder/@NAME@.csv. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <ttrun/metrics.h>

static tt_status open_sink(const void *cfg, const tt_metrics_env *env, void **self, tt_error *err)
{
    char path[4096];
    (void)cfg;
    snprintf(path, sizeof path, "%s/@NAME@.csv", env->dump_folder);
    FILE *f = fopen(path, env->resume_step ? "a" : "w");
    if (!f)
        return TT_FAIL(err, TT_EIO, "%s: %s", path, strerror(errno));
    *self = f;
    return TT_OK;
}

static tt_status log_record(void *self, const tt_metrics_record *r, tt_error *err)
{
    FILE *f = (FILE *)self;
    for (size_t i = 0; i < r->n_metrics; i++)
        fprintf(f, "%lld,%s,%.9g\n", (long long)r->step, r->metrics[i].name, r->metrics[i].value);
    return fflush(f) == 0 ? TT_OK : TT_FAIL(err, TT_EIO, "@NAME@.csv: %s", strerror(errno));
}

static void close_sink(void *self)
{
    fclose((FILE *)self);
}

static const tt_metrics_vt vt = {.struct_size = sizeof(vt),
                                 .open = open_sink,
                                 .log = log_record,
                                 .close = close_sink,
                                 .all_ranks = NULL};
static const tt_component components[] = {
    TT_COMPONENT_PLAIN(TT_KIND_METRICS, "@NAME@", "a CSV file", &vt),
};
TT_PLUGIN("@NAME@", "0.1", components);
