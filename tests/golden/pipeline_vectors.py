#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dumps vectors of the executable pipeline specification for tests/pipeline/test_schedule.c.

    python3 tests/golden/pipeline_vectors.py [folder of pipeline_spec.py, default ../shared/design/spec]

Writes pipeline.json beside this file: for GPipe and 1F1B, p <= 8 ranks and m <= 32 micro-batches, the makespan with F 1, B 2 and
with F 2, B 3, and the most micro-batches in flight on each rank; the action lists themselves for small p and m, as a string a
rank like "F0 F1 B0 B1". Needs numpy. The output is a function of the specification.
"""
import json, os, sys

HERE = os.path.dirname(os.path.abspath(__file__))
SPEC = sys.argv[1] if len(sys.argv) > 1 else os.path.join(HERE, "..", "..", "..", "shared", "design", "spec")
sys.path.insert(0, SPEC)
import pipeline_spec as spec

cases = []
for make in (spec.gpipe, spec.one_f_one_b):
    for p in (1, 2, 3, 4, 5, 8):
        for m in (1, 2, 3, 4, 7, 8, 16, 32):
            if p == 1 and make is spec.gpipe: continue    # ttrun runs F0 B0 F1 B1 on one rank, whatever the name
            s = make(p, m)
            assert spec.check(s)
            case = {"name": s.name, "p": p, "m": m,
                    "makespan": [spec.abstract_run(s, spec.Dur(1, 1, 1, 0)).makespan, spec.abstract_run(s, spec.Dur(2, 1, 2, 0)).makespan],
                    "in_flight": [spec.peaks(s)["slot", r] for r in range(p)]}
            if m <= 8: case["lists"] = [" ".join(f"{a.kind}{a.mb}" for a in row) for row in s.lists]
            cases.append(case)

with open(os.path.join(HERE, "pipeline.json"), "w") as f:
    f.write('{"note": "made by tests/golden/pipeline_vectors.py",\n "cases": [\n')
    f.write(",\n".join("  " + json.dumps(c) for c in cases))
    f.write("\n]}\n")
