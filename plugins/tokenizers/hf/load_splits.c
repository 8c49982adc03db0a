/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"
#include <stdio.h>
#include <string.h>
#include <ttrun/log.h>

/* Loads the pre_tokenizer. What is not supported is rejected with its place and name. */

static tt_status add_split(hf_tokenizer *t, const hf_file *f, const char *path, const char *pattern,
                           bool literal, bool keep_matches, bool keep_gaps, hf_digest *d)
{
    if (t->n_splits == HF_MAX_SPLITS)
        return HF_FAIL(f, "%s: %s: more than %d splits", f->name, path, HF_MAX_SPLITS);
    hf_split s = {.keep_matches = keep_matches,
                  .keep_gaps = keep_gaps,
                  .blank = literal && keep_matches && !strcmp(pattern, " ")};
    const hf_pattern *known = literal ? NULL : hf_pattern_find(pattern);
    if (known) {
        s.scan = known->scan;
    } else {
        if (hf_regex_new(pattern, literal ? HF_LITERAL : HF_ONIGURUMA, &s.regex, f->err) != TT_OK)
            return tt_error_context(f->err, "%s: %s.pattern", f->name, path);
        if (!literal)
            tt_log(
                TT_WARN, "data",
                "%s: %s.pattern is not one of the known ones; PCRE2 reads it, unverified against "
                "Oniguruma",
                f->name, path);
    }
    hf_digest_text(d, pattern);
    hf_digest_number(d, literal | keep_matches << 1 | keep_gaps << 2);
    t->splits[t->n_splits++] = s;
    return TT_OK;
}

static tt_status load_merging(const hf_file *f, const char *path, const char *behavior,
                              hf_merging *out)
{
    static const char *const names[] = {"Isolated", "MergedWithNext", "MergedWithPrevious",
                                        "Contiguous"};
    for (size_t i = 0; i < TT_COUNT(names); i++)
        if (strcmp(behavior, names[i]) == 0) {
            *out = (hf_merging)i;
            return TT_OK;
        }
    return TT_FAIL(f->err, TT_EUNSUPPORTED, "%s: %s.behavior: \"%s\" is not supported", f->name,
                   path, hf_show(behavior, strlen(behavior)).text);
}

