#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Durable saves and loads of GPT-2 124M with AdamW states: ttrun beside PyTorch, in turns, medians.

  peers.py TOOL FOLDER [ROUNDS] [WIDTH]     TOOL: bench/checkpoint/checkpoint.c, built; run.sh does it all

A save ends when the data is on the disk: after a writer that does not sync, its files are synced by hand, and both times
are given. Before a cold load the files are dropped from the page cache. Without torch only ttrun and dd are measured."""
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time

try:
    import safetensors.torch
    import torch
    import torch.distributed.checkpoint as dcp
    from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter, HuggingFaceStorageReader, HuggingFaceStorageWriter
except ImportError:
    torch = None

TOOL, WORK = sys.argv[1], sys.argv[2]
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 5
WIDTH = int(sys.argv[4]) if len(sys.argv) > 4 else 768


def files(folder):
    if os.path.isfile(folder):
        return [folder]
    return [os.path.join(d, f) for d, _, names in os.walk(folder) for f in names]


def sync(folder):
    for f in files(folder):
        fd = os.open(f, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def drop(folder):
    sync(folder)
    for f in files(folder):
        fd = os.open(f, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def fill_cache(folder):
    for f in files(folder):
        with open(f, "rb", buffering=0) as file:
            while file.read(1 << 22):
                pass


def cpu():
    return sum(resource.getrusage(w).ru_utime + resource.getrusage(w).ru_stime for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


class Ours:
    def __init__(self):
        self.p = subprocess.Popen([TOOL, str(WIDTH)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.bytes = int(self.p.stdout.readline())

    def do(self, *words):
        self.p.stdin.write(" ".join(map(str, words)) + "\n")
        self.p.stdin.flush()
        return tuple(map(float, self.p.stdout.readline().split()))


def timed(f):
    t, c = time.monotonic(), cpu()
    f()
    return time.monotonic() - t, cpu() - c


def dd(path, megabytes):
    subprocess.run(["dd", "if=/dev/zero", f"of={path}", "bs=8M", f"count={megabytes // 8}", "oflag=direct", "conv=fsync"], check=True, capture_output=True)


def shapes():
    d = WIDTH
    yield "transformer.wte.weight", (50257, d)
    yield "transformer.wpe.weight", (1024, d)
    for i in range(12):
        for name, shape in (("ln_1.weight", (d,)), ("ln_1.bias", (d,)), ("ln_2.weight", (d,)), ("ln_2.bias", (d,)), ("attn.c_attn.weight", (3 * d, d)),
                            ("attn.c_attn.bias", (3 * d,)), ("attn.c_proj.weight", (d, d)), ("attn.c_proj.bias", (d,)), ("mlp.c_fc.weight", (4 * d, d)),
                            ("mlp.c_fc.bias", (4 * d,)), ("mlp.c_proj.weight", (d, 4 * d)), ("mlp.c_proj.bias", (d,))):
            yield f"transformer.h.{i}.{name}", shape
    yield "transformer.ln_f.weight", (d,)
    yield "transformer.ln_f.bias", (d,)


def state():
    sd = {}
    for name, shape in shapes():
        for suffix in ("", "exp_avg", "exp_avg_sq"):
            sd[f"optimizer.state.{name}.{suffix}" if suffix else name] = torch.randn(shape)
    return sd


def async_save(sd, folder):
    """Seconds until async_save returns; it is waited for outside."""
    f = dcp.async_save(sd, storage_writer=FileSystemWriter(folder, sync_files=True))
    return f


class Table:
    def __init__(self):
        self.rows = {}

    def add(self, name, seconds, cpu_seconds):
        self.rows.setdefault(name, []).append((seconds, cpu_seconds))

    def median(self, name):
        return statistics.median(x[0] for x in self.rows[name])

    def print(self, title, names, size, base):
        print(f"\n| {title} | s: median | least | most | GB/s | CPU s | ttrun's speed ÷ its |\n|---|---|---|---|---|---|---|")
        for n in names:
            if n not in self.rows:
                continue
            s, m = [x[0] for x in self.rows[n]], self.median(n)
            ratios = [t / o for t, o in zip(s, [x[0] for x in self.rows[base]])]
            print(f"| {n} | {m:.2f} | {min(s):.2f} | {max(s):.2f} | {size / m / 1e9:.2f} | {statistics.median(x[1] for x in self.rows[n]):.2f} | "
                  f"{statistics.median(ratios):.2f} |")


def folder_of(name):
    return os.path.join(WORK, name)


def saves(t, ours, sd, k):
    """A round of saves; what each wrote stays for the loads."""
    def torch_save():
        torch.save(sd, folder_of("torch_save"))

    def st_save():
        safetensors.torch.save_file(sd, folder_of("safetensors"))

    peers = {"torch.save": ("torch_save", torch_save), "safetensors.torch.save_file": ("safetensors", st_save),
             "DCP FileSystemWriter": ("dcp", lambda: dcp.save(sd, storage_writer=FileSystemWriter(folder_of("dcp"), sync_files=False))),
             "DCP FileSystemWriter, sync_files": ("dcp_sync", lambda: dcp.save(sd, storage_writer=FileSystemWriter(folder_of("dcp_sync"), sync_files=True))),
             "DCP HuggingFaceStorageWriter": ("dcp_hf", lambda: dcp.save(sd, storage_writer=HuggingFaceStorageWriter(folder_of("dcp_hf"), save_distributed=True)))}
    def save_ours():
        t.add("ttrun, from the state", *ours.do("save", folder_of("ttrun"), k))
        t.add("memcpy of the state", *ours.do("copy"))
        t.add("ttrun, from the staging copy", *ours.do("async", folder_of("ttrun"), k))

    def save_dd():
        t.add("dd oflag=direct conv=fsync", *timed(lambda: dd(folder_of("dd"), ours.bytes >> 20)))
        os.unlink(folder_of("dd"))
    os.sync()
    for f in (save_ours, save_dd) if k % 2 else (save_dd, save_ours):
        f()
    if not torch:
        return
    for name, (folder, save) in peers.items():
        shutil.rmtree(folder_of(folder), ignore_errors=True)
        if os.path.isfile(folder_of(folder)):
            os.unlink(folder_of(folder))
        os.sync()
        seconds, c = timed(save)
        more, c2 = timed(lambda: sync(folder_of(folder)))
        t.add(name + ", and fsync", seconds + more, c + c2)
        t.add(name + ", as it returns", seconds, c)
    shutil.rmtree(folder_of("dcp_async"), ignore_errors=True)
    begin, c = time.monotonic(), cpu()
    f = async_save(sd, folder_of("dcp_async"))
    t.add("DCP async_save: until it returns", time.monotonic() - begin, cpu() - c)
    f.result()
    t.add("DCP async_save, sync_files, until its future is done", time.monotonic() - begin, cpu() - c)


def loads(t, ours, sd, k, cold):
    word = "cold" if cold else "warm"

    def measure(name, folder, f):
        (drop if cold else fill_cache)(folder_of(folder))
        t.add(f"{name}, {word}", *f())

    at = os.path.join("ttrun", f"step-{k}")
    measure("ttrun", at, lambda: ours.do("load", folder_of("ttrun"), k))
    measure("ttrun, load with the check of all hashes (what a resume does)", at, lambda: ours.do("resume", folder_of("ttrun"), k))
    measure("ttrun, check of the hashes alone", at, lambda: ours.do("verify", folder_of("ttrun"), k))
    if not torch:
        return
    measure("DCP FileSystemReader", "dcp", lambda: timed(lambda: dcp.load(sd, storage_reader=FileSystemReader(folder_of("dcp")))))
    measure("DCP HuggingFaceStorageReader", "dcp_hf", lambda: timed(lambda: dcp.load(sd, storage_reader=HuggingFaceStorageReader(folder_of("dcp_hf")))))

    def copy(read):
        for name, x in read().items():
            sd[name].copy_(x)
    measure("torch.load, copied", "torch_save", lambda: timed(lambda: copy(lambda: torch.load(folder_of("torch_save"), mmap=True))))
    measure("safetensors.torch.load_file, copied", "safetensors", lambda: timed(lambda: copy(lambda: safetensors.torch.load_file(folder_of("safetensors")))))


def main():
    os.makedirs(WORK, exist_ok=True)
    ours, sd = Ours(), state() if torch else None
    if sd:
        assert sum(x.numel() * 4 for x in sd.values()) == ours.bytes
    s, cold, warm = Table(), Table(), Table()
    for k in range(1, ROUNDS + 1):
        saves(s, ours, sd, k)
        loads(cold, ours, sd, k, True)
        loads(warm, ours, sd, k, False)
        print(f"round {k} of {ROUNDS}", file=sys.stderr, flush=True)
    print(f"{ours.bytes / 1e9:.2f} GB, {ROUNDS} rounds, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f} at the end"
          + (f", PyTorch {torch.__version__}" if torch else ""))
    s.print("durable save", list(s.rows), ours.bytes, "ttrun, from the staging copy")
    cold.print("load, files not in the page cache", list(cold.rows), ours.bytes, "ttrun, cold")
    warm.print("load, files in the page cache", list(warm.rows), ours.bytes, "ttrun, warm")


if __name__ == "__main__":
    main()
