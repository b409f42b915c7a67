#!/usr/bin/env bash
# Memory is predicted to the byte, `check --fit` says what fits and why not, `compare` ranks layouts
# that did equal work and refuses the rest.
. "$(dirname "$0")/lib.sh"

study="$bin/scalestudy" report="$bin/scalereport"
short=(-w 2 --min-steps 6 --max-steps 6 --block 2 --timeout 120)

# ---- a study of several layouts: the arenas are as predicted ----
run mpi 2 "$study" --layout 1x2 --points 1x2 --parallel dp=2 --parallel shard=2 --parallel tp=2 --global-batch 8 \
    "${short[@]}" --out layouts.h5
expect_exit 0
"$report" layouts.h5 --json >layouts.json
check "predictions are exact in all classes of all layouts; the process is within 3 % or 1 GiB" python3 - <<'PY'
import json
runs = json.load(open("layouts.json"))["studies"][0]["runs"]
classes = "parameters gradients optimizer activations temporaries communication reserved".split()
assert len(runs) == 3
for run in runs:
    memory = run["memory"]
    for name in classes:
        peak, predicted = memory[name + "_peak_bytes"], memory[name + "_predicted_bytes"]
        assert peak == predicted, (name, peak, predicted)
        assert peak > 0 or name == "gradients", name
    peak, predicted = memory["process_peak_bytes"], memory["process_predicted_bytes"]
    print("process %d B, predicted %d B" % (peak, predicted))
    assert abs(peak - predicted) <= max(0.03 * predicted, 2 ** 30)
    assert "scratch copies" in memory["temporaries_largest"], memory
# Those of shard=2 lie among the activations.
assert sum(run["memory"]["gradients_peak_bytes"] == 0 for run in runs) == 1
PY
run "$report" layouts.h5
expect_stdout "# memory by class, of the rank that holds most" "gemm 128 x 128 x 64, fp32, layer 0"

# ---- what does not fit is refused before anything is allocated, by what takes most ----
refuses 6 "of it for activations (largest: gemm 16384 x 128256 x 4096, fp32" \
    "$study" --layout 1x1 --model llama-8b --micro-batch 4 --sequence 4096 --device timed --topology h100-8x400g
refuses 6 "a device of h100-8x400g has 80.0 GB" \
    mpi 2 "$study" --layout 1x2 --model llama-8b --device timed --topology h100-8x400g --parallel dp=2
refuses 6 "of it for optimizer (largest: head.weight 128256 x 8192, fp32" \
    "$study" --layout 1x1 --model llama-70b --sequence 128 --validate --scratch recreate
refuses 6 "of it for temporaries (largest: scratch copies, " "$study" --layout 1x1 --model llama-70b --sequence 128 --validate

# ---- which layouts fit ----
fit=("$report" check --fit --layout 1x2 --model llama-8b -d bf16 --memory 141GB --micro-batch 2,1 --sequence 4096)
run "${fit[@]}"
expect_exit 0
expect_stdout "42 choices with shard stages, recomputation and micro-batches: 30 fit"
check "packed, the same change leaves less" grep -qE '^ +dp=2 +153\.99 +-14\.60 +shard=2, stage 3 +90\.77 +63\.21 +PASS' "$scratch/stdout"
run "${fit[@]}" --pack off
expect_exit 0
expect_stdout "a device has 141.0 GB; 1.6 GB of it are kept" "5 ways to split the ranks are legal, 42 choices" \
    "96.4 GB of it for optimizer (largest: head.weight 128256 x 4096, fp32, 2.10 GB)" "buys: bytes, and step"
check "what one change buys" grep -qE '^ +dp=2 +183\.69 +-44\.31 +recompute=full +150\.37 +33\.32 +FAIL' "$scratch/stdout"
check "sharding makes it fit" grep -qE '^ +dp=2 +183\.69 +-44\.31 +shard=2, stage 3 +112\.31 +71\.38 +PASS' "$scratch/stdout"
run "${fit[@]}" --pack off --csv
expect_exit 0
check "CSV: what fits comes first, and fits; sums of classes" python3 - "$scratch/stdout" <<'PY'
import csv, sys
rows = list(csv.DictReader(open(sys.argv[1])))
assert len(rows) == 42
fits = [r["memory"] for r in rows]
assert fits == sorted(fits, reverse=True) and fits.count("PASS") == 28, fits
for r in rows:
    need = int(r["bytes"]) + float(r["beside_bytes"]) - float(r["capacity_bytes"])
    assert abs(need - float(r["over_bytes"])) < 1 and (need <= 0) == (r["memory"] == "PASS")
    assert int(r["bytes"]) == sum(int(r[c + "_bytes"]) for c in
        "parameters gradients optimizer activations temporaries communication".split())
    assert r["step_ms"] == "" and r["modelled_ms"] == ""
