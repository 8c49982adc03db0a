# SPDX-License-Identifier: Apache-2.0
"""transformers' side of bench/moe: a Qwen3-MoE folder, fp32, fused AdamW, clipped at 1.0.

    python peer.py FOLDER eager|grouped_mm|batched_mm eager|compile FORCED STEPS THREADS BATCH SEQ

prints tokens/s of every step after the first. FORCED true: choice j of token t is expert (t * k + j) mod E, as
debug.moe_force_load_balance has it. The text is that of run.sh, as bytes."""
import glob
import sys
import time
import types

import torch
from transformers import AutoModelForCausalLM


def in_turn(self, hidden_states):
    """The router's forward with its own weights, but experts in turn."""
    hidden_states = hidden_states.reshape(-1, self.hidden_dim)
    logits = torch.nn.functional.linear(hidden_states, self.weight)
    probs = torch.nn.functional.softmax(logits, dtype=torch.float, dim=-1)
    slots = torch.arange(hidden_states.shape[0] * self.top_k, device=logits.device)
    index = (slots % self.num_experts).view(-1, self.top_k)
    top = probs.gather(1, index)
    if self.norm_topk_prob:
        top = top / top.sum(dim=-1, keepdim=True)
    return logits, top.to(logits.dtype), index


def main():
    folder, experts, mode, forced = sys.argv[1:5]
    steps, threads, batch, seq = map(int, sys.argv[5:9])
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="sdpa", experts_implementation=experts
    )
    model.train()
    routers = [m for m in model.modules() if type(m).__name__.endswith("TopKRouter")]
    assert routers, "no router was found: another version of transformers?"
    for r in routers:
        if forced == "true":
            r.forward = types.MethodType(in_turn, r)
    text = b"".join(open(p, "rb").read() for p in sorted(glob.glob("/usr/include/*.h")))
    data = torch.frombuffer(bytearray(text), dtype=torch.uint8).long()
    run = torch.compile(model) if mode == "compile" else model
    opt = torch.optim.AdamW(model.parameters(), lr=1e-5, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    for step in range(steps):
        first = step * batch * seq
        ids = data[first : first + batch * seq].view(batch, seq)
        begin = time.perf_counter()
        loss = run(input_ids=ids, labels=ids, use_cache=False).loss
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        loss.item()
        if step:
            print(f"{batch * seq / (time.perf_counter() - begin):.1f}", flush=True)


if __name__ == "__main__":
    main()
