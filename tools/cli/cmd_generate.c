/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/from_checkpoint.h"
#include "cli/texts.h"
#include "launch/signals.h"
#include "setup/tokenizer.h"
#include <string.h>

/* generate: samples texts from a model, several prompts at once; a step computes only new tokens
 * (keys and values are cached). */

typedef struct generation {
    tt_loaded_model model;
    tt_prompts prompts;
    tt_sequence *s;
    size_t n;
    int64_t each; /* texts per prompt */
    tt_generate_opts o;
    tt_texts out;
    int64_t at_once;
    tt_cache cache;
    int32_t own_stop[1]; /* the tokenizer's EOS */
} generation;

static tt_status read_options(const tt_cli *cli, generation *g, tt_error *err)
{
    int64_t seed = 0;
    tt_generate_opts *o = &g->o;
    o->max_new = 128;
    o->sampling = (tt_sampling){.temperature = 0.8, .top_p = 1};
    g->each = 1;
    g->at_once = TT_ENGINE_AT_ONCE;
    TT_TRY(tt_cli_integer(cli, "max-tokens", 1, 1 << 24, &o->max_new, err));
    TT_TRY(tt_cli_number(cli, "temperature", 0, 100, &o->sampling.temperature, err));
    TT_TRY(tt_cli_integer(cli, "top-k", 0, INT32_MAX, &o->sampling.top_k, err));
    TT_TRY(tt_cli_number(cli, "top-p", 0, 1, &o->sampling.top_p, err));
    TT_TRY(tt_cli_integer(cli, "seed", 0, INT64_MAX, &seed, err));
    TT_TRY(tt_cli_integer(cli, "n", 1, 65536, &g->each, err));
    TT_TRY(tt_cli_integer(cli, "batch", 1, TT_ENGINE_AT_ONCE, &g->at_once, err));
    TT_TRY(tt_cli_cache(cli, &g->cache, err));
    o->sampling.seed = (uint64_t)seed;
    return tt_prompts_read(cli, &g->prompts, err);
}

/* Encodes the prompts, and finds the tokens that end a text. */
static tt_status prompts_encode(const tt_cli *cli, generation *g, tt_error *err)
{
    tt_loaded_model *m = &g->model;
    tt_hf_stops stops;
    TT_TRY(tt_cli_stops(m, cli->arena, &stops, err));
    g->o.stop_ids = stops.ids;
    g->o.n_stop_ids = stops.n;
    const bool named = !m->hf || tt_job_has(m->setup.job, "tokenizer.name");
    if (!named && g->prompts.text)
        return TT_FAIL(
            err, TT_EINVAL,
            "%s has no tokenizer that can be read: give prompts as ids (--prompts FILE.jsonl), or "
            "--tokenizer.name",
            m->path);
    if (!g->prompts.text && !(named && m->setup.has_tokenizer))
        return TT_OK;
    TT_TRY(tt_setup_tokenizer(&m->setup, &m->tokenizer, &m->info, err));
    if (!stops.n && m->info.eos >= 0) {
        g->own_stop[0] = m->info.eos;
        g->o.stop_ids = g->own_stop;
        g->o.n_stop_ids = 1;
    }
    const tt_tokenizer_vt *vt = m->setup.tokenizer.component->vtable;
    g->out.decoder = tt_decoder_of(vt, m->tokenizer, &m->info);
    return tt_prompts_encode(&g->prompts, vt, m->tokenizer, &m->info, err);
}

static void make_sequences(const tt_cli *cli, generation *g)
{
    g->n = g->prompts.n * (size_t)g->each;
    g->s = tt_arena_array(cli->arena, g->n, sizeof *g->s);
    for (size_t i = 0; i < g->n; i++) {
        const size_t prompt = i / (size_t)g->each, sample = i % (size_t)g->each;
        const tt_ids *ids = &g->prompts.items[prompt].ids;
        g->s[i] = (tt_sequence){.prompt = ids->ids,
                                .n_prompt = (int64_t)ids->n,
                                .stream = (uint64_t)prompt << 32 | sample};
    }
}

static tt_status load(generation *g, tt_error *err)
{
    int64_t longest = 1;
    for (size_t i = 0; i < g->n; i++)
        longest = TT_MAXV(longest, g->s[i].n_prompt);
    const int64_t slots = TT_MIN(g->at_once, (int64_t)g->n);
    const tt_setup_opts so = {
        .mode = TT_MODE_DECODE,
        .decode = {.rows = TT_MAXV(TT_MIN(longest, TT_ENGINE_PIECE), slots),
                   .slots = slots,
                   .length = longest + g->o.max_new,
                   .cache = g->cache}
    };
    TT_TRY(tt_cli_load_model(&g->model, &so, err));
    const tt_plan *p = g->model.rank.plan;
    const double mib = 1.0 / (1 << 20);
    tt_log(TT_DEBUG, "infer",
           "%lld sequences at once, %lld tokens each; memory: weights %.1f MiB, keys and values "
           "%.1f MiB, work %.1f MiB",
           (long long)TT_MAXV(p->graph->slots, 1), (long long)p->graph->length,
           mib * (double)p->state_bytes_by_kind[TT_STATE_PARAM],
           mib * (double)p->state_bytes_by_kind[TT_STATE_MEMORY],
           mib * (double)p->bytes[TT_SPACE_WORK]);
    if (p->graph->slots)
        tt_log(TT_DEBUG, "infer",
               "kept per token: %.0f bytes of %s; keys and values of heads are %.0f",
               p->graph->kept_bytes,
               p->graph->kept_bytes < p->graph->heads_bytes ? "latent vectors" : "keys and values",
               p->graph->heads_bytes);
    return TT_OK;
}

