/* SPDX-License-Identifier: Apache-2.0 */
#include "base/reserve.h"
#include "cli/chat_model.h"
#include "launch/signals.h"
#include "serve/server.h"
#include <stdlib.h>
#include <string.h>
#include <ttrun/sockets.h>

/* serve: OpenAI's completions over HTTP, for lm-evaluation-harness and chat programs. */

/* What a request may take between two looks: a body's string of 16 MiB, and a template's texts of it. */
#define RESERVE ((size_t)128 << 20)

typedef struct serving {
    tt_chat_model m;
    const char *host, *key, *name;
    const char **origins; /* [n_origins] */
    size_t n_origins;
    int64_t port, context, at_once, most_wait;
    tt_cache cache;
    bool forgets, salted;
    tt_engine *engine;
    tt_tls *tls;
    tt_api *api;
    tt_str config;
} serving;

/* Takes the key out of the command line, where every user of the machine could read it. */
static const char *take_key(const tt_cli *cli)
{
    const char *given = tt_cli_option(cli, "api-key");
    if (!given)
        return getenv("TTRUN_API_KEY");
    const char *key = tt_arena_str(cli->arena, given);
    tt_log(
        TT_INFO, "serve",
        "--api-key could be read in the list of processes until now: TTRUN_API_KEY keeps the key "
        "out of it");
    for (size_t i = 0; i < cli->n_options; i++)
        if (!strcmp(cli->options[i].key, "api-key"))
            memset((char *)cli->options[i].value, 'x', strlen(cli->options[i].value));
    return key;
}

/* An origin as browsers send it: SCHEME://HOST[:PORT], or "*". */
static tt_status read_origins(const tt_cli *cli, serving *s, tt_error *err)
{
    s->origins = tt_arena_array(cli->arena, cli->n_options + 1, sizeof *s->origins);
    for (size_t i = 0; i < cli->n_options; i++) {
        const char *text = cli->options[i].value, *host;
        if (strcmp(cli->options[i].key, "allow-origin") != 0)
            continue;
        host = strstr(text, "://");
        if (strcmp(text, "*") != 0 &&
            (!host || host == text || !host[3] || strpbrk(host + 3, "/ \r\n")))
            return TT_FAIL(err, TT_EINVAL,
                           "--allow-origin %s: give \"*\", or an origin such as "
                           "https://chat.example.org",
                           text);
        s->origins[s->n_origins++] = text;
    }
    return TT_OK;
}

static tt_status read_options(const tt_cli *cli, serving *s, tt_error *err)
{
    const char *host = tt_cli_option(cli, "host");
    s->host = host ? host : "127.0.0.1";
    s->key = take_key(cli);
    s->port = 8000;
    s->at_once = TT_ENGINE_AT_ONCE;
    s->most_wait = 4096;
    TT_TRY(tt_cli_integer(cli, "port", 0, 65535, &s->port, err));
    TT_TRY(tt_cli_integer(cli, "context", 2, 1 << 24, &s->context, err));
    TT_TRY(tt_cli_integer(cli, "batch", 1, TT_ENGINE_AT_ONCE, &s->at_once, err));
    TT_TRY(tt_cli_integer(cli, "queue", 1, 1 << 20, &s->most_wait, err));
    TT_TRY(tt_cli_cache(cli, &s->cache, err));
    TT_TRY(read_origins(cli, s, err));
    s->forgets = tt_cli_option(cli, "no-prefix-cache") != NULL;
    s->salted = tt_cli_option(cli, "salted-prefix-cache") != NULL;
    if (s->key && !*s->key)
        s->key = NULL;
    if (!tt_socket_is_loopback(s->host) && !s->key)
        return TT_FAIL(err, TT_EINVAL,
                       "--host %s: other machines would reach the model without a key: give "
                       "--api-key or TTRUN_API_KEY",
                       s->host);
    const char *cert = tt_cli_option(cli, "tls-cert"), *key = tt_cli_option(cli, "tls-key");
    if (!cert != !key)
        return TT_FAIL(err, TT_EINVAL, "--tls-cert and --tls-key belong together: --%s is missing",
                       cert ? "tls-key" : "tls-cert");
    return cert ? tt_tls_open(cert, key, &s->tls, err) : TT_OK;
}