PY
run "$report" check --fit --layout 1x2 --model tiny --memory 8GB --micro-batch 2 layouts.h5 --json
expect_exit 0
check "step times that were measured stand beside the choices, fastest first" python3 - "$scratch/stdout" <<'PY'
import json, sys
answer = json.load(open(sys.argv[1]))
assert answer["measured"] == 3 and answer["gbs"] == 8, answer["measured"]
times = [c["step_ms"] for c in answer["choices"]]
known = [t for t in times if t is not None]
assert len(known) == 3 and times[:3] == sorted(known), times
assert any(c["change"] == "recompute=full" and c["saves_bytes"] > 0 and c["step_ms"] for c in answer["changes"])
PY
# Sizes of a small model are in its unit, and nothing that is there is printed as 0.00.
run "$report" check --fit --layout 1x2 --model tiny --memory 8MB --beside 0.0001GB --micro-batch 2
expect_exit 0
expect_stdout "a device has 8.0 MB; 100.0 kB of it are kept" "params_MB grads_MB"
check "the class that takes most, in a unit that fits" grep -qE ' [0-9]+\.[0-9] [kM]B of it for [a-z]+ \(largest: .* [0-9]+\.[0-9]+ [kM]B\)' "$scratch/stdout"
check "of changes too" grep -qE '^# +parallel +rank_MB +room_MB +change +then_MB +saves_MB' "$scratch/stdout"
check "no gigabytes" sh -c "! grep -q GB '$scratch/stdout'"
check "each choice holds parameters" awk '/^#.*params_MB/ { rows = 1; next } /^#/ { rows = 0 } rows { n++; bad += !($5 > 0) } END { exit bad || !n }' "$scratch/stdout"
run "$report" check --fit --layout 8x8 --model llama-70b -d bf16 --topology h100-8x400g --parallel tp=8 --sequence 4096
expect_exit 0
check "only degrees that were left open are tried" sh -c "! grep -E '^ +(dp|shard|pp)' '$scratch/stdout' | grep -v tp=8"
refuses 6 "wanted --memory such as 141GB, or --topology" "$report" check --fit --layout 1x2
refuses 6 "--memory: found \"141\", wanted a size above 0 with its unit" "$report" check --fit --layout 1x2 --memory 141
refuses 6 "--memory: found \"0GB\", wanted a size above 0 with its unit" "$report" check --fit --layout 1x2 --memory 0GB
refuses 6 "--memory: found \"\", wanted 141GB; leave the option out for none" "$report" check --fit --layout 1x2 --memory ""
refuses 6 "--beside: found \"-1GB\", wanted a size from 0 with its unit" "$report" check --fit --layout 1x2 --memory 1GB --beside -1GB
refuses 6 "--beside: found \"0x\", wanted a size from 0 with its unit" "$report" check --fit --layout 1x2 --memory 1GB --beside 0x
refuses 6 "--capacity: found \"1e9\", wanted auto, none or a factor above 0, at most 1e6" \
    "$report" check --fit --layout 1x2 --memory 1GB --capacity 1e9
for nothing in 0GiB 0.0MB 0; do
    run "$report" check --fit --layout 1x2 --memory 1GB --micro-batch 2 --beside $nothing
    expect_exit 0
    expect_stdout "1.0 GB; 0 B of it are kept"
done
# What was measured under another policy is not beside these choices, and the first difference is named.
for other in "--pack off" "--bucket 1M"; do
    # shellcheck disable=SC2086
    run "$report" check --fit --layout 1x2 --model tiny --memory 8GB --micro-batch 2 $other layouts.h5
    expect_exit 0
    expect_stdout "# step_ms: 0 choices are measured" "rows of the same work under another policy: ${other% *} "
done
refuses 6 "no way to split gpt2-1558m over 2 ranks is legal; one of them: " \
    "$report" check --fit --layout 1x2 --memory 1GB --model gpt2-1558m --parallel tp=2
refuses 6 "--micro-batch: found \"2,0\"" "$report" check --fit --layout 1x2 --memory 1GB --micro-batch 2,0

# ---- layouts ranked at equal work ----
run mpi 2 "$study" --layout 1x2 --points 1x2 --parallel dp=2 --global-batch 8 --recompute full "${short[@]}" --out again.h5
expect_exit 0
run "$report" compare layouts.h5 again.h5
expect_exit 0
check "recompute differs" grep -qE "policy +recompute +none +full" "$scratch/stdout"
expect_stdout "ranking at equal work: model tiny, 8 samples of 64 tokens a step, fp32, on 2 cpu devices" \
    "the studies differ in policy" "unpaired" "difference from the fastest in ms"
run "$report" compare layouts.h5 again.h5 --json
check "four rows, each step the sum of its terms, recomputation seen where it is" python3 - "$scratch/stdout" <<'PY'
import json, sys
answer = json.load(open(sys.argv[1]))
rows, = answer["rankings"]
assert answer["refused"] is None and len(rows) == 4
terms = "compute recompute slowdown dp shard replicate tp pp cp ep edp input idle other".split()
for row in rows:
    assert abs(sum(row[t + "_ms"] for t in terms) - row["step_ms_mean"]) < 1e-6 * row["step_ms_mean"]
    assert (row["recompute_ms"] > 0) == (row["recompute"] == "full"), row
    assert row["inside_bytes"] > 0 and row["across_bytes"] == 0 and row["reserved_peak_bytes"] > 0
    assert row["unpaired"] == (row["letter"] != rows[0]["letter"]), row
steps = [row["step_ms_mean"] for row in rows]
assert steps == sorted(steps) and rows[0]["verdict"] == "best"
PY

# ---- other work: what differs is printed, a ranking is not ----
run mpi 2 "$study" --layout 1x2 --points 1x2 --parallel dp=2 --global-batch 16 "${short[@]}" --check off --out other.h5
expect_exit 0
run "$report" compare layouts.h5 other.h5
expect_exit 6
expect_stdout "work" "gbs" "16"
check "one sentence" test "$(wc -l <"$scratch/stderr")" = 1
expect_stderr "gbs is 8 in one and 16 in another"
check "and no ranking" sh -c "! grep -q 'ranking at' '$scratch/stdout'"
refuses 6 "no study file was named" "$report" compare
refuses 8 "missing.h5" "$report" compare missing.h5
finish
