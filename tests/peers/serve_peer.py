# SPDX-License-Identifier: Apache-2.0
"""lm-evaluation-harness against `ttrun serve` (its local-completions and local-chat-completions, unchanged, with the server's
own tokenizer) beside its `hf` model in float32 on the same folder: log-likelihoods and accuracies of a multiple-choice
task, and greedy texts; of three models, one of which learned to end texts.

usage: serve_peer.py [build folder]"""
import json
import os
import random
import sys
import tempfile

import lm_eval
import lm_eval.tasks
import torch
import transformers
import checks
import served
from checks import check

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release")


def tasks(folder):
    """Continuations of sentences of our own pages: one as written and two of other sentences."""
    rng = random.Random(3)
    lines = [line.strip() for line in open(os.path.join(served.DOCS, "glossary.md"), encoding="utf-8") if 60 < len(line) < 200]
    with open(f"{folder}/data.jsonl", "w") as f:
        for i in range(40):
            three = rng.sample(lines, 3)
            half = [len(t) // 2 for t in three]
            f.write(json.dumps({"text": three[0][:half[0]], "choices": [t[h:] for t, h in zip(three, half)], "label": 0}) + "\n")
    head = f"dataset_path: json\ndataset_kwargs: {{data_files: {{test: {folder}/data.jsonl}}}}\ntest_split: test\ndoc_to_text: \"{{{{text}}}}\"\n"
    with open(f"{folder}/choice.yaml", "w") as f:
        f.write("task: choice\noutput_type: multiple_choice\ndoc_to_choice: \"{{choices}}\"\ndoc_to_target: label\n"
                "metric_list: [{metric: acc}, {metric: acc_norm}]\n" + head)
    with open(f"{folder}/greedy.yaml", "w") as f:
        f.write("task: greedy\noutput_type: generate_until\ndoc_to_target: \"{{choices[label]}}\"\n"
                "generation_kwargs: {until: [\"\\n\"], max_gen_toks: 24, do_sample: false, temperature: 0}\n"
                "metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]\n" + head)


def evaluate(model, args, folder, names, **more):
    manager = lm_eval.tasks.TaskManager(include_path=folder, include_defaults=False)
    r = lm_eval.simple_evaluate(model=model, model_args=args, tasks=names, task_manager=manager, log_samples=True, bootstrap_iters=0,
                                verbosity="ERROR", **more)
    return r["results"], {k: sorted(v, key=lambda s: s["doc_id"]) for k, v in r["samples"].items()}


def compare(spec, ends):
    with tempfile.TemporaryDirectory() as folder:
        tasks(folder)
        served.trained(BUILD, folder, spec, ends)
        p, url = served.serve(BUILD, folder)
        name = f"{spec}{', which ends texts' if ends else ''}"
        try:
            ours, said = evaluate("local-completions", f"model=ours,base_url={url}/v1/completions,num_concurrent=6,max_retries=1,"
                                  "tokenizer_backend=remote,max_length=511", folder, ["choice", "greedy"])
            theirs, told = evaluate("hf", f"pretrained={folder}/run/hf/latest,dtype=float32,max_length=511,add_bos_token=False", folder, ["choice", "greedy"], device="cpu")
            worst = max(abs(float(x[0][0]) - float(y[0][0])) for s, t in zip(said["choice"], told["choice"])
                        for x, y in zip(s["resps"], t["resps"]))
            check(worst < 2e-3, f"{name}: log-likelihoods of {3 * len(said['choice'])} continuations: at most {worst:.1e} apart")
            check([[x[0][1] for x in s["resps"]] for s in said["choice"]] == [[x[0][1] for x in s["resps"]] for s in told["choice"]], "which are greedy")
            for metric in "acc,none", "acc_norm,none":
                check(ours["choice"][metric] == theirs["choice"][metric], f"{metric}: {ours['choice'][metric]:.3f}, hf {theirs['choice'][metric]:.3f}")
            same = sum(s["resps"] == t["resps"] for s, t in zip(said["greedy"], told["greedy"]))
            check(same >= len(said["greedy"]) - 1, f"{same} of {len(said['greedy'])} greedy texts are equal")
            short = sum(len(s["resps"][0][0]) < 40 for s in said["greedy"])
            check(not ends or short > 0, f"{short} of them end early")
            _, chat = evaluate("local-chat-completions", f"model=ours,base_url={url}/v1/chat/completions,num_concurrent=6,max_retries=1,max_length=511,"
                               "tokenized_requests=False", folder, ["greedy"], apply_chat_template=True)
            check(len(chat["greedy"]) == len(said["greedy"]) and all(isinstance(s["resps"][0][0], str) for s in chat["greedy"]), "chat completions")
        finally:
            p.terminate()
            check(p.wait(10) == 0, "the server ends at a signal")


def main():
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(2)
    compare("llama3", False)
    compare("llama3", True)
    compare("qwen3", False)
    sys.exit(checks.failed)


main()