/* The model's name: that of its folder, or --name. */
static const char *served_name(const tt_cli *cli, const tt_loaded_model *m)
{
    const char *given = tt_cli_option(cli, "name"), *path = m->run ? m->run : m->path;
    if (given)
        return given;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t begin = n;
    while (begin > 0 && path[begin - 1] != '/')
        begin--;
    return tt_arena_printf(cli->arena, "%.*s", (int)(n - begin), path + begin);
}

static tt_status load_served(const tt_cli *cli, serving *s, tt_error *err)
{
    tt_loaded_model *m = &s->m.model;
    TT_TRY(tt_chat_model_open(cli, false, &s->m, err));
    tt_cli_decode d = {.context = s->context,
                       .otherwise =
                           m->hf ? 4096 : TT_MAXV(m->setup.core.training.seq_len, (int64_t)2048),
                       .at_once = s->at_once,
                       .fixed = tt_cli_option(cli, "batch") != NULL,
                       .scored = true,
                       .cache = s->cache};
    TT_TRY(tt_cli_load_decode(m, &d, err));
    s->context = d.context;
    s->at_once = d.at_once;
    if (!m->setup.graph->slots)
        return TT_FAIL(err, TT_EUNSUPPORTED,
                       "serve: the model has an op without an incremental form, so that it has no "
                       "cache; ttrun generate takes it");
    return TT_OK;
}

static void add_token(const serving *s, const char *name, int32_t id, tt_str *o)
{
    const tt_tokenizer_vt *vt = tt_chat_model_tokenizer(&s->m);
    tt_special special = {.struct_size = sizeof special};
    tt_str_printf(o, ",\"%s\":", name);
    for (size_t i = 0; id >= 0 && TT_HAS(vt, tt_tokenizer_vt, special) && vt->special &&
                       vt->special(s->m.model.tokenizer, i, &special);
         i++)
        if (special.id == id) {
            tt_str text = {0};
            tt_str_addn(&text, special.text.s, special.text.n);
            tt_str_json(o, tt_str_get(&text));
            tt_str_free(&text);
            return;
        }
    tt_str_add(o, "null");
}

/* What /tokenizer_info says: as vLLM's, the keys of tokenizer_config.json that matter to clients. */
static void describe_tokenizer(serving *s)
{
    const tt_loaded_model *m = &s->m.model;
    tt_str_printf(&s->config,
                  "{\"tokenizer_class\":\"ttrun\",\"vocab_size\":%lld,"
                  "\"model_max_length\":%lld",
                  (long long)m->info.vocab_size, (long long)s->context);
    if (m->tokenizer) {
        add_token(s, "bos_token", m->info.bos, &s->config);
        add_token(s, "eos_token", m->info.eos, &s->config);
        add_token(s, "pad_token", m->info.pad, &s->config);
    }
    tt_str_add(&s->config, ",\"chat_template\":");
    if (s->m.template_text)
        tt_str_json(&s->config, s->m.template_text);
    else
        tt_str_add(&s->config, "null");
    tt_str_add(&s->config, "}\n");
}

static void ready(void *user, const char *url)
{
    const serving *s = user;
    tt_log(TT_INFO, "serve", "%s at %s/v1; %lld texts at once, of %lld tokens at most; %s", s->name,
           url, (long long)s->at_once, (long long)s->context,
           s->key ? "clients need the key" : "no key");
}

