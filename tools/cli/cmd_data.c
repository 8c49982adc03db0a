/* SPDX-License-Identifier: Apache-2.0 */
#include "base/shown.h"
#include "cli/from_checkpoint.h"
#include "corpus/cache.h"
#include "data/mixture.h"
#include "launch/signals.h"
#include "setup/tokenizer.h"
#include "train/loop.h"
#include <stdlib.h>
#include <string.h>
#include <ttrun/chat.h>
#include <unistd.h>

/* data: a job's data, without training. build: tokenizes text into the cache; show: prints samples.
 */

typedef struct view {
    const tt_cli *cli;
    const tt_setup *s;
    tt_loop *l;
    const tt_dataloader_vt *vt;
    tt_str *o;
    const char *unwritten; /* why a cache that the job wants is not there; NULL: none is missing */
} view;

/* 1234567 → "1,234,567". */
static void grouped(tt_str *o, int64_t n)
{
    char digits[24];
    const int k = snprintf(digits, sizeof digits, "%lld", (long long)n);
    for (int i = 0; i < k; i++)
        tt_str_printf(o, "%s%c", i && digits[i - 1] != '-' && (k - i) % 3 == 0 ? "," : "",
                      digits[i]);
}

static void count(tt_str *o, int64_t n, const char *what, bool first)
{
    if (n < 0)
        return;
    tt_str_add(o, first ? "" : ", ");
    grouped(o, n);
    tt_str_printf(o, " %s", what);
}

static void put_count(tt_str *o, const char *key, int64_t n)
{
    if (n < 0)
        tt_str_printf(o, ",\"%s\":null", key);
    else
        tt_str_printf(o, ",\"%s\":%lld", key, (long long)n);
}

static void put_text(tt_str *o, const char *key, const char *text)
{
    tt_str_printf(o, ",\"%s\":", key);
    if (text)
        tt_str_json(o, text);
    else
        tt_str_add(o, "null");
}

static void put_loader(view *v, const tt_part *p, void *loader, int64_t seq_len);

static void put_sources(view *v, const tt_part *p, const tt_mixture *m, int64_t seq_len)
{
    double sum = 0;
    for (int i = 0; i < m->n; i++)
        sum += m->sources[i].weight;
    tt_str_add(v->o, v->cli->json ? ",\"sources\":[" : "");
    for (int i = 0; i < m->n; i++) {
        const double share = m->sources[i].weight / sum;
        if (v->cli->json) {
            tt_str_add(v->o, i ? ",{\"share\":" : "{\"share\":");
            tt_str_json_number(v->o, share);
            tt_str_addc(v->o, ',');
        } else {
            tt_str_printf(v->o, "mixture[%d] %s, %.4g %%: ", i, m->sources[i].name, 100 * share);
        }
        put_loader(v, tt_mixture_part(p, i), m->sources[i].self, seq_len);
        tt_str_add(v->o, v->cli->json ? "}" : "");
    }
    tt_str_add(v->o, v->cli->json ? "]" : "");
}

