/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"
#include <stdio.h>
#include <string.h>
#include <ttrun/log.h>

/* Loads normalizer and pre_tokenizer. What is not supported is rejected with its place and name. */

static tt_status load_normalizer(hf_tokenizer *t, const hf_file *f, const json_t *part,
                                 const char *path)
{
    if (!part || json_is_null(part))
        return TT_OK;
    if (strcmp(hf_type(part), "NFC") == 0) {
        t->nfc = true;
        return TT_OK;
    }
    if (strcmp(hf_type(part), "Sequence") != 0)
        return TT_FAIL(f->err, TT_EUNSUPPORTED, "%s: %s: \"%s\" is not supported (NFC is)", f->name,
                       path, hf_show(hf_type(part), strlen(hf_type(part))).text);
    const json_t *list = json_object_get(part, "normalizers"), *item;
    size_t i;
    if (!json_is_array(list))
        return HF_FAIL(f, "%s: %s.normalizers: expected a list", f->name, path);
    json_array_foreach(list, i, item)
    {
        char where[64];
        snprintf(where, sizeof where, "normalizer.normalizers[%zu]", i);
        if (strcmp(hf_type(item), "NFC") != 0)
            return TT_FAIL(f->err, TT_EUNSUPPORTED, "%s: %s: \"%s\" is not supported (NFC is)",
                           f->name, where, hf_show(hf_type(item), strlen(hf_type(item))).text);
        t->nfc = true;
    }
    return TT_OK;
}

static tt_status add_split(hf_tokenizer *t, const hf_file *f, const char *path, const char *pattern,
                           bool literal, bool keep_matches, bool keep_gaps, hf_digest *d)
{
    if (t->n_splits == HF_MAX_SPLITS)
        return HF_FAIL(f, "%s: %s: more than %d splits", f->name, path, HF_MAX_SPLITS);
    hf_split s = {.keep_matches = keep_matches, .keep_gaps = keep_gaps};
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

static tt_status load_split(hf_tokenizer *t, const hf_file *f, const json_t *part, const char *path,
                            hf_digest *d)
{
    const json_t *pattern = json_object_get(part, "pattern");
    const json_t *regex = json_object_get(pattern, "Regex"),
                 *text = json_object_get(pattern, "String");
    const char *behavior = json_string_value(json_object_get(part, "behavior"));
    const json_t *use = regex ? regex : text;
    bool invert;
    TT_TRY(hf_bool(f, part, path, "invert", false, &invert));
    if (!json_is_string(use) || !*json_string_value(use))
        return HF_FAIL(f, "%s: %s.pattern: expected {\"Regex\": …} or {\"String\": …}", f->name,
                       path);
    if (!behavior)
        return HF_FAIL(f, "%s: %s.behavior: expected a string", f->name, path);
    if (strcmp(behavior, "Isolated") == 0)
        return add_split(t, f, path, json_string_value(use), !regex, true, true, d);
    if (strcmp(behavior, "Removed") == 0)
        return add_split(t, f, path, json_string_value(use), !regex, invert, !invert, d);
    return TT_FAIL(f->err, TT_EUNSUPPORTED,
                   "%s: %s.behavior: \"%s\" is not supported (Isolated, Removed)", f->name, path,
                   hf_show(behavior, strlen(behavior)).text);
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

static tt_status load_step(hf_tokenizer *t, const hf_file *f, const json_t *part, const char *path,
                           bool last, hf_digest *d)
{
    const char *type = hf_type(part);
    if (strcmp(type, "ByteLevel") == 0) {
        if (!last)
            return TT_FAIL(f->err, TT_EUNSUPPORTED,
                           "%s: %s: ByteLevel before the end of the sequence is not supported",
                           f->name, path);
        return load_byte_level(t, f, part, path, d);
    }
    if (strcmp(type, "Split") != 0)
        return TT_FAIL(f->err, TT_EUNSUPPORTED,
                       "%s: %s: \"%s\" is not supported (Split and ByteLevel are)", f->name, path,
                       hf_show(type, strlen(type)).text);
    if (last)
        return TT_FAIL(f->err, TT_EUNSUPPORTED,
                       "%s: %s: no ByteLevel at the end: only byte-level BPE is supported", f->name,
                       path);
    return load_split(t, f, part, path, d);
}

tt_status hf_load_splits(hf_tokenizer *t, const hf_file *f, const json_t *root, hf_digest *d)
{
    TT_TRY(load_normalizer(t, f, json_object_get(root, "normalizer"), "normalizer"));
    hf_digest_number(d, t->nfc);
    const json_t *part = json_object_get(root, "pre_tokenizer"), *item;
    size_t i;
    if (!json_is_object(part))
        return TT_FAIL(f->err, TT_EUNSUPPORTED,
                       "%s: pre_tokenizer: none: only byte-level BPE is supported", f->name);
    if (strcmp(hf_type(part), "Sequence") != 0)
        return load_step(t, f, part, "pre_tokenizer", true, d);
    const json_t *list = json_object_get(part, "pretokenizers");
    if (!json_is_array(list) || json_array_size(list) == 0)
        return HF_FAIL(f, "%s: pre_tokenizer.pretokenizers: expected a list of steps", f->name);
    json_array_foreach(list, i, item)
    {
        char path[64];
        snprintf(path, sizeof path, "pre_tokenizer.pretokenizers[%zu]", i);
        TT_TRY(load_step(t, f, item, path, i + 1 == json_array_size(list), d));
    }
    return TT_OK;
}
