/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "launch/launch.h"
#include "base/thread.h"
#include "launch/line.h"
#include "launch/mpirun.h"
#include "launch/nodes.h"
#include "launch/signals.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* mpirun runs as a child of this process. On SIGTERM, SIGINT and SIGHUP mpirun would kill the ranks
 * and lose their messages. So it is started with these signals blocked, which it does not change,
 * and this process tells the ranks to stop (line.h). When this process dies, the kernel kills
 * mpirun and the ranks too (R22). */

#define TICK_MS 200
#define SHORT_TICK_MS 10

typedef struct launcher {
    const tt_launch_opts *o;
    pid_t *pids; /* of the children; 0: the child has ended */
    int n;       /* number of children */
    tt_line line;
    tt_temporary files; /* what mpirun keeps of this run, which stays when mpirun is killed */
    int64_t started_ns;
    /* how the children ended */
    int status;     /* the first exit status that is not 0 */
    bool signalled; /* that child was ended by a signal */
    bool died;      /* and it was not sent by this process */
    int first;      /* its number */
    pid_t first_pid;
    int64_t failed_ns;
    /* requests to stop */
    int stop;    /* the first signal */
    bool leaves; /* it is the supervisor's, who starts the ranks again */
    int64_t stop_ns, first_ns, asked_ns, alone_ns;
    int second;        /* the second signal, which ends the run at once */
    int64_t killed_ns; /* when the children were killed; 0: they were not */
    bool none_started; /* they were killed because no rank started in time */
    bool for_others;   /* they were killed because ranks of another machine have failed */
} launcher;

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

/* ---- starting ---- */

/* The signals that are blocked in a child from its first instruction on. For mpirun: those that
 * would end it and the ranks; it unblocks them for the ranks. For a rank: all for which it has
 * handlers, until it has installed these. */
static void block_for_child(bool mpirun, const sigset_t *before)
{
    static const int both[] = {SIGTERM, SIGINT, SIGHUP}, rank[] = {SIGUSR1, SIGUSR2};
    sigset_t set = *before;
    for (size_t i = 0; i < TT_COUNT(both); i++)
        sigaddset(&set, both[i]);
    for (size_t i = 0; i < TT_COUNT(rank) && !mpirun; i++)
        sigaddset(&set, rank[i]);
    if (mpirun)
        sigaddset(&set, SIGPIPE); /* the run goes on if the reader of our output exits */
    sigprocmask(SIG_SETMASK, &set, NULL);
}

static void pass_descriptors(tt_str *list, const int *fds, int n)
{
    for (int i = 0; i < n && !fcntl(fds[i], F_SETFD, 0); i++)
        tt_str_printf(list, "%s%d", i ? " " : "", fds[i]);
}

/* The descriptors stay open in the child, which finds their numbers in the environment: "3 4 5/6 7". */
static void pass_copies(const tt_launch_opts *o)
{
    tt_str list = {0};
    pass_descriptors(&list, o->copies, o->n);
    tt_str_addc(&list, '/');
    pass_descriptors(&list, o->before, o->n_before);
    setenv(TT_COPIES_VARIABLE, tt_str_get(&list), 1);
    tt_str_free(&list);
}

static void rank_environment(const launcher *l, int rank)
{
    char number[16];
    const tt_launch_opts *o = l->o;
    if (o->copies)
        pass_copies(o);
    if (o->supervisor)
        setenv(TT_SUPERVISOR_VARIABLE, o->supervisor, 1);
    if (o->threads)
        return;
    setenv("TTRUN_SESSION", l->line.name, 1);
    unsetenv("TTRUN_LOCAL_RANK");
    unsetenv("TTRUN_LOCAL_WORLD");
    if (o->nodes) {
        tt_nodes_environment(o->nodes, rank);
        return;
    }
    snprintf(number, sizeof number, "%d", o->n);
    setenv("TTRUN_WORLD", number, 1);
    snprintf(number, sizeof number, "%d", rank);
    setenv("TTRUN_RANK", number, 1);
}

