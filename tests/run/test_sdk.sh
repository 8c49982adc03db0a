#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Smaller features of the SDK: metrics of a graph, dropout in training only, constant arrays, names in updates and converters.
. "$(dirname "$0")/lib.sh"
mkdir "$dir/plugins"
plugin() { # SOURCE
    cc -std=c11 -w -O1 -fPIC -shared -fvisibility=hidden "-I$SRC/include" "$1" "-L$BUILD" -lttrun -lm -o "$dir/plugins/small.so" 2>"$dir/err"
}
plugin "$SRC/tests/run/small.c"
ok builds
sed 's|"model": {.*|"model": { "name": "small" }, "comm": { "backend": "local" },|; /"args": {/d; s|"steps": 10|"steps": 3|; s|"checkpoint": {[^}]*}|"checkpoint": { "enable": false }|' \
    "$dir/job.json" >"$dir/small.json"
job=$dir/small.json
go() { # NAME OPTION...
    name=$1
    shift
    train "$dir/$name" --plugin-dir "$dir/plugins" "$@"
}
number() { # RUN STEP KEY, or KEY of an object in the record: mean":{"up
    sed -n "s|^{\"step\":$2,.*\"$3\":\([-0-9.e]*\)[,}].*|\1|p" "$dir/$1/metrics.jsonl"
}
alike() { # NAME: the loss, the metric and the auxiliary loss of step 3 are those of one rank
    for key in loss 'mean":{"up' 'losses":{"cross_entropy' 'losses":{.*"size'; do near "$(number one 3 $key)" "$(number "$1" 3 $key)" 2e-5 || return 1; done
}
p=--parallelism
go one && [ -n "$(number one 1 'mean":{"up')" ] && [ -n "$(number one 1 'losses":{.*"size')" ]
ok metrics_of_the_graph
while read -r name options; do
    go "$name" $options && [ "$rc" -eq 0 ] && alike "$name"
    ok "metrics_$name"
done <<MESHES
fsdp2 --training.local_batch_size 2 $p.data_parallel_shard_degree 2
tp2 $p.tensor_parallel_degree 2
cp2 $p.context_parallel_degree 2
pp2 $p.pipeline_parallel_degree 2
accumulated --training.local_batch_size 1 --training.global_batch_size 4
MESHES
sed 's|"mean/up", tt_mean(b, tt_mean(b, h, 0, 0), 0, 0)|"mean/up", tt_mean(b, h, 0, 0)|' "$SRC/tests/run/small.c" >"$dir/bad.c" && plugin "$dir/bad.c" && go bad
[ "$rc" -eq 2 ] && grep -q 'metric "mean/up" must be a scalar' "$dir/err"
ok metric_must_be_a_scalar
sed 's|"mean/up"|"loss/up"|' "$SRC/tests/run/small.c" >"$dir/bad.c" && plugin "$dir/bad.c" && go taken
[ "$rc" -eq 2 ] && grep -q 'metric "loss/up": the training loop logs "loss" itself' "$dir/err"
ok metric_whose_name_is_taken_is_refused
plugin "$SRC/tests/run/small.c"

# an array of constants: cut over tp as its label says, the same numbers everywhere; validation reads it too
held="--validation.enable true --validation.freq 1 --validation.steps 1 --validation.dataloader.path $dir/text.txt --validation.dataloader.shuffle false"
go array --model.args.table true $held && [ "$rc" -eq 0 ] && ! near "$(number one 3 loss)" "$(number array 3 loss)" 1e-4
ok constant_array
go array_tp --model.args.table true $p.tensor_parallel_degree 2 && near "$(number array 3 loss)" "$(number array_tp 3 loss)" 2e-5 &&
    go array_pp --model.args.table true $p.pipeline_parallel_degree 2 && near "$(number array 3 loss)" "$(number array_pp 3 loss)" 2e-5
ok constant_array_on_meshes

# dropout changes training, not validation: with a rate of 0 every validation gives one number, that of a model without it
valid() { sed -n 's|.*"validation[^}]*"loss":\([0-9.]*\).*|\1|p;s|.*"validation/loss":\([0-9.]*\).*|\1|p' "$dir/$1/metrics.jsonl" | sort -u; }
go plain $held --optimizer.lr 0 && go drop $held --optimizer.lr 0 --model.args.drop 0.5 && [ -n "$(valid plain)" ] && [ "$(valid plain)" = "$(valid drop)" ] &&
    ! near "$(number plain 1 loss)" "$(number drop 1 loss)" 1e-4
ok dropout_applies_in_training_only
go drop_tp --optimizer.lr 0 --model.args.drop 0.5 $p.tensor_parallel_degree 2 && near "$(number drop 1 loss)" "$(number drop_tp 1 loss)" 2e-5 &&
    go drop_fsdp --optimizer.lr 0 --model.args.drop 0.5 --training.local_batch_size 2 $p.data_parallel_shard_degree 2 && near "$(number drop 1 loss)" "$(number drop_fsdp 1 loss)" 2e-5
ok dropout_is_equal_on_meshes
go much --model.args.drop 1.5
[ "$rc" -eq 2 ] && grep -q 'dropout "drop": p 1.5 is not below 1' "$dir/err"
ok dropout_of_everything

# an optimizer knows names and tags; a converter the full name
go named --optimizer.name small && [ "$rc" -eq 0 ] && ! near "$(number one 3 loss)" "$(number named 3 loss)" 1e-4
ok names_and_tags_in_an_update
sed 's|"comm":|"converters": [{"name": "small"}], "comm":|' "$job" >"$dir/converted.json" && job=$dir/converted.json && go converted && [ "$rc" -eq 0 ] &&
    ! near "$(number one 3 loss)" "$(number converted 3 loss)" 1e-5
ok full_names_in_a_converter
exit $failed
