#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A run of ttrun with the sink trackio, killed steps included, read by PyPI's trackio and compared with metrics.jsonl; then trackio itself logs a
run into the same project, and ttrun another one after it.

usage: trackio_peer.py      needs the package trackio; ends 1 on a difference
"""
import json
import os
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def flat(line):
    for key, value in line.items():
        if isinstance(value, dict):
            for inner, x in value.items():
                yield f"{key}/{inner}", x
        elif key not in ("step", "wall"):
            yield key, value


def compare(storage, name, lines):
    logs = storage.get_logs("mine", name)
    assert len(logs) == len(lines), (len(logs), len(lines))
    for got, line in zip(logs, lines):
        assert got["step"] == line["step"], (got, line)
        want = {k: v for k, v in flat(line) if v is not None}
        mine = {k: v for k, v in got.items() if k not in ("step", "timestamp") and v not in ("NaN",) and v is not None}
        assert {k: float(mine[k]) for k in mine} == {k: float(v) for k, v in want.items()}, (mine, want)
    print(f"trackio: {name} has the {len(lines)} records of metrics.jsonl")


def main():
    with tempfile.TemporaryDirectory() as run:
        os.environ["TRACKIO_DIR"] = f"{run}/tracks"
        os.environ["HF_HUB_OFFLINE"] = "1"
        job = {"model": {"args": {"dim": 16, "n_layers": 1, "n_heads": 2, "vocab_size": 262}},
               "dataloader": {"path": [os.path.join(ROOT, "core", "train", "*.c")]}, "checkpoint": {"interval": 5},
               "training": {"steps": 30, "seq_len": 16, "local_batch_size": 1}, "lr_scheduler": {"total_steps": 40},
               "metrics": {"log_freq": 1, "sinks": [{"name": "jsonl"}, {"name": "trackio", "project": "mine"}]},
               "validation": {"enable": True, "freq": 10, "steps": 1,
                              "dataloader": {"path": [os.path.join(ROOT, "core", "data", "*.c")]}}}
        with open(f"{run}/job.json", "w") as f:
            json.dump(job, f)

        def train(name, steps):
            subprocess.run([f"{ROOT}/ttrun", "-q", "--plugin-dir", f"{ROOT}/plugins", f"{run}/job.json", "--dump_folder", f"{run}/{name}",
                            "--training.steps", str(steps)], check=True)
            return [json.loads(line) for line in open(f"{run}/{name}/metrics.jsonl")]

        train("first", 30)
        subprocess.run(["rm", "-r", f"{run}/first/checkpoint/step-30"], check=True)  # steps 26 to 30 are done again
        lines = train("first", 40)
        import trackio
        from trackio.sqlite_storage import SQLiteStorage
        compare(SQLiteStorage, "first", lines)
        records = SQLiteStorage.get_run_records("mine")
        assert [r["name"] for r in records] == ["first"], records

        theirs = trackio.init(project="mine", name="theirs", config={"lr": 0.1}, embed=False)
        theirs.log({"loss": 1.5})
        trackio.finish()
        compare(SQLiteStorage, "second", train("second", 10))
        compare(SQLiteStorage, "first", lines)
        names = sorted(r["name"] for r in SQLiteStorage.get_run_records("mine"))
        assert names == ["first", "second", "theirs"], names
        print("trackio: its own run stands beside ours in one project")


if __name__ == "__main__":
    main()
