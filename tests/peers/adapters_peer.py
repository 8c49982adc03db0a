# SPDX-License-Identifier: Apache-2.0
"""Adapters of every kind that PEFT writes: 25 configurations drawn by seed, each on a small random model. ttrun takes the adapter as
checkpoint.initial_load_path, and its first loss is PEFT's to 2e-6; or it refuses it by one line. Never another loss.

usage: adapters_peer.py [build folder] [seed] [number]"""
import json
import os
import random
import subprocess
import sys
import tempfile
import warnings

import peft
import torch
from transformers import AutoConfig, AutoModelForCausalLM
import checks
from checks import check

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release")
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
NUMBER = int(sys.argv[3]) if len(sys.argv) > 3 else 25
BATCH, LENGTH, VOCAB = 4, 32, 262
ALL = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
KINDS = ["llama", "qwen2", "mistral", "qwen3"]


def one_of(rng, *rows):
    """Values with their weights."""
    return rng.choices([r[0] for r in rows], [r[1] for r in rows])[0]


def draw(rng):
    """A configuration of PEFT, and the converter by which a user would take it."""
    if rng.random() < 0.12:
        name = rng.choice(["IA3Config", "LoHaConfig", "LoKrConfig", "VeraConfig", "OFTConfig", "PrefixTuningConfig"])
        more = {"target_modules": ["q_proj", "v_proj"]}
        if name == "IA3Config":
            more["feedforward_modules"] = []
        if name == "PrefixTuningConfig":
            more = {"num_virtual_tokens": 3}
        if name == "OFTConfig":
            more["oft_block_size"] = 4
        return getattr(peft, name)(task_type="CAUSAL_LM", **more), {"rank": 4, "alpha": 8}
    targets = one_of(rng, (ALL, 4), (["q_proj", "v_proj"], 3), (["gate_proj", "down_proj"], 1), (ALL + ["lm_head"], 1), (["embed_tokens", "q_proj"], 0.5))
    o = {"r": rng.randint(1, 7), "lora_alpha": rng.choice([1, 4, 8, 11]), "target_modules": targets}
    ours = {"rank": o["r"], "alpha": o["lora_alpha"]}
    if targets != ALL:
        ours["targets"] = targets
    if rng.random() < 0.25:
        o["use_rslora"] = ours["rslora"] = True
    if rng.random() < 0.2:
        o["use_dora"] = ours["use_dora"] = True
    if rng.random() < 0.12:
        o["target_modules"] = r".*layers\.\d+\.self_attn\.(q|k)_proj"
        ours["targets"] = ["q_proj", "k_proj"]
    extra = one_of(rng, (None, 5), ("alpha_pattern", 1), ("rank_pattern", 1), ("bias", 1), ("modules_to_save", 1), ("init", 1.5), ("layers", 1), ("lora_bias", 0.7),
                   ("tokens", 0.7), ("replication", 0.5), ("dropout", 0.7), ("exclude", 0.5))
    if extra == "alpha_pattern":
        o["alpha_pattern"] = {"layers.0.self_attn.q_proj" if rng.random() < 0.5 else "q_proj": 3}
    elif extra == "rank_pattern":
        o["rank_pattern"] = {"layers.1.self_attn.v_proj" if rng.random() < 0.5 else "v_proj": o["r"] + 1}
    elif extra == "bias":
        o["bias"] = rng.choice(["all", "lora_only"])
    elif extra == "modules_to_save":
        o["modules_to_save"] = [rng.choice(["lm_head", "embed_tokens", "norm"])]
    elif extra == "init":
        o["init_lora_weights"] = rng.choice(["gaussian", "pissa", "olora", "orthogonal", False])
    elif extra == "layers":
        o["layers_to_transform"] = [rng.randint(0, 1)]
    elif extra == "lora_bias":
        o["lora_bias"] = True
    elif extra == "tokens":
        o["trainable_token_indices"] = [5, 7]
    elif extra == "replication":
        o["layer_replication"] = [[0, 2], [1, 2]]
    elif extra == "dropout":
        o["lora_dropout"] = 0.1
    elif extra == "exclude" and isinstance(o["target_modules"], list):
        o["exclude_modules"] = r".*layers\.0\..*"
    return peft.LoraConfig(task_type="CAUSAL_LM", **o), ours


