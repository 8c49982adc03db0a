#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests and mutations of pipeline_spec.py, which see.   python3 pipeline_spec.py [long] [check|transport|table|torch|slots|csv|numerics|mutations]"""
import itertools, random, sys, time
from collections import Counter, defaultdict
from pipeline_spec import *

def published(P, M, V=3):
    for p, m in itertools.product(range(1, P + 1), range(1, M + 1)):
        yield from (gpipe(p, m), one_f_one_b(p, m), zbv(p, m))
        if m >= 2 * p: yield dualpipe_v(p, m)
        for v in range(1, V + 1): yield from (interleaved(p, v, m), looped_bfs(p, v, m), interleaved_zb(p, v, m))

def random_schedule(rng, ascending=True):
    """Any acyclic schedule on any map of stages to ranks: at each step a random ready action of a random rank."""
    p, n, m = rng.randint(1, 4), rng.randint(1, 6), rng.randint(1, 6)
    rank_of = list(range(p)) + [rng.randrange(p) for _ in range(n)]
    rng.shuffle(rank_of)
    S = Schedule("random", p, m, rank_of, [[] for _ in range(p)])
    left = {Action(x, s, k) for s in range(len(rank_of)) for k in range(m) for x in (("B",) if rng.random() < .5 else ("I", "W")) + ("F",)}
    done = set()
    while left:
        ok = [a for a in sorted(left) if all(k in done for k in needs(S, a)) and
              not (ascending and a.kind in "BW" and any(b.kind in "BW" and b.stage == a.stage and b.mb < a.mb for b in left))]
        a = rng.choice(ok)
        left.remove(a); done.add(slot_key(a)); S.lists[rank_of[a.stage]].append(a)
    return S

def refused(fn, *a, **kw):
    try: fn(*a, **kw)
    except (ScheduleError, KeyError): return True
    return False

def slots_of(S, progs): return [colour(l)[0] for l in lives(S, progs)]

def test_check(long):
    n = 0
    for S in published(*(16, 64) if long else (8, 32)): check(S); n += 1
    print(f"check: {n} schedules complete, ordered, free of cycles, W ascending; DualPipeV with m < 2p refused: {refused(dualpipe_v, 4, 7)}")

