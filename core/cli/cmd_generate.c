/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include "infer/sample.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* generate: sample from a checkpoint, by recomputing the whole context for every token. */

typedef struct generator {
    tt_cli *cli;
    tt_setup s;
    tt_registry *r;
    tt_rank rank;
    void *tokenizer;
    tt_tokenizer_info info;
    const tt_tokenizer_vt *vt;
    tt_ids ids;
    int64_t max_new;
    tt_sampling sampling;
} generator;

static tt_status number(const tt_cli *cli, const char *name, double min, double max, double *out,
                        tt_error *err)
{
    const char *text = tt_cli_option(cli, name);
    char *end;
    if (!text)
        return TT_OK;
    const double v = strtod(text, &end);
    if (*end || end == text || !(v >= min && v <= max))
        return TT_FAIL(err, TT_EINVAL, "--%s: expected %g to %g, got \"%s\"", name, min, max, text);
    *out = v;
    return TT_OK;
}

/* A step folder, a folder of step folders, or a run's folder. */
static tt_status find_step(tt_cli *cli, const char *path, const char **out, tt_error *err)
{
    int64_t *steps;
    size_t n;
    if (tt_path_exists(tt_path_join(cli->arena, path, "trainer.json"))) {
        *out = path;
        return TT_OK;
    }
    const char *tries[] = {path, tt_path_join(cli->arena, path, "checkpoint")};
    for (size_t i = 0; i < TT_COUNT(tries); i++) {
        if (!tt_path_exists(tries[i]))
            continue;
        TT_TRY(tt_ckpt_list(tries[i], cli->arena, &steps, &n, err));
        if (!n)
            continue;
        *out = tt_arena_printf(cli->arena, "%s/step-%lld", tries[i], (long long)steps[n - 1]);
        return TT_OK;
    }
    return TT_FAIL(err, TT_ENOTFOUND,
                   "--checkpoint: no checkpoint in %s (a step-N folder, or a run's folder)", path);
}

static int32_t token_input(const generator *g, const char *input, int64_t i)
{
    if (!strcmp(input, "ids"))
        return i < (int64_t)g->ids.n ? g->ids.ids[i] : 0;
    if (!strcmp(input, "pos"))
        return (int32_t)i;
    return 0;
}

static tt_status fill(void *user, const char *input, int micro, int64_t begin, int64_t end,
                      int32_t *dst, tt_error *err)
{
    (void)micro;
    (void)err;
    for (int64_t i = begin; i < end; i++)
        dst[i - begin] = token_input(user, input, i);
    return TT_OK;
}

static void emit(const generator *g, int32_t id, tt_str *out)
{
    char piece[256];
    const size_t n = g->vt->decode(g->tokenizer, id, piece, sizeof piece);
    tt_str_addn(out, piece, TT_MIN(n, sizeof piece));
}

static tt_status generate(generator *g, tt_error *err)
{
    tt_tensor logits;
    const int64_t prompt = (int64_t)g->ids.n, total = prompt + g->max_new;
    TT_TRY(tt_exec_state_tensor(g->rank.exec, TT_METRIC_LOGITS, &logits, err));
    for (int64_t t = prompt; t < total; t++) {
        TT_TRY(tt_exec_micro_batches(g->rank.exec, t, fill, g, err));
        const float *row = (const float *)logits.data + (t - 1) * logits.shape[1];
        const int32_t id = tt_sample_token(
            &g->sampling, row, TT_MIN(logits.shape[1], g->info.vocab_size), (uint64_t)t);
        if (id == g->info.eos)
            break;
        TT_TRY(tt_ids_push(&g->ids, id, err));
        tt_str piece = {0};
        emit(g, id, &piece);
        tt_cli_print(&piece);
        tt_str_free(&piece);
    }
    const tt_str newline = {(char *)(uintptr_t) "\n", 1, 0};
    tt_cli_print(&newline);
    return TT_OK;
}

