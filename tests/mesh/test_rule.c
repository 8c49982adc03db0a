/* SPDX-License-Identifier: Apache-2.0 */
#include "golden.h"
#include <ttrun/op.h>

static void assert_letters(const tt_rule *r, const int8_t *letters, int n, const json_t *want,
                           const char *rule)
{
    assert_int_equal(n, json_array_size(want));
    for (int i = 0; i < n; i++)
        if (strcmp(r->name[letters[i]], text_at(want, (size_t)i)) != 0)
            fail_msg("%s: letter %s, the specification says %s", rule, r->name[letters[i]],
                     text_at(want, (size_t)i));
}

static int read_ranks(const json_t *list, int *ranks)
{
    for (size_t i = 0; i < json_array_size(list); i++)
        ranks[i] = (int)json_integer_value(json_array_get(list, i));
    return (int)json_array_size(list);
}

static void check_rule(const json_t *v)
{
    const char *text = json_string_value(get(v, "rule"));
    int in_ranks[TT_MAX_INS], out_ranks[TT_MAX_OUTS];
    int n_in = read_ranks(get(v, "in_ranks"), in_ranks);
    int n_out = read_ranks(get(v, "out_ranks"), out_ranks);
    tt_rule r;
    tt_error err;
    if (tt_rule_parse(text, in_ranks, n_in, out_ranks, n_out, &r, &err) != TT_OK)
        fail_msg("%s", err.text);
    assert_int_equal(r.n_in, n_in);
    assert_int_equal(r.n_out, n_out);
    for (int i = 0; i < n_in; i++)
        assert_letters(&r, r.in[i], r.n_in_dims[i], json_array_get(get(v, "in"), (size_t)i), text);
    for (int i = 0; i < n_out; i++)
        assert_letters(&r, r.out[i], r.n_out_dims[i], json_array_get(get(v, "out"), (size_t)i),
                       text);
    const json_t *whole = get(v, "whole");
    size_t n_whole = 0;
    for (int i = 0; i < r.n_letters; i++) {
        bool want = false;
        for (size_t k = 0; k < json_array_size(whole); k++)
            want |= strcmp(text_at(whole, k), r.name[i]) == 0;
        assert_int_equal(r.whole >> i & 1, want);
        n_whole += want;
    }
    assert_int_equal(n_whole, json_array_size(whole));
    assert_int_equal(r.n_groups, json_object_size(get(v, "groups")));
    for (int i = 0; i < r.n_groups; i++) {
        const json_t *want = get(get(v, "groups"), r.name[r.groups[i].x]);
        assert_string_equal(r.name[r.groups[i].first], text_at(want, 0));
        assert_string_equal(r.name[r.groups[i].rest], text_at(want, 1));
    }
}

static void test_rules_agree_with_the_specification(void **state)
{
    golden *g = golden_open();
    const json_t *rules = get(g->root, "rules");
    (void)state;
    assert_true(json_array_size(rules) > 30);
    for (size_t i = 0; i < json_array_size(rules); i++)
        check_rule(json_array_get(rules, i));
    golden_close(g);
}

/* Parses with up to four ranks of inputs and two of outputs. */
static tt_status parse(const char *text, int n_in, const int *in, int n_out, const int *out,
                       tt_rule *r, tt_error *err)
{
    return tt_rule_parse(text, in, n_in, out, n_out, r, err);
}

static void test_letters_are_numbered_by_first_appearance(void **state)
{
    static const int in[] = {2, 2, 2, 1, 1, 1, 1}, out[] = {2};
    tt_rule r;
    tt_error err;
    (void)state;
    assert_int_equal(
        parse("t=(b q) h=(k g), s=(b !p) k, s k, t, t, s, s -> t h", 7, in, 1, out, &r, &err),
        TT_OK);
    static const char *const names[] = {"t", "h", "s", "k", "b", "q", "g", "p"};
    assert_int_equal(r.n_letters, 8); /* letters of operands first, those of groups only after */
    for (int i = 0; i < 8; i++)
        assert_string_equal(r.name[i], names[i]);
    assert_int_equal(r.whole, 1u << 7);
    assert_int_equal(r.n_groups, 3);
    assert_int_equal(r.groups[2].x, 2);
    assert_int_equal(r.groups[2].first, 4);
    assert_int_equal(r.groups[2].rest, 7);
}

