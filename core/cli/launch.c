/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "cli/launch.h"
#include "cli/signals.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

/* mpirun is a child, not what this process becomes: mpirun answers SIGTERM by killing the ranks and
 * loses what they say, so a signal to stop is handed on as SIGUSR2, which it does pass to them. It
 * is killed with this process, and the ranks with it (R22). */

#define LAUNCH "TTRUN_LAUNCH" /* where a rank says that it lives */
#define GRACE_S 3             /* from the first end with an error to the last, by force */

typedef struct children {
    pid_t *pids;
    int n;
    bool mpirun;
    bool signalled; /* the first that failed was ended by a signal */
} children;

bool tt_launch_has_mpirun(void)
{
    const char *path = getenv("PATH");
    while (path && *path) {
        char file[4096];
        const int n = (int)strcspn(path, ":");
        snprintf(file, sizeof file, "%.*s/mpirun", n, path);
        if (!access(file, X_OK))
            return true;
        path += n + (path[n] == ':');
    }
    return false;
}

/* ---- the ranks' signs of life ---- */

static socklen_t life_address(const char *name, struct sockaddr_un *a)
{
    memset(a, 0, sizeof *a);
    a->sun_family = AF_UNIX;
    const int n = snprintf(a->sun_path + 1, sizeof a->sun_path - 1, "ttrun-launch-%s", name);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

void tt_launch_report(void)
{
    const char *name = getenv(LAUNCH);
    struct sockaddr_un a;
    const int fd = name ? socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0) : -1;
    if (fd < 0)
        return;
    const socklen_t n = life_address(name, &a);
    const ssize_t sent = sendto(fd, "!", 1, MSG_DONTWAIT, (struct sockaddr *)&a, n);
    (void)sent; /* a launcher that is gone takes this process along */
    close(fd);
}

static int listen_for_life(const char *name)
{
    struct sockaddr_un a;
    const socklen_t n = life_address(name, &a);
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (struct sockaddr *)&a, n)) {
        close(fd);
        return -1;
    }
    return fd;
}

/* ---- starting ---- */

static void random_name(char out[33])
{
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        snprintf((char *)bytes, sizeof bytes, "%ld", (long)getpid());
    for (int i = 0; i < 16; i++)
        snprintf(out + 2 * i, 3, "%02x", bytes[i]);
}

/* What Open MPI needs as root, in containers and with more ranks than cores; as variables, for its
 * versions spell their options differently and other MPIs know none of them. */
static const char *const mpi_environment[][2] = {
    {"OMPI_ALLOW_RUN_AS_ROOT",                   "1"             },
    {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",           "1"             },
    {"OMPI_MCA_rmaps_base_oversubscribe",        "1"             },
    {"PRTE_MCA_rmaps_default_mapping_policy",    ":oversubscribe"},
    {"OMPI_MCA_hwloc_base_binding_policy",       "none"          },
    {"PRTE_MCA_hwloc_default_binding_policy",    "none"          },
    {"OMPI_MCA_orte_execute_quiet",              "1"             }, /* the ranks say what was wrong */
    {"OMPI_MCA_btl_vader_single_copy_mechanism", "none"          }, /* not allowed in most containers */
};

/* In the child; does not return. */
static void become(const tt_cli *cli, int n, int rank, const char *name, pid_t parent,
                   const sigset_t *mask)
{
    char self[4096], number[16];
    const ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    const int null = open("/dev/null", O_RDONLY);
    char **argv = tt_arena_array(cli->arena, (size_t)cli->argc + 8, sizeof *argv);
    int k = 0;
    if (len <= 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) || getppid() != parent)
        _exit(1);
    self[len] = 0;
    sigprocmask(SIG_SETMASK, mask, NULL);
    setpgid(0, 0); /* Ctrl-C comes to the parent alone, which hands it on */
    if (null >= 0)
        dup2(null, 0);
    setenv(LAUNCH, name, 1);
    snprintf(number, sizeof number, "%d", n);
    if (rank < 0) {
        if (isatty(2)) { /* rank 0's progress bar: mpirun hands its bytes on as they are */
            struct winsize w = {0};
            char columns[16];
            snprintf(columns, sizeof columns, "%d", ioctl(2, TIOCGWINSZ, &w) ? 80 : w.ws_col);
            setenv("TTRUN_TTY", columns, 1);
        }
        for (size_t i = 0; i < TT_COUNT(mpi_environment); i++)
            setenv(mpi_environment[i][0], mpi_environment[i][1], 0);
        argv[k++] = (char *)(uintptr_t) "mpirun";
        argv[k++] = (char *)(uintptr_t) "-np";
        argv[k++] = number;
    } else {
        setenv("TTRUN_SESSION", name, 1);
        setenv("TTRUN_WORLD", number, 1);
        snprintf(number, sizeof number, "%d", rank);
        setenv("TTRUN_RANK", number, 1);
    }
    argv[k++] = self;
    argv[k++] = (char *)(uintptr_t) "train";
    for (int i = 1; i < cli->argc; i++)
        argv[k++] = cli->argv[i];
    execvp(argv[0], argv);
    _exit(127);
}

