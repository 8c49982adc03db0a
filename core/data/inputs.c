/* SPDX-License-Identifier: Apache-2.0 */
#include "data/data.h"
#include <string.h>

/* The table of inputs that a loader declares. */

static const char *const given[] = {
    "ids", "labels", "pos", "seg", "token_index", TT_INPUT_MEAN_WEIGHTS, TT_INPUT_ROOT_WEIGHTS};

static tt_status check_input(const tt_inputs *t, int i, tt_error *err)
{
    const tt_input_info *x = &t->items[i];
    const char *letters = "abcdefghijklmnopqrstuvwxyz0123456789_";
    if (!x->name || !*x->name || strlen(x->name) > 64 ||
        strspn(x->name, letters) != strlen(x->name))
        return TT_FAIL(err, TT_EABI,
                       "the name of its input %d is not made of at most 64 of a-z, "
                       "0-9 and _",
                       i);
    if (x->dtype != TT_I32 && x->dtype != TT_F32)
        return TT_FAIL(err, TT_EABI, "its input \"%s\" is neither i32 nor f32", x->name);
    for (size_t k = 0; k < TT_COUNT(given); k++)
        if (strcmp(given[k], x->name) == 0)
            return TT_FAIL(err, TT_EABI, "every dataloader has the input \"%s\" already", x->name);
    for (int k = 0; k < i; k++)
        if (strcmp(t->items[k].name, x->name) == 0)
            return TT_FAIL(err, TT_EABI, "it declares the input \"%s\" twice", x->name);
    return TT_OK;
}

tt_status tt_inputs_of(const tt_dataloader_vt *vt, const void *config, tt_inputs *out,
                       tt_error *err)
{
    tt_inputs t = {.n = 0};
    if (TT_HAS(vt, tt_dataloader_vt, inputs) && vt->inputs)
        t.n = vt->inputs(config, t.items);
    if (t.n < 0 || t.n > TT_MAX_INPUTS)
        return TT_FAIL(err, TT_EABI, "it declares %d inputs; at most %d are possible", t.n,
                       TT_MAX_INPUTS);
    for (int i = 0; i < t.n; i++)
        TT_TRY(check_input(&t, i, err));
    t.n_of_loader = t.n;
    *out = t;
    return TT_OK;
}

int tt_inputs_find(const tt_inputs *t, const char *name)
{
    for (int i = 0; t && i < t->n; i++)
        if (strcmp(t->items[i].name, name) == 0)
            return i;
    return -1;
}

tt_status tt_inputs_add_weights(tt_inputs *t, const char *name, tt_error *err)
{
    const bool root = !strcmp(name, TT_INPUT_ROOT_WEIGHTS);
    const int i = tt_inputs_find(t, name);
    if (i >= 0 && t->items[i].dtype == TT_F32)
        return TT_OK;
    if (i >= 0)
        return TT_FAIL(err, TT_EINVAL, "the dataloader's input \"%s\" is %s; loss weights are f32",
                       name, tt_dtype_name(t->items[i].dtype));
    if (!root && strcmp(name, TT_INPUT_MEAN_WEIGHTS) != 0)
        return TT_FAIL(err, TT_EINVAL, "the dataloader has no input \"%s\"", name);
    if (t->n == TT_MAX_INPUTS)
        return TT_FAIL(err, TT_EINVAL, "the dataloader has %d inputs already: no room for \"%s\"",
                       t->n, name);
    t->items[t->n++] =
        (tt_input_info){root ? TT_INPUT_ROOT_WEIGHTS : TT_INPUT_MEAN_WEIGHTS, TT_F32, 0};
    return TT_OK;
}

tt_status tt_inputs_add_reference(tt_inputs *t, const char *name, tt_error *err)
{
    if (tt_inputs_find(t, name) >= 0)
        return TT_FAIL(err, TT_EINVAL,
                       "the dataloader has an input \"%s\" of its own, and the loss lets the core "
                       "compute one of this name",
                       name);
    if (t->n == TT_MAX_INPUTS)
        return TT_FAIL(err, TT_EINVAL, "the dataloader has %d inputs already: no room for \"%s\"",
                       t->n, name);
    t->items[t->n++] = (tt_input_info){name, TT_F32, 0};
    return TT_OK;
}

bool tt_inputs_equal(const tt_inputs *a, const tt_inputs *b)
{
    if (a->n != b->n)
        return false;
    for (int i = 0; i < a->n; i++)
        if (strcmp(a->items[i].name, b->items[i].name) != 0 ||
            a->items[i].dtype != b->items[i].dtype ||
            !a->items[i].per_sample != !b->items[i].per_sample)
            return false;
    return true;
}

void tt_input_print(const tt_input_info *i, char *text, size_t size)
{
    snprintf(text, size, "%s (%s per %s)", i->name, tt_dtype_name(i->dtype),
             i->per_sample ? "sample" : "token");
}
