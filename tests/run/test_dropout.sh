#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Dropout: one loss curve for every mesh, accumulation, batch size and schedule; none in validation; models of Hugging Face.
. "$(dirname "$0")/lib.sh"
mkdir "$dir/plugins"
cc -std=c11 -w -O1 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "$SRC/tests/run/small.c" "-L$BUILD" -lttrun -lm -o "$dir/plugins/small.so" 2>"$dir/err"
ok builds
small='"name": "small", "args": { "drop": 0.5 }'
gpt2='"name": "gpt2", "args": { "dim": 32, "n_layers": 2, "n_heads": 4, "vocab_size": 262, "embd_pdrop": 0.1, "resid_pdrop": 0.2, "attn_pdrop": 0.3 }'
llama3='"name": "llama3", "args": { "dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 48, "vocab_size": 262, "attention_dropout": 0.3 }'
job_of() { # MODEL
    eval "described=\$$1"
    job=$dir/$1.json
    cat >"$job" <<JOB
{ "spec": "llama3", "model": { $described },
  "dataloader": { "name": "text", "path": ["text.txt"] },
  "optimizer": { "lr": 0.01 }, "lr_scheduler": { "name": "constant", "warmup_steps": 0 },
  "training": { "local_batch_size": 8, "global_batch_size": 8, "seq_len": 32, "steps": 3 },
  "metrics": { "log_freq": 1, "enable_tensorboard": false }, "checkpoint": { "enable": false },
  "comm": { "backend": "local" }, "backend": { "threads": 1 } }
JOB
}
go() { # NAME OPTION...
    name=$1
    shift
    train "$dir/$name" --plugin-dir "$dir/plugins" "$@"
}
number() { # RUN STEP KEY
    sed -n "s|^{\"step\":$2,.*\"$3\":\([-0-9.e]*\)[,}].*|\1|p" "$dir/$1/metrics.jsonl"
}
alike() { # RUN OTHER: their losses, to rounding
    losses "$dir/$1/metrics.jsonl" >"$dir/.a" && losses "$dir/$2/metrics.jsonl" |
        awk 'FNR == NR {want[$1] = $2; next} {d = $2 - want[$1]; n++; if (d < 0) d = -d; if (!($1 in want) || d > 2e-5) bad = 1} END {exit bad || n != 3}' "$dir/.a" -
}
p=--parallelism
l=--training.local_batch_size
for model in small gpt2 llama3; do
    job_of $model
    go $model-one && [ "$rc" -eq 0 ] && [ "$(losses "$dir/$model-one/metrics.jsonl" | wc -l)" -eq 3 ]
    ok "${model}_trains_with_dropout"
    while read -r mesh options; do
        go "$model-$mesh" $options && [ "$rc" -eq 0 ] && alike $model-one "$model-$mesh"
        ok "${model}_$mesh"
        [ $model = small ] || continue
        [ "$(number small-one 3 drawn)" = "$(number "small-$mesh" 3 drawn)" ]
        ok "masks_are_bitwise_those_of_one_rank_$mesh"
    done <<MESHES
accumulated $l 1
by_two $l 2
fsdp2 $l 2 $p.data_parallel_shard_degree 2
hsdp2x2 $l 1 $p.data_parallel_shard_degree 2 $p.data_parallel_replicate_degree 2
tp2 $l 4 $p.tensor_parallel_degree 2
cp2 $l 4 $p.context_parallel_degree 2
cp2_in_order $l 4 $p.context_parallel_degree 2 $p.context_parallel_load_balancer none
cp2_ring $p.context_parallel_degree 2 $p.context_parallel_rotate_method ring
cp2_ulysses $p.context_parallel_degree 2 $p.context_parallel_rotate_method ulysses
pp2 $p.pipeline_parallel_degree 2
pp2_gpipe $l 4 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule GPipe
pp2_zbv $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule ZBVZeroBubble
fsdp2_tp2 $l 1 $p.data_parallel_shard_degree 2 $p.tensor_parallel_degree 2
reference $l 2 --backend.name reference
MESHES
    for same in "--activation_checkpoint.mode full" "--debug.detect_nan true" "--backend.threads 2"; do
        go $model-same $same && [ "$(losses "$dir/$model-one/metrics.jsonl")" = "$(losses "$dir/$model-same/metrics.jsonl")" ]
        ok "${model}_same_bits${same%% *}"
    done
