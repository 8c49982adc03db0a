#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What ttrun ckpt export says of its tensors: how many of the checkpoint's it took, how many it left, how many the new files have, by a table of
# kinds of models and forms. What would get lost is an error, unless the user asks for it. test_hf_models.sh and others look into the files.
. "$(dirname "$0")/lib.sh"
all='"dim": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 262, "hidden_dim": 48'
experts='"n_kv_heads": 2, "head_dim": 12, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 20'
p=--parallelism
two="--nproc 2 --comm.backend local $p.data_parallel_shard_degree 2"
run() { # NAME ARGS OPTION...: a run of one step; ARGS: more of model.args
    name=$1 args=$2
    shift 2
    sed 's/"args": {.*} }/"args": {} }/' "$dir/job.json" >"$dir/kind.json" && job=$dir/kind.json
    train "$dir/$name" --training.steps 1 --model.args "{$all$args}" "$@"
    ran=$rc
}
# counted: rows "TAKEN LEFT MADE OPTION...", exports of the run $name
counted() {
    while read -r taken left made options; do
        rm -rf "$dir/x"
        # shellcheck disable=SC2086
        ttrun ckpt export "$dir/$name" "$dir/x" --to $options 2>"$dir/err"
        [ "$ran$?" = 00 ] && grep -q " parameters; $taken tensors taken, $left left, $made made\(; without a tokenizer.*\)\{0,1\}$" "$dir/err"
        ok "${name}_to_$(echo "$options" | tr -c 'a-z0-9\n' _)"
    done
}
run untied ', "n_kv_heads": 2'
counted <<'ROWS'
21 0 21 hf
21 0 35 hf --type fp8
21 0 49 hf --type nvfp4
21 0 22 gguf --type f16
63 0 87 dcp
63 0 87 torchtitan
12 9 12 hf --model.args.n_layers 1 --checkpoint.initial_load_strict false
ROWS
run tied ', "n_kv_heads": 2, "tie_embeddings": true' --training.ema_decay 0.8
counted <<'ROWS'
20 0 20 hf
20 0 21 gguf
80 0 103 dcp
ROWS
run fused ', "n_kv_heads": 2' --spec phi3
counted <<'ROWS'
21 0 15 hf
21 0 15 gguf
63 0 87 dcp
ROWS
# the training keeps the load of each layer's experts
run experts ", $experts" --spec qwen3_moe $two $p.expert_parallel_degree 2 $p.expert_replicas 1
grep -q 'layers.1.mlp.expert_load"' "$dir/experts/checkpoint/step-1/trainer.json"
ok experts_have_states_of_the_training
counted <<'ROWS'
27 0 45 hf
27 0 27 gguf
83 0 113 dcp
83 0 115 torchtitan
ROWS
# llama.cpp has no block of multi-token prediction
run ahead ', "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_group": 2, "topk_group": 1, "q_lora_rank": 16, "kv_lora_rank": 20,
    "qk_nope_head_dim": 10, "qk_rope_head_dim": 6, "v_head_dim": 12, "num_nextn_predict_layers": 1' --spec deepseek_v3
counted <<'ROWS'
53 0 71 hf
32 21 34 gguf
ROWS
run adapters ', "n_kv_heads": 2' --converters '[{"name": "lora", "rank": 3, "use_dora": true}]'
counted <<'ROWS'
63 0 21 hf
63 0 22 gguf
42 21 42 hf --adapter
147 0 192 dcp
21 42 21 hf --converters [] --checkpoint.initial_load_strict false
ROWS
run codes ', "n_kv_heads": 2' --converters '[{"name": "qlora", "rank": 3}]'
counted <<'ROWS'
63 0 21 hf
63 0 22 gguf
28 35 28 hf --adapter
119 0 150 dcp
ROWS
# a folder of Hugging Face is imported first, and what that leaves is left
ttrun ckpt export --to hf "$dir/untied" "$dir/folder" 2>"$dir/err" && sed 's/"num_hidden_layers": 2/"num_hidden_layers": 1/' "$dir/folder/config.json" >"$dir/one.json" && cp "$dir/one.json" "$dir/folder/config.json"
name=folder
counted <<'ROWS'
12 9 12 hf
12 9 13 gguf
ROWS

# refused NAME RUN WORDS OPTION...: an error of one line, and no folder
refused() {
    what=$1 from=$2 words=$3
    shift 3
    ttrun ckpt export "$dir/$from" "$dir/none" "$@" 2>"$dir/err"
    [ $? -eq 2 ] && [ "$(grep -c '^ttrun: ' "$dir/err")" -eq 1 ] && grep -q "$words" "$dir/err" && [ -z "$(find "$dir" -maxdepth 1 -name 'none*')" ]
    ok "$what"
}
refused fewer_layers_to_hf untied 'step-1: 9 tensors are not of this model: model.layers.1.*checkpoint.initial_load_strict false leaves them out' --to hf --model.args.n_layers 1
refused fewer_layers_to_gguf untied '9 tensors are not of this model: model.layers.1' --to gguf --model.args.n_layers 1
refused a_head_that_is_tied untied '1 tensor is not of this model: lm_head.weight; .*writes it, .*leaves it out' --to hf --model.args.tie_embeddings true
refused without_the_adapters adapters '42 tensors are not of this model: .*lora_magnitude' --to hf --converters '[]'
# a model whose table of names for Hugging Face lacks the last expert of each layer; a run is as strict
mkdir "$dir/models" "$dir/own" && cp "$SRC/plugins/models/"*.h "$dir/models" && sed 's/\.n_storage = n}/.n_storage = n - 1}/' "$SRC/plugins/models/moe.h" >"$dir/models/moe.h" && ! cmp -s "$SRC/plugins/models/moe.h" "$dir/models/moe.h" &&
    sed 's/"mixtral"/"forgetful"/' "$SRC/plugins/models/mixtral.c" >"$dir/models/forgetful.c" &&
    cc -std=c11 -w -O0 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "-I$dir/models" "$dir/models/forgetful.c" "-L$BUILD" -lttrun -lm -o "$dir/own/forgetful.so" 2>"$dir/err"
ok a_model_that_forgets_builds
sed -i 's/"flavor": "debugmodel"/"name": "forgetful"/' "$dir/job.json" && run forgetful ', "num_experts": 4' --plugin-dir "$dir/own"
refused a_part_that_a_model_forgets forgetful '6 tensors of model forgetful would not be in the export, or a part of each: .*experts.w1.weight, .*; ttrun ckpt export --to dcp writes all' --to hf --plugin-dir "$dir/own"
train "$dir/forgetful2" --training.steps 1 --model.args "{$all, \"num_experts\": 4}" --plugin-dir "$dir/own" --checkpoint.last_save_in_hf true
[ $rc -eq 2 ] && grep -q '^ttrun: checkpoint.last_save_in_hf: .*6 tensors of model forgetful would not be in the export' "$dir/err" && [ -d "$dir/forgetful2/checkpoint/step-1" ] && ! [ -e "$dir/forgetful2/hf/latest" ]
ok a_run_keeps_its_step_and_says_so
exit $failed
