/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/data_files.h"
#include "cli/from_checkpoint.h"
#include "train/loop.h"
#include <math.h>
#include <string.h>
#include <ttrun/corpus.h>
#include <unistd.h>

/* eval: the loss of a model on a data set. Every token is counted once, in windows of
 * training.seq_len tokens that do not overlap; the last window may be shorter. It prints the mean
 * loss per counted token, its exponential (perplexity) and, if there is a tokenizer, bits per byte
 * of the tokens' text. */

typedef struct score {
    double nll, weight; /* the loss is nll / weight */
    int64_t tokens, bytes, samples;
} score;

static int64_t eval_text_bytes(const tt_loop *l, const tt_batch *b)
{
    char piece[4096];
    int64_t n = 0;
    const tt_tokenizer_vt *vt = l->data.tokenizer ? l->s->tokenizer.component->vtable : NULL;
    for (int64_t i = 0; vt && i < b->n_tokens; i++)
        if (b->labels[i] >= 0)
            n += (int64_t)vt->decode(l->data.tokenizer, b->labels[i], piece, sizeof piece);
    return n;
}

static tt_status add_window(tt_loop *l, const tt_batch *b, int64_t i, score *out, tt_error *err)
{
    tt_exec *x = l->rank.exec;
    tt_feed feed = {b, 0, NULL, 0};
    TT_TRY(tt_exec_micro_batches(x, i, tt_feed_fill, &feed, err));
    TT_TRY(tt_exec_epilogue(x, err));
    out->nll += tt_exec_metric(x, TT_METRIC_LOSS);
    out->tokens += b->counted;
    out->weight += l->s->loss_weights ? b->weight : (double)b->counted;
    out->bytes += eval_text_bytes(l, b);
    out->samples++;
    return TT_OK;
}

static tt_status measure(tt_loop *l, int64_t n, score *out, tt_error *err)
{
    for (int64_t i = 0; i < n; i++) {
        const tt_batch *micro = NULL;
        int64_t epoch;
        TT_TRY(tt_stream_next(l->stream, &micro, &epoch, err));
        TT_TRY(add_window(l, micro, i, out, err));
        if (l->has_progress)
            tt_progress_update(&l->progress, i + 1, out->nll / (out->weight > 0 ? out->weight : 1),
                               (double)NAN);
    }
    return TT_OK;
}

/* ---- the rest: the tokens of the stream after the last whole window ---- */

/* The same data with one token per sample: then sample i is token i, with token i + 1 as its label.
 */
typedef struct tokens {
    tt_setup setup;
    tt_loop loop;
    int64_t n;
} tokens;

static tt_status open_tokens(const tt_setup *s, const tt_run_opts *ro, tokens *t, tt_error *err)
{
    const tt_dataloader_vt *vt = s->dataloader.component->vtable;
    t->setup = *s;
    t->setup.core.training.seq_len = 1;
    t->loop = (tt_loop){.s = &t->setup, .o = ro, .main = true};
    TT_TRY(tt_loop_open_data(&t->loop, err));
    t->n = vt->n_samples(t->loop.data.loader);
    return TT_OK;
}

/* If samples are whole documents, an epoch holds every token and there is no rest. */
static bool packs_documents(const tt_setup *s)
{
    const tt_dataloader_vt *vt = s->dataloader.component->vtable;
    if (TT_HAS(vt, tt_dataloader_vt, samples_are_whole) && vt->samples_are_whole)
        return true;
    const char *const *packing =
        tt_part_value(s->dataloader.component, s->dataloader.config, "packing", TT_OPT_ENUM);
    return packing && strcmp(*packing, "none") != 0;
}

/* If documents are kept apart within a window, single tokens do not show where a document ends. */
static bool masks_documents(const tt_setup *s)
{
    const bool *mask =
        tt_part_value(s->dataloader.component, s->dataloader.config, "document_mask", TT_OPT_BOOL);
    return mask && *mask;
}