/* A loader's description of itself, as members of a JSON object or as lines. */
static void put_loader(view *v, const tt_part *p, void *loader, int64_t seq_len)
{
    const tt_dataloader_vt *vt = p->component->vtable;
    const int64_t n = vt->n_samples(loader);
    const tt_dataloader_info i = tt_loader_info(vt, loader);
    const size_t unwritten = sizeof TT_NOTE_UNWRITTEN - 1;
    if (!i.cache && i.note && !strncmp(i.note, TT_NOTE_UNWRITTEN, unwritten))
        v->unwritten = i.note + unwritten;
    if (v->cli->json) {
        tt_str_add(v->o, "\"loader\":");
        tt_str_json(v->o, p->name);
        put_count(v->o, "files", i.files);
        put_count(v->o, "documents", i.documents);
        put_count(v->o, "text_bytes", i.text_bytes);
        put_count(v->o, "tokens", i.tokens);
        put_count(v->o, "seq_len", seq_len);
        put_count(v->o, "samples", n);
        put_count(v->o, "padding", i.padding);
        put_text(v->o, "cache", i.cache);
        put_text(v->o, "note", i.note && *i.note ? i.note : NULL);
        if (tt_part_is_mixture(p))
            put_sources(v, p, loader, seq_len);
        return;
    }
    count(v->o, i.files, i.files == 1 ? "file" : "files", true);
    count(v->o, i.documents, i.documents == 1 ? "document" : "documents", i.files < 0);
    count(v->o, i.text_bytes, "bytes of text", false);
    count(v->o, i.tokens, "tokens", false);
    count(v->o, n, n == 1 ? "sample of " : "samples of ", i.files < 0 && i.tokens < 0);
    grouped(v->o, seq_len);
    tt_str_add(v->o, "\n");
    if (i.padding >= 0)
        tt_str_printf(v->o, "packed: %.2f %% padding\n",
                      100 * (double)i.padding / (double)n / (double)seq_len);
    if (tt_part_is_mixture(p))
        put_sources(v, p, loader, seq_len);
    else if (i.cache)
        tt_str_printf(v->o, "in %s\n", i.cache);
    else if (vt->needs_tokenizer)
        tt_str_printf(v->o, "in memory: %s\n", i.note && *i.note ? i.note : "this loader has none");
}

/* Several data sets with names are the members of "validation". */
static void put_validation(view *v)
{
    const tt_setup *s = v->s;
    const bool open = s->n_validation && v->l->data.validation[0];
    const bool named = open && s->validation[0].name;
    for (int i = 0; open && i < s->n_validation; i++) {
        const char *name = s->validation[i].name;
        if (v->cli->json)
            tt_str_printf(v->o, "%s%s%s%s", i ? "," : ",\"validation\":{", named ? "\"" : "",
                          named ? name : "", named ? "\":{" : "");
        else
            tt_str_printf(v->o, "validation%s%s: ", named ? " " : "", named ? name : "");
        put_loader(v, &s->validation[i].data, v->l->data.validation[i], s->eval_seq_len);
        if (v->cli->json && named)
            tt_str_add(v->o, "}");
    }
    if (open && v->cli->json)
        tt_str_add(v->o, "}");
}

static tt_status data_build(view *v, tt_error *err)
{
    tt_str_add(v->o, v->cli->json ? "{" : "");
    put_loader(v, &v->s->dataloader, v->l->data.loader, v->s->core.training.seq_len);
    put_validation(v);
    tt_str_add(v->o, v->cli->json ? "}\n" : "");
    if (v->unwritten)
        return TT_FAIL(err, TT_EIO, "dataloader.cache: nothing is built: %s", v->unwritten);
    return TT_OK;
}

/* ---- show ---- */

static void put_numbers(view *v, const char *what, const int32_t *x, int64_t n)
{
    tt_str_printf(v->o, v->cli->json ? ",\"%s\":[" : "  %-7s", what);
    for (int64_t i = 0; i < n; i++)
        tt_str_printf(v->o, v->cli->json ? "%s%d" : " %.0s%d", i ? "," : "", x[i]);
    tt_str_add(v->o, v->cli->json ? "]" : "\n");
}

/* A loader's own input of one sample. */
static void put_input(view *v, const tt_input_info *i, const void *x, int64_t n)
{
    if (i->dtype == TT_I32) {
        put_numbers(v, i->name, x, i->per_sample ? 1 : n);
        return;
    }
    tt_str_printf(v->o, v->cli->json ? ",\"%s\":[" : "  %-7s", i->name);
    for (int64_t k = 0; k < (i->per_sample ? 1 : n); k++) {
        tt_str_add(v->o, v->cli->json ? (k ? "," : "") : " ");
        tt_str_json_number(v->o, (double)((const float *)x)[k]);
    }
    tt_str_add(v->o, v->cli->json ? "]" : "\n");
}

