/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/internal.h"
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* trainer.json, version 1:
 *   {"xxh3_128": "<32 hex>",
 *    "format": "ttrun-checkpoint", "version": 1,
 *    "step": N, "tokens_seen": N, "loader": {"samples_seen": N}, "last_loss": x|null, "world": N,
 *    "model_fingerprint": "…"|null, "tokenizer_fingerprint": "…"|null, "job": {…}|null,
 *    "files":   {"<name>": {"bytes": N, "xxh3_128": "<32 hex>"}},
 *    "tensors": {"<name>": {"dtype": "F32", "shape": [global …]}}}
 * The first line has the hash of all bytes after it; without that line the file is not checked.
 * "validation_due": true is there too until the validation after that step has ended, and
 * "since_line": {…} has the sums of the steps since the last line of metrics,
 * "train_seconds": x the time that all starts have taken together, "snapshot": true is there where the next
 * snapshot replaces this step, "history": {"step": […], "loss": […], "loss_max": […]} has what was logged,
 * "began": {"optimizer": N, "lr_scheduler": N} where one of them has begun anew after so many steps, and
 * "lr": {"of_job": x, "now": x} where `ttrun ctl` has set another one, and "frozen_from" where the step may leave out
 * frozen parameters, the folder that has them. Further keys are left alone: a
 * later 1.x may add some. */

#define FORMAT "ttrun-checkpoint"
#define VERSION 1

void tt_manifest_print(const tt_manifest *m, tt_str *out)
{
    tt_str_add(out, "{\"files\":{");
    for (size_t i = 0; i < m->files.n; i++) {
        const tt_ckpt_file *f = &m->files.items[i];
        tt_str_add(out, i ? ",\n" : "\n");
        tt_str_json(out, f->name);
        tt_str_printf(out, ":{\"bytes\":%lld,\"xxh3_128\":\"%s\"}", (long long)f->bytes, f->hash);
    }
    tt_str_add(out, "},\n\"tensors\":{");
    for (size_t i = 0; i < m->tensors.n; i++) {
        const tt_ckpt_tensor *t = &m->tensors.items[i];
        tt_str_add(out, i ? ",\n" : "\n");
        tt_str_json(out, t->name);
        tt_str_printf(out, ":{\"dtype\":\"%s\",\"shape\":[", t->dtype_name);
        for (int d = 0; d < t->n_dims; d++)
            tt_str_printf(out, "%s%lld", d ? "," : "", (long long)t->shape[d]);
        tt_str_add(out, "]}");
    }
    tt_str_add(out, "}}\n");
}

static void add_text(tt_str *out, const char *key, const char *value)
{
    tt_str_printf(out, "\"%s\":", key);
    if (value)
        tt_str_json(out, value);
    else
        tt_str_add(out, "null");
    tt_str_add(out, ",\n");
}

static void add_given(tt_str *out, const char *key, const char *value) /* NULL: it is left out */
{
    if (value)
        add_text(out, key, value);
}

static void print_numbers(const tt_trainer_state *s, const char *key, size_t field, tt_str *out)
{
    tt_str_printf(out, "\"%s\":[", key);
    for (size_t i = 0; i < s->n_losses; i++) {
        const double x = *(const double *)((const char *)&s->losses[i] + field);
        tt_str_add(out, i ? "," : "");
        if (isfinite(x))
            tt_str_printf(out, "%.9g", x);
        else
            tt_str_add(out, "null");
    }
    tt_str_addc(out, ']');
}

static void print_history(const tt_trainer_state *s, tt_str *out)
{
    if (!s->n_losses)
        return;
    tt_str_add(out, "\"history\":{\"step\":[");
    for (size_t i = 0; i < s->n_losses; i++)
        tt_str_printf(out, "%s%lld", i ? "," : "", (long long)s->losses[i].step);
    tt_str_add(out, "],");
    print_numbers(s, "loss", offsetof(tt_step_loss, loss), out);
    tt_str_addc(out, ',');
    print_numbers(s, "loss_max", offsetof(tt_step_loss, loss_max), out);
    tt_str_add(out, "},\n");
}

#define HASH_HEAD "{\"xxh3_128\":\""
#define HASH_TAIL "\",\n"
#define HASH_LINE (sizeof HASH_HEAD - 1 + 32 + sizeof HASH_TAIL - 1) /* bytes */

