/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TTRUN_TTRUN_H
#define TTRUN_TTRUN_H
/* Includes every public header: all that a plugin may use. */
#include <ttrun/attention.h>
#include <ttrun/backend.h>
#include <ttrun/builder.h>
#include <ttrun/chat.h>
#include <ttrun/codes.h>
#include <ttrun/comm.h>
#include <ttrun/converter.h>
#include <ttrun/corpus.h>
#include <ttrun/dataloader.h>
#include <ttrun/device.h>
#include <ttrun/files.h>
#include <ttrun/hook.h>
#include <ttrun/kernels.h>
#include <ttrun/log.h>
#include <ttrun/loss.h>
#include <ttrun/lr_scheduler.h>
#include <ttrun/metrics.h>
#include <ttrun/model.h>
#include <ttrun/narrow.h>
#include <ttrun/op.h>
#include <ttrun/ops.h>
#include <ttrun/optimizer.h>
#include <ttrun/option.h>
#include <ttrun/param.h>
#include <ttrun/patience.h>
#include <ttrun/plugin.h>
#include <ttrun/quantize.h>
#include <ttrun/random.h>
#include <ttrun/status.h>
#include <ttrun/tensor.h>
#include <ttrun/tokenizer.h>
#include <ttrun/train_spec.h>
#endif
