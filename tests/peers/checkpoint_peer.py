# SPDX-License-Identifier: Apache-2.0
"""Our checkpoints against torch.distributed.checkpoint with Hugging Face storage, both ways, and plain safetensors.

  ours → torch   ckpt_tool saves as 1…8 ranks; dcp.load into full tensors, and two gloo ranks into DTensors
  torch → ours   one, four and 2x2 gloo ranks dcp.save (DTensors); ckpt_tool loads as 1…7 ranks, bitwise
  dtypes         F32 files into BF16/F16/F64 tensors and back, equal to torch's .to()
  missing shard  an error that names the tensor and the range"""
import os
import sys
import tempfile

import safetensors
import safetensors.torch
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor

import peer_tool

failed = 0


def check(ok, what):
    global failed
    failed += not ok
    print(("ok    " if ok else "WRONG ") + what, flush=True)


def tensors():
    g = torch.Generator().manual_seed(3)
    r = lambda *s: torch.randn(*s, generator=g)
    return {"tok.weight": r(14, 8), "layers.0.w": r(7, 9), "layers.0.norm": r(13).bfloat16(), "layers.1.w": r(24, 5),
            "optimizer.state.layers.0.w.exp_avg": r(7, 9).half(), "optimizer.state.layers.0.w.step": torch.tensor(17),
            "lr": torch.tensor(0.5, dtype=torch.float64), "cube": r(4, 6, 10), "ids": torch.arange(11, dtype=torch.int32),
            "mask": torch.tensor([True, False, True]), "bytes": torch.arange(33, dtype=torch.uint8).reshape(3, 11)}


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a.contiguous().view(-1).view(torch.uint8),
                                                                     b.contiguous().view(-1).view(torch.uint8))


def start(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo", rank=rank, world_size=world)


def placed(mesh, t):
    """Mesh dim 0 shards dim 0; a second mesh dim shards the last dim of matrices (so: vectors, scalars replicated on it)."""
    if mesh.ndim == 1:
        p = [Shard(0) if t.ndim else Replicate()]
    else:
        p = [Shard(0) if t.ndim else Replicate(), Shard(t.ndim - 1) if t.ndim > 1 else Replicate()]
    return distribute_tensor(t, mesh, p)


def save_worker(rank, shape, port, folder):
    world = shape[0] * (shape[1] if len(shape) > 1 else 1)
    start(rank, world, port)
    mesh = init_device_mesh("cpu", shape)
    state = {k: placed(mesh, t) for k, t in tensors().items()}
    dcp.save(state, storage_writer=HuggingFaceStorageWriter(folder, save_distributed=True))
    dist.destroy_process_group()


def load_worker(rank, shape, port, folder):
    start(rank, shape[0], port)
    mesh = init_device_mesh("cpu", shape)
    state = {k: placed(mesh, torch.zeros_like(t)) for k, t in tensors().items()}
    dcp.load(state, storage_reader=HuggingFaceStorageReader(folder))
    bad = [k for k, t in tensors().items() if not same(state[k].full_tensor(), t)]
    dist.destroy_process_group()
    if bad:
        raise SystemExit(f"rank {rank}: {bad}")


def spawn(worker, world, *args):
    try:
        mp.spawn(worker, args=args, nprocs=world)
        return True
    except Exception as e:
        print(e)
        return False


def ours_to_torch(tool, tmp, port):
    src = f"{tmp}/src.safetensors"
    safetensors.torch.save_file(tensors(), src)
    for world in (1, 2, 3, 4, 8):
        rc, text = peer_tool.run(tool, "save", src, f"{tmp}/w{world}", 5, world)
        step = f"{tmp}/w{world}/step-5"
        check(rc == 0, f"save as {world} ranks {text}".rstrip())
        check(peer_tool.run(tool, "verify", step)[0] == 0, "  verify")
        state = {k: torch.zeros_like(t) for k, t in tensors().items()}
        dcp.load(state, storage_reader=HuggingFaceStorageReader(step))
        check(all(same(state[k], t) for k, t in tensors().items()), f"  torch loads it whole ({len(os.listdir(step))} files)")
        for name in os.listdir(step):
            if name.endswith(".safetensors"):
                with safetensors.safe_open(f"{step}/{name}", framework="pt") as f:
                    [f.get_tensor(k) for k in f.keys()]
    check(spawn(load_worker, 2, (2,), port, f"{tmp}/w4/step-5"), "two torch ranks load what four of ours wrote")
    for world in (1, 3, 5):
        rc, text = peer_tool.run(tool, "load", f"{tmp}/w4/step-5", src, f"{tmp}/back", world)
        back = safetensors.torch.load_file(f"{tmp}/back") if rc == 0 else {}
        check(rc == 0 and all(same(back[k], t) for k, t in tensors().items()), f"ours (4) → ours ({world}) {text}".rstrip())


def torch_to_ours(tool, tmp, port):
    src = f"{tmp}/src.safetensors"
    for i, shape in enumerate([(1,), (4,), (2, 2)]):
        world, folder = shape[0] * (shape[1] if len(shape) > 1 else 1), f"{tmp}/torch{i}"
        check(spawn(save_worker, world, shape, port + 1 + i, folder), f"torch saves on mesh {shape}")
        for ranks in (1, 3, 7):
            rc, text = peer_tool.run(tool, "load", folder, src, f"{tmp}/back", ranks)
            back = safetensors.torch.load_file(f"{tmp}/back") if rc == 0 else {}
            check(rc == 0 and all(same(back[k], t) for k, t in tensors().items()), f"  {ranks} of our ranks load it {text}".rstrip())
    victim = sorted(n for n in os.listdir(folder) if n.endswith(".safetensors"))[0]
    os.rename(f"{folder}/{victim}", f"{tmp}/away")
    rc, text = peer_tool.run(tool, "load", folder, src, f"{tmp}/back", 1)
    check(rc == 1 and "is in no file" in text and "tensor '" in text, f"missing shard: {text.strip()}")


def dtypes(tool, tmp):
    g = torch.Generator().manual_seed(5)
    bits = torch.randint(-2**31, 2**31 - 1, (200000,), generator=g, dtype=torch.int64).to(torch.int32)
    x = bits.view(torch.float32).clone()
    x = torch.cat([x[~x.isnan()], torch.randn(50000, generator=g) * 1e-6, torch.randn(50000, generator=g) * 3e4])
    kinds = [torch.float32, torch.bfloat16, torch.float16, torch.float64]
    for a in kinds:
        folder = f"{tmp}/dt"
        os.makedirs(folder, exist_ok=True)
        safetensors.torch.save_file({"x": x.to(a)}, f"{folder}/model.safetensors")
        for b in kinds:
            want = x.to(a).to(b)
            safetensors.torch.save_file({"x": torch.zeros_like(want)}, f"{tmp}/like")
            rc, text = peer_tool.run(tool, "load", folder, f"{tmp}/like", f"{tmp}/back", 2)
            check(rc == 0 and same(safetensors.torch.load_file(f"{tmp}/back")["x"], want), f"{a} → {b} {text}".rstrip())


if __name__ == "__main__":
    tool = peer_tool.build()
    port = 20000 + os.getpid() % 20000
    with tempfile.TemporaryDirectory() as tmp:
        ours_to_torch(tool, tmp, port)
        torch_to_ours(tool, tmp, port)
        dtypes(tool, tmp)
    print(f"torch {torch.__version__}, safetensors {safetensors.__version__}: {failed} wrong")
    sys.exit(1 if failed else 0)
