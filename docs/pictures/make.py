#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of README.md from real runs: python3 docs/pictures/make.py (from the checkout, built; needs tmux).

report.svg: the first chart of `ttrun report` of three runs with different learning rates.
terminal.svg: a terminal of 80 columns in which ttrun trains, and `ttrun top` below, as tmux shows them.
"""
import html
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
TTRUN = os.path.abspath(os.path.join(HERE, "..", "..", "ttrun"))
COLOURS = ["#2563c9", "#d9690b", "#168a5b"]
JOB = {
    "spec": "llama3",
    "model": {"flavor": "debugmodel", "args": {"dim": 64, "n_layers": 2, "n_heads": 4, "n_kv_heads": 4, "hidden_dim": 128, "vocab_size": 262}},
    "tokenizer": {"name": "byte"},
    "dataloader": {"path": ["/usr/include/*.h"]},
    "lr_scheduler": {"warmup_steps": 50},
    "training": {"local_batch_size": 4, "seq_len": 128, "steps": 600},
    "metrics": {"log_freq": 2, "enable_tensorboard": False},
    "checkpoint": {"interval": 300},
}


def run(folder, job, lr):
    subprocess.run([TTRUN, job, "--dump_folder", f"{folder}/outputs/lr-{lr}", "--optimizer.lr", lr, "-q"], check=True)


def report_picture(folder, runs):
    page = f"{folder}/report.html"
    subprocess.run([TTRUN, "report", *[f"{folder}/outputs/lr-{r}" for r in runs], "--output", page], check=True, stdout=subprocess.DEVNULL)
    text = open(page, encoding="utf-8").read()
    chart = re.search(r"<svg (viewBox=\"0 0 620 250\").*?</svg>", text, re.S).group(0)
    chart = re.sub(r' data-[a-z]+="[^"]*"', "", chart)
    chart = chart.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1).replace('viewBox="0 0 620 250"', 'viewBox="0 -26 620 276"')
    style = ("text{font:11px system-ui,sans-serif;fill:#667080}.grid{stroke:#e3e6eb}.axis{stroke:#aab2bd}"
             ".line{fill:none;stroke-width:1.4}" + "".join(f".s{i}{{stroke:{c}}}" for i, c in enumerate(COLOURS)))
    legend = '<rect y="-26" width="620" height="276" fill="#fff"/>'
    for i, r in enumerate(runs):
        legend += (f'<rect x="{62 + 150 * i}" y="-18" width="11" height="11" rx="3" fill="{COLOURS[i]}"/>'
                   f'<text x="{79 + 150 * i}" y="-8">learning rate {r}</text>')
    end = chart.index(">") + 1
    return chart[:end] + f"<style>{style}</style>" + legend + chart[end:] + "\n"


def screen(folder, job):
    """The text of a terminal in which a run has been training for some seconds, with top in a second pane."""
    tmux = ["tmux", "-L", f"pictures{os.getpid()}"]
    env = "env LANG=C.UTF-8 TERM=screen-256color"
    first = f"{env} {TTRUN} {job} --dump_folder outputs/live --training.steps 2000 --metrics.log_freq 100"
    subprocess.run([*tmux, "-f", "/dev/null", "new-session", "-d", "-x", "80", "-y", "16", "-c", folder, first], check=True)
    time.sleep(9)
    shot = subprocess.run([*tmux, "capture-pane", "-p"], check=True, capture_output=True, text=True).stdout
    top = subprocess.run(["sh", "-c", f"LANG=C.UTF-8 COLUMNS=80 {TTRUN} top outputs --once"], check=True, cwd=folder, capture_output=True, text=True).stdout
    subprocess.run([*tmux, "send-keys", "C-c"], check=True)
    for _ in range(100):  # the session ends with the run
        if subprocess.run([*tmux, "has-session"], capture_output=True).returncode:
            break
        time.sleep(0.1)
    lines = [l for l in shot.rstrip().split("\n")]
    lines = [l for l in lines if l.startswith(("step:", "train", "[")) and "I train]" not in l][-7:]
    return ["$ ttrun job.json", *lines, "", "$ ttrun top outputs", *top.rstrip().split("\n")]


def terminal_picture(lines):
    wide, high = 80 * 8 + 24, 18 * len(lines) + 24
    out = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}">'
           "<style>text{font:13.3px ui-monospace,Menlo,Consolas,'DejaVu Sans Mono',monospace;fill:#dfe5ee;white-space:pre}"
           ".p{fill:#7ee0a0}.b{fill:#8ab4ff}</style>"
           f'<rect width="{wide}" height="{high}" rx="8" fill="#14181e"/>\n')
    for i, l in enumerate(lines):
        kind = ' class="p"' if l.startswith("$") else ' class="b"' if l.startswith(("train", "RUN")) else ""
        if l.strip():
            out += (f'<text{kind} x="12" y="{26 + 18 * i}" textLength="{8 * len(l.rstrip())}" xml:space="preserve">'
                    f"{html.escape(l.rstrip())}</text>\n")
    return out + "</svg>\n"


def main():
    runs = ["1e-3", "3e-3", "1e-2"]
    with tempfile.TemporaryDirectory() as folder:
        job = f"{folder}/job.json"
        json.dump(JOB, open(job, "w", encoding="utf-8"))
        for r in runs:
            run(folder, job, r)
        for name, text in (("report.svg", report_picture(folder, runs)), ("terminal.svg", terminal_picture(screen(folder, job)))):
            if len(text) > 60000:
                sys.exit(f"{name}: {len(text)} bytes")
            open(os.path.join(HERE, name), "w", encoding="utf-8").write(text)


if __name__ == "__main__":
    main()
