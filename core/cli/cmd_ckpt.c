/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/cli.h"
#include <string.h>

/* ckpt ls DIR | verify STEP_DIR */

/* The steps of a folder of step folders, or of a run's folder. */
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

static tt_status list(tt_cli *cli, const char *folder, tt_error *err)
{
    int64_t *steps;
    size_t n;
    tt_str o = {0};
    TT_TRY(find_steps(cli, &folder, &steps, &n, err));
    for (size_t i = 0; i < n; i++) {
        tt_trainer_state st;
        const char *at = tt_arena_printf(cli->arena, "%s/step-%lld", folder, (long long)steps[i]);
        if (tt_ckpt_read_state(at, cli->arena, &st, err) != TT_OK) {
            tt_str_free(&o);
            return err->code;
        }
        tt_str_printf(&o, "step-%lld  loss %.5f  %lld tokens  written by %d rank%s\n",
                      (long long)st.step, st.last_loss, (long long)st.tokens_seen, st.world,
                      st.world == 1 ? "" : "s");
    }
    tt_cli_print(&o);
    tt_str_free(&o);
    return TT_OK;
}

static tt_status verify_step(const char *folder, tt_error *err)
{
    tt_str o = {0};
    const tt_status s = tt_ckpt_verify(folder, &o, err);
    if (s == TT_OK && !o.n)
        tt_str_printf(&o, "%s: complete, every hash and box agrees\n", folder);
    tt_cli_print(&o);
    tt_str_free(&o);
    return s;
}

/* One step, or all of a folder; the first that is faulty ends it. */
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

static tt_status run(tt_cli *cli, tt_error *err)
{
    if (cli->n_words == 2 && !strcmp(cli->words[0], "ls"))
        return list(cli, cli->words[1], err);
    if (cli->n_words == 2 && !strcmp(cli->words[0], "verify"))
        return verify(cli, cli->words[1], err);
    return TT_FAIL(err, TT_EINVAL, "usage: ttrun %s", tt_cmd_ckpt.usage);
}

const tt_command tt_cmd_ckpt = {.name = "ckpt",
                                .usage = "ckpt ls FOLDER | verify FOLDER",
                                .doc = "look into checkpoints, check them",
                                .run = run,
                                .words = 2};