static tt_status check_hash(const char *path, const char *bytes, size_t n, tt_error *err)
{
    char hex[33];
    const char *own = bytes + sizeof HASH_HEAD - 1;
    if (n < HASH_LINE || memcmp(bytes, HASH_HEAD, sizeof HASH_HEAD - 1) != 0 ||
        memcmp(own + 32, HASH_TAIL, sizeof HASH_TAIL - 1) != 0)
        return TT_OK;
    tt_hash128_hex(bytes + HASH_LINE, n - HASH_LINE, hex);
    if (!memcmp(own, hex, 32))
        return TT_OK;
    return TT_FAIL(err, TT_EFORMAT,
                   "%s: its XXH3 is %s, %.32s in its first line: the file has changed; if you "
                   "changed it, take \"xxh3_128\" out of it",
                   path, hex, own);
}

static tt_status print_state(const tt_trainer_state *s, const tt_manifest *m, tt_str *out,
                             tt_error *err)
{
    if (s->job_json) { /* goes in as it is: must be JSON */
        const tt_json *job;
        tt_arena *a = tt_arena_new();
        tt_status status =
            tt_json_parse(a, "the resolved job", s->job_json, strlen(s->job_json), &job, err);
        if (status == TT_OK && job->type != TT_JSON_OBJECT)
            status = TT_FAIL(err, TT_EINVAL, "the resolved job is not a JSON object");
        tt_arena_free(a);
        TT_TRY(status);
    }
    tt_str_printf(
        out, "{\"format\":\"" FORMAT "\",\"version\":%d,\n\"step\":%lld,\n\"tokens_seen\":%lld,\n",
        VERSION, (long long)s->step, (long long)s->tokens_seen);
    tt_str_printf(
        out, "\"loader\":{\"samples_seen\":%lld},\n\"last_loss\":", (long long)s->samples_seen);
    tt_str_json_number(out, s->last_loss);
    tt_str_printf(out, ",\n\"world\":%d,\n", s->world);
    if (s->validation_due)
        tt_str_add(out, "\"validation_due\":true,\n");
    if (s->since.norms || s->since.skipped) {
        tt_str_add(out, "\"since_line\":{\"loss\":");
        tt_str_json_number(out, s->since.loss);
        tt_str_add(out, ",\"weight\":");
        tt_str_json_number(out, s->since.weight);
        tt_str_add(out, ",\"norm\":");
        tt_str_json_number(out, s->since.norm);
        tt_str_printf(out, ",\"norms\":%lld,\"skipped\":%lld,\"any_skipped\":%d},\n",
                      (long long)s->since.norms, (long long)s->since.skipped, s->since.any_skipped);
    }
    tt_str_add(out, "\"train_seconds\":");
    tt_str_json_number(out, s->train_seconds);
    tt_str_add(out, s->snapshot ? ",\n\"snapshot\":true,\n" : ",\n");
    print_history(s, out);
    if (s->optimizer_from || s->schedule_from)
        tt_str_printf(out, "\"began\":{\"optimizer\":%lld,\"lr_scheduler\":%lld},\n",
                      (long long)s->optimizer_from, (long long)s->schedule_from);
    if (s->has_lr) {
        tt_str_add(out, "\"lr\":{\"of_job\":");
        tt_str_json_number(out, s->lr_of_job);
        tt_str_add(out, ",\"now\":");
        tt_str_json_number(out, s->lr);
        tt_str_add(out, "},\n");
    }
    if (s->converters)
        tt_str_printf(out, "\"converters\":{\"of_job\":%s,\"now\":%s},\n", s->converters_of_job,
                      s->converters);
    add_given(out, "averaged", s->averaged);
    add_given(out, "frozen_from", s->frozen_from);
    add_given(out, "initial_identity", s->initial_identity);
    add_text(out, "model_fingerprint", s->model_fingerprint);
    add_text(out, "tokenizer_fingerprint", s->tokenizer_fingerprint);
    tt_str_printf(out, "\"job\":%s,\n", s->job_json ? s->job_json : "null");
    tt_str parts = {0};
    tt_manifest_print(m, &parts);
    tt_str_add(out, parts.s + 1); /* its members: one object, one brace */
    tt_str_free(&parts);
    return TT_OK;
}

