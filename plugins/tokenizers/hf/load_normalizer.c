/* SPDX-License-Identifier: Apache-2.0 */
#include "load.h"
#include "normalize.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ttrun/log.h>

/* Loads the normalizer. What is not supported is rejected with its place and name. */

static tt_status load_text_of(const hf_file *f, const json_t *part, const char *path,
                              const char *key, bool empty_too, hf_bytes *out)
{
    const json_t *v = json_object_get(part, key);
    if (!json_is_string(v) || (!empty_too && json_string_length(v) == 0))
        return HF_FAIL(f, "%s: %s.%s: expected a text", f->name, path, key);
    return hf_bytes_add(out, json_string_value(v), json_string_length(v), f->err);
}

static tt_status load_replace(const hf_file *f, const json_t *part, const char *path, hf_norm *p)
{
    const json_t *pattern = json_object_get(part, "pattern");
    const char *regex = hf_text_of(json_object_get(pattern, "Regex"));
    TT_TRY(load_text_of(f, part, path, "content", true, &p->to));
    if (!regex)
        return load_text_of(f, pattern, path, "String", false, &p->from);
    if (hf_regex_new(regex, HF_ONIGURUMA, &p->regex, f->err) != TT_OK)
        return tt_error_context(f->err, "%s: %s.pattern", f->name, path);
    p->blanks = !strcmp(regex, " {2,}");
    if (!p->blanks)
        tt_log(TT_WARN, "data", "%s: %s.pattern: PCRE2 reads it, unverified against Oniguruma",
               f->name, path);
    return TT_OK;
}

static tt_status load_bert(const hf_file *f, const json_t *part, const char *path, hf_norm *p)
{
    TT_TRY(hf_bool(f, part, path, "clean_text", true, &p->clean));
    TT_TRY(hf_bool(f, part, path, "handle_chinese_chars", true, &p->chinese));
    TT_TRY(hf_bool(f, part, path, "lowercase", true, &p->lower));
    return hf_bool(f, part, path, "strip_accents", p->lower, &p->accents);
}

static tt_status load_charsmap(const hf_file *f, const json_t *part, const char *path, hf_norm *p)
{
    const json_t *v = json_object_get(part, "precompiled_charsmap");
    const size_t n = json_string_length(v);
    size_t m = 0;
    if (json_is_null(v) || (json_is_string(v) && n == 0))
        return TT_OK;
    if (!json_is_string(v))
        return HF_FAIL(f, "%s: %s.precompiled_charsmap: expected base64", f->name, path);
    uint8_t *blob = malloc(n + 4);
    if (!blob)
        return TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for a charsmap", f->name);
    tt_status s = TT_OK;
    if (!hf_base64((const uint8_t *)json_string_value(v), n, blob, &m))
        s = HF_FAIL(f, "%s: %s.precompiled_charsmap: not base64", f->name, path);
    else if (hf_charsmap_new(blob, m, &p->map, f->err) != TT_OK)
        s = tt_error_context(f->err, "%s: %s", f->name, path);
    free(blob);
    return s;
}

static const struct {
    const char *type;
    hf_norm_kind kind;
} kinds[] = {
    {"NFC",            HF_NFC          },
    {"NFD",            HF_NFD          },
    {"NFKC",           HF_NFKC         },
    {"NFKD",           HF_NFKD         },
    {"Lowercase",      HF_LOWERCASE    },
    {"StripAccents",   HF_STRIP_ACCENTS},
    {"Strip",          HF_STRIP        },
    {"Nmt",            HF_NMT          },
    {"BertNormalizer", HF_BERT         },
    {"Replace",        HF_REPLACE      },
    {"Prepend",        HF_PREPEND      },
    {"Precompiled",    HF_PRECOMPILED  },
};

static tt_status load_norm(hf_tokenizer *t, const hf_file *f, const json_t *part, const char *path)
{
    const char *type = hf_type(part);
    size_t i = 0;
    while (i < TT_COUNT(kinds) && strcmp(kinds[i].type, type) != 0)
        i++;
    if (i == TT_COUNT(kinds))
        return TT_FAIL(f->err, TT_EUNSUPPORTED, "%s: %s: \"%s\" is not supported", f->name, path,
                       hf_show(type, strlen(type)).text);
    if (t->n_norms == HF_MAX_NORMS)
        return HF_FAIL(f, "%s: %s: more than %d steps", f->name, path, HF_MAX_NORMS);
    hf_norm *p = &t->norms[t->n_norms++];
    p->kind = kinds[i].kind;
    if (p->kind == HF_STRIP) {
        TT_TRY(hf_bool(f, part, path, "strip_left", true, &p->left));
        return hf_bool(f, part, path, "strip_right", true, &p->right);
    }
    if (p->kind == HF_PREPEND)
        return load_text_of(f, part, path, "prepend", true, &p->to);
    if (p->kind == HF_REPLACE)
        return load_replace(f, part, path, p);
    if (p->kind == HF_BERT)
        return load_bert(f, part, path, p);
    return p->kind == HF_PRECOMPILED ? load_charsmap(f, part, path, p) : TT_OK;
}

/* depth: sequences may hold sequences. */
static tt_status load_norms(hf_tokenizer *t, const hf_file *f, const json_t *part, const char *path,
                            int depth)
{
    const json_t *list, *item;
    size_t i;
    if (strcmp(hf_type(part), "Sequence") != 0)
        return load_norm(t, f, part, path);
    list = json_object_get(part, "normalizers");
    if (!json_is_array(list) || depth > 8)
        return HF_FAIL(f, "%s: %s.normalizers: expected a list", f->name, path);
    json_array_foreach(list, i, item)
    {
        char where[256];
        snprintf(where, sizeof where, "%.200s.normalizers[%zu]", path, i);
        TT_TRY(load_norms(t, f, item, where, depth + 1));
    }
    return TT_OK;
}

tt_status hf_load_normalizer(hf_tokenizer *t, const hf_file *f, const json_t *root)
{
    const json_t *part = json_object_get(root, "normalizer");
    if (!part || json_is_null(part))
        return TT_OK;
    t->norms = calloc(HF_MAX_NORMS, sizeof *t->norms);
    if (!t->norms)
        return TT_FAIL(f->err, TT_ENOMEM, "%s: out of memory for a normalizer", f->name);
    TT_TRY(load_norms(t, f, part, "normalizer", 0));
    bool only_nfc = true;
    for (size_t i = 0; i < t->n_norms; i++)
        only_nfc = only_nfc && t->norms[i].kind == HF_NFC;
    t->nfc = only_nfc && t->n_norms > 0;
    if (only_nfc)
        hf_norms_release(t);
    return TT_OK;
}
