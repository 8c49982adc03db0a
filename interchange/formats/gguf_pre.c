/* SPDX-License-Identifier: Apache-2.0 */
#include "interchange/formats/gguf_vocab.h"
#include <string.h>

/* GGUF does not hold how texts are cut into words: llama.cpp has expressions in its code and picks one list of them by
 * the name in tokenizer.ggml.pre. With a wrong name it would cut texts differently and give no error, so a pre_tokenizer
 * that is not in the table below is refused. tests/peers/llama_cpp_peer.py has texts for every row. */

#define MOST_STEPS 6

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
#define LLAMA3(number) CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" number REST
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASES(end, number)                                                                         \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" end "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER     \
    "*" end "|" number "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN35                                                                                     \
    CONTRACTIONS                                                                                   \
    "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|"          \
    "\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define DEEPSEEK3                                                                                  \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|"                                       \
    "[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|"        \
    "\\s+(?!\\S)|\\s+"
#define BAILING                                                                                    \
    "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|" \
    "\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"
#define SEED                                                                                       \
    CONTRACTIONS                                                                                   \
    "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}| ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|"          \
    "\\s+(?!\\S)|\\s+"
#define CHINESE "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"

/* whole: in llama.cpp a word that is a token becomes that token, whatever the merges are (ignore_merges) */
static const struct {
    const char *steps[MOST_STEPS], *pre;
    bool whole;
} patterns[] = {
    {{GPT2},                                   "gpt-2",       false},
    {{"\\p{N}", GPT2},                         "smollm",      false},
    {{LLAMA3("\\p{N}{1,3}")},                  "llama-bpe",   true },
    {{LLAMA3("\\p{N}{1,3}")},                  "dbrx",        false},
    {{LLAMA3("\\p{N}")},                       "qwen2",       false},
    {{QWEN35},                                 "qwen35",      false},
    {{CASES("", "\\p{N}")},                    "tekken",      true },
    {{CASES(CONTRACTIONS "?", "\\p{N}{1,3}")}, "gpt-4o",      false},
    {{"\\p{N}{1,3}", CHINESE, DEEPSEEK3},      "deepseek-v3", false},
    {{"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+",
      "\\p{N}"},
     "deepseek-coder",                                        false},
    {{BAILING},                                "bailingmoe",  false},
    {{SEED},                                   "seed-coder",  false},
};

/* The character at *p of an expression: \r, \n and \t as escapes are what they stand for. */
static int expression_char(const char **p)
{
    const char c = *(*p)++;
    if (c != '\\')
        return c;
    const char e = **p;
    *p += e != '\0';
    return e == 'r' ? '\r' : e == 'n' ? '\n' : e == 't' ? '\t' : 256 + (unsigned char)e;
}

static bool same_expression(const char *a, const char *b)
{
    while (*a && *b)
        if (expression_char(&a) != expression_char(&b))
            return false;
    return *a == *b;
}

typedef struct steps {
    const char *at[MOST_STEPS];
    size_t n;
    bool bytes, covers; /* has ByteLevel; a step keeps matches alone, so it must match everything */
} steps;

static bool put_step(steps *s, const char *expression)
{
    if (s->n == MOST_STEPS || s->bytes)
        return false;
    s->at[s->n++] = expression;
    return true;
}

static bool is_true(const tt_json *v, bool otherwise)
{
    return v && v->type == TT_JSON_BOOL ? v->boolean : otherwise;
}

/* Lists the expressions of a pre_tokenizer; false: one of its steps is none. */
static bool list_steps(const tt_json *part, steps *s)
{
    const char *type = tt_gguf_text(tt_json_get(part, "type"));
    if (!strcmp(type, "Sequence")) {
        const tt_json *list = tt_json_get(part, "pretokenizers");
        bool ok = list && list->type == TT_JSON_ARRAY;
        for (size_t i = 0; ok && i < list->n; i++)
            ok = strcmp(tt_gguf_text(tt_json_get(list->items[i], "type")), "Sequence") &&
                 list_steps(list->items[i], s);
        return ok;
    }
    if (!strcmp(type, "ByteLevel")) {
        const bool ok = !is_true(tt_json_get(part, "add_prefix_space"), false) &&
                        (!is_true(tt_json_get(part, "use_regex"), true) || put_step(s, GPT2));
        s->bytes = true;
        return ok;
    }
    if (!strcmp(type, "Digits"))
        return is_true(tt_json_get(part, "individual_digits"), false) && put_step(s, "\\p{N}");
    const char *text = tt_gguf_text(tt_json_get(tt_json_get(part, "pattern"), "Regex"));
    const char *behavior = tt_gguf_text(tt_json_get(part, "behavior"));
    const bool inverted = is_true(tt_json_get(part, "invert"), false);
    s->covers = s->covers || inverted;
    return !strcmp(type, "Split") && *text && put_step(s, text) &&
           (inverted ? !strcmp(behavior, "Removed") || !strcmp(behavior, "Isolated")
                     : !*behavior || !strcmp(behavior, "Isolated"));
}

const char *tt_gguf_pre(const tt_json *pre_tokenizer, bool whole)
{
    steps s = {.n = 0};
    const char *found = NULL;
    if (!list_steps(pre_tokenizer, &s) || !s.bytes || (s.covers && s.n > 1))
        return NULL;
    for (size_t i = 0; i < TT_COUNT(patterns); i++) {
        size_t n = 0;
        while (n < s.n && patterns[i].steps[n] && same_expression(s.at[n], patterns[i].steps[n]))
            n++;
        const bool same = n == s.n && (n == MOST_STEPS || !patterns[i].steps[n]);
        if (same && n > 0 && (!found || patterns[i].whole == whole))
            found = patterns[i].pre;
    }
    return found;
}

void tt_gguf_pre_names(tt_str *out)
{
    for (size_t i = 0; i < TT_COUNT(patterns); i++)
        tt_str_printf(out, "%s%s",
                      !i                           ? ""
                      : i + 1 < TT_COUNT(patterns) ? ", "
                                                   : " and ",
                      patterns[i].pre);
}
