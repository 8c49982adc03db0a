#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executable specification of placements (rules R1-R8, R10, R13 of docs/design/rules.md).   python3 placement_spec.py

A value is its global tensor; a placement is how it is stored. This file builds small llama-like graphs, places every op when it is
built, differentiates them on meanings, lowers redistributes to collectives, and then evaluates every node twice: once globally
(no mesh at all) and once on every rank's shard, where a collective may read only its group. For EVERY node, forward and backward,
assembling the shards must give the global value (float64, 1e-9), replicas must agree. Needs numpy only.

  1 mesh, dims, boxes   2 labels -> canonical placement   3 rule strings   4 graph + tt_place   5 lowering   6 simulator
  7 ops and kernels     8 autodiff on meanings            9 model, accumulation, norm, update
The test matrix and the mutations are in placement_tests.py; running this file runs them.
"""
import itertools, math, re
from collections import Counter, namedtuple
import numpy as np

# ---------------------------------------------------------------- 1 mesh, dims, placements, boxes
Dim = namedtuple("Dim", "size label unit outer", defaults=("", 1, 1))   # outer: exact outer blocks (lines of a token dim)

def base(a):                                                   # 'cp~' is atom cp, cutting that dim loosely (FSDP: ignores the unit)
    return a.rstrip("~")

class Placement(namedtuple("Placement", "dims partial kind")):
    """dims: per dim an ordered tuple of ATOMS, major first. partial: set of atoms, all of ONE kind (sum|max). Rest: replicated."""
    def __new__(cls, dims, partial=(), kind="sum"):
        p = frozenset(partial)
        return super().__new__(cls, tuple(map(tuple, dims)), p, kind if p else "sum")
    def shard_atoms(self):
        return [base(a) for d in self.dims for a in d]
    def __str__(self):
        s = ",".join("{%s}" % ",".join(d) for d in self.dims)
        return s + (f" P{'max' if self.kind == 'max' else ''}({','.join(sorted(self.partial))})" if self.partial else "")

class Mesh:
    """Ordered atoms (name, size), their product is the world. An axis is a list of atoms; axes may overlap (dense and expert view).
    Atoms of size 1 vanish from every axis, so equal storage is equal placement."""
    def __init__(self, atoms, axes=None):
        self.size = {a: n for a, n in atoms if n > 1}
        named = {a: (a,) for a, _ in atoms}
        named.update(axes or {})
        self.axes = {k: tuple(a for a in v if a in self.size) for k, v in named.items()}
        self.coords = [dict(zip(self.size, c)) for c in itertools.product(*(range(n) for n in self.size.values()))]
        self.rank_of = {tuple(c.values()): r for r, c in enumerate(self.coords)}
        self.world = len(self.coords)
    def atoms(self, *axes):
        return tuple(a for x in axes for a in self.axes.get(x, ()))
    def degree(self, atoms):
        return math.prod(self.size[base(a)] for a in atoms)
    def group(self, r, atoms):                                 # ranks that differ from r only in these atoms, in rank order
        c = self.coords[r]
        return [self.rank_of[tuple({**c, **dict(zip(atoms, x))}.values())]
                for x in itertools.product(*(range(self.size[a]) for a in atoms))]
    def check(self, place):
        used = place.shard_atoms() + list(place.partial)
        if len(used) != len(set(used)):
            raise PlacementError(f"an atom is used twice in {place}")

class PlacementError(Exception):
    pass

def chunk_of(mesh, dim, atoms):
    """Static maximum of the local size: cut ATOM BY ATOM, each level ceil(padded parent / n) rounded up to the unit."""
    pad = dim.size
    for a in atoms:
        u = 1 if a[-1] == "~" else dim.unit
        pad = -(-(-(-pad // u)) // mesh.size[base(a)]) * u
    return pad

def dim_box(mesh, dim, atoms, coord):
    """The one box function: [begin, end) of a dim on a rank; hierarchical, so a prefix of the list gives the enclosing box."""
    lo, hi, pad = 0, dim.size, dim.size
    for a in atoms:
        u = 1 if a[-1] == "~" else dim.unit
        pad = -(-(-(-pad // u)) // mesh.size[base(a)]) * u
        lo = min(lo + coord[base(a)] * pad, hi)
        hi = min(lo + pad, hi)                                 # clipped to the parent: padding never reaches the neighbour
    return lo, hi

def box(mesh, dims, place, r):
    return tuple(dim_box(mesh, d, a, mesh.coords[r]) for d, a in zip(dims, place.dims))

def take(arr, have, want):                                     # part of arr (stored box `have`) inside box `want`
    return arr[tuple(slice(w[0] - h[0], w[1] - h[0]) for h, w in zip(have, want))]

# ---------------------------------------------------------------- 2 label table and canonical placement
TABLE = [("experts", ("ep",), "error"), ("heads", ("tp",), "error"), ("kv_heads", ("tp",), "prefix"), ("ffn", ("tp",), "pad"),
         ("vocab", ("tp",), "pad"), ("tokens", ("dp_replicate", "dp_shard", "cp", "tp"), "pad")]

def prefix_dividing(mesh, atoms, count):                       # longest prefix of atoms whose product divides count
    n = 0
    while n < len(atoms) and count % mesh.degree(atoms[:n + 1]) == 0:
        n += 1
    return atoms[:n]

def canon(mesh, letters, sp=True):
    """Axes of every letter of an op's ITERATION SPACE (contracted letters too), by walking the table. An entry CLAIMS its axes,
    also the atoms it cannot use; an axis with any atom claimed is not available to later entries."""
    out, claimed = {x: () for x in letters}, set()
    for label, axes, policy in TABLE:
        for x, dim in letters.items():
            if dim.label != label:
                continue
            free = [ax for ax in axes if not set(mesh.atoms(ax)) & claimed and (ax != "tp" or label != "tokens" or sp)]
            atoms, units = mesh.atoms(*free), dim.size // dim.unit
            claimed.update(atoms)
            if dim.size % dim.outer: raise PlacementError(f"{dim.size} {label} are not {dim.outer} equal lines")
            if policy == "error" and units % mesh.degree(atoms):
                raise PlacementError(f"{units} {label} do not divide over {atoms} of {mesh.degree(atoms)}")
            out[x] = prefix_dividing(mesh, atoms, units) if policy == "prefix" else atoms
            break                                              # the first letter with the label takes it
    return out

def param_placements(mesh, dims, sp):
    """compute = canon of the parameter's own dims; storage = + FSDP atoms (dp_shard x cp) as minor atoms of one dim."""
    lets = {str(i): d for i, d in enumerate(dims)}
    c = canon(mesh, lets, sp)
    comp = [c[x] for x in lets]
    fsdp = tuple(a for a in mesh.atoms("dp_shard", "cp") if not any(a in d for d in comp))      # less what ep already took
    local = [chunk_of(mesh, d, a) for d, a in zip(dims, comp)]
    pick = next((i for i, n in enumerate(local) if n >= mesh.degree(fsdp)), int(np.argmax(local)))
    if dims[pick].unit > 1: fsdp = tuple(a + "~" for a in fsdp)
    return Placement(comp), Placement([a + fsdp if i == pick else a for i, a in enumerate(comp)])

