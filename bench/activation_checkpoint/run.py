#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Time and memory of activation checkpointing in a model of 24 layers: ttrun's modes, and torch.utils.checkpoint.

    python3 bench/activation_checkpoint/run.py                       ours alone
    python3 bench/activation_checkpoint/run.py --ratios --batch 2 --steps 20 --rounds 15
    python3 bench/activation_checkpoint/run.py --torch /work/venv/bin/python --rounds 5 --svg docs/pictures/activation_checkpoint.svg

Time is processor time per step on one thread, so that other processes disturb it little: ours (that of a run of N steps - that of a
run of one step) / (N - 1), PyTorch's the median of its steps but the first. Memory is the peak resident set, for PyTorch without what
`import torch` takes. Runs go in turns."""
import argparse
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time

DIM, LAYERS, HEADS, HIDDEN, VOCAB, BATCH, SEQ = 128, 24, 4, 384, 1024, 8, 256
ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
TTRUN = [os.path.join(ROOT, "build/release/ttrun"), "--plugin-dir", os.path.join(ROOT, "build/release/plugins")]
AC = "--activation_checkpoint."


def measure(command):
    """Processor seconds and peak MiB of a process."""
    with tempfile.TemporaryFile() as err:
        p = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=err)
        _, status, use = os.wait4(p.pid, 0)
        if status:
            err.seek(0)
            sys.exit(f"{' '.join(command)}: {err.read().decode()}")
    return use.ru_utime + use.ru_stime, use.ru_maxrss / 1024


def per_step(command_of, steps):
    if command_of(1)[0] != TTRUN[0]:
        return tuple(float(w) for w in subprocess.run(command_of(steps), check=True, capture_output=True, text=True).stdout.split())
    one, _ = measure(command_of(1))
    many, mib = measure(command_of(steps))
    return 1000 * (many - one) / (steps - 1), mib


def ours(folder, options):
    def command(steps):
        return [*TTRUN, f"{folder}/job.json", "-q", "--resume", "never", "--dump_folder", f"{folder}/run", "--training.steps", str(steps), *options]
    return command


def planned(folder, mode):
    """GiB of the training program in this mode."""
    out = subprocess.run([TTRUN[0], "plan", *TTRUN[1:], f"{folder}/job.json", "--json", AC + "mode", mode], check=True, capture_output=True, text=True)
    bytes_ = json.loads(out.stdout)["bytes_per_rank"]
    return (bytes_["state"] + bytes_["slot"] + bytes_["work"]) / 2**30


def write_job(folder, batch):
    job = {
        "spec": "llama3",
        "model": {"args": {"dim": DIM, "n_layers": LAYERS, "n_heads": HEADS, "n_kv_heads": HEADS, "hidden_dim": HIDDEN, "vocab_size": VOCAB}},
        "dataloader": {"path": [os.path.join(ROOT, "docs", "*.md")]},
        "tokenizer": {"name": "byte"},
        "training": {"local_batch_size": batch, "seq_len": SEQ},
        "metrics": {"enable_tensorboard": False},
        "checkpoint": {"enable": False},
        "backend": {"threads": 1, "name": "cpu"},
    }
    with open(f"{folder}/job.json", "w", encoding="utf-8") as f:
        json.dump(job, f)


def cases(folder, torch):
    at = {m: planned(folder, m) for m in ("selective", "full")}
    budget = [AC + "mode", "budget"]
    all_ = {m: ours(folder, [AC + "mode", m]) for m in ("none", "selective", "full")}
    for m, gib in at.items():
        all_[f"budget at {m}'s memory"] = ours(folder, [*budget, AC + "memory_gib", repr(gib)])
    for part in (0.6, 0.3):
        all_[f"budget {part}"] = ours(folder, [*budget, AC + "memory_budget", str(part)])
    if torch:
        peer = os.path.join(ROOT, "bench/activation_checkpoint/peer.py")
        for n in range(0, LAYERS + 1, LAYERS // 3):
            all_[f"torch {n} blocks"] = lambda steps, n=n: [torch, peer, str(n), str(steps)]
    return all_


def tick(most):
    """A round distance of about five grid lines."""
    power = 10 ** math.floor(math.log10(most / 5))
    return next(power * f for f in (1, 2, 5, 10) if power * f >= most / 5)


def svg(points):
    """points: name -> (MiB, ms)."""
    width, height, left, top, right, bottom = 640, 400, 60, 40, 16, 50
    step_x, step_y = (tick(max(p[i] for p in points.values())) for i in (0, 1))
    most_x, most_y = (s * (1 + max(p[i] for p in points.values()) // s) for i, s in ((0, step_x), (1, step_y)))
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"><style>text{{font:12px system-ui,sans-serif;fill:#445}}'
           '.grid{stroke:#e3e6eb}.ours{stroke:#2563c9;fill:#2563c9}.torch{stroke:#d9690b;fill:#d9690b}polyline{fill:none!important;stroke-width:1.5}</style>'
           f'<rect width="{width}" height="{height}" fill="#fff"/>']

    def x(mib):
        return left + mib / most_x * (width - left - right)

    def y(ms):
        return height - bottom - ms / most_y * (height - top - bottom)
    for ms in range(0, int(most_y) + 1, int(step_y)):
        out.append(f'<line class="grid" x1="{left}" x2="{width - right}" y1="{y(ms):.1f}" y2="{y(ms):.1f}"/>'
                   f'<text x="{left - 6}" y="{y(ms) + 4:.1f}" text-anchor="end">{ms}</text>')
    for mib in range(0, int(most_x) + 1, int(step_x)):
        out.append(f'<text x="{x(mib):.1f}" y="{height - bottom + 16}" text-anchor="middle">{mib}</text>')
    out.append(f'<text x="{width / 2}" y="{height - 12}" text-anchor="middle">peak memory, MiB</text>'
               f'<text x="12" y="18">milliseconds of one thread per step; {LAYERS} layers, dim {DIM}, {BATCH} × {SEQ} tokens</text>')
    for who, title in (("ours", "ttrun, mode budget"), ("torch", "PyTorch, torch.utils.checkpoint by block")):
        mine = sorted(p for n, p in points.items() if n.startswith("torch") == (who == "torch") and n not in ("selective", "full"))
        if not mine:
            continue
        line = " ".join(f"{x(m):.1f},{y(t):.1f}" for m, t in mine)
        out.append(f'<polyline class="{who}" points="{line}"/>' + "".join(f'<circle class="{who}" cx="{x(m):.1f}" cy="{y(t):.1f}" r="3"/>' for m, t in mine))
        out.append(f'<text x="{x(mine[-1][0]) - 4:.1f}" y="{max(y(t) for _, t in mine[-2:]) + 22:.1f}" text-anchor="end">{title}</text>')
    for n in ("selective", "full"):
        m, t = points[n]
        out.append(f'<circle cx="{x(m):.1f}" cy="{y(t):.1f}" r="4" fill="none" stroke="#168a5b"/><text x="{x(m) + 7:.1f}" y="{y(t) - 6:.1f}">{n}</text>')
    return "\n".join([*out, "</svg>", ""])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--torch", help="a Python with PyTorch")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=4)
    p.add_argument("--ratios", action="store_true", help="only budget against selective and full, each at the memory of that mode")
    p.add_argument("--batch", type=int, default=BATCH)
    p.add_argument("--minutes", type=float, default=60, help="begin no round after so many")
    p.add_argument("--svg", help="draw into this file")
    o = p.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_job(folder, o.batch)
        all_ = cases(folder, o.torch)
        if o.ratios:
            all_ = {n: c for n, c in all_.items() if n in ("selective", "full") or n.startswith("budget at")}
        got = {name: [] for name in all_}
        began = time.monotonic()
        for i in range(o.rounds):
            if i and time.monotonic() - began > 60 * o.minutes:
                break
            for name in list(all_) if i % 2 == 0 else reversed(list(all_)):
                got[name].append(per_step(all_[name], o.steps))
                ms = got[name][-1][0]
                print(f"round {i + 1}: {name}: {ms:.0f} ms, {got[name][-1][1]:.0f} MiB", file=sys.stderr)
    points = {n: (statistics.median(m for _, m in v), statistics.median(t for t, _ in v)) for n, v in got.items()}
    print("| | ms per step, median | spread | peak memory, MiB |\n|---|---|---|---|")
    for n, v in got.items():
        print(f"| {n} | {points[n][1]:.0f} | {min(t for t, _ in v):.0f}–{max(t for t, _ in v):.0f} | {points[n][0]:.0f} |")
    for m in ("selective", "full"):
        ratios = [b[0] / a[0] for a, b in zip(got[m], got[f"budget at {m}'s memory"])]
        print(f"\nbudget ÷ {m}, at its memory: median {statistics.median(ratios):.3f} of {len(ratios)} rounds ({min(ratios):.3f}–{max(ratios):.3f})")
    if o.svg:
        with open(o.svg, "w", encoding="utf-8") as f:
            f.write(svg(points))


if __name__ == "__main__":
    main()
