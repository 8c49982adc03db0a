/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "chat_formats.h"
#include "chat_pack.h"
#include "chat_pairs.h"
#include "lines.h"
#include "rows.h"
#include <stdio.h>
#include <time.h>
#include <ttrun/chat.h>
#include <ttrun/corpus.h>
#include <ttrun/log.h>

/* chat: files of conversations: on lines of JSON or in a list (also .gz and .zst), or in rows (Parquet). Each becomes tokens by a chat template;
 * labels are the tokens of the assistant, of others -100. A sample is one conversation, or a preference pair, and
 * padding, or, packed, several that do not see each other. All tokens are in memory. */

typedef struct {
    tt_strings path;
    const char *format, *template, *loss_on, *truncation, *packing;
    const char *messages_field, *role_field, *content_field, *prompt_field, *completion_field,
        *rejected_field, *system_field;
    bool pairs;
} config;

#define FIELD(name, doc)                                                                           \
    TT_OPTION_MORE(config, name, TT_OPT_STRING, "null", 0, 0, NULL, TT_OPT_NULLABLE, NULL, doc)

static const tt_option options[] = {
    TT_OPTION_MORE(config, path, TT_OPT_STRINGS, "[]", 0, 0, NULL, TT_OPT_PATH, NULL,
                   "files and globs of JSON (objects on lines, or one list of them) and Parquet, "
                   "also .gz and .zst; a conversation per object or row"),
    TT_OPTION_MORE(config, format, TT_OPT_ENUM, "\"auto\"", 0, 0,
                   "auto|messages|sharegpt|alpaca|prompt_completion|preference", 0, NULL,
                   "what a line is: messages {role, content}; ShareGPT's conversations {from, "
                   "value}; Alpaca's "
                   "instruction, input, output; prompt and completion; of preference pairs the "
                   "chosen answer; auto: "
                   "by the keys of each line"),
    TT_OPTION(
        config, pairs, TT_OPT_BOOL, "false", 0, 0,
        "a sample is a preference pair: prompt with chosen and with rejected, each strings or "
        "messages, for losses such as dpo; the answers alone are learned. Adds the inputs "
        "pair_sign, pair_weight and pair_index"),
    TT_OPTION_MORE(config, template, TT_OPT_STRING, "null", 0, 0, NULL,
                   TT_OPT_NULLABLE | TT_OPT_PATH, NULL,
                   "file with the chat template (Jinja), or chatml, which is built in; null: that "
                   "of the tokenizer's folder "
                   "(chat_template.jinja, "
                   "tokenizer_config.json)"),
    TT_OPTION_MORE(config, loss_on, TT_OPT_ENUM, "\"assistant\"", 0, 0, "assistant|last|all", 0,
                   NULL,
                   "tokens that are learned: all turns of the assistant (where the prompt stands "
                   "apart, those of the answer), its last turn, or every token"),
    TT_OPTION_MORE(config, truncation, TT_OPT_ENUM, "\"right\"", 0, 0, "right|left|drop|error", 0,
                   NULL,
                   "of a conversation that is longer than seq_len: right keeps its beginning, left "
                   "its end, drop leaves "
                   "it out"),
    TT_OPTION_MORE(config, packing, TT_OPT_ENUM, "\"none\"", 0, 0, "none|best_fit", 0, NULL,
                   "best_fit: several conversations, or pairs, share a sample, kept apart; none: "
                   "one per sample"),
    FIELD(messages_field, "key of the list of messages; null: the format's"),
    FIELD(role_field, "key of a message's role; null: the format's"),
    FIELD(content_field, "key of a message's text; null: the format's"),
    FIELD(prompt_field, "key of the prompt or instruction; null: the format's"),
    FIELD(completion_field, "key of the answer, of pairs the chosen one; null: the format's"),
    FIELD(rejected_field, "key of the rejected answer; null: rejected"),
    FIELD(system_field, "key of a system message beside the conversation; null: system"),
};

