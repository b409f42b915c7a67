#!/usr/bin/env bash
# Runs, whole or killed and resumed, become measured goodput whose account closes; under a stated failure
# law they become a plan whose every figure says where it is from; without a law none is made up, and a
# law that makes no sense is refused in one sentence.
. "$(dirname "$0")/lib.sh"
study=$bin/scalestudy
report=$bin/scalereport
quick=(--check off -w 2 --checkpoint-mode staged --checkpoint-every 8)

column() { # NAME FILTER: of the lines of the last --csv whose text has FILTER
    python3 - "$scratch/stdout" "$1" "$2" <<'PYTHON'
import csv, sys
for row in csv.DictReader(open(sys.argv[1])):
    if sys.argv[3] in ",".join(row.values()):
        print(row[sys.argv[2]])
PYTHON
}
near() { awk -v a="$1" -v b="$2" -v within="$3" 'BEGIN { d = a - b; exit !(a != "" && d <= within && d >= -within) }'; }

# ---- without a file: the model alone ----
bare=(--nodes 1 --blocked 6.3s --complete 148.8s --detect 100s --restart 200s)
run "$report" goodput --mtbf 11160s/job "${bare[@]}" --interval 1000s --run-time 1d --csv
expect_exit 0
check "golden goodput" near "$(column goodput_pct "1000 s")" 91.269 0.0006
check "golden first order" near "$(column first_order_pct "1000 s")" 90.92 0.006
check "golden Young" near "$(column interval_s young)" 375.0 0.05
check "golden Daly" near "$(column interval_s daly)" 370.8 0.05
check "golden exact" near "$(column interval_s exact)" 370.8 0.05
check "async waits for publication" near "$(column interval_s async)" 370.8 0.05
check "assumed" test "$(column save_cost_from async)" = assumed
run "$report" goodput --mtbf 11160s/job "${bare[@]}" --step-time 100s
expect_exit 0
expect_stdout "3.1 h a job, stated: it has no interval" "steps*" "costs of saves are assumed" "Kokolis"
# Forms that say nothing sensible say so: a save of a minute, and a failure a second.
hopeless=(--mtbf 1s/job --nodes 1 --blocked 60s --detect 100s --restart 200s)
run "$report" goodput "${hopeless[@]}"
expect_exit 0
expect_stdout "outside its validity: Young's interval" "outside its validity: a first-order form that leaves 0 to 100 %"
check "no nonsense" test -z "$(grep -E -- '-[0-9]' "$scratch/stdout")"
run "$report" goodput "${hopeless[@]}" --csv
check "empty in CSV" test "$(column ettr_pct daly),$(column interval_s young)" = ","
check "by name" test "$(column outside daly)" = "first_order_pct product_pct ettr_pct"
run "$report" goodput "${hopeless[@]}" --json
check "null in JSON" python3 -c 'import json, sys
young, daly = json.load(open(sys.argv[1]))["lines"][:2]
assert young["interval_s"] is None and daly["ettr_pct"] is None and daly["runtime_goodput_pct"] > 0' "$scratch/stdout"
run "$report" goodput --mtbf 6h/job --nodes 1 --blocked 60s --complete 100s --local-blocked 1s --local-share 80% --step-time 3s --csv
check "two levels: steps of the local one" near "$(column interval_steps local)" 77 1e-9
check "two levels: the global one is 16 of them" near "$(column interval_s global)" 3696 1e-6
levels() { echo "$(column save_cost_s "$1"),$(column complete_s "$1"),$(column mtbf_s "$1"),$(column local_blocked_s "$1"),$(column local_share_pct "$1")"; }
check "a local save's cost, and the failures that are its own" test "$(levels local)" = "1,1,27000,1,80"
check "a global one's" test "$(levels global)" = "60,100,108000,1,80"
check "one level is no such plan" test "$(levels daly)" = "60,100,21600,,"
two=(goodput --mtbf 6h/job --nodes 1 --blocked 60s --complete 100s --step-time 3s --local-share 20%)
run "$report" "${two[@]}" --local-blocked 1s
expect_stdout "a local one costs 1 s (assumed) and survives 20 % of"
check "two levels that pay are not spoken of" test -z "$(grep "do not pay" "$scratch/stdout")"
run "$report" "${two[@]}" --local-blocked 30s
expect_stdout "1 node: two levels of saves do not pay: first order 90.422 % with local ones of 30 s"
run "$report" "${two[@]}" --local-blocked 60s
expect_stdout "1 node: two levels of saves do not pay: a local one costs 1 m (--local-blocked)"
run "$report" goodput --mtbf 4d/node --nodes 4 --blocked 0s
expect_stdout "4 nodes: a save costs nothing"
run "$report" goodput --failures 0 --exposure 1000d/node --nodes 8,512 --blocked 5s
expect_stdout "at least 333.8 d a node (one-sided 95 %, chi-square), n = 0 failures" "bound from below" "upper bound"
run "$report" goodput --failures 0 --exposure 1000d/node --nodes 8 --blocked 5s --csv
check "a bound on one side has no regret" test "$(column regret_pct async)" = ""
run "$report" goodput --mtbf 2000d:8000d/device --ranks-per-node 8 --nodes 4,1,4 --bytes 100GB \
    --node-bandwidth 1GB/s --shared-bandwidth 2GB/s --json
