#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Dumps vectors of the executable placement specification (spec/placement_spec.py) for the C tests (tests/mesh, tests/graph).

    python3 tests/golden/placement_vectors.py

Writes placement.json (boxes, canonical placements, parameters, rules, lowering, collective counts) and
placement_graphs.json (the nodes of whole graphs) beside this file. Needs numpy. The output is a function of the spec.

Formats: atom lists are lists of names, '~' behind a name = loose. dim = [size, label, unit, lines].
placement = [[atoms of each dim], [partial atoms], "sum"|"max"]. Meshes and tables are named by their index.
"""
import itertools, json, os, sys

HERE = os.path.dirname(os.path.abspath(__file__))
SPEC = os.path.join(HERE, "spec")
sys.path.insert(0, SPEC)
import numpy as np
import placement_spec as spec
import placement_tests as tests
from placement_spec import Cfg, Dim, Mesh, Placement, PlacementError

MESHES = [{"name": n, "atoms": [list(a) for a in atoms], "axes": {k: list(v) for k, v in (axes or {}).items()}}
          for n, (atoms, axes) in tests.MESHES.items()]
MESHES += [
    {"name": "a2 b3 c2", "atoms": [["a", 2], ["b", 3], ["c", 2]], "axes": {"tp": ["a", "b"], "ep": ["b", "c"]}},
    {"name": "with ones", "atoms": [["pp", 1], ["a", 3], ["x", 1], ["b", 2], ["c", 4]], "axes": {"tp": ["x", "b", "c"], "none": ["x"]}},
    {"name": "expert view", "atoms": [["s0", 2], ["s1", 2], ["cp", 2], ["tp", 2]],
     "axes": {"dp_shard": ["s0", "s1"], "ep": ["s1", "cp", "tp"], "efsdp": ["s0"]}},
]
BUILT = [Mesh([tuple(a) for a in m["atoms"]], {k: tuple(v) for k, v in m["axes"].items()}) for m in MESHES]
AT = {m["name"]: i for i, m in enumerate(MESHES)}
TABLES = [[[label, list(axes), policy] for label, axes, policy in spec.TABLE]]


def dims_json(dims):
    return [[d.size, d.label, d.unit, d.outer] for d in dims]


def place_json(p):
    return [[list(d) for d in p.dims], sorted(p.partial), p.kind]


def random_placement(rng, mesh, dims, kind):
    lists, part = [()] * len(dims), set()
    for a in rng.permutation(list(mesh.size)):
        w = rng.integers(len(dims) + 2)
        if w < len(dims):
            lists[w] += (str(a) + "~" * int(rng.integers(2) and dims[w].unit > 1),)
        elif w == len(dims):
            part.add(str(a))
    return Placement(lists, part, kind)


def random_dims(rng, most=4):
    return [Dim(int(rng.integers(1, 23)), "", int(rng.integers(1, 4))) for _ in range(rng.integers(0, most))]


def boxes(rng, n):
    out = []
    for k in range(n):
        i = k % len(MESHES)
        mesh, dims = BUILT[i], random_dims(rng)
        p = random_placement(rng, mesh, dims, ("sum", "max")[rng.integers(2)])
        out.append({"mesh": i, "dims": dims_json(dims), "place": place_json(p), "text": str(p),
                    "chunk": [spec.chunk_of(mesh, d, a) for d, a in zip(dims, p.dims)],
                    "box": [[x for be in spec.box(mesh, dims, p, r) for x in be] for r in range(mesh.world)]})
    return out


class Recorder:
    """Every canon call while graphs are built, once each."""

    def __init__(self):
        self.real, self.seen, self.out, self.mesh, self.table = spec.canon, set(), [], 0, 0

    def __call__(self, mesh, letters, sp=True):
        try:
            got = self.real(mesh, letters, sp)
        except PlacementError:
            got = None
        dims = dims_json(letters.values())
        key = json.dumps([self.mesh, self.table, sp, dims])
        if key not in self.seen:
            self.seen.add(key)
            self.out.append({"mesh": self.mesh, "table": self.table, "sp": sp, "dims": dims,
                             "atoms": None if got is None else [list(got[x]) for x in letters]})
        return self.real(mesh, letters, sp) if got is None else got


def random_table(rng):
    axes = ["dp_replicate", "dp_shard", "cp", "tp"]
    return [(str(lab), tuple(map(str, rng.permutation(axes)[:rng.integers(0, 4)])), ("error", "pad", "prefix")[rng.integers(3)])
            for lab in rng.permutation(["heads", "kv_heads", "ffn", "vocab", "embed", "tokens"])]


def canonical(rng, record):
    """Letters of the spec's ops on its meshes, then random letters on random tables (errors included)."""
    spec.canon = record
    saved = list(spec.TABLE)
    for name in tests.MESHES:
        record.mesh, lines = AT[name], tests.mesh_of(name)[1]
        for T, sp in itertools.product((12, 7 * lines, 13), (True, False)):
            for c in (Cfg(), Cfg(H=8, bias=True, qk_norm=True)):
                try:
                    spec.build(BUILT[record.mesh], c, T, lines, sp)
                except PlacementError:
                    pass
    labels = ["", "heads", "kv_heads", "ffn", "vocab", "embed", "tokens", "experts"]
    for k in range(300):
        record.mesh = k % len(MESHES)
        record.table = 0
        if k % 3:
            spec.TABLE[:] = random_table(rng)
            TABLES.append([[a, list(b), p] for a, b, p in spec.TABLE])
            record.table = len(TABLES) - 1
        letters = {str(i): Dim(int(u * n), labels[rng.integers(len(labels))], int(u), int(ln))
                   for i, (u, n, ln) in enumerate(zip(rng.integers(1, 4, 4), rng.integers(1, 17, 4), rng.integers(1, 3, 4)))}
        try:
            record(BUILT[record.mesh], letters, bool(k & 1))
        except PlacementError:
            pass
        spec.TABLE[:] = saved
    spec.canon = record.real
    for v in record.out:                                       # the C code refuses uneven lines on any letter, not on labelled ones only
        if any(d[0] % d[3] for d in v["dims"]):
            v["atoms"] = None
    return record.out


