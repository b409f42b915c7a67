#!/usr/bin/env bash
# Pipelines through the programs: what cannot be is refused in one sentence; every schedule is proved over
# real ranks; stages compute in the order of the schedule and wait for each other; what they idle is what a
# replay of the very times of their ops says; a timed device takes no less than the replay of its cost model.
. "$(dirname "$0")/lib.sh"

study=$bin/scalestudy report=$bin/scalereport
two=(--layout 1x2 --points 1x2 --model tiny --micro-batch 1 -w 1 --min-steps 4 --max-steps 4 --block 2)

# ---- refused before anything runs ----
refuses 6 "1 micro-batch a step for pp=2 stages" \
    mpi 2 "$study" "${two[@]}" --parallel pp=2 --global-batch 1
refuses 6 "zb-h1 has one chunk a stage, and --virtual-stages is 2" \
    mpi 2 "$study" "${two[@]}" --parallel pp=2 --schedule zb-h1 --virtual-stages 2
refuses 6 "8 layers do not split into pp=2 times 3 chunks; choose --virtual-stages 2 or 4" \
    mpi 2 "$study" "${two[@]}" --parallel pp=2 --schedule interleaved --virtual-stages 3
refuses 6 "interleaved takes micro-batches by the stages" \
    mpi 2 "$study" "${two[@]}" --parallel pp=2 --schedule interleaved --virtual-stages 2 --global-batch 3
refuses 6 "ZeRO-2 (--shard-stage 2)" mpi 4 "$study" --layout 1x4 --points 1x4 --model tiny --micro-batch 1 \
    --parallel pp=2,shard=2 --shard-stage 2
refuses 6 "choose --reduce last" mpi 4 "$study" --layout 1x4 --points 1x4 --model tiny --micro-batch 1 \
    --parallel pp=2,shard=2 --reduce every

# replayed FILE SCHEDULE: slots in the order of the book, each behind the one whose output it reads, and the
# figures of the bubble are those of a replay of the file's own times, whatever held ops up.
cat >replay.py <<'PY'
import re, sys, h5py
name, kind, bubble_pct = sys.argv[1], sys.argv[2], float(sys.argv[3])
FULL, STAGES, MS = 0, 2, 1e-6 # of a ns
file = h5py.File(name)
point = file["points/000"]
(said,) = point["point"][:]
steps, stages, ops = (point[table][:] for table in ("steps", "stages", "ops"))
steps = steps[steps["variant"] == FULL]
ops = ops[(ops["variant"] == FULL) & (ops["kind"] != b"collective")]
micros = 1 + int(ops["micro"].max())
kept = sorted(set(ops["step"].tolist()))

def slots_of(stage):
    ahead = micros if kind == "gpipe" else STAGES - 1 - stage
    slots, forward = [("F", i) for i in range(ahead)], ahead
    for backward in range(micros):
        if forward < micros:
            slots.append(("F", forward))
            forward += 1
        slots.append(("B", backward))
    return slots

def parts_of(stage, step):
    "the compute stream in order: what comes before, slots, up to the norm, the update; with the ops of each"
    at, parts = "before", []
    rows = ops[(ops["rank"] == stage) & (ops["step"] == step)]
    rows.sort(order="op")
    for op in rows:
        if op["phase"] == b"update":
            at = "update" if at == "update" or op["kind"] == b"clip" else "norm"
        elif at != "before" or op["kind"] != b"zero":
            at = ("B" if op["phase"] == b"backward" else "F", int(op["micro"]))
        if not parts or parts[-1][0] != at:
            parts.append((at, []))
        parts[-1][1].append(op)
    assert (rows["start_ns"][1:] >= rows["start_ns"][:-1]).all(), "one after the other"
    return parts

# As it was run, on the clock of the host.
begun = {(int(row["rank"]), int(row["step"])): int(row["start_ns"]) for row in steps}
took = [{} for stage in range(STAGES)] # ms of each part, mean over the kept steps
for step in kept:
    began, ended = {}, {}
    for stage in range(STAGES):
        parts = parts_of(stage, step)
        assert [at for at, _ in parts] == ["before"] + slots_of(stage) + ["norm", "update"], parts
        for at, of in parts:
            took[stage][at] = took[stage].get(at, 0) + MS * sum(int(op["duration_ns"]) for op in of) / len(kept)
            reads = next(op for op in of if op["phase"] != b"input")
            began[stage, at] = begun[stage, step] + int(reads["start_ns"])
            ended[stage, at] = begun[stage, step] + int(of[-1]["start_ns"] + of[-1]["duration_ns"])
    for i in range(micros):
        assert began[1, ("F", i)] >= ended[0, ("F", i)] and began[0, ("B", i)] >= ended[1, ("B", i)], i

