# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/gpu: the same Llama on one GPU, f32 parameters, bf16 products (autocast), torch.compile per block
as torchtitan does, cuDNN's or flash attention, fused AdamW, clipped at 1.0.

    python torch_llama.py DIM LAYERS HEADS KV_HEADS HIDDEN VOCAB BATCH SEQ STEPS      prints tokens/s of every step

Random tokens: the cost does not depend on them."""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


def rotate(x, cos, sin):  # x [B,H,S,d], half-rotated
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Block(nn.Module):
    def __init__(self, dim, heads, kv, hidden):
        super().__init__()
        self.h, self.kv, self.d = heads, kv, dim // heads
        self.n1, self.n2 = nn.RMSNorm(dim, 1e-5), nn.RMSNorm(dim, 1e-5)
        self.q, self.o = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.k, self.v = (nn.Linear(dim, kv * self.d, bias=False) for _ in range(2))
        self.w1, self.w3 = (nn.Linear(dim, hidden, bias=False) for _ in range(2))
        self.w2 = nn.Linear(hidden, dim, bias=False)

    def forward(self, x, cos, sin):
        b, s, _ = x.shape
        h = self.n1(x)
        q = rotate(self.q(h).view(b, s, self.h, self.d).transpose(1, 2), cos, sin)
        k = rotate(self.k(h).view(b, s, self.kv, self.d).transpose(1, 2), cos, sin)
        v = self.v(h).view(b, s, self.kv, self.d).transpose(1, 2)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=self.kv != self.h)
        x = x + self.o(a.transpose(1, 2).reshape(b, s, -1))
        h = self.n2(x)
        return x + self.w2(F.silu(self.w1(h)) * self.w3(h))


class Llama(nn.Module):
    def __init__(self, dim, layers, heads, kv, hidden, vocab, seq):
        super().__init__()
        self.tok = nn.Embedding(vocab, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, kv, hidden) for _ in range(layers))
        self.norm, self.out = nn.RMSNorm(dim, 1e-5), nn.Linear(dim, vocab, bias=False)
        d = dim // heads
        angle = torch.arange(seq)[:, None] * 500000.0 ** (-torch.arange(0, d, 2) / d)[None]
        self.register_buffer("cos", angle.cos())
        self.register_buffer("sin", angle.sin())

    def forward(self, ids):
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
