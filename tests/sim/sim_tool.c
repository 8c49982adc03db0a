/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "power_loss.h"
#include "schedule.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>

/* sim_tool TTRUN PLUGINS JOB FOLDER SHIM FIRST COUNT WORKERS: the trainer under COUNT schedules, of seeds FIRST and
 * on. A seed draws the mesh, how it saves, and faults (journal.h); the trainer is started until no fault is
 * left, and must have the losses and the checkpoint of the run without faults to the bit, or refuse by one line.
 * Without FIRST COUNT WORKERS: the written schedule `resumed`. */

/* ---- what the trainer says ---- */

static int64_t number_after(const char *line, const char *key)
{
    const char *p = strstr(line, key);
    return p ? strtoll(p + strlen(key), NULL, 10) : -1;
}

static bool is_log(const char *line)
{
    return !strncmp(line, "[r", 2) || !strncmp(line, "train ", 6);
}

/* Counts the lines besides the log, and remembers what was said to be saved, or to be continued from. */
static int read_stream(schedule *s, char first[LINE])
{
    size_t n;
    int lines = 0;
    char *text = text_of(s->err, &n), *line, *rest = text;
    first[0] = 0;
    while (text && (line = strsep(&rest, "\n"))) {
        const bool told = strstr(line, "] saved ") || strstr(line, "] resumed from ");
        const int64_t saved = told ? number_after(line, "/step-") : -1;
        s->promised = saved > s->promised ? saved : s->promised;
        if (!*line || is_log(line))
            continue;
        if (!lines++)
            snprintf(first, LINE, "%s", line);
    }
    free(text);
    return lines;
}

/* The loss of each step as it is written in metrics.jsonl; how often it is there. */
typedef struct curve {
    char loss[STEPS + MORE + 1][40];
    int times[STEPS + MORE + 1];
} curve;

static curve curve_of(const char *run)
{
    char path[800];
    size_t n;
    curve c = {0};
    snprintf(path, sizeof path, "%s/metrics.jsonl", run);
    char *text = text_of(path, &n), *line, *rest = text;
    while (text && (line = strsep(&rest, "\n"))) {
        const int64_t step = number_after(line, "{\"step\":");
        const char *loss = strstr(line, "\"loss\":");
        if (step < 1 || step > STEPS + MORE || !loss)
            continue;
        c.times[step]++;
        snprintf(c.loss[step], sizeof c.loss[step], "%.*s", (int)strcspn(loss + 7, ",}"), loss + 7);
    }
    free(text);
    return c;
}

static bool check_curve(const schedule *s)
{
    const curve want = curve_of(s->whole), have = curve_of(s->run);
    for (int i = 1; i <= STEPS + MORE; i++) {
        if (have.times[i] > 1 || (!have.times[i] && !s->lossy))
            return wrong(s, "metrics.jsonl has step %d %d times", i, have.times[i]);
        if (have.times[i] && strcmp(have.loss[i], want.loss[i]))
            return wrong(s, "step %d: loss %s, without faults %s", i, have.loss[i], want.loss[i]);
    }
    return true;
}

static char left_name[1024];
static int find_left(const char *path, const struct stat *st, int type, struct FTW *at)
{
    (void)st, (void)type;
    const char *name = path + at->base;
    if (!strstr(name, ".tmp") && !strstr(name, ".old-") && !strstr(name, "rank-"))
        return 0;
    snprintf(left_name, sizeof left_name, "%s", path);
    return 1;
}

static bool check_end(schedule *s)
{
    if (!check_steps(s, true, false) || !check_curve(s))
        return false;
    if (s->newest != STEPS + MORE)
        return wrong(s, "the last checkpoint is step %lld", (long long)s->newest);
    if (nftw(s->run, find_left, 16, FTW_PHYS) == 1)
        return wrong(s, "left behind: %s", left_name);
    return true;
}

/* ---- starts ---- */

static int split_words(char *text, char **out, int n)
{
    for (char *save, *w = strtok_r(text, " ", &save); w; w = strtok_r(NULL, " ", &save))
        out[n++] = w;
    out[n] = NULL;
    return n;
}