def case(folder, number, rng):
    torch.manual_seed(number)
    kind, base = rng.choice(KINDS), f"{folder}/base"
    sizes = dict(vocab_size=VOCAB, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128,
                 tie_word_embeddings=rng.random() < 0.2, bos_token_id=0, eos_token_id=1)
    if kind == "qwen3":
        sizes["head_dim"] = 12
    m = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **sizes))
    with torch.no_grad():
        for p in m.parameters():
            p.copy_(p + 0.1 * torch.randn_like(p))
    m.save_pretrained(base)
    try:
        config, ours = draw(rng)
    except ValueError as e:
        return print(f"none  {number}: {str(e)[:80]}")
    what = f"{number}: {kind}, {json.dumps({k: v for k, v in config.to_dict().items() if v not in (None, False, [], {}, 'none', True, 0, 0.0)}, default=list)}"
    try:
        theirs = peft.get_peft_model(AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32), config)
    except Exception as e:  # PEFT itself has no such adapter
        return print(f"none  {what}: {type(e).__name__}: {str(e)[:80]}")
    with torch.no_grad():
        for n, p in theirs.named_parameters():
            if p.requires_grad:
                p.copy_(p * (1 + 0.1 * torch.randn_like(p)) + 0.03 * torch.randn_like(p))
    theirs.save_pretrained(f"{folder}/start")
    theirs.eval()
    ids = torch.randint(3, VOCAB, (BATCH * LENGTH + 1,), dtype=torch.int32)
    open(f"{folder}/ids.bin", "wb").write(ids.to(torch.uint16).numpy().tobytes())
    job = {"dump_folder": f"{folder}/run", "model": {"hf": base}, "dataloader": {"name": "bin", "path": [f"{folder}/ids.bin"], "format": "uint16", "shuffle": False},
           "converters": [{"name": "lora", **ours}], "lr_scheduler": {"name": "constant", "warmup_steps": 0},
           "training": {"local_batch_size": BATCH, "global_batch_size": BATCH, "seq_len": LENGTH, "steps": 1},
           "checkpoint": {"enable": False, "initial_load_path": f"{folder}/start"}, "metrics": {"log_freq": 1, "enable_tensorboard": False}, "backend": {"threads": 1}}
    json.dump(job, open(f"{folder}/job.json", "w"))
    r = subprocess.run([f"{BUILD}/ttrun", f"{folder}/job.json", "-q", "--plugin-dir", f"{BUILD}/plugins"], capture_output=True, text=True, timeout=120)
    if r.returncode:
        lines = [line for line in r.stderr.splitlines() if not line.startswith("[")]
        return check(r.returncode == 2 and len(lines) == 1, f"{what}: refused: {' / '.join(lines)[-150:]}")
    loss = [json.loads(line)["loss"] for line in open(f"{folder}/run/metrics.jsonl")][0]
    with torch.no_grad():
        x = torch.stack([ids[i * LENGTH:i * LENGTH + LENGTH + 1] for i in range(BATCH)]).long()
        want = torch.nn.functional.cross_entropy(theirs(input_ids=x[:, :-1]).logits.reshape(-1, VOCAB), x[:, 1:].reshape(-1)).item()
    check(abs(loss - want) <= 2e-6 * max(1, abs(want)), f"{what}: {loss:.7f}, PEFT {want:.7f}")


def main():
    warnings.simplefilter("ignore")
    torch.set_num_threads(2)
    rng = random.Random(SEED)
    print(f"seed {SEED}")
    for number in range(NUMBER):
        with tempfile.TemporaryDirectory() as folder:
            case(folder, number, rng)
    sys.exit(checks.failed)


main()
