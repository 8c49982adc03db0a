#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Experts that are cut over ranks (expert_parallel_degree) have the same bits on rank-threads, on processes with shared memory, and
# over MPI; and on the backend "far" (tests/plugins/far) those of the backend "reference", whose kernels it runs.
. "$(dirname "$0")/processes.sh"
allow_leaks
job=$dir/moe.json
cat >"$job" <<JOB
{ "spec": "deepseek_v3", "model": { "args": { "dim": 24, "n_layers": 4, "n_heads": 4, "hidden_dim": 31, "vocab_size": 262, "num_experts": 8,
    "num_experts_per_tok": 3, "n_group": 2, "topk_group": 1, "moe_intermediate_size": 13, "n_shared_experts": 1, "kv_lora_rank": 10,
    "qk_nope_head_dim": 6, "qk_rope_head_dim": 4, "v_head_dim": 6, "rope_scaling": null, "sequence_balance_loss_coef": 0.1 } },
  "dataloader": { "name": "text", "path": ["text.txt"] },
  "optimizer": { "lr": 0.003 }, "lr_scheduler": { "name": "constant", "warmup_steps": 0 },
  "training": { "local_batch_size": 2, "global_batch_size": 8, "seq_len": 21, "steps": 3 },
  "metrics": { "log_freq": 1, "enable_tensorboard": false }, "checkpoint": { "interval": 3 }, "backend": { "threads": 1 } }
JOB
carriers=shm
has_mpirun && [ -e "$PLUGINS/comms/mpi.so" ] && carriers="shm mpi"
mkdir -p "$dir/far/backends"
cp "$BUILD/tests/plugins/far/far.so" "$dir/far/backends/"

same() { # FOLDER: the losses and the checkpoint of $dir/t
    [ "$rc" -eq 0 ] && losses "$dir/t/metrics.jsonl" >"$dir/a" && losses "$dir/$1/metrics.jsonl" | cmp -s - "$dir/a" &&
        [ "$(wc -l <"$dir/a")" -eq 3 ] && [ "$(hash_of "$dir/t/checkpoint/step-3")" = "$(hash_of "$dir/$1/checkpoint/step-3")" ]
}
p=--parallelism
while read -r name ranks options; do
    # shellcheck disable=SC2086
    set -- --nproc "$ranks" $options
    train "$dir/t" --comm.backend local "$@"
    [ "$rc" -eq 0 ] || echo "# threads: $(tail -n 1 "$dir/err")"
    for carrier in $carriers; do
        train "$dir/m" --comm.backend "$carrier" "$@"
        same m
        ok "${carrier}_$name"
        rm -rf "$dir/m"
    done
    rm -rf "$dir/t"
    fars="local far"
    if ! is_long; then
        case $name in ep2 | ep2_zbv) fars=far ;; *) continue ;; esac
    fi
    train "$dir/t" --comm.backend local --backend.name reference "$@"
    for carrier in $fars; do
        train "$dir/m" --plugin-dir "$dir/far" --backend.name far --backend.seed 3 --comm.backend "$carrier" "$@"
        same m
        ok "far_${carrier}_$name"
        rm -rf "$dir/m"
    done
    rm -rf "$dir/t"
done <<MESHES
ep2 2 $p.expert_parallel_degree 2
ep4_hsdp 4 $p.expert_parallel_degree 2 $p.data_parallel_replicate_degree 2
ep2_in_tp2_fsdp2 4 $p.tensor_parallel_degree 2 $p.expert_parallel_degree 2
ep4_over_tp2_and_dp 4 $p.tensor_parallel_degree 2 $p.expert_parallel_degree 4
ep2_cp2_ring 4 $p.context_parallel_degree 2 $p.context_parallel_rotate_method ring $p.expert_parallel_degree 2
ep2_zbv 4 $p.pipeline_parallel_degree 2 $p.pipeline_parallel_schedule ZBVZeroBubble $p.expert_parallel_degree 2
MESHES
exit $failed