def params(rng):
    out, seen = [], set()
    sets = [d for c in (Cfg(tied=True, bias=True, qk_norm=True), Cfg(H=8, K=4, hd=16)) for d in spec.param_dims(c).values()]
    sets += [(Dim(8, "experts"), Dim(14, "ffn"), Dim(10, "embed")), (Dim(3, "embed"),), (Dim(2, ""), Dim(3, "")), (Dim(1, "vocab"),),
             (Dim(1, ""), Dim(1, "")), (Dim(2, "embed"), Dim(1, ""), Dim(2, ""))]  # ties: the first of the largest
    sets += [tuple(Dim(int(rng.integers(1, 40)) * int(u), ("", "kv_heads", "ffn", "vocab")[rng.integers(4)], int(u))
                   for u in rng.integers(1, 4, rng.integers(1, 4))) for _ in range(40)]
    for (i, mesh), dims in itertools.product(enumerate(BUILT), sets):
        key = (i, tuple(dims))
        if key in seen:
            continue
        seen.add(key)
        try:
            compute, storage = spec.param_placements(mesh, dims, True)
            out.append({"mesh": i, "dims": dims_json(dims), "compute": place_json(compute), "storage": place_json(storage)})
        except PlacementError:
            out.append({"mesh": i, "dims": dims_json(dims), "compute": None})
    return out


def rules():
    g = spec.build(BUILT[AT["1"]], Cfg(bias=True, qk_norm=True), 12)
    out, seen = [], set()
    for n in g.nodes:
        if n.op not in spec.OPS or (n.op, len(n.dims)) in seen:
            continue
        seen.add((n.op, len(n.dims)))
        ranks = [len(v.dims) for v in n.ins]
        lin, lout, whole, groups = spec.parse_rule(spec.OPS[n.op].rule, ranks)
        out.append({"op": n.op, "rule": spec.OPS[n.op].rule, "in_ranks": ranks, "out_ranks": [len(n.dims)], "in": lin,
                    "out": [lout], "whole": sorted(whole), "groups": {x: list(v) for x, v in groups.items()}})
    return out


