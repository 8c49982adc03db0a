# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/train: the same Llama or GPT-2, eager or compiled, fp32, fused AdamW, clipped at 1.0.

    python peer.py MODEL eager|compile STEPS THREADS      prints tokens/s of every step after the first

Random tokens: the cost does not depend on them. SDPA with enable_gqa where PyTorch has it, F.rms_norm, fused AdamW: the
fastest stock parts."""
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

MODELS = {  # dim, layers, heads, kv_heads, hidden, vocab, batch, seq; kv_heads 0: GPT-2
    "debugmodel": (256, 6, 16, 16, 768, 2048, 1, 2048),
    "llama34m": (512, 8, 8, 4, 1536, 8192, 8, 512),
    "gpt2_64": (768, 12, 12, 0, 3072, 50257, 4, 64),
    "gpt2_256": (768, 12, 12, 0, 3072, 50257, 4, 256),
}


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

    def forward(self, ids, labels):
        x = self.tok(ids)
        for b in self.blocks:
            x = b(x, self.cos, self.sin)
        return F.cross_entropy(self.out(self.norm(x)).flatten(0, 1), labels.flatten())


class GPT2Block(nn.Module):
    def __init__(self, dim, heads, hidden):
        super().__init__()
        self.h = heads
        self.n1, self.n2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, hidden), nn.Linear(hidden, dim)

    def forward(self, x):
        b, s, d = x.shape
        q, k, v = (t.view(b, s, self.h, -1).transpose(1, 2) for t in self.qkv(self.n1(x)).split(d, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(a.transpose(1, 2).reshape(b, s, d))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class GPT2(nn.Module):  # the head is the embedding
    def __init__(self, dim, layers, heads, hidden, vocab):
        super().__init__()
        self.tok, self.pos = nn.Embedding(vocab, dim), nn.Embedding(1024, dim)
        self.blocks = nn.ModuleList(GPT2Block(dim, heads, hidden) for _ in range(layers))
        self.norm = nn.LayerNorm(dim)

    def forward(self, ids, labels):
        x = self.tok(ids) + self.pos.weight[: ids.shape[1]]
        for b in self.blocks:
            x = b(x)
        return F.cross_entropy(F.linear(self.norm(x), self.tok.weight).flatten(0, 1), labels.flatten())


def main():
    name, mode, steps, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    dim, layers, heads, kv, hidden, vocab, batch, seq = MODELS[name]
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    model = Llama(dim, layers, heads, kv, hidden, vocab, seq) if kv else GPT2(dim, layers, heads, hidden, vocab)
    for p in model.parameters():
        if p.dim() > 1:
            nn.init.normal_(p, std=0.02)
    run = torch.compile(model) if mode == "compile" else model
    opt = torch.optim.AdamW(model.parameters(), lr=8e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    for step in range(steps):
        ids = torch.randint(vocab, (batch, seq + 1))
        begin = time.perf_counter()
        loss = run(ids[:, :-1], ids[:, 1:])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        loss.item()
        if step:
            print(f"{batch * seq / (time.perf_counter() - begin):.1f}", flush=True)


if __name__ == "__main__":
    main()
