/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_METRIC_NAME_H
#define TT_METRIC_NAME_H
#include "base/base.h"

/* Whose a metric is, by its name alone, so that it holds for a file of metrics, too. [any-thread] */

/* The name of the training loop's that this one is, or is below ("losses/x"); NULL: none. */
const char *tt_metric_own(const char *name);
/* Did a model or a loss log it (tt_log_metric, tt_loss_term), not the training loop? */
bool tt_metric_of_model(const char *name);

#endif
