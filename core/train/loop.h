/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_LOOP_H
#define TT_LOOP_H
#include "train/console.h"
#include "train/ctl.h"
#include "train/early.h"
#include "train/experts.h"
#include "train/hooks.h"
#include "train/losses.h"
#include "train/measure.h"
#include "train/peer.h"
#include "train/saver.h"
#include "train/saves.h"
#include "train/swap.h"
#include "train/train.h"
#include "train/trial.h"
#include "train/writer.h"
#include <math.h>

/* The training loop's state: what one rank keeps from step to step. */

typedef struct tt_times { /* seconds since the last logged step */
    double data, forward_backward, optimizer, comm, checkpoint, validation;
    double comm_axes[TT_MAX_COMM_AXES]; /* as tt_exec_comm_axes() */
    int64_t begin_ns;
} tt_times;

/* What the loop remembers of a step that is on the queues, until its numbers are known. */
typedef struct tt_flight {
    bool on, measured;
    int64_t step, epoch, counted, samples;
    double lr, weight; /* weight: what the loss is divided by */
} tt_flight;

typedef struct tt_hook_end {
    const tt_hook_vt *vt;
    void *self;
    const char *name;
} tt_hook_end;

typedef struct tt_data_parts {
    void *tokenizer, *loader, *validation[TT_MAX_PARTS]; /* in the order of tt_setup.validation */
    tt_tokenizer_info tokenizer_info;
} tt_data_parts;
void tt_data_parts_close(tt_data_parts *d, const tt_setup *s);

/* Tokenizer and loaders, shared by the ranks of one process. The caller that runs the ranks makes
 * this and closes its parts. */
typedef struct tt_shared_data {
    pthread_mutex_t lock;
    bool threads; /* the ranks are threads: the one that opens logs as rank 0 */
    bool opened;
    tt_status status;
    tt_error err;
    tt_data_parts parts;
} tt_shared_data;

struct tt_loop {
    const tt_setup *s;
    const tt_run_opts *o;
    const tt_run_folder *folder; /* locked by rank 0's process */
    tt_rank rank;
    bool main;           /* rank 0 */
    int stopped_by;      /* the stop signal that any rank received, or TT_STOP_CTL; 0: none */
    bool save_asked;     /* SIGUSR1 or `ttrun ctl` has asked for a save */
    bool validation_due; /* the validation after this step has not ended */
    /* data */
    tt_data_parts data;
    tt_mapping reference[1 + TT_MAX_PARTS]; /* reference.h */
    tt_shared_data *shared;                 /* NULL: the data belongs to this loop */
    tt_stream *stream;
    tt_saver *saver;                            /* NULL: the run saves nothing */
    const char *frozen_from, *initial_identity; /* as in tt_trainer_state */
    tt_peer *peer;                              /* NULL: no supervisor keeps copies of the states */
    int64_t saved_ns;                           /* when the last save began, or the loop */
    /* commands from outside */
    tt_ctl *ctl;          /* rank 0; NULL: the folder takes no socket */
    bool ctl_saves;       /* `ttrun ctl` waits for the save that is asked for */
    bool ctl_saving;      /* and for the one in flight */
    int64_t profile_step; /* that `ttrun ctl` wants traced; 0: none */
    tt_swaps *swaps;
    tt_swap swap;
    tt_trial trial;
    bool swaps_now; /* a program that `ttrun ctl` asked for takes over after this step */
    double lr_base; /* optimizer.lr, or what `ttrun ctl` has set */
    /* state of training */
    bool resumed;                          /* from a checkpoint in the folder */
    int64_t step;                          /* that the host puts on the queues */
    int64_t optimizer_from, schedule_from; /* as in tt_trainer_state */
    tt_flight flight;
    /* how long the run is (length.c) */
    int64_t steps;      /* of the whole run */
    bool by_epoch;      /* batches end with the epoch */
    bool weights_alone; /* what the run resumes from has no optimizer states: it can only be done */
    int64_t n_samples;  /* per epoch */
    int64_t next_sample;  /* the first of the next step that is put on the queues */
    int64_t step_samples; /* of the step that was put there last */
    double epochs;        /* by_epoch: of the whole run */
    tt_early early;
    int64_t told_epoch, told_step; /* of the newest line that says that an epoch began */
    /* of the newest step whose numbers are known, and up to it */
    int64_t known_step, tokens_seen, samples_seen, epoch;
    int64_t step_tokens, step_counted; /* of that step; counted: whose labels are not ignored */
    char loss_name[80]; /* losses/PLUGIN: in the records of models with more losses; else empty */
    double loss, loss_max, norm, lr, loss_scale;
    int64_t skipped_in_row; /* ending with the newest */
    /* numbers since the last logged step */
    int64_t logged_step, tokens_since, samples_since;
    tt_log_sums since;
    tt_losses losses;
    double trained_before; /* seconds, of the starts of the run before this one */
    int64_t began_step, began_ns, began_tokens, told_ns; /* of this process */
    double began_ran,
        began_waited;   /* tt_core_times() at the first logged step; NaN: told already */
    double most_memory; /* GiB: that of the rank with most of it, up to the step before */
    double device_most; /* bytes in use on the rank's device, at a logged step */
    tt_times t;
    double peak_flops;
    /* outputs, rank 0 */
    tt_sink sinks[TT_MAX_PARTS];
    int n_sinks;
    tt_writer *writer; /* of the sinks; NULL: there are no sinks */
    tt_hook_end hooks[TT_MAX_PARTS];
    int n_hooks;
    tt_hook_progress saving; /* when the newest save was begun */
    int64_t
        exported; /* a step that hooks are not told of yet; 0: none. The saver's thread writes it before
                         the save ends, and the loop reads it afterwards. */
    tt_progress progress;
    bool has_progress;
    tt_metric *metrics; /* room for n_metrics */
    size_t n_metrics;
    tt_measures *measures; /* NULL: the program measures nothing */
    tt_expert_log experts;
    const char *set_names[TT_MAX_PARTS][2]; /* of metrics: loss and tokens of a validation's set */
    tt_str line;                /* the console's, reused so that a step allocates nothing */
    struct tt_profile *profile; /* NULL: profiling.enable is false */
    struct tt_memory_snapshot *snapshot; /* of the step that runs; NULL: none is made */
};

