#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# metrics.sinks: several at once, each with its options; the files of csv, prometheus and wandb hold what metrics.jsonl holds, also after a resume
# and with columns that appear later.
. "$(dirname "$0")/lib.sh"
sinks='[{"name":"jsonl"},{"name":"csv"},{"name":"prometheus","prefix":"lm_","labels":["team=a \"b\"\\c"]},{"name":"wandb","project":"mine"}]'
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
[ "$(cat "$dir/cut/wandb/id")" = "$id" ] && [ "$(ls -d "$dir"/cut/wandb/offline-run-*-"$id" | wc -l)" -eq 2 ]
ok wandb_resumes_under_the_same_id

train "$dir/label" --metrics.sinks '[{"name":"prometheus","labels":["run=x"]}]'
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'labels: "run=x"' "$dir/err"
ok prometheus_refuses_a_label_that_is_no_name
# A sink whose folder goes away while the run writes: the others go on, or the run stops.
for then in continue stop; do
    mkdir -p "$dir/prom"
    start "$dir/lost" --training.steps 100000 --metrics.on_error $then --metrics.sinks "[{\"name\":\"prometheus\",\"path\":\"$dir/prom/m.prom\"},{\"name\":\"jsonl\"}]"
    until_true [ -s "$dir/prom/m.prom" ]
    mv "$dir/prom" "$dir/gone_$then" # at once: the sink may be writing there
    if [ $then = continue ]; then
        until_true grep -q 'gets no more records' "$dir/lost.err"
        n=$(wc -l <"$dir/lost/metrics.jsonl")
        until_true has_lines "$dir/lost/metrics.jsonl" $((n + 20))
        kill -TERM $pid
    fi
    wait $pid
    rc=$?
    if [ $then = continue ]; then
        [ "$rc" -eq 4 ] && [ "$(grep -c 'W metrics\] step [0-9]*: .*m.prom.*; it gets no more records, and training goes on (metrics.on_error)' "$dir/lost.err")" -eq 1 ]
        ok a_sink_that_fails_is_left_out
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