typedef struct loader {
    tt_chat_tokens tokens; /* of all conversations */
    chat_doc *docs;
    int64_t n_docs, cap_docs, n_samples, seq_len, files, dropped, cut, bytes;
    int64_t rejected;      /* records with an answer that is not used */
    int64_t textless;      /* parts of contents without text */
    int64_t *order, *bins; /* packed: see chat_pack; else NULL */
    int32_t pad;
    int per; /* documents of an item: 1, or 2 of a pair; item i begins with document per * i */
    char note[160];
} loader;

typedef struct reading {
    const config *c;
    const tt_dataloader_env *env;
    tt_chat_template *template;
    chat_format format;
    tt_chat_loss loss_on;
    chat_fields fields;
    loader *to;
    double now;
} reading;

static void close_chat(void *self)
{
    loader *l = self;
    if (!l)
        return;
    tt_chat_tokens_free(&l->tokens);
    free(l->docs);
    free(l->order);
    free(l->bins);
    free(l);
}

/* ---- a conversation ---- */

static bool is_learned(const loader *l, int64_t begin, int64_t end)
{
    for (int64_t i = begin; i < end; i++)
        if (l->tokens.origins[i] == TT_CHAT_GENERATED)
            return true;
    return false;
}

static tt_status add_doc(loader *l, int64_t at, int64_t n, tt_error *err)
{
    if (l->n_docs == l->cap_docs) {
        const int64_t cap = 2 * l->cap_docs + 256;
        chat_doc *grown = realloc(l->docs, (size_t)cap * sizeof *grown);
        if (!grown)
            return TT_FAIL(err, TT_ENOMEM, "out of memory for %lld conversations", (long long)cap);
        l->docs = grown;
        l->cap_docs = cap;
    }
    l->docs[l->n_docs++] = (chat_doc){at, (int32_t)n};
    return TT_OK;
}

typedef struct piece { /* of the loader's tokens */
    int64_t begin, n;
    bool left_out; /* its messages say that some are not to be learned */
} piece;

/* Cuts a conversation of more than `most` tokens. *left: whether a token to learn is left, and it is not to be
 * dropped. */
static tt_status chat_fit(const reading *r, piece *p, int64_t most, bool *left, tt_error *err)
{
    loader *l = r->to;
    const int64_t at = p->begin, n = p->n;
    *left = !p->left_out || is_learned(l, at + 1, at + n);
    if (!*left)
        return TT_OK;
    if (!is_learned(l, at + 1, at + n))
        return TT_FAIL(err, TT_EINVAL,
                       "no token of this conversation would be learned: it has no message of role "
                       "assistant, or the "
                       "template does not print it");
    if (n > most && !strcmp(r->c->truncation, "error"))
        return TT_FAIL(err, TT_EINVAL,
                       "%lld tokens, more than %s (%lld); dataloader.truncation cuts or drops it",
                       (long long)n,
                       r->c->pairs ? "training.seq_len leaves to this half of a pair"
                                   : "training.seq_len + 1",
                       (long long)most);
    if (n > most) {
        p->begin = !strcmp(r->c->truncation, "left") ? at + n - most : at;
        p->n = most;
        *left = strcmp(r->c->truncation, "drop") && is_learned(l, p->begin + 1, p->begin + most);
    }
    for (int64_t i = p->begin; i < p->begin + p->n; i++)
        if (l->tokens.ids[i] >= r->env->vocab_size)
            return TT_FAIL(err, TT_EINVAL, "token %d is outside the model's vocabulary of %lld",
                           (int)l->tokens.ids[i], (long long)r->env->vocab_size);
    return TT_OK;
}

/* The tokens from `at` on are those of n conversations, which are kept or dropped together; k tokens give k - 1
 * places with labels. */
static tt_status keep(const reading *r, int64_t at, piece *p, const int64_t *most, int n,
                      tt_error *err)
{
    loader *l = r->to;
    bool left = true, cut = false;
    for (int i = 0; i < n; i++) {
        bool some = false;
        cut = cut || p[i].n > most[i];
        TT_TRY(chat_fit(r, &p[i], most[i], &some, err));
        left = left && some;
    }
    l->cut += cut;
    if (!left) {
        l->dropped++;
        l->tokens.n = (size_t)at;
        return TT_OK;
    }
    for (int i = 0; i < n; i++)
        TT_TRY(add_doc(l, p[i].begin, p[i].n, err));
    return TT_OK;
}