expect_exit 0
check "JSON is JSON" python3 -c 'import json, sys
d = json.load(open(sys.argv[1]))
best = [l for l in d["lines"] if l["best"]]
assert [l["nodes"] for l in best] == [1, 4] and [l["complete_s"] for l in best] == [100, 50]
assert best[1]["ranks"] == 32 and abs(best[1]["mtbf_s"] - 4000 * 86400 / 32) < 1e-3
assert best[1]["goodput_lo_pct"] < best[1]["goodput_pct"] < best[1]["goodput_hi_pct"]
assert best[1]["regret_pct"] > 0' "$scratch/stdout"

# ---- runs of two sizes, and one that was killed and went on ----
run mpi 2 "$study" --layout 2x1 --points 1x1,2x1 "${quick[@]}" --run-steps 42 --checkpoint-dir C --out r.h5
expect_exit 0
check "the end is saved, due or not" test -e C/point-001/step-0000000042/manifest.json
run "$report" goodput r.h5
expect_exit 0
expect_stdout "kept, of them w in warm-up" "8 samples (micro-batch 2) of 64 tokens a step, input synthetic" \
    "useful_%" "ETTR_%" "runtime_goodput_%" "effective_training_%" "MTTF" "need a failure law, and none is made up" "EMULATED"
check "no MTBF without a law" test -z "$(grep MTBF_s "$scratch/stdout")"
run "$report" goodput r.h5 --csv
check "a curve over nodes" test "$(column nodes measured | tr '\n' ' ')" = "1 2 "
check "nothing expected" test -z "$(column nodes expected)"
check "buckets sum to wall" python3 -c 'import csv, sys
names = ["restarting", "detection", "rework", "start_up", "warm_up", "checkpoint_call", "data_stall", "inflation",
         "straggler_wait", "useful", "record", "other"]
for r in csv.DictReader(open(sys.argv[1])):
    wall, s = float(r["wall_s"]), sum(float(r[n + "_s"]) for n in names)
    assert abs(s - wall) < 1e-6 * wall, (s, wall)
    assert float(r["goodput_pct"]) <= float(r["runtime_goodput_pct"]) <= float(r["ettr_pct"]) <= float(r["uptime_pct"])
    assert abs(float(r["goodput_pct"]) - 100 * float(r["useful_s"]) / wall) < 1e-6
    assert float(r["record_s"]) > 0
    assert [int(float(r[n])) for n in ("steps", "warm_up_steps", "saves", "interval_steps", "launches")] == [42, 2, 6, 8, 1]
    tokens = float(r["tokens_per_s"]) * wall / 42  # all that were kept, of 8 samples of 64 tokens
    assert 0.9 * 512 < tokens <= 512 + 1e-6, tokens' "$scratch/stdout"