/* step.c */
/* Its numbers are known at the return, unless they are late (tt_rank.late): then those of the step
 * before are known and logged. */
tt_status tt_loop_step(tt_loop *l, tt_error *err);
/* If the numbers of a step are late, waits for them and logs them. */
tt_status tt_loop_settle(tt_loop *l, tt_error *err);
/* replay.c: runs the micro-batches of a step. If it is time, they run again and are compared; then each op of
 * the epilogue and the update, up to tt_loop_replay_ends. [collective] */
tt_status tt_loop_micro_batches(tt_loop *l, tt_feed *feed, tt_error *err);
tt_status tt_loop_replay_ends(tt_loop *l, tt_error *err);
/* command.c */
#define TT_STOP_CTL 1000 /* stopped_by: `ttrun ctl RUN_DIR stop`, which is no signal */
const char *tt_loop_stop_name(int stopped_by);
int tt_loop_stop_signal(const tt_loop *l); /* what asks this rank to stop, or 0 */
void tt_loop_open_ctl(tt_loop *l);
void tt_loop_close_ctl(tt_loop *l, tt_status s, const tt_error *err);
/* Combines the ranks' flags after a step: all take the maximum of each. Then all obey the command that
 * rank 0 has taken, if commands are allowed here. [collective] */
tt_status tt_loop_exchange(tt_loop *l, bool commands, tt_error *err);
/* Answers who waits for the save, once it is complete. */
void tt_loop_answer_save(tt_loop *l);
/* announce.c */
/* Says what runs, with -v what was chosen, and writes run.json. */
tt_status tt_loop_announce(tt_loop *l, tt_error *err);
tt_status tt_loop_describe(tt_loop *l, tt_error *err); /* writes run.json again */
void tt_loop_backend(const tt_loop *l, tt_str *out);   /* what the backend says of itself */
/* What `ttrun ctl` has changed of the job, as a JSON object; nothing if it has not. */
void tt_loop_changes(const tt_loop *l, tt_str *out);
/* With -v: how long a phase of the start took. *since_ns: its begin, and then now. */
void tt_loop_say_phase(const tt_loop *l, const char *what, int64_t *since_ns);
/* numbers.c */
void tt_loop_numbers_add(tt_loop *l, double loss_sum); /* of a step whose numbers are known */
void tt_loop_numbers_begin(tt_loop *l);                /* after a logged step */
size_t tt_loop_numbers(tt_loop *l);                    /* into l->metrics; how many */
double
tt_loop_memory_gib(const tt_loop *l); /* the most of this process; of a device: of the device */
double tt_loop_device_bytes(const tt_loop *l); /* in use now by all processes; NaN: there is none */
double tt_loop_tps(const tt_loop *l);          /* per rank, since the last logged step */
double tt_loop_seconds_left(const tt_loop *l);
double tt_loop_train_seconds(const tt_loop *l); /* of all starts of the run */
void tt_loop_say_end(const tt_loop *l);
/* log.c */
tt_status tt_loop_open_sinks(tt_loop *l, tt_error *err);
void tt_loop_close_sinks(tt_loop *l);
tt_status tt_loop_written(tt_loop *l, tt_error *err); /* waits until all records are in the files */
tt_status tt_loop_log(tt_loop *l, tt_error *err);     /* the numbers that are known */
/* Of the whole validation, and of each of its n named data sets. */
typedef struct tt_validated {
    double sum, weight; /* loss is sum / weight */
    int64_t tokens;
} tt_validated;
tt_status tt_loop_log_validation(tt_loop *l, const tt_validated *all, const tt_validated *sets,
                                 tt_error *err);