static tt_status open_model(generator *g, const char *step, tt_error *err)
{
    tt_cli *cli = g->cli;
    tt_trainer_state st;
    tt_job *job;
    TT_TRY(tt_ckpt_read_state(step, cli->arena, &st, err));
    const char *prompt = tt_cli_option(cli, "prompt") ? tt_cli_option(cli, "prompt") : "\n";
    const int64_t room = (int64_t)strlen(prompt) + 2 + g->max_new;
    const tt_override over[] = {
        {"training.seq_len", tt_arena_printf(cli->arena, "%lld", (long long)room)},
        {"training.local_batch_size",  "1"                           },
        {"training.global_batch_size",              "-1"            },
        {"parallelism.data_parallel_replicate_degree", "1"              },
        {"parallelism.data_parallel_shard_degree",               "1"                          },
        {"parallelism.tensor_parallel_degree", "1"},
        {"parallelism.context_parallel_degree",               "1"                                        },
        {"parallelism.pipeline_parallel_degree", "1"},
        {"validation.enable",               "false"                                                      },
    };
    tt_override *all = tt_arena_array(cli->arena, TT_COUNT(over) + cli->n_overrides, sizeof *all);
    memcpy(all, over, sizeof over);
    if (cli->n_overrides)
        memcpy(all + TT_COUNT(over), cli->overrides, cli->n_overrides * sizeof *all);
    TT_TRY(tt_job_load_text(cli->arena, tt_arena_printf(cli->arena, "%s/trainer.json", step),
                            st.job_json, strlen(st.job_json), all,
                            TT_COUNT(over) + cli->n_overrides, &job, err));
    TT_TRY(tt_cli_registry(cli, &g->r, err));
    const tt_setup_opts so = {
        .spec = cli->spec, .mode = TT_MODE_LOGITS, .compile = true, .data = true};
    TT_TRY(tt_setup_make(&so, g->r, job, cli->arena, &g->s, err));
    g->vt = g->s.tokenizer.component->vtable;
    TT_TRY(tt_setup_tokenizer(&g->s, &g->tokenizer, &g->info, err));
    if (g->info.bos >= 0)
        TT_TRY(tt_ids_push(&g->ids, g->info.bos, err));
    TT_TRY(g->vt->encode(g->tokenizer, prompt, strlen(prompt), &g->ids, err));
    const tt_dist alone = {.world = 1};
    TT_TRY(tt_rank_open(&g->s, &alone, false, &g->rank, err));
    TT_TRY(tt_rank_load(&g->rank, step, false, err));
    tt_str text = {0};
    tt_str_add(&text, prompt);
    tt_cli_print(&text);
    tt_str_free(&text);
    return TT_OK;
}

static tt_status run(tt_cli *cli, tt_error *err)
{
    generator g = {
        .cli = cli, .max_new = 128, .sampling = {.temperature = 0.8, .top_p = 1}
    };
    const char *path = tt_cli_option(cli, "checkpoint"), *step = NULL;
    double tokens = 128, k = 0, seed = 0;
    if (!path)
        return TT_FAIL(err, TT_EINVAL, "--checkpoint is missing; usage: ttrun %s",
                       tt_cmd_generate.usage);
    TT_TRY(number(cli, "max-tokens", 1, 65536, &tokens, err));
    TT_TRY(number(cli, "temperature", 0, 100, &g.sampling.temperature, err));
    TT_TRY(number(cli, "top-k", 0, 1e9, &k, err));
    TT_TRY(number(cli, "top-p", 0, 1, &g.sampling.top_p, err));
    TT_TRY(number(cli, "seed", 0, 9e15, &seed, err));
    g.max_new = (int64_t)tokens;
    g.sampling.top_k = (int64_t)k;
    g.sampling.seed = (uint64_t)seed;
    TT_TRY(find_step(cli, path, &step, err));
    tt_status st = open_model(&g, step, err);
    if (st == TT_OK)
        st = generate(&g, err);
    tt_rank_close(&g.rank);
    if (g.tokenizer)
        g.vt->close(g.tokenizer);
    tt_ids_free(&g.ids);
    tt_registry_free(g.r);
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