def test_transport(long):
    rng, bad, n = random.Random(1), Counter(), 0
    some = itertools.chain(published(*(16, 24) if long else (6, 9)), (random_schedule(rng) for _ in range(3000 if long else 400)))
    for S in some:
        n += 1
        for rule, mode in itertools.product(("global", "late", "early"), ("block", "queue", "pair")):
            order = abstract_run(S, Dur(*(rng.uniform(.1, 4) for _ in range(4)))).order if n % 2 else None      # G of any durations
            bad[rule, mode] += refused(transport, S, programs(S, rule, 1 + n // 2 % 2, order), mode)
    print(f"transport: {n} schedules, 1 or 2 send buffers, G of unit or random durations; deadlocked or mismatched, by issue rule:")
    for rule in ("global", "late", "early"): print(f"  {rule:7}", *(f"{mode} {bad[rule, mode]}" for mode in ("block", "queue", "pair")))
    assert not any(bad["global", x] for x in ("block", "queue", "pair"))
    print("  blocking rendezvous, all published:", sum(transport(S, programs(S), "block") is None for S in published(*(16, 32) if long else (8, 32))))

def test_table(long):
    p = 4
    print("table, p = 4, tF = tI = tW = 1 a stage: makespan (formula), bubble per rank %, most live on a rank in whole-rank units: F->I, F->W")
    for m in (8, 16):
        rows = [(gpipe(p, m), 3 * (m + p - 1)), (one_f_one_b(p, m), 3 * (m + p - 1)), (interleaved(p, 2, m), 3 * (2 * m + p - 1)),
                (looped_bfs(p, 2, m), 3 * (2 * m + p - 1)), (interleaved_zb(p, 1, m), 3 * m + p - 1),
                (interleaved_zb(p, 2, m), 6 * m + p - 1), (zbv(p, m), 6 * m + p - 1), (dualpipe_v(p, m), 6 * m + p - 1)]
        for S, want in rows:
            run, v, pk = check(S), len(S.rank_of) // p, peaks(S)
            live = {c: [0] * p for c in ("BI", "BW")}
            for r, row in enumerate(S.lists):
                for c in live: live[c][r] = max(itertools.accumulate((a.kind == "F") - (a.kind in c) for a in row)) / v
            bub = [100 * (1 - b / run.makespan) for b in run.busy]
            print(f"  {S.name:22} v{v} m{m:3}: {run.makespan:4} ({want:4}) {'' if run.makespan == want else 'DIFFERS'} bubble {min(bub):5.1f}-{max(bub):5.1f}"
                  f"  F->I {live['BI']}  F->W {live['BW']}  keep slots {[pk['keep', s] for s in range(len(S.rank_of))]}")

def test_cost(long):
    print("cost: makespan if transfers start at once | G of tComm = 0 | G of the true tComm (one and two send buffers); p = 4, m = 16")
    for c in (.1, .5, 1):
        for S in (one_f_one_b(4, 16), interleaved(4, 2, 16), interleaved_zb(4, 1, 16), interleaved_zb(4, 2, 16), zbv(4, 16), dualpipe_v(4, 16)):
            d = Dur(comm=c)
            run = abstract_run(S, d)
            got = [timed(S, programs(S, nbuf=n, order=o), d) for n, o in ((2, None), (1, run.order), (2, run.order))]
            assert abs(got[2] - run.makespan) < 1e-9 or long and got[2] <= run.makespan * 1.001, (S.name, got, run.makespan)
            print(f"  tComm {c:3} {S.name:22} v{len(S.rank_of) // 4} {run.makespan:6.1f} | {got[0]:6.1f} | {got[1]:6.1f} {got[2]:6.1f}")

def oracle(p, m):
    """PyTorch's action lists for the same (p, m, v), without its processes; (ours, theirs) pairs, theirs None where it refuses."""
    import torch.distributed.pipelining.schedules as T
    def theirs(cls, v, rank_of):
        lists = []
        for r in range(p):
            o = object.__new__(cls)
            n = max(1, m // p)
            o.__dict__.update(pp_group_size=p, n_local_stages=v, _n_microbatches=m, _num_stages=p * v, num_stages=p * v, rank=r,
                              number_of_rounds=n, microbatches_per_round=m // n, _stages=[None] * v)
            rank_list = getattr(o, "_calculate_single_rank_operations", None)
            row = rank_list(r) if rank_list else o._get_pipeline_order()[r]
            flat = [b for a in row if a is not None for b in (a.sub_actions or (a,))]
            lists.append([Action(str(b.computation_type.value), b.stage_index, b.microbatch_index) for b in flat if b.computation_type.value in set("FIBW")])
        return Schedule("torch " + cls.__name__, p, m, rank_of, lists)
    yield gpipe(p, m), theirs(T.ScheduleGPipe, 1, loop_map(p, 1))
    t = theirs(T.Schedule1F1B, 1, loop_map(p, 1))              # its drawing numbers the last rank's forwards 1..m and has too many if m < p
    t.lists[-1][:] = [a._replace(mb=a.mb - (a.kind == "F")) for a in t.lists[-1]]
    yield one_f_one_b(p, m), t._replace(lists=[[a for a in row if a.mb < m] for row in t.lists])
    even = m % max(1, m // p) == 0
    for v in (1, 2, 3):
        if v > 1: yield interleaved(p, v, m), theirs(T.ScheduleInterleaved1F1B, v, loop_map(p, v)) if even else None
        yield looped_bfs(p, v, m), theirs(T.ScheduleLoopedBFS, v, loop_map(p, v))
        yield interleaved_zb(p, v, m), theirs(T.ScheduleInterleavedZeroBubble, v, loop_map(p, v)) if even else None
    yield zbv(p, m), theirs(T.ScheduleZBVZeroBubble, 2, v_map(p))
    if m >= 2 * p: yield dualpipe_v(p, m), theirs(T.ScheduleDualPipeV, 2, v_map(p))

def test_torch(long):
    try: import torch.distributed.pipelining.schedules                    # noqa: the oracle is optional
    except ImportError: return print("torch: not importable, comparison left out")
    res, worst = defaultdict(Counter), {}
    for p, m in itertools.product(range(2, 17 if long else 9), range(1, 49 if long else 25)):
        for S, t in oracle(p, m):
            if t is None: res[S.name]["torch refuses"] += 1; continue
            try: o = check(t, bits=False).makespan
            except ScheduleError as e: res[S.name]["torch's list fails: " + type(e).__name__] += 1; worst.setdefault(S.name, (p, m, str(e)[:90])); continue
            mine = abstract_run(S).makespan
            res[S.name]["same lists" if S.lists == t.lists else "equal" if mine == o else "better" if mine < o else "worse"] += 1
            res[S.name]["torch's W not ascending"] += refused(check, t)
            if mine > o: worst[S.name] = (p, m, len(S.rank_of) // p, mine, o)
    for name, c in res.items(): print(f"  torch {name:22}", dict(+c), worst.get(name, ""))

def test_slots(long):
    n, rng, more = 0, random.Random(2), Counter()
    for S in itertools.chain(published(6 if long else 4, 16 if long else 9), (random_schedule(rng) for _ in range(100))):
        progs, pk = programs(S), peaks(S)
        for l in lives(S, progs):
            _, count = colour(l)
            for (cls, s), k in count.items():                  # colours = most live; receives posted early may add to the F -> B count
                at = [sum(x.first <= i <= x.last for x in l if (x.cls, x.stage) == (cls, s)) for i in {x.first for x in l}]
                assert k == max(at) and k >= pk.get((cls, s), 0)
                if S.name != "random" and cls != "wgrad" and cls[:3] != "out": more[k - pk[cls, s]] += 1
        reuse_is_ordered(S, progs, slots_of(S, progs)); n += 1
    print(f"slots: {n} schedules: colours = most live at once; every reuse happens-after the last reader")
    print(f"  slots more than micro-batches in flight, because a receive is posted early: {dict(more)}")

def test_csv(long):
    for S in published(4, 8): assert read_csv(write_csv(S), S.name)[1:] == S[1:]
    bad = ["0F0,0X0\n", "0F0,0B0\n0F1,0B1\n", "1F0,1B0\n", "0F0\n", "0B0,0F0\n", "0F0,0I0,0B0,0W0\n"]
    assert all(refused(lambda t: check(read_csv(t)), t) for t in bad) and check(read_csv("0F0,,0I0,0W0\n")).makespan == 3
    print(f"csv: write/read is the identity; {len(bad)} bad files refused")

def test_numerics(long):
    import placement_spec as ps
    m, models, n, worst, rng = 8, {}, 0, 0.0, random.Random(3)
    for tied in (True, False):
        one = Model(1, tied=tied)
        feeds = ps.feeds_for(one.c, one.T, 1, 24)
        base = {k: one.unsplit(feeds, k) for k in range(1, 13)}
        two = {}
        S4 = [one_f_one_b(p, k) for p, k in ((4, 8), (2, 8))] + [S for p, k in ((4, 8), (3, 7), (4, 12)) for S in (
              gpipe(p, k), one_f_one_b(p, k), interleaved(p, 2, k), looped_bfs(p, 2, k), interleaved_zb(p, 1, k), interleaved_zb(p, 2, k), zbv(p, k),
              *([dualpipe_v(p, k)] if k >= 2 * p else []))]
        S4 += [S for S in (random_schedule(rng, i % 2) for i in range(120 if long else 30)) if len(S.rank_of) <= 8]
        for S in S4:
            M = models.setdefault((len(S.rank_of), tied), Model(len(S.rank_of), tied=tied))
            g, loss = execute(S, M, feeds, seed=n)
            ref, l0 = base[S.m]
            worst = max([worst, abs(loss - l0)] + [float(abs(g[k] - ref[k]).max()) for k in ref]); n += 1
            if refused(check, S): continue                     # W not ascending: right to 1e-9, bits not promised
            first = two.setdefault((S.m, len(S.rank_of) > 1), g)
            assert all((g[k] == first[k]).all() for k in ref), S.name
            if tied and len(S.rank_of) == 1: continue
            assert all((g[k] == ref[k]).all() for k in ref if not (tied and k == "embed")), S.name
    assert worst < 1e-9
    print(f"numerics: {n} runs, worst error {worst:.2g}; bitwise equal across all schedules and cuts with W ascending, and to the unsplit graph,")
    print("  but the tied embedding: equal across all cuts of >= 2 stages, to rounding with the unsplit graph's single accumulator")

def test_mutations(long):
    import placement_spec as ps
    rng, M = random.Random(4), {n: Model(n) for n in (4, 8)}
    feeds, c = ps.feeds_for(M[4].c, 5, 1, 8), Counter()
    all4 = [gpipe(4, 8), one_f_one_b(4, 8), interleaved(4, 2, 8), interleaved_zb(4, 1, 8), interleaved_zb(4, 2, 8), zbv(4, 8), dualpipe_v(4, 8)]
    ref, _ = execute(all4[1], M[4], feeds)
    for S in all4:
        for _ in range(400 if long else 60):                   # swap two actions: refused, or still a right schedule with the same bits
            lists = [list(x) for x in S.lists]
            row = rng.choice(lists); i, j = rng.sample(range(len(row)), 2); row[i], row[j] = row[j], row[i]
            X = S._replace(lists=lists)
            if refused(check, X): c["swap refused"] += 1; continue
            c["swap harmless"] += 1
            for mode in ("block", "queue", "pair"): transport(X, programs(X), mode)
            if c["swap harmless"] % 8 == 0: g, _ = execute(X, M[len(X.rank_of)], feeds); assert all((g[k] == ref[k]).all() for k in ref)
        progs = programs(S)
        for _ in range(20):
            P = [list(x) for x in progs]                       # drop a receive, drop a send, swap two receives of one pair
            r = rng.randrange(4)
            comm = [i for i, it in enumerate(P[r]) if it.what == "recv"]
            i = rng.choice(comm); x = P[r].pop(i)
            assert all(refused(transport, S, P, mode) for mode in ("block", "queue", "pair")); c["recv dropped"] += 1
            j = rng.choice([j for j, it in enumerate(P[r]) if it.what == "recv" and it.peer == x.peer])
            P[r].insert(i, P[r][j if j < i else j]); P[r][j + (j >= i)] = x
            assert all(refused(transport, S, P, mode) for mode in ("block", "queue", "pair")); c["recvs swapped"] += 1
        sl = slots_of(S, progs)
        reuse_is_ordered(S, progs, sl)
        for r in range(4):                                     # one slot fewer than live at once
            for cls in ("slot", "keep", "wgrad"):
                s = max(s for s, q in enumerate(S.rank_of) if q == r)
                mine = [l for l in sl[r] if (l.cls, l.stage) == (cls, s)]
                if max(sl[r][l] for l in mine) == 0: continue
                few = [dict(x) for x in sl]
                few[r].update({l: min(sl[r][l], max(sl[r][l] for l in mine) - 1) for l in mine})
                assert refused(reuse_is_ordered, S, progs, few); c["slot reused early"] += 1
                try: g, _ = execute(S, M[len(S.rank_of)], feeds, progs, few); wrong = any((g[k] != ref[k]).any() for k in ref)
                except KeyError: wrong = True
                c["   and wrong numbers or a missing value"] += wrong
        c["receive posted without a compute event, caught"] += refused(reuse_is_ordered, S, progs, sl, event=False)
        c["send buffer reused without a wait, caught"] += refused(reuse_is_ordered, S, progs, sl, waits=False)
        g, _ = execute(S, M[len(S.rank_of)], feeds, one_tied=True)
        c["one accumulator for both tied uses: other bits in " + S.name] += any((g[k] != ref[k]).any() for k in ref)
    lists = [list(x) for x in all4[1].lists]
    for bad in (lists[:1] + [lists[1] + [lists[1][-1]]] + lists[2:], lists[:1] + [lists[1][:-1]] + lists[2:], lists[::-1]):
        assert refused(check, all4[1]._replace(lists=bad))
    print("mutations:"); [print(f"  {k}: {v}") for k, v in (+c).items()]

TESTS = {k[5:]: f for k, f in list(globals().items()) if k.startswith("test_")}

def main():
    names, long = [a for a in sys.argv[1:] if a != "long"], "long" in sys.argv
    for name in names or TESTS:
        t0 = time.time()
        TESTS[name](long)
        print(f"  [{name} {time.time() - t0:.1f} s]", flush=True)
    print("ok")
