#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dumps vectors of the executable pipeline specification (spec/pipeline_spec.py) for tests/pipeline.

    python3 tests/golden/pipeline_vectors.py

Writes pipeline.json beside this file. "digests": for every published schedule of p <= 8 ranks, m <= 32 micro-batches, v <= 3
stages a rank, one FNV-1a of a text over all m: action lists, makespans and micro-batches in flight; and, for p <= 4 and m <= 12,
programs and slots too (tests/pipeline/spec.h writes the same text). "cases": some in plain, for people and for a
failing test to show. Needs numpy. The output is a function of the specification.
"""
import json, os, sys

HERE = os.path.dirname(os.path.abspath(__file__))
SPEC = os.path.join(HERE, "spec")
sys.path.insert(0, SPEC)
import pipeline_spec as spec

COSTS = (spec.Dur(1, 1, 1, 0), spec.Dur(1.25, 0.75, 0.5, 0.375))    # exact in binary: no rounding to differ by
HOLDS = ("slot", "keep", "wgrad", "out_F", "out_I")

def fnv(text):
    h = 0xcbf29ce484222325
    for b in text.encode(): h = (h ^ b) * 0x100000001b3 % 2**64
    return f"{h:016x}"

def name(a): return f"{a.stage}{a.kind}{a.mb}"

def lists(s): return "".join(f"rank {r}:" + "".join(" " + name(a) for a in row) + "\n" for r, row in enumerate(s.lists))

def flight(s):
    peak = spec.peaks(s)
    return [[peak.get((c, k), 0) for c in HOLDS[:3]] for k in range(len(s.rank_of))]

def summary(s):
    spans = [spec.abstract_run(s, d).makespan for d in COSTS]
    return lists(s) + " ".join(f"{x:.6f}" for x in spans) + "\n" + "".join("%d %d %d\n" % tuple(f) for f in flight(s))

def programs(s):
    out = ""
    for nbuf in (1, 2):
        progs = spec.programs(s, nbuf=nbuf, order=spec.abstract_run(s, COSTS[1]).order)
        mark = {"run": "", "send": ">", "recv": "<", "wait": "~"}
        for row in progs: out += " ".join(mark[i.what] + name(i.act) + ("" if i.peer is None else f"@{i.peer}") for i in row) + "\n"
        for r, lives in enumerate(spec.lives(s, progs)):
            slot, count = spec.colour(lives)
            for l in sorted(lives, key=lambda l: (l.stage, HOLDS.index(l.cls), l.first)):
                out += f"{HOLDS.index(l.cls)} {l.stage} {l.mb} {l.first} {l.last} {l.reader} {slot[l]}\n"
    return out

def family(make, least=0):
    def text(p, m):
        if m < least * p: return ""
        s = make(p, m)
        spec.check(s)
        return summary(s) + (programs(s) if p <= 4 and m <= 12 else "")
    return text

makers = [("GPipe", 1, family(spec.gpipe)), ("1F1B", 1, family(spec.one_f_one_b)), ("ZBVZeroBubble", 2, family(spec.zbv)),
          ("DualPipeV", 2, family(spec.dualpipe_v, 2))]
for v in (1, 2, 3):
    makers += [("Interleaved1F1B", v, family(lambda p, m, v=v: spec.interleaved(p, v, m))),
               ("LoopedBFS", v, family(lambda p, m, v=v: spec.looped_bfs(p, v, m))),
               ("InterleavedZeroBubble", v, family(lambda p, m, v=v: spec.interleaved_zb(p, v, m)))]

digests = [{"name": n, "v": v, "p": [fnv("".join(text(p, m) for m in range(1, 33))) for p in range(1, 9)]} for n, v, text in makers]
cases = []
for s, v in [(spec.gpipe(3, 4), 1), (spec.one_f_one_b(4, 6), 1), (spec.interleaved(2, 2, 5), 2), (spec.interleaved(3, 3, 4), 3),
             (spec.looped_bfs(2, 2, 3), 2), (spec.interleaved_zb(3, 1, 5), 1), (spec.interleaved_zb(2, 2, 4), 2),
             (spec.zbv(3, 7), 2), (spec.zbv(3, 2), 2), (spec.dualpipe_v(3, 7), 2)]:
    cases.append({"name": s.name, "p": s.p, "v": v, "m": s.m, "lists": lists(s).splitlines(), "in_flight": flight(s),
                  "makespans": [spec.abstract_run(s, d).makespan for d in COSTS]})

with open(os.path.join(HERE, "pipeline.json"), "w") as f:
    f.write('{"note": "made by tests/golden/pipeline_vectors.py",\n "digests": [\n')
    f.write(",\n".join("  " + json.dumps(d) for d in digests))
    f.write('\n ],\n "cases": [\n')
    f.write(",\n".join("  " + json.dumps(c) for c in cases))
    f.write("\n ]}\n")