tt_status tt_state_print(const tt_trainer_state *s, const tt_manifest *m, tt_str *out,
                         tt_error *err)
{
    tt_str text = {0};
    char hex[33];
    const tt_status status = print_state(s, m, &text, err);
    if (status == TT_OK) {
        tt_hash128_hex(text.s + 1, text.n - 1, hex);
        tt_str_printf(out, HASH_HEAD "%s" HASH_TAIL, hex);
        tt_str_addn(out, text.s + 1, text.n - 1);
    }
    tt_str_free(&text);
    return status;
}

/* ---- reading ---- */

typedef struct reading {
    tt_arena *arena;
    const char *path;
    tt_error *err;
} reading;

static tt_status bad(const reading *r, const tt_json *at, const char *key, const char *what)
{
    return tt_fail(r->err, TT_EFORMAT, "%s:%d:%d: %s: %s", r->path, at->line, at->column, key,
                   what);
}

static tt_status count(const reading *r, const tt_json *object, const char *key, int64_t max,
                       int64_t *out)
{
    const tt_json *v = tt_json_get(object, key);
    char what[64];
    snprintf(what, sizeof what, "an integer from 0 to %lld is wanted", (long long)max);
    if (!v || v->type != TT_JSON_INT || v->integer < 0 || v->integer > max)
        return bad(r, v ? v : object, key, what);
    *out = v->integer;
    return TT_OK;
}

/* Absent or null = NULL. */
static tt_status text(const reading *r, const tt_json *object, const char *key, const char **out)
{
    const tt_json *v = tt_json_get(object, key);
    if (v && v->type != TT_JSON_STRING && v->type != TT_JSON_NULL)
        return bad(r, v, key, "a string or null is wanted");
    *out = v && v->type == TT_JSON_STRING ? v->string : NULL;
    return TT_OK;
}

static tt_status member(const reading *r, const tt_json *object, const char *key,
                        const tt_json **out)
{
    const tt_json *v = tt_json_get(object, key);
    if (!v || v->type != TT_JSON_OBJECT)
        return bad(r, v ? v : object, key, "an object is wanted");
    *out = v;
    return TT_OK;
}

static tt_status one_file(const reading *r, const char *name, const tt_json *v, tt_ckpt_file *out)
{
    const char *hash = NULL;
    if (!tt_is_safetensors_name(name)) /* nor may it lead out of the folder */
        return bad(r, v, name, "not the name of a .safetensors file in this folder");
    if (v->type != TT_JSON_OBJECT)
        return bad(r, v, name, "an object is wanted");
    TT_TRY(count(r, v, "bytes", INT64_MAX, &out->bytes));
    TT_TRY(text(r, v, "xxh3_128", &hash));
    if (!hash || strlen(hash) != 32 || strspn(hash, "0123456789abcdef") != 32)
        return bad(r, v, "xxh3_128", "32 lower-case hexadecimal digits are wanted");
    memcpy(out->hash, hash, sizeof out->hash);
    out->name = name;
    return TT_OK;
}

static tt_status one_tensor(const reading *r, const char *name, const tt_json *v,
                            tt_ckpt_tensor *out)
{
    const tt_json *shape = tt_json_get(v, "shape");
    size_t bytes;
    if (v->type != TT_JSON_OBJECT)
        return bad(r, v, name, "an object is wanted");
    TT_TRY(text(r, v, "dtype", &out->dtype_name));
    const tt_st_dtype *dtype = out->dtype_name ? tt_st_dtype_by_name(out->dtype_name) : NULL;
    if (!dtype)
        return bad(r, v, "dtype", "a dtype of safetensors is wanted (\"F32\")");
    if (!shape || shape->type != TT_JSON_ARRAY || shape->n > TT_MAX_DIMS)
        return bad(r, v, "shape", "a list of at most six integers is wanted");
    for (size_t d = 0; d < shape->n; d++) {
        if (shape->items[d]->type != TT_JSON_INT)
            return bad(r, shape, "shape", "integers are wanted");
        out->shape[d] = shape->items[d]->integer;
    }
    out->n_dims = (int)shape->n;
    out->name = name;
    if (!tt_st_bytes(dtype, out->shape, out->n_dims, &bytes))
        return bad(r, shape, "shape", "not a valid shape");
    return TT_OK;
}

