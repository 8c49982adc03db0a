/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SERVE_API_H
#define TT_SERVE_API_H
#include "infer/engine.h"
#include "serve/http.h"
#include <ttrun/chat.h>

/* The functions of a model server, as OpenAI's API and vLLM's have them: what a request asks for, and its answer.
 *   GET  /health, /v1/models, /v1/models/MODEL, /tokenizer_info, /metrics
 *   POST /v1/completions, /v1/chat/completions, /tokenize, /detokenize
 * Errors: {"error": {"message", "type", "code"}}. */

typedef struct tt_api tt_api;
typedef struct tt_api_call tt_api_call; /* a request that the engine works on */

typedef struct tt_api_opts {
    const char *model; /* the name that answers have */
    tt_engine *engine;
    int64_t context;           /* tokens of a text, at most: graph->length */
    const tt_tokenizer_vt *vt; /* NULL: there is no tokenizer, and prompts are ids */
    void *tokenizer;
    tt_tokenizer_info info;
    const char *tokenizer_config;            /* JSON of /tokenizer_info */
    const tt_chat_template *template;        /* NULL: there is none */
    const int32_t *stop_ids, *chat_stop_ids; /* that end a text; an assistant's turn */
    size_t n_stop_ids, n_chat_stop_ids;
    bool salted;      /* prompts without a salt share no tokens with those of other requests */
    size_t most_wait; /* texts that may wait for a slot */
    const char *key;  /* the token that a client must send; NULL: none */
    const char *host; /* at which the server listens: a name that clients may use without a key */
    const char *const *origins; /* of pages that may ask and read answers; "*": of all */
    size_t n_origins;
} tt_api_opts;

#define TT_API_MOST_BODY (16 << 20) /* bytes */

tt_api *tt_api_open(const tt_api_opts *o);
void tt_api_close(tt_api *a); /* after its calls */

/* Judges a request by its head, before its body is there: 0, or the status of tt_api_fault and why. Sets what the
 * answer's head depends on. */
int tt_api_judge(const tt_api *a, const tt_http_request *r, tt_http_reply *p, const char **why);
/* Answers a request that was judged, and whose body is there, into out: at once (*call NULL), or while the engine works on
 * it. Then p and out must live until the call is freed. */
void tt_api_begin(tt_api *a, const tt_http_request *r, tt_http_reply *p, tt_str *out,
                  tt_api_call **call);
/* An answer that says what is wrong; the connection closes after it. Status 204: nothing is. */
void tt_api_fault(tt_str *out, tt_http_reply *p, int status, const char *why);
bool tt_api_is_done(const tt_api_call *c);
void tt_api_free(tt_api *a, tt_api_call *c); /* ends it, if it is not done */
/* Gives texts that wait to the engine, as long as it has room. */
tt_status tt_api_admit(tt_api *a, tt_error *err);

#endif
