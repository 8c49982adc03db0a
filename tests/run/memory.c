/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>

/* Preloaded: the machine has $MEMORY bytes. With $MEMORY_RANK only that rank finds so little, and every other process 1 TiB. */
int sysinfo(struct sysinfo *out)
{
    const char *bytes = getenv("MEMORY"), *one = getenv("MEMORY_RANK"),
               *rank = getenv("TTRUN_RANK");
    rank = rank ? rank : getenv("OMPI_COMM_WORLD_RANK");
    memset(out, 0, sizeof *out);
    out->mem_unit = 1;
    out->totalram = bytes ? strtoul(bytes, NULL, 10) : 0;
    if (one && (!rank || strcmp(one, rank)))
        out->totalram = 1UL << 40;
    return 0;
}
