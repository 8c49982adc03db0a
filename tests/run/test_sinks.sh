#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# metrics.sinks: several at once, each with its options; the files of csv, prometheus, wandb and trackio hold what metrics.jsonl holds, also after a
# resume and with columns that appear later. The console is one of them. TensorBoard's folder, and its files of each rank.
. "$(dirname "$0")/lib.sh"
sqlite=$BUILD/tests/run/sqlite_tool
trackio=',{"name":"trackio","project":"my.model","folder":"'$dir'/tracks"}'
"$sqlite" :memory: 'SELECT 1' >/dev/null
[ $? -ne 77 ] || { trackio= && skip trackio "no SQLite here (apt-get install libsqlite3-0)"; }
sinks='[{"name":"jsonl"},{"name":"csv"},{"name":"prometheus","prefix":"lm_","labels":["team=a \"b\"\\c"]},{"name":"wandb","project":"mine"}'$trackio']'
with() { # FOLDER STEPS OPTION...
    where=$1
    steps=$2
    shift 2
    train "$where" --metrics.sinks "$sinks" --validation.enable true --validation.freq 4 --validation.steps 1 \
        --validation.dataloader.path "[\"$dir/text.txt\"]" --training.steps "$steps" "$@"
}
# column FILE NAME: "step value" of the rows that have a value in the column
column() {
    awk -F, -v name="$2" 'NR == 1 {for (i = 1; i <= NF; i++) if ($i == name) c = i; n = NF; next}
        NF != n {print "row " NR " has " NF " cells, the header " n} $c != "" {print $1, $c}' "$1"
}
number() { # FILE NAME: the value of a metric in a Prometheus file
    sed -n "s/^$2{run=\".*\"} //p" "$1"
}

with "$dir/run" 10
[ "$rc" -eq 0 ] && grep -v '"validation"' "$dir/run/metrics.jsonl" >"$dir/steps.jsonl" && losses "$dir/steps.jsonl" >"$dir/want" && [ "$(wc -l <"$dir/want")" -eq 10 ]
ok sinks_are_chosen_in_the_job
column "$dir/run/metrics.csv" loss >"$dir/got" && cmp "$dir/want" "$dir/got"
ok csv_has_the_losses_of_jsonl
head -n 1 "$dir/run/metrics.csv" | grep -q '^step,wall,.*,validation/loss' &&
    [ "$(column "$dir/run/metrics.csv" validation/loss | cut -d ' ' -f 1 | tr '\n' ' ')" = "4 8 10 " ]
ok csv_fills_in_a_column_that_appears_later
prom=$dir/run/metrics.prom
[ "$(number "$prom" lm_step)" = 10 ] && [ "$(number "$prom" lm_validation_step)" = 10 ] && [ ! -e "$prom.tmp" ] &&
    near "$(number "$prom" lm_loss)" "$(sed -n 's/^10 //p' "$dir/want")" 0 && grep -q '^# TYPE lm_time_data gauge$' "$prom"
ok prometheus_has_the_newest_values
grep -qF "lm_loss{run=\"$dir/run\",team=\"a \\\"b\\\"\\\\c\"} " "$prom"
ok prometheus_quotes_labels

log=$(ls "$dir"/run/wandb/offline-run-*/run-"$(cat "$dir/run/wandb/id")".wandb)
[ "$(od -An -tx1 -N 7 "$log" | tr -d ' ')" = 3a572642e1be00 ] && grep -qa mine "$log" &&
    [ "$(grep -ao 'validation/loss' "$log" | wc -l)" -eq 4 ] && grep -qaF "$(sed -n 's/^10 //p' "$dir/want")" "$log"
ok wandb_has_each_record_and_a_summary

