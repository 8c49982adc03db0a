/* SPDX-License-Identifier: Apache-2.0 */
#include "train/next.h"
#include <string.h>

static tt_next *next_new(int64_t number, int users, const tt_swap_ask *ask)
{
    tt_arena *a = tt_arena_new();
    tt_next *n = tt_arena_alloc(a, sizeof *n);
    n->arena = a;
    n->number = number;
    n->users = users;
    n->converters = tt_arena_str(a, ask->converters);
    n->reload = tt_arena_str(a, ask->reload);
    n->at = ask->at;
    pthread_mutex_init(&n->lock, NULL);
    return n;
}

/* The n-th swap of every rank is the same. */
tt_next *tt_next_join(tt_loop *l, const tt_swap_ask *ask)
{
    tt_swaps *all = l->swaps;
    const int64_t number = ++l->swap.number;
    pthread_mutex_lock(&all->lock);
    if (!all->newest || all->newest->number != number)
        all->newest = next_new(number, all->ranks, ask);
    tt_next *n = all->newest;
    pthread_mutex_unlock(&all->lock);
    return n;
}

void tt_next_drop(tt_loop *l, tt_next *n)
{
    if (!n)
        return;
    pthread_mutex_lock(&l->swaps->lock);
    const bool last = --n->users == 0;
    if (last && l->swaps->newest == n)
        l->swaps->newest = NULL;
    pthread_mutex_unlock(&l->swaps->lock);
    if (!last)
        return;
    tt_registry *registry = l->swaps->registry_of;
    tt_plugin_version *v = n->version;
    pthread_mutex_destroy(&n->lock);
    tt_arena_free(n->arena);
    if (v)
        tt_registry_release(registry, v);
}

const char *tt_next_list(const tt_setup *s, tt_arena *a)
{
    tt_str job = {0}, list = {0};
    const tt_json *root = NULL;
    tt_job_print(s->job, false, &job);
    if (tt_json_parse(a, "job", tt_str_get(&job), job.n, &root, NULL) == TT_OK &&
        tt_json_get(root, "converters"))
        tt_json_write(tt_json_get(root, "converters"), &list);
    const char *text = list.n ? tt_arena_str(a, tt_str_get(&list)) : "[]";
    tt_str_free(&job);
    tt_str_free(&list);
    return text;
}

/* Until it takes over, other setups still find the old version of a plugin. */
static tt_status make_setup(tt_loop *l, tt_next *n, tt_error *err)
{
    tt_registry *r = l->s->registry;
    if (n->converters || n->reload)
        tt_registry_refresh(r);
    if (n->reload) {
        TT_TRY(tt_registry_reload(r, n->reload, &n->version, err));
        n->file_hash = tt_plugin_version_hash(n->version);
        tt_registry_use(r, n->version, true);
    }
    const tt_status s = tt_setup_again(l->s, n->converters, n->at, n->arena, &n->setup, err);
    if (n->version)
        tt_registry_use(r, n->version, false);
    if (s == TT_OK)
        n->list = tt_next_list(&n->setup, n->arena);
    return s;
}

tt_status tt_next_make(tt_loop *l, tt_next *n, tt_error *err)
{
    pthread_mutex_lock(&n->lock);
    if (!n->made) {
        pthread_mutex_lock(&l->swaps->registry);
        n->status = make_setup(l, n, &n->err);
        pthread_mutex_unlock(&l->swaps->registry);
        n->made = true;
    }
    pthread_mutex_unlock(&n->lock);
    *err = n->err;
    return n->status;
}

void tt_next_taken(tt_loop *l, tt_next *n)
{
    pthread_mutex_lock(&l->swaps->lock);
    tt_plugin_version *v = ++n->takers == l->swaps->ranks ? n->version : NULL;
    if (v)
        n->version = NULL;
    pthread_mutex_unlock(&l->swaps->lock);
    if (v)
        tt_registry_release(l->swaps->registry_of, v);
}