# ---------------------------------------------------------------- 3 rule strings
def parse_rule(rule, ranks):
    """'t=(b q) h=(k g), s=(b !p) k -> t h' -> input letters, output letters, whole letters, groups. '*' = elementwise."""
    star = " ".join(f"x{i}" for i in range(max(ranks or [0])))
    ins, out = rule.replace("*", star).split("->")
    groups, whole = {}, set()
    def side(text):
        names = []
        for bang, name, inner in re.findall(r"(!?)(\w+)(?:=\(([^)]*)\))?", text):
            names.append(name)
            if bang: whole.add(name)
            if inner:
                groups[name] = [w.lstrip("!") for w in inner.split()]
                whole.update(w[1:] for w in inner.split() if w[0] == "!")
        return names
    return [side(t) for t in ins.split(",")], side(out), whole, groups

# ---------------------------------------------------------------- 4 graph and tt_place
class Node:
    def __init__(self, **kw):
        self.__dict__.update(kw)
    def __repr__(self):
        return f"%{self.id} {self.op}{self.attrs.get('name', '')} [{self.place}] {self.phase}"

class Graph:
    """carry=False keeps R1's literal list (add, scale); hoist: one fetch for all micro-batches; bug: a deliberate error (mutations)."""
    def __init__(self, mesh, sp=True, carry=True, bug=None, hoist=False):
        self.hoist, self.hoisted = hoist, {}
        self.mesh, self.sp, self.carry, self.bug = mesh, sp, carry, bug
        self.nodes, self.versions, self.phase, self.layer = [], {}, "fwd", None
        self.param_cots, self.cots, self.inherit = {}, {}, False

    def new(self, op, ins, dims, place, **kw):
        self.mesh.check(place)
        n = Node(id=len(self.nodes), op=op, ins=list(ins), dims=tuple(dims), place=place, phase=self.phase, layer=self.layer,
                 attrs=kw.pop("attrs", {}), letters=kw.pop("letters", {}), bind=kw.pop("bind", {}), keep=kw.pop("keep", ()),
                 follow=kw.pop("follow", False))
        self.nodes.append(n)
        return n

    def leaf(self, op, name, dims, place=None):
        return self.new(op, [], dims, place or Placement([()] * len(dims)), attrs={"name": name})

    def redistribute(self, v, to):
        """Identity in meaning. One per (meaning, placement), shared by all uses; made from the cheapest version that exists."""
        root = v
        while root.op == "redistribute": root = root.ins[0]
        vs = self.versions.setdefault(root.id, [root])
        for w in vs:
            if w.place == to: return w
        src = min(vs, key=lambda w: sum(s.cost for s in lower(self.mesh, w.dims, w.place, to)))
        vs.append(self.new("redistribute", [src], root.dims, to))
        return vs[-1]

    def fetch(self, p):
        if self.hoist and p.id in self.hoisted: return self.hoisted[p.id]          # hoisted: one gather for all micro-batches
        self.hoisted[p.id] = n = self.new("fetch", [p], p.dims, param_placements(self.mesh, p.dims, self.sp)[0])
        return n

    def op(self, name, *ins, follow=False, bind=None, **attrs):
        """tt_place: letters -> axes -> inputs redistributed -> natural output placement. Canonical mode walks the labels over the op's
        iteration space; follow mode (cotangent sums, accumulate, everything in step regions) keeps what the inputs have."""
        o, mesh, follow = OPS[name], self.mesh, follow or self.inherit
        lin, lout, whole, groups = parse_rule(o.rule, [len(v.dims) for v in ins])
        dim, known = dict(bind or {}), {label for label, _, _ in TABLE}
        for v, names in zip(ins, lin):
            assert len(names) == len(v.dims), (name, names, v.dims)
            for x, d in zip(names, v.dims):
                assert dim.setdefault(x, d).size == d.size, (name, x, dim[x], d)
                if dim[x].label not in known: dim[x] = dim[x]._replace(label=d.label)      # the first label that the table knows
        joint = o.carry == "all"
        if follow:
            ax = {}
            for v, names in zip(ins, lin):
                for x, a in zip(names, v.place.dims): ax.setdefault(x, a)
        else:
            ax = canon(mesh, dim, self.sp)
            for x in whole & set(ax): ax[x] = ()
            taken = {base(a) for l in ax.values() for a in l}
            for v, names in zip(ins, lin):                     # labels that the table does not know keep the first input's cut
                for x, have in zip(names, v.place.dims):
                    if dim[x].label in known or x in whole or ax[x]: continue
                    free = itertools.takewhile(lambda a: a[-1] != "~" and a not in taken, have)
                    ax[x] = tuple(free)
                    taken.update(ax[x])
            first = {}
            for x, (a, b) in groups.items():                   # x=(a b): a takes the longest prefix that cuts it exactly, b the rest
                if dim[x].label not in known and x not in whole and not ax[x]: ax[x] = ax.get(a, ())     # dims that are merged
                count = dim[a].size // dim[a].unit if a in dim else dim[x].outer
                pre = first.setdefault(a, prefix_dividing(mesh, ax[x], count))
                ax[a] = pre
                if b in whole: ax[x] = pre                     # s=(b !p): shares b with t, p whole
        used = {base(a) for v in ax.values() for a in v}
        # which pending partials pass through: only sums, only over atoms the op does not shard by
        sums = [v.place.partial - used if v.place.kind == "sum" else frozenset() for v in ins]
        keep = [frozenset()] * len(ins)
        if joint and follow:                                   # union; a replicated operand becomes partial (coordinate 0) for free
            keep = [frozenset().union(*sums)] * len(ins)       # in canonical mode add forces: the residual stream is never partial
        elif o.carry and not joint and (self.carry or not o.extra):
            i = o.carry[0]
            keep[i] = sums[i]
        args = [self.need(v, Placement([ax[x] for x in names], k)) for v, names, k in zip(ins, lin, keep)]
        odims = [ax[x] for x in lout]
        oatoms = {base(a) for d in odims for a in d}
        kept = frozenset().union(*keep) if ins else frozenset()
        place = Placement(odims, (used - oatoms) | kept, o.kind)
        return self.new(name, args, [dim[x] for x in lout], place, attrs=attrs, letters=ax, bind=dim, keep=kept, follow=follow)

    def need(self, v, to):
        if self.bug == "no_mask" and v.place.partial < to.partial and v.place.dims == to.dims:
            return self.new("relabel", [v], v.dims, to)        # a replicated operand summed as if it were partial: counted n times
        return self.redistribute(v, to)