static void child(const schedule *s, const char *options, const char *journal)
{
    char text[LINE], *argv[100];
    int n = 0;
    const int fd = open(s->err, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    const int null = open("/dev/null", O_RDWR);
    dup2(null, 0);
    dup2(null, 1);
    dup2(fd, 2);
    if (journal) {
        setenv("SIM_JOURNAL", journal, 1);
        setenv("LD_PRELOAD", places.shim, 1);
    }
    setpgid(0, 0);
    argv[n++] = (char *)places.ttrun;
    argv[n++] = (char *)places.job;
    argv[n++] = (char *)"--plugin-dir";
    argv[n++] = (char *)places.plugins;
    argv[n++] = (char *)"--dump_folder";
    argv[n++] = (char *)(s->start ? s->run : s->whole);
    snprintf(text, sizeof text, "%s %s", meshes[s->mesh], options);
    split_words(text, argv, n);
    execv(argv[0], argv);
    _exit(126);
}

/* Until no process of the start is left: also those of a supervisor that was killed. */
static void wait_for_all(pid_t first, int *status)
{
    int how;
    for (pid_t pid; (pid = waitpid(-1, &how, 0)) >= 0 || errno == EINTR;)
        if (pid == first)
            *status = WIFSIGNALED(how) ? 128 + WTERMSIG(how) : WEXITSTATUS(how);
}

static void start(schedule *s, const char *options, const char *journal)
{
    fflush(stdout);
    const pid_t pid = fork();
    if (pid == 0)
        child(s, options, journal);
    s->status = -1;
    wait_for_all(pid, &s->status);
}

/* ---- one schedule ---- */

static const char *const fault_names[SIM_N_FAULTS] = {
    "no fault",          "killed before call", "killed after call", "killed in write",
    "killed at message", "error once",         "errors from call",  "short writes from",
};

static bool kills(sim_fault f)
{
    return f >= SIM_KILL_BEFORE && f <= SIM_KILL_MESSAGE;
}

static void calm(sim_shared *m)
{
    m->fault = SIM_NO_FAULT;
    m->stall_every = 0;
    m->clock_at = -1;
    m->calls = m->messages = m->looks = m->reached = 0;
}

static void draw_fault(schedule *s, int64_t calls, int64_t messages)
{
    static const int numbers[] = {ENOSPC, EIO, EROFS, EDQUOT};
    static const double jumps[] = {-3e8, -5, 3600, 4e9};
    sim_shared *m = s->sim;
    calm(m);
    m->fault = (sim_fault)random_int(&s->rng, SIM_KILL_BEFORE, SIM_N_FAULTS - 1);
    m->number = numbers[random_int(&s->rng, 0, 3)];
    m->at = random_between(&s->rng, 0, m->fault == SIM_KILL_MESSAGE ? messages : calls);
    m->seed = sim_mix(s->seed + 17u * (uint64_t)s->start);
    if (random_int(&s->rng, 0, 2) == 0) {
        m->stall_every = random_int(&s->rng, 5, 60);
        m->stall_us = random_int(&s->rng, 20, 1500);
    }
    if (random_int(&s->rng, 0, 3) == 0) {
        m->clock_at = random_int(&s->rng, 0, 40);
        m->clock_jump = jumps[random_int(&s->rng, 0, 3)];
        m->clock_stands = random_int(&s->rng, 0, 1);
    }
    note(s, "[%s %lld", fault_names[m->fault], (long long)m->at);
    if (m->fault == SIM_ERROR_ONCE || m->fault == SIM_ERROR_ON)
        note(s, " (%s)", strerrorname_np(m->number));
    note(s, "%s%s", m->stall_every ? ", stalls" : "",
         m->clock_at < 0   ? ""
         : m->clock_stands ? ", the clock stands"
                           : ", the clock jumps");
}

/* A status that the fault explains, and one line where the trainer gave up. */
static bool check_status(schedule *s)
{
    char first[LINE];
    const sim_fault f = s->sim->fault;
    const bool reached = s->sim->reached, ranks = strstr(meshes[s->mesh], "shm") != NULL;
    const int lines = read_stream(s, first);
    note(s, ": %d]", s->status);
    if (s->status == 0)
        return !lines || wrong(s, "status 0, and the line: %s", first);
    if (s->status == 128 + SIGKILL)
        return (kills(f) && reached) || wrong(s, "killed, but not by the fault: %s", first);
    if (s->status != 1 && s->status != 2)
        return wrong(s, "status %d: %s", s->status, first);
    if (!reached || f == SIM_SHORT || (kills(f) && !ranks))
        return wrong(s, "status %d, which no fault explains: %s", s->status, first);
    return (lines == 1 && !strncmp(first, "ttrun: ", 7)) ||
           wrong(s, "status %d and %d lines, where one is wanted: %s", s->status, lines, first);
}

static void run_once(schedule *s, int steps, const char *more, const char *journal)
{
    char options[2 * LINE];
    snprintf(options, sizeof options, "%s --training.steps %d %s", s->rules, steps, more);
    s->start++;
    start(s, options, journal);
}

/* A bit of a tensor file of the newest step, which is on the disk, is another one. */
static void flip_bit(schedule *s)
{
    char folder[800], path[1100] = "";
    struct stat st;
    snprintf(folder, sizeof folder, "%s/checkpoint/step-%lld", s->run, (long long)s->newest);
    DIR *d = opendir(folder);
    for (struct dirent *e = d ? readdir(d) : NULL; e; e = readdir(d))
        if (strstr(e->d_name, ".safetensors"))
            snprintf(path, sizeof path, "%s/%s", folder, e->d_name);
    if (d)
        closedir(d);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || fstat(fd, &st) != 0)
        return;
    const off_t at = random_between(&s->rng, 0, st.st_size - 1);
    uint8_t byte;
    if (pread(fd, &byte, 1, at) == 1) {
        byte ^= (uint8_t)(1 << random_int(&s->rng, 0, 7));
        (void)!pwrite(fd, &byte, 1, at);
    }
    close(fd);
    s->flipped = s->newest;
    s->sim->n_ops = 0;
    note(s, " a bit of step-%lld/%s at %lld;", (long long)s->flipped, path + strlen(folder) + 1,
         (long long)at);
}