measured=$(column goodput_pct measured | sed -n 1p)
run "$report" r.h5 --csv
check "the curve has it too" near "$(column goodput_pct tiny | sed -n 1p)" "$measured" 1e-6
run env SCALESTUDY_RESTARTS=2 bash "$tests/../jobscripts/drill.sh" d.h5 timeout -k 5 120 \
    env OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OPENBLAS_NUM_THREADS=1 \
    mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np 2 \
    "$study" drill --layout 2x1 --points 2x1 "${quick[@]}" --run-steps 40 --checkpoint-dir K --kill rank:1
expect_exit 0
run "$report" goodput r.h5 d.h5 --mtbf 30m:2h/node
expect_exit 0
expect_stdout "what each failure cost" "carried" "fitted" "geometric middle" "independent failures"
run "$report" goodput r.h5 d.h5 --mtbf 30m:2h/node --csv
check "a curve with what failed and what did not" test "$(column nodes measured,r.h5 | tr '\n' ' ')$(column nodes measured,d.h5)" = "1 2 2"
check "one failure" test "$(column failures d.h5)" = 1
run "$report" goodput r.h5 --mtbf 2h/node --nodes 1,2 --bytes 120GB --csv
check "other bytes than were saved: blocked by the rate, published by the fit" python3 -c 'import csv, sys
rows = [r for r in csv.DictReader(open(sys.argv[1])) if "async" in r.values()]
assert [r["nodes"] for r in rows] == ["1", "2"], rows
for r in rows:
    assert (r["save_cost_from"], r["complete_from"]) == ("carried", "fitted"), r
    assert float(r["save_cost_s"]) > 1 and float(r["complete_s"]) > 10, r' "$scratch/stdout"
run "$report" goodput r.h5 d.h5 --mtbf 30m:2h/node --csv
check "and two launches, though the first had published nothing" test "$(column launches d.h5)" = 2
check "it cost something" awk -v x="$(column rework_s d.h5)" -v y="$(column restarting_s d.h5)" 'BEGIN { exit !(x > 0 && y > 0) }'
check "restart is measured there" test "$(column restart_from "steps" | sed -n 2p)" = measured
check "and counts" awk -v x="$(column restart_s "steps" | sed -n 1p)" 'BEGIN { exit !(x > 0) }'

# ---- a picture ----
if command -v gnuplot >/dev/null; then
    run "$report" goodput r.h5 --mtbf 1h/node --plot "it's.svg" --title "a 'b'"
    expect_exit 0
    check "drawn" grep -q "<svg" "it's.svg"
    check "its script stays" grep -q curve_0_0 "it's.svg.gnuplot"
    # One node count is no range, and a save that costs nothing has no curve: gnuplot has nothing to say of it.
    for asked in "--nodes 1 --blocked 1s" "--nodes 4,8 --blocked 0s"; do
        # shellcheck disable=SC2086
        run "$report" goodput --mtbf 1h/job $asked --plot one.svg
        expect_exit 0
        check "$asked: no word of gnuplot" test ! -s "$scratch/stderr"
    done
fi
refuses 6 "ends in none of" "$report" goodput r.h5 --plot x.gif

# ---- studies without saves, without a run ----
run mpi 1 "$study" --layout 1x1 --check off -w 1 --min-steps 2 --max-steps 2 --block 2 --out n.h5
expect_exit 0
run "$report" goodput n.h5 --mtbf 1h/node
expect_exit 0
expect_stdout "measured goodput is n/a: no point was a run" "n/a: nothing was saved"
run "$report" goodput n.h5 --mtbf 1h/node --blocked 100ms
expect_exit 0
expect_stdout "assumed" "upper bound"

