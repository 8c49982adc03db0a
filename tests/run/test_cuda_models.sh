#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Models and options whose ops no llama has, on the backend "cuda" over the driver and the libraries of tests/fake: delta nets (qwen3_next), largest
# logits and QK-clip, experts over ranks, with replicas and with bounded room too, and decoding with states of delta nets and with latent vectors.
. "$(dirname "$0")/cuda.sh"
llama=$job
sed 's/"llama3"/"qwen3_next"/; s/"n_layers": 2/"n_layers": 2, "head_dim": 16, "full_attention_interval": 2, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 6, "linear_value_head_dim": 10, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12, "shared_expert_intermediate_size": 16/; s/"seq_len": 32/"seq_len": 80/; s/"local_batch_size": 4/"local_batch_size": 2/' \
    "$llama" >"$dir/next.json"
job=$dir/next.json
same qwen3_next 2e-6
same qwen3_next_documents 2e-6 --dataloader.document_mask true --activation_checkpoint.mode full
same qwen3_next_bf16 5e-3 --training.mixed_precision_param bfloat16
rows="--nproc 2 $p.expert_parallel_degree 2 --training.seq_len 24"
# shellcheck disable=SC2086
same qwen3_next_experts 2e-6 $rows --training.local_batch_size 1 --training.global_batch_size 4
# shellcheck disable=SC2086
same qwen3_next_replicas 2e-6 $rows $p.expert_replicas 1 --training.local_batch_size 1 --training.global_batch_size 4
# shellcheck disable=SC2086
same qwen3_next_bounded_rows 2e-6 $rows $p.expert_buffer_factor 1 --training.local_batch_size 1 --training.global_batch_size 4
job=$llama

# QK-clip multiplies weights by what attention_max finds.
same qk_clip 2e-6 --optimizer.qk_clip 0.02 --metrics.attention_max_logits true
logits() { sed -n 's/.*"attention_max_logits":{\([^}]*\)}.*/\1/p' "$1/metrics.jsonl" | sed 's/"[^"]*"://g; s/,/\n/g'; }
logits "$dir/qk_clip" >"$dir/a" && logits "$dir/qk_clip-$seed" >"$dir/b" && [ "$(wc -l <"$dir/a")" -eq 4 ] &&
    paste "$dir/a" "$dir/b" | awk '{d = $1 - $2; if (d < 0) d = -d; if (!(d <= 1e-5 * $1)) bad = 1} END {exit bad}' && grep -q '"qk_clip_heads":[1-9]' "$dir/qk_clip-$seed/metrics.jsonl"
ok largest_logits_are_those_of_the_reference

# Greedy texts are those of the reference.
text() { # NAME OPTION…: of $job, trained on the cpu
    name=$1
    shift
    train "$dir/trained" --training.steps 30 --training.local_batch_size 4 --checkpoint.interval 30
    printf 'line 7\nof a text\n' >"$dir/prompts.txt"
    ttrun generate --checkpoint "$dir/trained" --backend.name reference --prompt 'line 1' --prompts "$dir/prompts.txt" --max-tokens 12 --temperature 0 --json "$@" >"$dir/out.reference" 2>"$dir/err" &&
        ttrun generate --checkpoint "$dir/trained" $cuda --prompt 'line 1' --prompts "$dir/prompts.txt" --max-tokens 12 --temperature 0 --json "$@" -v >"$dir/out.cuda" 2>"$dir/err" &&
        [ -s "$dir/out.cuda" ] && cmp "$dir/out.reference" "$dir/out.cuda" >>"$dir/err" 2>&1 && ! grep -q 'computes its whole context again' "$dir/err"
    ok "greedy_text_of_$name"
    rm -rf "$dir/trained"
}
job=$dir/next.json
text qwen3_next
sed 's/"llama3"/"deepseek_v3"/; s/"n_kv_heads": 2, //; s/"n_layers": 2/"n_layers": 2, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 12/' "$llama" >"$dir/deepseek.json"
job=$dir/deepseek.json
text deepseek_latent --cache latent
exit $failed