/* Runs in the child and does not return. */
static void become(const tt_start_opts *start, const launcher *l, int rank, pid_t parent,
                   const sigset_t *mask)
{
    char self[4096], number[16];
    const tt_launch_opts *o = l->o;
    const ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    const int null = open("/dev/null", O_RDONLY);
    char **argv =
        tt_arena_array(start->arena, (size_t)(start->n_words + o->n_words) + 8, sizeof *argv);
    int k = 0;
    if (len <= 0 || prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0) || getppid() != parent)
        _exit(1);
    self[len] = 0;
    setpgid(0, 0); /* so that only the parent receives Ctrl-C; it passes the stop on */
    if (null >= 0)
        dup2(null, 0);
    tt_line_environment(&l->line);
    if (o->mpirun) {
        tt_mpirun_prepare(l->files.path);
        snprintf(number, sizeof number, "%d", o->n);
        argv[k++] = (char *)(uintptr_t) "mpirun";
        argv[k++] = (char *)(uintptr_t) "-np";
        argv[k++] = number;
    } else {
        rank_environment(l, rank);
    }
    argv[k++] = self;
    argv[k++] = (char *)(uintptr_t) "train";
    for (int i = 0; i < start->n_words; i++)
        argv[k++] = (char *)(uintptr_t)start->words[i];
    for (int i = 0; i < o->n_words; i++)
        argv[k++] = (char *)(uintptr_t)o->words[i];
    block_for_child(o->mpirun, mask);
    execvp(argv[0], argv);
    _exit(127);
}

static tt_status launcher_start(const tt_start_opts *start, launcher *l, const sigset_t *mask,
                                tt_error *err)
{
    const pid_t me = getpid();
    const int n_children = l->o->mpirun || l->o->threads ? 1 : l->o->n;
    l->pids = tt_arena_array(start->arena, (size_t)n_children, sizeof *l->pids);
    for (; l->n < n_children; l->n++) {
        const pid_t pid = fork();
        if (pid == 0)
            become(start, l, l->n, me, mask);
        if (pid < 0)
            return TT_FAIL(err, TT_EINVAL,
                           "only %d of %d processes could be started: %s; allow more processes "
                           "(ulimit -u), or use fewer ranks",
                           l->n, n_children, strerror(errno));
        l->pids[l->n] = pid;
    }
    return TT_OK;
}

/* ---- the children ---- */

static int n_lines(const launcher *l) /* how many processes connect */
{
    return l->o->threads ? 1 : l->o->n;
}

static tt_status status_of(int code)
{
    static const tt_status by_code[] = {TT_OK, TT_EIO, TT_EINVAL, TT_ENUMERIC, TT_ESIGNAL};
    return (size_t)code < TT_COUNT(by_code) ? by_code[code] : TT_EIO;
}

static void signal_all(const launcher *l, int sig)
{
    for (int i = 0; i < l->n; i++)
        if (l->pids[i])
            kill(l->pids[i], sig);
}

/* Keeps how the first child failed. One that dies silently comes before a failure that follows from it,
 * which may be noticed first. */
static void child_ended(launcher *l, int i, int how)
{
    const int code = WIFEXITED(how) ? WEXITSTATUS(how) : 128 + WTERMSIG(how);
    const bool died = WIFSIGNALED(how) && !l->killed_ns;
    if (!l->status || (l->status == 1 && died && !l->signalled)) {
        l->status = code;
        l->signalled = WIFSIGNALED(how);
        l->died = died;
        l->first = i;
        l->first_pid = l->pids[i];
    }
    l->pids[i] = 0;
}

/* Collects the children that have ended. True: no child is left. */
static bool reap(launcher *l)
{
    int s, left = 0;
    for (int i = 0; i < l->n; i++) {
        if (l->pids[i] && waitpid(l->pids[i], &s, WNOHANG) == l->pids[i])
            child_ended(l, i, s);
        left += l->pids[i] != 0;
    }
    if (!l->o->mpirun && left == 0)
        return true;
    /* ranks that mpirun was starting when it was killed are children of this process now */
    while (left == 0 && l->killed_ns &&
           tt_now_ns() - l->killed_ns < tt_patience(TT_CHILD_LEAVE_NS)) {
        const pid_t pid = waitpid(-1, &s, WNOHANG);
        if (pid == 0 || (pid < 0 && errno == EINTR))
            return false;
        if (pid < 0)
            break;
    }
    return left == 0 ||
           (l->killed_ns && tt_now_ns() - l->killed_ns >= tt_patience(TT_CHILD_LEAVE_NS));
}

