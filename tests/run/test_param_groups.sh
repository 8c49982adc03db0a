#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# optimizer.param_groups in torchtitan's form, and optimizers as PyTorch spells them, are the same job as in ours.
. "$(dirname "$0")/lib.sh"
equal() { "$TTRUN" ckpt diff "$1/checkpoint/step-$3" "$2/checkpoint/step-$3" >"$dir/out" 2>"$dir/err"; }
same() { # NAME THEIRS OURS
    train "$dir/theirs" --training.steps 3 --resume never --optimizer.param_groups "$2" && train "$dir/ours" --training.steps 3 --resume never --optimizer.param_groups "$3" && equal "$dir/theirs" "$dir/ours" 3
    ok "$1"
    rm -rf "$dir/theirs" "$dir/ours"
}
same adamw_with_betas '[{"pattern": "(?:norm)\\.weight$", "optimizer_name": "Adam", "optimizer_kwargs": {"lr": 0.001, "betas": [0.8, 0.9], "fused": true, "amsgrad": false}},
  {"pattern": ".*", "optimizer_name": "AdamW", "optimizer_kwargs": {"lr": 0.002, "weight_decay": 0.3}}]' '[{"match": "norm\\.weight$", "name": "adam", "lr": 0.001, "beta1": 0.8, "beta2": 0.9, "eps": 1e-8, "weight_decay": 0},
  {"match": ".*", "name": "adamw", "lr": 0.002, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.3}]'
same muon '[{"pattern": "proj", "optimizer_name": "DistMuon", "optimizer_kwargs": {"lr": 0.005, "ns_steps": 3}}]' '[{"match": "proj", "name": "muon", "lr": 0.005, "ns_steps": 3, "update": "muon"}]'
train "$dir/spelt" --training.steps 2 --optimizer.name AdamW8bit --optimizer.implementation fused_opt_states_bf16 && [ "$rc" -eq 0 ] && grep -q '"AdamW8bit" is taken as "adamw8bit"' "$dir/err" &&
    grep -q 'taken as optimizer.state_dtype bfloat16' "$dir/err"
ok spellings_are_taken_with_a_notice
refused() { # NAME TEXT GROUPS
    train "$dir/refused" --optimizer.param_groups "$3"
    [ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q "$2" "$dir/err" && [ ! -e "$dir/refused/checkpoint" ]
    ok "refused_$1"
}
refused betas 'optimizer_kwargs.betas: expected two numbers' '[{"pattern": "norm", "optimizer_name": "AdamW", "optimizer_kwargs": {"betas": [0.9]}}]'
refused optimizer 'optimizer "Adagrad" is unknown' '[{"pattern": "norm", "optimizer_name": "Adagrad", "optimizer_kwargs": {}}]'
refused amsgrad 'amsgrad' '[{"pattern": "norm", "optimizer_name": "Adam", "optimizer_kwargs": {"amsgrad": true}}]'
refused arguments 'expected an object' '[{"pattern": "norm", "optimizer_name": "Adam", "optimizer_kwargs": 3}]'
printf '{"optimizer": {\n  "param_groups": [{"pattern": "norm", "optimizer_name": "Adam"}]}}\n' >"$dir/place.json"
"$TTRUN" config "$dir/place.json" >"$dir/out" 2>"$dir/err" && grep -q '"beta2": 0.999, // .*place.json:2:20$' "$dir/out"
ok defaults_of_a_group_have_its_place
exit $failed
