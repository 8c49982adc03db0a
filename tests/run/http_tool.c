/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

/* A client for test_serve.sh, since a machine may lack curl.
 *   http_tool PORT METHOD PATH [BODY [HEADER]]   prints the status, a line, then the body without its chunks
 *   http_tool PORT raw                           sends standard input and prints all that comes back
 *   http_tool PORT leave METHOD PATH BODY        sends a request, reads a little and goes */

static int connect_to(const char *port)
{
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port))};
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) != 0) {
        perror("http_tool");
        exit(1);
    }
    return fd;
}

static void send_all(int fd, const char *s, size_t n)
{
    while (n) {
        const ssize_t k = send(fd, s, n, MSG_NOSIGNAL);
        if (k <= 0)
            return; /* the server has closed: its answer tells why */
        s += k;
        n -= (size_t)k;
    }
}

static char *receive_all(int fd, size_t *n)
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

static void print_body(const char *body, size_t n, int chunked)
{
    while (chunked && n) {
        char *end;
        const size_t k = strtoul(body, &end, 16);
        if (!k || strncmp(end, "\r\n", 2) != 0)
            return;
        fwrite(end + 2, 1, k, stdout);
        n -= (size_t)(end + 2 + k + 2 - body);
        body = end + 2 + k + 2;
    }
    fwrite(body, 1, n, stdout);
}

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    const int fd = connect_to(argv[1]), leaves = !strcmp(argv[2], "leave");
    size_t n;
    if (!strcmp(argv[2], "raw")) {
        char piece[65536];
        for (size_t k; (k = fread(piece, 1, sizeof piece, stdin)) > 0;)
            send_all(fd, piece, k);
        char *all = receive_all(fd, &n);
        fwrite(all, 1, n, stdout);
        free(all);
        return 0;
    }
    char **a = argv + 2 + leaves;
    const int n_args = argc - 2 - leaves;
    const char *body = n_args > 2 ? a[2] : "", *header = n_args > 3 ? a[3] : "X: y";
    char *request;
    const int k = asprintf(&request,
                           "%s %s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n%s\r\n"
                           "Content-Length: %zu\r\n\r\n%s",
                           a[0], a[1], header, strlen(body), body);
    send_all(fd, request, (size_t)k);
    free(request);
    if (leaves) {
        char piece[64];
        return recv(fd, piece, sizeof piece, 0) > 0 ? 0 : 1;
    }
    char *all = receive_all(fd, &n), *head = strstr(all, "\r\n\r\n");
    if (!head)
        return 1;
    printf("%.3s\n", all + strlen("HTTP/1.1 "));
    *head = '\0';
    const int chunked = strcasestr(all, "Transfer-Encoding: chunked") != NULL;
    print_body(head + 4, n - (size_t)(head + 4 - all), chunked);
    free(all);
    close(fd);
    return 0;
}
