# SPDX-License-Identifier: Apache-2.0
"""Jobs drawn by seed over the keys of docs/reference.md with the mistakes that people make: a wrong name, a wrong type, a number
out of range, and values that are allowed. None may crash, hang or be taken in silence: a mistake ends with one line and status 2, an
allowed value trains two steps or ends so. How many of these leave everything as it was is counted, and told.

usage: keys_peer.py [build folder] [seed] [number]"""
import collections
import json
import os
import random
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import checks
from checks import check

BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build/release")
SEED = int(sys.argv[2]) if len(sys.argv) > 2 else 1
NUMBER = int(sys.argv[3]) if len(sys.argv) > 3 else 1000
ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
JOB = {"spec": "llama3", "model": {"args": {"dim": 32, "n_layers": 2, "n_heads": 4, "n_kv_heads": 2, "hidden_dim": 48, "vocab_size": 262}},
       "dataloader": {"name": "text", "path": ["text.txt"]}, "training": {"local_batch_size": 2, "seq_len": 16, "steps": 2, "num_train_epochs": None},
       "metrics": {"log_freq": 1, "enable_tensorboard": False}, "backend": {"threads": 1}}
PARTS = {"model.args": "model", "optimizer": "optimizer", "lr_scheduler": "lr_scheduler", "loss": "loss", "dataloader": "dataloader"}


def read_keys():
    """(section, plugin or None, key, type) of each row of the reference."""
    rows, section, plugin = [], None, None
    for line in open(f"{ROOT}/docs/reference.md", encoding="utf-8"):
        head = re.match(r"##+ ([\w.\[\]]+)(?:: (\w+))?$", line)
        if line.startswith("#"):
            section, plugin = head.groups() if head else (None, None)
            section = "" if line.startswith("## Top level") else section
        row = re.match(r"\| `([\w.]+)` \| ([^|]*) \|", line)
        if row and section is not None and "[]" not in section and section.split(".")[0] not in ("comm", "hooks"):
            rows.append((section, plugin, row.group(1), row.group(2)))
    return [r for r in rows if (not r[1] or r[0] in PARTS) and r[2] != "initial_load_command"]  # what it starts speaks, too


def put(job, path, value):
    for part in path[:-1]:
        job = job.setdefault(part, {})
        if not isinstance(job, dict):
            return False
    job[path[-1]] = value
    return True


def bounds(kind):
    m = re.search(r"([-\de.+]+) to ([-\de.+]+)", kind)
    least = re.search(r"([-\de.+]+) or more", kind)
    return (float(m.group(1)), float(m.group(2))) if m else (float(least.group(1)), None) if least else (None, None)


def allowed(rng, kind, key):
    """A value of the type; None: this script cannot make one."""
    low, high = bounds(kind)
    high = 50 if key == "n_layers" else high  # 65536 layers take their time
    if kind.startswith("true"):
        return rng.random() < 0.5
    if kind.startswith("one of"):
        return rng.choice(re.split(r",\s*", kind[len("one of "):].replace(" or null", "").strip()))
    if kind.startswith("integer") and low is not None:
        return int(min(rng.choice([low, low + 1, low + 2, 7, 100]), high if high is not None else 1e9)) if rng.random() < 0.8 else int(min(high or 1e6, 2**31))
    if kind.startswith("number") and low is not None:
        return rng.choice([low, min(0.5, high or 1), high if high is not None else 3.5])
    if "null" in kind and rng.random() < 0.5:
        return "null"
    if kind.startswith("string"):
        return "x"
    if kind.startswith("list"):
        return rng.choice([[], ["x"]])
    return None


def out_of_range(rng, kind):
    low, high = bounds(kind)
    values = ([low - 1] if low is not None else []) + ([high * 2 + 1] if high is not None else [])
    value = rng.choice(values) if values else None
    return int(value) if value is not None and kind.startswith("integer") else value


def wrong_type(rng, kind):
    if kind.startswith("true"):
        return rng.choice(["yes", 3, []])
    if kind.startswith(("integer", "number")):
        return rng.choice(["abc", [], {}, True])
    if kind.startswith("string") or kind.startswith("one of"):
        return rng.choice([3, [], {}, False])
    return 3 if kind.startswith("list") else None


def misspelt(rng, key, known):
    i = rng.randrange(len(key))
    name = rng.choice([key[:i] + key[i + 1:], key[:i] + key[i] + key[i:], key + "s", key[:i] + "q" + key[i:]])
    return None if not name or name in known or name.replace("_", "") == key.replace("_", "") else name


