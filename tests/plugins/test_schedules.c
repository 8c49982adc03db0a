/* SPDX-License-Identifier: Apache-2.0 */
#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* The schedules beside those of transformers and PyTorch: tests/golden/schedules.json, which
 * schedules_golden.py writes. Their last steps are past the end of the run. */

#include "../../plugins/lr_schedulers/decays.c"

static const tt_component *component_of(const char *name)
{
    for (size_t i = 0; i < TT_COUNT(components); i++)
        if (strcmp(components[i].name, name) == 0)
            return &components[i];
    fail_msg("no schedule %s", name);
    return NULL;
}

/* The option's value in the case, or its default. */
static void set_option(void *config, const tt_option *o, const json_t *given)
{
    char *to = (char *)config + o->offset;
    const json_t *v = json_object_get(given, o->name);
    const double x = v                                      ? json_number_value(v)
                     : strcmp(o->default_json, "null") == 0 ? (double)NAN
                                                            : strtod(o->default_json, NULL);
    if (o->type == TT_OPT_INT)
        *(int64_t *)(void *)to = (int64_t)x;
    else if (o->type == TT_OPT_FLOAT)
        *(double *)(void *)to = x;
    else
        *(bool *)to = v ? json_is_true(v) : strcmp(o->default_json, "true") == 0;
}

static void test_factors_are_those_of_transformers_and_torch(void **state)
{
    json_t *root = json_load_file("tests/golden/schedules.json", 0, NULL), *c;
    size_t i, step;
    (void)state;
    assert_non_null(root);
    json_array_foreach(json_object_get(root, "cases"), i, c)
    {
        const char *name = json_string_value(json_object_get(c, "name"));
        const tt_component *k = component_of(name);
        const tt_lr_scheduler_vt *schedule = k->vtable;
        const int64_t total = json_integer_value(json_object_get(c, "total"));
        max_align_t config[16];
        json_t *want;
        assert_true(k->config_size <= sizeof config);
        for (size_t o = 0; o < k->n_options; o++)
            set_option(config, &k->options[o], json_object_get(c, "options"));
        json_array_foreach(json_object_get(c, "factors"), step, want)
        {
            const double got = schedule->factor(config, (int64_t)step, total);
            if (!(fabs(got - json_number_value(want)) < 1e-9))
                fail_msg("case %zu, %s: step %zu of %lld: %.17g, not %.17g", i, name, step,
                         (long long)total, got, json_number_value(want));
        }
    }
    assert_true(i > 30);
    json_decref(root);
}

static void test_a_warmup_may_be_a_part_of_the_run(void **state)
{
    const polynomial_config c = {
        .warmup_ratio = 0.25, .power = 1, .min_lr_factor = 0, .warmup_steps = 7};
    (void)state;
    assert_true(fabs(polynomial_factor(&c, 0, 10) - 1.0 / 3) < 1e-15); /* ceil(2.5) steps */
    assert_true(fabs(polynomial_factor(&c, 2, 10) - 1) < 1e-15);
    assert_true(fabs(polynomial_factor(&c, 3, 10) - 1) < 1e-15);
    assert_true(fabs(polynomial_factor(&c, 10, 10)) < 1e-15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_factors_are_those_of_transformers_and_torch),
        cmocka_unit_test(test_a_warmup_may_be_a_part_of_the_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
