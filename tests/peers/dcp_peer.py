# SPDX-License-Identifier: Apache-2.0
"""Whole checkpoints, optimizer too, between ttrun and torch.distributed.checkpoint.

  ours → torch   ckpt export --to dcp and --to torchtitan: dcp.load into a model and its AdamW on 1, 2 and 2x2 gloo ranks (uneven shards,
                 0-d steps), dcp_to_torch_save; every value equal to the step folder's, which HuggingFaceStorageReader opens by itself
  torch → ours   dcp.save by 1, 2 and 2x2 ranks in its own form and by HuggingFaceStorageWriter; ckpt import gives the tensors back to the
                 bit, and the run continues with the losses of the unbroken one
  python3 tests/peers/dcp_peer.py     (torch 2.15; after make)"""
import json
import os
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
from torch.distributed.checkpoint import HuggingFaceStorageReader, HuggingFaceStorageWriter
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_optimizer_state_dict, set_optimizer_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
import checks
from checks import check
from dcp_folder import module, of_model, read

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)
ARGS = {"dim": 24, "n_layers": 2, "n_heads": 3, "n_kv_heads": 3, "hidden_dim": 35, "vocab_size": 263, "tie_embeddings": False}
MESHES = [(1,), (2,), (2, 2)]
def ttrun(*args):
    p = subprocess.run([f"{ROOT}/ttrun", *map(str, args)], capture_output=True, text=True)
    if p.returncode:
        print(p.stderr[-3000:])
    return p.returncode == 0


def same(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)


def tensors(sd):
    return {k: v for k, v in sd.items() if torch.is_tensor(v)}


def stepped(model):
    """An AdamW over the model whose states exist."""
    opt = torch.optim.AdamW(model.parameters(), lr=1.0)
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    opt.step()
    return opt


def start(rank, world, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(world))
    dist.init_process_group("gloo", rank=rank, world_size=world)


def placed(mesh, t):
    p = [Shard(0) if t.ndim else Replicate()] + [Shard(t.ndim - 1) if t.ndim > 1 else Replicate()] * (mesh.ndim - 1)
    return distribute_tensor(t, mesh, p)


def load_worker(rank, shape, port, folder, want_file):
    """dcp.load of a model, its AdamW and the counts; the flat names are torchtitan's."""
    start(rank, torch.Size(shape).numel(), port)
    mesh = init_device_mesh("cpu", shape)
    want = torch.load(want_file)
    model = module(of_model(want))
    opt = stepped(model)
    osd = get_optimizer_state_dict(model, opt, options=FLAT)
    sd = {k: placed(mesh, torch.zeros_like(v)) for k, v in of_model(want).items()}
    sd["optimizer"] = {k: placed(mesh, torch.zeros_like(v)) if torch.is_tensor(v) else v for k, v in osd.items()}
    sd["train_state"] = {"step": torch.tensor(0, dtype=torch.int32), "ntokens_seen": torch.tensor(0)}
    sd["lr_scheduler"] = {"last_epoch": -1}
    dcp.load(sd, checkpoint_id=folder)
    flat = {**of_model(sd), **{f"optimizer.{k}": v for k, v in sd["optimizer"].items() if torch.is_tensor(v)}}
    full = {k: v.full_tensor() for k, v in flat.items() if k not in ("optimizer", "train_state", "lr_scheduler")}
    bad = [k for k, v in full.items() if not same(v, want[k])]
    groups = {k: v for k, v in sd["optimizer"].items() if k.startswith("param_groups.")}
    name = next(iter(of_model(want)))
    plain = {k: v.full_tensor() if torch.is_tensor(v) else v for k, v in sd["optimizer"].items()}
    set_optimizer_state_dict(model, opt, plain, options=FLAT)
    g = opt.state_dict()["param_groups"][0]
    if groups[f"param_groups.{name}.betas"] != (0.9, 0.95) or g["betas"] != (0.9, 0.95) or g["weight_decay"] != 0.1:
        bad.append("betas, weight_decay")
    if sd["train_state"]["step"] != 4 or sd["lr_scheduler"]["last_epoch"] != 4 or {int(s["step"]) for s in opt.state.values()} != {4}:
        bad.append("step")
    dist.destroy_process_group()
    if bad:
        raise SystemExit(f"rank {rank}: {bad}")


def save_worker(rank, shape, port, folder, from_file, hf):
    """dcp.save of the same as DTensors, in torch's own form with nested dicts, or by HuggingFaceStorageWriter."""
    start(rank, torch.Size(shape).numel(), port)
    mesh = init_device_mesh("cpu", shape)
    sd = {k: placed(mesh, v) for k, v in torch.load(from_file).items()}
    if hf:
        dcp.save(sd, storage_writer=HuggingFaceStorageWriter(folder, save_distributed=True))
    else:
        sd.update({"lr_scheduler": {"last_epoch": 4}, "dataloader": {"dp_rank_0": b"\x80\x04never run"}, "losses": [1.5, None]})
        dcp.save(sd, checkpoint_id=folder)
    dist.destroy_process_group()


