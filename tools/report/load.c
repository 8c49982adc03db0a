/* SPDX-License-Identifier: Apache-2.0 */
#include "report/report.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Reads a run's folder. Any file may be missing, cut off or malformed. */

static void load_note(tt_run_report *r, tt_arena *a, const char *text)
{
    tt_vec_push(a, &r->notes, tt_arena_str(a, text));
}

static const tt_json *read_json(const char *path, tt_arena *a, tt_run_report *r)
{
    tt_error err = {0};
    const tt_json *v = NULL;
    if (tt_path_exists(path) && tt_json_read(a, path, (size_t)64 << 20, &v, &err) != TT_OK)
        load_note(r, a, err.text);
    return v;
}

static void read_metrics(const char *path, tt_arena *a, tt_run_report *r)
{
    tt_mapping m;
    tt_error err = {0};
    if (!tt_path_exists(path))
        return;
    if (tt_map_file(path, &m, &err) != TT_OK) {
        load_note(r, a, err.text);
        return;
    }
    tt_report_metrics((const char *)m.p, m.n, a, r);
    tt_unmap_file(&m);
    if (r->bad_lines)
        load_note(r, a,
                  tt_arena_printf(a,
                                  "%lld line%s of metrics.jsonl could not be read and %s left out",
                                  (long long)r->bad_lines, r->bad_lines == 1 ? "" : "s",
                                  r->bad_lines == 1 ? "is" : "are"));
}

static double load_number(const tt_json *o, const char *key)
{
    const tt_json *v = tt_json_get(o, key);
    const bool is_number = v && (v->type == TT_JSON_INT || v->type == TT_JSON_REAL);
    return is_number && isfinite(v->real) ? v->real : (double)NAN;
}

static void read_ops(const char *path, tt_arena *a, tt_run_report *r)
{
    char *text = NULL, *save = NULL;
    size_t n, rows = 0;
    tt_error err = {0};
    if (!tt_path_exists(path))
        return;
    if (tt_read_file(path, (size_t)16 << 20, &text, &n, &err) != TT_OK) {
        load_note(r, a, err.text);
        return;
    }
    for (size_t i = 0; i < n; i++)
        rows += text[i] == '\n';
    r->ops = tt_arena_array(a, rows + 1, sizeof *r->ops);
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const tt_json *v = NULL;
        if (tt_json_parse(a, path, line, strlen(line), &v, NULL) != TT_OK)
            continue;
        const tt_json *op = tt_json_get(v, "op");
        if (!op && !r->ops_head)
            r->ops_head = v;
        if (op && op->type == TT_JSON_STRING && r->n_ops <= rows)
            r->ops[r->n_ops++] = (tt_op_row){op->string,
                                             load_number(v, "calls"),
                                             load_number(v, "s"),
                                             load_number(v, "flops"),
                                             load_number(v, "bytes"),
                                             load_number(v, "bound_s")};
    }
    free(text);
}

/* Returns a string of the run's job; NULL: the job does not have it. */
static const char *job_string(const tt_run_report *r, const char *section, const char *key)
{
    const tt_json *v = tt_json_get(tt_json_get(tt_json_get(r->facts, "job"), section), key);
    return v && v->type == TT_JSON_STRING ? v->string : NULL;
}

tt_status tt_report_load(const char *folder, tt_arena *a, tt_run_report *out, tt_error *err)
{
    memset(out, 0, sizeof *out);
    size_t n = strlen(folder);
    while (n > 1 && folder[n - 1] == '/')
        n--;
    out->folder = tt_arena_strn(a, folder, n);
    const char *slash = strrchr(out->folder, '/');
    out->name = slash && slash[1] ? slash + 1 : out->folder;
    if (!tt_path_exists(out->folder))
        return TT_FAIL(err, TT_ENOTFOUND, "%s: no such folder", folder);
    const char *facts = tt_path_join(a, out->folder, "run.json");
    const char *metrics = tt_path_join(a, out->folder, "metrics.jsonl");
    if (!tt_path_exists(facts) && !tt_path_exists(metrics))
        return TT_FAIL(err, TT_ENOTFOUND,
                       "%s: this is not the folder of a run: it has neither run.json nor "
                       "metrics.jsonl; give the job's dump_folder",
                       folder);
    out->facts = read_json(facts, a, out);
    read_metrics(metrics, a, out);
    out->experts.last = read_json(tt_path_join(a, out->folder, "experts.json"), a, out);
    const char *traces = job_string(out, "profiling", "save_traces_folder");
    traces = tt_path_join(a, out->folder, traces ? traces : "profile");
    read_ops(tt_path_join(a, traces, "ops.jsonl"), a, out);
    const char *snapshots = job_string(out, "profiling", "save_memory_snapshot_folder");
    tt_report_read_measured(tt_path_join(a, out->folder, snapshots ? snapshots : "memory_snapshot"),
                            a, out);
    const char *kept = job_string(out, "checkpoint", "folder");
    kept = tt_path_join(a, out->folder, kept ? kept : "checkpoint");
    tt_error why = {0};
    if (tt_path_exists(kept) && tt_ckpt_list(kept, a, &out->steps, &out->n_steps, &why) != TT_OK)
        load_note(out, a, why.text);
    return TT_OK;
}