static tt_status start(const tt_cli *cli, int n, const char *name, const sigset_t *mask,
                       children *c, tt_error *err)
{
    const pid_t me = getpid();
    const int n_children = c->mpirun ? 1 : n;
    c->pids = tt_arena_array(cli->arena, (size_t)n_children, sizeof *c->pids);
    for (; c->n < n_children; c->n++) {
        const pid_t pid = fork();
        if (pid == 0)
            become(cli, n, c->mpirun ? -1 : c->n, name, me, mask);
        if (pid < 0)
            return TT_FAIL(err, TT_EIO, "only %d of %d processes could be started: %s", c->n,
                           n_children, strerror(errno));
        c->pids[c->n] = pid;
    }
    return TT_OK;
}

/* ---- waiting ---- */

static void signal_all(const children *c, int sig)
{
    for (int i = 0; i < c->n; i++)
        if (c->pids[i])
            kill(c->pids[i], sig);
}

/* Signals are blocked but while sigtimedwait waits, so none is missed. */
static void block_signals(sigset_t *set, sigset_t *before)
{
    static const int all[] = {SIGCHLD, SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};
    sigemptyset(set);
    for (size_t i = 0; i < TT_COUNT(all); i++)
        sigaddset(set, all[i]);
    sigprocmask(SIG_BLOCK, set, before);
}

/* The children that have ended; *status the first status that is not 0. True: none is left. */
static bool reap(children *c, int *status)
{
    int s, left = 0;
    for (int i = 0; i < c->n; i++) {
        if (c->pids[i] && waitpid(c->pids[i], &s, WNOHANG) == c->pids[i]) {
            const int code = WIFEXITED(s) ? WEXITSTATUS(s) : 128 + WTERMSIG(s);
            c->pids[i] = 0;
            if (!*status)
                c->signalled = WIFSIGNALED(s);
            if (!*status)
                *status = code;
        }
        left += c->pids[i] != 0;
    }
    return left == 0;
}

static int wait_all(children *c, const sigset_t *set)
{
    int status = 0;
    int64_t failed_ns = 0;
    while (!reap(c, &status)) {
        const int sig = sigtimedwait(set, NULL, &(struct timespec){1, 0});
        if (sig == SIGTERM || sig == SIGINT || sig == SIGUSR2 || sig == SIGHUP)
            signal_all(c, SIGUSR2);
        else if (sig == SIGUSR1)
            signal_all(c, SIGUSR1);
        if (status && !failed_ns)
            failed_ns = tt_now_ns();
        if (failed_ns && tt_now_ns() - failed_ns > GRACE_S * INT64_C(1000000000))
            signal_all(c, SIGKILL);
    }
    return status;
}

static tt_status status_of(int code)
{
    static const tt_status by_code[] = {TT_OK, TT_EIO, TT_EINVAL, TT_ENUMERIC, TT_ESIGNAL};
    return (size_t)code < TT_COUNT(by_code) ? by_code[code] : TT_EIO;
}

tt_status tt_launch_ranks(const tt_cli *cli, int n, bool mpirun, tt_error *err)
{
    children c = {.mpirun = mpirun};
    sigset_t set, before;
    char name[33], byte;
    random_name(name);
    const int life = listen_for_life(name);
    block_signals(&set, &before);
    tt_status s = start(cli, n, name, &before, &c, err);
    if (s != TT_OK)
        signal_all(&c, SIGKILL);
    const int code = wait_all(&c, &set);
    sigprocmask(SIG_SETMASK, &before, NULL);
    const bool lived = life >= 0 && recv(life, &byte, 1, MSG_DONTWAIT) == 1;
    if (life >= 0)
        close(life);
    if (s != TT_OK)
        return s;
    if (mpirun && code > 128 && c.signalled)
        return TT_FAIL(err, TT_EIO, "mpirun was ended by signal %d, and the ranks with it",
                       code - 128);
    if (code && life >= 0 && !lived)
        return TT_FAIL(err, TT_EIO,
                       "%s started no rank (status %d); see what `mpirun -np %d true` says, or set "
                       "comm.backend to \"local\"",
                       mpirun ? "mpirun" : "this program", code, n);
    return status_of(code);
}
