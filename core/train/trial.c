/* SPDX-License-Identifier: Apache-2.0 */
#include "base/thread.h"
#include "train/loop.h"
#include <string.h>

/* The running job with other converters, as JSON. */
static tt_status trial_job(const tt_loop *l, const char *list, tt_arena *a, tt_str *out,
                           tt_error *err)
{
    const tt_json *root = NULL, *converters = NULL;
    tt_str job = {0};
    tt_job_print(l->s->job, false, &job);
    tt_status s = tt_json_parse(a, "the list", list, strlen(list), &converters, err);
    if (s == TT_OK)
        s = tt_json_parse(a, "the running job", tt_str_get(&job), job.n, &root, err);
    tt_str_add(out, "{\"converters\":");
    if (s == TT_OK)
        tt_json_write(converters, out);
    for (size_t i = 0; s == TT_OK && i < root->n; i++) {
        if (!strcmp(root->keys[i], "converters"))
            continue;
        tt_str_addc(out, ',');
        tt_str_json(out, root->keys[i]);
        tt_str_addc(out, ':');
        tt_json_write(root->items[i], out);
    }
    tt_str_addc(out, '}');
    tt_str_free(&job);
    return s;
}

static void *trial_main(void *arg)
{
    tt_loop *l = arg;
    tt_trial *t = &l->trial;
    t->status = l->o->try_job(l->o->try_user, tt_str_get(&t->job), &t->cancel, &t->err);
    atomic_store(&t->done, true);
    return NULL;
}

static uint64_t hash_of_text(const char *text)
{
    return tt_hash64(text, strlen(text), 0);
}

static bool was_tried(const tt_trial *t, const char *text)
{
    for (int i = 0; i < t->n_tried && i < TT_TRIALS_KEPT; i++)
        if (t->tried[i] == hash_of_text(text))
            return true;
    return false;
}

bool tt_trial_begin(tt_loop *l, const tt_ctl_command *c)
{
    tt_trial *t = &l->trial;
    if (!l->o->try_job || (c->kind == TT_CTL_SET && was_tried(t, c->list)))
        return false;
    tt_arena *a = tt_arena_new();
    const char *list = c->kind == TT_CTL_RELOAD  ? l->swap.list
                       : !strcmp(c->list, "job") ? l->swap.of_job
                                                 : c->list;
    t->command = *c;
    t->err = (tt_error){0};
    atomic_store(&t->cancel, false);
    t->status = trial_job(l, list, a, &t->job, &t->err);
    atomic_store(&t->done, t->status != TT_OK);
    tt_arena_free(a);
    if (t->status != TT_OK)
        return true;
    t->has_thread = tt_thread_start(&t->thread, trial_main, l) == 0;
    if (!t->has_thread)
        trial_main(l); /* the loop waits for it */
    return true;
}

bool tt_trial_runs(const tt_loop *l)
{
    return l->trial.command.kind != TT_CTL_NONE;
}

bool tt_trial_take(tt_loop *l, tt_ctl_command *c, tt_status *status, tt_error *why)
{
    tt_trial *t = &l->trial;
    if (t->command.kind == TT_CTL_NONE || !atomic_load(&t->done))
        return false;
    *c = t->command;
    tt_trial_close(l);
    *status = t->status;
    *why = t->err;
    if (c->kind == TT_CTL_RELOAD)
        t->n_tried = 0;
    else if (t->status == TT_OK)
        t->tried[t->n_tried++ % TT_TRIALS_KEPT] = hash_of_text(c->list);
    return true;
}

void tt_trial_close(tt_loop *l)
{
    tt_trial *t = &l->trial;
    atomic_store(&t->cancel, true);
    if (t->has_thread)
        pthread_join(t->thread, NULL);
    t->has_thread = false;
    t->command.kind = TT_CTL_NONE;
    tt_str_free(&t->job);
}
