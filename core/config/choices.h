/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CHOICES_H
#define TT_CHOICES_H
#include "config/config.h"

/* An option that is one of a few words is an enum. A list X(enumerator, word) defines both, and
 * TT_CHOICES of the list is the option's `choices`. A word with ~ is known but not implemented. */
#define TT_ENUMERATOR(enumerator, word) enumerator,
#define TT_CHOICE_WORD(enumerator, word) "|" word
#define TT_CHOICES(list) (&list(TT_CHOICE_WORD)[1])

#define TT_ROTATE_METHODS(X)                                                                       \
    X(TT_ROTATE_ALLGATHER, "allgather")                                                            \
    X(TT_ROTATE_RING, "ring")                                                                      \
    X(TT_ROTATE_ALLTOALL, "alltoall")                                                              \
    X(TT_ROTATE_ULYSSES, "ulysses")
typedef enum tt_rotate_method { TT_ROTATE_METHODS(TT_ENUMERATOR) } tt_rotate_method;

#define TT_LOAD_BALANCERS(X)                                                                       \
    X(TT_BALANCE_HEADTAIL, "headtail")                                                             \
    X(TT_BALANCE_NONE, "none")                                                                     \
    X(TT_BALANCE_PTRR, "~ptrr")
typedef enum tt_load_balancer { TT_LOAD_BALANCERS(TT_ENUMERATOR) } tt_load_balancer;

#define TT_RESHARDS(X)                                                                             \
    X(TT_RESHARD_DEFAULT, "default")                                                               \
    X(TT_RESHARD_ALWAYS, "always")                                                                 \
    X(TT_RESHARD_NEVER, "never")
typedef enum tt_reshard { TT_RESHARDS(TT_ENUMERATOR) } tt_reshard;

#define TT_CHECKPOINT_MODES(X)                                                                     \
    X(TT_CHECKPOINT_NONE, "none")                                                                  \
    X(TT_CHECKPOINT_SELECTIVE, "selective")                                                        \
    X(TT_CHECKPOINT_FULL, "full")                                                                  \
    X(TT_CHECKPOINT_BUDGET, "budget")
typedef enum tt_checkpoint_mode { TT_CHECKPOINT_MODES(TT_ENUMERATOR) } tt_checkpoint_mode;

/* One more than the tt_dtype; auto: that of the Hugging Face folder the model came from, else f32. */
#define TT_EXPORT_DTYPES(X)                                                                        \
    X(TT_EXPORT_AUTO, "auto")                                                                      \
    X(TT_EXPORT_F32, "float32")                                                                    \
    X(TT_EXPORT_BF16, "bfloat16")                                                                  \
    X(TT_EXPORT_F16, "float16")
typedef enum tt_export_dtype { TT_EXPORT_DTYPES(TT_ENUMERATOR) } tt_export_dtype;
#define TT_OFFLOADS(X)                                                                             \
    X(TT_ACTIVATIONS_STAY, "none")                                                                 \
    X(TT_ACTIVATIONS_HIDDEN, "auto")                                                               \
    X(TT_ACTIVATIONS_ALL, "all")
typedef enum tt_activations { TT_OFFLOADS(TT_ENUMERATOR) } tt_activations;

#define TT_ASYNC_MODES(X)                                                                          \
    X(TT_ASYNC_DISABLED, "disabled")                                                               \
    X(TT_ASYNC_ON, "async")                                                                        \
    X(TT_ASYNC_PINNED, "async_with_pinned_mem")
typedef enum tt_async_mode { TT_ASYNC_MODES(TT_ENUMERATOR) } tt_async_mode;

#define TT_INTERVALS(X)                                                                            \
    X(TT_INTERVAL_STEPS, "steps")                                                                  \
    X(TT_INTERVAL_SECONDS, "seconds")                                                              \
    X(TT_INTERVAL_EPOCHS, "epochs")
typedef enum tt_interval { TT_INTERVALS(TT_ENUMERATOR) } tt_interval;

#define TT_ON_ERRORS(X)                                                                            \
    X(TT_ON_ERROR_STOP, "stop")                                                                    \
    X(TT_ON_ERROR_CONTINUE, "continue")
typedef enum tt_on_error { TT_ON_ERRORS(TT_ENUMERATOR) } tt_on_error;

#define TT_OVERLAPS(X)                                                                             \
    X(TT_OVERLAP_AUTO, "auto")                                                                     \
    X(TT_OVERLAP_ON, "on")                                                                         \
    X(TT_OVERLAP_OFF, "off")
typedef enum tt_overlap { TT_OVERLAPS(TT_ENUMERATOR) } tt_overlap;

#define TT_CAPTURES(X)                                                                             \
    X(TT_CAPTURE_AUTO, "auto")                                                                     \
    X(TT_CAPTURE_OFF, "off")
typedef enum tt_capture { TT_CAPTURES(TT_ENUMERATOR) } tt_capture;

/* The float dtypes in the order of tt_dtype. */
#define TT_FLOATS "float32|bfloat16"
_Static_assert(TT_F32 == 0 && TT_BF16 == 1 && TT_F16 == 2, "the order of TT_FLOATS and float16");
_Static_assert(sizeof(tt_dtype) == sizeof(int) && sizeof(tt_overlap) == sizeof(int),
               "an option of a few words is stored as an int");

#define TT_NORMS(X)                                                                                \
    X(TT_NORMS_OFF, "off")                                                                         \
    X(TT_NORMS_LAYER, "layer")                                                                     \
    X(TT_NORMS_PARAM, "param")
typedef enum tt_norms { TT_NORMS(TT_ENUMERATOR) } tt_norms;

#define TT_HEALTHS(X)                                                                              \
    X(TT_HEALTH_WARN, "warn")                                                                      \
    X(TT_HEALTH_STOP, "stop")
typedef enum tt_health { TT_HEALTHS(TT_ENUMERATOR) } tt_health;

#define TT_CHECKS(X)                                                                               \
    X(TT_CHECK_OFF, "off")                                                                         \
    X(TT_CHECK_AGAIN, "again")                                                                     \
    X(TT_CHECK_STOP, "stop")
typedef enum tt_check_products { TT_CHECKS(TT_ENUMERATOR) } tt_check_products;

#define TT_REPLAYS(X)                                                                              \
    X(TT_REPLAY_SAME, "same")                                                                      \
    X(TT_REPLAY_NEXT, "next")
typedef enum tt_replay_on { TT_REPLAYS(TT_ENUMERATOR) } tt_replay_on;

#endif