/* The start after a flipped bit refuses by a line that names the step; then the step is removed, or the run goes back
 * to the step before, or begins anew. */
static bool mend_flip(schedule *s, const char *journal)
{
    char first[LINE], at[800], name[40], more[80];
    calm(s->sim);
    run_once(s, STEPS + MORE, "", journal);
    const int lines = read_stream(s, first);
    snprintf(name, sizeof name, "step-%lld", (long long)s->flipped);
    if (s->status != 1 && s->status != 2)
        return wrong(s, "status %d after a flipped bit in %s", s->status, name);
    if (lines != 1 || strncmp(first, "ttrun: ", 7) || !strstr(first, name))
        return wrong(s, "a flipped bit in %s, and %d lines: %s", name, lines, first);
    const int64_t flipped = s->flipped;
    s->newest = s->promised = s->n_whole = 0; /* the newest is lost */
    if (!check_steps(s, false, false))
        return false;
    s->flipped = -1;
    snprintf(at, sizeof at, "%s/checkpoint/step-%lld", s->run, (long long)flipped);
    if (s->newest > 0 && (random_int(&s->rng, 0, 1) || s->back)) {
        remove_all(at);
        s->removed++;
        note(s, " removed;");
        return true;
    }
    snprintf(more, sizeof more, "--checkpoint.load_step %lld", (long long)s->newest);
    note(s, " back to step %lld;", (long long)s->newest);
    s->n_whole = 0;
    const int64_t before = s->newest;
    s->back = true;
    s->newest = 0;
    run_once(s, STEPS, before ? more : "--resume never", journal);
    return check_status(s);
}

static void name_whole(schedule *s)
{
    snprintf(s->whole, sizeof s->whole, "%s/whole-%d", places.folder, s->mesh);
}

static bool whole_run(schedule *s, const char *journal)
{
    name_whole(s);
    calm(s->sim);
    snprintf(s->sim->folder, sizeof s->sim->folder, "%s", s->whole);
    start(s, "--checkpoint.interval 1 --checkpoint.keep_latest_k 0 --training.steps 9", journal);
    return s->status == 0 || wrong(s, "the run without faults ends with status %d", s->status);
}

