/* SPDX-License-Identifier: Apache-2.0 */
#include "config_test.h"

/* The JSON schema: its shape, and that it agrees with the option tables. */

/* The last argument: further designators. */
#define ROW(key, type_, default_, ...)                                                             \
    {                                                                                              \
        .name = key, .type = TT_OPT_##type_, .default_json = default_, __VA_ARGS__                 \
    }

static const tt_option rate[] = {
    ROW("lr", FLOAT, "8e-4", .doc = "rate \"r\"", .max = 1e300),
    ROW("name", STRING, NULL, .flags = 0),
};
static const tt_option width[] = {
    ROW("dim", INT, "256", .min = 1, .max = 9, .aliases = "d|width"),
    ROW("names", STRINGS, "[]", .flags = 0),
    ROW("any", JSON, NULL, .flags = 0),
    ROW("maybe", INT, NULL, .flags = TT_OPT_NULLABLE),
};

static const tt_json *schema(void **state)
{
    tt_section_doc docs[64];
    size_t n;
    tt_str text = {0};
    tt_error err = {0};
    const tt_json *v = NULL;
    const tt_section_doc *core = tt_core_config_docs(&n);
    memcpy(docs, core, n * sizeof *core);
    docs[n++] = (tt_section_doc){"optimizer", "adamw", "AdamW", rate, 2, sizeof *rate, NULL};
    docs[n++] = (tt_section_doc){"optimizer", "sgd", "SGD", rate, 1, sizeof *rate, NULL};
    docs[n++] = (tt_section_doc){"model.args", "llama3", "Llama", width, 4, sizeof *width, NULL};
    docs[n++] = (tt_section_doc){"hooks[]", "print", "says so", rate, 1, sizeof *rate, NULL};
    tt_schema_print(docs, n, &text);
    if (tt_json_parse(*state, "schema", text.s, text.n, &v, &err) != TT_OK)
        fail_msg("%s", err.text);
    tt_str_free(&text);
    return v;
}

/* Follows "a.b.0.c". */
static const tt_json *at(const tt_json *v, const char *path)
{
    char part[64];
    for (const char *p = path; v && *p;) {
        size_t n = strcspn(p, "/");
        memcpy(part, p, n);
        part[n] = '\0';
        v = v->type == TT_JSON_ARRAY ? v->items[part[0] - '0'] : tt_json_get(v, part);
        p += n + (p[n] == '/');
    }
    if (!v)
        fail_msg("schema has no %s", path);
    return v;
}

static void equals(const tt_json *schema_, const char *path, const char *text)
{
    tt_str out = {0};
    tt_json_write(at(schema_, path), &out);
    assert_string_equal(out.s, text);
    tt_str_free(&out);
}

static void test_schema_agrees_with_the_tables(void **state)
{
    const tt_json *s = schema(state);
    equals(s, "$schema", "\"https://json-schema.org/draft/2020-12/schema\"");
    equals(s, "additionalProperties", "false");
    equals(s, "properties/spec/default", "\"llama3\"");
    equals(s, "properties/training/additionalProperties", "false");
    equals(s, "properties/training/properties/steps/type", "[\"integer\",\"null\"]");
    equals(s, "properties/training/properties/steps/minimum", "0");
    equals(s, "properties/training/properties/max_norm/type", "\"number\"");
    equals(s, "properties/training/properties/max_context_length/deprecated", "true");
    equals(s, "properties/activation_checkpoint/properties/mode/enum",
           "[\"none\",\"selective\",\"full\",\"budget\"]");
    equals(s, "properties/parallelism/properties/expert_parallel_degree/maximum", "1000000");
    equals(s, "properties/checkpoint/properties/initial_load_path/type", "[\"string\",\"null\"]");
    equals(s, "properties/validator/$ref", "\"#/properties/validation\"");
    equals(s, "properties/extends/type", "\"string\"");
    equals(s, "properties/model/properties/args/anyOf/0/properties/dim/maximum", "9");
    equals(s, "properties/model/properties/args/anyOf/0/properties/width/maximum", "9");
    equals(s, "properties/model/properties/args/anyOf/0/properties/names/type",
           "[\"string\",\"array\"]");
    equals(s, "properties/model/properties/args/anyOf/0/properties/any", "{}");
    equals(s, "properties/model/properties/args/anyOf/0/properties/maybe/type",
           "[\"integer\",\"null\"]");
    equals(s, "properties/optimizer/anyOf/0/properties/name/enum",
           "[\"adamw\",\"AdamW\",\"adamw_torch\",\"adamw_torch_fused\"]");
    equals(s, "properties/optimizer/anyOf/1/properties/name/enum", "[\"sgd\",\"SGD\"]");
    equals(s, "properties/optimizer/anyOf/0/properties/lr/description", "\"rate \\\"r\\\"\"");
    equals(s, "properties/optimizer/anyOf/0/properties/param_groups/default", "[]");
    equals(s, "properties/validation/properties/dataloader/$ref", "\"#/properties/dataloader\"");
    equals(s, "properties/metrics/properties/sinks/type", "\"array\"");
    equals(s, "properties/converters/items/properties/filter/default", "[]");
    equals(s, "properties/hooks/type", "\"array\"");
    equals(s, "properties/hooks/items/anyOf/0/properties/name/const", "\"print\"");
}

static void test_schema_has_every_row(void **state)
{
    const tt_json *s = schema(state);
    size_t n;
    const tt_section_doc *docs = tt_core_config_docs(&n);
    for (size_t d = 0; d < n; d++)
        for (size_t i = 0; i < docs[d].n_options; i++) {
            const char *key = docs[d].key, *name = docs[d].options[i].name;
            if (strcmp(key, "optimizer") == 0 || strcmp(key, "hooks[]") == 0)
                continue; /* in each of its components, above */
            tt_str path = {0};
            for (const char *p = key; *p;) { /* "a.b[]" is in properties/a/properties/b/items */
                const size_t k = strcspn(p, ".[");
                tt_str_printf(&path, "properties/%.*s%s/", (int)k, p, p[k] == '[' ? "/items" : "");
                p += k + (p[k] == '[' ? 2 : 0);
                p += *p == '.';
            }
            tt_str_printf(&path, "properties/%s", name);
            at(s, path.s);
            tt_str_free(&path);
        }
}

static void test_schema_of_a_broken_table_names_the_fault(void **state)
{
    static const tt_option bad = {.name = "a", .type = TT_OPT_INT, .default_json = "x"};
    const tt_section_doc doc = {"s", NULL, "", &bad, 1, sizeof bad, NULL};
    tt_str out = {0};
    (void)state;
    tt_schema_print(&doc, 1, &out);
    assert_non_null(strstr(out.s, "schema:1:"));
    tt_str_free(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        CONFIG_TEST(test_schema_agrees_with_the_tables),
        CONFIG_TEST(test_schema_has_every_row),
        CONFIG_TEST(test_schema_of_a_broken_table_names_the_fault),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