/* Appends the tokens of a conversation. */
static tt_status encode(const reading *r, const json_t *messages, const json_t *variables,
                        size_t learned_from, piece *out, tt_error *err)
{
    TT_TRY(read_weights(messages, &out->left_out, err));
    char *text = chat_dump(messages), *more = variables ? chat_dump(variables) : NULL;
    const tt_conversation c = {.struct_size = sizeof c,
                               .messages = text,
                               .n_messages = text ? strlen(text) : 0,
                               .variables = more,
                               .loss_on = r->loss_on,
                               .now = r->now,
                               .learned_from = (int64_t)learned_from,
                               .textless = &r->to->textless};
    out->begin = (int64_t)r->to->tokens.n;
    const tt_status s = text ? tt_chat_encode(r->template, &c, r->env->tokenizer,
                                              r->env->tokenizer_self, &r->to->tokens, err)
                             : TT_FAIL(err, TT_ENOMEM, "out of memory for a conversation");
    out->n = (int64_t)r->to->tokens.n - out->begin;
    free(text);
    free(more);
    return s;
}

static tt_status add_one(const reading *r, const json_t *record, tt_error *err)
{
    json_t *messages = NULL, *variables = NULL;
    const int64_t at = (int64_t)r->to->tokens.n, most = r->to->seq_len + 1;
    size_t prompt;
    piece p;
    TT_TRY(chat_messages(record, r->format, &r->fields, &messages, &variables, &prompt, err));
    r->to->rejected += has(record, field(r->c->rejected_field, "rejected"));
    const tt_status s = encode(r, messages, variables, prompt, &p, err);
    json_decref(messages);
    json_decref(variables);
    return s == TT_OK ? keep(r, at, &p, &most, 1, err) : s;
}

/* What both conversations of a pair begin with is not learned. */
static tt_status encode_pair(const reading *r, json_t *const *messages, const json_t *variables,
                             piece *p, tt_error *err)
{
    const size_t common = common_messages(messages[0], messages[1]);
    TT_TRY(encode(r, messages[0], variables, common, &p[0], err));
    return encode(r, messages[1], variables, common, &p[1], err);
}

static tt_status add_pair(const reading *r, const json_t *record, tt_error *err)
{
    json_t *messages[2] = {NULL, NULL}, *variables = NULL, *same = NULL;
    const int64_t at = (int64_t)r->to->tokens.n;
    chat_fields other = r->fields;
    piece p[2];
    int64_t most[2];
    size_t prompt; /* both begin with it */
    other.completion = field(r->c->rejected_field, "rejected");
    TT_TRY(
        chat_messages(record, CHAT_PREFERENCE, &r->fields, &messages[0], &variables, &prompt, err));
    tt_status s = chat_messages(record, CHAT_PREFERENCE, &other, &messages[1], &same, &prompt, err);
    if (s == TT_OK)
        s = encode_pair(r, messages, variables, p, err);
    json_decref(messages[0]);
    json_decref(messages[1]);
    json_decref(variables);
    json_decref(same);
    if (s != TT_OK)
        return s;
    pair_room(r->to->seq_len, p[0].n, p[1].n, &most[0], &most[1]);
    return keep(r, at, p, most, 2, err);
}

static tt_status add_record(const reading *r, const json_t *record, tt_error *err)
{
    return r->c->pairs ? add_pair(r, record, err) : add_one(r, record, err);
}

static tt_status add_line(const reading *r, const char *line, size_t n, bool row, tt_error *err)
{
    json_error_t why = {.text = "out of memory"};
    json_t *record = chat_parse(line, n, &why);
    if (row)
        drop_nulls(record);
    drop_nan(record);
    if (!record)
        return TT_FAIL(err, TT_EINVAL, "not JSON: %s at byte %d of the row", why.text,
                       why.position);
    const tt_status s = add_record(r, record, err);
    json_decref(record);
    return s;
}