/* The text of an id, of a special token its name. */
static void add_token_text(const view *v, int32_t id, tt_str *out)
{
    const tt_tokenizer_vt *vt = v->s->tokenizer.component->vtable;
    char piece[4096];
    const size_t n = vt->decode(v->l->data.tokenizer, id, piece, sizeof piece);
    tt_special special = {.struct_size = sizeof special};
    tt_str_addn(out, piece, n);
    if (n || !TT_HAS(vt, tt_tokenizer_vt, special) || !vt->special)
        return;
    for (size_t i = 0; vt->special(v->l->data.tokenizer, i, &special); i++)
        if (special.id == id && special.text.n) {
            tt_str_addn(out, special.text.s, special.text.n);
            return;
        }
}

/* The text of the ids; control characters and bytes that are not UTF-8 are escaped. */
static void put_decoded(view *v, const int32_t *ids, int64_t n)
{
    tt_str text = {0};
    if (!v->l->data.tokenizer)
        return;
    for (int64_t i = 0; i < n; i++)
        add_token_text(v, ids[i], &text);
    tt_str_add(v->o, v->cli->json ? ",\"text\":" : "  text    ");
    tt_str_json(v->o, tt_str_get(&text));
    tt_str_add(v->o, v->cli->json ? "" : "\n");
    tt_str_free(&text);
}

/* Where only some tokens are learned: the texts of those that are. */
static void put_learned(view *v, const int32_t *labels, int64_t n)
{
    int64_t learned = 0;
    bool first = true;
    for (int64_t i = 0; i < n; i++)
        learned += labels[i] >= 0;
    if (!v->l->data.tokenizer || learned == n)
        return;
    tt_str_add(v->o, v->cli->json ? ",\"learned\":[" : "  learned");
    for (int64_t i = 0; i < n; i++) {
        tt_str text = {0};
        if (labels[i] < 0)
            continue;
        for (; i < n && labels[i] >= 0; i++)
            add_token_text(v, labels[i], &text);
        tt_str_add(v->o, !v->cli->json ? " " : first ? "" : ",");
        tt_str_json(v->o, tt_str_get(&text));
        tt_str_free(&text);
        first = false;
    }
    tt_str_add(v->o, v->cli->json ? "]" : "\n");
}

/* ---- the text of a sample in colours ---- */

typedef enum shade { TEMPLATE, MASKED, LEARNED, N_SHADES } shade;
static const char *const shades[N_SHADES] = {"\033[2m", "\033[36m", "\033[32m"};
static const char *const shade_names[N_SHADES] = {"template", "not learned", "learned"};

static bool has_colors(const view *v)
{
    const char *term = getenv("TERM"), *no = getenv("NO_COLOR");
    return !v->cli->json && isatty(STDOUT_FILENO) && term && *term && strcmp(term, "dumb") != 0 &&
           !(no && *no);
}

/* The bytes of one shade. Lines are indented; control characters and bytes that are not UTF-8 are escaped, because
 * a terminal would obey them. */
static void put_shaded(tt_str *o, shade of, const tt_str *text)
{
    const char *s = tt_str_get(text);
    if (!text->n)
        return;
    tt_str_add(o, shades[of]);
    for (size_t at = 0; at < text->n;) {
        size_t n = 1;
        while (n < 4 && at + n < text->n && ((unsigned char)s[at + n] & 0xc0) == 0x80)
            n++;
        if (s[at] == '\n')
            tt_str_add(o, "\n          ");
        else if (!tt_control_bytes(s + at, n) && tt_utf8_valid(s + at, n) == n)
            tt_str_addn(o, s + at, n);
        else
            tt_str_escaped(o, s + at, n);
        at += n;
    }
    tt_str_add(o, "\033[0m");
}

/* A token is learned if the label of the place before it is counted. Loaders that know where their text comes from
 * say what is the template's, and what is padding, which is left out. */
static shade shade_of(const tt_sample *x, const uint8_t *origins, int64_t i)
{
    if (i && x->labels[i - 1] >= 0 && x->labels[i - 1] == x->ids[i] && x->seg[i] == x->seg[i - 1])
        return LEARNED;
    return origins && origins[i] == TT_CHAT_TEMPLATE ? TEMPLATE : MASKED;
}

/* Adds a token to the text of shade *now, which is written if the token has another one. */
static void add_shaded(view *v, int32_t id, shade of, shade *now, tt_str *text)
{
    if (of != *now) {
        put_shaded(v->o, *now, text);
        tt_str_clear(text);
    }
    *now = of;
    add_token_text(v, id, text);
}