static void test_a_group_may_stand_at_each_operand(void **state)
{
    static const int in[] = {2, 2, 2, 1, 1, 1}, out[] = {2};
    tt_rule r, once;
    tt_error err;
    (void)state;
    assert_int_equal(
        parse("t=(b q) h, t=(b !q) h, t=(b q) h, t=(b q), t=(b q), t=(b q) -> t=(b q) h", 6, in, 1,
              out, &r, &err),
        TT_OK);
    assert_int_equal(parse("t=(b !q) h, t h, t h, t, t, t -> t h", 6, in, 1, out, &once, &err),
                     TT_OK);
    assert_int_equal(r.n_groups, 1);
    assert_memory_equal(&r, &once, sizeof r);
    /* blanks and tabs may be wherever there is one, or none */
    static const char *const spaced[] = {
        "t=(b !q) h,t h,t h,t,t,t->t h",
        "\tt=( b\t!q )\th ,\t t  h, t\t\th, t\t,t, t\t->\tt\th\t "};
    for (size_t i = 0; i < TT_COUNT(spaced); i++) {
        memset(&r, 0x5a, sizeof r);
        if (parse(spaced[i], 6, in, 1, out, &r, &err) != TT_OK)
            fail_msg("%s", err.text);
        assert_memory_equal(&r, &once, sizeof r);
    }
}

static void test_an_operand_may_be_ring_shifted(void **state)
{
    static const int in[] = {1, 2}, out[] = {2, 2};
    tt_rule r;
    tt_error err;
    (void)state;
    assert_int_equal(parse("t=(b q), t+12 k -> t k, t+3 k", 2, in, 2, out, &r, &err), TT_OK);
    assert_int_equal(r.in_shift[0], 0);
    assert_int_equal(r.in_shift[1], 12);
    assert_int_equal(r.out_shift[0], 0);
    assert_int_equal(r.out_shift[1], 3);
    assert_int_equal(r.n_letters, 4);
}

static void test_scalars_stars_and_several_outputs(void **state)
{
    tt_rule r;
    tt_error err;
    (void)state;
    static const int three[] = {3, 0}, one[] = {3};
    assert_int_equal(parse("*, -> *", 2, three, 1, one, &r, &err), TT_OK);
    assert_int_equal(r.n_letters, 3);
    assert_string_equal(r.name[2], "x2");
    assert_int_equal(r.n_in_dims[1], 0);
    assert_memory_equal(r.in[0], r.out[0], 3);

    static const int q[] = {2, 2}, outs[] = {2, 1, 0};
    assert_int_equal(parse("t i,o i->t o,t,", 2, q, 3, outs, &r, &err), TT_OK);
    assert_int_equal(r.n_out, 3);
    assert_int_equal(r.n_out_dims[0], 2);
    assert_int_equal(r.n_out_dims[1], 1);
    assert_int_equal(r.n_out_dims[2], 0);

    static const int rest[] = {4, 1}, same[] = {4}; /* the dims the other letters leave */
    assert_int_equal(parse("* !d, d -> * d", 2, rest, 1, same, &r, &err), TT_OK);
    assert_int_equal(r.n_letters, 4);
    assert_string_equal(r.name[r.in[0][3]], "d");
    assert_int_equal(r.whole, 1u << 3);

    static const int vector[] = {1};
    assert_int_equal(parse(" -> v", 0, NULL, 1, vector, &r, &err), TT_OK); /* bound by the output */
    assert_int_equal(r.n_letters, 1);
    static const int zero[] = {0};
    assert_int_equal(parse("* ->", 1, three, 1, zero, &r, &err), TT_OK);
    assert_int_equal(parse("* -> *", 1, zero, 1, zero, &r, &err), TT_OK);
    assert_int_equal(r.n_letters, 0);
    assert_int_equal(parse("!* -> *", 1, three, 1, three, &r, &err), TT_OK);
    assert_int_equal(r.whole, 7);
    assert_int_equal(parse("row_2 !_b3 -> row_2", 1, q, 1, vector, &r, &err), TT_OK);
    assert_int_equal(r.whole, 2);
}

