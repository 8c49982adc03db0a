#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The load of experts: tokens of each expert in a step's whole batch, as the records, experts.json and the report have them, and the bias that
# the counts move. They are whole numbers, so they are equal to the bit on every mesh and schedule.
. "$(dirname "$0")/lib.sh"
job=$dir/moe.json tensor=$BUILD/tests/run/tensor_tool
cat >"$job" <<JOB
{ "spec": "qwen3_moe", "model": { "args": { "dim": 24, "n_layers": 3, "n_heads": 4, "n_kv_heads": 2, "head_dim": 6, "hidden_dim": 31,
    "vocab_size": 262, "num_experts": 6, "num_experts_per_tok": 2, "moe_intermediate_size": 13, "mlp_only_layers": [1], "choice_bias": true,
    "scoring_func": "sigmoid", "bias_update_rate": 0.25 } },
  "dataloader": { "name": "text", "path": ["text.txt"] },
  "optimizer": { "lr": 0.003 }, "lr_scheduler": { "name": "constant", "warmup_steps": 0 },
  "training": { "local_batch_size": 12, "global_batch_size": 12, "seq_len": 20, "steps": 1 },
  "metrics": { "log_freq": 1, "sinks": [{"name": "jsonl"}, {"name": "csv"}, {"name": "tensorboard"}] },
  "comm": { "backend": "local" }, "backend": { "threads": 1, "blas": "own" } }
JOB
loads() { # RUN: of step 1
    sed -n 's|^{"step":1,.*\("experts":{[^}]*}\).*|\1|p' "$dir/$1/metrics.jsonl"
}
biases() { # RUN
    for f in "$dir/$1/checkpoint"/step-1/*.safetensors; do "$tensor" "$f"; done | grep e_score_correction_bias | sort
}
numbers() { # RUN LAYER: the six numbers of a bias
    f=$(echo "$dir/$1/checkpoint"/step-1/*.safetensors) n=$(od -An -t u8 -N 8 "$f" | tr -d ' ')
    at=$(head -c $((8 + n)) "$f" | tail -c "$n" | sed "s|.*\"model.layers.$2.mlp.gate.e_score_correction_bias\":{[^}]*\"data_offsets\":\[\([0-9]*\),.*|\1|")
    od -An -t f4 -w24 -j $((8 + n + at)) -N 24 "$f" | awk '{for (e = 1; e <= NF; e++) printf "%s%g", (e > 1 ? " " : ""), $e; print ""}'
}
p=--parallelism u="--model.args.bias_update_centred false"
train "$dir/one"
[ "$rc" -eq 0 ] && [ -n "$(loads one)" ] && [ "$(biases one | wc -l)" -eq 2 ]
ok load_is_logged
# 240 tokens go to 2 experts each; the record has what these counts give
sed -n 's/.*"tokens":\[\([0-9,]*\)\].*/\1/p' "$dir/one/experts.json" | tr , ' ' >"$dir/counts"
awk '{sum = most = h = 0; for (e = 1; e <= NF; e++) {sum += $e; if ($e > most) most = $e}
      for (e = 1; e <= NF; e++) if ($e) h -= $e / sum * log($e / sum) / log(NF)
      if (NF != 6 || sum != 480) exit 1; printf "%.9f %.9f\n", most * NF / sum, h}' "$dir/counts" >"$dir/told" && [ "$(wc -l <"$dir/told")" -eq 2 ] &&
    for i in 1 2; do
        layer=layers.$((2 * i - 2))
        near "$(loads one | sed "s|.*$layer/max_over_mean\":\([0-9.]*\).*|\1|")" "$(sed -n "${i}s/ .*//p" "$dir/told")" 1e-6 &&
            near "$(loads one | sed "s|.*$layer/entropy\":\([0-9.]*\).*|\1|")" "$(sed -n "${i}s/.* //p" "$dir/told")" 1e-6 || break
    done && [ "$i" = 2 ] &&
    near "$(loads one | sed 's|.*"experts":{"max_over_mean":\([0-9.]*\).*|\1|')" "$(awk '{s += $1} END {printf "%.9f", s / 2}' "$dir/told")" 1e-6
ok load_is_that_of_the_whole_batch
grep -q 'experts/layers.2/entropy' "$dir/one/metrics.csv" && cat "$dir/one/tb"/events.* >"$dir/events" &&
    for name in max_over_mean entropy layers.0/max_over_mean layers.2/max_over_mean layers.0/entropy layers.2/entropy; do grep -aq "experts/$name" "$dir/events" || break; done &&
    [ "$name" = layers.2/entropy ] && grep -aq experts/layers.2/entropy "$dir/events" && ! grep -aq experts/layers.1 "$dir/events"
ok other_sinks_have_it