static void draw_rules(schedule *s)
{
    static const char *const modes[] = {"async", "async", "disabled"};
    static const int keeps[] = {0, 2, 3};
    s->mesh = random_int(&s->rng, 0, N_MESHES - 1);
    s->keep = keeps[random_int(&s->rng, 0, 2)];
    const int interval = random_int(&s->rng, 1, 3), mode = random_int(&s->rng, 0, 2);
    const bool stops = random_int(&s->rng, 0, 2), replays = random_int(&s->rng, 0, 1);
    snprintf(s->rules, sizeof s->rules,
             "--checkpoint.interval %d --checkpoint.keep_latest_k %d --checkpoint.async_mode %s "
             "--checkpoint.on_error %s --debug.replay_interval %d",
             interval, s->keep, modes[mode], stops ? "stop" : "continue", replays ? 3 : 0);
}

static bool faulty_start(schedule *s, const char *journal)
{
    draw_fault(s, 35 * (strstr(meshes[s->mesh], "nproc 4") ? 6 : 4), 3000);
    run_once(s, STEPS, "", journal);
    if (!check_status(s))
        return false;
    const sim_fault f = s->sim->fault;
    s->lossy |= f == SIM_ERROR_ONCE || f == SIM_ERROR_ON;
    const bool lost = s->sim->reached && kills(f) && random_int(&s->rng, 0, 3);
    if (lost) {
        lose_power(s->sim, sim_mix(s->seed ^ (uint64_t)s->start));
        s->lossy = true;
        note(s, " power lost;");
    }
    return check_steps(s, false, lost);
}

static void empty_folders(schedule *s)
{
    snprintf(s->run, sizeof s->run, "%s/run", s->dir);
    snprintf(s->err, sizeof s->err, "%s/err", s->dir);
    snprintf(s->sim->removed, sizeof s->sim->removed, "%s/removed", s->dir);
    name_whole(s);
    remove_all(s->run);
    remove_all(s->sim->removed);
    mkdir(s->run, 0777);
    mkdir(s->sim->removed, 0777);
    snprintf(s->sim->folder, sizeof s->sim->folder, "%s", s->run);
    s->sim->n_ops = s->sim->n_kept = 0;
}

static bool run_schedule(schedule *s, const char *journal)
{
    s->rng = (test_rng){tt_rng_key_make(s->seed, "schedule", 0), 0};
    s->flipped = -1;
    draw_rules(s);
    empty_folders(s);
    for (int n = random_int(&s->rng, 1, 3); n > 0; n--) {
        if (!faulty_start(s, journal))
            return false;
        if (s->newest > 0 && random_int(&s->rng, 0, 3) == 0) {
            flip_bit(s);
            if (s->flipped >= 0 && !mend_flip(s, journal))
                return false;
        }
    }
    calm(s->sim);
    note(s, " [the last start");
    run_once(s, STEPS + MORE, "", journal);
    if (!check_status(s))
        return false;
    if (s->status != 0)
        return wrong(s, "status %d at the end", s->status);
    return check_end(s);
}

/* The call that gives step-N its name; -1: none. */
static int64_t call_of_step(const sim_shared *m, const char *name)
{
    for (int i = 0; i < m->n_ops; i++)
        if (m->ops[i].kind == SIM_RENAME && !strcmp(m->ops[i].to_name, name))
            return m->ops[i].call;
    return -1;
}

/* A run ends between the rename of a step and the sync of the folder; the next one says that it resumed from there;
 * then power is lost, with all that no sync has kept. The step must stay. */
