#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Mixtures of experts: one loss curve for meshes and accumulation, the routers' losses in the records, experts in turn, and what
# is refused. tests/oracle/test_models.c has the numbers of transformers.
. "$(dirname "$0")/lib.sh"
job=$dir/moe.json
cat >"$job" <<JOB
{ "spec": "qwen3_moe", "model": { "args": { "dim": 24, "n_layers": 3, "n_heads": 4, "n_kv_heads": 2, "head_dim": 6, "hidden_dim": 31,
    "vocab_size": 262, "num_experts": 7, "num_experts_per_tok": 3, "moe_intermediate_size": 13, "mlp_only_layers": [1],
    "sequence_balance_loss_coef": 0.1, "router_z_loss_coef": 0.01 } },
  "dataloader": { "name": "text", "path": ["text.txt"] },
  "optimizer": { "lr": 0.003 }, "lr_scheduler": { "name": "constant", "warmup_steps": 0 },
  "training": { "local_batch_size": 12, "global_batch_size": 12, "seq_len": 20, "steps": 3 },
  "metrics": { "log_freq": 1, "enable_tensorboard": false }, "checkpoint": { "enable": false },
  "comm": { "backend": "local" }, "backend": { "threads": 1 } }
JOB
number() { # RUN STEP KEY
    sed -n "s|^{\"step\":$2,.*\"$3\":\([-0-9.e]*\)[,}].*|\1|p" "$dir/$1/metrics.jsonl"
}
alike() { # NAME: the losses and the norm of step 3 are those of one rank
    for key in loss grad_norm cross_entropy sequence_balance router_z; do
        near "$(number one 3 $key)" "$(number "$1" 3 $key)" 5e-4 || return 1
    done
}
train "$dir/one"
[ "$rc" -eq 0 ] && [ -n "$(number one 1 router_z)" ] && [ "$(number one 3 loss)" = "$(number one 3 cross_entropy)" ]
ok losses_are_logged_by_name
p=--parallelism
while read -r name options; do
    # shellcheck disable=SC2086
    train "$dir/$name" $options
    [ "$rc" -eq 0 ] && alike "$name"
    ok "one_curve_$name"
done <<LIST
accumulation --training.local_batch_size 4
tp $p.tensor_parallel_degree 2
fsdp_accumulation $p.data_parallel_shard_degree 2 --training.local_batch_size 2
cp $p.context_parallel_degree 2 --training.local_batch_size 4
pp $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule 1F1B
recompute --activation_checkpoint.mode full --training.local_batch_size 4
LIST

# With experts in turn each has the same share, so the loss is k times the sum of the probabilities: 2.
train "$dir/turn" --debug.moe_force_load_balance true --model.args.num_experts 4 --model.args.num_experts_per_tok 2 \
    --model.args.output_router_logits true --training.steps 1
[ "$rc" -eq 0 ] && near "$(number turn 1 load_balance)" 2 1e-6
ok experts_in_turn_are_equally_busy
train "$dir/own" --model.args.num_experts 4 --model.args.num_experts_per_tok 2 --model.args.output_router_logits true --training.steps 1
[ "$rc" -eq 0 ] && ! near "$(number own 1 load_balance)" 2 1e-6
ok the_router_itself_is_not

# One rank reads what two of them with half of the experts each have trained.
train "$dir/ep" $p.data_parallel_shard_degree 2 $p.expert_parallel_degree 2 --model.args.num_experts 6 --training.local_batch_size 6 \
    --checkpoint.enable true
[ "$rc" -eq 0 ]
ok experts_are_trained_on_two_ranks
ttrun eval --checkpoint "$dir/ep" --samples 3 --json >"$dir/out" 2>"$dir/err"
rc=$?
[ "$rc" -eq 0 ] && near "$(value "$dir/out" loss)" "$(number ep 3 loss)" 0.5
ok eval_reads_experts_of_two_ranks
ttrun generate --checkpoint "$dir/ep" --prompt 'line 1' --max-tokens 20 --temperature 0 --json -v >"$dir/out" 2>"$dir/err"
rc=$?
[ "$rc" -eq 0 ] && grep -q 'keys and values' "$dir/err" && ! grep -q 'whole context again' "$dir/err"
ok generate_caches_keys_and_values
sed 's/"seconds.*//' "$dir/out" >"$dir/greedy"
ttrun generate --checkpoint "$dir/ep" --prompt 'line 1' --max-tokens 20 --temperature 0 --json --backend.name reference >"$dir/out" 2>"$dir/err"
rc=$?
[ "$rc" -eq 0 ] && sed 's/"seconds.*//' "$dir/out" | cmp -s - "$dir/greedy"
ok generate_is_the_same_on_the_reference_backend