/* ---- files ---- */

static bool is_stopped(const reading *r, int64_t number)
{
    return number % 64 == 0 && r->env->stop && r->env->stop(r->env->stop_user);
}

static tt_status read_records(const reading *r, unpack *u, tt_error *err)
{
    row_buffer in = {0};
    const char *row = NULL;
    size_t n = 0;
    tt_status s;
    int64_t number = 0;
    row_begin(&in);
    do {
        s = next_row(&in, u, &row, &n, err);
        if (s == TT_OK && is_stopped(r, ++number))
            s = TT_FAIL(err, TT_ESIGNAL, "stopped");
        if (s == TT_OK && row && !blank(row, n))
            s = add_line(r, row, n, false, err);
    } while (s == TT_OK && row);
    if (s != TT_OK && s != TT_ESIGNAL)
        row_context(&in, u, err);
    r->to->bytes += u->in.size;
    free(in.bytes);
    return s;
}

static tt_status add_parquet_row(const void *user, const char *row, size_t n, int64_t number,
                                 int64_t taken, tt_error *err)
{
    const reading *r = user;
    (void)taken;
    return is_stopped(r, number) ? TT_FAIL(err, TT_ESIGNAL, "stopped")
                                 : add_line(r, row, n, true, err);
}

/* Of a file's columns those are read that a record may have. */
static tt_status read_parquet(const reading *r, const char *path, tt_error *err)
{
    const chat_fields *f = &r->fields;
    const char *const columns[] = {field(f->messages, "messages"),
                                   "conversations",
                                   field(f->prompt, "prompt"),
                                   "instruction",
                                   "input",
                                   "history",
                                   field(f->completion, "completion"),
                                   "output",
                                   "chosen",
                                   field(r->c->rejected_field, "rejected"),
                                   field(f->system, "system"),
                                   "tools",
                                   "chat_template_kwargs"};
    int64_t bytes;
    const tt_status s = read_file_rows(path, columns, sizeof columns / sizeof *columns,
                                       add_parquet_row, r, &bytes, err);
    r->to->bytes += bytes;
    return s;
}

static tt_status read_file(const reading *r, const char *path, tt_error *err)
{
    unpack u;
    if (tt_parquet_is(path))
        return read_parquet(r, path, err);
    TT_TRY(unpack_open(path, r->env, &u, err));
    const tt_status s = read_records(r, &u, err);
    unpack_close(&u);
    return s;
}

static tt_status read_files(const reading *r, tt_error *err)
{
    tt_files files = {0};
    TT_TRY(tt_files_find(&r->c->path, r->env->job_dir, "corpus/chats.jsonl", &files, err));
    tt_status s = TT_OK;
    for (size_t i = 0; s == TT_OK && i < files.n; i++) {
        if (r->env->progress)
            r->env->progress(r->env->progress_user, "conversations", (double)i / (double)files.n);
        s = read_file(r, files.items[i], err);
    }
    r->to->files = (int64_t)files.n;
    tt_files_free(&files);
    return s;
}

/* The places that an item takes. */
static int64_t places_of(const loader *l, int64_t item)
{
    int64_t n = 0;
    for (int64_t k = item * l->per; k < (item + 1) * l->per; k++)
        n += l->docs[k].n - 1;
    return n;
}

static tt_status pack(loader *l, tt_error *err)
{
    const int64_t n = l->n_docs / l->per;
    chat_doc *items = malloc((size_t)n * sizeof *items);
    if (!items)
        return TT_FAIL(err, TT_ENOMEM, "out of memory to pack %lld conversations", (long long)n);
    for (int64_t i = 0; i < n; i++)
        items[i] = (chat_doc){0, (int32_t)places_of(l, i)};
    const tt_status s = chat_pack(items, n, l->seq_len, &l->order, &l->bins, &l->n_samples, err);
    free(items);
    return s;
}