with "$dir/cut" 8
id=$(cat "$dir/cut/wandb/id")
printf '9,1,torn' >>"$dir/cut/metrics.csv"
rm -r "$dir/cut/checkpoint/step-8"
with "$dir/cut" 10
[ "$rc" -eq 0 ] && column "$dir/cut/metrics.csv" loss >"$dir/got" && cmp "$dir/want" "$dir/got"
ok csv_resumes_without_a_step_twice
# What a loss of power leaves: a row with zeros in it, two rows that have become one, zeros at the end.
train "$dir/power" --training.steps 6 --metrics.sinks "$sinks"
awk -F, -v OFS=, 'NR == 3 { $3 = "ZEROS" } NR == 5 { printf "%s", substr($0, 1, 9); next } { print }' "$dir/power/metrics.csv" | sed 's/ZEROS/\x00\x00\x00/' >"$dir/torn.csv"
head -c 4096 /dev/zero >>"$dir/torn.csv"
cp "$dir/torn.csv" "$dir/power/metrics.csv"
train "$dir/power" --metrics.sinks "$sinks"
sed '/^[245] /d' "$dir/want" >"$dir/want_rows" # the row of step 2 has zeros, and a part of the one of step 4 is in a line with that of step 5
[ "$rc" -eq 0 ] && column "$dir/power/metrics.csv" loss >"$dir/got" && cmp "$dir/want_rows" "$dir/got" && [ "$(tr -d -c '\000' <"$dir/power/metrics.csv" | wc -c)" -eq 0 ]
ok csv_resumes_after_a_loss_of_power
head -c 8192 /dev/zero >"$dir/power/metrics.csv"
train "$dir/power" --training.steps 12 --metrics.sinks "$sinks"
[ "$rc" -eq 0 ] && [ "$(column "$dir/power/metrics.csv" loss | cut -d ' ' -f 1 | tr '\n' ' ')" = "11 12 " ]
ok csv_without_a_header_begins_anew
for file in wandb/id trackio.id; do
    [ ! -e "$dir/power/$file" ] || head -c 64 /dev/zero >"$dir/power/$file"
done
train "$dir/power" --training.steps 13 --metrics.sinks "$sinks"
[ "$rc" -eq 0 ] && grep -q '^[a-z0-9]\{8\}$' "$dir/power/wandb/id" && { [ -z "$trackio" ] || grep -q '^[0-9a-f]\{32\}$' "$dir/power/trackio.id"; }
ok an_id_of_zeros_is_made_anew
[ "$(cat "$dir/cut/wandb/id")" = "$id" ] && [ "$(ls -d "$dir"/cut/wandb/offline-run-*-"$id" | wc -l)" -eq 2 ]
ok wandb_resumes_under_the_same_id

rows() { "$sqlite" "$dir/tracks/mymodel.db" "$1"; }
if [ -n "$trackio" ]; then
    rows "SELECT step, metrics -> '\$.loss' FROM metrics WHERE run_name = 'run' AND metrics LIKE '%\"loss\"%' ORDER BY id" >"$dir/got"
    cmp "$dir/want" "$dir/got" && [ "$(rows "SELECT group_concat(step, '-') FROM metrics WHERE run_name = 'run' AND metrics LIKE '%validation/loss%'")" = 4-8-10 ] &&
        [ "$(rows "SELECT count(DISTINCT run_id) FROM metrics WHERE run_name = 'run' AND length(run_id) = 32")" = 1 ] &&
        rows 'SELECT timestamp FROM metrics' | grep -q '^20[0-9-]*T[0-9:]*\.[0-9]\{6\}+00:00$'
    ok trackio_has_each_record
    rows "SELECT step, metrics -> '\$.loss' FROM metrics WHERE run_name = 'cut' AND metrics LIKE '%\"loss\"%' ORDER BY id" >"$dir/got"
    cmp "$dir/want" "$dir/got" && [ "$(rows "SELECT count(DISTINCT run_id) FROM metrics WHERE run_name = 'cut'")" = 1 ] &&
        [ "$(rows "SELECT group_concat(step, '-') FROM metrics WHERE run_name = 'cut' AND metrics LIKE '%validation/loss%'")" = 4-8-10 ]
    ok trackio_resumes_without_a_step_twice
    touch "$dir/file"
    train "$dir/nofolder" --metrics.sinks "[{\"name\":\"trackio\",\"folder\":\"$dir/file/x\"}]"
    [ "$rc" -ne 0 ] && one_line "$dir/err" && grep -q "cannot make the folder of $dir/file/x/ttrun.db\|cannot make the folder of $dir/file" "$dir/err"
    ok trackio_names_a_folder_that_it_cannot_make
    (export TRACKIO_DIR="$dir/env" && train "$dir/home" --training.steps 1 --metrics.sinks '[{"name":"trackio"}]' && [ -s "$dir/env/ttrun.db" ])
    ok trackio_takes_its_own_default_folder
fi

