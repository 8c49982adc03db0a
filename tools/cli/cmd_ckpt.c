/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/ckpt_convert.h"
#include "cli/from_checkpoint.h"
#include <math.h>
#include <string.h>

/* ckpt ls | verify | diff | reshard | import | export */

/* Lists the steps of a folder of step folders or of a run folder. */
static tt_status find_steps(tt_cli *cli, const char **folder, int64_t **steps, size_t *n,
                            tt_error *err)
{
    const char *below = tt_path_join(cli->arena, *folder, "checkpoint");
    if (!tt_path_exists(*folder))
        return TT_FAIL(err, TT_ENOTFOUND, "%s: no such folder", *folder);
    TT_TRY(tt_ckpt_list(*folder, cli->arena, steps, n, err));
    if (*n || !tt_path_exists(below))
        return TT_OK;
    *folder = below;
    return tt_ckpt_list(below, cli->arena, steps, n, err);
}

/* prefix: of a run that was set aside, "before-1/" */
static tt_status list_steps(tt_cli *cli, const char *folder, const char *prefix, tt_str *out,
                            tt_error *err)
{
    int64_t *steps;
    size_t n;
    TT_TRY(find_steps(cli, &folder, &steps, &n, err));
    for (size_t i = 0; i < n; i++) {
        tt_trainer_state st;
        const char *at = tt_arena_printf(cli->arena, "%s/step-%lld", folder, (long long)steps[i]);
        TT_TRY(tt_ckpt_read_state(at, cli->arena, &st, err));
        const char *loss = isnan(st.last_loss)
                               ? "no loss yet"
                               : tt_arena_printf(cli->arena, "loss %.5f", st.last_loss);
        tt_str_printf(out, "%sstep-%lld  %s  %lld tokens  written by %d rank%s", prefix,
                      (long long)steps[i], loss, (long long)st.tokens_seen, st.world,
                      st.world == 1 ? "" : "s");
        if (st.step != steps[i])
            tt_str_printf(out, "  (trainer.json says step %lld)", (long long)st.step);
        tt_str_addc(out, '\n');
    }
    return TT_OK;
}

/* Lists the steps of the runs that were set aside, then those of the run: the last line is the newest
 * step. */
static tt_status list(tt_cli *cli, const char *folder, tt_error *err)
{
    tt_str o = {0};
    const char **names = NULL;
    size_t n = 0;
    tt_status s = TT_OK;
    if (tt_path_exists(folder))
        s = tt_folder_names(cli->arena, folder, NULL, &names, &n, err);
    for (size_t i = 0; s == TT_OK && i < n; i++)
        if (!strncmp(names[i], "before-", 7) && names[i][7] >= '1' && names[i][7] <= '9')
            s = list_steps(cli, tt_path_join(cli->arena, folder, names[i]),
                           tt_arena_printf(cli->arena, "%s/", names[i]), &o, err);
    if (s == TT_OK)
        s = list_steps(cli, folder, "", &o, err);
    if (s == TT_OK)
        tt_cli_print(&o);
    tt_str_free(&o);
    return s;
}

static tt_status verify_step(const char *folder, tt_error *err)
{
    tt_str o = {0};
    const tt_status s = tt_ckpt_verify(folder, &o, err);
    if (s == TT_OK && !o.n)
        tt_str_printf(&o, "%s: complete, all hashes and boxes agree\n", folder);
    tt_cli_print(&o);
    tt_str_free(&o);
    return s;
}

/* Verifies one step or all steps of a folder; stops at the first faulty one. */
static tt_status verify(tt_cli *cli, const char *folder, tt_error *err)
{
    int64_t *steps;
    size_t n = 0;
    if (!tt_path_exists(tt_path_join(cli->arena, folder, "trainer.json")))
        TT_TRY(find_steps(cli, &folder, &steps, &n, err));
    if (!n)
        return verify_step(folder, err);
    for (size_t i = 0; i < n; i++)
        TT_TRY(verify_step(tt_arena_printf(cli->arena, "%s/step-%lld", folder, (long long)steps[i]),
                           err));
    return TT_OK;
}