def lowering(rng, n):
    out = []
    use = [i for i, m in enumerate(MESHES) if BUILT[i].world > 1]
    for k in range(n):
        i = AT["a2 b3 c2"] if k % 2 else use[k // 2 % len(use)]
        mesh, dims = BUILT[i], random_dims(rng)
        kind = ("sum", "max")[rng.integers(2)]
        a, b = (random_placement(rng, mesh, dims, kind) for _ in range(2))
        if k % 5 == 0:                                         # near pairs: moves of a suffix, as the placer makes them
            lists = list(a.dims)
            if len(lists) > 1 and lists[0]:
                lists[1], lists[0] = lists[1] + tuple(map(spec.base, lists[0][-1:])), lists[0][:-1]
            b = Placement(lists, a.partial, kind)
        steps = [[s.kind, list(s.atoms), place_json(s.src), place_json(s.dst), s.cost] for s in spec.lower(mesh, dims, a, b)]
        out.append({"mesh": i, "dims": dims_json(dims), "from": place_json(a), "to": place_json(b), "steps": steps})
    return out


# name of the graph, mesh, arguments of Cfg and of build
GRAPHS = [(n, n, {"H": 8} if "tp4" in n else {}, {}) for n in tests.MESHES if n != "1"]
GRAPHS.insert(3, ("tp2 no SP", "tp2", {}, {"sp": False}))
GRAPHS += [
    ("1", "1", {}, {}),
    ("fsdp2 tp2 cp2 no SP", "fsdp2 tp2 cp2", {}, {"sp": False}),
    ("fsdp2 tp2 cp2 bias qk_norm", "fsdp2 tp2 cp2", {"bias": True, "qk_norm": True}, {}),
    ("fsdp3 tp2 bias qk_norm tied", "fsdp3 tp2", {"bias": True, "qk_norm": True, "tied": True}, {}),
    ("cp2 tp4=2x2 no SP bias", "cp2 tp4=2x2", {"H": 8, "bias": True}, {"sp": False}),
    ("fsdp2 tp2 cp2 tied 2 micro-batches sunk", "fsdp2 tp2 cp2", {"tied": True, "L": 1}, {"micro": 2}),
    ("hsdp2x2 2 micro-batches reduced hoisted", "hsdp2x2", {"L": 1}, {"micro": 2, "sunk": False, "hoist": True}),
]


def graphs():
    out, counts = [], []
    for title, name, cfg, kw in GRAPHS:
        mesh, lines = tests.mesh_of(name)
        T = 28 if 28 % lines == 0 else 7 * lines
        g = spec.build(mesh, Cfg(**cfg), T, lines, **kw)
        table, nodes = [], []
        for n in g.nodes:
            dims = []
            for d in dims_json(n.dims):
                if d not in table:
                    table.append(d)
                dims.append(table.index(d))
            nodes.append([n.op, n.attrs.get("name", ""), [v.id for v in n.ins], n.phase, n.layer, dims, str(n.place),
                          {x: ",".join(a) for x, a in n.letters.items()}, ",".join(sorted(n.keep)), int(n.follow)])
        full = {**Cfg()._asdict(), **cfg}
        out.append({"name": title, "mesh": AT[name], "tokens": T, "lines": lines, "cfg": full,
                    "build": {"sp": True, "micro": 1, "sunk": True, "hoist": False, **kw}, "dims": table, "nodes": nodes,
                    "out": {k: v.id for k, v in g.out.items()}})
        for phase, layer in itertools.product(("fwd", "bwd"), list(range(full["L"])) + ["head"]):
            acts, buckets = tests.count(g, phase, layer, True)
            flat = lambda c: sorted([k, a, n] for (k, a), n in c.items())
            counts.append({"graph": title, "phase": phase, "layer": layer, "acts": flat(acts), "params": flat(buckets)})
    return out, counts


def write(name, sections):
    """One vector a line, so that a diff of two versions can be read."""
    dense = lambda v: json.dumps(v, separators=(",", ":"))
    with open(os.path.join(HERE, name), "w") as f:
        f.write("{\n" + ",\n".join(
            '"%s":[\n%s\n]' % (k, ",\n".join(map(dense, v))) for k, v in sections.items()) + "\n}\n")
    print(name, os.path.getsize(f.name), "bytes", {k: len(v) for k, v in sections.items()})


def main():
    np.seterr(all="ignore")
    rng = np.random.default_rng(2024)
    sections = {"meshes": MESHES, "tables": TABLES, "boxes": boxes(rng, 510), "canon": canonical(rng, Recorder()),
                "params": params(rng), "rules": rules(), "lower": lowering(rng, 1500)}
    nodes, sections["counts"] = graphs()
    write("placement.json", sections)
    lines = []
    for g in nodes:                                            # one node a line
        head = json.dumps({k: v for k, v in g.items() if k != "nodes"}, separators=(",", ":"))[:-1]
        lines.append(head + ',"nodes":[\n' + ",\n".join(json.dumps(n, separators=(",", ":")) for n in g["nodes"]) + "\n]}")
    with open(os.path.join(HERE, "placement_graphs.json"), "w") as f:
        f.write('{"node":' + json.dumps(["op", "name", "inputs", "phase", "layer", "dims", "placement", "letters", "kept partial",
                                         "follow"]) + ',\n"meshes":' + json.dumps(MESHES, separators=(",", ":"))
                + ',\n"graphs":[\n' + ",\n".join(lines) + "\n]}\n")
    print("placement_graphs.json", os.path.getsize(f.name), "bytes", len(nodes), "graphs", sum(len(g["nodes"]) for g in nodes), "nodes")


if __name__ == "__main__":
    main()