/* profile.c: traces every profiling.freq-th step and the last one; the ranks write one file, one
 * after the other. Logs a table of the ops when the loop is closed. Does nothing if profiling is
 * off. */
tt_status tt_loop_open_profile(tt_loop *l, tt_error *err);
tt_status tt_loop_profile_open(tt_loop *l, tt_error *err); /* whatever the job says */
tt_status tt_loop_profile_ask(tt_loop *l,
                              tt_error *err); /* the next step too, whatever the job says */
bool tt_loop_profiles(const tt_loop *l, int64_t step);
void tt_loop_profile_begin(tt_loop *l); /* before a step */
tt_status tt_loop_profile_end(tt_loop *l, tt_error *err);
void tt_loop_close_profile(tt_loop *l);
/* data.c */
tt_status tt_loop_open_data(tt_loop *l, tt_error *err);
tt_status tt_loop_open_stream(tt_loop *l, tt_error *err); /* at samples_seen */
void tt_loop_close_data(tt_loop *l);
/* length.c */
/* After the resume: how many steps the run has. [collective] */
tt_status tt_loop_length(tt_loop *l, tt_error *err);
/* Writes the steps of a run by epochs into the resolved job. One rank-thread calls it. */
tt_status tt_loop_derive_steps(const tt_setup *s, int64_t n_samples, tt_error *err);
int64_t tt_loop_step_samples(const tt_loop *l); /* of the next step's global batch */
void tt_loop_tell_epoch(tt_loop *l);            /* logs that an epoch began */
/* validate.c: clears validation_due, unless a stop signal interrupts the validation. */
tt_status tt_loop_validate(tt_loop *l, tt_error *err);
/* resume.c */
tt_status tt_loop_resume(tt_loop *l, tt_error *err);
/* aside.c: rank 0 moves files of an earlier run to dump_folder/before-N: all of them if this run
 * starts at step 0, the later steps if it goes back to one (checkpoint.load_step). */
tt_status tt_loop_set_aside(tt_loop *l, tt_error *err);

static inline bool tt_loop_due(const tt_loop *l, int64_t step, int64_t every)
{
    return every > 0 && (step % every == 0 || step == l->steps);
}

/* Is a step logged, by its number? */
static inline bool tt_loop_logs(const tt_loop *l, int64_t step)
{
    return step == 1 || tt_loop_due(l, step, l->s->core.metrics.log_freq);
}

static inline double tt_validated_loss(const tt_validated *v)
{
    return v->weight > 0 ? v->sum / v->weight : (double)NAN;
}

static inline double tt_seconds_since(int64_t ns)
{
    return 1e-9 * (double)(tt_now_ns() - ns);
}

#endif