static bool resumed(schedule *s, const char *journal)
{
    s->flipped = -1;
    strcpy(s->rules, "--checkpoint.interval 1 --checkpoint.async_mode disabled");
    if (!whole_run(s, journal))
        return false;
    empty_folders(s);
    calm(s->sim);
    run_once(s, 2, "", journal);
    const int64_t call = call_of_step(s->sim, "step-2");
    empty_folders(s);
    calm(s->sim);
    s->sim->fault = SIM_KILL_AFTER;
    s->sim->at = call;
    run_once(s, 2, "", journal);
    if (s->status != 128 + SIGKILL || !check_steps(s, false, false) || s->newest != 2)
        return wrong(s, "status %d, not killed after the rename of step 2", s->status);
    calm(s->sim);
    run_once(s, 2, "", journal);
    if (!check_status(s) || s->promised != 2)
        return wrong(s, "status %d, and no line says that it resumed from step 2", s->status);
    power_draw_all(s->sim);
    power_take(s->sim, 1);
    return check_steps(s, false, true);
}

/* What the runner prints if a start hangs and it ends this program: a line per worker. */
static void say_awaited(int worker, uint64_t seed)
{
    char line[64];
    const char *path = getenv("TT_AWAITED");
    const int fd = path ? open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666) : -1;
    snprintf(line, sizeof line, "the processes of seed %-18llu\n", (unsigned long long)seed);
    if (fd >= 0 && pwrite(fd, line, strlen(line), worker * (off_t)strlen(line)) < 0)
        perror(path);
    if (fd >= 0)
        close(fd);
}

/* The runs without faults of the meshes that are this worker's. */
static int work_whole(schedule *s, const char *journal, int worker, int workers)
{
    for (s->mesh = worker; s->mesh < N_MESHES; s->mesh += workers)
        if (!whole_run(s, journal))
            return 1;
    return 0;
}

/* Seeds first + worker, first + worker + workers, …; ends with status 1 after the third one that fails. WHOLE: only the
 * runs without faults, which are the same for all seeds. */
static int work(int worker, int workers, uint64_t first, int count, bool whole)
{
    char dir[560], journal[600];
    int failed = 0;
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    snprintf(dir, sizeof dir, "%s/%d", places.folder, worker);
    snprintf(journal, sizeof journal, "%s/journal", dir);
    mkdir(dir, 0777);
    sim_shared *m = new_journal(journal);
    if (!m)
        return 2;
    if (whole) {
        schedule s = {.sim = m};
        snprintf(s.err, sizeof s.err, "%s/err", dir);
        return work_whole(&s, journal, worker, workers);
    }
    for (int i = worker; i < count && failed < 3; i += workers) {
        schedule *s = calloc(1, sizeof *s);
        s->seed = first + (uint64_t)i;
        s->sim = m;
        say_awaited(worker, s->seed);
        snprintf(s->dir, sizeof s->dir, "%s", dir);
        const bool good = run_schedule(s, journal);
        failed += !good;
        if (getenv("SIM_VERBOSE"))
            printf("# seed %llu: %s\n    %s\n    %s\n", (unsigned long long)s->seed,
                   meshes[s->mesh], s->rules, s->faults);
        free(s);
    }
    return failed ? 1 : 0;
}

static int work_written(void)
{
    char journal[600];
    schedule s = {0};
    snprintf(journal, sizeof journal, "%s/journal", places.folder);
    snprintf(s.dir, sizeof s.dir, "%s", places.folder);
    snprintf(s.err, sizeof s.err, "%s/err", s.dir);
    s.sim = new_journal(journal);
    return s.sim && resumed(&s, journal) ? 0 : 1;
}

int main(int argc, char **argv)
{
    if (argc != 9 && argc != 6)
        return fprintf(stderr,
                       "usage: sim_tool TTRUN PLUGINS JOB FOLDER SHIM [FIRST COUNT WORKERS]\n"),
               2;
    places.ttrun = argv[1];
    places.plugins = argv[2];
    places.job = argv[3];
    places.folder = argv[4];
    places.shim = argv[5];
    if (argc == 6)
        return work_written();
    const uint64_t first = strtoull(argv[6], NULL, 10);
    const int count = atoi(argv[7]), workers = atoi(argv[8]);
    int rc = 0, how;
    for (int whole = 1; whole >= 0 && !rc; whole--) {
        for (int i = 0; i < workers; i++)
            if (fork() == 0)
                exit(work(i, workers, first, count, whole));
        while (wait(&how) > 0)
            rc |= !WIFEXITED(how) || WEXITSTATUS(how) ? 1 : 0;
    }
    return rc;
}
