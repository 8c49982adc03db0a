#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# training.intra_layer_micro_batch: several micro-batches interleaved in each layer. What a step reports is what it reports
# without, whatever else the job asks for; random numbers are the same; numbers that do not divide are an error; the plan's
# communication that is not hidden falls, and its memory grows.
. "$(dirname "$0")/processes.sh"
sed -i 's/"local_batch_size": 4, "seq_len": 32, "steps": 10/"local_batch_size": 1, "global_batch_size": 8, "seq_len": 33, "steps": 4/; s/"interval": 5/"enable": false/' "$job"
sed 's/ "n_kv_heads": 2,//' "$job" >"$dir/gpt2.json"
printf '{"prompt":"c","chosen":"yes","rejected":"no"}\n{"prompt":"what","chosen":"this or that","rejected":"maybe"}\n{"prompt":"a","chosen":"b","rejected":"c"}\n' >"$dir/pairs.jsonl"

# numbers FILE: what each step reports, but times; one number per line, with its name
numbers() {
    without_times "$1" | awk '{ n = split($0, f, /[,{}]+/); for (i = 1; i <= n; i++) if (f[i] ~ /":-?[0-9]/) print f[i] }' |
        grep -v '"\(tokens\|wall\|memory\|mem\|comm\|data\|forward\|optimizer\|checkpoint\|validat\|other\)[a-z_]*"'
}
# alike A B TOLERANCE: every number of two runs, relative or, below 1, absolute
alike() {
    numbers "$1/metrics.jsonl" >"$dir/a"
    numbers "$2/metrics.jsonl" >"$dir/b"
    paste -d ' ' "$dir/a" "$dir/b" | sed 's/":/" /g' | awk -v t="$3" '
        $1 != $3 { print "names differ: " $0; bad = 1 }
        { d = $2 - $4; m = $4 < 0 ? -$4 : $4; if (m < 1) m = 1; if ((d < 0 ? -d : d) > t * m) { print; bad = 1 } }
        END { exit bad || NR < 12 }' >"$dir/out"
}

# ---- the same numbers, whatever else a job asks for ----
while IFS='|' read -r name tolerance options; do
    eval "set -- $options"
    case $name in dropout*) job=$dir/gpt2.json ;; *) job=$dir/job.json ;; esac
    train "$dir/one" "$@"
    [ "$rc" -eq 0 ] || echo "# without: $(tail -n 1 "$dir/err")"
    for k in 2 4; do
        train "$dir/turns" "$@" --training.intra_layer_micro_batch $k
        [ "$rc" -eq 0 ] && alike "$dir/turns" "$dir/one" "$tolerance"
        ok "${name}_$k"
        rm -rf "$dir/turns"
    done
    rm -rf "$dir/one"
done <<'JOBS'
plain|2e-6|
chunks_of_logits|2e-6|--model.args.vocab_size 5000 --training.seq_len 400
chunks_of_logits_over_tp|1e-5|--nproc 2 --comm.backend local --parallelism.tensor_parallel_degree 2 --model.args.vocab_size 5000 --training.seq_len 400 --comm.overlap on
dropout|2e-6|--spec gpt2 --model.args.embd_pdrop 0.1 --model.args.resid_pdrop 0.2 --model.args.attn_pdrop 0.3
dropout_on_a_mesh|1e-5|--nproc 2 --comm.backend local --comm.overlap on --spec gpt2 --model.args.embd_pdrop 0.1 --model.args.resid_pdrop 0.2 --model.args.attn_pdrop 0.3
bfloat16|2e-3|--nproc 2 --comm.backend local --training.mixed_precision_param bfloat16 --comm.overlap on
float16|2e-3|--nproc 2 --comm.backend local --training.mixed_precision_param float16 --comm.overlap on
stored_in_bfloat16|2e-6|--activation_checkpoint.store_dtype bfloat16
recomputed|1e-5|--nproc 2 --comm.backend local --activation_checkpoint.mode full --parallelism.fsdp_reshard_after_forward always --comm.overlap on
float8|2e-3|--nproc 2 --comm.backend local --converters '[{"name":"float8","filter":["lm_head"]}]' --comm.overlap on
float8_delayed|2e-3|--nproc 2 --comm.backend local --converters '[{"name":"float8","scaling":"delayed","filter":["lm_head"]}]' --comm.overlap on
lora|1e-5|--converters '[{"name":"lora","rank":4}]' --optimizer.lr 0.1
largest_logits_and_norms|1e-4|--metrics.attention_max_logits true --metrics.norms layer --nproc 2 --comm.backend local --comm.overlap on
qk_clip|1e-4|--optimizer.qk_clip 0.05 --nproc 2 --comm.backend local --comm.overlap on
pairs|1e-5|--dataloader.name chat --dataloader.path "[\"$dir/pairs.jsonl\"]" --dataloader.template chatml --dataloader.pairs true --dataloader.shuffle false --tokenizer.name byte --loss.name dpo --training.seq_len 128
skipped|1e-5|--training.max_grad_norm_skip 1.5
replayed|1e-5|--nproc 2 --comm.backend local --debug.replay_interval 1 --comm.overlap on
JOBS
job=$dir/job.json

