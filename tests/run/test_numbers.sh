#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What metrics.jsonl says besides a step's own loss and norm: means since the last line, counted tokens, rates of groups, totals.
. "$(dirname "$0")/lib.sh"
member() { sed -n "s/.*\"$2\":\([-0-9.e+]*\)[,}].*/\1/p" "$1/metrics.jsonl"; } # NAME: of each line
# mean FOLDER NAME FROM TO: of the lines
mean() { member "$1" "$2" | sed -n "$3,$4p" | awk '{ s += $1; n++ } END { printf "%.15g\n", s / n }'; }
all_near() { # A B TOLERANCE: files of numbers
    paste -d' ' "$1" "$2" | awk -v t="$3" '{ d = $1 - $2; if (NF != 2 || (d < 0 ? -d : d) > t) bad = 1; n++ } END { exit bad || !n }'
}

train "$dir/each" --training.steps 12
train "$dir/some" --training.steps 12 --metrics.log_freq 4
[ "$rc" -eq 0 ] && [ "$(wc -l <"$dir/some/metrics.jsonl")" -eq 4 ] # steps 1, 4, 8, 12
for name in loss grad_norm; do
    { mean "$dir/each" $name 1 1 && mean "$dir/each" $name 2 4 && mean "$dir/each" $name 5 8 && mean "$dir/each" $name 9 12; } >"$dir/want"
    member "$dir/some" ${name}_mean >"$dir/got"
    all_near "$dir/want" "$dir/got" 1e-12
    ok "${name}_mean_is_that_since_the_last_line"
done
[ "$(member "$dir/each" loss)" = "$(member "$dir/each" loss_mean)" ] && [ "$(member "$dir/some" loss)" = "$(member "$dir/each" loss | sed -n '1p;4p;8p;12p')" ]
ok loss_stays_the_one_of_the_step
p=--parallelism
for mesh in "$p.data_parallel_shard_degree 2 --training.local_batch_size 2" "$p.pipeline_parallel_degree 2 $p.pipeline_parallel_microbatches 2"; do
    rm -rf "$dir/mesh"
    # shellcheck disable=SC2086
    train "$dir/mesh" --training.steps 12 --metrics.log_freq 4 --nproc 2 --comm.backend local $mesh
    member "$dir/mesh" loss_mean >"$dir/got" && member "$dir/some" loss_mean >"$dir/want" && all_near "$dir/want" "$dir/got" 1e-4 || rc=99
done
[ "$rc" -eq 0 ]
ok means_are_those_of_any_mesh

# documents shorter than a sample: the rest of the sample is padding, which is not counted
for i in 1 2 3 4 5 6 7 8; do echo "{\"text\": \"twenty characters it is\"}"; done >"$dir/short.jsonl"
train "$dir/padded" --dataloader.name jsonl --dataloader.path "[\"$dir/short.jsonl\"]" --dataloader.packing best_fit --training.steps 2
counted=$(member "$dir/padded" tokens_counted | tail -n 1) tokens=$(member "$dir/padded" tokens | tail -n 1)
[ "$rc" -eq 0 ] && [ "$tokens" -eq 128 ] && [ "$counted" -gt 60 ] && [ "$counted" -lt 110 ] && [ "$(member "$dir/each" tokens_counted | sort -u)" = 128 ]
ok padding_is_not_counted

train "$dir/groups" --optimizer.param_groups '[{"match": "tag:norm", "lr_factor": 0.5}, {"match": "lm_head", "weight_decay": 0}, {"match": "embed", "lr_factor": 2}]' --training.steps 2
[ "$rc" -eq 0 ] && [ "$(grep -c '"lr_groups":{"0":0.005,"2":0.02}' "$dir/groups/metrics.jsonl")" -eq 2 ] && ! grep -q lr_groups "$dir/each/metrics.jsonl"
ok groups_with_another_rate_have_it_in_the_record
[ "$(member "$dir/each" left | tail -n 1)" = 0 ] && [ "$(member "$dir/each" left | wc -l)" -eq 12 ]
ok time_left
# a restart between two lines
train "$dir/parts2" --training.steps 12 --metrics.log_freq 4 --checkpoint.interval 6
rm -r "$dir/parts2/checkpoint/step-12"
cp "$dir/parts2/metrics.jsonl" "$dir/whole.jsonl"
train "$dir/parts2" --training.steps 12 --metrics.log_freq 4 --checkpoint.interval 6
[ "$rc" -eq 0 ] && grep -q 'resumed from .*step-6' "$dir/err" && without_times "$dir/whole.jsonl" >"$dir/want" &&
    without_times "$dir/parts2/metrics.jsonl" | cmp -s - "$dir/want" && [ "$(wc -l <"$dir/want")" -eq 4 ] && grep -q loss_mean "$dir/want"
ok a_restart_between_two_lines_changes_no_mean
train "$dir/end" --training.steps 3
[ "$(grep -c 'mfu is a part of [0-9.e+]* FLOP/s per rank' "$dir/err")" -eq 1 ] &&
    grep -q 'finished: 3 steps, 384 tokens in [0-9.]* s: [0-9,]* tokens per second per rank' "$dir/err"
ok peak_and_summary_are_told
exit $failed