static tt_status load_split(hf_tokenizer *t, const hf_file *f, const json_t *part, const char *path,
                            hf_digest *d)
{
    const json_t *pattern = json_object_get(part, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex"),
                 *string = json_object_get(pattern, "String");
    const char *behavior = hf_text_of(json_object_get(part, "behavior"));
    const json_t *use = regex ? regex : string;
    bool invert;
    TT_TRY(hf_bool(f, part, path, "invert", false, &invert));
    const char *text = hf_text_of(use);
    if (!text || !*text)
        return HF_FAIL(f, "%s: %s.pattern: expected {\"Regex\": …} or {\"String\": …}", f->name,
                       path);
    if (!behavior)
        return HF_FAIL(f, "%s: %s.behavior: expected a string", f->name, path);
    if (strcmp(behavior, "Isolated") == 0)
        return add_split(t, f, path, text, !regex, true, true, d);
    if (strcmp(behavior, "Removed") == 0)
        return add_split(t, f, path, text, !regex, invert, !invert, d);
    hf_merging merging;
    TT_TRY(load_merging(f, path, behavior, &merging));
    if (invert)
        return TT_FAIL(f->err, TT_EUNSUPPORTED, "%s: %s.invert: not supported with %s", f->name,
                       path, behavior);
    TT_TRY(add_split(t, f, path, text, !regex, true, true, d));
    t->splits[t->n_splits - 1].merging = merging;
    hf_digest_number(d, merging);
    return TT_OK;
}

static tt_status load_byte_level(hf_tokenizer *t, const hf_file *f, const json_t *part,
                                 const char *path, hf_digest *d)
{
    bool prefix, regex;
    TT_TRY(hf_bool(f, part, path, "add_prefix_space", true, &prefix));
    TT_TRY(hf_bool(f, part, path, "use_regex", true, &regex));
    if (regex) {
        TT_TRY(add_split(t, f, path, hf_patterns[0].regex, false, true, true, d));
        t->splits[t->n_splits - 1].prefix_space = prefix;
    } else {
        t->prefix_space = prefix;
    }
    hf_digest_number(d, prefix);
    return TT_OK;
}

static tt_status add_scan(hf_tokenizer *t, const hf_file *f, const char *path, hf_split s,
                          const char *name, hf_digest *d)
{
    if (t->n_splits == HF_MAX_SPLITS)
        return HF_FAIL(f, "%s: %s: more than %d splits", f->name, path, HF_MAX_SPLITS);
    t->splits[t->n_splits++] = s;
    hf_digest_text(d, name);
    hf_digest_number(d, s.keep_matches | s.keep_gaps << 1 | (int)s.merging << 2 | s.whole << 4 |
                            s.prepend << 8 | (int64_t)s.point << 32);
    hf_digest_text(d, s.metaspace);
    return TT_OK;
}

static tt_status load_metaspace(hf_tokenizer *t, const hf_file *f, const json_t *part,
                                const char *path, hf_digest *d)
{
    hf_split s = {.keep_matches = true, .keep_gaps = true};
    const json_t *mark = json_object_get(part, "replacement");
    const char *text = mark ? hf_text_of(mark) : "\xe2\x96\x81";
    bool prefix, cut;
    unsigned n = 0;
    TT_TRY(hf_bool(f, part, path, "add_prefix_space", true, &prefix));
    TT_TRY(hf_bool(f, part, path, "split", true, &cut));
    const json_t *scheme = json_object_get(part, "prepend_scheme");
    const char *prepend = scheme ? hf_text_of(scheme) : prefix ? "always" : "never";
    if (text && *text)
        hf_decode((const uint8_t *)text, &n);
    if (n == 0 || n != strlen(text))
        return HF_FAIL(f, "%s: %s.replacement: expected one character", f->name, path);
    if (!prepend ||
        (strcmp(prepend, "always") && strcmp(prepend, "never") && strcmp(prepend, "first")))
        return HF_FAIL(f, "%s: %s.prepend_scheme: expected always, never or first", f->name, path);
    if (*prepend == 'f' && (t->n_splits || t->n_norms))
        return TT_FAIL(f->err, TT_EUNSUPPORTED,
                       "%s: %s.prepend_scheme: \"first\" is supported only without a normalizer "
                       "and as the first step",
                       f->name, path);
    memcpy(s.metaspace, text, n);
    s.prepend = *prepend;
    s.whole = !cut;
    return add_scan(t, f, path, s, "Metaspace", d);
}

static tt_status load_named(hf_tokenizer *t, const hf_file *f, const json_t *part, const char *path,
                            const char *type, hf_digest *d)
{
    hf_split s = {.traits = true, .keep_matches = true, .keep_gaps = true};
    if (strcmp(type, "Whitespace") == 0) {
        s.scan = hf_scan_word;
        s.keep_gaps = false;
    } else if (strcmp(type, "WhitespaceSplit") == 0 || strcmp(type, "BertPreTokenizer") == 0) {
        s.scan = hf_scan_white;
        s.keep_matches = false;
        TT_TRY(add_scan(t, f, path, s, type, d));
        if (*type == 'W')
            return TT_OK;
        s.scan = hf_scan_bert_mark;
        s.keep_matches = true;
    } else if (strcmp(type, "Punctuation") == 0) {
        const char *behavior = hf_text_of(json_object_get(part, "behavior"));
        const bool removed = behavior && strcmp(behavior, "Removed") == 0;
        s.scan = hf_scan_punctuation;
        s.keep_matches = !removed;
        if (behavior && !removed)
            TT_TRY(load_merging(f, path, behavior, &s.merging));
    } else if (strcmp(type, "Digits") == 0) {
        bool each;
        TT_TRY(hf_bool(f, part, path, "individual_digits", false, &each));
        s.scan = hf_scan_digit;
        s.merging = each ? HF_ALONE : HF_CONTIGUOUS;
    } else if (strcmp(type, "CharDelimiterSplit") == 0) {
        const char *text = hf_text_of(json_object_get(part, "delimiter"));
        unsigned n = 0;
        s.traits = s.keep_matches = false;
        if (text && *text)
            s.point = hf_decode((const uint8_t *)text, &n);
        if (n == 0 || n != strlen(text))
            return HF_FAIL(f, "%s: %s.delimiter: expected one character", f->name, path);
    } else {
        return TT_FAIL(f->err, TT_EUNSUPPORTED, "%s: %s: \"%s\" is not supported", f->name, path,
                       hf_show(type, strlen(type)).text);
    }
    return add_scan(t, f, path, s, type, d);
}

static tt_status load_step(hf_tokenizer *t, const hf_file *f, const json_t *part, const char *path,
                           bool last, hf_digest *d)
{
    const char *type = hf_type(part);
    if (strcmp(type, "ByteLevel") == 0) {
        if (!last)
            return TT_FAIL(f->err, TT_EUNSUPPORTED,
                           "%s: %s: ByteLevel before the end of the sequence is not supported",
                           f->name, path);
        t->byte_level = true;
        return load_byte_level(t, f, part, path, d);
    }
    if (strcmp(type, "Split") == 0)
        return load_split(t, f, part, path, d);
    if (strcmp(type, "Metaspace") == 0)
        return load_metaspace(t, f, part, path, d);
    return load_named(t, f, part, path, type, d);
}

/* The sequence's own sequences are taken apart: depth ends them. */
static tt_status load_steps(hf_tokenizer *t, const hf_file *f, const json_t *part, const char *path,
                            bool last, int depth, hf_digest *d)
{
    const json_t *list, *item;
    size_t i;
    if (strcmp(hf_type(part), "Sequence") != 0)
        return load_step(t, f, part, path, last, d);
    list = json_object_get(part, "pretokenizers");
    if (!json_is_array(list) || json_array_size(list) == 0 || depth > 8)
        return HF_FAIL(f, "%s: %s.pretokenizers: expected a list of steps", f->name, path);
    json_array_foreach(list, i, item)
    {
        char where[256];
        snprintf(where, sizeof where, "%.200s.pretokenizers[%zu]", path, i);
        TT_TRY(load_steps(t, f, item, where, last && i + 1 == json_array_size(list), depth + 1, d));
    }
    return TT_OK;
}

tt_status hf_load_splits(hf_tokenizer *t, const hf_file *f, const json_t *root, hf_digest *d)
{
    const json_t *part = json_object_get(root, "pre_tokenizer");
    hf_digest_number(d, t->nfc);
    if (!part || json_is_null(part))
        return TT_OK;
    return load_steps(t, f, part, "pre_tokenizer", true, 0, d);
}
