#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# comm.trace_buf_size: the last collectives of each rank are written to files when a rank has waited too long, or has died, and
# the error names the folder and the rank that is behind; not when a run ends otherwise.
. "$(dirname "$0")/processes.sh"

# file FOLDER RANK: its JSON is whole, and of that rank
file() { [ "$(value "$1/rank_$2.json" rank)" = "$2" ] && [ "$(value "$1/rank_$2.json" n_calls)" -gt 10 ]; }

# Rank 1 stops between two calls; a signal from here could come while it notes one, and then it has as many as the others.
hang 1 own "$dir/hang"
ends 1
good=$?
kill -9 "$victim" 2>/dev/null
[ $good -eq 0 ] && one_line "$dir/err" && file "$folder/comm_traces" 0 && file "$folder/comm_traces" 1 &&
    grep -q "ranks that did not arrive: 1; the last calls of each rank are in $folder/comm_traces; rank 1 is behind: rank 0 waits for it in [a-z_]* .*, step [0-9]*; its last call is " "$dir/err"
ok a_hang_writes_the_calls_of_all_ranks_also_of_the_one_that_hangs
grep -q '"for": "model' "$folder/comm_traces/rank_0.json" && grep -q '"state": "failed"' "$folder/comm_traces/rank_0.json" && grep -q '"op": "all_gather"' "$folder/comm_traces/rank_1.json"
ok the_files_name_tensors_and_the_call_that_waits

launch own "$dir/kill" --nproc 2 --checkpoint.interval 1000000 --comm.save_traces_folder "$dir/elsewhere" --comm.save_traces_file_prefix calls-of-
kill -9 "$(ranks "$folder" | tail -n 1)"
ends 1 && one_line "$dir/err" && grep -q "^ttrun: rank 1 was lost at .*; the last calls of each rank are in $dir/elsewhere" "$dir/err" &&
    [ "$(value "$dir/elsewhere/calls-of-1.json" rank)" = 1 ] && [ "$(value "$dir/elsewhere/calls-of-0.json" rank)" = 0 ] && [ ! -e "$folder/comm_traces" ]
ok a_rank_that_is_killed_leaves_its_calls

launch own "$dir/off" --nproc 2 --checkpoint.interval 1000000 --comm.trace_buf_size 0
kill -9 "$(ranks "$folder" | tail -n 1)"
ends 1 && one_line "$dir/err" && ! grep -q 'last calls' "$dir/err" && [ ! -e "$folder/comm_traces" ]
ok nothing_is_remembered_with_trace_buf_size_0

launch own "$dir/stop" --nproc 2
kill -TERM $pid
ends 4 && [ ! -e "$folder/comm_traces" ]
ok a_stop_writes_nothing

train "$dir/with" --nproc 2 --comm.backend local && train "$dir/without" --nproc 2 --comm.backend local --comm.trace_buf_size 0 &&
    losses "$dir/with/metrics.jsonl" >"$dir/a" && losses "$dir/without/metrics.jsonl" >"$dir/b" && [ -s "$dir/a" ] && cmp "$dir/a" "$dir/b"
ok losses_do_not_depend_on_it
exit $failed