static tt_status manifest(const reading *r, const tt_json *root, tt_manifest *out)
{
    const tt_json *files = NULL, *tensors = NULL;
    tt_manifest m = {0};
    TT_TRY(member(r, root, "files", &files));
    TT_TRY(member(r, root, "tensors", &tensors));
    for (size_t i = 0; i < files->n; i++) {
        tt_ckpt_file f = {0};
        TT_TRY(one_file(r, files->keys[i], files->items[i], &f));
        tt_vec_push(r->arena, &m.files, f);
    }
    for (size_t i = 0; i < tensors->n; i++) {
        tt_ckpt_tensor t = {0};
        TT_TRY(one_tensor(r, tensors->keys[i], tensors->items[i], &t));
        tt_vec_push(r->arena, &m.tensors, t);
    }
    *out = m;
    return TT_OK;
}

static tt_status parse_object(const reading *r, const char *bytes, size_t n, const tt_json **out)
{
    const tt_json *root = NULL;
    TT_TRY(tt_json_parse(r->arena, r->path, bytes, n, &root, r->err));
    if (root->type != TT_JSON_OBJECT)
        return bad(r, root, "top level", "an object is wanted");
    *out = root;
    return TT_OK;
}

tt_status tt_manifest_parse(tt_arena *a, const char *path, const char *bytes, size_t n,
                            tt_manifest *out, tt_error *err)
{
    reading r = {a, path, err};
    const tt_json *root = NULL;
    TT_TRY(parse_object(&r, bytes, n, &root));
    return manifest(&r, root, out);
}

static tt_status check_version(const reading *r, const tt_json *root)
{
    const char *format = NULL;
    int64_t version;
    TT_TRY(text(r, root, "format", &format));
    if (!format || strcmp(format, FORMAT) != 0)
        return bad(r, root, "format", "\"" FORMAT "\" is wanted: not a checkpoint of ttrun");
    TT_TRY(count(r, root, "version", INT64_MAX, &version));
    if (version != VERSION)
        return bad(r, root, "version",
                   "written by another version of ttrun; this one reads version 1");
    return TT_OK;
}

/* Steps, samples and tokens. A run that continues adds to them, and what it saves must be readable
 * again: so a run does not continue from more than half of what is read. */
#define MOST_COUNTED (INT64_MAX / 4)

/* Absent: the job's. */
static tt_status learning_rate(const reading *r, const tt_json *v, tt_trainer_state *s)
{
    const char *const keys[] = {"of_job", "now"};
    double *const to[] = {&s->lr_of_job, &s->lr};
    if (!v)
        return TT_OK;
    if (v->type != TT_JSON_OBJECT)
        return bad(r, v, "lr", "an object is wanted");
    for (size_t i = 0; i < TT_COUNT(keys); i++) {
        const tt_json *x = tt_json_get(v, keys[i]);
        if (!x || (x->type != TT_JSON_REAL && x->type != TT_JSON_INT) || !(x->real >= 0) ||
            !isfinite(x->real))
            return bad(r, x ? x : v, keys[i], "a finite number, not below 0, is wanted");
        *to[i] = x->real;
    }
    s->has_lr = true;
    return TT_OK;
}

/* Absent: a line was written after the step. */
static tt_status state_since(const reading *r, const tt_json *v, tt_log_sums *s)
{
    const char *const keys[] = {"loss", "weight", "norm"};
    double *const to[] = {&s->loss, &s->weight, &s->norm};
    int64_t any = 0;
    if (!v)
        return TT_OK;
    if (v->type != TT_JSON_OBJECT)
        return bad(r, v, "since_line", "an object is wanted");
    for (size_t i = 0; i < TT_COUNT(keys); i++) {
        const tt_json *x = tt_json_get(v, keys[i]);
        if (!x || (x->type != TT_JSON_REAL && x->type != TT_JSON_INT) || !isfinite(x->real))
            return bad(r, x ? x : v, keys[i], "a finite number is wanted");
        *to[i] = x->real;
    }
    TT_TRY(count(r, v, "norms", MOST_COUNTED, &s->norms));
    TT_TRY(count(r, v, "skipped", MOST_COUNTED, &s->skipped));
    TT_TRY(count(r, v, "any_skipped", 1, &any));
    s->any_skipped = any != 0;
    return TT_OK;
}

/* A list of n numbers, null for one that is not finite, into a field of each loss. */
static tt_status read_numbers(const reading *r, const tt_json *history, const char *key, size_t n,
                              tt_step_loss *to, size_t field)
{
    const tt_json *v = tt_json_get(history, key);
    if (!v || v->type != TT_JSON_ARRAY || v->n != n)
        return bad(r, v ? v : history, key, "a list as long as that of the steps is wanted");
    for (size_t i = 0; i < n; i++) {
        const tt_json *x = v->items[i];
        const bool number = x->type == TT_JSON_REAL || x->type == TT_JSON_INT;
        if (!number && x->type != TT_JSON_NULL)
            return bad(r, x, key, "numbers are wanted");
        *(double *)((char *)&to[i] + field) = number ? x->real : (double)NAN;
    }
    return TT_OK;
}