done

# other seeds, and other steps of one seed, draw other masks; a rate of 0 none
go seed --training.seed 5 --optimizer.lr 0 && go still --optimizer.lr 0 && ! near "$(number still 1 loss)" "$(number still 2 loss)" 1e-6 &&
    ! near "$(number seed 1 loss)" "$(number still 1 loss)" 1e-4
ok seeds_and_steps_draw_other_masks
job_of small
go still --optimizer.lr 0 --model.args.drop 0.5 && [ "$(number still 1 drawn)" != "$(number still 2 drawn)" ] && go seed --training.seed 5 && [ "$(number still 1 drawn)" != "$(number seed 1 drawn)" ]
ok masks_of_steps_and_seeds_differ

# validation has no dropout, and neither have generate and eval
head -c 2000 "$dir/text.txt" >"$dir/valid.txt"
job_of gpt2
held="--validation.enable true --validation.freq 1 --validation.steps 1 --validation.dataloader.path $dir/text.txt --validation.dataloader.shuffle false --optimizer.lr 0"
valid() { sed -n 's|.*"validation[^}]*"loss":\([0-9.]*\).*|\1|p' "$dir/$1/metrics.jsonl" | sort -u; }
none="--model.args.embd_pdrop 0 --model.args.resid_pdrop 0 --model.args.attn_pdrop 0"
go held $held && go plain $held $none && [ -n "$(valid held)" ] && [ "$(valid held)" = "$(valid plain)" ] && [ "$(number held 1 loss)" != "$(number plain 1 loss)" ]
ok validation_is_without_dropout
for rate in attn resid embd; do
    go $rate $none --model.args.${rate}_pdrop 0.5 --optimizer.lr 0 && [ "$(number $rate 1 loss)" != "$(number plain 1 loss)" ]
    ok "${rate}_pdrop_has_an_effect"
done
go kept --checkpoint.enable true --checkpoint.interval 3 && ttrun generate --checkpoint "$dir/kept/checkpoint/step-3" --prompt line --max-tokens 8 --temperature 0 >"$dir/text.1" 2>"$dir/err" &&
    ttrun generate --checkpoint "$dir/kept/checkpoint/step-3" --prompt line --max-tokens 8 --temperature 0 --seed 9 >"$dir/text.2" 2>>"$dir/err" && cmp -s "$dir/text.1" "$dir/text.2"
ok generate_is_without_dropout
for options in "" "$none"; do
    ttrun eval --checkpoint "$dir/kept/checkpoint/step-3" --data "$dir/valid.txt" $options 2>"$dir/err"
done >"$dir/out"
[ "$(wc -l <"$dir/out")" = 2 ] && [ "$(sort -u "$dir/out" | wc -l)" = 1 ] && grep -q '^loss [0-9]' "$dir/out"
ok eval_is_without_dropout
# a resumed run draws the masks of its steps
go whole --training.steps 4 --checkpoint.enable true --checkpoint.interval 2 && go half --training.steps 2 --checkpoint.enable true --checkpoint.interval 2 &&
    go half --training.steps 4 --checkpoint.enable true --checkpoint.interval 2 && [ "$(losses "$dir/whole/metrics.jsonl")" = "$(losses "$dir/half/metrics.jsonl")" ]
ok resumed_run_has_the_same_bits
for bad in 1 1.5 -0.1; do
    go bad --model.args.attn_pdrop=$bad
    [ "$rc" -eq 2 ] && grep -q 'attn_pdrop\|dropout' "$dir/err"
    ok "rate_${bad}_is_refused"
done
exit $failed