steps_said() { grep -c 'train\] step: ' "$dir/err"; }
train "$dir/listed" --metrics.sinks '[{"name":"jsonl"}]'
[ "$rc" -eq 0 ] && [ "$(steps_said)" -eq 10 ] && [ "$(wc -l <"$dir/listed/metrics.jsonl")" -eq 10 ]
ok a_list_without_the_console_leaves_its_lines
train "$dir/quiet" --metrics.sinks '[{"name":"jsonl"},{"name":"console","freq":0}]'
[ "$rc" -eq 0 ] && [ "$(steps_said)" -eq 0 ] && grep -q 'the console has freq 0' "$dir/err" && [ "$(wc -l <"$dir/quiet/metrics.jsonl")" -eq 10 ]
ok a_console_of_freq_0_has_no_lines
train "$dir/some" --metrics.sinks '[{"name":"console","freq":4},{"name":"jsonl"}]'
[ "$rc" -eq 0 ] && [ "$(sed -n 's/.*train\] step: *\([0-9]*\) .*/\1/p' "$dir/err" | tr '\n' ' ')" = "4 8 10 " ] && [ "$(wc -l <"$dir/some/metrics.jsonl")" -eq 10 ]
ok the_console_may_have_fewer_lines
train "$dir/twice" --metrics.sinks '[{"name":"console"},{"name":"console","freq":2}]'
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'metrics.sinks\[1\]: there is one console' "$dir/err"
ok there_is_one_console
train "$dir/wrong" --metrics.sinks '[{"name":"console","freqq":2}]'
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'metrics.sinks\[0\].freqq: unknown key (did you mean metrics.sinks\[0\].freq?)' "$dir/err"
ok the_console_has_its_own_keys

train "$dir/tb" --training.steps 2 --metrics.enable_tensorboard true --metrics.save_tb_folder events/of/mine
[ "$rc" -eq 0 ] && [ "$(ls "$dir/tb/events/of/mine" | grep -c '^events.out.tfevents')" -eq 1 ] && [ ! -e "$dir/tb/tb" ]
ok tensorboard_goes_to_its_folder
train "$dir/ranks" --training.steps 2 --metrics.enable_tensorboard true --metrics.save_for_all_ranks true --nproc 2 --comm.backend local
for r in 0 1; do
    [ "$rc" -eq 0 ] && [ "$(ls "$dir/ranks/tb/rank_$r" | grep -c '^events.out.tfevents')" -eq 1 ] && [ "$(grep -ao 'loss_metrics/global_avg_loss' "$dir/ranks/tb/rank_$r"/* | wc -l)" -eq 2 ]
    ok "tensorboard_has_files_of_rank_$r"
done
[ "$(wc -l <"$dir/ranks/metrics.jsonl")" -eq 2 ] && [ ! -e "$dir/ranks/before-1" ]
ok metrics_jsonl_is_rank_0s

train "$dir/label" --metrics.sinks '[{"name":"prometheus","labels":["run=x"]}]'
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'labels: "run=x"' "$dir/err"
ok prometheus_refuses_a_label_that_is_no_name
# A sink whose folder goes away while the run writes: the others go on, or the run stops.
for then in continue stop; do
    mkdir -p "$dir/prom"
    start "$dir/lost" --training.steps 100000000 --metrics.on_error $then --metrics.sinks "[{\"name\":\"prometheus\",\"path\":\"$dir/prom/m.prom\"},{\"name\":\"jsonl\"}]"
    until_true [ -s "$dir/prom/m.prom" ]
    mv "$dir/prom" "$dir/gone_$then" # at once: the sink may be writing there
    if [ $then = continue ]; then
        until_true grep -q 'each record tries again' "$dir/lost.err"
        n=$(wc -l <"$dir/lost/metrics.jsonl")
        until_true has_lines "$dir/lost/metrics.jsonl" $((n + 60)) # more than are kept for it
        mv "$dir/gone_continue" "$dir/prom"
        until_true grep -q 'the sink prometheus works again; [1-9][0-9]* records are lost' "$dir/lost.err"
        kill -TERM $pid
    fi
    wait $pid
    rc=$?
    if [ $then = continue ]; then
        [ "$rc" -eq 4 ] && [ "$(grep -c 'W metrics\] step [0-9]*: .*m.prom.*; training goes on, and each record tries again (metrics.on_error)' "$dir/lost.err")" -eq 1 ]
        ok a_sink_that_fails_is_tried_again
    else
        [ "$rc" -eq 1 ] && grep -q '^ttrun: .*m.prom' "$dir/lost.err"
        ok a_sink_that_fails_stops_the_run_where_the_job_says_so
    fi
    rm -rf "$dir/lost"
done
mkdir -p "$dir/kept"
train "$dir/kept" --metrics.sinks "[{\"name\":\"csv\",\"path\":\"$dir/none/m.csv\"}]"
[ "$rc" -ne 0 ] && one_line "$dir/err" && grep -q "$dir/none/m.csv.tmp: No such file" "$dir/err"
ok csv_names_a_path_that_it_cannot_write
exit $failed