static tt_status measure_rest(tt_loop *l, tokens *t, int64_t begin, score *out, tt_error *err)
{
    const tt_dataloader_vt *vt = l->s->dataloader.component->vtable;
    const tt_model_vt *model = l->s->model.component->vtable;
    const int64_t seq = l->s->core.training.seq_len, n = t->n - begin,
                  vocab = model->vocab_size(l->s->model.config);
    tt_arena *a = tt_arena_new();
    tt_batch b = {.n_tokens = seq, .seq_len = seq};
    tt_status s = TT_OK;
    b.ids = tt_arena_array(a, (size_t)seq, sizeof *b.ids);
    b.labels = tt_arena_array(a, (size_t)seq, sizeof *b.labels);
    b.pos = tt_arena_array(a, (size_t)seq, sizeof *b.pos);
    b.seg = tt_arena_array(a, (size_t)seq, sizeof *b.seg);
    b.inputs = &t->loop.s->inputs;
    for (int k = 0; k < b.inputs->n; k++)
        b.more[k] = tt_arena_array(a, (size_t)seq, sizeof(int32_t));
    for (int64_t i = 0; s == TT_OK && i < seq; i++) {
        int32_t pos = 0, seg = 0;
        void *own[TT_MAX_INPUTS];
        tt_sample one = {sizeof one, 1, &b.ids[i], &b.labels[i], &pos, &seg, own};
        for (int k = 0; k < b.inputs->n; k++)
            own[k] = (int32_t *)b.more[k] + (b.inputs->items[k].per_sample ? 0 : i);
        b.pos[i] = (int32_t)i;
        b.labels[i] = -100; /* after the end of the data */
        if (i < n)
            s = TT_PLUGIN_CALL(vt->read(t->loop.data.loader, begin + i, &one, err), err,
                               "dataloader", l->s->dataloader.name);
        if (s == TT_OK && (b.ids[i] < 0 || b.ids[i] >= vocab || b.labels[i] >= vocab))
            s = TT_FAIL(err, TT_EINVAL,
                        "data: token %lld is outside the model's vocabulary of %lld",
                        (long long)(begin + i), (long long)vocab);
        b.counted += b.labels[i] >= 0;
    }
    if (s == TT_OK)
        s = add_window(l, &b, begin / seq, out, err);
    tt_arena_free(a);
    return s;
}

static void print_score(const tt_cli *cli, const score *r)
{
    const double loss = r->nll / r->weight;
    const double bits = r->bytes ? r->nll / log(2) / (double)r->bytes : (double)NAN;
    tt_str o = {0};
    if (cli->json) {
        tt_str_printf(&o, "{\"samples\":%lld,\"tokens\":%lld,\"loss\":", (long long)r->samples,
                      (long long)r->tokens);
        tt_str_json_number(&o, loss);
        tt_str_add(&o, ",\"perplexity\":");
        tt_str_json_number(&o, exp(loss));
        tt_str_add(&o, ",\"bits_per_byte\":");
        tt_str_json_number(&o, bits);
        tt_str_add(&o, "}\n");
    } else {
        tt_str_printf(&o, "loss %.5f  perplexity %.4f", loss, exp(loss));
        if (r->bytes)
            tt_str_printf(&o, "  bits per byte %.4f", bits);
        tt_str_printf(&o, "  (%lld tokens, %lld samples)\n", (long long)r->tokens,
                      (long long)r->samples);
    }
    tt_cli_print(&o);
    tt_str_free(&o);
}

/* Evaluates n whole windows. */
static tt_status whole_windows(tt_loop *l, int64_t n, score *r, tt_error *err)
{
    l->steps = n;
    TT_TRY(tt_loop_open_stream(l, err));
    if (l->o->progress) {
        tt_progress_init(&l->progress, "eval", 0, n, false);
        l->has_progress = true;
    }
    const tt_status st = measure(l, n, r, err);
    if (l->has_progress)
        tt_progress_finish(&l->progress);
    return st;
}

static tt_status all_windows(tt_loop *l, tt_setup *s, tokens *t, int64_t most, score *r,
                             tt_error *err)
{
    const tt_dataloader_vt *vt = s->dataloader.component->vtable;
    const int64_t seq = s->core.training.seq_len;
    int64_t n = 0;
    if (t->n >= seq || packs_documents(s)) {
        TT_TRY(tt_loop_open_data(l, err));
        n = vt->n_samples(l->data.loader);
    }
    const int64_t rest = t->n - n * seq;
    const bool plain = rest > 0 && rest < seq && !masks_documents(s) && !s->loss_weights;
    if (rest > 0 && !plain)
        tt_log(TT_INFO, "data", "the tokens after the last whole sample are not counted");
    if (n)
        TT_TRY(whole_windows(l, most > 0 ? TT_MIN(n, most) : n, r, err));
    if (!n && !l->data.tokenizer) { /* eval_text_bytes() needs it */
        l->data.tokenizer = t->loop.data.tokenizer;
        l->data.tokenizer_info = t->loop.data.tokenizer_info;
        t->loop.data.tokenizer = NULL;
    }
    return plain && (most <= 0 || n < most) ? measure_rest(l, t, n * seq, r, err) : TT_OK;
}