def draw(rng, rows, known):
    """A job, what is wrong with it, and whether it must be refused."""
    section, plugin, key, kind = rng.choice(rows)
    job = json.loads(json.dumps(JOB))
    path = section.split(".") if section else []
    if plugin and section == "model.args":
        job["spec"] = plugin
        job["model"]["args"] = {}
    elif plugin:
        job.setdefault(section, {})["name"] = plugin
    mistake = rng.choice(["name", "type", "range", "none", "none"])
    if mistake == "name":
        name = misspelt(rng, key, known)
        value = 1
    else:
        name = key
        value = allowed(rng, kind, key) if mistake == "none" else {"type": wrong_type, "range": out_of_range}[mistake](rng, kind)
    if name is None or value is None or not put(job, path + name.split("."), None if value == "null" else value):
        return None
    return job, f"{'.'.join(path + [name])} {json.dumps(value)} ({mistake}, {kind.strip()}{', ' + plugin if plugin else ''})", mistake != "none"


def outcome(folder, job):
    with open(f"{folder}/text.txt", "w") as f:
        f.writelines(f"line {i} of a text, {i * i}\n" for i in range(200))
    json.dump(job, open(f"{folder}/job.json", "w"))
    try:
        r = subprocess.run([f"{BUILD}/ttrun", "job.json", "--plugin-dir", f"{BUILD}/plugins", "--nproc", "1"], cwd=folder, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "hangs", "", None
    said = [line for line in r.stderr.splitlines() if not re.match(r"\[[^]]* I ", line)]
    files = sorted(os.path.join(d, f)[len(folder):] for d, _, all in os.walk(folder) for f in all if f != "job.json")
    try:
        steps = [json.loads(line) for line in open(f"{folder}/outputs/metrics.jsonl")]
    except OSError:
        steps = []
    text = re.sub(r"\d+\.\d+s|[\d,.]+ (tokens|FLOP)|tps: [\d,.]+|tflops: \S+|mfu: \S+|in [\d.]+ s|/tmp/\S*|[\d.e+]+ FLOP/s", "", r.stderr)
    return r.returncode, said, (files, [(s.get("loss"), s.get("grad_norm"), s.get("lr")) for s in steps], sorted(text.split()))


def bare(line):
    return re.sub(r"[\d.]+s ", "", line, count=1)


def main():
    rng = random.Random(SEED)
    rows = read_keys()
    known = {r[2] for r in rows}
    jobs = []
    while len(jobs) < NUMBER:
        one = draw(rng, rows, known)
        if one:
            jobs.append(one)

    def run(one):
        with tempfile.TemporaryDirectory() as folder:
            return outcome(folder, one[0])

    plain = {}
    counts, bad, still = collections.Counter(), [], []
    with ThreadPoolExecutor(2) as pool:
        for (job, what, wrong), (rc, said, state) in zip(jobs, pool.map(run, jobs)):
            lines = [line for line in said if not line.startswith("[")]
            if rc == 2 and len(lines) == 1:
                counts["refused by a line"] += 1
            elif rc == 0 and not wrong:
                base = json.dumps([job["spec"], *[(job.get(s) or {}).get("name") for s in ("optimizer", "lr_scheduler", "loss", "dataloader")]])
                if base not in plain:
                    plain[base] = run(({**json.loads(json.dumps(JOB)), **{s: {**JOB.get(s, {}), "name": job[s]["name"]} for s in PARTS.values() if s != "model" and "name" in job.get(s, {})},
                                        "spec": job["spec"], "model": {"args": {}} if job["spec"] != "llama3" else JOB["model"]},))
                warned = [w for w in map(bare, said) if w not in map(bare, plain[base][1])]
                counts["warned of" if warned else "with another outcome" if state != plain[base][2] else "with the same outcome"] += 1
                if not warned and state == plain[base][2]:
                    still.append(what)
            elif rc in (1, 3) and len(lines) == 1 and not wrong:
                counts[f"ended by a line, status {rc}"] += 1
            else:
                bad.append(f"{what}: status {rc}: {' / '.join(lines)[:200]}")
    for what in bad:
        check(False, what)
    print(f"seed {SEED}: " + ", ".join(f"{n} {what}" for what, n in counts.most_common()))
    print("the same outcome in two steps: " + "; ".join(re.sub(r" \(none, .*", "", w) for w in still))
    check(not bad, f"{len(jobs)} jobs: none crashed, hung, or took a mistake in silence")
    sys.exit(checks.failed)


main()
