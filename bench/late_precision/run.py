#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""NVFP4 training whose forward products alone go to bf16 for the last 15 % of the steps: what of the loss gap to bf16 is left?

    python3 bench/late_precision/run.py --svg docs/pictures/late_precision.svg      (--seeds 1,2,3,4 --steps 600 --jobs 2)

Each seed has four runs of the same data and initial values: bf16, and NVFP4 for 85 % of the steps followed by one of
    nvfp4      NVFP4 to the end
    forward    bf16 in the forward products, NVFP4 in those of the gradients: the switch
    backward   NVFP4 in the forward products, bf16 in those of the gradients: a control
`forward` is one job: two converter entries, of which that for the forward has to_step. The other two continue its checkpoint at
85 %. The losses are those of held-out text (`ttrun eval`); each run is also evaluated with bf16 products, to tell what the switch
changes in the weights from what it changes in the evaluation."""
import argparse
import concurrent.futures
import glob
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.dirname(HERE))
import chart  # noqa: E402
BUILD = os.environ.get("BUILD", os.path.join(ROOT, "build/release"))
TTRUN = [os.path.join(BUILD, "ttrun"), "--plugin-dir", os.path.join(BUILD, "plugins")]
JOB = os.path.join(HERE, "job.json")
HELD_OUT = ["rdma", "sound", "scsi", "mtd", "misc", "xen", "video", "asm-generic"]  # folders beside linux/, of the same package
ENDS = ["nvfp4", "forward", "backward"]


def nvfp4(roles, to_step=None):
    return {"name": "nvfp4", "filter": ["lm_head"], "roles": roles, "to_step": to_step}


def converters(end, switch):
    """The list of a run that changes at `switch` completed steps; from then on it is that of `end`."""
    return [nvfp4(["forward"], switch if end == "forward" else None),
            nvfp4(["grad_input", "grad_weight"], switch if end == "backward" else None)]


def ttrun(words):
    p = subprocess.run([*TTRUN[:1], *words, *TTRUN[1:]], capture_output=True, text=True, check=False)
    if p.returncode:
        sys.exit(f"ttrun {' '.join(words)}: {p.stderr}")
    return p.stdout


class Seed:
    """The runs of one seed, in folders of their own below `folder`."""

    def __init__(self, folder, number, steps):
        self.folder, self.number, self.steps, self.switch = folder, number, steps, steps * 85 // 100

    def path(self, name):
        return os.path.join(self.folder, f"{name}-{self.number}")

    def train(self, name, lists):
        ttrun([JOB, "-q", "--dump_folder", self.path(name), "--training.steps", str(self.steps), "--training.seed", str(self.number),
               "--dataloader.path", json.dumps(["/usr/include/linux/**/*.h"]), "--checkpoint.interval", str(self.switch),
               "--checkpoint.async_mode", "disabled", "--converters", json.dumps(lists)])

    def loss(self, name, lists, samples):
        words = ["eval", "--checkpoint", self.path(name), "--data", os.path.join(self.folder, "held_out.txt"), "--samples", str(samples),
                 "--json", "--converters", json.dumps(lists)]
        return json.loads(ttrun(words))["loss"]

    def run(self, samples):
        self.train("bf16", [])
        self.train("forward", converters("forward", self.switch))
        for end in ("nvfp4", "backward"):
            start = os.path.join(self.path(end), "checkpoint")
            os.makedirs(start)
            shutil.copytree(os.path.join(self.path("forward"), "checkpoint", f"step-{self.switch}"), os.path.join(start, f"step-{self.switch}"))
            self.train(end, converters(end, self.switch))
        full = converters("nvfp4", None)
        losses = {name: self.loss(name, full if name in ("nvfp4", "backward") else [], samples) for name in ["bf16", *ENDS]}
        losses.update({f"{name}, evaluated in bf16": self.loss(name, [], samples) for name in ("nvfp4", "backward")})
        print(f"seed {self.number}: " + "  ".join(f"{k} {v:.5f}" for k, v in losses.items()), file=sys.stderr, flush=True)
        return losses

    def curve(self, name):
        """The training losses by step; of a run that continued a checkpoint, those before it are the checkpoint's run's."""
        out = {}
        for of in (["forward", name] if name != "bf16" else [name]):
            for line in open(os.path.join(self.path(of), "metrics.jsonl"), encoding="utf-8"):
                row = json.loads(line)
                if "loss" in row and (of == name or row["step"] <= self.switch):
                    out[row["step"]] = row["loss"]
        return [out[k] for k in sorted(out)]


def held_out(path):
    files = sorted(f for d in HELD_OUT for f in glob.glob(f"/usr/include/{d}/**/*.h", recursive=True))
    if not files:
        sys.exit("no headers beside /usr/include/linux: apt-get install linux-libc-dev")
    with open(path, "wb") as out:
        for f in files:
            out.write(open(f, "rb").read())


def table(rows):
    """Prints losses and gaps to bf16, per seed and as mean ± standard error; returns the share of the gap that is left."""
    names = [n for n in rows[0] if n != "bf16"]
    gaps = {n: [100 * (r[n] / r["bf16"] - 1) for r in rows] for n in names}
    spread = lambda v: statistics.stdev(v) / math.sqrt(len(v)) if len(v) > 1 else 0.0
    print("| | loss, mean | over bf16, per seed | mean | share of the gap |\n|---|---|---|---|---|")
    print(f"| bf16 | {statistics.mean(r['bf16'] for r in rows):.5f} | | | |")
    for n in names:
        share = statistics.mean(gaps[n]) / statistics.mean(gaps["nvfp4"])
        print(f"| {n} | {statistics.mean(r[n] for r in rows):.5f} | " + ", ".join(f"{g:+.2f} %" for g in gaps[n]) +
              f" | {statistics.mean(gaps[n]):+.2f} ± {spread(gaps[n]):.2f} % | {share:.2f} |")
    return statistics.mean(gaps["forward"]) / statistics.mean(gaps["nvfp4"])


def smooth(values, width):
    return [statistics.mean(values[max(0, i - width + 1):i + 1]) for i in range(len(values))]


def picture(path, seeds):
    """The training losses over bf16's, a mean over seeds and a window of steps, by step."""
    steps, switch, width = seeds[0].steps, seeds[0].switch, max(1, seeds[0].steps // 20)
    base = [smooth(s.curve("bf16"), width) for s in seeds]
    words = {"nvfp4": "NVFP4", "forward": "forward in bf16", "backward": "gradients in bf16"}
    curves = {}
    for end in ENDS:
        of = [[100 * (a / b - 1) for a, b in zip(smooth(s.curve(end), width), bf16)] for s, bf16 in zip(seeds, base)]
        first = steps // 4 if end == "nvfp4" else switch
        curves[words[end]] = [(k, statistics.mean(v[k - 1] for v in of)) for k in range(first, steps + 1, 2)]
    chart.lines(path, curves, f"step; training loss over that of bf16, mean of {len(seeds)} seeds and of {width} steps", "{:+.1f} %",
                at=(steps // 4, steps // 2, steps * 3 // 4, switch, steps), marks=[switch])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--seeds", default="1,2,3,4")
    p.add_argument("--steps", type=int, default=600)
    p.add_argument("--samples", type=int, default=512, help="windows of 128 bytes of held-out text")
    p.add_argument("--jobs", type=int, default=2, help="seeds at a time")
    p.add_argument("--svg", help="draw the picture here")
    p.add_argument("--keep", help="run below this folder and leave it there")
    a = p.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = a.keep or temporary
        os.makedirs(folder, exist_ok=True)
        held_out(os.path.join(folder, "held_out.txt"))
        seeds = [Seed(folder, int(n), a.steps) for n in a.seeds.split(",")]
        with concurrent.futures.ThreadPoolExecutor(a.jobs) as pool:
            rows = list(pool.map(lambda s: s.run(a.samples), seeds))
        share = table(rows)
        if a.svg:
            picture(a.svg, seeds)
    print(f"the switch leaves {share:.2f} of the gap (promised: at most 0.5)")
    return share > 0.5


if __name__ == "__main__":
    sys.exit(main())
