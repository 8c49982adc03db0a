#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The slow checks on a GPU: compute-sanitizer over the kernels' tests, and ncu of the five kernels that take most of a step.
#   TOOLS="memcheck racecheck initcheck" OPS="rms_norm,attention*" bench/gpu/check.sh
. "$(dirname "$0")/lib.sh"
failed=0
export TT_OPS_TRIALS="${TT_OPS_TRIALS:-2}"
[ -z "${OPS-}" ] || export TT_OPS="$OPS"
if command -v compute-sanitizer >/dev/null 2>&1; then
    for tool in ${TOOLS:-memcheck racecheck}; do
        timeout 280 compute-sanitizer --tool "$tool" --error-exitcode 9 "$tests/test_cuda_ops" >"$out/$tool.log" 2>&1
        rc=$?
        [ $rc -eq 0 ] || failed=1
        echo "$tool: status $rc, $(grep -c '=========' "$out/$tool.log") lines in $out/$tool.log"
        # larger shapes of the kernels that walk along tiles of keys, values and states
        TT_OPS="${OPS:-delta_rule*,latent_cached,attention_max}" timeout 280 compute-sanitizer --tool "$tool" --error-exitcode 9 "$tests/test_cuda_rows" >"$out/$tool-rows.log" 2>&1
        rc=$?
        [ $rc -eq 0 ] || failed=1
        echo "$tool of long rows: status $rc, $(grep -c '=========' "$out/$tool-rows.log") lines in $out/$tool-rows.log"
    done
else
    echo "compute-sanitizer is not on PATH"
fi
if command -v ncu >/dev/null 2>&1; then
    job debug 3
    timeout 200 ncu --clock-control none --csv --page raw --metrics gpu__time_duration.sum,sm__throughput.avg.pct_of_peak_sustained_elapsed,gpu__dram_throughput.avg.pct_of_peak_sustained_elapsed \
        "$root/ttrun" -q "$work/job.json" --dump_folder "$work/ncu" --resume never --debug.capture off >"$out/ncu.csv" 2>"$out/ncu.log"
    python3 - "$out/ncu.csv" <<'PY'
import collections, csv, sys
rows = [r for r in csv.reader(l for l in open(sys.argv[1]) if l.startswith('"'))]
if rows:
    at = {n: i for i, n in enumerate(rows[0])}
    kernel, time = at["Kernel Name"], at["gpu__time_duration.sum"]
    sums = collections.defaultdict(lambda: [0.0, 0, 0.0, 0.0])
    for r in rows[2:]:
        s = sums[r[kernel]]
        t = float(r[time].replace(",", ""))
        s[0] += t
        s[1] += 1
        s[2] += t * float(r[time + 1] or 0) if time + 1 < len(r) else 0
    for name, s in sorted(sums.items(), key=lambda x: -x[1][0])[:5]:
        print(f"{s[0] / 1e3:10.1f} us in {s[1]:5d} launches  {name}")
PY
else
    echo "ncu is not on PATH"
fi
exit $failed