static void test_bad_rules_say_what_is_wrong(void **state)
{
    static const struct {
        const char *rule;
        int n_in, in[2], n_out, out[2];
        const char *part;
    } cases[] = {
        {"t i, o i",                                    2,  {2, 2}, 1, {2},    "-> is missing"                                },
        {"t i -> t",                                    2,  {2, 2}, 1, {1},    "it has 1 inputs, the op has 2"                },
        {"t, i, o -> t",                                2,  {1, 1}, 1, {1},    "more inputs than the op, which has 2"         },
        {"t -> t",                                      0,  {0},    1, {1},    "more inputs than the op, which has 0"         },
        {"t i -> t, i",                                 1,  {2},    1, {1},    "more outputs than the op, which has 1"        },
        {"t i -> t",                                    1,  {2},    2, {1, 1}, "it has 1 outputs, the op has 2"               },
        {"t i -> t",                                    1,  {3},    1, {1},    "input 0 has 3 dims, the rule names 2"         },
        {"t i -> t",                                    1,  {2},    1, {2},    "output 0 has 2 dims, the rule names 1"        },
        {"*, * -> *",                                   2,  {2, 3}, 1, {2},    "* stands for 2 dims, but for 3 in input 1"    },
        {"* * -> *",                                    1,  {2},    1, {2},    "input 0 has * twice"                          },
        {"* a b c -> a",                                1,  {2},    1, {1},    "input 0 has 2 dims, the rule names 3"         },
        {"t 7 -> t",                                    1,  {2},    1, {1},    "a letter is expected at \"7 -> t\""           },
        {"t ! -> t",                                    1,  {2},    1, {1},    "a letter is expected at \" -> t\""            },
        {"t-> !",                                       1,  {1},    1, {1},    "a letter is expected at the end"              },
        {"t t -> t",                                    1,  {2},    1, {1},    "input 0 has letter t twice"                   },
        {"t -> t t",                                    1,  {1},    1, {2},    "output 0 has letter t twice"                  },
        {"t=b -> t",                                    1,  {1},    1, {1},    "t= must be followed by (first rest)"          },
        {"t=(b q -> t",                                 1,  {1},    1, {1},    "t=( is not closed at \"-> t\""                },
        {"t=(b 7) -> t",                                1,  {1},    1, {1},    "t=( is not closed at \"7) -> t\""             },
        {"t -> t=(b q",                                 1,  {1},    1, {1},    "t=( is not closed"                            },
        {"t+ -> t",                                     1,  {1},    1, {1},    "t+ must be followed by a number of steps"     },
        {"t k+1 -> t",                                  1,  {2},    1, {1},    "only an operand's first letter may be shifted"},
        {"t+99999 -> t",                                1,  {1},    1, {1},    "t is shifted by more than 65535 steps"        },
        {"t=(b) -> t",                                  1,  {1},    1, {1},    "t=(…) needs two letters"                    },
        {"t=(b q r) -> t",                              1,  {1},    1, {1},    "t=(…) has more than two letters"            },
        {"t=(b t) -> t",                                1,  {1},    1, {1},    "t=(b t) has a letter twice"                   },
        {"t=(b q), t=(b r) -> t",                       2,  {1, 1}, 1, {1},    "t is factored in two ways"                    },
        {"abcdefghijkl -> t",                           1,  {1},    1, {1},    "\"abcdefghijkl\" is longer than 11"           },
        {"x0, * -> *",                                  2,  {1, 1}, 1, {1},    "x0 is one of the letters * stands for"        },
        {"t -> t -> t",                                 1,  {1},    1, {1},    "nothing is expected at \"-> t\""              },
        {"a b c d e f g h -> a",                        1,  {6},    1, {1},    "an operand has more than 6 dims"              },
        {"a=(b c) d=(e f), g=(h i) j=(k l) -> m=(n o)", 2,  {2, 2}, 1, {1},    "more than 4 groups"                           },
        {"t (b) -> t",                                  1,  {1},    1, {1},    "a letter is expected at \"(b) -> t\""         },
        {"t -> t",                                      1,  {7},    1, {1},    "input 0 has 7 dims, at most 6"                },
        {"t -> t",                                      17, {1},    1, {1},    "at most 16 inputs and 4 outputs"              },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        tt_rule r, before;
        tt_error err;
        memset(&r, 0x5a, sizeof r);
        before = r;
        if (parse(cases[i].rule, cases[i].n_in, cases[i].in, cases[i].n_out, cases[i].out, &r,
                  &err) == TT_OK)
            fail_msg("\"%s\" was accepted", cases[i].rule);
        assert_int_equal(err.code, TT_EINVAL);
        if (strstr(err.text, cases[i].part) == NULL || strstr(err.text, cases[i].rule) == NULL)
            fail_msg("\"%s\" does not say \"%s\"", err.text, cases[i].part);
        assert_memory_equal(&r, &before, sizeof r);
    }
}

