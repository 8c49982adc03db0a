#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Attention is told that each line is one segment (tt_attrs_attention.line) where the loader promises it and no rank has a part of a line.
. "$(dirname "$0")/lib.sh"

# told NAME YES|NO OPTION…: whether attention in the dumped graph has line=.
told() {
    name=$1 want=$2
    shift 2
    train "$dir/$name" --training.steps 1 --training.seq_len 32 --debug.dump_graph "$dir/$name-graph" "$@"
    found=NO
    grep -h "attention" "$dir/$name-graph"/* | grep -q "line=32" && found=YES
    [ "$rc" -eq 0 ] && [ "$found" = "$want" ]
    ok "attention_of_${name}_is_told_of_lines_$want"
}

p=--parallelism
told plain YES
told fsdp YES --nproc 2 $p.data_parallel_shard_degree 2
told tp YES --nproc 2 $p.tensor_parallel_degree 2
told documents NO --dataloader.document_mask true
told packed NO --dataloader.packing best_fit
told cp NO --nproc 2 $p.context_parallel_degree 2
exit $failed
