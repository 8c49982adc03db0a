/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_TESTS_SIM_JOURNAL_H
#define TT_TESTS_SIM_JOURNAL_H
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

/* Mapped by the simulation (sim_tool.c) and by the trainer's processes (disk.c, preloaded): what fault comes at which
 * call, and every change of the disk that a loss of power could take back. */

enum { SIM_OPS = 1 << 15, SIM_NAME = 96 };

typedef enum sim_kind {
    SIM_CREATE,
    SIM_MKDIR,
    SIM_RENAME,
    SIM_EXCHANGE,
    SIM_UNLINK,
    SIM_RMDIR,
    SIM_DATA
} sim_kind;

/* Folders and files are inode numbers, because a folder above them may have another name later. */
typedef struct sim_op {
    sim_kind kind;
    bool lost;          /* a loss of power takes it back */
    bool synced;        /* its own folder was synced; SIM_DATA: the file */
    bool after_barrier; /* any sync came later: a file system with one ordered journal keeps it */
    bool file_synced;   /* SIM_CREATE: the file's bytes were synced */
    uint64_t folder, to_folder, inode;
    int64_t begin, end; /* SIM_DATA: bytes of the file */
    int64_t call;       /* the number of the call that made it */
    int kept; /* the number of the removed file in the folder of what was removed; 0: none */
    char name[SIM_NAME], to_name[SIM_NAME];
} sim_op;

typedef enum sim_fault {
    SIM_NO_FAULT,
    SIM_KILL_BEFORE,  /* SIGKILL before the call */
    SIM_KILL_AFTER,   /* … after it */
    SIM_KILL_TORN,    /* … in the middle of a write */
    SIM_KILL_MESSAGE, /* … at a message between ranks */
    SIM_ERROR_ONCE,
    SIM_ERROR_ON, /* from this call on */
    SIM_SHORT,    /* from this call on, a write writes a part */
    SIM_N_FAULTS
} sim_fault;

typedef struct sim_shared {
    char folder[700], removed[700]; /* what is simulated; where removed files are kept */
    sim_fault fault;
    int64_t at; /* the number of the call, or of the message */
    int number; /* errno */
    uint64_t seed;
    int stall_every, stall_us; /* messages and calls that wait */
    int64_t clock_at;          /* from this look at the wall clock on */
    double clock_jump;         /* … it is so many seconds off, */
    bool clock_stands;         /* or does not go on */
    atomic_llong calls, messages, looks, reached;
    int64_t call; /* the number of the one that holds the lock */
    int n_kept;
    atomic_int n_ops;
    sim_op ops[SIM_OPS];
} sim_shared;

/* A new one at this path, of zeros; NULL: errno says why. */
static inline sim_shared *new_journal(const char *path)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0 || ftruncate(fd, sizeof(sim_shared)) != 0)
        return NULL;
    void *p = mmap(NULL, sizeof(sim_shared), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return p == MAP_FAILED ? NULL : p;
}

static inline uint64_t sim_mix(uint64_t x)
{
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

#endif