# ---- forms of the router: tests/ops/test_router.c has their numbers ----
a=--model.args six="--model.args.num_experts 6"
while read -r name options; do
    # shellcheck disable=SC2086
    train "$dir/form_one" $six $options --resume never && mv "$dir/form_one/metrics.jsonl" "$dir/one/metrics.jsonl"
    train "$dir/form" $six $options --resume never $p.data_parallel_shard_degree 2 $p.expert_parallel_degree 2 --training.local_batch_size 6
    [ "$rc" -eq 0 ] && alike form
    ok "router_on_two_ranks_$name"
    train "$dir/form" $six $options --resume never $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule 1F1B $p.tensor_parallel_degree 2 --nproc 4 --comm.backend local
    [ "$rc" -eq 0 ] && alike form
    ok "router_on_pp_and_tp_$name"
done <<LIST
sigmoid_and_bias $a.scoring_func sigmoid $a.choice_bias true $a.routed_scaling_factor 2.5
sqrtsoftplus_and_groups $a.scoring_func sqrtsoftplus $a.n_group 3 $a.topk_group 2 $a.group_score max $a.norm_topk_prob false
softmax_after_the_choice $a.softmax_after_top_k true $a.n_group 2 $a.topk_group 1 $a.num_experts_per_tok 2
LIST
for model in qwen3_moe mixtral gpt_oss deepseek_v3; do
    cat >"$dir/forms.json" <<JOB
{ "spec": "$model", "model": { "args": { "dim": 24, "n_layers": 2, "n_heads": 4, "n_kv_heads": 4, "vocab_size": 262, "num_experts": 6, "num_experts_per_tok": 3,
    "hidden_dim": 16, "scoring_func": "sqrtsoftplus", "norm_topk_prob": true, "routed_scaling_factor": 1.5, "n_group": 3, "topk_group": 2, "group_score": "max" } },
  "dataloader": { "name": "text", "path": ["text.txt"] }, "training": { "local_batch_size": 2, "seq_len": 20, "steps": 2 },
  "metrics": { "enable_tensorboard": false }, "backend": { "threads": 1 } }
JOB
    more=
    [ "$model" = gpt_oss ] && more="--model.args.softmax_after_top_k false"
    # shellcheck disable=SC2086
    ttrun "$dir/forms.json" --dump_folder "$dir/forms" --resume never $more >"$dir/out" 2>"$dir/err"
    rc=$?
    [ "$rc" -eq 0 ] && ttrun generate --checkpoint "$dir/forms" --prompt 'line 1' --max-tokens 3 >"$dir/out" 2>"$dir/err"
    ok "router_forms_of_$model"
    ttrun ckpt export --to hf "$dir/forms" "$dir/forms_hf" >"$dir/out" 2>"$dir/err"
    rc=$?
    [ "$rc" -ne 0 ] && one_line "$dir/err" && grep -q "model.args.scoring_func: transformers' [A-Za-z0-9]* has no such router" "$dir/err"
    ok "router_that_transformers_lacks_is_not_exported_$model"
done

# ---- plan: a token is computed by 2 of 8 experts; rows and time of skewed routing ----
plan() { ttrun plan "$job" --world 4 $p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2 $p.expert_parallel_degree 4 --model.args.num_experts 8 \
    --model.args.num_experts_per_tok 2 --training.local_batch_size 6 --hardware h100 "$@" >"$dir/out" 2>"$dir/err"; rc=$?; }
plan --json
flops=$(value "$dir/out" flops_per_token) step=$(value "$dir/out" step_time_s)
[ "$rc" -eq 0 ] && [ "$(value "$dir/out" experts.ranks)" = 4 ] && [ "$(value "$dir/out" experts.room)" = $((4 * $(value "$dir/out" experts.balanced_rows))) ]
ok plan_has_the_rows_of_balanced_routing
plan --json --model.args.num_experts_per_tok 6
# two layers with experts of 3 products of 24 × 13: 4 choices more, and the rest is equal
[ "$rc" -eq 0 ] && near "$(value "$dir/out" flops_per_token)" "$(awk -v f="$flops" 'BEGIN {print f + 6 * 2 * 4 * 3 * 24 * 13}')" 0.5
ok plan_counts_the_chosen_experts
plan --json --moe-skew 3
[ "$rc" -eq 0 ] && [ "$(value "$dir/out" experts.skewed_rows)" = $((3 * $(value "$dir/out" experts.balanced_rows))) ] &&
    [ "$(value "$dir/out" step_time_s)" = "$step" ] && awk -v a="$(value "$dir/out" experts.skewed_step_time_s)" -v b="$step" 'BEGIN {exit !(a > b)}'