def spawn(worker, shape, *args):
    try:
        mp.spawn(worker, args=(shape, *args), nprocs=torch.Size(shape).numel())
        return True
    except Exception as e:
        print(e)
        return False


def job(tmp):
    text = f"{tmp}/text.txt"
    with open(text, "w") as f:
        f.write("".join(f"{i} squared is {i * i}, its cube {i ** 3}.\n" for i in range(4000)))
    j = {"spec": "llama3", "model": {"args": ARGS}, "tokenizer": {"name": "byte"}, "dataloader": {"name": "text", "path": [text]},
         "optimizer": {"lr": 3e-3, "param_groups": [{"match": "tag:norm", "weight_decay": 0.0}]},
         "lr_scheduler": {"warmup_steps": 3}, "metrics": {"log_freq": 1}, "checkpoint": {"enable": True, "interval": 4},
         "training": {"steps": 8, "seq_len": 32, "local_batch_size": 2, "global_batch_size": 4}}
    with open(f"{tmp}/job.json", "w") as f:
        json.dump(j, f)
    return f"{tmp}/job.json"


def losses(run):
    with open(f"{run}/metrics.jsonl") as f:
        return {m["step"]: m["loss"] for m in map(json.loads, f) if "loss" in m}


def to_torch(tmp, step, port):
    native = read(step, HuggingFaceStorageReader)
    names = set(of_model(native))
    check(all(f"optimizer.state.{n}.{s}" in native for n in names for s in ("exp_avg", "exp_avg_sq")),
          f"HuggingFaceStorageReader opens ours: {len(native)} tensors, optimizer too")
    for form in ("dcp", "torchtitan"):
        out = f"{tmp}/{form}"
        check(ttrun("ckpt", "export", "--to", form, step, out), f"export --to {form}")
        sd = read(out)
        if form == "dcp":
            check(all(same(sd[k], v) for k, v in native.items()), "  every tensor is the step's")
        else:
            check("layers.1.attention.qkv_linear.wq.weight" in sd and "optimizer.state.layers.1.attention.qkv_linear.wq.weight.exp_avg" in sd, "  torchtitan's names")
        torch.save(sd, f"{tmp}/{form}.pt")
        for shape in MESHES:
            port += 1
            check(spawn(load_worker, shape, port, out, f"{tmp}/{form}.pt"), f"  dcp.load of model, AdamW and counts on {shape}")
        dcp_to_torch_save(out, f"{tmp}/whole.pt")
        whole = torch.load(f"{tmp}/whole.pt")
        k = next(iter(of_model(sd)))
        check(same(whole[k], sd[k]) and same(whole["optimizer"][f"state.{k}.exp_avg"], sd[f"optimizer.state.{k}.exp_avg"]), "  dcp_to_torch_save")
        subprocess.run(["rm", "-rf", f"{tmp}/b"], check=True)
        check(ttrun("ckpt", "import", "--from", form, out, f"{tmp}/b", "--model.args", json.dumps(ARGS)) and
              ttrun("ckpt", "diff", f"{tmp}/b/step-4", step), "  import gives the step back")
    return port


def from_torch(tmp, step, job_file, port):
    want = losses(f"{tmp}/run")
    for form in ("dcp", "torchtitan"):
        for hf in (False, True):
            for i, shape in enumerate(MESHES):
                port += 1
                folder, run = f"{tmp}/t-{form}-{hf}-{i}", f"{tmp}/r-{form}-{hf}-{i}"
                what = f"{'HuggingFaceStorageWriter' if hf else 'dcp.save'} on {shape}, {form}'s names"
                check(spawn(save_worker, shape, port, folder, f"{tmp}/{form}.pt", hf), what)
                check(ttrun("ckpt", "import", "--from", form, folder, f"{run}/checkpoint", "--model.args", json.dumps(ARGS)), "  import")
                check(ttrun("ckpt", "diff", f"{run}/checkpoint/step-4", step), "  the tensors are the step's")
                ok = ttrun(job_file, "--dump_folder", run, *(("--nproc", 2, "--comm.backend", "local") if i else ()))
                got = losses(run) if ok else {}
                close = all(abs(got.get(s, 99) - want[s]) <= (1e-4 if i else 0) for s in (5, 6, 7, 8))
                check(ok and close, f"  training continues with the losses of the unbroken run on {2 if i else 1} rank(s)")
    return port


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as tmp:
        job_file, port = job(tmp), 20000 + os.getpid() % 20000
        check(ttrun(job_file, "--dump_folder", f"{tmp}/run"), "a run of 8 steps")
        step = f"{tmp}/run/checkpoint/step-4"
        port = to_torch(tmp, step, port)
        from_torch(tmp, step, job_file, port)
    print(f"torch {torch.__version__}: {checks.failed} wrong")
    sys.exit(1 if checks.failed else 0)