static void kill_all(launcher *l)
{
    if (l->killed_ns)
        return;
    l->killed_ns = tt_now_ns();
    if (l->o->mpirun)
        prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    tt_line_tell(&l->line, SIGKILL);
    signal_all(l, SIGKILL);
}

/* ---- stopping ---- */

static void stop_now(launcher *l, int sig)
{
    if (l->second || l->killed_ns)
        return;
    l->second = sig;
    kill_all(l);
}

static void asked_to(launcher *l, int sig)
{
    const int64_t now = tt_now_ns();
    if (sig == SIGUSR1) {
        tt_line_tell(&l->line, sig);
        return;
    }
    if (!l->stop || l->leaves) {
        l->stop = sig;
        l->leaves = false;
        l->stop_ns = l->asked_ns = now;
        tt_line_tell(&l->line, sig);
    }
    if (sig == SIGUSR2) /* as in the ranks, it asks to stop however often it is sent */
        return;
    if (!l->first_ns)
        l->first_ns = now;
    else if (now - l->first_ns >= tt_patience(TT_STOP_TWICE_NS))
        stop_now(l, sig);
}

/* A stop before any rank has connected. A rank on this machine connects within milliseconds of its
 * start, so if mpirun has started no process there is nothing to save. Ranks on other machines
 * (mpirun may belong to a scheduler that places them) do not connect: mpirun passes SIGUSR2 on to
 * them. */
static void stop_without_ranks(launcher *l, int64_t now)
{
    const int64_t quiet = tt_patience(TT_MPIRUN_QUIET_NS);
    if (l->o->mpirun && !tt_mpirun_has_children(l->pids[0])) {
        kill_all(l);
    } else if (now - l->stop_ns > quiet && now - l->asked_ns > quiet) {
        l->asked_ns = now;
        signal_all(l, SIGUSR2);
    }
}

/* Whether a supervisor starts the ranks again after this failure. */
static bool is_restarted(const launcher *l)
{
    const tt_status said = l->line.failure.code;
    return l->o->supervisor && (!l->stop || l->leaves) &&
           tt_launch_restarts(said ? said : status_of(l->status));
}

static int64_t grace(const launcher *l)
{
    return tt_patience(is_restarted(l) ? TT_CHILD_SHORT_NS : TT_CHILD_GRACE_NS);
}

/* How long nothing needs to be looked after, unless something arrives; -1: for ever. */
static int tick_ms(const launcher *l)
{
    if (!l->o->supervisor)
        return TICK_MS;
    if (l->killed_ns || l->stop || !l->line.n)
        return TICK_MS;
    return l->status || l->line.failure.code ? SHORT_TICK_MS : -1;
}

/* Checks the time limits, and acts on those that have passed. */
static void look_after(launcher *l)
{
    const int64_t now = tt_now_ns();
    const bool gone = (int64_t)l->line.n == n_lines(l) && !l->line.n_open;
    const int to_mpirun = l->o->mpirun && l->pids[0] && !l->stop ? tt_mpirun_signal(l->pids[0]) : 0;
    if (l->killed_ns)
        return;
    if (to_mpirun)
        asked_to(l, to_mpirun);
    if (l->line.second)
        stop_now(l, l->line.second);
    if (l->stop && !l->line.n)
        stop_without_ranks(l, now);
    l->none_started = !l->stop && !l->line.n && l->line.listener >= 0 &&
                      (double)(now - l->started_ns) > 1e9 * l->o->init_timeout_s &&
                      !(l->o->mpirun && tt_mpirun_has_children(l->pids[0]));
    if ((l->status || l->line.failure.code) && !l->failed_ns)
        l->failed_ns = now;
    if (l->stop && gone && !l->alone_ns) /* mpirun may hang */
        l->alone_ns = now;
    if (l->none_started || (l->failed_ns && now - l->failed_ns > grace(l)) ||
        (l->alone_ns && now - l->alone_ns > tt_patience(TT_MPIRUN_ALONE_NS)))
        kill_all(l);
}

