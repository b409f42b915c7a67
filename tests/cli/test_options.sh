#!/usr/bin/env bash
# Each option does what its help says: the study file holds other calls, other samples, other ranks.
. "$(dirname "$0")/lib.sh"

study=$bin/scalestudy
quick=(--check=off --sequence 16 -w 1 --min-steps 2 --max-steps 2 --block 2)

# columns NAME FILE: that column, sorted, in one line.
columns() { column "$@" | sort | tr '\n' ' '; }
/usr/bin/python3 -c 'import h5py' 2>/dev/null && has_h5py=yes || has_h5py=no

# in_file DESCRIPTION FILE...: the Python on stdin holds for the files f[0], f[1], ...
in_file() {
    local what=$1
    shift
    cat >"$scratch/lines"
    if [ $has_h5py = no ]; then
        echo "not looked at, python3-h5py is missing: $what"
        return
    fi
    cat - "$scratch/lines" >"$scratch/facts.py" <<'PY'
import sys, h5py
f = [h5py.File(name) for name in sys.argv[1:]]
FULL = 0 # variant
def table(file, name, point="000"):
    return f[file]["points"][point][name][:]
def gradient_calls(file):
    "bytes of the gradient calls of one full step of rank 0, in order; the sums have 24 bytes"
    calls = table(file, "collectives")
    calls = calls[(calls["variant"] == FULL) & (calls["rank"] == 0) & (calls["bytes"] != 24)]
    return [int(c["bytes"]) for c in calls[calls["step"] == calls["step"].min()]]
def of_full_steps(file, point="000", column="loss"):
    "a column, in the order in which rank 0 trained"
    steps = table(file, "steps", point)
    steps = steps[(steps["variant"] == FULL) & (steps["rank"] == 0)]
    assert (steps["step"] == range(len(steps))).all()
    return steps[column].tolist()
PY
    check "$what" /usr/bin/python3 "$scratch/facts.py" "$@"
}

# ---- --bucket, --overlap ----
run mpi 2 "$study" --layout 1x2 --points 1x2 "${quick[@]}" --stamps 2 --out large.h5
expect_exit 0
run mpi 2 "$study" --layout 1x2 --points 1x2 "${quick[@]}" --stamps 2 --bucket 64K --out small.h5
expect_exit 0
run mpi 2 "$study" --layout 1x2 --points 1x2 "${quick[@]}" --stamps 2 --bucket 64K --overlap none --out none.h5
expect_exit 0
in_file "smaller buckets: more calls, the same bytes" large.h5 small.h5 none.h5 <<'PY'
large, small, none = (gradient_calls(file) for file in range(3))
parameters = int(table(0, "point")["parameters"][0])
assert len(large) == 2 and large[0] >= 1 << 20, large
assert len(small) > 10, small
assert sum(small) == sum(large) >= 4 * parameters, (sum(small), sum(large), parameters)
tensor = 4 * 256 * 64 # the largest tensor of the model, in bytes
assert all(1 << 16 <= b < (1 << 16) + tensor for b in small[:-1]), small
assert none == small
PY
# Given out during backward is what the plan decides; when a busy machine then begins is its own affair.
# But nothing begins before what it waits for.
in_file "gradients are given out during backward, or with --overlap none begin after it" \
    small.h5 none.h5 <<'PY'
for file, overlaps in ((0, True), (1, False)):
    ops = table(file, "ops")
    ops = ops[ops["variant"] == FULL]
    steps = {(o["rank"], o["step"]) for o in ops}
    assert len(steps) == 4, (file, steps)
    for rank, step in steps:
        one = ops[(ops["rank"] == rank) & (ops["step"] == step)]
        backward = one[one["phase"] == b"backward"]
        calls = one[one["kind"] == b"collective"][1:] # the first one is the sums
        ends = (backward["start_ns"] + backward["duration_ns"]).max()
        assert (calls["op"].min() < backward["op"].max()) == overlaps, (file, step)
        assert overlaps or calls["start_ns"].min() >= ends, (step, calls["start_ns"].min(), ends)
PY

# ---- --seed ----
for seed in 1 2; do
    run mpi 1 "$study" --layout 1x1 "${quick[@]}" --padding 50% --seed $seed --out seed$seed.h5
    expect_exit 0
done
run mpi 1 "$study" --layout 1x1 "${quick[@]}" --padding 50% --seed 1 --out again.h5
for loss in initial_loss final_loss; do
    check "another seed, another $loss" test "$(columns $loss seed1.h5)" != "$(columns $loss seed2.h5)"
    check "the same seed, the same $loss" test "$(columns $loss seed1.h5)" = "$(columns $loss again.h5)"
    check "there is a $loss" grep -q '^[1-9][.]' <(column $loss seed1.h5)