# As it is replayed, with free transfers.
now = [took[stage]["before"] for stage in range(STAGES)]
ended, left = {}, [slots_of(stage) for stage in range(STAGES)]
while any(left):
    for stage in range(STAGES):
        while left[stage]:
            at = left[stage][0]
            source = (stage + (-1 if at[0] == "F" else 1), at)
            if source[0] in range(STAGES) and source not in ended:
                break
            now[stage] = max(now[stage], ended.get(source, 0)) + took[stage][at]
            ended[stage, at] = now[stage]
            left[stage].pop(0)
norm = max(now[stage] + took[stage]["norm"] for stage in range(STAGES))
step_ms = max(norm + took[stage]["update"] for stage in range(STAGES))
computes = [sum(took[stage].values()) for stage in range(STAGES)]
ideal = sum(computes) / STAGES
wanted = [step_ms, step_ms - ideal, 100 * (step_ms - ideal) / ideal] + computes + [step_ms - ms for ms in computes]
found = [said["replay_ms"], said["bubble_ms"], bubble_pct] + [*stages["compute_ms"], *stages["bubble_ms"]]
print("found", found, "wanted", wanted)
assert len(found) == len(wanted) and all(abs(f - w) <= 1e-9 * step_ms for f, w in zip(found, wanted))

# The clock of a timed device runs from the beginning of a block on, and being late only makes it later.
if len(sys.argv) > 4:
    model_ms = said["critical_ms"] - len(ops) * MS # each is whole ns long
    flops = min(ops["flops"][ops["rank"] == stage].sum() for stage in range(STAGES)) / len(kept)
    share = re.search(r"gemm-efficiency: .value: ([0-9.]+) %", file["study"].attrs["topology_text"].decode())
    rate = said["peak_flops_per_rank"] * float(share[1]) / 100
    products_ms = 1e3 * flops / rate * (micros + STAGES - 1) / micros
    assert model_ms > products_ms > 0, (model_ms, products_ms)
    for block in set(steps["block"].tolist()):
        first = steps[steps["block"] == block]
        first = first[first["step"] == first["step"].min()]
        first_ms = MS * int(first["end_ns"].max() - first["start_ns"].min())
        print("block", block, "first step", first_ms, "model", model_ms, "its products", products_ms)
        assert first_ms >= model_ms
PY
python=/usr/bin/python3
replayed() {
    if ! $python -c 'import h5py' 2>/dev/null; then
        echo "not looked at, python3-h5py is missing: the replay of $1"
        return
    fi
    check "$1 is run and replayed as $2" $python replay.py "$1" "$2" "$(column bubble_ideal_pct "$1")" "${@:3}"
}

# ---- every schedule, proved ----
for schedule in "gpipe --overlap none" 1f1b "interleaved --virtual-stages 2" zb-h1; do
    name=${schedule%% *}
    # shellcheck disable=SC2086
    run mpi 2 "$study" "${two[@]}" --parallel pp=2 --global-batch 4 --schedule $schedule --out "$name.h5"
    expect_exit 0
    expect_stdout "ok, pp=2"
    case $name in gpipe | 1f1b) replayed "$name.h5" "$name" ;; esac # others: rows do not say which chunk, dx or dW
    # its parts are disjoint, also where an op waits for stages and for the sum of the tied table
    check "$name: no wait counts twice" awk -v rest="$(column residual_ms "$name.h5")" 'BEGIN { exit !(rest != "" && rest > -1e-3) }'
done
run "$report" zb-h1.h5
expect_stdout "# pipeline: a replay" "bubble/step_%" "bubble/ideal_%"
check "both stages are in the file" test "$(column pp zb-h1.h5)" = 2

# ---- a timed device: equal stages ----
cat >equal.yaml <<'YAML'
style: gpt2
layers: 8
hidden: 256
heads: 8
ffn: 1024
vocabulary: 125
sequence: 128
pad: 128
tied: off
micro-batch: 1
lr: 3e-4
YAML
run mpi 2 "$study" --layout 1x2 --points 1x2 --model equal.yaml --parallel pp=2 --global-batch 8 \
    --device timed --topology laptop -w 1 --min-steps 1 --max-steps 1 --block 1 --out t.h5
expect_exit 0
replayed t.h5 1f1b timed
check "the closed form is (pp-1)/m" test "$(column bubble_closed_pct t.h5)" = 12.5
finish
