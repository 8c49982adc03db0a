#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes peft.json beside itself: adapters as PEFT saves them, the weights' file as hex, for a model of the sizes of tests/run/lib.sh.
   python3 tests/golden/peft_golden.py      (peft 0.21, transformers 5.23)"""
import json, os, tempfile

import peft, torch
from transformers import LlamaConfig, LlamaForCausalLM

CASES = {"plain": dict(r=2, lora_alpha=6, target_modules=["q_proj", "down_proj"]),
         "rslora": dict(r=2, lora_alpha=5, lora_dropout=0.125, use_rslora=True, target_modules=["v_proj"]),
         "dora": dict(r=2, lora_alpha=6, use_dora=True, target_modules=["o_proj"])}


def saved(options):
    torch.manual_seed(3)
    base = LlamaForCausalLM(LlamaConfig(vocab_size=262, hidden_size=32, intermediate_size=48, num_hidden_layers=2, num_attention_heads=4,
                                        num_key_value_heads=2))
    model = peft.get_peft_model(base, peft.LoraConfig(task_type="CAUSAL_LM", **options))
    with torch.no_grad():
        for name, p in model.named_parameters():
            if "lora_" in name:
                p.copy_(torch.randint(-64, 64, p.shape) / 256)  # hex with many zeros
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        config = json.load(open(f"{folder}/adapter_config.json"))
        config["target_modules"].sort()
        return dict(config=config, weights=open(f"{folder}/adapter_model.safetensors", "rb").read().hex())


out = {"peft": peft.__version__, **{name: saved(options) for name, options in CASES.items()}}
with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "peft.json"), "w") as f:
    json.dump(out, f, indent=0, sort_keys=True)
    f.write("\n")
