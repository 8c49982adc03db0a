/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TEST_HTTP_CLIENT_H
#define TT_TEST_HTTP_CLIENT_H
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

/* A client of `ttrun serve`, for http_tool and golden_tool; _GNU_SOURCE comes before. Ends the program where it cannot connect. */

static int http_connect(const char *port)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        perror("http_client");
        exit(1);
    }
    return fd;
}

static void http_send(int fd, const char *s, size_t n)
{
    while (n) {
        const ssize_t k = send(fd, s, n, MSG_NOSIGNAL);
        if (k <= 0)
            return; /* the server has closed: its answer tells why */
        s += k;
        n -= (size_t)k;
    }
}

static void http_request(int fd, const char *method, const char *path, const char *body,
                         const char *header)
{
    char *request;
    const int k = asprintf(&request,
                           "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n"
                           "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                           method, path, header, strlen(body), body);
    http_send(fd, request, (size_t)k);
    free(request);
}

/* All that comes until the connection ends, with a NUL behind it; by malloc. */
static char *http_receive(int fd, size_t *n)
{
    char *all = malloc(1), piece[65536];
    *n = 0;
    for (ssize_t k; (k = recv(fd, piece, sizeof piece, 0)) > 0;) {
        all = realloc(all, *n + (size_t)k + 1);
        memcpy(all + *n, piece, (size_t)k);
        *n += (size_t)k;
    }
    all[*n] = '\0';
    return all;
}

/* The body of an answer, which is changed: without its chunks. NULL: there is no head. */
static char *http_body(char *all, size_t *n)
{
    char *head = strstr(all, "\r\n\r\n"), *to;
    if (!head)
        return NULL;
    *head = '\0';
    char *from = head + 4;
    size_t left = *n - (size_t)(from - all);
    char *const body = from;
    *n = left;
    if (!strcasestr(all, "Transfer-Encoding: chunked"))
        return body;
    for (to = body; left;) {
        char *end;
        const size_t k = strtoul(from, &end, 16);
        if (!k || strncmp(end, "\r\n", 2) != 0)
            break;
        memmove(to, end + 2, k);
        to += k;
        left -= (size_t)(end + 2 + k + 2 - from);
        from = end + 2 + k + 2;
    }
    *to = '\0';
    *n = (size_t)(to - body);
    return body;
}

#endif
