/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_FAKE_MPI_H
#define TT_FAKE_MPI_H
#include <stddef.h>

/* What plugins/comms/mpi/messages.c needs of MPI, for tests/comm/test_pieces.c, which has the functions. */

typedef int MPI_Comm, MPI_Request, MPI_Datatype;
typedef struct MPI_Status MPI_Status;
#define MPI_BYTE 1
#define MPI_STATUS_IGNORE NULL
#define MPI_STATUSES_IGNORE NULL

int MPI_Isend(const void *p, int n, MPI_Datatype type, int to, int tag, MPI_Comm c, MPI_Request *r);
int MPI_Issend(const void *p, int n, MPI_Datatype type, int to, int tag, MPI_Comm c,
               MPI_Request *r);
int MPI_Irecv(void *p, int n, MPI_Datatype type, int from, int tag, MPI_Comm c, MPI_Request *r);
int MPI_Wait(MPI_Request *r, MPI_Status *status);
int MPI_Testall(int n, MPI_Request *r, int *done, MPI_Status *status);
int MPI_Cancel(MPI_Request *r);

#endif
