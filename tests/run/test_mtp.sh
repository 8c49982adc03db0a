#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Multi-token prediction: one loss curve on every mesh and schedule, documents kept apart, what training alone needs is in
# checkpoints and exports and in no other program. tests/oracle/test_models.c has the numbers of PyTorch.
. "$(dirname "$0")/lib.sh"
job=$dir/mtp.json
cat >"$job" <<JOB
{ "spec": "deepseek_v3", "model": { "args": { "dim": 24, "n_layers": 3, "n_heads": 4, "vocab_size": 262, "num_experts": 6, "num_experts_per_tok": 3,
    "hidden_dim": 31, "moe_intermediate_size": 13, "n_shared_experts": 1, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4,
    "v_head_dim": 8, "num_nextn_predict_layers": 2 } },
  "dataloader": { "name": "text", "path": ["docs.txt"], "document_mask": true },
  "optimizer": { "lr": 0.003 }, "lr_scheduler": { "name": "constant", "warmup_steps": 0 },
  "training": { "local_batch_size": 4, "global_batch_size": 4, "seq_len": 20, "steps": 3 }, "checkpoint": { "interval": 3 },
  "metrics": { "log_freq": 1, "enable_tensorboard": false }, "comm": { "backend": "local" }, "backend": { "threads": 1, "blas": "own" } }
JOB
i=0 && while [ $i -lt 60 ]; do head -c $((i * 7 % 19 + 3)) "$dir/text.txt" >"$dir/doc_$i.txt" && i=$((i + 1)); done
sed -i "s|\"docs.txt\"|\"$dir/doc_*.txt\"|" "$job"
number() { sed -n "s|^{\"step\":$2,.*\"$3\":\([-0-9.e]*\)[,}].*|\1|p" "$dir/$1/metrics.jsonl"; } # RUN STEP KEY
alike() { for key in loss grad_norm mtp_1 mtp_2; do near "$(number one 3 $key)" "$(number "$1" 3 $key)" 2e-6 || return 1; done; }
train "$dir/one"
[ "$rc" -eq 0 ] && [ -n "$(number one 3 mtp_1)" ] && [ -n "$(number one 3 mtp_2)" ] && [ "$(number one 3 loss)" = "$(number one 3 cross_entropy)" ]
ok losses_of_each_block_are_logged
p=--parallelism
while read -r name options; do
    # shellcheck disable=SC2086
    train "$dir/$name" $options --checkpoint.enable false
    [ "$rc" -eq 0 ] && alike "$name"
    ok "one_curve_$name"
done <<LIST
accumulation --training.local_batch_size 2
fsdp --nproc 2 --comm.backend local --training.local_batch_size 2
tp $p.tensor_parallel_degree 2
cp $p.context_parallel_degree 2
cp_and_tp $p.context_parallel_degree 2 $p.tensor_parallel_degree 2
ep $p.data_parallel_shard_degree 2 $p.expert_parallel_degree 2 --training.local_batch_size 2
pp $p.pipeline_parallel_degree 2
pp_and_tp $p.pipeline_parallel_degree 2 $p.tensor_parallel_degree 2
pp_interleaved $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule Interleaved1F1B $p.pipeline_parallel_microbatches 4
pp_zbv $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule ZBVZeroBubble $p.pipeline_parallel_microbatches 4
pp_4 $p.pipeline_parallel_degree 4 $p.pipeline_parallel_microbatches 4
recomputed --activation_checkpoint.mode full
tied_pp $p.pipeline_parallel_degree 2 --model.args.tie_embeddings false
LIST
train "$dir/tied" --model.args.tie_embeddings true && train "$dir/tied_mesh" --model.args.tie_embeddings true $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule ZBVZeroBubble $p.pipeline_parallel_microbatches 4
[ "$rc" -eq 0 ] && near "$(number tied 3 loss)" "$(number tied_mesh 3 loss)" 2e-6 && near "$(number tied 3 grad_norm)" "$(number tied_mesh 3 grad_norm)" 2e-6
ok tied_embedding_of_three_stages
train "$dir/half" --loss.mtp_weight 0.15 --optimizer.lr 0 --training.steps 1 && train "$dir/none" --loss.mtp_weight 0 --optimizer.lr 0 --training.steps 1 &&
    [ "$(number half 1 loss)" = "$(number one 1 loss)" ] && [ "$(number half 1 mtp_2)" = "$(number one 1 mtp_2)" ] && [ "$(number half 1 grad_norm)" != "$(number none 1 grad_norm)" ]
ok weight_changes_the_gradients_alone
train "$dir/plain" --model.args.num_nextn_predict_layers 0 --training.steps 1
[ "$rc" -eq 0 ] && [ "$(number plain 1 loss)" = "$(number one 1 loss)" ] && near "$(number plain 1 grad_norm)" "$(number none 1 grad_norm)" 1e-6
ok without_weight_it_is_the_plain_model

# ---- logits of three heads, 2048 × 30000 each, exist a chunk at a time; so do they with the routers' losses ----
wide="--model.args.vocab_size 30000 --training.seq_len 512 --model.args.sequence_balance_loss_coef 0.1 --model.args.router_z_loss_coef 0.01"
for mesh in "" "$p.tensor_parallel_degree 2" "$p.pipeline_parallel_degree 2"; do
    # shellcheck disable=SC2086
    ttrun plan "$job" $wide $mesh --json >"$dir/out" 2>"$dir/err"
    [ "$(value "$dir/out" bytes_per_rank.peak)" -lt 246000000 ]
    ok "logits_are_chunked${mesh:+_$(echo "$mesh" | tr -dc a-z)}"
