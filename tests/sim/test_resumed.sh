#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A step that a run was killed just after it had named it, that the next run resumes from, and then a loss of power (sim_tool.c: resumed).
. "$(dirname "$0")/../run/lib.sh"
without_sanitizers
preload disk sim
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
mkdir "$dir/sim"
PATH=/usr/bin:/bin "$BUILD/tests/sim/sim_tool" "$TTRUN" "$PLUGINS" "$job" "$dir/sim" "$dir/disk.so" >"$dir/out" 2>"$dir/err"
ok the_step_that_a_run_resumed_from_survives_a_loss_of_power
exit $failed