/* Absent: nothing was logged. */
static tt_status state_history(const reading *r, const tt_json *v, tt_trainer_state *s)
{
    const tt_json *steps = v ? tt_json_get(v, "step") : NULL;
    if (!v)
        return TT_OK;
    if (v->type != TT_JSON_OBJECT || !steps || steps->type != TT_JSON_ARRAY ||
        steps->n > TT_MOST_LOSSES)
        return bad(r, v, "history", "an object with lists of at most 16384 numbers is wanted");
    tt_step_loss *to = tt_arena_array(r->arena, steps->n + 1, sizeof *to);
    for (size_t i = 0; i < steps->n; i++) {
        to[i].step = steps->items[i]->integer;
        if (steps->items[i]->type != TT_JSON_INT || to[i].step < 0 || to[i].step > MOST_COUNTED ||
            (i && to[i].step <= to[i - 1].step))
            return bad(r, steps, "step", "ascending numbers of steps are wanted");
    }
    TT_TRY(read_numbers(r, v, "loss", steps->n, to, offsetof(tt_step_loss, loss)));
    TT_TRY(read_numbers(r, v, "loss_max", steps->n, to, offsetof(tt_step_loss, loss_max)));
    s->losses = to;
    s->n_losses = steps->n;
    return TT_OK;
}

/* Absent: of a version that did not count them. */
static tt_status state_seconds(const reading *r, const tt_json *v, tt_trainer_state *s)
{
    if (!v)
        return TT_OK;
    if ((v->type != TT_JSON_REAL && v->type != TT_JSON_INT) || !isfinite(v->real) || v->real < 0)
        return bad(r, v, "train_seconds", "a finite number, not below 0, is wanted");
    s->train_seconds = v->real;
    return TT_OK;
}

/* Absent: both began with the run. */
static tt_status state_began(const reading *r, const tt_json *v, tt_trainer_state *s)
{
    const char *const keys[] = {"optimizer", "lr_scheduler"};
    int64_t *const to[] = {&s->optimizer_from, &s->schedule_from};
    if (!v)
        return TT_OK;
    if (v->type != TT_JSON_OBJECT)
        return bad(r, v, "began", "an object is wanted");
    for (size_t i = 0; i < TT_COUNT(keys); i++) {
        const tt_json *x = tt_json_get(v, keys[i]);
        if (!x || x->type != TT_JSON_INT || x->integer > MOST_COUNTED || x->integer < -MOST_COUNTED)
            return bad(r, x ? x : v, keys[i], "a number of steps is wanted");
        *to[i] = x->integer;
    }
    return TT_OK;
}

/* Absent: the job's. */
static tt_status state_converters(const reading *r, const tt_json *v, tt_trainer_state *s)
{
    const char *const keys[] = {"of_job", "now"};
    const char **const to[] = {&s->converters_of_job, &s->converters};
    if (!v)
        return TT_OK;
    if (v->type != TT_JSON_OBJECT)
        return bad(r, v, "converters", "an object is wanted");
    for (size_t i = 0; i < TT_COUNT(keys); i++) {
        const tt_json *x = tt_json_get(v, keys[i]);
        tt_str list = {0};
        if (!x || x->type != TT_JSON_ARRAY)
            return bad(r, x ? x : v, keys[i], "a list is wanted");
        tt_json_write(x, &list);
        *to[i] = tt_arena_str(r->arena, tt_str_get(&list));
        tt_str_free(&list);
    }
    return TT_OK;
}

