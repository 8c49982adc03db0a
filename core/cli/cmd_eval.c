/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/from_checkpoint.h"
#include "train/loop.h"
#include <math.h>
#include <string.h>

/* eval: the loss of a checkpoint on a data set: every sample once, in order; Σ over counted tokens
 * ÷ their number, its exponential (perplexity), and, where there is a tokenizer, bits per byte of
 * the text those tokens stand for. */

typedef struct score {
    double nll;
    int64_t tokens, bytes, samples;
} score;

static int64_t bytes_of(const tt_loop *l, const tt_batch *b)
{
    char piece[4096];
    int64_t n = 0;
    const tt_tokenizer_vt *vt = l->data.tokenizer ? l->s->tokenizer.component->vtable : NULL;
    for (int64_t i = 0; vt && i < b->n_tokens; i++)
        if (b->labels[i] >= 0)
            n += (int64_t)vt->decode(l->data.tokenizer, b->labels[i], piece, sizeof piece);
    return n;
}

static tt_status measure(tt_loop *l, int64_t n, score *out, tt_error *err)
{
    tt_exec *x = l->rank.exec;
    for (int64_t i = 0; i < n; i++) {
        const tt_batch *micro = NULL;
        int64_t epoch;
        TT_TRY(tt_stream_next(l->stream, &micro, &epoch, err));
        tt_feed feed = {micro, 0};
        TT_TRY(tt_exec_micro_batches(x, i, tt_feed_fill, &feed, err));
        TT_TRY(tt_exec_epilogue(x, err));
        out->nll += tt_exec_metric(x, TT_METRIC_LOSS);
        out->tokens += micro->counted;
        out->bytes += bytes_of(l, micro);
        out->samples++;
        if (l->has_progress)
            tt_progress_update(&l->progress, i + 1, out->nll / (double)TT_MAXV(out->tokens, 1),
                               (double)NAN);
    }
    return TT_OK;
}

static void print_score(const tt_cli *cli, const score *r)
{
    const double loss = r->nll / (double)r->tokens;
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

static tt_status evaluate(const tt_cli *cli, tt_loaded_model *m, double most, tt_error *err)
{
    const tt_run_opts ro = {.verbose = cli->verbose, .progress = cli->verbose >= 0};
    tt_loop l = {.s = &m->setup, .o = &ro, .main = true, .rank = m->rank};
    const tt_dataloader_vt *vt = m->setup.dataloader.component->vtable;
    score r = {0};
    m->setup.shuffle = false;
    tt_status s = tt_loop_open_data(&l, err);
    int64_t n = s == TT_OK ? vt->n_samples(l.data.loader) : 0;
    if (most > 0)
        n = TT_MIN(n, (int64_t)most);
    m->setup.core.training.steps = n;
    if (s == TT_OK)
        s = tt_loop_open_stream(&l, err);
    if (s == TT_OK && ro.progress) {
        tt_progress_init(&l.progress, "eval", 0, n, false);
        l.has_progress = true;
    }
    if (s == TT_OK)
        s = measure(&l, n, &r, err);
    if (l.has_progress)
        tt_progress_finish(&l.progress);
    tt_loop_close_data(&l);
    if (s == TT_OK && !r.tokens)
        s = TT_FAIL(err, TT_EINVAL, "no token of the data is counted: every label is ignored");
    if (s == TT_OK)
        print_score(cli, &r);
    return s;
}

static tt_status run(tt_cli *cli, tt_error *err)
{
    tt_loaded_model m = {0};
    const char *step, *data = tt_cli_option(cli, "data");
    double most = 0;
    TT_TRY(tt_cli_number(cli, "samples", 1, 9e15, &most, err));
    TT_TRY(tt_cli_find_step(cli, &step, err));
    const tt_override path = {"dataloader.path", data};
    tt_status s = tt_cli_load_job(cli, step, TT_MODE_EVAL, &path, data ? 1 : 0, &m, err);
    if (s == TT_OK)
        s = tt_cli_load_weights(step, &m, err);
    if (s == TT_OK)
        s = evaluate(cli, &m, most, err);
    tt_loaded_model_close(&m);
    return s;
}

static const char *const options[] = {"checkpoint", "data", "samples"};
const tt_command tt_cmd_eval = {
    .name = "eval",
    .usage = "eval --checkpoint DIR [--data PATH] [--samples N] [--json]",
    .doc = "loss, perplexity and bits per byte of a checkpoint on a data set",
    .options = options,
    .n_options = TT_COUNT(options),
    .run = run,
    .words = 0};