static tt_status evaluate(const tt_cli *cli, tt_loaded_model *m, int64_t most, tt_error *err)
{
    const tt_run_opts ro = {.verbose = cli->verbose, .progress = cli->verbose >= 0};
    tt_loop l = {.s = &m->setup, .o = &ro, .main = true, .rank = m->rank};
    tokens t = {.loop = {.s = &m->setup}}; /* closed even if it is never opened */
    score r = {0};
    if (tt_part_is_mixture(&m->setup.dataloader))
        return TT_FAIL(err, TT_EINVAL,
                       "the job's data is a mixture, and eval measures one data set: name it with "
                       "--data");
    m->setup.data_order.shuffle = false;
    tt_status s = packs_documents(&m->setup) ? TT_OK : open_tokens(&m->setup, &ro, &t, err);
    if (s == TT_OK)
        s = all_windows(&l, &m->setup, &t, most, &r, err);
    tt_loop_close_data(&l);
    tt_loop_close_data(&t.loop);
    if (s == TT_OK && !r.tokens)
        s = TT_FAIL(err, TT_EINVAL, "no token of the data is counted: every label is ignored");
    if (s == TT_OK)
        print_score(cli, &r);
    return s;
}

/* Turns --data and --seq_len into overrides of the job. A path is relative to the working directory. Returns the number
 * of overrides. */
static size_t overrides_of(const tt_cli *cli, const char *own_loader, tt_override *out)
{
    const char *data = tt_cli_option(cli, "data"), *seq = tt_cli_option(cli, "seq_len");
    char here[4096];
    size_t n = 0;
    if (seq)
        out[n++] = (tt_override){"training.seq_len", seq};
    if (!data)
        return n;
    out[n++] = (tt_override){"dataloader.name", tt_cli_loader_for(data, own_loader)};
    if (getcwd(here, sizeof here))
        data = tt_path_join(cli->arena, here, data);
    out[n++] = (tt_override){"dataloader.path", data};
    return n;
}

static tt_status blame_data(const tt_cli *cli, tt_status s, tt_error *err)
{
    static const char *const options[][2] = {
        {"dataloader.path", "--data"}
    };
    return tt_cli_blame_options(s, options, tt_cli_option(cli, "data") ? 1 : 0, err);
}

/* Whether the files of --data are there is seen before a model is loaded. */
static tt_status find_data(const tt_cli *cli, tt_error *err)
{
    const char *data = tt_cli_option(cli, "data");
    const tt_strings path = {&data, 1};
    tt_files files = {0};
    const tt_status s = data ? tt_files_find(&path, NULL, "corpus/*.txt", &files, err) : TT_OK;
    tt_files_free(&files);
    return s;
}

static tt_status eval_model(tt_cli *cli, tt_loaded_model *m, tt_error *err)
{
    const tt_setup_opts so = {.mode = TT_MODE_EVAL};
    const char *loader = NULL;
    tt_override own[3];
    int64_t most = 0;
    TT_TRY(tt_cli_integer(cli, "samples", 1, INT64_MAX, &most, err));
    TT_TRY(find_data(cli, err));
    TT_TRY(tt_cli_find_model(cli, m, err));
    TT_TRY(tt_cli_loader_of(cli, m, &loader, err));
    TT_TRY(tt_cli_open_step(cli, true, own, overrides_of(cli, loader, own), m, err));
    if (m->setup.has_reference)
        return TT_FAIL(
            err, TT_EINVAL,
            "the loss %s compares with the model as a run began, which only that run's own "
            "validation does: add --loss.name cross_entropy",
            m->setup.loss.name);
    TT_TRY(tt_cli_load_model(m, &so, err));
    return evaluate(cli, m, most, err);
}

static tt_status cmd_eval_run(tt_cli *cli, tt_error *err)
{
    tt_loaded_model m = {0};
    const tt_status s = eval_model(cli, &m, err);
    tt_loaded_model_close(&m);
    return blame_data(cli, s, err);
}

static const tt_cli_row rows[] = {
    TT_CLI_MODEL,
    TT_CLI_VALUE("data", "PATH", "the job's data",
                 "files to measure on: text, JSON, Parquet or token ids, by their names; "
                 "conversations where the run has the loader chat",
                 .takes = TT_TAKES_FILE),
    TT_CLI_VALUE("seq_len", "N", "training.seq_len", "tokens per window; windows do not overlap"),
    TT_CLI_VALUE("samples", "N", "all", "evaluate only the first N windows"),
};
const tt_command tt_cmd_eval = {
    .name = "eval",
    .forms = "[DIR]",
    .doc = "print loss, perplexity and bits per byte of a model on a data set",
    .rows = rows,
    .n_rows = TT_COUNT(rows),
    .run = cmd_eval_run,
    .words = 1};