# the bias: 0.25 up for each expert below the mean, down above it, and with `centred` less the mean of these steps
for run in one plain; do
    [ "$run" = one ] || train "$dir/plain" $u
    awk -v centred="$([ "$run" = one ] && echo 1)" '{sum = mean = 0; for (e = 1; e <= NF; e++) sum += $e
          for (e = 1; e <= NF; e++) mean += (step[e] = NF * $e < sum ? 1 : NF * $e > sum ? -1 : 0) / NF
          for (e = 1; e <= NF; e++) printf "%s%g", (e > 1 ? " " : ""), 0.25 * (step[e] - (centred ? mean : 0)); print ""}' "$dir/counts" >"$dir/expected"
    [ "$rc" -eq 0 ] && [ "$(numbers $run 0)" = "$(sed -n 1p "$dir/expected")" ] && [ "$(numbers $run 2)" = "$(sed -n 2p "$dir/expected")" ]
    ok "bias_moves_by_the_counts_$run"
done
while read -r name n options; do
    # shellcheck disable=SC2086
    train "$dir/$name" $options --nproc "$n" --comm.backend local
    [ "$rc" -eq 0 ] && [ "$(loads "$name")" = "$(loads one)" ] && [ "$(biases "$name")" = "$(biases one)" ] &&
        cmp -s "$dir/$name/experts.json" "$dir/one/experts.json"
    ok "equal_$name"
    rm -rf "$dir/${name:?}"
done <<LIST
accumulation 1 --training.local_batch_size 4
recompute 1 --training.local_batch_size 4 --activation_checkpoint.mode full
fsdp 2 $p.data_parallel_shard_degree 2 --training.local_batch_size 2
ddp 2 $p.data_parallel_replicate_degree 2 --training.local_batch_size 2
tp 2 $p.tensor_parallel_degree 2
cp 2 $p.context_parallel_degree 2 --training.local_batch_size 4
ep 2 $p.data_parallel_shard_degree 2 $p.expert_parallel_degree 2 --training.local_batch_size 2 --activation_checkpoint.mode full
ep_of_tp 4 $p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2 $p.expert_parallel_degree 2 --training.local_batch_size 2
pp 2 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule 1F1B
pp_ep 4 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule 1F1B $p.data_parallel_shard_degree 2 $p.expert_parallel_degree 2 --training.local_batch_size 6 --activation_checkpoint.mode full
LIST
# four blocks for the four stages of a V, of which three have experts
v="--model.args.n_layers 4"
train "$dir/four" $v
a=$rc
while read -r name n options; do
    # shellcheck disable=SC2086
    train "$dir/$name" $v $options --nproc "$n" --comm.backend local
    [ "$a$rc" -eq 0 ] && [ "$(loads "$name")" = "$(loads four)" ] && [ "$(biases "$name")" = "$(biases four)" ] && [ "$(biases four | wc -l)" -eq 3 ]
    ok "equal_$name"
done <<LIST
zbv 2 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule ZBVZeroBubble
zbv_ep_accumulation 4 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule ZBVZeroBubble $p.data_parallel_shard_degree 2 $p.expert_parallel_degree 2 --training.local_batch_size 6 --activation_checkpoint.mode full
LIST
# Three tokens of 7 experts each go to each expert in turn: 27 tokens. Then no bias moves, whatever the number of micro-batches; a mean in f32 is not 27.
for n in 3 1; do
    train "$dir/equal$n" $u --debug.moe_force_load_balance true --model.args.num_experts 7 --model.args.num_experts_per_tok 3 --training.seq_len 21 \
        --training.global_batch_size 3 --training.local_batch_size $n
    [ "$rc" -eq 0 ] && loads "equal$n" | grep -q '"layers.0/max_over_mean":1,"layers.0/entropy":\(1\|0.99999999\)' && [ "$(numbers "equal$n" 0)" = "0 0 0 0 0 0" ] &&
        [ "$(numbers "equal$n" 2)" = "0 0 0 0 0 0" ]
    ok "equally_busy_experts_keep_their_bias_$n"
done
# Validation counts nothing, and without the numbers the bias is the same.
train "$dir/valid" --validation.enable true --validation.freq 1 --validation.steps 2 --validation.dataloader.path "$dir/text.txt"
[ "$rc" -eq 0 ] && grep -q '"validation":{' "$dir/valid/metrics.jsonl" && [ "$(loads valid)" = "$(loads one)" ] && [ "$(biases valid)" = "$(biases one)" ]
ok validation_is_not_counted
train "$dir/off" --metrics.log_experts false
[ "$rc" -eq 0 ] && [ -z "$(loads off)" ] && [ ! -e "$dir/off/experts.json" ] && [ "$(biases off)" = "$(biases one)" ]
ok log_experts_can_be_switched_off
# A model without such a bias is counted, too, and a dense one not.
train "$dir/nobias" --model.args.choice_bias false
[ "$rc" -eq 0 ] && loads nobias | grep -q layers.2/entropy
ok a_router_without_a_bias_is_counted
ttrun report "$dir/one" >"$dir/out" 2>"$dir/err"
[ $? -eq 0 ] && grep -q 'Busiest expert of each layer' "$dir/one/report.html" && grep -q 'Tokens of each expert in step 1' "$dir/one/report.html" &&
    grep -q "<title>layers.2, expert [0-9 –]*: [0-9.]*</title>" "$dir/one/report.html"
ok report_has_pictures
exit $failed
