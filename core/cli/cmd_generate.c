/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/from_checkpoint.h"
#include "infer/sample.h"
#include <string.h>

/* generate: sample from a checkpoint, by recomputing the whole context for every token. */

typedef struct generator {
    tt_loaded_model model;
    const tt_tokenizer_vt *vt;
    tt_ids ids;
    int64_t max_new;
    tt_sampling sampling;
} generator;

/* The context so far; what lies behind it is not seen by it. */
static tt_status fill(void *user, const char *input, int micro, int64_t begin, int64_t end,
                      int32_t *dst, tt_error *err)
{
    const generator *g = user;
    (void)micro;
    (void)err;
    for (int64_t i = begin; i < end; i++)
        dst[i - begin] = !strcmp(input, "ids")   ? i < (int64_t)g->ids.n ? g->ids.ids[i] : 0
                         : !strcmp(input, "pos") ? (int32_t)i
                                                 : 0;
    return TT_OK;
}

static void print_id(const generator *g, int32_t id)
{
    char piece[256];
    tt_str out = {0};
    const size_t n = g->vt->decode(g->model.tokenizer, id, piece, sizeof piece);
    tt_str_addn(&out, piece, TT_MIN(n, sizeof piece));
    tt_cli_print(&out);
    tt_str_free(&out);
}

static tt_status generate(generator *g, tt_error *err)
{
    tt_tensor logits;
    tt_exec *x = g->model.rank.exec;
    const int64_t prompt = (int64_t)g->ids.n, total = prompt + g->max_new;
    TT_TRY(tt_exec_state_tensor(x, TT_METRIC_LOGITS, &logits, err));
    const int64_t vocab = TT_MIN(logits.shape[1], g->model.info.vocab_size);
    for (int64_t t = prompt; t < total; t++) {
        TT_TRY(tt_exec_micro_batches(x, t, fill, g, err));
        const float *row = (const float *)logits.data + (t - 1) * logits.shape[1];
        const int32_t id = tt_sample_token(&g->sampling, row, vocab, (uint64_t)t);
        if (id == g->model.info.eos)
            break;
        TT_TRY(tt_ids_push(&g->ids, id, err));
        print_id(g, id);
    }
    tt_str newline = {0};
    tt_str_addc(&newline, '\n');
    tt_cli_print(&newline);
    tt_str_free(&newline);
    return TT_OK;
}

static tt_status open_model(generator *g, const tt_cli *cli, tt_error *err)
{
    const char *step, *prompt = tt_cli_option(cli, "prompt") ? tt_cli_option(cli, "prompt") : "\n";
    TT_TRY(tt_cli_find_step(cli, &step, err));
    const int64_t room = (int64_t)strlen(prompt) + 2 + g->max_new; /* a token is a byte at least */
    const tt_override length = {"training.seq_len",
                                tt_arena_printf(cli->arena, "%lld", (long long)room)};
    TT_TRY(tt_cli_load_job(cli, step, TT_MODE_LOGITS, &length, 1, &g->model, err));
    g->vt = g->model.setup.tokenizer.component->vtable;
    TT_TRY(tt_setup_tokenizer(&g->model.setup, &g->model.tokenizer, &g->model.info, err));
    if (g->model.info.bos >= 0)
        TT_TRY(tt_ids_push(&g->ids, g->model.info.bos, err));
    TT_TRY(g->vt->encode(g->model.tokenizer, prompt, strlen(prompt), &g->ids, err));
    TT_TRY(tt_cli_load_weights(step, &g->model, err));
    tt_str text = {0};
    tt_str_add(&text, prompt);
    tt_cli_print(&text);
    tt_str_free(&text);
    return TT_OK;
}

static tt_status run(tt_cli *cli, tt_error *err)
{
    generator g = {
        .sampling = {.temperature = 0.8, .top_p = 1}
    };
    double tokens = 128, k = 0, seed = 0;
    TT_TRY(tt_cli_number(cli, "max-tokens", 1, 65536, &tokens, err));
    TT_TRY(tt_cli_number(cli, "temperature", 0, 100, &g.sampling.temperature, err));
    TT_TRY(tt_cli_number(cli, "top-k", 0, 1e9, &k, err));
    TT_TRY(tt_cli_number(cli, "top-p", 0, 1, &g.sampling.top_p, err));
    TT_TRY(tt_cli_number(cli, "seed", 0, 9e15, &seed, err));
    g.max_new = (int64_t)tokens;
    g.sampling.top_k = (int64_t)k;
    g.sampling.seed = (uint64_t)seed;
    tt_status st = open_model(&g, cli, err);
    if (st == TT_OK)
        st = generate(&g, err);
    tt_loaded_model_close(&g.model);
    tt_ids_free(&g.ids);
    return st;
}

static const char *const options[] = {"checkpoint", "prompt", "max-tokens", "temperature",
                                      "top-k",      "top-p",  "seed"};
const tt_command tt_cmd_generate = {
    .name = "generate",
    .usage = "generate --checkpoint DIR [--prompt TEXT] [--max-tokens N] [--temperature T]",
    .doc = "sample text from a trained model",
    .options = options,
    .n_options = TT_COUNT(options),
    .run = run,
    .words = 0};
