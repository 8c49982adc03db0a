# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/gpu: the same Llama on one GPU, f32 parameters, bf16 products (autocast), torch.compile per block
as torchtitan does, cuDNN's or flash attention, fused AdamW, clipped at 1.0.

    python torch_llama.py DIM LAYERS HEADS KV_HEADS HIDDEN VOCAB BATCH SEQ STEPS      prints tokens/s of every step

Random tokens: the cost does not depend on them."""
import os
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train"))
from peer import Llama as Model  # bench/train/peer.py; in a bundle it lies beside this file


class Llama(Model):
    def forward(self, ids):  # without the head: head_loss compiles it with the loss
        x = self.tok(ids)
        cos, sin = self.cos.to(torch.bfloat16), self.sin.to(torch.bfloat16)
        for b in self.blocks:
            x = b(x, cos, sin)
        return self.norm(x)


def head_loss(model, x, labels):
    return F.cross_entropy(model.out(x).flatten(0, 1).float(), labels.flatten())


def main():
    dim, layers, heads, kv, hidden, vocab, batch, seq, steps = map(int, sys.argv[1:10])
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")
    with torch.device("cuda"):
        model = Llama(dim, layers, heads, kv, hidden, vocab, seq)
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    for block in model.blocks:
        block.compile()
    loss_of = torch.compile(head_loss)
    opt = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    order = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION]
    for step in range(steps):
        ids = torch.randint(vocab, (batch, seq + 1), device="cuda")
        torch.cuda.synchronize()
        begin = time.perf_counter()
        with torch.autocast("cuda", torch.bfloat16), sdpa_kernel(order, set_priority=True):
            loss = loss_of(model, model(ids[:, :-1]), ids[:, 1:])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        loss.item()
        torch.cuda.synchronize()
        print(f"{batch * seq / (time.perf_counter() - begin):.1f}", flush=True)
    print(f"peak {torch.cuda.max_memory_allocated() / 2**30:.2f} GiB", file=sys.stderr)


main()