static double rate(int64_t n, double seconds)
{
    return seconds > 0 ? (double)n / seconds : 0;
}

static tt_status generate(const tt_cli *cli, generation *g, tt_error *err)
{
    const tt_engine_opts eo = {.exec = g->model.rank.exec,
                               .graph = g->model.setup.graph,
                               .pool = g->model.rank.pool,
                               .vocab = g->model.tokenizer ? g->model.info.vocab_size
                                                           : tt_cli_model_vocab(&g->model),
                               .forgets = true,
                               .prompts_first = true};
    g->out.cli = cli;
    g->out.prompts = &g->prompts;
    g->out.s = g->s;
    g->out.n = g->n;
    g->out.each = (size_t)g->each;
    g->o.stop = tt_signals_stop;
    g->o.on_token = tt_texts_token;
    g->o.on_end = tt_texts_end;
    g->o.user = &g->out;
    tt_signals_install();
    TT_TRY(tt_engine_open(&eo, &g->o.engine, err));
    tt_status s = tt_generate(&g->o, g->s, g->n, err);
    const tt_engine_stats stats = tt_engine_count(g->o.engine);
    tt_engine_close(g->o.engine);
    if (s == TT_OK)
        tt_texts_close(&g->out);
    tt_str_free(&g->out.pending);
    if (s == TT_OK)
        tt_log(TT_DEBUG, "infer",
               "prompts: %lld tokens, %.1f tokens/s; new: %lld tokens, %.1f tokens/s",
               (long long)stats.prompt_tokens, rate(stats.prompt_tokens, stats.prompt_seconds),
               (long long)stats.new_tokens, rate(stats.new_tokens, stats.new_seconds));
    if (s == TT_OK && tt_signals_stop())
        s = TT_FAIL(err, TT_ESIGNAL, "stopped by a signal");
    return s;
}

/* A run tells how long its samples were; a longer text leaves what the model has learnt. */
static void tell_length(const generation *g)
{
    const int64_t trained = g->model.setup.core.training.seq_len;
    int64_t longest = 0;
    for (size_t i = 0; i < g->n; i++)
        longest = TT_MAXV(longest, g->s[i].n_prompt + (int64_t)g->s[i].ids.n);
    if (!g->model.hf && longest > trained)
        tt_log(TT_INFO, "infer",
               "the longest text has %lld tokens; the model was trained on samples of %lld",
               (long long)longest, (long long)trained);
}

static tt_status cmd_generate_run(tt_cli *cli, tt_error *err)
{
    generation g = {0};
    tt_status s = read_options(cli, &g, err);
    if (s == TT_OK)
        s = tt_cli_open_model(cli, false, NULL, 0, &g.model, err);
    if (s == TT_OK)
        s = prompts_encode(cli, &g, err);
    if (s == TT_OK) {
        make_sequences(cli, &g);
        s = load(&g, err);
    }
    if (s == TT_OK)
        s = generate(cli, &g, err);
    if (s == TT_OK)
        tell_length(&g);
    for (size_t i = 0; i < g.n; i++)
        tt_ids_free(&g.s[i].ids);
    tt_loaded_model_close(&g.model);
    tt_prompts_free(&g.prompts);
    return s;
}

static const tt_cli_row rows[] = {
    TT_CLI_MODEL,
    TT_CLI_VALUE("prompt", "TEXT", "a newline", "text to continue", .flags = TT_CLI_REPEATED),
    TT_CLI_VALUE("prompts", "FILE", NULL,
                 "more prompts, one per line, or a .jsonl file of {\"prompt\": …} or {\"ids\": …}",
                 .takes = TT_TAKES_FILE),
    TT_CLI_VALUE("n", "N", "1", "number of texts per prompt"),
    TT_CLI_VALUE("batch", "N", "16",
                 "number of texts written at once, at most 16; they do not depend on it"),
    TT_CLI_VALUE("max-tokens", "N", "128", "number of tokens per text, at most"),
    TT_CLI_VALUE("temperature", "T", "0.8",
                 "divides the logits; 0 always takes the most likely token"),
    TT_CLI_VALUE("top-k", "K", "all", "sample from the K most likely tokens"),
    TT_CLI_VALUE("top-p", "P", "1",
                 "sample from the most likely tokens whose probabilities add up to P"),
    TT_CLI_VALUE("seed", "N", "0", "seed of the draws; the same seed writes the same texts"),
    TT_CLI_CACHE,
};
const tt_command tt_cmd_generate = {.name = "generate",
                                    .forms = "[DIR]",
                                    .doc = "write texts with a trained model",
                                    .rows = rows,
                                    .n_rows = TT_COUNT(rows),
                                    .run = cmd_generate_run,
                                    .words = 1};