static tt_status trainer(const reading *r, const tt_json *root, tt_trainer_state *out)
{
    tt_trainer_state s = {0};
    const tt_json *loader = NULL, *loss = tt_json_get(root, "last_loss"),
                  *job = tt_json_get(root, "job"), *due = tt_json_get(root, "validation_due"),
                  *snapshot = tt_json_get(root, "snapshot");
    int64_t world;
    TT_TRY(count(r, root, "step", MOST_COUNTED, &s.step));
    TT_TRY(count(r, root, "tokens_seen", MOST_COUNTED, &s.tokens_seen));
    TT_TRY(member(r, root, "loader", &loader));
    TT_TRY(count(r, loader, "samples_seen", MOST_COUNTED, &s.samples_seen));
    TT_TRY(count(r, root, "world", INT32_MAX, &world));
    TT_TRY(text(r, root, "averaged", &s.averaged));
    TT_TRY(text(r, root, "frozen_from", &s.frozen_from));
    TT_TRY(text(r, root, "initial_identity", &s.initial_identity));
    TT_TRY(text(r, root, "model_fingerprint", &s.model_fingerprint));
    TT_TRY(text(r, root, "tokenizer_fingerprint", &s.tokenizer_fingerprint));
    s.world = (int)world;
    s.validation_due = due && due->type == TT_JSON_BOOL && due->boolean;
    s.snapshot = snapshot && snapshot->type == TT_JSON_BOOL && snapshot->boolean;
    TT_TRY(learning_rate(r, tt_json_get(root, "lr"), &s));
    TT_TRY(state_seconds(r, tt_json_get(root, "train_seconds"), &s));
    TT_TRY(state_history(r, tt_json_get(root, "history"), &s));
    TT_TRY(state_since(r, tt_json_get(root, "since_line"), &s.since));
    TT_TRY(state_began(r, tt_json_get(root, "began"), &s));
    TT_TRY(state_converters(r, tt_json_get(root, "converters"), &s));
    s.last_loss = (double)NAN;
    if (loss && (loss->type == TT_JSON_REAL || loss->type == TT_JSON_INT))
        s.last_loss = loss->real;
    else if (loss && loss->type != TT_JSON_NULL)
        return bad(r, loss, "last_loss", "a number or null is wanted");
    if (job && job->type == TT_JSON_OBJECT) {
        tt_str printed = {0};
        tt_json_write(job, &printed);
        s.job_json = tt_arena_str(r->arena, tt_str_get(&printed));
        tt_str_free(&printed);
    } else if (job && job->type != TT_JSON_NULL) {
        return bad(r, job, "job", "an object or null is wanted");
    }
    *out = s;
    return TT_OK;
}

tt_status tt_state_parse(tt_arena *a, const char *path, const char *bytes, size_t n,
                         tt_trainer_state *state, tt_manifest *m, tt_error *err)
{
    reading r = {a, path, err};
    const tt_json *root = NULL;
    tt_trainer_state s;
    tt_manifest parts;
    TT_TRY(parse_object(&r, bytes, n, &root));
    TT_TRY(check_version(&r, root));
    TT_TRY(trainer(&r, root, &s));
    TT_TRY(manifest(&r, root, &parts));
    TT_TRY(check_hash(path, bytes, n, err));
    if (state)
        *state = s;
    if (m)
        *m = parts;
    return TT_OK;
}

tt_status tt_ckpt_state_from_file(tt_arena *a, const char *step_folder, tt_trainer_state *state,
                                  tt_manifest *m, tt_error *err)
{
    char *bytes;
    size_t n;
    const char *path = tt_path_join(a, step_folder, TT_STATE_FILE);
    TT_TRY(tt_read_file(path, TT_STATE_MAX_BYTES, &bytes, &n, err));
    tt_status status = tt_state_parse(a, path, bytes, n, state, m, err);
    free(bytes);
    return status;
}

tt_status tt_ckpt_read_state(const char *step_folder, tt_arena *a, tt_trainer_state *out,
                             tt_error *err)
{
    return tt_ckpt_state_from_file(a, step_folder, out, NULL, err);
}

tt_status tt_ckpt_check_counts(const char *step_folder, const tt_trainer_state *s, tt_error *err)
{
    const struct {
        const char *key;
        int64_t value;
    } counts[] = {
        {"step",                s->step        },
        {"tokens_seen",         s->tokens_seen },
        {"loader.samples_seen", s->samples_seen}
    };
    for (size_t i = 0; i < TT_COUNT(counts); i++)
        if (counts[i].value > MOST_COUNTED / 2)
            return TT_FAIL(err, TT_EFORMAT,
                           "%s/" TT_STATE_FILE ": %s: no run can continue from %lld, at most %lld "
                           "can be counted on from; was the file changed?",
                           step_folder, counts[i].key, (long long)counts[i].value,
                           (long long)(MOST_COUNTED / 2));
    return TT_OK;
}