done

in_file "other samples too: their lengths differ" seed1.h5 seed2.h5 again.h5 <<'PY'
first, second, again = (of_full_steps(file, column="valid_tokens") for file in range(3))
assert first == again != second, (first, second)
PY

# ---- --input ----
run mpi 1 "$study" --layout 1x1 --check=off --sequence 16 --padding 50% -w 1 --min-steps 20 \
    --max-steps 20 --block 10 --input synthetic,memory --out input.h5
expect_exit 0
check "a point for each input" test "$(columns input input.h5)" = "memory synthetic "
in_file "memory holds 16 steps of the same samples, and begins again" input.h5 <<'PY'
made, held = of_full_steps(0, "000"), of_full_steps(0, "001")
assert len(made) == len(held) > 32
assert made[:16] == held[:16]
assert all(a != b for a, b in zip(made[16:], held[16:]))
made, held = of_full_steps(0, "000", "valid_tokens"), of_full_steps(0, "001", "valid_tokens")
assert held[16:32] == held[:16] and len(set(held[:16])) > 4, held
assert made[16:32] != made[:16]
PY

# ---- --micro-batch ----
run mpi 2 "$study" --layout 1x2 --points 1x1,1x2 "${quick[@]}" --global-batch 8 --micro-batch 2,4 --out micro.h5
expect_exit 0
check "both sizes at both points" test "$(columns mbs micro.h5)" = "2 2 4 4 "
check "all valid" test "$(columns valid micro.h5)" = "1 1 1 1 "
in_file "8 samples in micro-steps" micro.h5 <<'PY'
for point in f[0]["points"]:
    row, steps = table(0, "point", point)[0], table(0, "steps", point)
    wanted = 8 // (row["ranks"] * row["micro_batch"])
    assert row["micro_steps"] == wanted, (point, row["micro_steps"])
    full = steps[(steps["variant"] == FULL) & (steps["rank"] == 0)]
    assert (full["micro_step"] == wanted * (full["step"] + 1)).all(), point
    assert (full["consumed"] == 8 * (full["step"] + 1)).all(), point
PY

# ---- --sequence ----
run mpi 2 "$study" --layout 1x2 --points 1x2 "${quick[@]:3}" --sequence 32,16 --out sequence.h5
expect_exit 0
check "two lengths" test "$(columns seq sequence.h5)" = "16 32 "
check "both valid" test "$(columns valid sequence.h5)" = "1 1 "
check "their gates passed" test "$(columns gate sequence.h5)" = "passed passed "
check "twice the tokens" test "$(columns positions_per_step sequence.h5)" = "128 256 "

# ---- --points: 2x1 of 2x2 is the first rank of each node. Those two work, the other two sleep. ----
cat >timed.sh <<'SH'
"$@"
rc=$?
times >times.$OMPI_COMM_WORLD_RANK # the second line: user and system time of the program
exit $rc
SH
run mpi 4 bash timed.sh "$study" --layout 2x2 --points 2x1 "${quick[@]}" --min-steps 60 --max-steps 60 \
    --block 20 --out points.h5
expect_exit 0
cpu_ms() { # RANK
    awk 'NR == 2 { split($1, t, /[ms]/); print int(60000 * t[1] + 1000 * t[2]) }' "times.$1"
}
for worker in 0 2; do
    for sleeper in 1 3; do
        check "rank $worker worked, $(cpu_ms $worker) ms; rank $sleeper slept, $(cpu_ms $sleeper) ms" \
            test "$(cpu_ms $worker)" -gt $((2 * $(cpu_ms $sleeper)))
    done
done
check "two ranks on two nodes" test "$(columns nodes points.h5)$(columns ranks points.h5)" = "2 2 "

# ---- --deterministic ----
digest() { grep -ao 'state of all ranks after [0-9]* steps: [0-9a-f]*' "$1"; }
for name in once twice other; do
    seed=1 && [ $name = other ] && seed=2
    run mpi 2 "$study" --layout 1x2 --points 1x2 "${quick[@]}" --deterministic --seed $seed --out "$name.h5"
    expect_exit 0
    expect_stdout "1 BLAS thread a rank"
done
check "the same bits again: $(digest once.h5)" test "$(digest once.h5)" = "$(digest twice.h5)"
check "a digest of 16 digits" grep -aq 'steps: [0-9a-f]\{16\}' once.h5
check "another seed, another digest" test "$(digest once.h5)" != "$(digest other.h5)"
check "without it none is noted" test -z "$(digest points.h5)"
check "it is a column" test "$(columns deterministic once.h5)" = "1 "

finish