tt_status tt_ckpt_step_of(tt_cli *cli, const char *folder, const char **out, tt_error *err)
{
    int64_t *steps;
    size_t n = 0;
    *out = folder;
    if (tt_path_exists(tt_path_join(cli->arena, folder, "trainer.json")))
        return TT_OK;
    TT_TRY(find_steps(cli, &folder, &steps, &n, err));
    if (!n && tt_hf_is_folder(folder))
        return TT_FAIL(
            err, TT_EINVAL,
            "%s: a Hugging Face folder; make a checkpoint of it first: ttrun ckpt import "
            "--from hf %s OUT",
            folder, folder);
    if (!n)
        return TT_FAIL(err, TT_ENOTFOUND,
                       "%s: no checkpoint in it (a step-N folder, or a run's folder)", folder);
    *out = tt_arena_printf(cli->arena, "%s/step-%lld", folder, (long long)steps[n - 1]);
    return TT_OK;
}

/* If there is no step-N folder, any folder of safetensors files will do. */
static const char *comparable(tt_cli *cli, const char *folder)
{
    tt_error none = {0};
    const char *step = NULL;
    return tt_ckpt_step_of(cli, folder, &step, &none) == TT_OK ? step : folder;
}

static tt_status diff(tt_cli *cli, const char *a, const char *b, tt_error *err)
{
    tt_str o = {0};
    size_t n = 0, n_differ = 0;
    tt_status s = tt_ckpt_diff(comparable(cli, a), comparable(cli, b), &o, &n, &n_differ, err);
    if (s == TT_OK && n_differ)
        s = TT_FAIL(err, TT_EINVAL, "%zu of %zu tensors differ", n_differ, n);
    else if (s == TT_OK)
        tt_str_printf(&o, "%zu tensors, all equal\n", n);
    tt_cli_print(&o);
    tt_str_free(&o);
    return s;
}

static tt_status reshard(tt_cli *cli, const char *folder, const char *out, tt_error *err)
{
    const char *step = NULL;
    double files = 1;
    TT_TRY(tt_cli_number(cli, "files", 1, 99999, &files, err));
    TT_TRY(tt_ckpt_step_of(cli, folder, &step, err));
    return tt_ckpt_reshard(step, out, (int)files, err);
}

static tt_status cmd_ckpt_run(tt_cli *cli, tt_error *err)
{
    static const struct {
        const char *name;
        tt_status (*one)(tt_cli *cli, const char *folder, tt_error *err);
        tt_status (*two)(tt_cli *cli, const char *folder, const char *out, tt_error *err);
    } commands[] = {
        {"ls",      list,   NULL          },
        {"verify",  verify, NULL          },
        {"diff",    NULL,   diff          },
        {"reshard", NULL,   reshard       },
        {"import",  NULL,   tt_ckpt_import},
        {"export",  NULL,   tt_ckpt_export}
    };
    for (size_t i = 0; i < TT_COUNT(commands) && cli->n_words; i++) {
        if (strcmp(cli->words[0], commands[i].name) != 0)
            continue;
        if (commands[i].one && cli->n_words == 2)
            return commands[i].one(cli, cli->words[1], err);
        const bool with_job = commands[i].two == tt_ckpt_import && cli->n_words == 4;
        if (commands[i].two && (cli->n_words == 3 || with_job))
            return commands[i].two(cli, cli->words[1], cli->words[2], err);
    }
    return tt_cli_wrong_words(cli, &tt_cmd_ckpt, err);
}

static const tt_cli_row rows[] = {
    TT_CLI_VALUE("from", "hf|meta|torchtitan|dcp", NULL,
                 "whose files DIR has; the man page describes each", .verb = "import",
                 .flags = TT_CLI_REQUIRED),
    TT_CLI_VALUE("to", "hf|gguf|dcp|torchtitan", NULL,
                 "for from_pretrained, for llama.cpp, or for dcp.load with our names or theirs",
                 .verb = "export", .flags = TT_CLI_REQUIRED),
    TT_CLI_VALUE("type", "f32|f16|bf16|fp8|fp8_row|nvfp4|q8_0", "the source's, else f32",
                 "dtype; fp8, fp8_row, nvfp4: HF, q8_0: GGUF", .verb = "export"),
    TT_CLI_FLAG("adapter",
                "the adapters of a LoRA run alone, as PEFT writes them; without it they are merged",
                .verb = "export"),
    TT_CLI_VALUE("files", "N", "1", "number of files that the checkpoint is written to",
                 .verb = "reshard"),
};
const tt_command tt_cmd_ckpt = {
    .name = "ckpt",
    .forms = "ls FOLDER\nverify FOLDER\ndiff FOLDER FOLDER\n"
             "reshard FOLDER OUT\nimport DIR OUT [JOB.json]\nexport FOLDER OUT",
    .doc = "list, verify, compare and convert checkpoints",
    .rows = rows,
    .n_rows = TT_COUNT(rows),
    .run = cmd_ckpt_run,
    .words = 4};