done
train "$dir/one" $wide --training.steps 2 --checkpoint.enable false && cp "$dir/one/metrics.jsonl" "$dir/wide.jsonl"
train "$dir/parts" $wide --training.steps 2 --checkpoint.enable false --training.local_batch_size 1
[ "$rc" -eq 0 ] && for key in loss grad_norm mtp_1 mtp_2 sequence_balance router_z; do near "$(number one 2 $key)" "$(number parts 2 $key)" 1e-5 || rc=1; done && [ "$rc" -eq 0 ]
ok chunks_of_other_sizes_are_the_same_step
train "$dir/one" --resume never

# ---- what reads a checkpoint ----
ttrun eval --checkpoint "$dir/one" --samples 3 --json >"$dir/out" 2>"$dir/err"
[ "$(value "$dir/out" tokens)" -gt 0 ] && ! grep -q ignored "$dir/err"
ok eval_computes_the_loss_alone
ttrun generate --checkpoint "$dir/one" --prompt 'line 1' --max-tokens 5 --temperature 0 -v >"$dir/with" 2>"$dir/err"
rc=$?
[ "$rc" -eq 0 ] && ! grep -q ignored "$dir/err"
ok generate_runs_without_the_blocks
# latent vectors of 16 + 4 numbers in each of 3 layers, or 4 heads of 12 + 8
grep -q 'kept per token: 240 bytes of latent vectors; keys and values of heads are 960' "$dir/err"
ok generate_says_what_is_kept_per_token
ttrun generate --checkpoint "$dir/one" --prompt 'line 1' --max-tokens 5 --temperature 0 -v --cache heads >"$dir/out" 2>"$dir/err" && cmp -s "$dir/out" "$dir/with" &&
    grep -q 'kept per token: 960 bytes of keys and values' "$dir/err"
ok heads_can_be_kept_instead
ttrun generate --checkpoint "$dir/one" --prompt 'line 1' --cache latents >"$dir/out" 2>"$dir/err"
[ $? -eq 2 ] && one_line "$dir/err" && grep -q 'cache: expected auto, latent or heads' "$dir/err"
ok an_unknown_cache_is_refused
ttrun ckpt export --to hf "$dir/one" "$dir/hf" >"$dir/out" 2>"$dir/err" && grep -q '"num_nextn_predict_layers": 2' "$dir/hf/config.json" &&
    train "$dir/back" --checkpoint.initial_load_path "$dir/hf" --checkpoint.create_seed_checkpoint true
ttrun ckpt export --to hf "$dir/back" "$dir/hf2" >>"$dir/out" 2>>"$dir/err" && cmp -s "$dir/hf/model.safetensors" "$dir/hf2/model.safetensors" && ! grep -q ignored "$dir/err"
rc=$?
[ "$rc" -eq 0 ] && for name in enorm hnorm eh_proj shared_head.norm self_attn.o_proj; do grep -q "model.layers.4.$name.weight" "$dir/hf/model.safetensors" || rc=1; done && [ "$rc" -eq 0 ]
ok hugging_face_folder_keeps_the_blocks
ttrun generate --checkpoint "$dir/hf" --tokenizer.name byte --prompt 'line 1' --max-tokens 5 --temperature 0 >"$dir/out" 2>"$dir/err" && cmp -s "$dir/out" "$dir/with"
ok exported_model_says_the_same
# transformers saves no such blocks, and writes their number all the same
train "$dir/plain_model" --training.steps 1 --model.args.num_nextn_predict_layers 0 && ttrun ckpt export --to hf "$dir/plain_model" "$dir/theirs" >"$dir/out" 2>"$dir/err" &&
    sed -i '/"num_nextn_predict_layers"/d; 1s/{/{ "num_nextn_predict_layers": 1,/' "$dir/theirs/config.json"
printf '{"model": {"hf": "%s"}, "tokenizer": {"name": "byte"}, "dataloader": {"path": ["%s"]}, "training": {"seq_len": 32, "steps": 1}}' "$dir/theirs" "$dir/text.txt" >"$dir/theirs.json"
"$TTRUN" "$dir/theirs.json" --dump_folder "$dir/taken" >"$dir/out" 2>"$dir/err"
[ $? -eq 0 ] && grep -q 'num_nextn_predict_layers 1 is not applied: the folder has no tensor model.layers.3.enorm.weight' "$dir/err" && ! grep -q 'mtp_1' "$dir/taken/metrics.jsonl" &&
    "$TTRUN" "$dir/theirs.json" --model.hf "$dir/hf" --dump_folder "$dir/theirs_too" >"$dir/out" 2>"$dir/err" && grep -q 'mtp_1' "$dir/theirs_too/metrics.jsonl"
ok a_folder_without_the_blocks_that_its_config_counts
ttrun ckpt export --to hf "$dir/theirs" "$dir/theirs.hf" >"$dir/out" 2>"$dir/err" && [ "$(grep -c 'is not applied' "$dir/err")" -eq 1 ]
ok an_export_says_that_once
train "$dir/valid" --validation.enable true --validation.freq 3 --validation.steps 1 --validation.dataloader.path "$dir/text.txt" $p.pipeline_parallel_degree 2
[ "$rc" -eq 0 ] && grep -q '"validation' "$dir/valid/metrics.jsonl" && tail -n 3 "$dir/valid/metrics.jsonl" | grep -q '"loss":[1-9]'
ok validation_beside_it
train "$dir/bad" --model.args.num_nextn_predict_layers 9
[ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q 'num_nextn_predict_layers: expected 0 to 8' "$dir/err"
ok too_many_blocks
exit $failed
