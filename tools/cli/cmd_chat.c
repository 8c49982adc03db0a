/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/chat_model.h"
#include "cli/line_input.h"
#include "infer/decoder.h"
#include "infer/generate.h"
#include "launch/signals.h"
#include <string.h>
#include <unistd.h>

/* chat: a conversation with a model, in the terminal or line by line through a pipe. Each turn renders the whole
 * conversation with the model's chat template; where it begins with the tokens that the model's cache has, only the
 * others are computed. */

typedef struct conversation {
    tt_chat_model m;
    const char *system; /* or NULL */
    tt_str messages;    /* the members of the JSON list, with commas */
    tt_generate_opts o;
    int64_t context;
    tt_cache cache;
    tt_str answer;
    size_t printed; /* bytes of it: not those of a character that is not complete yet */
    tt_decoder decoder;
    bool terminal;
    uint64_t turn;
} conversation;

static const tt_tokenizer_vt *tokenizer_of(const conversation *c)
{
    return tt_chat_model_tokenizer(&c->m);
}

static tt_status read_options(const tt_cli *cli, conversation *c, tt_error *err)
{
    int64_t seed = 0;
    tt_generate_opts *o = &c->o;
    o->max_new = 1024;
    o->sampling = (tt_sampling){.temperature = 0.8, .top_p = 1};
    TT_TRY(tt_cli_integer(cli, "max-tokens", 1, 1 << 24, &o->max_new, err));
    TT_TRY(tt_cli_integer(cli, "context", 2, 1 << 24, &c->context, err));
    TT_TRY(tt_cli_number(cli, "temperature", 0, 100, &o->sampling.temperature, err));
    TT_TRY(tt_cli_integer(cli, "top-k", 0, INT32_MAX, &o->sampling.top_k, err));
    TT_TRY(tt_cli_number(cli, "top-p", 0, 1, &o->sampling.top_p, err));
    TT_TRY(tt_cli_integer(cli, "seed", 0, INT64_MAX, &seed, err));
    TT_TRY(tt_cli_cache(cli, &c->cache, err));
    o->sampling.seed = (uint64_t)seed;
    c->system = tt_cli_option(cli, "system");
    return TT_OK;
}

/* ---- messages ---- */

static void add_message(conversation *c, const char *role, const char *text)
{
    tt_str_add(&c->messages, c->messages.n ? "," : "");
    tt_str_printf(&c->messages, "{\"role\":\"%s\",\"content\":", role);
    tt_str_json(&c->messages, text);
    tt_str_addc(&c->messages, '}');
}

static void begin_anew(conversation *c)
{
    tt_str_clear(&c->messages);
    tt_engine_forget(c->o.engine);
    if (c->system)
        add_message(c, "system", c->system);
}

static tt_status encode_messages(const conversation *c, tt_chat_tokens *out, tt_error *err)
{
    tt_str list = {0};
    tt_str_printf(&list, "[%s]", tt_str_get(&c->messages));
    const tt_conversation x = {.struct_size = sizeof x,
                               .messages = list.s,
                               .n_messages = list.n,
                               .add_generation_prompt = 1};
    const tt_status s =
        tt_chat_encode(c->m.template, &x, tokenizer_of(c), c->m.model.tokenizer, out, err);
    tt_str_free(&list);
    return s;
}

/* ---- the model ---- */

static tt_status load(const tt_cli *cli, conversation *c, tt_error *err)
{
    tt_loaded_model *m = &c->m.model;
    TT_TRY(tt_chat_model_open(cli, true, &c->m, err));
    c->o.stop_ids = c->m.stops.ids;
    c->o.n_stop_ids = c->m.stops.n;
    tt_cli_decode d = {.context = c->context,
                       .otherwise = m->hf ? 4096 : m->setup.core.training.seq_len + c->o.max_new,
                       .at_once = 1,
                       .cache = c->cache};
    TT_TRY(tt_cli_load_decode(m, &d, err));
    c->context = d.context;
    const tt_engine_opts eo = {.exec = m->rank.exec,
                               .graph = m->setup.graph,
                               .pool = m->rank.pool,
                               .vocab = m->info.vocab_size,
                               .prompts_first = true};
    return tt_engine_open(&eo, &c->o.engine, err);
}

/* ---- a turn ---- */

static void print_whole(conversation *c, bool all)
{
    const char *from = tt_str_get(&c->answer) + c->printed;
    const size_t left = c->answer.n - c->printed, n = all ? left : tt_utf8_whole(from, left);
    fwrite(from, 1, n, stdout);
    fflush(stdout);
    c->printed += n;
}

static void on_token(void *user, size_t sequence, int32_t id)
{
    conversation *c = user;
    (void)sequence;
    tt_decoder_add(&c->decoder, id, &c->answer);
    print_whole(c, false);
}

static int answer_ends(void)
{
    return tt_signals_stop() || tt_signals_interrupted();
}

static tt_status answer(conversation *c, tt_error *err)
{
    tt_chat_tokens t = {0};
    TT_TRY(encode_messages(c, &t, err));
    tt_sequence s = {.prompt = t.ids, .n_prompt = (int64_t)t.n, .stream = c->turn++};
    tt_str_clear(&c->answer);
    c->printed = 0;
    c->decoder = tt_decoder_of(tokenizer_of(c), c->m.model.tokenizer, &c->m.model.info);
    tt_decoder_pass(&c->decoder, t.ids, t.n);
    c->o.on_token = on_token;
    c->o.user = c;
    c->o.stop = answer_ends;
    tt_status st =
        (int64_t)t.n < c->context
            ? tt_generate(&c->o, &s, 1, err)
            : TT_FAIL(err, TT_EINVAL,
                      "the conversation has %zu tokens, and --context is %lld: /reset begins anew",
                      t.n, (long long)c->context);
    if (st == TT_OK) {
        tt_log(TT_DEBUG, "infer", "turn %llu: %zu tokens of context, %lld of them from the cache",
               (unsigned long long)c->turn, t.n, (long long)s.n_cached);
        print_whole(c, true);
        puts(s.finish == TT_FINISH_CONTEXT ? " [the context is full: /reset begins anew]" : "");
        add_message(c, "assistant", tt_str_get(&c->answer));
    }
    tt_ids_free(&s.ids);
    tt_chat_tokens_free(&t);
    return st;
}

