/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_PATIENCE_H
#define TTRUN_PATIENCE_H
#include <stdint.h>
#include <ttrun/status.h> /* TT_EXPORT */
#ifdef __cplusplus
extern "C" {
#endif

/* How long ttrun waits for others, where no key of the job says so: for a process that should end, a client that
 * should speak, a rank that should notice. All of these times stand here, and each is used through
 *
 *     tt_patience(TT_CTL_SILENT_NS)
 *
 * which multiplies it by the environment variable TTRUN_PATIENCE, a number from 1e-6 to 1e6; 1 if it is not set. A
 * machine that is slow everywhere (an emulator, valgrind, a test beside a hundred others) sets 20, and nothing is given
 * up early; a test of what follows a time sets 0.01. Times that the user chooses (comm.*_timeout_seconds,
 * --rdzv-timeout) are not multiplied. */
/* The first call of a process reads the variable; later ones are safe in signal handlers. [any-thread] */
TT_EXPORT int64_t tt_patience(int64_t ns);
TT_EXPORT int tt_patience_ms(int64_t ns); /* for poll(2), at least 1 [any-thread] */

#define TT_NS(seconds) ((int64_t)((seconds)*1e9))

/* ---- signals and the launcher of ranks ---- */
#define TT_STOP_TWICE_NS TT_NS(0.5)   /* two signals within it are one stop */
#define TT_CHILD_GRACE_NS TT_NS(3)    /* after a rank failed, until the others are killed */
#define TT_CHILD_SHORT_NS TT_NS(0.25) /* the same where a supervisor starts them again */
#define TT_CHILD_LEAVE_NS TT_NS(5)    /* after SIGKILL, until a child is given up */
#define TT_MPIRUN_ALONE_NS TT_NS(10)  /* how long mpirun may outlive its ranks after a stop */
#define TT_MPIRUN_QUIET_NS TT_NS(1)   /* without a rank, until a stop goes through mpirun */

/* ---- nodes: --nnodes, and copies of checkpoints in other nodes' memory ---- */
#define TT_NODE_CONNECT_NS TT_NS(1) /* for one try to connect */
#define TT_NODE_HELLO_NS TT_NS(5)   /* for a connection to say who it is */
#define TT_NODE_TELL_NS TT_NS(5)    /* until a line says for which nodes this one waits */
#define TT_NODE_END_NS TT_NS(60)    /* after a failure, until a silent node is lost */
#define TT_PEER_IDLE_NS TT_NS(30)   /* of a connection over which something is to come */
#define TT_PEER_SAY_NS TT_NS(10)    /* without a connection, until a line says so */
#define TT_PEER_BYE_NS TT_NS(0.1)   /* for the last word to a peer */

/* ---- ranks of one machine ---- */
#define TT_RANK_MOMENT_NS TT_NS(2)  /* for the others to notice that the run was stopped */
#define TT_RANK_STOPPED_NS TT_NS(3) /* for the others to arrive after a stop signal */
#define TT_RANK_OVERDUE_NS TT_NS(5) /* until a thread that missed a stop is ended */
#define TT_RANK_ENDING_NS TT_NS(1)  /* for a launcher that ends all ranks to end this one */
#define TT_RANK_NOTE_NS TT_NS(0.1)  /* for a note that another rank is writing */
#define TT_NCCL_CLOSE_NS TT_NS(2)   /* for a communicator to end */
#define TT_TCP_HELLO_NS TT_NS(10)   /* for a connection to say its hello */
#define TT_TCP_IDLE_NS TT_NS(10)    /* of a connection, until the kernel probes it */
#define TT_TCP_PROBE_NS TT_NS(5)    /* between two probes */

/* ---- files, and clients of a run ---- */
#define TT_FOLDER_BUSY_NS TT_NS(5)  /* for another run to leave the folder */
#define TT_SQLITE_BUSY_NS TT_NS(30) /* for another writer; trackio's own limit */
#define TT_CTL_SILENT_NS TT_NS(5)   /* a client of `ttrun ctl` that says nothing */
#define TT_CTL_ANSWER_NS TT_NS(10)  /* a run that does not answer `ttrun ctl` */
#define TT_HTTP_SILENT_NS TT_NS(75) /* a client of `ttrun serve` that says or reads nothing */
#define TT_HTTP_HEAD_NS TT_NS(20)   /* for a whole head of a request */
#define TT_HTTP_BODY_NS TT_NS(120)  /* for a whole body, of at most 16 MiB */
#define TT_HTTP_LINGER_NS TT_NS(20) /* for a client to close after its last answer */
#define TT_DEAF_NS TT_NS(1)         /* without descriptors, until clients are accepted again */

#ifdef __cplusplus
}
#endif
#endif