static tt_status finish_loader(const reading *r, tt_error *err)
{
    loader *l = r->to;
    const tt_tokenizer_vt *vt = r->env->tokenizer;
    tt_tokenizer_info info = {.struct_size = sizeof info, .pad = -1};
    if (l->n_docs == 0)
        return TT_FAIL(err, TT_EINVAL, "dataloader.path: no conversation is left%s",
                       l->dropped ? ": all are longer than training.seq_len, or have no token to "
                                    "learn in what is kept of them"
                                  : "");
    if (l->textless)
        tt_log(TT_WARN, "data",
               "%lld parts of messages have no text (such as images): the model does not see them",
               (long long)l->textless);
    vt->info(r->env->tokenizer_self, &info);
    l->pad = info.pad >= 0 && info.pad < r->env->vocab_size ? info.pad : 0;
    l->n_samples = l->n_docs / l->per;
    snprintf(l->note, sizeof l->note, "%s are not cached; %lld were cut, %lld left out",
             l->per > 1 ? "preference pairs" : "conversations", (long long)l->cut,
             (long long)l->dropped);
    if (l->rejected)
        tt_log(TT_WARN, "data",
               "dataloader.pairs is false: %lld of the conversations have a rejected answer, too, "
               "which is not used; the loss dpo needs \"pairs\": true",
               (long long)l->rejected);
    return strcmp(r->c->packing, "best_fit") ? TT_OK : pack(l, err);
}

static int choice(const char *value, const char *const *words)
{
    int i = 0;
    while (words[i] && strcmp(words[i], value) != 0)
        i++;
    return i;
}

static tt_status open_template(const config *c, const tt_dataloader_env *env,
                               tt_chat_template **out, tt_error *err)
{
    const char *own = TT_HAS(env, tt_dataloader_env, tokenizer_path) ? env->tokenizer_path : NULL;
    if (!c->template && !own)
        return TT_FAIL(err, TT_EINVAL,
                       "dataloader.template: the tokenizer has no folder with a chat template; "
                       "name a file of Jinja");
    const tt_status s = tt_chat_template_open_for(c->template ? c->template : own, own, out, err);
    return s == TT_OK ? s : tt_error_context(err, "dataloader.template");
}

static tt_status open_chat(const void *cfg, const tt_dataloader_env *env, void **self,
                           tt_error *err)
{
    static const char *const formats[] = {
        "auto", "messages", "sharegpt", "alpaca", "prompt_completion", "preference", NULL};
    static const char *const losses[] = {"assistant", "last", "all", NULL};
    const config *c = cfg;
    reading r = {
        .c = c,
        .env = env,
        .format = (chat_format)choice(c->format, formats),
        .loss_on = (tt_chat_loss)choice(c->loss_on, losses),
        .fields = {c->messages_field, c->role_field, c->content_field, c->prompt_field,
                   c->completion_field, c->system_field},
        .now = (double)time(NULL)
    };
    if (c->pairs)
        TT_TRY(check_pairs(c->format, c->loss_on, err));
    TT_TRY(open_template(c, env, &r.template, err));
    r.to = calloc(1, sizeof *r.to);
    tt_status s = r.to ? TT_OK : TT_FAIL(err, TT_ENOMEM, "out of memory for a loader");
    if (s == TT_OK) {
        r.to->seq_len = env->seq_len;
        r.to->per = c->pairs ? 2 : 1;
        s = read_files(&r, err);
    }
    if (s == TT_OK)
        s = finish_loader(&r, err);
    tt_chat_template_close(r.template);
    if (s == TT_OK)
        *self = r.to;
    else
        close_chat(r.to);
    return s;
}

/* ---- samples ---- */

static int64_t n_samples(void *self)
{
    return ((loader *)self)->n_samples;
}

/* Puts a conversation at place `at`; returns how many places it takes. */
static int64_t put_doc(const loader *l, int64_t doc, tt_sample *out, int64_t at, int32_t seg)
{
    const chat_doc *d = &l->docs[doc];
    const int32_t *ids = l->tokens.ids + d->at;
    const uint8_t *origins = l->tokens.origins + d->at;
    for (int32_t i = 0; i + 1 < d->n; i++) {
        out->ids[at + i] = ids[i];
        out->labels[at + i] = origins[i + 1] == TT_CHAT_GENERATED ? ids[i + 1] : -100;
        out->pos[at + i] = i;
        out->seg[at + i] = seg;
    }
    return d->n - 1;
}

