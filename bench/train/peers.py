# SPDX-License-Identifier: Apache-2.0
"""Tokens/s and peak memory of whole training steps: ttrun, PyTorch (eager, compiled) and llm.c, in turns.

    python bench/train/peers.py [--rounds 5] [--steps 6] [--threads 2] [--models …] [--who …] [--write README.md]

Run by `make bench-peers` from the root, with a Python that has torch. LLMC_DIR names a checkout of llm.c; without it that
row is left out. One process a measurement, the participants in turns within a round, the first step of each process left out,
a process counts by the median of its steps, a participant by the median of its processes; spread is theirs. Peak memory is
ru_maxrss of the process as its parent sees it (VmHWM). PyTorch's malloc is tuned: glibc's defaults cost it 12-16 %."""
import argparse
import array
import datetime
import json
import os
import platform
import random
import re
import signal
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
WORK = os.path.join("build", "bench")
LOAD = os.getloadavg()[0]
TUNED = {"MALLOC_MMAP_THRESHOLD_": "17179869184", "MALLOC_TRIM_THRESHOLD_": "17179869184",
         "MALLOC_TOP_PAD_": "268435456", "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
GPT2 = {"dim": 768, "n_layers": 12, "n_heads": 12, "vocab_size": 50257, "n_positions": 1024}
MODELS = {  # spec, args, batch, seq
    "debugmodel": ("llama3", {"dim": 256, "n_layers": 6, "n_heads": 16, "hidden_dim": 768, "vocab_size": 2048}, 1, 2048),
    "llama34m": ("llama3", {"dim": 512, "n_layers": 8, "n_heads": 8, "n_kv_heads": 4, "hidden_dim": 1536, "vocab_size": 8192}, 8, 512),
    "gpt2_64": ("gpt2", GPT2, 4, 64),
    "gpt2_256": ("gpt2", GPT2, 4, 256),
}
NAMES = {"debugmodel": "debugmodel, 1 × 2048", "llama34m": "33.6M Llama, 8 × 512",
         "gpt2_64": "GPT-2 124M, 4 × 64", "gpt2_256": "GPT-2 124M, 4 × 256"}


def run(command, env, lines=0, pattern=None):
    """The command's stdout and its peak memory in MiB; with a pattern it is ended after so many lines that match."""
    p = subprocess.Popen(command, env={**os.environ, **env}, stdout=subprocess.PIPE, text=True, bufsize=1)
    out, ended = [], False
    for line in p.stdout:
        out.append(line)
        if pattern and not ended and sum(bool(re.search(pattern, l)) for l in out) >= lines:
            p.send_signal(signal.SIGTERM)
            ended = True
    _, status, usage = os.wait4(p.pid, 0)
    p.returncode = os.waitstatus_to_exitcode(status)
    if p.returncode and not ended:
        sys.exit(f"bench-peers: {' '.join(command[:4])} … ended with status {p.returncode}")
    return out, usage.ru_maxrss / 1024


def tokens_file(vocab):
    path = os.path.join(WORK, f"tokens-{vocab}.bin")
    if not os.path.exists(path):
        r = random.Random(1)
        with open(path, "wb") as f:
            array.array("H", (r.randrange(vocab) for _ in range(400000))).tofile(f)
    return path


def ours(products):
    """ttrun with backend.f32_products, which a machine without AMX knows one of."""
    return lambda model, opt: train(model, opt, products)


def has_amx():
    return "amx_bf16" in open("/proc/cpuinfo").read()


def train(model, opt, products):
    spec, args, batch, seq = MODELS[model]
    folder = os.path.abspath(os.path.join(WORK, "run"))
    job = {"spec": spec, "model": {"args": args}, "dump_folder": folder,
           "dataloader": {"name": "bin", "format": "uint16", "path": [os.path.abspath(tokens_file(args["vocab_size"]))]},
           "training": {"local_batch_size": batch, "seq_len": seq, "steps": opt.steps},
           "metrics": {"log_freq": 1, "enable_tensorboard": False}, "checkpoint": {"enable": False},
           "backend": {"threads": opt.threads, "f32_products": products}}
    path = os.path.join(WORK, "job.json")
    with open(path, "w") as f:
        json.dump(job, f)
    metrics = os.path.join(folder, "metrics.jsonl")
    if os.path.exists(metrics):
        os.unlink(metrics)
    _, rss = run(["./ttrun", "-q", "--plugin-dir", "./plugins", path, "--resume", "never"], {})
    rows = [json.loads(line) for line in open(metrics)][1:]
    return [r["tps_global"] for r in rows], rss, statistics.median(r["mfu"] or float("nan") for r in rows)


def torch_peer(mode):
    def go(model, opt):
        out, rss = run([sys.executable, os.path.join(HERE, "peer.py"), model, mode, str(opt.steps), str(opt.threads)],
                       {**TUNED, "OMP_NUM_THREADS": str(opt.threads)})
        return [float(line) for line in out], rss, None
    return go


def write_llmc_files(folder):
    """Weights and tokens in llm.c's formats; the cost does not depend on what they are."""
    layers, dim, vocab, padded, most = 12, 768, 50257, 50304, 1024
    os.makedirs(os.path.join(folder, "dev/data/tinyshakespeare"), exist_ok=True)
    r = random.Random(1)
    noise = array.array("f", (r.gauss(0, 0.02) for _ in range(1 << 16)))

    def header(f, *values):
        array.array("i", list(values) + [0] * (256 - len(values))).tofile(f)

    def floats(f, n, value=None):
        block = noise if value is None else array.array("f", [value]) * (1 << 16)
        for at in range(0, n, 1 << 16):
            block[: min(1 << 16, n - at)].tofile(f)

    with open(os.path.join(folder, "gpt2_124M.bin"), "wb") as f:
        header(f, 20240326, 3, most, vocab, layers, 12, dim, padded)
        floats(f, padded * dim)
        floats(f, most * dim)
        for n, value in ((dim, 1), (dim, 0), (3 * dim * dim, None), (3 * dim, 0), (dim * dim, None), (dim, 0), (dim, 1),
                         (dim, 0), (4 * dim * dim, None), (4 * dim, 0), (4 * dim * dim, None), (dim, 0)):
            floats(f, layers * n, value)
        floats(f, dim, 1)
        floats(f, dim, 0)
    for name, n in (("train", 300000), ("val", 30000)):
        with open(os.path.join(folder, f"dev/data/tinyshakespeare/tiny_shakespeare_{name}.bin"), "wb") as f:
            header(f, 20240520, 1, n)
            array.array("H", (r.randrange(vocab) for _ in range(n))).tofile(f)


def build_llmc(source):
    """llm.c's trainer with the flags of its Makefile and gcc; its batch is 4 × 64."""
    folder = os.path.join(WORK, "llmc")
    os.makedirs(folder, exist_ok=True)
    subprocess.run([os.environ.get("CC", "gcc"), "-Ofast", "-fno-finite-math-only", "-march=native", "-fopenmp", "-DOMP",
                    "-w", "-o", os.path.join(folder, "train_gpt2"), os.path.join(source, "train_gpt2.c"), "-lm"], check=True)
    if not os.path.exists(os.path.join(folder, "gpt2_124M.bin")):
        write_llmc_files(folder)
    return folder


def llmc_peer(folder):
    def go(model, opt):
        here = os.getcwd()
        os.chdir(folder)
        try:
            out, rss = run(["stdbuf", "-oL", "./train_gpt2"], {"OMP_NUM_THREADS": str(opt.threads)}, opt.steps, r"took [\d.]+ ms")
        finally:
            os.chdir(here)
        ms = [float(m[1]) for m in re.finditer(r"took ([\d.]+) ms", "".join(out))]
        return [256 / (1e-3 * t) for t in ms[1:opt.steps]], rss, None
    return go


def machine(opt):
    cpu = next((l.split(":")[1].strip() for l in open("/proc/cpuinfo") if l.startswith("model name")), platform.machine())
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    import torch
    gcc = subprocess.run([os.environ.get("CC", "gcc"), "-dumpfullversion"], capture_output=True, text=True).stdout.strip()
    ttrun = subprocess.run(["./ttrun", "--version"], capture_output=True, text=True).stdout.strip()
    backend = json.load(open(os.path.join(WORK, "run", "run.json"))).get("backend", "")
    return (f"{datetime.date.today()}: {len(os.sched_getaffinity(0))} cores of {cpu}, {memory:.0f} GiB, Linux {platform.release()}, load "
            f"{LOAD:.1f} before; {ttrun} ({backend}), PyTorch {torch.__version__}, Python {platform.python_version()}, gcc {gcc}. "
            f"{opt.rounds} process{'es' if opt.rounds > 1 else ''} each in turns, {opt.steps - 1} steps each after the first, {opt.threads} threads, fp32.")


def table(results, opt):
    """A row a participant; theirs says how many times faster, and of their memory, ours are."""
    lines, notes = [], []
    for model in opt.models:
        speed = {w: statistics.median(statistics.median(s) for s, _, _ in runs) for w, runs in results[model].items()}
        rss = {w: statistics.median(m for _, m, _ in runs) for w, runs in results[model].items()}
        mine = [w for w in speed if w.startswith("ttrun")]
        for who, runs in results[model].items():
            medians = [statistics.median(s) for s, _, _ in runs]
            ratios = [f"{speed[m] / speed[who]:.2f}" if who not in mine else "" for m in mine]
            lines.append([NAMES[model] if who == mine[0] else "", who, f"{speed[who]:.0f}", f"{min(medians):.0f}–{max(medians):.0f}", *ratios,
                          f"{rss[who]:.0f}", "" if who in mine else f"{rss[mine[0]] / rss[who]:.2f}"])
        share = 100 * statistics.median(f for _, _, f in results[model][mine[0]])
        notes.append(f"{NAMES[model]} " + ", ".join(f"{share * speed[m] / speed[mine[0]]:.1f} %" for m in mine))
    head = ["model", "who", "tokens/s, median", "spread", *(f"{m} ÷ theirs" for m in mine), "peak memory, MiB", "ours ÷ theirs"]
    rows = [head, ["---"] * len(head), *lines]
    return ("\n".join("| " + " | ".join(r) + " |" for r in rows) +
            f"\n\nOf the peak of multiply-adds measured in {mine[0]}'s process, FLOPs counted as `mfu` does ({', '.join(mine)}): " +
            "; ".join(notes) + ".\n")


def write_between(path, text):
    whole = open(path).read()
    begin, end = "<!-- measured -->\n", "<!-- /measured -->"
    a, b = whole.index(begin) + len(begin), whole.index(end)
    with open(path, "w") as f:
        f.write(whole[:a] + text + whole[b:])


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--steps", type=int, default=6)
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--models", nargs="+", default=list(MODELS), choices=list(MODELS))
    p.add_argument("--who", nargs="+", default=["eager", "compile", "llm.c"], choices=["eager", "compile", "llm.c"])
    p.add_argument("--write")
    opt = p.parse_args()
    os.makedirs(WORK, exist_ok=True)
    who = {"ttrun fma": ours("fma")}
    if has_amx():
        who["ttrun bf16x6"] = ours("bf16x6")
    who.update((f"PyTorch {m}", torch_peer(m)) for m in ("eager", "compile") if m in opt.who)
    if "llm.c" in opt.who and os.environ.get("LLMC_DIR"):
        who["llm.c"] = llmc_peer(build_llmc(os.environ["LLMC_DIR"]))
    elif "llm.c" in opt.who:
        print("bench-peers: no llm.c (LLMC_DIR is not set): that row is left out", file=sys.stderr)
    results = {m: {w: [] for w in who if w != "llm.c" or m == "gpt2_64"} for m in opt.models}
    for round_ in range(opt.rounds):
        for model in opt.models:
            for name in results[model]:
                got = who[name](model, opt)
                results[model][name].append(got)
                print(f"round {round_ + 1}  {model:10} {name:15} {statistics.median(got[0]):9.1f} tokens/s  {got[1]:6.0f} MiB",
                      file=sys.stderr, flush=True)
    text = table(results, opt) + "\n" + machine(opt) + "\n"
    print(text)
    if opt.write:
        write_between(opt.write, text)


main()
