#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The trainer in simulations that a seed draws (sim_tool.c): a mesh, how it saves, and kills, stalls, torn writes, lost names, full disks, flipped
# bits and clocks that jump. Each ends with the bits of the run without faults, or with a refusal by a line. SEED: the first seed; SCHEDULES: how many
# (100; with TEST_LONG 10000); SIM_VERBOSE=1 shows each.
. "$(dirname "$0")/../run/lib.sh"
without_sanitizers
preload disk sim
ok disk_builds
n=${SCHEDULES:-100}
! is_long || n=${SCHEDULES:-10000}
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
: "${SEED:=1}"
mkdir "$dir/sim"
PATH=/usr/bin:/bin "$BUILD/tests/sim/sim_tool" "$TTRUN" "$PLUGINS" "$job" "$dir/sim" "$dir/disk.so" "$SEED" "$n" "${WORKERS:-3}" || failed=1
[ $failed -eq 0 ]
ok "$n""_schedules_end_with_the_bits_of_the_run_without_faults"
exit $failed
