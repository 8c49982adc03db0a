#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes dcp.json beside itself: folders that torch.distributed.checkpoint wrote on two ranks, their files as hex, with the bytes of the
   tensors; and .metadata files that are refused, each with words of the error.
   python3 tests/golden/dcp_golden.py      (torch 2.15)"""
import copy, dataclasses, json, os, pickle, tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int32: "I32"}


def tensors():
    g = torch.Generator().manual_seed(1)
    return {"w": torch.randn(5, 3, generator=g), "optimizer.state.w.step": torch.tensor(7.0),
            "turned": torch.arange(6.0).reshape(2, 3).bfloat16().t(), "train_state.step": torch.tensor(7, dtype=torch.int32)}


def worker(rank, folder):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(21000 + os.getppid() % 20000), RANK=str(rank), WORLD_SIZE="2")
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2,))
    sd = {k: distribute_tensor(v, mesh, [Shard(0) if k == "w" else Replicate()]) for k, v in tensors().items()}
    dcp.save({**sd, "lr_scheduler": {"last_epoch": 7}, "bytes": b"\x00\xff"}, checkpoint_id=folder)
    dist.destroy_process_group()


def changed(meta, change):
    m = copy.deepcopy(meta)
    change(m)
    return pickle.dumps(m, protocol=4).hex()


def place(m, name, at=0):
    return [k for k in m.storage_data if k.fqn == name][at]


def replace(m, name, at=0, **more):
    k = place(m, name, at)
    m.storage_data[k] = dataclasses.replace(m.storage_data[k], **more)


def chunk(m, name, offsets, sizes):
    m.state_dict_metadata[name].chunks[0] = ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))


class Runs:
    def __reduce__(self):
        return os.system, ("touch ././/the-pickle-was-run",)


def of_dtype(m):
    m.state_dict_metadata["w"].properties.dtype = torch.float16


def no_place(m):
    del m.storage_data[place(m, "w", 1)]


def beside(m):  # two chunks that overlap, and item 1 is where the overlap is
    old = place(m, "w", 1)
    m.state_dict_metadata["w"].chunks[1] = ChunkStorageMetadata(torch.Size([2, 0]), torch.Size([2, 3]))
    m.storage_data[MetadataIndex("w", torch.Size([2, 0]), 1)] = m.storage_data.pop(old)


def stranger(m):
    m.storage_data[MetadataIndex("v", torch.Size([0]), 0)] = m.storage_data[place(m, "w")]


def of_scalar(m):
    m.state_dict_metadata["w"].chunks = "none"


REFUSED = {
    "a transform": (lambda m: replace(m, "w", transform_descriptors=["zstd"]), "through the transform zstd"),
    "a path": (lambda m: replace(m, "w", relative_path=".." + "/x.distcp"), "/x.distcp' is not the name of a file in this folder"),
    "a file that is not there": (lambda m: replace(m, "w", relative_path="__9_0.distcp"), "__9_0.distcp: not there"),
    "an end behind the file": (lambda m: replace(m, "w", length=1 << 40), "cut short"),
    "a negative place": (lambda m: replace(m, "w", offset=-1), "are not ints >= 0"),
    "another item": (lambda m: replace(m, "w", offset=0, length=10), "no end of a zip file"),
    "a chunk outside": (lambda m: chunk(m, "w", (3, 0), (3, 3)), "lies outside its size"),
    "a chunk of other sizes": (lambda m: chunk(m, "w", (0, 0), (2, 3)), "has another shape"),
    "an item without a chunk": (lambda m: chunk(m, "w", (1, 0), (3, 3)), "is none of its chunks"),
    "another dtype": (of_dtype, "has another dtype"),
    "no list of chunks": (of_scalar, "not a list"),
    "an item of nothing": (stranger, "it has bytes, but no size"),
    "a hole": (no_place, "'w': [3:5, 0:3] is in no file"),
    "an overlap": (beside, "'w': [2:3, 0:3] is in two files"),
    "a call": (lambda m: setattr(m, "planner_data", Runs()), "names the global posix.system"),
    "a set": (lambda m: setattr(m, "planner_data", {1, 2}), "opcode EMPTY_SET"),
}

if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as tmp:
        mp.spawn(worker, args=(tmp,), nprocs=2)
        files = {n: open(os.path.join(tmp, n), "rb").read().hex() for n in sorted(os.listdir(tmp))}
        meta = pickle.loads(bytes.fromhex(files[".metadata"]))
    out = dict(torch=torch.__version__, files=[dict(name=k, hex=v) for k, v in files.items()],
               tensors=[dict(name=k, dtype=NAMES[v.dtype], shape=list(v.shape), hex=bytes(v.contiguous().reshape(-1).view(torch.uint8).tolist()).hex())
                        for k, v in tensors().items()],
               refused=[dict(name=k, says=says, metadata=changed(meta, f)) for k, (f, says) in REFUSED.items()])
    with open(os.path.join(HERE, "dcp.json"), "w") as f:
        json.dump(out, f, indent=0)
        f.write("\n")