static void test_too_many_letters_are_refused(void **state)
{
    static const int ranks[] = {6, 6, 6, 6, 1}, out[] = {1};
    const char *full = "a b c d e f, g h i j k l, m n o p q r, s t u v w y, a -> a";
    const char *over = "a b c d e f, g h i j k l, m n o p q r, s t u v w y, z -> a";
    tt_rule r;
    tt_error err;
    (void)state;
    assert_int_equal(parse(full, 5, ranks, 1, out, &r, &err), TT_OK);
    assert_int_equal(r.n_letters, TT_MAX_LETTERS);
    assert_int_equal(parse(over, 5, ranks, 1, out, &r, &err), TT_EINVAL);
    assert_non_null(strstr(err.text, "more than 24 letters"));
}

/* A rule comes from a plugin: any text is parsed or refused. */
static void test_random_texts_never_crash(void **state)
{
    static const char alphabet[] = "ab0x*!=(),-> _ ";
    static const int ranks[] = {1, 2};
    tt_rng_key key = {7};
    int accepted = 0;
    (void)state;
    for (uint64_t trial = 0; trial < 20000; trial++) {
        char text[16] = {0};
        uint32_t u[12];
        for (uint64_t i = 0; i < 3; i++)
            tt_rng_u32x4(key, 3 * trial + i, u + 4 * i);
        for (uint32_t i = 0; i < u[11] % 12; i++)
            text[i] = alphabet[u[i] % (sizeof alphabet - 1)];
        if (trial % 2) /* a plausible beginning */
            memcpy(text, "a,a b->", 7);
        tt_rule r;
        tt_error err;
        accepted += parse(text, 2, ranks, 1, ranks, &r, &err) == TT_OK;
    }
    assert_true(accepted > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules_agree_with_the_specification),
        cmocka_unit_test(test_letters_are_numbered_by_first_appearance),
        cmocka_unit_test(test_a_group_may_stand_at_each_operand),
        cmocka_unit_test(test_an_operand_may_be_ring_shifted),
        cmocka_unit_test(test_scalars_stars_and_several_outputs),
        cmocka_unit_test(test_bad_rules_say_what_is_wrong),
        cmocka_unit_test(test_too_many_letters_are_refused),
        cmocka_unit_test(test_random_texts_never_crash),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