tt_status tt_launch_signals_open(tt_launch_signals *s, tt_error *err)
{
    static const int all[] = {SIGCHLD, SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP};
    struct sigaction was;
    sigset_t set;
    sigemptyset(&set);
    for (size_t i = 0; i < TT_COUNT(all); i++)
        if (!sigaction(all[i], NULL, &was) && (all[i] != SIGHUP || was.sa_handler != SIG_IGN))
            sigaddset(&set, all[i]);
    sigprocmask(SIG_BLOCK, &set, &s->before);
    s->fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (s->fd < 0)
        tt_fail(err, TT_EIO, "signalfd: %s", strerror(errno));
    else if (tt_signals_stop())
        tt_fail_stopped(tt_signals_stop(), err);
    else
        return TT_OK;
    const tt_status st = s->fd < 0 ? TT_EIO : TT_ESIGNAL;
    tt_launch_signals_close(s);
    return st;
}

void tt_launch_signals_close(tt_launch_signals *s)
{
    if (s->fd >= 0)
        close(s->fd);
    sigprocmask(SIG_SETMASK, &s->before, NULL);
}

int tt_launch_signals_next(const tt_launch_signals *s)
{
    struct signalfd_siginfo info;
    while (read(s->fd, &info, sizeof info) == sizeof info)
        if (info.ssi_signo != SIGCHLD)
            return (int)info.ssi_signo;
    return 0;
}

static void wait_for_all(launcher *l, const tt_launch_signals *signals)
{
    int64_t step = -1;
    int sig;
    const tt_launch_opts *o = l->o;
    while (!reap(l)) {
        tt_line_wait(&l->line, o->nodes ? tt_nodes_fd(o->nodes) : signals->fd, tick_ms(l));
        if (!l->killed_ns && o->must_end && o->must_end((void *)(uintptr_t)o->nodes)) {
            l->for_others = true;
            reap(l); /* what has ended before it is killed may be the cause */
            kill_all(l);
        }
        while ((sig = tt_launch_signals_next(signals)) != 0)
            asked_to(l, sig);
        if (!l->stop && !l->status && o->must_leave && o->must_leave(o->user)) {
            asked_to(l, SIGUSR2);
            l->leaves = true;
        }
        if (l->o->stepped && l->line.step > step)
            l->o->stepped(l->o->user, step = l->line.step);
        look_after(l);
    }
    tt_line_wait(&l->line, -1, 0); /* accept ranks that connected and have ended since */
    tt_line_wait(&l->line, -1, 0); /* read their messages */
    if (!l->second)
        l->second = l->line.second;
}

/* ---- how it ended ---- */

/* The error if no rank has printed one: ranks print why they end, unless they crash. */
static tt_status died_silently(const launcher *l, tt_error *err)
{
    const char *again = "start again to continue from the last checkpoint";
    const int sig = l->status - 128;
    if (l->status == 0)
        return TT_FAIL(err, TT_EIO,
                       "a rank exited silently with status 0 before the run was done; %s", again);
    if (sig > 0 && sig < 64)
        return TT_FAIL(err, TT_EIO, "the ranks died silently, the first by %s (%d)%s; %s",
                       tt_signal_name(sig), sig,
                       sig == SIGKILL ? ": killed, or out of memory?" : "", again);
    return TT_FAIL(err, TT_EIO, "the ranks died silently, the first with status %d; %s", l->status,
                   again);
}

static bool is_stop(int sig)
{
    return sig == SIGTERM || sig == SIGINT || sig == SIGHUP || sig == SIGUSR2;
}

/* Whether rank 0, which says that the run was stopped, may be on another machine. One on this machine may be killed first:
 * mpirun gives the others a second when a rank has ended with a status. */
static bool speaks_elsewhere(const launcher *l)
{
    return l->o->nodes ||
           (l->o->mpirun && (int64_t)l->line.n < n_lines(l) && tt_mpirun_in_allocation());
}

/* Whether a rank that never connected, on another machine, gave mpirun its status, and has said why. mpirun's own failures have other
 * statuses. */
static bool ended_elsewhere(const launcher *l)
{
    return l->o->mpirun && !l->line.n && l->status >= 2 && l->status <= 4;
}

