/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SERVE_API_IMPL_H
#define TT_SERVE_API_IMPL_H
#include "config/config.h"
#include "infer/decoder.h"
#include "serve/api.h"
#include "serve/json_mask.h"
#include "serve/tools.h"

#define TT_API_NO_MEMORY "out of memory for this request: send a shorter one, or try again later"

enum { MOST_STOPS = 16, MOST_TEXTS = 1024, MOST_N = 128 };
enum { MOST_VALUES = 1 << 20 }; /* of a body's JSON, of about 100 bytes each */
enum {                          /* whatever the context: bytes of a text, and ids */
       MOST_OF_TOKENIZE = 1 << 20,
       MOST_OF_DETOKENIZE = 1 << 17,
       MOST_OF_SALT = 256
};

typedef struct call_text { /* one of the texts that a request asks for */
    tt_api_call *call;
    int index;
    tt_request r;
    tt_ids prompt;
    size_t prompt_bytes; /* of `text`, that are the prompt's: with echo */
    tt_str text;
    size_t n_counted,
        n_characters;        /* bytes of it that logprobs have counted as characters, and those */
    size_t n_told;           /* bytes of it that a stream has sent */
    int64_t n_new, n_cached; /* n_cached: tokens of the prompt that were not computed */
    bool sibling;            /* a further text of the same prompt, whose ids it has too */
    /* members of JSON lists, each with a comma before it but the first */
    /* and, in a stream, those that it has not sent */
    tt_str tokens, logprobs, top, offsets, content;
    tt_tool_reader tools; /* calls in the text; clients get its `said`, the text without them */
    size_t n_calls_told;
    tt_json_text json;  /* the state of the text, if it has to be a JSON object */
    tt_decoder decoder; /* behind the text's last token, and behind the prompt */
    bool waits, runs;
    const char *finish;     /* NULL: it goes on */
    struct call_text *next; /* of those that wait */
} call_text;

struct tt_api_call {
    tt_api *a;
    tt_arena *arena;
    tt_str *out;
    tt_http_reply *reply;
    bool chat, stream, echo, usage, scored;
    const char *failed;  /* why; NULL: it has not */
    const tt_map *tools; /* names of those that the model may call; NULL: none */
    bool json;           /* texts are JSON objects */
    int n_top;
    const char *stops[MOST_STOPS];
    size_t n_stops, longest_stop;
    call_text *texts;
    int n, n_done;
    int64_t prompt_tokens;
    char id[48];
    long long created;
};

struct tt_api {
    tt_api_opts o;
    tt_arena *arena;
    call_text *first, *last; /* those that wait */
    size_t n_wait;
    uint64_t n_calls;
    tt_json_masks *masks; /* NULL: no request has wanted JSON */
    size_t longest;       /* bytes of a token; 0: not known yet */
    long long created;
};

/* api.c: 0, or the status of a reply that says the error: while there is no memory for more; the object that the body is; if the
 * request names another model. */
int tt_api_no_memory(tt_error *err);
int tt_api_parse(tt_arena *arena, const tt_http_request *r, const tt_json **out, tt_error *err);
int tt_api_check_model(const tt_api *a, const tt_json *o, tt_error *err);
int tt_api_status_of(tt_status s); /* of a request that could not be read: whose fault it is */

/* tokens.c: answers /tokenize and /detokenize. */
void tt_api_of_tokenizer(tt_api *a, const tt_http_request *r, tt_http_reply *p, tt_str *out);

/* read.c: makes a call, whose chat is set, of a request's body of n bytes, which may go afterwards. TT_EINVAL: the client's
 * mistake. */
tt_status tt_api_read(const tt_json *body, size_t n_bytes, tt_api_call *c, tt_error *err);
/* Appends the ids of a text; special: with what begins a prompt. There must be a tokenizer. */
tt_status tt_api_encode(const tt_api *a, const char *text, bool special, tt_ids *out,
                        tt_error *err);
const tt_json *tt_api_member(const tt_json *o,
                             const char *key); /* NULL: it is not there, or null */
tt_status tt_api_bool(const tt_json *o, const char *key, bool *out, tt_error *err);
tt_status tt_api_number(const tt_json *o, const char *key, double least, double most, double *out,
                        tt_error *err);
tt_status tt_api_integer(const tt_json *o, const char *key, int64_t least, int64_t most,
                         int64_t *out, tt_error *err);
/* read_sampling.c: sampling, adjust and the stop ids of a request, in the call's arena. */
tt_status tt_api_read_sampling(const tt_json *o, const tt_api_call *c, tt_request *r,
                               tt_error *err);
/* Fails for a key that is not known and would change the answer. */
typedef enum tt_api_kind {
    TT_API_COMPLETION,
    TT_API_CHAT,
    TT_API_TOKENIZE,
    TT_API_DETOKENIZE
} tt_api_kind;
tt_status tt_api_check_keys(const tt_json *o, tt_api_kind kind, tt_error *err);

/* The most bytes that a text of the whole context can have: what is longer needs not be tokenized. */
size_t tt_api_most_bytes(tt_api *a);
tt_status tt_api_check_bytes(tt_api *a, const char *name, size_t n, tt_error *err);

/* messages.c: appends the ids of a chat's messages, with what begins an answer unless the body wants none. n_bytes: of the body.
 * *tools: names of those of the request that the template got, in the arena; NULL: there are none. */
tt_status tt_api_read_messages(tt_api *a, tt_arena *arena, const tt_json *body, size_t n_bytes,
                               tt_ids *out, const tt_map **tools, tt_error *err);

/* text.c: what the engine tells, and asks. */
const uint64_t *tt_api_allowed(void *text);
bool tt_api_on_token(void *text, const tt_token *t);
/* What stands for a token behind d, in JSON's strings: its text, <token 5>, or bytes:\xe6\x97. */
void tt_api_token_key(const tt_decoder *d, int32_t id, tt_str *out);
void tt_api_on_end(void *text, tt_finish finish, const char *error);
tt_decoder tt_api_decoder(const tt_api *a); /* at the beginning of a text */

/* answer.c */
void tt_api_add_bytes(tt_str *out, const char *s, size_t n); /* a JSON string of any bytes */
void tt_api_answer(tt_api_call *c);                          /* the whole answer */
void tt_api_stream_begin(tt_api_call *c);                    /* the head */
/* Sends what clients get of the text up to byte n, calls of tools, and finish if it is set. */
void tt_api_stream_text(call_text *x, size_t n);
const tt_str *tt_api_told(const call_text *x); /* the text without calls of tools */
void tt_api_stream_end(tt_api_call *c);
void tt_api_send(tt_str *out, tt_http_reply *p, int status, const char *type, const tt_str *text);

#endif