/* Puts item `number` of a sample at place `at`; returns the place behind it. */
static int64_t put_item(const loader *l, int64_t item, tt_sample *out, int64_t at, int32_t number)
{
    if (l->per == 1)
        return at + put_doc(l, item, out, at, number);
    const int64_t middle = at + put_doc(l, 2 * item, out, at, 2 * number),
                  end = middle + put_doc(l, 2 * item + 1, out, middle, 2 * number + 1),
                  first = mark_answer(out, at, middle, 1);
    mark_answer(out, middle, end, -1);
    ((float *)out->inputs[PAIR_WEIGHT])[first] = 1;
    for (int64_t i = at; i < end; i++)
        ((int32_t *)out->inputs[PAIR_INDEX])[i] = number;
    return end;
}

/* The items of a sample: count of them, in l->order from `first` on if they are packed. */
static int64_t items_of(const loader *l, int64_t sample, int64_t *first)
{
    *first = l->bins ? l->bins[sample] : sample;
    return l->bins ? l->bins[sample + 1] - *first : 1;
}

static int64_t item_at(const loader *l, int64_t k)
{
    return l->bins ? l->order[k] : k;
}

static tt_status read_sample(void *self, int64_t i, tt_sample *out, tt_error *err)
{
    const loader *l = self;
    int64_t at = 0, first = 0;
    const int64_t n = items_of(l, i, &first);
    (void)err;
    for (int64_t k = 0; k < n; k++)
        at = put_item(l, item_at(l, first + k), out, at, (int32_t)k);
    for (int32_t k = 0; at < out->seq_len; at++, k++) {
        out->ids[at] = l->pad;
        out->labels[at] = -100;
        out->pos[at] = k;
        out->seg[at] = (int32_t)n * l->per;
    }
    return TT_OK;
}

static void origins_chat(void *self, int64_t i, int64_t seq_len, uint8_t *out)
{
    const loader *l = self;
    int64_t at = 0, first = 0;
    const int64_t n = items_of(l, i, &first) * l->per;
    for (int64_t k = 0; k < n; k++) {
        const chat_doc *d = &l->docs[item_at(l, first + k / l->per) * l->per + k % l->per];
        memcpy(out + at, l->tokens.origins + d->at, (size_t)(d->n - 1));
        at += d->n - 1;
    }
    memset(out + at, TT_ORIGIN_PADDING, (size_t)(seq_len - at));
}

static void info_chat(void *self, tt_dataloader_info *out)
{
    const loader *l = self;
    int64_t tokens = 0;
    for (int64_t i = 0; i < l->n_docs; i++)
        tokens += l->docs[i].n;
    out->files = l->files;
    out->documents = l->n_docs;
    out->tokens = tokens;
    out->text_bytes = l->bytes;
    out->cache = NULL;
    out->note = l->note;
    if (TT_HAS(out, tt_dataloader_info, padding))
        out->padding = l->n_samples * l->seq_len - (tokens - l->n_docs);
}

static int inputs_chat(const void *cfg, tt_input_info *out)
{
    return ((const config *)cfg)->pairs ? pair_inputs(out) : 0;
}

static const tt_dataloader_vt vt = {.struct_size = sizeof vt,
                                    .open = open_chat,
                                    .close = close_chat,
                                    .n_samples = n_samples,
                                    .read = read_sample,
                                    .needs_tokenizer = 1,
                                    .info = info_chat,
                                    .inputs = inputs_chat,
                                    .samples_are_whole = 1,
                                    .origins = origins_chat};

static const tt_component components[] = {
    TT_COMPONENT(TT_KIND_DATALOADER, "chat",
                 "conversations by a chat template, with losses on the assistant's turns", config,
                 options, &vt),
};

TT_PLUGIN("chat", "1.0", components);