# ---- data, and where a run begins again ----
train "$dir/half" --checkpoint.enable true --checkpoint.interval 2 --training.steps 2 --training.intra_layer_micro_batch 4
train "$dir/half" --checkpoint.enable true --checkpoint.interval 2 --training.intra_layer_micro_batch 2
[ "$rc" -eq 0 ] && train "$dir/whole" && losses "$dir/half/metrics.jsonl" >"$dir/a" && losses "$dir/whole/metrics.jsonl" >"$dir/b" &&
    [ "$(wc -l <"$dir/a")" -eq 4 ] && paste -d ' ' "$dir/a" "$dir/b" | awk '{ d = $2 - $4; if ((d < 0 ? -d : d) > 2e-6 * $4) exit 1 }'
ok a_resume_may_change_it

# ---- errors, and what is said of it ----
refused() { # NAME TEXT OPTION...
    name=$1 text=$2
    shift 2
    train "$dir/refused" "$@"
    [ "$rc" -eq 2 ] && one_line "$dir/err" && grep -q "$text" "$dir/err"
    ok "refused_$name"
}
refused does_not_divide 'intra_layer_micro_batch: 3 does not divide the 8 micro-batches of a step: raise training.global_batch_size' --training.intra_layer_micro_batch 3
refused one_micro_batch '2 does not divide the 1 micro-batch of a step' --training.local_batch_size 8 --training.intra_layer_micro_batch 2
refused in_a_pipeline '2 does not divide the 3 micro-batches of a step: raise parallelism.pipeline_parallel_microbatches' --nproc 2 --comm.backend local \
    --parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_microbatches 3 --training.local_batch_size 3 --training.global_batch_size 3 \
    --training.intra_layer_micro_batch 2
refused out_of_range 'intra_layer_micro_batch' --training.intra_layer_micro_batch 9
refused update_in_the_backward 'early_step_in_backward' --optimizer.early_step_in_backward true --training.max_norm 0 --training.intra_layer_micro_batch 2
train "$dir/said" --training.steps 1 --training.intra_layer_micro_batch 2
[ "$rc" -eq 0 ] && grep -q 'in 8 micro-batches, 2 at a time in each layer;' "$dir/err" && grep -q 'intra_layer_micro_batch hides no communication here.*there is one rank' "$dir/err"
ok one_rank_is_told_that_it_hides_nothing
train "$dir/off" --training.steps 1 --nproc 2 --comm.backend local --comm.overlap off --training.intra_layer_micro_batch 2
[ "$rc" -eq 0 ] && grep -q 'hides no communication here.*comm.overlap is off' "$dir/err"
ok so_is_who_turns_overlap_off

# ---- the plan ----
planned() { # K: prints "exposed step bytes" of a model with experts on H100s
    ttrun plan "$dir/experts.json" --world 8 --hardware h100 --json --training.intra_layer_micro_batch "$1" >"$dir/plan.json" 2>"$dir/err" &&
        [ "$("$json" "$dir/plan.json" intra_layer_micro_batch)" -eq "$1" ] &&
        echo "$("$json" "$dir/plan.json" comm_exposed_s) $("$json" "$dir/plan.json" step_time_s) $("$json" "$dir/plan.json" bytes_per_rank.work)"
}
cat >"$dir/experts.json" <<'JOB'
{ "spec": "qwen3_moe", "model": { "flavor": "30B-A3B", "args": { "n_layers": 4 } }, "dataloader": { "path": ["text.txt"] },
  "training": { "local_batch_size": 1, "global_batch_size": 32, "seq_len": 4096, "mixed_precision_param": "bfloat16" },
  "activation_checkpoint": { "mode": "full" }, "parallelism": { "expert_parallel_degree": 8 } }
JOB
one=$(planned 1) && two=$(planned 2) && echo "# exposed, step, work: $one; interleaved $two" &&
    echo "$one $two" | awk '{ exit !(NF == 6 && $4 < 0.6 * $1 && $5 < $2 && $6 > $3) }'
ok plan_shows_less_exposed_communication_and_more_memory
exit $failed
