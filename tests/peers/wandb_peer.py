#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Read the .wandb file of a run of ttrun with the protobuf messages of PyPI's wandb and compare it with metrics.jsonl; the same reader reads
an offline run that wandb itself wrote. A prometheus file is read by prometheus_client, the csv file by Python's csv.

usage: wandb_peer.py      needs the packages wandb and prometheus_client; ends 1 on a difference
"""
import csv
import glob
import json
import os
import struct
import subprocess
import sys
import tempfile
import zlib

from prometheus_client.parser import text_string_to_metric_families
from wandb.proto import wandb_internal_pb2

BLOCK = 32768


def records(path):
    """The records of a LevelDB log with wandb's header; every checksum is checked."""
    data = open(path, "rb").read()
    assert data[:7] == b":W&B" + struct.pack("<HB", 0xBEE1, 0), data[:7]
    at, parts = 7, []
    while at < len(data):
        if BLOCK - at % BLOCK < 7:
            assert not any(data[at:at + BLOCK - at % BLOCK]), "the end of a block is not zero"
            at += BLOCK - at % BLOCK
            continue
        crc, n, kind = struct.unpack_from("<IHB", data, at)
        payload = data[at + 7:at + 7 + n]
        assert len(payload) == n and at % BLOCK + 7 + n <= BLOCK, "a part leaves its block"
        assert zlib.crc32(payload, zlib.crc32(bytes([kind]))) == crc, "checksum"
        assert (kind in (1, 2)) == (not parts), "order of parts"
        parts.append(payload)
        at += 7 + n
        if kind in (1, 4):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(b"".join(parts))
            yield record
            parts = []
    assert not parts, "the last record is cut"


def flat(line):
    for key, value in line.items():
        if isinstance(value, dict):
            for inner, x in value.items():
                yield f"{key}/{inner}", x
        elif key not in ("step", "wall"):
            yield key, value


def by_wandb(folder):
    os.environ.update(WANDB_MODE="offline", WANDB_SILENT="true", WANDB_DIR=folder)
    import wandb
    run = wandb.init(project="p", name="n", settings=wandb.Settings(x_disable_stats=True, x_disable_meta=True))
    run.log({"loss": 1.5}, step=3)
    run.finish()
    wandb.teardown()
    path, = glob.glob(f"{folder}/wandb/offline-run-*/*.wandb")
    return list(records(path))


def check_wandb(run, lines, n_starts):
    paths = sorted(glob.glob(f"{run}/wandb/offline-run-*/run-*.wandb"))
    assert len(paths) == n_starts, paths
    ids, got = set(), []
    for path in paths:
        found = list(records(path))
        assert [r.num for r in found] == list(range(1, len(found) + 1))
        kinds = [r.WhichOneof("record_type") for r in found]
        assert kinds[:2] == ["header", "run"] and kinds[-2:] == ["summary", "exit"] and set(kinds[2:-2]) == {"history"}, kinds
        assert found[1].run.project == "ttrun" and list(found[1].run.tags) == ["a", "b"]
        assert os.path.basename(path) == f"run-{found[1].run.run_id}.wandb"
        ids.add(found[1].run.run_id)
        for r in found[2:-2]:
            items = {"/".join(i.nested_key): json.loads(i.value_json) for i in r.history.item}
            assert items["_step"] == r.history.step.num
            got.append((items["_step"], {k: v for k, v in items.items() if not k.startswith("_")}))
        summary = {"/".join(i.nested_key): json.loads(i.value_json) for i in found[-2].summary.update}
        assert summary["_step"] == got[-1][0] and summary.items() >= got[-1][1].items()
    assert len(ids) == 1, ids
    want = [(line["step"], {k: v for k, v in flat(line) if v is not None}) for line in lines]
    assert got == want, f"{got}\n{want}"
    size = max(map(os.path.getsize, paths))
    assert size > 2 * BLOCK, "too few records to meet the end of a block"
    print(f"wandb: {len(got)} records in {len(paths)} files as in metrics.jsonl, the largest {size} bytes")


def check_others(run, lines):
    newest = {}
    for line in lines:
        newest.update({"ttrun_" + k.replace("/", "_"): v for k, v in flat(line) if v is not None})
    got = {s.name: s.value for f in text_string_to_metric_families(open(f"{run}/metrics.prom").read()) for s in f.samples}
    assert all(got[k] == v for k, v in newest.items()), f"{got}\n{newest}"
    print(f"prometheus: {len(newest)} metrics as in metrics.jsonl")
    rows = list(csv.DictReader(open(f"{run}/metrics.csv")))
    assert len(rows) == len(lines)
    for row, line in zip(rows, lines):
        assert int(row["step"]) == line["step"] and None not in row
        want = {k: v for k, v in flat(line) if v is not None}
        assert {k: float(v) for k, v in row.items() if v and k not in ("step", "wall")} == want, (row, want)
    print(f"csv: {len(rows)} rows as in metrics.jsonl")


def main():
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    with tempfile.TemporaryDirectory() as run:
        theirs = by_wandb(f"{run}")
        kinds = {r.WhichOneof("record_type"): r for r in theirs}
        items = {"/".join(i.nested_key): json.loads(i.value_json) for i in kinds["history"].history.item}
        assert items["loss"] == 1.5 and items["_step"] == 3, items
        print("wandb's own file:", sorted(kinds), "min_consumer", kinds["header"].header.version_info.min_consumer or '""')
        job = {"dump_folder": f"{run}/run", "model": {"args": {"dim": 16, "n_layers": 1, "n_heads": 2, "vocab_size": 262}},
               "dataloader": {"path": [os.path.join(root, "core", "train", "*.c")]}, "checkpoint": {"interval": 50},
               "training": {"steps": 150, "seq_len": 16, "local_batch_size": 1}, "lr_scheduler": {"total_steps": 200},
               "metrics": {"log_freq": 1, "sinks": [{"name": "jsonl"}, {"name": "csv"}, {"name": "prometheus"},
                                                    {"name": "wandb", "tags": ["a", "b"]}]},
               "validation": {"enable": True, "freq": 20, "steps": 1,
                              "dataloader": {"path": [os.path.join(root, "core", "data", "*.c")]}}}
        with open(f"{run}/job.json", "w") as f:
            json.dump(job, f)
        for steps in ("150", "200"):
            subprocess.run([f"{root}/ttrun", "-q", "--plugin-dir", f"{root}/plugins", f"{run}/job.json",
                            "--training.steps", steps], check=True)
        lines = [json.loads(line) for line in open(f"{run}/run/metrics.jsonl")]
        check_wandb(f"{run}/run", lines, 2)
        check_others(f"{run}/run", lines)


if __name__ == "__main__":
    main()