def verify(g):
    """tt_graph_verify: every op's inputs and output against its rule (redistribute and leaves are free)."""
    for n in g.nodes:
        if n.op not in OPS: continue
        lin, lout, _, _ = parse_rule(OPS[n.op].rule, [len(v.dims) for v in n.ins])
        used = {base(a) for v in n.letters.values() for a in v}
        for v, names in zip(n.ins, lin):
            if v.place.dims != tuple(n.letters[x] for x in names) or not v.place.partial <= n.keep:
                raise PlacementError(f"{n}: input {v} does not fit rule {OPS[n.op].rule} with {n.letters}")
            if OPS[n.op].carry == "all" and v.place.partial != n.keep: raise PlacementError(f"{n}: {v} lacks P{set(n.keep)}")
        assert n.place.dims == tuple(n.letters[x] for x in lout) and not n.keep & used

# ---------------------------------------------------------------- 5 lowering: (from, to) -> named collectives
Step = namedtuple("Step", "kind atoms src dst cost")           # cost: elements that a rank sends, exact boxes ignored (padded sizes)

def lower(mesh, dims, A, B):
    """A list of single-kind steps. Reduce before gather, RS before AR, so the AR runs on the shard."""
    steps, cur = [], A
    def elems(p):
        return math.prod(chunk_of(mesh, d, a) for d, a in zip(dims, p.dims))
    def go(kind, atoms, dimlists, partial):
        nonlocal cur
        atoms = tuple(map(base, atoms))
        dst = Placement(dimlists, partial, A.kind if set(partial) & A.partial else B.kind)
        n = mesh.degree(atoms)
        big = {"all_gather": elems(dst), "all_reduce": 2 * elems(cur)}.get(kind, elems(cur) if kind in COLLECTIVES else 0)
        steps.append(Step(kind, tuple(atoms), cur, dst, big * (n - 1) / n))
        cur = dst
    def with_dim(i, atoms):
        return [atoms if j == i else d for j, d in enumerate(cur.dims)]
    def prefix(i):
        k = 0
        while k < min(len(cur.dims[i]), len(B.dims[i])) and cur.dims[i][k] == B.dims[i][k]: k += 1
        return k
    nd = range(len(dims))
    def movable(i, j):
        """The last atoms of dim i, as many as possible, that are the next ones dim j wants."""
        if i == j or prefix(j) != len(cur.dims[j]): return ()
        want = B.dims[j][len(cur.dims[j]):]
        for k in range(min(len(cur.dims[i]) - prefix(i), len(want)), 0, -1):
            if cur.dims[i][-k:] == want[:k]: return want[:k]
        return ()
    pairs = [(i, j) for i in nd for j in nd]
    while any(movable(i, j) for i, j in pairs):                # the end of a dim's atoms moves to the end of another dim
        for i, j in pairs:
            mv = movable(i, j)
            if mv:
                lists = with_dim(i, cur.dims[i][:-len(mv)]); lists[j] = cur.dims[j] + mv
                go("all_to_all", mv, lists, cur.partial)
    for i in nd:                                               # gather what stands in the way of an addition
        drop = cur.dims[i][prefix(i):]
        wanted = {base(a) for j in nd for a in B.dims[j][prefix(j):]} | B.partial
        if drop and (len(B.dims[i]) > prefix(i) or set(map(base, drop)) & wanted):
            go("all_gather", drop, with_dim(i, cur.dims[i][:prefix(i)]), cur.partial)
    for i in nd:                                               # additions, major first: reduce_scatter of partials, slice of replicas
        more = B.dims[i][len(cur.dims[i]):] if len(cur.dims[i]) == prefix(i) else ()
        for is_p, run in itertools.groupby(more, key=lambda a: base(a) in A.partial):
            run = tuple(run)
            go("reduce_scatter" if is_p else "slice", run, with_dim(i, cur.dims[i] + run), cur.partial - set(map(base, run)))
    red = cur.partial - B.partial
    if red: go("all_reduce", sorted(red), cur.dims, cur.partial - red)
    for i in nd:
        drop = cur.dims[i][prefix(i):]
        if drop: go("all_gather", drop, with_dim(i, cur.dims[i][:prefix(i)]), cur.partial)
    new = B.partial - cur.partial
    if new: go("mask", sorted(new), cur.dims, B.partial)       # replicate -> partial: value at coordinate 0, identity elsewhere
    assert cur == B, (A, B, cur)
    return steps