static tt_status put_colored(view *v, int64_t sample, const tt_sample *x, tt_error *err)
{
    const tt_dataloader_vt *vt = v->vt;
    const bool knows = TT_HAS(vt, tt_dataloader_vt, origins) && vt->origins;
    uint8_t *origins = knows ? malloc((size_t)x->seq_len) : NULL;
    tt_str text = {0};
    shade now = N_SHADES;
    if (knows && !origins)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a sample");
    if (origins)
        vt->origins(v->l->data.loader, sample, x->seq_len, origins);
    tt_str_add(v->o, "  colours");
    for (int k = origins ? TEMPLATE : MASKED; k < N_SHADES; k++)
        tt_str_printf(v->o, " %s%s\033[0m", shades[k], shade_names[k]);
    tt_str_add(v->o, "\n          ");
    for (int64_t i = 0; i < x->seq_len; i++) {
        if (origins && origins[i] == TT_ORIGIN_PADDING)
            continue;
        add_shaded(v, x->ids[i], shade_of(x, origins, i), &now, &text);
        if (x->labels[i] >= 0 && (i + 1 == x->seq_len || x->seg[i + 1] != x->seg[i]))
            add_shaded(v, x->labels[i], LEARNED, &now, &text); /* it has no place of its own */
    }
    put_shaded(v->o, now, &text);
    tt_str_addc(v->o, '\n');
    tt_str_free(&text);
    free(origins);
    return TT_OK;
}

/* Prints which source of a mixture sample g is from. */
static void put_source(view *v, int64_t g)
{
    const tt_mixture *m = v->l->data.loader;
    int i;
    int64_t epoch;
    const int64_t index = tt_mixture_find(m, g, &i, &epoch);
    if (v->cli->json)
        tt_str_printf(v->o, ",\"source\":%d,\"source_sample\":%lld,\"source_epoch\":%lld", i,
                      (long long)index, (long long)epoch);
    else
        tt_str_printf(v->o, "  from    mixture[%d] (%s), its sample %lld of epoch %lld\n", i,
                      m->sources[i].name, (long long)index, (long long)epoch);
}

static tt_status show_sample(view *v, int64_t i, int32_t *planes, tt_error *err)
{
    const int64_t n = v->s->core.training.seq_len;
    void *own[TT_MAX_INPUTS];
    tt_sample x = {sizeof x, n, planes, planes + n, planes + 2 * n, planes + 3 * n, own};
    for (int k = 0; k < v->s->inputs.n; k++)
        own[k] = memset(planes + (4 + k) * n, 0, (size_t)n * sizeof *planes);
    for (int64_t t = 0; t < n; t++) {
        x.pos[t] = (int32_t)t;
        x.seg[t] = 0;
    }
    TT_TRY(TT_PLUGIN_CALL(v->vt->read(v->l->data.loader, i, &x, err), err, "dataloader",
                          v->s->dataloader.name));
    tt_str_printf(v->o, v->cli->json ? "{\"sample\":%lld" : "sample %lld\n", (long long)i);
    if (tt_part_is_mixture(&v->s->dataloader))
        put_source(v, i);
    if (v->l->data.tokenizer && has_colors(v))
        TT_TRY(put_colored(v, i, &x, err));
    else
        put_decoded(v, x.ids, n);
    put_learned(v, x.labels, n);
    put_numbers(v, "ids", x.ids, n);
    put_numbers(v, "labels", x.labels, n);
    put_numbers(v, "pos", x.pos, n);
    put_numbers(v, "seg", x.seg, n);
    for (int k = 0; k < v->s->inputs.n_of_loader; k++) /* what the core computes is not there */
        put_input(v, &v->s->inputs.items[k], own[k], n);
    tt_str_add(v->o, v->cli->json ? "}" : "");
    return TT_OK;
}