static tt_status outcome(const launcher *l, tt_error *err)
{
    const tt_line *line = &l->line;
    const int code = l->status, sig = l->stop ? l->stop : code - 128;
    const bool failed = l->failed_ns && code != 4 && !is_stop(code - 128);
    const bool silent = !line->spoke && (int64_t)line->n == n_lines(l);
    if (l->killed_ns && l->alone_ns && l->o->mpirun && !failed)
        return TT_FAIL(err, TT_ESIGNAL,
                       "stopped by %s; the ranks had ended, but mpirun had not and was killed",
                       tt_signal_name(sig));
    if (l->second)
        return TT_FAIL(err, TT_ESIGNAL,
                       "stopped at once by a second %s; steps after the last checkpoint are "
                       "not saved",
                       tt_signal_name(l->second));
    if ((l->stop && l->killed_ns && !failed) || is_stop(code - 128))
        return line->spoke ? TT_ESIGNAL /* a rank without handlers yet dies silently */
                           : tt_fail_stopped(sig, err);
    if (l->o->mpirun && code > 128 && l->signalled && !l->killed_ns)
        return TT_FAIL(err, TT_EIO, "mpirun was ended by %s (%d), and the ranks with it",
                       tt_signal_name(code - 128), code - 128);
    if (code && line->listener >= 0 && !line->n && !ended_elsewhere(l))
        return TT_FAIL(err, TT_EIO,
                       "%s started no rank (%s %d); see what `mpirun -np %d true` says, or set "
                       "comm.backend to \"local\"",
                       l->o->mpirun ? "mpirun" : "this program",
                       l->none_started ? "within comm.init_timeout_seconds," : "status",
                       l->none_started ? (int)l->o->init_timeout_s : code, l->o->n);
    if (silent && (code ? code != 4 : line->n_done < line->n))
        return died_silently(l, err);
    if (code == 4 && l->stop && !l->leaves && !line->spoke && !speaks_elsewhere(l))
        return TT_FAIL(err, TT_ESIGNAL, "stopped by %s before rank 0 could say where",
                       tt_signal_name(l->stop));
    return status_of(code);
}

/* The failure of a rank of a supervisor, which prints nothing itself. */
static tt_status failure_of(const launcher *l, tt_status s, tt_error *err)
{
    const tt_line_failure *f = &l->line.failure;
    const int sig = l->status - 128;
    const char *rank = l->o->threads ? "" : "rank ";
    char number[48] = "the process of the ranks";
    if (!l->o->threads)
        snprintf(number, sizeof number, "%d (process %ld)",
                 l->first + (l->o->nodes ? tt_nodes_first_rank(l->o->nodes) : 0),
                 (long)l->first_pid);
    if (l->died && sig > 0)
        return TT_FAIL(err, TT_EIO, "%s%s was ended by %s (%d)%s", rank, number,
                       tt_signal_name(sig), sig, sig == SIGKILL ? ", out of memory?" : "");
    if (!f->code && l->for_others)
        return (*err = (tt_error){.code = TT_ECOMM}).code;
    if (!f->code)
        return s;
    const bool named = !strncmp(f->text, "rank ", 5) || l->o->n == 1;
    if (named)
        return TT_FAIL(err, f->code, "%s", f->text);
    return TT_FAIL(err, f->code, "rank %d: %s", f->rank, f->text);
}

tt_status tt_launch_ranks(const tt_start_opts *start, const tt_launch_opts *o,
                          const tt_launch_signals *signals, tt_error *err)
{
    launcher l = {.o = o, .started_ns = tt_now_ns()};
    tt_line_open(&l.line);
    tt_temporary_clear("mpirun");
    if (o->mpirun)
        tt_temporary_new("mpirun", &l.files);
    tt_status s = launcher_start(start, &l, &signals->before, err);
    if (s != TT_OK)
        kill_all(&l);
    wait_for_all(&l, signals);
    if (s == TT_OK) {
        s = outcome(&l, err);
        if (o->supervisor && s != TT_OK && s != TT_ESIGNAL)
            s = failure_of(&l, s, err);
    }
    if (o->stopped)
        *o->stopped = l.leaves ? 0 : l.stop;
    if (o->died)
        *o->died = l.died;
    tt_line_close(&l.line);
    tt_temporary_remove(&l.files);
    return s;
}