ok plan_estimates_skewed_routing
plan --moe-skew 9
[ "$rc" -eq 0 ] && grep -q '^experts  *over 4 ranks: each has room for' "$dir/out" && grep -q 'MiB all_to_all over dp_shard tp; 1/4 of them is rows' "$dir/out"
ok plan_says_so
# the host reads the counts, and sends rows only: a quarter of what a device sends
plan --json
bytes=$(value "$dir/out" experts.all_to_all_bytes_sent)
host() { ttrun plan "$job" --world 4 $p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2 $p.expert_parallel_degree 4 --model.args.num_experts 8 \
    --model.args.num_experts_per_tok 2 --training.local_batch_size 6 "$@" >"$dir/out" 2>"$dir/err"; rc=$?; }
host --json
[ "$rc" -eq 0 ] && [ "$(value "$dir/out" experts.all_to_all_bytes_sent)" -gt 0 ] && [ "$bytes" -gt "$(value "$dir/out" experts.all_to_all_bytes_sent)" ]
ok plan_sends_rows_only_where_the_host_counts_them
host --moe-skew 9
[ "$rc" -eq 0 ] && grep -q 'MiB all_to_all over dp_shard tp, 4 times that at most' "$dir/out" && grep -q 'rows on the busiest rank; memory has that$' "$dir/out"
ok plan_says_that_too
# bounded rows: less memory, and what is beyond the room is said
host --json
whole=$(value "$dir/out" bytes_per_rank.work)
host --json --moe-skew 3 $p.expert_buffer_factor 2
[ "$rc" -eq 0 ] && [ "$(value "$dir/out" experts.passes)" = 2 ] && [ "$(value "$dir/out" bytes_per_rank.work)" -lt "$whole" ] &&
    [ "$(value "$dir/out" experts.room)" -lt $((3 * $(value "$dir/out" experts.balanced_rows))) ] &&
    [ "$(value "$dir/out" experts.skewed_rows)" -gt "$(value "$dir/out" experts.room)" ]
ok plan_of_bounded_rows
host --moe-skew 3 $p.expert_buffer_factor 2
[ "$rc" -eq 0 ] && grep -q 'what is beyond takes 1 more pass at most$' "$dir/out" && grep -q 'rows on the busiest rank; [0-9]* of them in$' "$dir/out"
ok plan_of_bounded_rows_says_so
# a device has less memory, too, and sends whole bins in each pass
plan --json
whole=$(value "$dir/out" bytes_per_rank.work)
plan --json $p.expert_buffer_factor 2
[ "$rc" -eq 0 ] && [ "$(value "$dir/out" experts.passes)" = 2 ] && [ "$(value "$dir/out" bytes_per_rank.work)" -lt "$whole" ] &&
    [ "$(value "$dir/out" experts.all_to_all_bytes_sent)" -ge "$bytes" ]
ok plan_of_bounded_rows_of_a_device
plan --moe-skew 0.5
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q -- '--moe-skew: expected the rows of the busiest rank' "$dir/err"
ok refused_a_skew_below_one

refused() { # NAME WORDS OPTION...
    name=$1 words=$2
    shift 2
    train "$dir/bad" "$@"
    [ "$rc" -eq 2 ] && one_line "$dir/err" && grep -qF -- "$words" "$dir/err"
    ok "refused_$name"
}
refused more_choices_than_experts 'num_experts_per_tok: 8 choices of only 7 experts' --model.args.num_experts_per_tok 8
refused a_softmax_of_sigmoids 'softmax_after_top_k: the scores are not softmax' --model.args.scoring_func sigmoid --model.args.softmax_after_top_k true
refused groups_that_do_not_divide 'n_group: 2 groups do not divide 7 experts' --model.args.n_group 2
refused too_few_groups 'num_experts_per_tok: 3 choices, but topk_group 1 leaves only 2 experts' --model.args.num_experts 6 --model.args.n_group 3
refused an_unknown_score 'scoring_func' --model.args.scoring_func tanh
refused a_layer_there_is_not 'mlp_only_layers: wanted null or a list of numbers of layers, from 0 to 2, not [3]' --model.args.mlp_only_layers '[3]'
refused a_name_of_a_layer 'mlp_only_layers: wanted null or a list' --model.args.mlp_only_layers '["a"]'
refused experts_that_do_not_divide '7 experts do not divide over the 2 ranks of ep; choose a degree of ep that divides 7' \
    $p.data_parallel_shard_degree 2 $p.expert_parallel_degree 2 --training.local_batch_size 6
train "$dir/none" --model.args.mlp_only_layers '[ ]' --training.steps 1
[ "$rc" -eq 0 ]
ok an_empty_list_of_layers
exit $failed
