/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_SERVE_TOOLS_H
#define TT_SERVE_TOOLS_H
#include "config/config.h"

/* Finds the calls of tools in a text that a model generates, while it grows. Two forms, as models are trained on them:
 *   Hermes, Qwen:  text <tool_call>{"name": "f", "arguments": {…}}</tool_call>, and more of them
 *   Llama 3.1:     {"name": "f", "parameters": {…}} and nothing else, after <|python_tag|> or not; more after ";"
 * Each takes both "arguments" and "parameters". What is no such call stays text. */

typedef struct tt_tool_call {
    const char *name, *arguments; /* arguments: JSON, an object */
} tt_tool_call;

typedef struct tt_tool_reader {
    const tt_map *tools; /* names: an untagged call must have one of them */
    tt_arena *arena;
    size_t at;  /* bytes of the text that are read */
    bool begun; /* the form is known */
    bool untagged;
    tt_str said; /* the text besides the calls; the caller frees it */
    TT_VEC(tt_tool_call) calls;
} tt_tool_reader;

/* The names of a request's tools. */
tt_map *tt_tools_names(tt_arena *a, const tt_json *tools);
/* Reads on in a text whose first n bytes are known and stay as they are. ended: there will be no more of it. What may become
 * a part of a call is not in `said` before. */
void tt_tools_read(tt_tool_reader *r, const char *text, size_t n, bool ended);
/* Does a token of this text begin or end a call? Decoders leave such special tokens out. */
bool tt_tools_is_mark(const char *text, size_t n);

#endif