/* ---- lines ---- */

/* What a line does. False: the conversation ends. */
static bool say_message(conversation *c, const char *line, tt_status *s, tt_error *err)
{
    const size_t before = c->messages.n;
    add_message(c, "user", line);
    *s = answer(c, err);
    if (*s == TT_OK)
        return !tt_signals_stop();
    c->messages.n = before; /* the message is taken back */
    if (c->messages.s)
        c->messages.s[before] = '\0';
    return false;
}

static bool set_system(conversation *c, const char *text)
{
    c->system = *text ? tt_arena_str(c->m.model.setup.arena, text) : NULL;
    begin_anew(c);
    return true;
}

static bool reset(conversation *c, const char *text)
{
    (void)text;
    begin_anew(c);
    return true;
}

static bool quit(conversation *c, const char *text)
{
    (void)c;
    (void)text;
    return false;
}

static const struct {
    const char *name;
    bool (*run)(conversation *c, const char *text);
    bool takes_text;
} commands[] = {
    {"/quit",   quit,       false},
    {"/exit",   quit,       false},
    {"/reset",  reset,      false},
    {"/system", set_system, true },
};

/* A command is a slash and a word of letters, so a message may begin with a path. */
static size_t command_length(const char *line)
{
    size_t n = 1;
    if (*line != '/')
        return 0;
    while ((line[n] | 32) >= 'a' && (line[n] | 32) <= 'z')
        n++;
    return n > 1 && (!line[n] || line[n] == ' ') ? n : 0;
}

static bool take_line(conversation *c, const char *line, tt_status *s, tt_error *err)
{
    const size_t n = command_length(line);
    const char *text = line + n + strspn(line + n, " ");
    if (!n)
        return !*line || say_message(c, line, s, err);
    for (size_t i = 0; i < TT_COUNT(commands); i++)
        if (strlen(commands[i].name) == n && !strncmp(line, commands[i].name, n) &&
            (commands[i].takes_text || !*text))
            return commands[i].run(c, text);
    *s = TT_FAIL(
        err, TT_EINVAL,
        "%.60s: the commands are /quit, /reset and /system TEXT; a message that begins with "
        "/ has a space before it",
        line);
    return false;
}

static tt_status talk(conversation *c, tt_error *err)
{
    tt_status s = TT_OK;
    const char *line = "";
    bool goes_on = true;
    tt_line_input *in = tt_line_input_new(c->terminal);
    if (!in)
        return TT_FAIL(err, TT_ENOMEM, "out of memory for the lines of the conversation");
    if (c->terminal) {
        tt_signals_interrupts();
        fputs("/quit ends the conversation, /reset begins anew, /system TEXT sets the system "
              "message; Ctrl-C ends an answer\n",
              stderr);
    }
    while (goes_on) {
        const tt_line_end end = tt_line_input_next(in, &line);
        if (end == TT_LINE_END)
            break;
        goes_on = end == TT_LINE_INTERRUPTED || take_line(c, line, &s, err);
        if (c->terminal && s == TT_EINVAL) {
            fprintf(stderr, "%s\n", err->text);
            s = TT_OK;
            goes_on = true;
        }
    }
    tt_line_input_free(in);
    return s;
}

static tt_status cmd_chat_run(tt_cli *cli, tt_error *err)
{
    conversation c = {.terminal = isatty(STDIN_FILENO) != 0};
    tt_status s = read_options(cli, &c, err);
    if (s == TT_OK)
        s = load(cli, &c, err);
    if (s == TT_OK) {
        begin_anew(&c);
        tt_signals_install();
        s = talk(&c, err);
    }
    tt_engine_close(c.o.engine);
    tt_chat_model_close(&c.m);
    tt_str_free(&c.messages);
    tt_str_free(&c.answer);
    return s;
}

static const tt_cli_row rows[] = {
    TT_CLI_MODEL,
    TT_CLI_VALUE("template", "FILE", "the run's",
                 "chat template (Jinja), or chatml, which is built in", .takes = TT_TAKES_FILE),
    TT_CLI_VALUE("system", "TEXT", NULL, "system message"),
    TT_CLI_VALUE("context", "N", "the model's",
                 "tokens of a conversation, at most; config.json's, or seq_len + --max-tokens"),
    TT_CLI_VALUE("max-tokens", "N", "1024", "number of tokens per answer, at most"),
    TT_CLI_VALUE("temperature", "T", "0.8",
                 "divides the logits; 0 always takes the most likely token"),
    TT_CLI_VALUE("top-k", "K", "all", "sample from the K most likely tokens"),
    TT_CLI_VALUE("top-p", "P", "1",
                 "sample from the most likely tokens whose probabilities add up to P"),
    TT_CLI_VALUE("seed", "N", "0", "seed of the draws"),
    TT_CLI_CACHE,
};
const tt_command tt_cmd_chat = {.name = "chat",
                                .forms = "[DIR]",
                                .doc = "talk to a model; through a pipe, each line is a message",
                                .rows = rows,
                                .n_rows = TT_COUNT(rows),
                                .run = cmd_chat_run,
                                .words = 1};
