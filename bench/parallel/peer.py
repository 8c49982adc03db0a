# SPDX-License-Identifier: Apache-2.0
"""PyTorch's side of bench/parallel: bench/train's Llama on one process, under FSDP2 and under tensor parallelism (gloo).

    python peer.py one|fsdp|tp BATCH SEQ STEPS      prints tokens/s of all ranks, median of the steps after the first three

One process has two threads; two ranks have one each, half the samples under FSDP and half the heads under TP. fp32, fused
AdamW, clipped at 1.0. FSDP2 shards every block and the root; TP is torchtitan's plan without sequence parallelism."""
import os
import statistics
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "train"))
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from peer import Llama

DIM, LAYERS, HEADS, HIDDEN, VOCAB = 256, 6, 16, 768, 2048  # debugmodel


def tensor_parallel(model, mesh):
    for b in model.blocks:
        b.h, b.kv = b.h // mesh.size(), b.kv // mesh.size()
        parallelize_module(b, mesh, {**{k: ColwiseParallel() for k in ("q", "k", "v", "w1", "w3")},
                                     "o": RowwiseParallel(), "w2": RowwiseParallel()})
    parallelize_module(model, mesh, {"tok": RowwiseParallel(input_layouts=Replicate()),
                                     "out": ColwiseParallel(output_layouts=Replicate())})


def clip(kinds):
    norms = [torch.nn.utils.get_total_norm([p.grad for p in k]) for k in kinds]
    norm = torch.linalg.vector_norm(torch.stack([n.full_tensor() if isinstance(n, DTensor) else n for n in norms]))
    for k in kinds:
        torch._foreach_mul_([p.grad.to_local() if isinstance(p.grad, DTensor) else p.grad for p in k], (1 / (norm + 1e-6)).clamp(max=1))


def train(rank, mode, batch, seq, steps, port):
    world = 1 if mode == "one" else 2
    torch.set_num_threads(2 // world)
    torch.manual_seed(0)
    if world > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=world)
        mesh = init_device_mesh("cpu", (world,))
    model = Llama(DIM, LAYERS, HEADS, HEADS, HIDDEN, VOCAB, seq)
    if mode == "tp":
        tensor_parallel(model, mesh)
    elif mode == "fsdp":
        for b in model.blocks:
            fully_shard(b, mesh=mesh)
        fully_shard(model, mesh=mesh)
    local = batch // world if mode == "fsdp" else batch
    all_ = list(model.parameters())  # TP leaves the norms' weights plain, and no fused call takes both kinds
    kinds = [k for k in ([p for p in all_ if isinstance(p, DTensor)], [p for p in all_ if not isinstance(p, DTensor)]) if k]
    opts = [torch.optim.AdamW(k, lr=8e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True) for k in kinds]
    took = []
    for _ in range(steps):
        ids = torch.randint(VOCAB, (local, seq + 1))
        begin = time.perf_counter()
        loss = model(ids[:, :-1], ids[:, 1:])
        for o in opts:
            o.zero_grad(set_to_none=True)
        loss.backward()
        clip(kinds)
        for o in opts:
            o.step()
        loss.item()
        took.append(time.perf_counter() - begin)
    if rank == 0:
        print(f"{batch * seq / statistics.median(took[3:]):.1f}", flush=True)
    if world > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    mode, batch, seq, steps = sys.argv[1], *(int(a) for a in sys.argv[2:5])
    args = (mode, batch, seq, steps, 29500 + os.getpid() % 1000)
    if mode == "one":
        train(0, *args)
    else:
        mp.spawn(train, args, nprocs=2)