static tt_status serve(const tt_cli *cli, serving *s, tt_error *err)
{
    tt_loaded_model *m = &s->m.model;
    s->name = served_name(cli, m);
    describe_tokenizer(s);
    const tt_engine_opts eo = {.exec = m->rank.exec,
                               .graph = m->setup.graph,
                               .pool = m->rank.pool,
                               .vocab = m->tokenizer ? m->info.vocab_size : tt_cli_model_vocab(m),
                               .forgets = s->forgets};
    TT_TRY(tt_engine_open(&eo, &s->engine, err));
    const tt_api_opts o = {.model = s->name,
                           .engine = s->engine,
                           .context = s->context,
                           .vt = m->tokenizer ? tt_chat_model_tokenizer(&s->m) : NULL,
                           .tokenizer = m->tokenizer,
                           .info = m->info,
                           .tokenizer_config = tt_str_get(&s->config),
                           .template = s->m.template,
                           .stop_ids = s->m.text_stops.ids,
                           .n_stop_ids = s->m.text_stops.n,
                           .chat_stop_ids = s->m.stops.ids,
                           .n_chat_stop_ids = s->m.stops.n,
                           .most_wait = (size_t)s->most_wait,
                           .salted = s->salted,
                           .key = s->key,
                           .host = s->host,
                           .origins = s->origins,
                           .n_origins = s->n_origins};
    s->api = tt_api_open(&o);
    const tt_server_opts so = {.host = s->host,
                               .port = (int)s->port,
                               .tls = s->tls,
                               .api = s->api,
                               .engine = s->engine,
                               .stop = tt_signals_stop,
                               .ready = ready,
                               .user = s};
    tt_signals_install();
    TT_TRY(tt_reserve_open(RESERVE, err));
    return tt_server_run(&so, err);
}

static tt_status cmd_serve_run(tt_cli *cli, tt_error *err)
{
    serving s = {0};
    tt_status st = read_options(cli, &s, err);
    if (st == TT_OK)
        st = load_served(cli, &s, err);
    if (st == TT_OK)
        st = serve(cli, &s, err);
    tt_reserve_close();
    tt_api_close(s.api);
    tt_tls_close(s.tls);
    tt_engine_close(s.engine);
    tt_chat_model_close(&s.m);
    tt_str_free(&s.config);
    return st;
}

static const tt_cli_row rows[] = {
    TT_CLI_MODEL,
    TT_CLI_VALUE("host", "ADDRESS", "127.0.0.1",
                 "address to listen at; one that other machines reach needs a key"),
    TT_CLI_VALUE("port", "N", "8000", "port to listen at; 0: any that is free"),
    TT_CLI_VALUE("api-key", "KEY", "$TTRUN_API_KEY, or none",
                 "what clients must send: Authorization: Bearer KEY"),
    TT_CLI_VALUE(
        "tls-cert", "FILE", "none: plain HTTP",
        "certificate (PEM, with those between it and a known one): HTTPS, TLS 1.2 or later",
        .takes = TT_TAKES_FILE),
    TT_CLI_VALUE("tls-key", "FILE", NULL, "its private key (PEM), which other users cannot read",
                 .takes = TT_TAKES_FILE),
    TT_CLI_VALUE("allow-origin", "ORIGIN", "none",
                 "pages that may ask and read answers: https://chat.example.org, or * for all",
                 .flags = TT_CLI_REPEATED),
    TT_CLI_VALUE("name", "NAME", "the folder's", "name of the model in answers"),
    TT_CLI_VALUE("template", "FILE", "the run's",
                 "chat template (Jinja), or chatml, which is built in", .takes = TT_TAKES_FILE),
    TT_CLI_VALUE("context", "N", "the model's",
                 "tokens of a text, at most; config.json's, or seq_len, at least 2048"),
    TT_CLI_VALUE("batch", "N", "16",
                 "texts that are computed at once, at most 16; without it fewer where memory is "
                 "short"),
    TT_CLI_VALUE("queue", "N", "4096", "texts that may wait; more are refused with status 503"),
    TT_CLI_CACHE,
    TT_CLI_FLAG("no-prefix-cache",
                "compute each prompt whole, also the tokens that an earlier one began with"),
    TT_CLI_FLAG("salted-prefix-cache",
                "share what prompts begin with only among requests with the same cache_salt, so "
                "that no client learns what others have asked"),
};
const tt_command tt_cmd_serve = {.name = "serve",
                                 .forms = "[DIR]",
                                 .doc = "serve a model over HTTP: OpenAI's completions and chat",
                                 .rows = rows,
                                 .n_rows = TT_COUNT(rows),
                                 .run = cmd_serve_run,
                                 .words = 1};
