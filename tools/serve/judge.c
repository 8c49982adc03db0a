/* SPDX-License-Identifier: Apache-2.0 */
#include "serve/api_impl.h"
#include <string.h>
#include <strings.h>
#include <ttrun/sockets.h>

/* What a request's head alone decides, before its body is read: is there such a path, and may this client ask? */

static const struct api_path {
    const char *path;
    bool post, open, begins; /* open: without the key, too; begins: with a name behind it */
} paths[] = {
    {"/health",              false, true,  false},
    {"/v1/models",           false, false, false},
    {"/tokenizer_info",      false, false, false},
    {"/metrics",             false, false, false},
    {"/v1/completions",      true,  false, false},
    {"/v1/chat/completions", true,  false, false},
    {"/tokenize",            true,  false, false},
    {"/detokenize",          true,  false, false},
    {"/v1/models/",          false, false, true },
};

/* Is HOST, HOST:PORT or [HOST]:PORT a name by which this machine alone is reached, or the one it listens at? Else a page
 * from anywhere could make its own name lead here and read answers (DNS rebinding). */
static bool is_own_host(const tt_api *a, const char *text)
{
    char host[256];
    const char *end = *text == '[' ? strchr(text, ']') : text + strcspn(text, ":");
    const char *begin = text + (*text == '[');
    if (!end || (size_t)(end - begin) >= sizeof host)
        return false;
    memcpy(host, begin, (size_t)(end - begin));
    host[end - begin] = '\0';
    return tt_socket_is_loopback(host) || (a->o.host && !strcasecmp(host, a->o.host));
}

/* The entry of the list of origins that allows this one; NULL: there is none. */
static const char *allowed_origin(const tt_api *a, const char *origin)
{
    for (size_t i = 0; origin && i < a->o.n_origins; i++)
        if (!strcmp(a->o.origins[i], "*") || !strcasecmp(a->o.origins[i], origin))
            return a->o.origins[i];
    return NULL;
}

/* Is it a page that came from this host itself? */
static bool is_same_origin(const tt_http_request *r)
{
    const char *host = strstr(r->origin, "://");
    return host && r->host && !strcasecmp(host + 3, r->host);
}

/* Takes as long for a wrong key as for the right one. */
static bool has_key(const tt_api *a, const tt_http_request *r)
{
    const char *sent = r->authorization;
    sent = sent && !strncasecmp(sent, "Bearer ", 7) ? sent + 7 : "";
    sent += strspn(sent, " ");
    const size_t n = strlen(a->o.key), m = strlen(sent);
    unsigned differs = n != m;
    for (size_t i = 0; i < n; i++)
        differs |= (unsigned char)a->o.key[i] ^ (unsigned char)(i < m ? sent[i] : 0);
    return !differs;
}

static bool is_json(const tt_http_request *r)
{
    static const char json[] = "application/json";
    const char *type = r->content_type ? r->content_type : "";
    const size_t n = strcspn(type, "; \t");
    return n == sizeof json - 1 && !strncasecmp(type, json, n);
}

static int no(tt_http_reply *p, int status, const char *text, const char **why)
{
    p->keep_alive = p->keep_alive && status == 204;
    *why = text;
    return status;
}

/* Without a key: whoever reaches this machine's own address may ask, but no page of a stranger through its user's browser. */
static int judge_stranger(const tt_api *a, const tt_http_request *r, tt_http_reply *p,
                          const char **why)
{
    if (a->o.key)
        return 0;
    if (r->host && !is_own_host(a, r->host))
        return no(
            p, 403,
            "Host is not this machine: ask for localhost, or start ttrun serve with --api-key",
            why);
    if (r->origin && !p->origin && !is_same_origin(r))
        return no(p, 403, "pages of this origin may not ask: start ttrun serve with --allow-origin",
                  why);
    return 0;
}

static int judge_body(const tt_api *a, const tt_http_request *r, bool post, tt_http_reply *p,
                      const char **why)
{
    if (!post && (r->chunked || r->length > 0))
        return no(p, 413, "a request with this method has no body", why);
    if (post && !r->chunked && r->length < 0)
        return no(p, 411, "Content-Length is missing", why);
    if (r->length > TT_API_MOST_BODY)
        return no(p, 413, "the body is too long: at most 16 MiB", why);
    if (post && !a->o.key && !is_json(r))
        return no(p, 415, "the body has to be JSON: Content-Type: application/json", why);
    return 0;
}

static const struct api_path *find_path(const char *path)
{
    for (size_t i = 0; i < TT_COUNT(paths); i++) {
        const size_t n = strlen(paths[i].path);
        if (paths[i].begins ? !strncmp(paths[i].path, path, n) && path[n]
                            : !strcmp(paths[i].path, path))
            return &paths[i];
    }
    return NULL;
}

int tt_api_judge(const tt_api *a, const tt_http_request *r, tt_http_reply *p, const char **why)
{
    const bool asks = !strcmp(r->method, "OPTIONS"); /* what it may do */
    const struct api_path *path = find_path(r->path);
    *p = (tt_http_reply){.keep_alive = r->keep_alive,
                         .old = r->old,
                         .head_only = !strcmp(r->method, "HEAD"),
                         .origin = allowed_origin(a, r->origin)};
    const int stranger = judge_stranger(a, r, p, why);
    if (stranger)
        return stranger;
    if (!path && !(asks && !strcmp(r->path, "*")))
        return no(p, 404, "there is no such path", why);
    const bool post = path && path->post, get = !strcmp(r->method, "GET") || p->head_only;
    const bool fits = post ? !strcmp(r->method, "POST") : get;
    if (asks || !fits)
        p->allow = !path  ? "GET, HEAD, POST, OPTIONS"
                   : post ? "POST, OPTIONS"
                          : "GET, HEAD, OPTIONS";
    if (asks)
        return no(p, 204, NULL, why);
    if (!fits)
        return no(p, 405, post ? "this path takes POST" : "this path takes GET", why);
    if (!path->open && a->o.key && !has_key(a, r))
        return no(p, 401, "the key is missing or wrong: Authorization: Bearer KEY", why);
    return judge_body(a, r, post, p, why);
}
