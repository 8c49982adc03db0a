/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TT_CKPT_CONVERT_H
#define TT_CKPT_CONVERT_H
#include "cli/cli.h"

/* ckpt import and export: conversion from and to the weights of other programs. */

/* Finds a step folder: the folder itself, or the newest step in a folder of step folders or in a
 * run folder. */
tt_status tt_ckpt_step_of(tt_cli *cli, const char *folder, const char **out, tt_error *err);

tt_status tt_ckpt_import(tt_cli *cli, const char *folder, const char *out, tt_error *err);
tt_status tt_ckpt_export(tt_cli *cli, const char *folder, const char *out, tt_error *err);

#endif