COLLECTIVES = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")

# ---------------------------------------------------------------- 6 simulator
def run_step(mesh, dims, st, loc, drop=False):
    """One collective on all ranks: each rank reads its group only. drop=True: the mutation, every rank reads only itself."""
    out = []
    op, ident = (np.maximum, -np.inf) if (st.src.kind == "max" and st.src.partial) or st.dst.kind == "max" else (np.add, 0.0)
    boxes = [box(mesh, dims, st.src, r) for r in range(mesh.world)]
    for r in range(mesh.world):
        want = box(mesh, dims, st.dst, r)
        group = [r] if drop else mesh.group(r, st.atoms)
        if st.kind == "mask":
            out.append(loc[r] if drop or all(mesh.coords[r][a] == 0 for a in st.atoms) else np.full_like(loc[r], ident))
        elif st.kind in ("slice", "reduce_scatter", "all_reduce"):
            part = [take(loc[m], boxes[m], want) for m in (group if st.kind != "slice" else [r])]
            acc = part[0]
            for p in part[1:]: acc = op(acc, p)
            out.append(acc)
        else:                                                  # all_gather, all_to_all: copies that must tile the wanted box exactly
            acc = np.zeros([e - b for b, e in want], loc[r].dtype); cnt = np.zeros(acc.shape, int)
            for m in group:
                both = tuple((max(a[0], b[0]), max(max(a[0], b[0]), min(a[1], b[1]))) for a, b in zip(boxes[m], want))
                at = tuple(slice(b[0] - w[0], b[1] - w[0]) for b, w in zip(both, want))
                if all(b[1] > b[0] for b in both):
                    acc[at] = take(loc[m], boxes[m], both); cnt[at] += 1
            assert drop or (cnt == 1).all(), (st, want)
            out.append(acc)
    return out

def assemble(mesh, dims, place, loc):
    """Global tensor from shards: copy over shards, reduce over partial atoms; replicas must agree. Returns (value, replica error)."""
    ident = -np.inf if place.kind == "max" and place.partial else 0.0
    out, err = None, 0.0
    seen, rep = {}, tuple(a for a in mesh.size if a not in place.partial and a not in place.shard_atoms())
    full = np.zeros([d.size for d in dims], loc[0].dtype)
    parts = {}
    for r in range(mesh.world):
        first = mesh.group(r, rep)[0]
        if first != r:
            err = max(err, float(np.max(np.abs(loc[r] - loc[first]), initial=0.0))) if loc[r].shape == loc[first].shape else np.inf
            continue
        key = tuple(mesh.coords[r][a] for a in sorted(place.partial))
        dst = parts.setdefault(key, full.copy())
        b = box(mesh, dims, place, r)
        if tuple(e - s for s, e in b) != loc[r].shape: return full, np.inf
        dst[tuple(slice(s, e) for s, e in b)] = loc[r]
    vals = list(parts.values())
    out = vals[0]
    for v in vals[1:]: out = np.maximum(out, v) if ident else out + v
    return out, err