# ---- refusals ----
law() { refuses 6 "$1" "$report" goodput r.h5 "${@:2}"; }
law "--mtbf: \"0h\" is zero" --mtbf 0h/node
law "--mtbf: \"-2h\" is negative" --mtbf -2h/node
law "--mtbf: \"40\" has no unit of time" --mtbf 40/node
law "does not say what it is of" --mtbf 40h
law "is of no node, device or job" --mtbf 40h/rack
law "60h is more than 20h" --mtbf 60h:20h/node
law "--failures: -1 is negative" --failures -1 --exposure 4d/node
law "--exposure: \"0d\" is zero" --failures 2 --exposure 0d/node
law "--exposure: \"4\" has no unit of time" --failures 2 --exposure 4/node
law "--failures was given without --exposure" --failures 2
law "both state a failure law" --mtbf 4d/node --failures 2 --exposure 4d/node
law "is longer than the run of" --mtbf 4d/node --interval 10h
law "is longer than the run of 1 h" --mtbf 4d/node --interval 2h --run-time 1h
law "100000 steps is longer than the run" --mtbf 4d/node --interval 100000
law "wanted up to 16 of steps (500) or seconds (30m)" --mtbf 4d/node --interval often
law "wanted up to 32 numbers from 1" --mtbf 4d/node --nodes 0
law "--complete 1s is less than --blocked 2s" --mtbf 4d/node --blocked 2s --complete 1s
law "nothing was saved in mode \"lazy\"; there is staged" --mtbf 4d/node --mode lazy
law "--node-bandwidth: found \"2G\", wanted a rate above 0 with its unit such as 2.5GB/s" --mtbf 4d/node --node-bandwidth 2G
law "--shared-bandwidth was given without --node-bandwidth" --mtbf 4d/node --shared-bandwidth 2GB/s
law "--csv and --json were both given" --csv --json
law "--mtbf: \"1e300d\" is no time of this world" --mtbf 1e300d/job
law "--mtbf was given 2 times" --mtbf 4d/node --mtbf=5d/node
law "--blocked: \"6\" has no unit of time" --mtbf 4d/node --blocked 6
law "--run-time: \"100\" has no unit of time" --mtbf 4d/node --run-time 100
law "cannot cost more than it takes" --mtbf 4d/node --complete 0.001us
law "cannot cost more than it takes" --mtbf 4d/node --blocked 100s --run-time 10d
law "--nodes is about a plan, and a plan needs a failure law" --nodes 64
law "--interval is about a plan" --interval 30s
law "--blocked is about a plan" --blocked 1s
law "--ranks-per-node is for a plan without files" --mtbf 4d/node --ranks-per-node 4
law "--local-blocked was given without --local-share" --mtbf 4d/node --local-blocked 1s
for share in 0 0% 100% -5%; do
    law "--local-share: found \"$share\", wanted a share of the failures above 0 % and up to 99.99 %" --mtbf 4d/node --local-blocked 1s --local-share $share
done
law "--local-blocked is about a plan" --local-share 60% --local-blocked 1s
law "--mtbf: found \"\", wanted T/node|LO:HI/node; leave the option out for none" --mtbf ""
law "--nodes: found \"\", wanted N,..." --mtbf 4d/node --nodes=
law "--nodes: found \",\", wanted numbers from 1" --mtbf 4d/node --nodes ,
law "--interval: found \",\", wanted steps (500) or seconds (30m)" --mtbf 4d/node --interval ,
refuses 6 "5 steps: nothing says how long a step is: give --step-time" "$report" goodput --mtbf 4d/node --nodes 2 --blocked 1s --interval 5
refuses 6 "no study file was named" "$report" goodput
refuses 6 "needs --ranks-per-node" "$report" goodput --mtbf 4d/device --nodes 2 --blocked 1s
refuses 6 "nothing says what a save costs" "$report" goodput --mtbf 4d/node --nodes 2
refuses 6 "hold the same launch" "$report" goodput r.h5 r.h5
refuses 8 "cannot read" "$report" goodput nowhere.h5
finish
