# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side: the model of run.py with torch.utils.checkpoint around the first BLOCKS of its blocks.

    python peer.py BLOCKS STEPS       prints milliseconds of processor time of each step after the first, and peak MiB
                                      without what `import torch` takes"""
import os
import resource
import statistics
import sys
import time

import torch
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train"))
from peer import Llama  # noqa: E402

import run  # noqa: E402


class Checkpointed(torch.nn.Module):
    def __init__(self, block):
        super().__init__()
        self.block = block

    def forward(self, x, cos, sin):
        return checkpoint(self.block, x, cos, sin, use_reentrant=False)


def main():
    blocks, steps = int(sys.argv[1]), int(sys.argv[2])
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model = Llama(run.DIM, run.LAYERS, run.HEADS, run.HEADS, run.HIDDEN, run.VOCAB, run.SEQ)
    for i in range(blocks):
        model.blocks[i] = Checkpointed(model.blocks[i])
    opt = torch.optim.AdamW(model.parameters(), lr=8e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    times = []
    for _ in range(steps):
        begin = time.process_time()
        ids = torch.randint(run.VOCAB, (run.BATCH, run.SEQ + 1))
        loss = model(ids[:, :-1], ids[:, 1:])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        loss.item()
        times.append(1000 * (time.process_time() - begin))
    print(statistics.median(times[1:]), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base) / 1024)


if __name__ == "__main__":
    main()