class Ctx:                                                     # what a kernel may know: attributes, its letters' boxes, dims
    def __init__(self, node, coord=None, mesh=None):
        self.attrs, self.node, self.coord, self.mesh = node.attrs, node, coord, mesh
    def box(self, x):
        d = self.node.bind[x]
        return (0, d.size) if self.coord is None else dim_box(self.mesh, d, self.node.letters[x], self.coord)

def simulate(g, feeds, drop=None, check=True, tol=1e-9):
    """Evaluate globally and on all ranks; compare at every node. drop = id of a redistribute whose communication is left out."""
    mesh, G, L, worst = g.mesh, {}, {}, 0.0
    with np.errstate(all="ignore"):
        for n in g.nodes:
            if n.op in ("input", "param"):
                G[n.id] = feeds[n.attrs["name"]]
                L[n.id] = [take(G[n.id], [(0, d.size) for d in n.dims], box(mesh, n.dims, n.place, r)) for r in range(mesh.world)]
            elif n.op in ("redistribute", "fetch", "relabel"):
                G[n.id], loc = G[n.ins[0].id], L[n.ins[0].id]
                for st in (() if n.op == "relabel" else lower(mesh, n.dims, n.ins[0].place, n.place)):
                    loc = run_step(mesh, n.dims, st, loc, drop == n.id and st.kind in COLLECTIVES + ("mask",))
                L[n.id] = loc
            else:
                fn = OPS[n.op].fn
                G[n.id] = fn(Ctx(n), *(G[v.id] for v in n.ins))
                L[n.id] = [fn(Ctx(n, mesh.coords[r], mesh), *(L[v.id][r] for v in n.ins)) for r in range(mesh.world)]
            if check:
                val, err = assemble(mesh, n.dims, n.place, L[n.id])
                bad = max(err, float(np.max(np.abs(val - G[n.id]), initial=0.0)))
                worst = max(worst, bad)
                if not bad <= tol: raise AssertionError(f"{n}: shards differ from the global value by {bad:.3g}")
    return G, L, worst

# ---------------------------------------------------------------- 7 ops: rule, kernel, which pending partials pass
Op = namedtuple("Op", "rule fn carry kind extra")              # carry: "all" = jointly linear, (i,) = linear in input i
OPS, VJP = {}, {}

def op(name, rule, carry=None, kind="sum", extra=False):       # extra: carries a partial only beyond R1's literal list
    def reg(fn):
        OPS[name] = Op(rule, fn, carry, kind, extra)
        return fn
    return reg