static tt_status show(view *v, tt_error *err)
{
    double first = 0, n = 1;
    const int64_t all = v->vt->n_samples(v->l->data.loader);
    TT_TRY(tt_cli_number(v->cli, "sample", 0, 9e15, &first, err));
    TT_TRY(tt_cli_number(v->cli, "n", 1, 1e6, &n, err));
    if ((int64_t)first >= all)
        return TT_FAIL(err, TT_EINVAL, "--sample %lld: an epoch has samples 0 to %lld",
                       (long long)first, (long long)all - 1);
    int32_t *planes =
        calloc((size_t)v->s->core.training.seq_len, (4 + TT_MAX_INPUTS) * sizeof *planes);
    if (!planes)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for a sample");
    tt_str_add(v->o, v->cli->json ? "{" : "");
    put_loader(v, &v->s->dataloader, v->l->data.loader, v->s->core.training.seq_len);
    tt_str_add(v->o, v->cli->json ? ",\"samples\":[" : "");
    tt_status s = TT_OK;
    for (int64_t i = 0; s == TT_OK && i < TT_MIN((int64_t)n, all - (int64_t)first); i++) {
        tt_str_add(v->o, v->cli->json && i ? "," : "");
        s = show_sample(v, (int64_t)first + i, planes, err);
        if (!v->cli->json && s == TT_OK) {
            tt_cli_print_exact(v->o);
            tt_str_clear(v->o);
        }
    }
    tt_str_add(v->o, v->cli->json ? "]}\n" : "");
    free(planes);
    return s;
}

/* Opens the data as training does. If the job names a tokenizer, it is opened even if the data are
 * tokens already. */
static tt_status open_and(view *v, tt_status (*what)(view *, tt_error *), tt_error *err)
{
    TT_TRY(tt_loop_open_data(v->l, err));
    if (!v->l->data.tokenizer && tt_job_has(v->s->job, "tokenizer"))
        TT_TRY(tt_setup_tokenizer(v->s, &v->l->data.tokenizer, &v->l->data.tokenizer_info, err));
    return what(v, err);
}

static tt_status cmd_data_run(tt_cli *cli, tt_error *err)
{
    const char *verb = cli->n_words ? cli->words[0] : "";
    tt_status (*what)(view *, tt_error *) = !strcmp(verb, "build")  ? data_build
                                            : !strcmp(verb, "show") ? show
                                                                    : NULL;
    if (!what)
        return tt_cli_wrong_words(cli, &tt_cmd_data, err);
    if (what == data_build && (tt_cli_option(cli, "sample") || tt_cli_option(cli, "n")))
        return TT_FAIL(err, TT_EINVAL, "--sample and --n go with ttrun data show");
    tt_registry *r = NULL;
    tt_setup s;
    tt_str o = {0};
    TT_TRY(tt_cli_take_job(cli, 1, &tt_cmd_data, err));
    const tt_setup_opts so = {.spec = cli->spec, .mode = TT_MODE_TRAIN, .data = true};
    const tt_run_opts ro = {
        .verbose = cli->verbose, .progress = cli->verbose >= 0, .stop = tt_signals_stop};
    tt_status status = tt_cli_setup(cli, &so, &r, &s, err);
    if (status == TT_OK) {
        tt_loop l = {.s = &s, .o = &ro, .main = true};
        view v = {cli, &s, &l, s.dataloader.component->vtable, &o, NULL};
        tt_signals_install();
        status = open_and(&v, what, err);
        tt_loop_close_data(&l);
    }
    if (status == TT_OK)
        tt_cli_print_exact(&o);
    tt_str_free(&o);
    tt_registry_free(r);
    return status;
}

static const tt_cli_row rows[] = {
    TT_CLI_VALUE("sample", "I", "0", "first sample to show, in the order of the data",
                 .verb = "show"),
    TT_CLI_VALUE("n", "N", "1", "number of samples to show", .verb = "show"),
};
const tt_command tt_cmd_data = {.name = "data",
                                .forms = "build JOB.json|DIR\nshow JOB.json|DIR",
                                .doc = "tokenize a job's text into the cache; show samples of it",
                                .rows = rows,
                                .n_rows = TT_COUNT(rows),
                                .run = cmd_data_run,
                                .words = 2};
