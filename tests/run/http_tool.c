/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "http_client.h"

/* A client for test_serve.sh, since a machine may lack curl.
 *   http_tool PORT METHOD PATH [BODY [HEADER]]   prints the status, a line, then the body without its chunks
 *   http_tool PORT raw                           sends standard input and prints all that comes back
 *   http_tool PORT leave METHOD PATH BODY        sends a request, reads a little and goes */

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    const int fd = http_connect(argv[1]), leaves = !strcmp(argv[2], "leave");
    size_t n;
    if (!strcmp(argv[2], "raw")) {
        char piece[65536];
        for (size_t k; (k = fread(piece, 1, sizeof piece, stdin)) > 0;)
            http_send(fd, piece, k);
        char *all = http_receive(fd, &n);
        fwrite(all, 1, n, stdout);
        free(all);
        return 0;
    }
    char **a = argv + 2 + leaves;
    const int n_args = argc - 2 - leaves;
    http_request(fd, a[0], a[1], n_args > 2 ? a[2] : "", n_args > 3 ? a[3] : "X: y");
    if (leaves) {
        char piece[64];
        return recv(fd, piece, sizeof piece, 0) > 0 ? 0 : 1;
    }
    char *all = http_receive(fd, &n), *body = http_body(all, &n);
    if (!body)
        return 1;
    printf("%.3s\n", all + strlen("HTTP/1.1 "));
    fwrite(body, 1, n, stdout);
    free(all);
    close(fd);
    return 0;
}