def rms_parts(c, x, w):
    n = c.attrs.get("head", x.shape[1])                        # head: norm over head_dim inside the flattened heads dim
    xr = x.reshape(len(x), x.shape[1] // n, n)
    r = 1 / np.sqrt((xr * xr).mean(-1, keepdims=True) + 1e-5) if x.size else xr[..., :1]
    return xr, r, n

def rms(c, x, w):
    xr, r, n = rms_parts(c, x, w)
    return (xr * r * w).reshape(x.shape)

def rms_dx(c, x, w, dy):
    xr, r, n = rms_parts(c, x, w)
    gw = dy.reshape(xr.shape) * w
    return (r * gw - xr * r ** 3 * (gw * xr).mean(-1, keepdims=True)).reshape(x.shape) if x.size else x

def rms_dw(c, x, w, dy):
    xr, r, n = rms_parts(c, x, w)
    return (dy.reshape(xr.shape) * xr * r).sum((0, 1))

for p_, r_ in (("rms", "t !i, i"), ("head_rms", "t h, !d")):
    a_, b_ = r_.split(", ")
    op(p_, f"{r_} -> {a_.replace('!', '')}")(rms)
    op(p_ + "_dx", f"{r_}, {a_} -> {a_.replace('!', '')}")(rms_dx)
    op(p_ + "_dw", f"{r_}, {a_} -> {b_.replace('!', '')}")(rms_dw)
op("add", "*, * -> *", carry="all")(lambda c, a, b: a + b)
op("scale", "*, -> *", carry=(0,))(lambda c, a, s: a * s)
op("mul", "*, * -> *")(lambda c, a, b: a * b)
op("silu", "* -> *")(lambda c, x: x / (1 + np.exp(-x)))
op("linear", "t i, o i -> t o")(lambda c, x, w: x @ w.T)
op("linear_dx", "t o, o i -> t i", carry=(0,), extra=True)(lambda c, dy, w: dy @ w)
op("linear_dw", "t o, t i -> o i", carry=(0,), extra=True)(lambda c, dy, x: dy.T @ x)
op("bias", "t o, o -> t o")(lambda c, x, b: x + b)
op("bias_db", "t o -> o", carry=(0,), extra=True)(lambda c, dy: dy.sum(0))
op("max_v", "t v -> t", kind="max")(lambda c, x: x.max(1, initial=-np.inf))
op("sumexp", "t v, t -> t")(lambda c, x, m: np.exp(x - m[:, None]).sum(1))
op("sumexp_dx", "t v, t, t -> t v")(lambda c, x, m, dy: np.exp(x - m[:, None]) * dy[:, None])
op("nll", "t, t, t, t -> t")(lambda c, se, m, pk, lab: np.where(lab >= 0, np.log(se) + m - pk, 0.0))
op("nll_dse", "t, t, t -> t")(lambda c, se, lab, dy: np.where(lab >= 0, dy / se, 0.0))
op("nll_dpick", "t, t -> t")(lambda c, dy, lab: np.where(lab >= 0, -dy, 0.0))
op("total", "* -> ")(lambda c, x: x.sum())
op("spread", ", * -> *")(lambda c, s, like: np.full(like.shape, s))
op("sumsq", "* -> ")(lambda c, x: (x * x).sum())

@op("silu_dx", "*, * -> *")
def _(c, x, dy):
    s = 1 / (1 + np.exp(-x))
    return dy * s * (1 + x * (1 - s))

def onehot(c, idx):                                            # [t, local v]: rows outside this rank's vocab box are zero
    b, e = c.box("v")
    return (idx[:, None] == np.arange(b, e)[None, :]).astype(float)

op("embedding", "t, v d -> t d")(lambda c, ids, E: onehot(c, ids) @ E)
op("embedding_dw", "t, t d -> v d")(lambda c, ids, dy: onehot(c, ids).T @ dy)
op("pick", "t v, t -> t")(lambda c, x, lab: (x * onehot(c, lab)).sum(1))
op("pick_dx", "t, t -> t v")(lambda c, lab, dy: onehot(c, lab) * dy[:, None])

@op("rope", "t h, t -> t h", carry=(0,), extra=True)
def _(c, x, pos):
    hd = c.attrs["hd"]
    xr = x.reshape(len(x), x.shape[1] // hd, 2, hd // 2)
    ang = c.attrs.get("sign", 1) * pos[:, None] * 100.0 ** (-np.arange(hd // 2) / (hd // 2))[None]
    co, si = np.cos(ang)[:, None], np.sin(ang)[:, None]
    a, b = xr[:, :, 0], xr[:, :, 1]
    return np.stack([a * co - b * si, a * si + b * co], 2).reshape(x.shape)

def att(c, q, k, v, pq, sq, pk, sk):
    """Softmax over keys of the same segment with pos <= own. Heads and kv heads are indexed globally through their boxes."""
    hd, gq = c.attrs["hd"], c.node.bind["h"].size // c.node.bind["k"].size
    idx = (np.arange(q.shape[1] // hd) + c.box("h")[0] // hd) // gq - c.box("k")[0] // hd
    heads = lambda z: z.reshape(len(z), z.shape[1] // hd, hd)
    Q, K, V = heads(q), heads(k)[:, idx], heads(v)[:, idx]
    s = np.einsum("thd,shd->hts", Q, K) / np.sqrt(hd)
    ok = (sq[:, None] == sk[None]) & (pk[None] <= pq[:, None])
    s = np.where(ok[None], s, -1e30)
    p = np.exp(s - s.max(-1, keepdims=True, initial=-1e30)) * ok[None]
    return Q, K, V, p / np.maximum(p.sum(-1, keepdims=True), 1e-300), idx, hd

def att_ds(c, a, do):
    Q, K, V, p, idx, hd = a
    DO = do.reshape(Q.shape)
    dp = np.einsum("thd,shd->hts", DO, V)
    return p * (dp - (p * dp).sum(-1, keepdims=True)) / np.sqrt(hd), DO

def att_dkv(c, k, idx, d):                                     # sum the query heads of a group into their kv head
    out = np.zeros((len(k), k.shape[1] // c.attrs["hd"], c.attrs["hd"]))
    for j, i in enumerate(idx): out[:, i] += d[:, j]
    return out.reshape(k.shape)

AQ = "t=(b q) h=(k g), s=(b !p) k, s k, t, t, s, s"

@op("attention", AQ + " -> t h")
def _(c, *x):
    a = att(c, *x)
    return np.einsum("hts,shd->thd", a[3], a[2]).reshape(x[0].shape)

@op("attention_dq", AQ + ", t h -> t h")
def _(c, *x):
    a = att(c, *x[:7])
    return np.einsum("hts,shd->thd", att_ds(c, a, x[7])[0], a[1]).reshape(x[0].shape)

@op("attention_dk", AQ + ", t h -> s k")
def _(c, *x):
    a = att(c, *x[:7])
    return att_dkv(c, x[1], a[4], np.einsum("hts,thd->shd", att_ds(c, a, x[7])[0], a[0]))

@op("attention_dv", AQ + ", t h -> s k")
def _(c, *x):
    a = att(c, *x[:7])
    return att_dkv(c, x[2], a[4], np.einsum("hts,thd->shd", a[3], x[7].reshape(a[0].shape)))

# ---------------------------------------------------------------- 8 autodiff on meanings
def norm_vjp(p):
    return lambda g, n, dy: [g.op(p + "_dx", *n.ins, dy, **n.attrs), g.op(p + "_dw", *n.ins, dy, **n.attrs)]

VJP.update({
    "add": lambda g, n, dy: [dy, dy], "rms": norm_vjp("rms"), "head_rms": norm_vjp("head_rms"),
    "scale": lambda g, n, dy: [g.op("scale", dy, n.ins[1]), None],
    "mul": lambda g, n, dy: [g.op("mul", dy, n.ins[1]), g.op("mul", dy, n.ins[0])],
    "silu": lambda g, n, dy: [g.op("silu_dx", n.ins[0], dy)],
    "linear": lambda g, n, dy: [g.op("linear_dx", dy, n.ins[1]), g.op("linear_dw", dy, n.ins[0])],
    "bias": lambda g, n, dy: [dy, g.op("bias_db", dy)],
    "rope": lambda g, n, dy: [g.op("rope", dy, n.ins[1], hd=n.attrs["hd"], sign=-1), None],
    "embedding": lambda g, n, dy: [None, g.op("embedding_dw", n.ins[0], dy, bind={"v": n.ins[1].dims[0]})],
    "attention": lambda g, n, dy: [g.op("attention_d" + x, *n.ins, dy, **n.attrs) for x in "qkv"] + [None] * 4,
    "max_v": lambda g, n, dy: [None],                          # stop_gradient: the derivative through m cancels exactly
    "sumexp": lambda g, n, dy: [g.op("sumexp_dx", *n.ins, dy), None],
    "pick": lambda g, n, dy: [g.op("pick_dx", n.ins[1], dy, bind={"v": n.ins[0].dims[1]}), None],
    "nll": lambda g, n, dy: [g.op("nll_dse", n.ins[0], n.ins[3], dy), None, g.op("nll_dpick", dy, n.ins[3]), None],
    "total": lambda g, n, dy: [g.op("spread", dy, n.ins[0], follow=True)],
})

def cotangent_storage(A, d):
    """R1, axis by axis: shard(d) -> shard(d); partial -> replicate; replicate -> pending partial where d is so, else replicate."""
    return Placement(A.dims, d.partial - A.partial - set(A.shard_atoms()))

def sum_cotangents(g, A, parts):
    """Sum first (follow mode, union of pending partials), then redistribute once. Parts of other shards are brought to A's first."""
    parts = [p if p.place.dims == A.dims else g.redistribute(p, cotangent_storage(A, p.place)) for p in parts]
    s = parts[0]
    for p in parts[1:]: s = g.op("add", s, p, follow=True)
    return s

def backward(g, loss):
    """Reverse mode. fetch hands the UNREDUCED cotangent to g.param_cots, so tied and accumulated ones are summed before the RS."""
    g.phase = "bwd"
    cots = {loss.id: [g.leaf("input", "one", [])]}             # the seed: replicated 1
    for n in reversed([m for m in g.nodes if m.phase == "fwd" and m.id <= loss.id]):
        if n.id not in cots or n.op in ("input", "param"): continue
        g.layer = n.layer
        if n.op == "fetch":
            g.param_cots.setdefault(n.ins[0].attrs["name"], []).append(sum_cotangents(g, n.place, cots[n.id]))
            continue
        dy = sum_cotangents(g, n.place, cots[n.id])
        if n.op == "redistribute":
            A, B = n.ins[0].place, n.place
            wrong = Placement(dy.place.dims, (A.partial - set(dy.place.shard_atoms())) | dy.place.partial)
            if g.bug == "psum_transpose" and wrong != dy.place:          # "the transpose of psum is psum": gradients x tp
                dy = g.new("relabel", [dy], dy.dims, wrong)
            outs = [g.redistribute(dy, cotangent_storage(A, dy.place))]
        else:
            dy = g.redistribute(dy, cotangent_storage(n.place, dy.place))
            if g.bug == "lost_pending" and dy.place.partial: dy = g.new("relabel", [dy], dy.dims, Placement(dy.place.dims))
            g.inherit = n.follow                               # the derivative of an expansion's inner op is placed like the op
            outs = VJP[n.op](g, n, dy)
            g.inherit = False
        for v, d in zip(n.ins, outs):
            if d is not None and v.op != "input": cots.setdefault(v.id, []).append(d)
    g.layer = None
    g.cots, cots, g.param_cots = cots, g.param_cots, {}
    return cots

# ---------------------------------------------------------------- 9 model, accumulation, norm, update
Cfg = namedtuple("Cfg", "V D H K hd F L tied bias qk_norm", defaults=(19, 10, 6, 2, 4, 14, 2, False, False, False))

def param_dims(c):
    D, q, kv = Dim(c.D, "embed"), Dim(c.H * c.hd, "heads", c.hd), Dim(c.K * c.hd, "kv_heads", c.hd)
    f, v = Dim(c.F, "ffn"), Dim(c.V, "vocab")
    out = {"embed": (v, D), "nf": (D,)}
    if not c.tied: out["head"] = (v, D)
    for l in range(c.L):
        out.update({f"{l}.n1": (D,), f"{l}.wq": (q, D), f"{l}.wk": (kv, D), f"{l}.wv": (kv, D), f"{l}.wo": (D, q),
                    f"{l}.n2": (D,), f"{l}.w1": (f, D), f"{l}.w3": (f, D), f"{l}.w2": (D, f)})
        if c.bias: out.update({f"{l}.bq": (q,), f"{l}.bo": (D,)})
        if c.qk_norm: out.update({f"{l}.qn": (Dim(c.hd, "head_dim"),)})
    return out

def forward(g, c, P, inp):
    g.phase, ids, pos, seg, lab = "fwd", *inp
    f = lambda name: g.fetch(P[name])
    x = g.op("embedding", ids, f("embed"))
    for l in range(c.L):
        g.layer, w = l, lambda s: f(f"{l}.{s}")
        h = g.op("rms", x, w("n1"))
        q, k, v = (g.op("linear", h, w(s)) for s in ("wq", "wk", "wv"))
        if c.bias: q = g.op("bias", q, w("bq"))
        if c.qk_norm: q = g.op("head_rms", q, w("qn"), head=c.hd)
        q, k = (g.op("rope", z, pos, hd=c.hd) for z in (q, k))
        y = g.op("linear", g.op("attention", q, k, v, pos, seg, pos, seg, hd=c.hd), w("wo"))
        if c.bias: y = g.op("bias", y, w("bo"))
        x = g.op("add", x, y)
        h = g.op("rms", x, w("n2"))
        y = g.op("linear", g.op("mul", g.op("silu", g.op("linear", h, w("w1"))), g.op("linear", h, w("w3"))), w("w2"))
        x = g.op("add", x, y)
    g.layer = "head"
    z = g.op("linear", g.op("rms", x, f("nf")), f("embed" if c.tied else "head"))
    m = g.op("max_v", z)                                       # the CE expansion: max, sum of exp, target, three [tokens] partials
    nll = g.op("nll", g.op("sumexp", z, m), m, g.op("pick", z, lab), lab, follow=True)      # stays at the logits' tokens: three all-reduces
    return g.op("total", nll, follow=True)

def build(mesh, c, T, lines=1, sp=True, carry=True, bug=None, micro=1, sunk=True, hoist=False):
    """Forward and backward of `micro` micro-batches, epilogue, grad norm (R13), one SGD update in step-region (follow) mode."""
    g = Graph(mesh, sp, carry, bug, hoist)
    P = {n: g.leaf("param", n, d, param_placements(mesh, d, sp)[1]) for n, d in param_dims(c).items()}
    scal = {n: g.leaf("input", n, []) for n in ("inv_n", "neg_lr")}
    acc, losses = {}, []
    for m in range(micro):
        g.phase = "fwd"
        inp = [g.leaf("input", f"{s}{m}", [Dim(T, "tokens", 1, lines)]) for s in ("ids", "pos", "seg", "lab")]
        losses.append(g.op("scale", forward(g, c, P, inp), scal["inv_n"]))
        for n, cots in backward(g, losses[-1]).items():
            g.phase = "reduce"
            nat = sum_cotangents(g, cots[0].place, cots)
            acc.setdefault(n, []).append(nat if sunk else g.redistribute(nat, cotangent_storage(P[n].place, nat.place)))
    g.phase, g.layer, out, g.natural = "step", None, {}, {n: v[0] for n, v in acc.items()}
    sq = None
    for n, parts in acc.items():
        tot = sum_cotangents(g, parts[0].place, parts)
        if bug == "skip_tp" and "n1" in n:
            tot = g.new("relabel", [tot], tot.dims, Placement(tot.place.dims, tot.place.partial - set(mesh.atoms("tp"))))
        grad = out["d." + n] = g.redistribute(tot, P[n].place)
        s = g.op("sumsq", grad, follow=True)
        sq = s if sq is None else g.op("add", sq, s, follow=True)   # union: replicated params count once (coordinate 0)
        out["new." + n] = g.op("add", P[n], g.op("scale", grad, scal["neg_lr"], follow=True), follow=True)
    out["norm2"] = g.redistribute(sq, Placement([]))
    loss = losses[0]
    for x in losses[1:]: loss = g.op("add", loss, x, follow=True)
    out["loss"], g.out = g.redistribute(loss, Placement([])), out
    verify(g)
    return g

def feeds_for(c, T, lines=1, micro=1, seed=0, cross=False):
    """Two segments a line; a line is what one dp rank holds (ceil(T/lines) tokens). cross=True breaks that (mutation)."""
    rng = np.random.default_rng(seed)
    f = {n: rng.normal(size=[x.size for x in d]) * 0.5 + (1 if len(d) == 1 else 0) for n, d in param_dims(c).items()}
    f.update(one=np.float64(1), inv_n=np.float64(1 / (micro * T)), neg_lr=np.float64(-0.1))
    L = -(-T // lines)
    for m in range(micro):
        line = np.arange(T) // L
        inner = np.arange(T) % L
        cut = max(1, L // 2 - 1)
        f[f"seg{m}"] = line * 2 + (inner >= cut)
        f[f"pos{m}"] = np.where(inner >= cut, inner - cut, inner)
        if cross: f[f"seg{m}"], f[f"pos{m}"] = np.zeros(T, int), np.arange(T)
        f[f"ids{m}"], f[f"lab{m}"] = rng.integers(0, c.V, T), rng.integers(0, c.V, T)
        f[f"ids{m}"][:2] = c.V - 1                             # the last vocab row sits beside the padding
        f[f"lab{m}"][1], f[f"lab{m}"][2] = -100, c.V - 1
    return f

if __name__ == "__main__":
    import placement_tests
    placement_tests.main()
