#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Executable specification of pipeline schedules (rules R7, R9, R10, R12 of docs/design/rules.md).   python3 pipeline_spec.py [long] [test ...]

A schedule is data: per rank an ordered list of actions (F|B|I|W, stage, micro-batch) and a map stage -> rank. Nothing else in the
runtime knows 1F1B from ZBV. This file generates the published schedules, checks them, draws their cost, derives from them the
sends and receives, the number of slots and the order of accumulation, and proves these by running all ranks. Needs numpy only;
where PyTorch is importable its action lists are compared with ours.

  1 actions, generators, CSV   2 checker, abstract run   3 programs: where sends and receives stand   4 slots, happens-before
  5 numerics on a small llama
The tests and mutations are in pipeline_tests.py; running this file runs them.
B = I then W as one action. Durations are those of a stage; tComm is latency added to a message between ranks.
"""
import csv, io, itertools, random, re
from collections import Counter, defaultdict, deque, namedtuple
import numpy as np

# ---------------------------------------------------------------- 1 actions, generators, CSV
Action = namedtuple("Action", "kind stage mb")
Schedule = namedtuple("Schedule", "name p m rank_of lists")    # rank_of[stage] -> rank; lists[rank] -> [Action]

class ScheduleError(Exception): pass
class Deadlock(ScheduleError): pass

def loop_map(p, v): return [s % p for s in range(p * v)]       # stage s on rank s mod p
def v_map(p): return [s if s < p else 2 * p - 1 - s for s in range(2 * p)]     # down and up again: rank 0 has first and last

def acts(kind, pairs): return [Action(kind, s, k) for s, k in pairs]

def steady(fwd, bwd, warm):
    """`warm` forwards, then one forward one backward, then the remaining backwards. bwd: list of lists (what one step does)."""
    warm = min(warm, len(fwd))
    out = list(fwd[:warm])
    for f, b in itertools.zip_longest(fwd[warm:], bwd): out += ([f] if f else []) + b
    return out

def gpipe(p, m):
    return Schedule("GPipe", p, m, loop_map(p, 1), [[Action(x, r, k) for x in "FB" for k in range(m)] for r in range(p)])

def one_f_one_b(p, m):
    return Schedule("1F1B", p, m, loop_map(p, 1), [steady(acts("F", [(r, k) for k in range(m)]), [[Action("B", r, k)] for k in range(m)],
                                                          p - 1 - r) for r in range(p)])

def rounds(p, m):
    """Micro-batches in max(1, m // p) rounds of >= p (if m >= p), as even as can be, larger ones first: any m is well defined."""
    n = max(1, m // p)
    size = [m // n + (i < m % n) for i in range(n)]
    return [range(sum(size[:i]), sum(size[:i + 1])) for i in range(n)]

def depth_first(p, v, m, r):
    """A rank's forwards and backwards: round by round, in it chunk by chunk (backwards: last chunk first), in it micro-batches."""
    one = lambda chunks: [(c * p + r, k) for g in rounds(p, m) for c in chunks for k in g]
    return one(range(v)), one(range(v - 1, -1, -1))

def interleaved(p, v, m):
    """Megatron's: warm-up reaches the last chunk, plus two forwards for every rank behind. v = 1 is 1F1B."""
    if v == 1: return one_f_one_b(p, m)._replace(name="Interleaved1F1B")
    lists = []
    for r in range(p):
        f, b = depth_first(p, v, m, r)
        lists.append(steady(acts("F", f), [[a] for a in acts("B", b)], (v - 1) * len(rounds(p, m)[0]) + 2 * (p - 1 - r)))
    return Schedule("Interleaved1F1B", p, m, loop_map(p, v), lists)

def looped_bfs(p, v, m):
    """Breadth first: a stage runs all micro-batches before the next one does; backwards from the last stage, ascending (bits)."""
    return Schedule("LoopedBFS", p, m, loop_map(p, v), [
        acts("F", [(c * p + r, k) for c in range(v) for k in range(m)]) +
        acts("B", [(c * p + r, k) for c in reversed(range(v)) for k in range(m)]) for r in range(p)])

def interleaved_zb(p, v, m):
    """ZB-H1 (v = 1) and its interleaved form: ONE forward more for each rank behind; W runs r steps after its I (r = rank), so that
    every rank holds as much as rank 0; what is left of W fills the end."""
    lists = []
    for r in range(p):
        f, b = depth_first(p, v, m, r)
        I, W = acts("I", b), acts("W", b)
        bwd = [[I[i]] + ([W[i - r]] if i >= r else []) for i in range(len(I))]
        lists.append(steady(acts("F", f), bwd, (v - 1) * len(rounds(p, m)[0]) + p - 1 - r) + W[max(0, len(I) - r):])
    return Schedule("InterleavedZeroBubble", p, m, loop_map(p, v), lists)

class Rank:
    """Bookkeeping for the V schedules: next micro-batch of each (kind, chunk); chunk 0 on the way down, 1 on the way up."""
    def __init__(self, p, r, m):
        self.st, self.m, self.n, self.out, self.todo = (r, 2 * p - 1 - r), m, Counter(), [], deque()
    def do(self, *steps):                                      # "F0", "I1", "B0", "W0"; "W" = oldest pending; beyond m: nothing
        for s in steps:
            if s == "W":
                if self.todo: a = self.todo.popleft(); self.out.append(Action("W", *a)); self.n["W", self.st.index(a[0])] += 1
                continue
            kind, c = s[0], int(s[1])
            key = ("I" if kind == "B" else kind, c)
            k = self.n[key]
            self.n[key] += 1
            if k >= self.m: continue
            self.out.append(Action(kind, self.st[c], k))
            if kind == "I": self.todo.append((self.st[c], k))
            if kind == "W": self.todo.remove((self.st[c], k))
            if kind == "B": self.n["W", c] += 1

def zbv(p, m):
    """ZB-V: memory of 1F1B (2p half stages on every rank), no bubble after the warm-up if tF = tI = tW. Short m: the schedule of
    2p - 1 micro-batches without those that do not exist."""
    lists, n = [], max(m, 2 * p - 1)
    for r in range(p):
        R = Rank(p, r, m)
        for _ in range(2 * (p - r) - 1): R.do("F0")
        for _ in range(r): R.do("F1", "F0")
        for _ in range(p - r): R.do("F1", "I1", "W1")
        while R.n["F", 1] < n: R.do(*(["F0"] if R.n["F", 0] < n else []), "I0", "W0", "F1", "I1", "W1")
        for _ in range(r): R.do("I0", "I1")
        for _ in range(p - r): R.do("I0", "W0")
        while R.n["W", 1] < n or R.n["W", 0] < n: R.do(*(["W1"] if R.n["W", 1] < n else []), *(["W0"] if R.n["W", 0] < n else []))
        lists.append(R.out)
    return Schedule("ZBVZeroBubble", p, m, v_map(p), lists)

def dualpipe_v(p, m):
    """DualPipeV in its eight published steps; a pair that the runtime may overlap stands as F, then B. Needs m >= 2p."""
    if m < 2 * p: raise ScheduleError(f"DualPipeV needs at least {2 * p} micro-batches (two for each of {p} ranks), got {m}")
    lists = []
    for r in range(p):
        R, q = Rank(p, r, m), p - r - 1
        for _ in range(2 * q): R.do("F0")
        for _ in range(r + 1): R.do("F0", "F1")
        for _ in range(q): R.do("I1", "W", "F1")
        for _ in range(m - 2 * p + r + 1): R.do("F0", "B1", "F1", "B0")
        for _ in range(q): R.do("B1", "F1", "B0")
        for i in range(r + 1):                                 # the second half of these splits I from W
            late = i - (r + 1) // 2
            R.do("I1" if late > 0 or late == 0 and r % 2 else "B1", "I0" if late >= 0 else "B0")
        for _ in range(q): R.do("W", "I0")
        while R.todo: R.do("W")
        lists.append(R.out)
    return Schedule("DualPipeV", p, m, v_map(p), lists)

def write_csv(S):                                              # one row a rank, cells like 2F0
    return "".join(",".join(f"{a.stage}{a.kind}{a.mb}" for a in row) + "\n" for row in S.lists)

def read_csv(text, name="csv"):
    """Cells <stage><F|B|I|W><micro-batch>, empty = a bubble, ignored. p, m and the map are what the file says; then check()."""
    lists, rank_of, m = [], {}, 0
    for r, row in enumerate(csv.reader(io.StringIO(text))):
        lists.append([])
        for c, cell in enumerate(x.strip() for x in row):
            if not cell: continue
            hit = re.fullmatch(r"(\d+)([FBIW])(\d+)", cell)
            if not hit: raise ScheduleError(f"row {r + 1}, cell {c + 1}: '{cell}' is not <stage><F|B|I|W><micro-batch>")
            a = Action(hit[2], int(hit[1]), int(hit[3]))
            if rank_of.setdefault(a.stage, r) != r: raise ScheduleError(f"row {r + 1}: stage {a.stage} is already on rank {rank_of[a.stage]}")
            lists[-1].append(a); m = max(m, a.mb + 1)
    if sorted(rank_of) != list(range(len(rank_of))): raise ScheduleError(f"stages {sorted(rank_of)} are not 0..{len(rank_of) - 1}")
    return Schedule(name, len(lists), m, [rank_of[s] for s in sorted(rank_of)], lists)

# ---------------------------------------------------------------- 2 checker and abstract run
Dur = namedtuple("Dur", "F I W comm", defaults=(1, 1, 1, 0))
def length(d, kind): return d.I + d.W if kind == "B" else getattr(d, kind)

def slot_key(a): return ("I" if a.kind == "B" else a.kind, a.stage, a.mb)      # B provides what I provides

def needs(S, a):
    """Keys an action waits for: its own stage's earlier part, and the neighbour stage's message."""
    last = len(S.rank_of) - 1
    if a.kind == "F": return [("F", a.stage - 1, a.mb)] if a.stage else []
    if a.kind == "W": return [("I", a.stage, a.mb)]
    return [("F", a.stage, a.mb)] + ([("I", a.stage + 1, a.mb)] if a.stage < last else [])

Run = namedtuple("Run", "end makespan busy order")

def abstract_run(S, d=Dur()):
    """Virtual time: each rank does its list in order, an action starts when the rank is free and its inputs are there. Deadlock if
    the lists cannot be finished. Also the cost model. `order`: all actions by end; THE global sequence of section 3."""
    end, at, free, busy, wait, order = {}, [0] * S.p, [0] * S.p, [0] * S.p, defaultdict(list), []
    todo = list(range(S.p))
    while todo:
        r = todo.pop()
        while at[r] < len(S.lists[r]):
            a, t, miss = S.lists[r][at[r]], free[r], None
            for k in needs(S, a):
                if k not in end: miss = k; break
                t = max(t, end[k] + (d.comm if S.rank_of[k[1]] != r else 0))
            if miss: wait[miss].append(r); break
            free[r] = t + length(d, a.kind)
            busy[r] += length(d, a.kind); end[slot_key(a)] = free[r]; order.append((free[r], r, at[r], a)); at[r] += 1
            todo += wait.pop(slot_key(a), [])
    stuck = [f"rank {r} at {S.lists[r][at[r]]}" for r in range(S.p) if at[r] < len(S.lists[r])]
    if stuck: raise Deadlock(f"{S.name}: " + "; ".join(stuck))
    return Run(end, max(free), busy, [(r, a) for _, r, _, a in sorted(order)])

def check(S, bits=True):
    """Complete, on the right ranks, ordered, free of cycles. bits: each stage accumulates W in ascending micro-batch order (P5)."""
    seen = Counter(a for row in S.lists for a in row)
    for r, row in enumerate(S.lists):
        for a in row:
            if not (0 <= a.stage < len(S.rank_of) and 0 <= a.mb < S.m and a.kind in "FBIW"): raise ScheduleError(f"rank {r}: {a} is not of this schedule")
            if S.rank_of[a.stage] != r: raise ScheduleError(f"{a} stands on rank {r}, its stage lives on rank {S.rank_of[a.stage]}")
            if seen[a] > 1: raise ScheduleError(f"{a} stands {seen[a]} times")
    for s in range(len(S.rank_of)):
        for k in range(S.m):
            f, b, i, w = (seen[Action(x, s, k)] for x in "FBIW")
            if not f or (b, i, w) not in ((1, 0, 0), (0, 1, 1)): raise ScheduleError(f"stage {s}, micro-batch {k}: F {f}, B {b}, I {i}, W {w}")
    for row in S.lists:
        done, acc = set(), {}
        for a in row:
            for k in needs(S, a):
                if k[1] == a.stage and k not in done: raise ScheduleError(f"{a} stands before its {k[0]}")
            done.add(slot_key(a))
            if bits and a.kind in "BW":
                if acc.get(a.stage, -1) > a.mb: raise ScheduleError(f"stage {a.stage}: micro-batch {a.mb} is accumulated after {acc[a.stage]}")
                acc[a.stage] = a.mb
    return abstract_run(S)

def peaks(S):
    """Per (rank, stage): most values live at once. slot: F -> B|I; keep: F -> B|W (what W reads of the forward); wgrad: I -> W."""
    out = {}
    for r, row in enumerate(S.lists):
        live = Counter()
        for a in row:
            for cls, up, down in (("slot", "F", "BI"), ("keep", "F", "BW"), ("wgrad", "I", "W")):
                if a.kind in up: live[cls, a.stage] += 1; out[cls, a.stage] = max(out.get((cls, a.stage), 0), live[cls, a.stage])
                if a.kind in down: live[cls, a.stage] -= 1
    return out

# ---------------------------------------------------------------- 3 programs: where sends and receives stand
Item = namedtuple("Item", "what act peer", defaults=(None,))   # run a | send/recv the result of a to/from peer | wait for that send

def receiver(S, a):
    """Rank that gets a's result, or None: no neighbour, W, or the neighbour is on the same rank (the turn of a V: a local hand-over)."""
    t = a.stage + {"F": 1, "B": -1, "I": -1}.get(a.kind, -99)
    return S.rank_of[t] if 0 <= t < len(S.rank_of) and S.rank_of[t] != S.rank_of[a.stage] else None

def programs(S, rule="global", nbuf=2, order=None):
    """THE ISSUE ORDER RULE. Let G be the sequence of all actions by their end in the abstract run (any durations > 0; order = that of a
    run with the cost model's, tComm included, makes receives stand early enough), each followed at once by its message. A rank's program is the projection of G on that rank: its actions, its sends, its receives. `wait`: before a result goes
    into one of nbuf send buffers of a directed pair, the send that used it last has completed.
    rule "late" (what one writes first: send after the producer, receive right before the consumer) and "early" (all receives in
    the order of use, before everything) are here to show what they cost."""
    progs, sent = [[] for _ in range(S.p)], defaultdict(list)
    order = order or abstract_run(S).order
    for r, a in order:
        q = receiver(S, a)
        if rule == "late":
            for k in needs(S, a):
                if S.rank_of[k[1]] != r: progs[r].append(Item("recv", Action(*k), S.rank_of[k[1]]))
        if q is not None and nbuf and len(sent[r, q]) >= nbuf: progs[r].append(Item("wait", sent[r, q][-nbuf], q))
        progs[r].append(Item("run", a))
        if q is not None:
            msg = Action(*slot_key(a))
            sent[r, q].append(msg)
            progs[r].append(Item("send", msg, q))
            if rule != "late": progs[q].append(Item("recv", msg, r))
    if rule == "early": progs = [sorted(p, key=lambda x: x.what != "recv") for p in progs]
    return progs

def transport(S, progs, mode):
    """Run all ranks with rendezvous sends and UNTAGGED matching: the head of a queue meets the head of the peer's queue.
    block: a rank waits inside every send and receive (one thread, no buffer at all);
    queue: posts do not wait, but each rank has ONE queue for all peers, done in order (one NCCL communicator and stream);
    pair : posts do not wait, one FIFO for every directed pair (MPI, shared memory, a communicator a pair)."""
    at, fifo, done, todo = [0] * S.p, defaultdict(deque), set(), list(range(S.p))
    def lane(r, it): return (r,) if mode != "pair" else (r, it.peer, it.what)
    def meet(r, it):
        """Match heads of r's lane as long as it goes; returns the ranks that may go on."""
        woke = []
        while fifo[lane(r, it)]:
            x = fifo[lane(r, it)][0]
            want = "recv" if x.what == "send" else "send"
            other = fifo[lane(x.peer, Item(want, x.act, r))]
            if not other or other[0].peer != r or other[0].what != want: break
            if other[0].act != x.act: raise ScheduleError(f"rank {r} {x.what}s {x.act}, rank {x.peer} {want}s {other[0].act}")
            fifo[lane(r, x)].popleft(); done.update([(r, x.what, x.act), (x.peer, want, x.act)]); other.popleft()
            woke += [r, x.peer]
            if other: woke += meet(x.peer, other[0])
        return woke
    while todo:
        r = todo.pop()
        while at[r] < len(progs[r]):
            it = progs[r][at[r]]
            if it.what == "run":
                if any(S.rank_of[k[1]] != r and (r, "recv", Action(*k)) not in done for k in needs(S, it.act)): break
            elif it.what == "wait":
                if (r, "send", it.act) not in done: break
            elif (r, it.what, it.act) not in done:
                if it not in fifo[lane(r, it)]:
                    fifo[lane(r, it)].append(it)
                    todo += meet(r, it)
                if mode == "block" and (r, it.what, it.act) not in done: break
            at[r] += 1
    left = [f"rank {r} at {progs[r][at[r]]}" for r in range(S.p) if at[r] < len(progs[r])]
    left += [f"posted and never met: {q[0]}" for q in fifo.values() if q]
    if left: raise Deadlock(f"{S.name}, {mode}: " + "; ".join(left[:4]))

def timed(S, progs, d):
    """Makespan of programs under rendezvous with posts that do not wait: a transfer starts when both ends have posted, takes d.comm."""
    at, free, post, arrived, moved = [0] * S.p, [0] * S.p, {}, {}, True
    while moved:
        moved = False
        for r in range(S.p):
            while at[r] < len(progs[r]):
                it = progs[r][at[r]]
                ins = [(r, Action(*k)) for k in needs(S, it.act) if S.rank_of[k[1]] != r] if it.what == "run" else [(r, it.act)]
                if it.what in ("run", "wait"):
                    if any(k not in arrived for k in ins): break
                    free[r] = max([free[r]] + [arrived[k] for k in ins]) + (length(d, it.act.kind) if it.what == "run" else 0)
                else:
                    post[r, it.act], other = free[r], (it.peer, it.act)
                    if other in post: arrived[r, it.act] = arrived[other] = max(free[r], post[other]) + d.comm
                at[r] += 1; moved = True
    return max(free)

# ---------------------------------------------------------------- 4 slots and happens-before
Life = namedtuple("Life", "cls stage mb first last reader")     # first writer, last position held, last reader: positions in the program

def lives(S, progs):
    """What a rank keeps between actions. A receive writes its buffer from the moment it is POSTED, so a slot that holds the stage's
    input lives from the receive. out_F/out_I: send buffers, read until the send completes (a `wait` proves it)."""
    res = []
    for r, prog in enumerate(progs):
        pos = {(it.what, it.act if it.what != "run" else Action(*slot_key(it.act))): i for i, it in enumerate(prog)}
        full = {it.act for it in prog if it.what == "run" and it.act.kind == "B"}
        waits = {it.act: i for i, it in enumerate(prog) if it.what == "wait"}
        out = []
        for s in (s for s, q in enumerate(S.rank_of) if q == r):
            for k in range(S.m):
                f, i = pos["run", Action("F", s, k)], pos["run", Action("I", s, k)]
                w = i if Action("B", s, k) in full else pos["run", Action("W", s, k)]
                def since(a, own): return pos.get(("recv", a), pos.get(("run", a), own))       # receive, local hand-over, own action
                x = since(Action("F", s - 1, k), f)
                out += [Life("slot", s, k, x, i, i), Life("keep", s, k, x, w, w), Life("wgrad", s, k, since(Action("I", s + 1, k), i), w, w)]
                for kind, at in (("F", f), ("I", i)):
                    send = pos.get(("send", Action(kind, s, k)))
                    if send: out.append(Life("out_" + kind, s, k, at, waits.get(Action(kind, s, k), len(prog)), send))
        res.append(out)
    return res

def colour(life):
    """Interval colouring per (class, stage): the slot of each life and the number of slots, which equals the most live at once."""
    slot, free, busy, n = {}, defaultdict(list), defaultdict(list), Counter()
    for l in sorted(life, key=lambda l: l.first):
        c = (l.cls, l.stage)
        for e in [e for e in busy[c] if e[0] < l.first]: busy[c].remove(e); free[c].append(e[1])
        if not free[c]: free[c].append(n[c]); n[c] += 1
        slot[l] = min(free[c]); free[c].remove(slot[l]); busy[c].append((l.last, slot[l]))
    return slot, n

def reuse_is_ordered(S, progs, slots, event=True, waits=True):
    """For each slot: the last reader of one holder happens-before the first writer of the next, in the partial order of compute and
    comm queues. Clocks: (rank, queue) -> number of its items done. Edges: queue order; a post waits for an event of the compute
    queue (event); a run waits for its receives; a message joins both ends; `wait` joins the send (waits). Switch off = mutation."""
    clock = [[np.zeros(2 * S.p, int), np.zeros(2 * S.p, int)] for _ in range(S.p)]         # compute, comm
    start, end, posted, at, got = {}, {}, {}, [0] * S.p, {}
    todo = deque(range(S.p))
    def tick(r, q): clock[r][q][2 * r + q] += 1; return clock[r][q].copy()
    def join(r, q, c): np.maximum(clock[r][q], c, out=clock[r][q])
    while todo:
        r = todo.popleft()
        while at[r] < len(progs[r]):
            it, key = progs[r][at[r]], (r, at[r])
            if it.what == "run":
                ins = [(r, Action(*k)) for k in needs(S, it.act) if S.rank_of[k[1]] != r]
                for k in ins: join(r, 0, got[k])
                start[key] = clock[r][0].copy(); end[key] = tick(r, 0)
            elif it.what == "wait":
                if waits: join(r, 0, got[r, it.act])
                start[key] = clock[r][0].copy(); end[key] = tick(r, 0)
            else:                                              # program = projection of G: both ends reach it, in blocking order
                mine, theirs = (r, it.act), (it.peer, it.act)
                if mine not in posted:
                    if event: join(r, 1, clock[r][0])
                    start[key] = clock[r][1].copy(); posted[mine] = (key, start[key])
                    if theirs not in posted: break
                    (k2, c2) = posted[theirs]
                    for q, kk in ((r, key), (it.peer, k2)):
                        join(q, 1, np.maximum(start[key], c2)); end[kk] = tick(q, 1)
                    got[mine], got[theirs] = end[key], end[k2]
                    todo.append(it.peer)
                elif mine not in got: break
            at[r] += 1
    assert all(at[r] == len(progs[r]) for r in range(S.p))
    for r in range(S.p):
        held = defaultdict(list)
        for l in sorted(slots[r], key=lambda l: l.first): held[l.cls, l.stage, slots[r][l]].append(l)
        for key, ls in held.items():
            for old, new in zip(ls, ls[1:]):
                if not (start[r, new.first] >= end[r, old.reader]).all():
                    raise ScheduleError(f"rank {r} {key}: micro-batch {new.mb} may be written while {old.mb} is read")

# ---------------------------------------------------------------- 5 numerics: a small llama, split at block boundaries
class Model:
    """One micro-batch's graph from placement_spec (no mesh), differentiated on meanings, cut into stages by block. A stage's input
    cotangent is summed on the consumer's side, so one value crosses each way. I = the slice for the stage's input cotangent (on stage 0,
    which has none: for that of its first block; else I is empty there and every value lives to W), W = the rest."""
    def __init__(self, stages, L=8, T=5, tied=True):
        import placement_spec as ps
        self.ps, self.c, self.T, self.S = ps, ps.Cfg(V=11, D=8, H=2, K=1, hd=4, F=6, L=L, tied=tied), T, stages
        g = self.g = ps.Graph(ps.Mesh([]))
        P = {n: g.leaf("param", n, d) for n, d in ps.param_dims(self.c).items()}
        inv = g.leaf("input", "inv_n", [])
        inp = [g.leaf("input", f"{s}0", [ps.Dim(T, "tokens")]) for s in ("ids", "pos", "seg", "lab")]
        self.loss = g.op("scale", ps.forward(g, self.c, P, inp), inv)
        self.cots = ps.backward(g, self.loss)                  # name -> one cotangent a fetch: two for the tied embedding
        leaf = lambda n: n.op in ("input", "param", "fetch")
        self.leaf = {n.id for n in g.nodes if leaf(n)}
        self.at = {}
        for n in g.nodes:
            l = n.layer
            self.at[n.id] = 0 if l is None else stages - 1 if l == "head" else l * stages // L
            if n.phase == "bwd" and n.op == "add": self.at[n.id] = min(self.at[v.id] for v in n.ins)   # sum before crossing
        body = [n for n in g.nodes if n.id not in self.leaf]
        self.part, self.x, self.dy = defaultdict(list), {}, {}
        for n in body:
            for v in n.ins:
                if v.id not in self.leaf and self.at[v.id] != self.at[n.id]:
                    into = self.x if v.phase == "fwd" else self.dy
                    assert abs(self.at[v.id] - self.at[n.id]) == 1 and into.setdefault(self.at[n.id], v) is v, "one value crosses"
        for s in range(stages):
            bwd = [n for n in body if n.phase == "bwd" and self.at[n.id] == s]
            goal = {self.dy[s - 1].id} if s else {v.id for n in bwd if n.op == "embedding_dw" for v in n.ins}
            for n in reversed(bwd):
                if n.id in goal: goal.update(v.id for v in n.ins)
            self.part["F", s] = [n for n in body if n.phase == "fwd" and self.at[n.id] == s]
            self.part["I", s] = [n for n in bwd if n.id in goal]
            self.part["W", s] = [n for n in bwd if n.id not in goal]
            reads = {k: {v.id for n in self.part[k, s] for v in n.ins} - self.leaf for k in "IW"}
            fwd = {n.id for n in self.part["F", s]} | ({self.x[s].id} if s else set())
            self.part["slot", s], self.part["keep", s] = fwd & reads["I"] - reads["W"], fwd & reads["W"]
            self.part["wgrad", s] = reads["W"] - fwd | ({self.dy[s].id} if s in self.dy else set())
            self.part["uses", s] = [(name, n) for name, ns in self.cots.items() for n in ns if self.at[n.id] == s]

    def eval(self, nodes, env, feeds, mb):
        for n in nodes:
            args = [self.value(v, env, feeds, mb) for v in n.ins]
            env[n.id] = self.ps.OPS[n.op].fn(self.ps.Ctx(n), *args)

    def value(self, v, env, feeds, mb):
        if v.id not in self.leaf: return env[v.id]
        name = (v.ins[0] if v.op == "fetch" else v).attrs["name"]
        return feeds[name[:-1] + str(mb)] if name in ("ids0", "pos0", "seg0", "lab0") else feeds[name]

    def unsplit(self, feeds, m):
        body, acc, loss = [n for n in self.g.nodes if n.id not in self.leaf], {}, 0.0
        for k in range(m):
            env = {}
            self.eval(body, env, feeds, k)
            loss = loss + env[self.loss.id]
            for name, ns in self.cots.items():
                t = env[ns[0].id]
                for n in ns[1:]: t = t + env[n.id]
                acc[name] = acc[name] + t if name in acc else t
        return acc, loss

def execute(S, model, feeds, progs=None, slots=None, seed=0, one_tied=False):
    """All ranks, in random interleaving, FIFO channels, values only in the slots of section 4 (freed slots are emptied). Returns
    gradients and loss. one_tied: the mutation where a V's rank adds both uses of the tied embedding into one accumulator."""
    progs = progs or programs(S)
    slots = slots or [colour(l)[0] for l in lives(S, progs)]
    where = [{(l.cls, l.stage, l.mb): (l.cls, l.stage, i) for l, i in sl.items()} for sl in slots]
    mem, chan, acc, loss, at = [defaultdict(dict) for _ in progs], defaultdict(deque), {}, 0.0, [0] * S.p
    ready, rng = set(range(S.p)), random.Random(seed)
    def put(r, s, k, vid, val):
        for cls in ("slot", "keep", "wgrad"):
            if vid in model.part[cls, s]: mem[r][where[r][cls, s, k]][vid] = val
    while ready:
        r = rng.choice(sorted(ready))
        if at[r] == len(progs[r]): ready.discard(r); continue
        it = progs[r][at[r]]
        kind, s, k = it.act
        if it.what == "recv":
            if not chan[it.peer, r]: ready.discard(r); continue
            t = s + (1 if kind == "F" else -1)
            vid = (model.x if kind == "F" else model.dy)[t].id
            mem[r][where[r]["slot" if kind == "F" else "wgrad", t, k]]["in"] = val = chan[it.peer, r].popleft()
            put(r, t, k, vid, val)
        elif it.what == "run":
            env = {}
            for cls in {"F": (), "W": ("keep", "wgrad")}.get(kind, ("slot", "keep", "wgrad")): env.update(mem[r][where[r][cls, s, k]])
            if kind == "F":
                if s: env[model.x[s].id] = mem[r][where[r]["slot", s, k]]["in"]
                model.eval(model.part["F", s], env, feeds, k)
                if s == len(S.rank_of) - 1: loss = loss + env[model.loss.id]
                for vid in env: put(r, s, k, vid, env[vid])
                out = model.x.get(s + 1)
            else:
                if kind in "BI": model.eval(model.part["I", s], env, feeds, k)
                if kind == "I":
                    for vid in model.part["wgrad", s] & set(env): put(r, s, k, vid, env[vid])
                if kind in "BW":
                    model.eval(model.part["W", s], env, feeds, k)
                    for name, n in model.part["uses", s]:
                        key = (name, 0 if one_tied and r == S.rank_of[0] else s)
                        acc[key] = acc[key] + env[n.id] if key in acc else env[n.id]
                out = model.dy.get(s - 1) if kind in "BI" else None
                for cls in {"B": ("slot", "keep", "wgrad"), "I": ("slot",), "W": ("keep", "wgrad")}[kind]: mem[r][where[r][cls, s, k]].clear()
            if out is not None:
                if receiver(S, it.act) is not None: held = env[out.id]; mem[r]["out", Action(*slot_key(it.act))] = held
                else:
                    t = s + (1 if kind == "F" else -1)
                    mem[r][where[r]["slot" if kind == "F" else "wgrad", t, k]]["in"] = env[out.id]
                    put(r, t, k, out.id, env[out.id])
        elif it.what == "send":
            chan[r, it.peer].append(mem[r].pop(("out", it.act)))
            ready.add(it.peer)
        at[r] += 1
    if any(at[r] < len(progs[r]) for r in range(S.p)): raise Deadlock("numerics: a rank waits for ever")
    grads = {}
    for name, s in sorted(acc, key=lambda x: x[1]): grads[name] = grads[name] + acc[name, s] if name in grads else acc[name, s]
    return grads, loss

if __name__ == "__main__":
    import pipeline_tests
    pipeline_tests.main()
