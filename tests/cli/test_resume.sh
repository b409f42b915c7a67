#!/usr/bin/env bash
# SIGKILL at any moment loses no point whose end was printed: of the writer, of a random rank, of the
# whole job, some inside an append; --resume goes on, and the resumed study is the uninterrupted one.
# 6 kills; 200 with SCALESTUDY_DEEP=1. Then: a full disk, a stopped rank, what --resume refuses.
. "$(dirname "$0")/lib.sh"

study=$bin/scalestudy report=$bin/scalereport
kills=6
[ "${SCALESTUDY_DEEP:-0}" = 0 ] || kills=200
job=(--layout 4x1 --nodes 1,2,3,4 --micro-batch 1 --sequence 16 -w 1 --min-steps 2 --max-steps 2 --block 2)
RANDOM=7

has_printed() { [ -n "$(printed "$1")" ]; }
printed() { awk '$1 ~ /^[0-9]+$/ { print $2 }' "$1" | sort -n | tr '\n' ' '; }
in_file() { "$report" --csv "$1" | awk -F, 'NR > 1 { print $3 }' | sort -nu | tr '\n' ' '; }
job_of() { pgrep -f -- "--out $1( |\$)"; } # launcher and ranks
ranks_of() { pgrep -f "^$study .*--out $1( |\$)" | sort -n; }

# kill_once FILE LOG: start or resume, kill after a random time; what was printed by then is in LOG.
kill_once() {
    local file=$1 log=$2 victim moment launcher
    local -a resume=()
    [ ! -d "$file.parts" ] || resume=(--resume)
    mpi 4 "$study" "${job[@]}" --check=off --out "$file" "${resume[@]}" >"$log" 2>"$log.err" </dev/null &
    launcher=$!
    moment=$((RANDOM % 2500))
    if [ $((RANDOM % 4)) = 0 ]; then # inside an append, if one is caught
        for _ in $(seq 2000); do
            compgen -G "$file.parts/*.tmp" >/dev/null && break
            kill -0 $launcher 2>/dev/null || break
            sleep 0.001
        done
    else
        sleep "$((moment / 1000)).$(printf %03d $((moment % 1000)))"
    fi
    case $((RANDOM % 3)) in
    0) victim=$(ranks_of "$file" | head -n 1) ;;          # the writer starts first
    1) victim=$(ranks_of "$file" | shuf -n 1 --random-source=<(yes $RANDOM)) ;;
    2) victim=$(job_of "$file") ;;
    esac
    # shellcheck disable=SC2086 # several victims are several words
    kill -9 $victim 2>/dev/null
    wait $launcher 2>/dev/null
    for _ in $(seq 400); do # a launcher that outlives its ranks would start a rival
        [ -n "$(job_of "$file")" ] || return
        sleep 0.05
    done
    echo "kill $n: the job is still there after 20 s"
}

# Every point that was ever printed is in the file, and published parts never change.
lost=0 changed=0 whole=0 n=0 file=""
while [ $n -lt "$kills" ]; do
    if [ -z "$file" ]; then
        file=k$n.h5
        : >known
        : >sums
    fi
    kill_once "$file" log.$n 2>/dev/null
    printed log.$n | tr ' ' '\n' >>known
    n=$((n + 1))
    source=$file
    [ -e "$file" ] || source=$file.parts
    if [ -d "$source" ] || [ -e "$source" ]; then
        in_file "$source" >there 2>why || true
        for point in $(sort -un known); do
            grep -qw "$point" there && continue
            lost=$((lost + 1))
            echo "kill $n: $source lacks the point of $point ranks: $(cat why)"
        done
    elif [ -s known ] && [ -n "$(tr -d '\n' <known)" ]; then
        lost=$((lost + 1))
    fi
    if [ -d "$file.parts" ] && [ ! -e "$file" ]; then
        [ ! -s sums ] || sha256sum --quiet -c sums >/dev/null 2>&1 || changed=$((changed + 1))
        find "$file.parts" -name '[0-9]*.h5' -exec sha256sum {} + >sums
    else
        [ ! -e "$file" ] || whole=$((whole + 1)) # perhaps with its parts, killed before they went
        rm -rf "$file" "$file.parts"
        file=""
    fi
done
check "no printed point was lost in $n kills ($whole studies were whole by then)" test $lost = 0
check "no published part changed" test $changed = 0
if [ -n "$file" ]; then
    run mpi 4 "$study" "${job[@]}" --check=off --out "$file" --resume
    expect_exit 0
    check "the last one is finished by --resume" test "$(in_file "$file")" = "1 2 3 4 "
    check "and its parts are gone" test ! -e "$file.parts"
fi

# ---- resumed equals uninterrupted ----
job+=(--test-delay 0.05s) # so that it is not over when it is killed
mpi 4 "$study" "${job[@]}" --out once.h5 >/dev/null 2>&1
: >log
mpi 4 "$study" "${job[@]}" --out twice.h5 >log 2>/dev/null </dev/null &
launcher=$!
await $launcher has_printed log
pkill -9 -f "^$study .*--out twice.h5"
wait $launcher 2>/dev/null
run mpi 4 "$study" "${job[@]}" --out twice.h5 --resume
expect_exit 0
check "two launches" "$report" twice.h5
run "$report" twice.h5
expect_stdout "2 launches"
check "study: what was asked" h5diff once.h5 twice.h5 /study
for point in 000 001 002 003; do
    for table in work gate; do
        check "$table of point $point" h5diff once.h5 twice.h5 /points/$point/$table
    done
done
if /usr/bin/python3 -c 'import h5py' 2>/dev/null; then
    check "layout and row keys" /usr/bin/python3 - once.h5 twice.h5 <<'PY'
import sys, h5py
a, b = (h5py.File(name) for name in sys.argv[1:])
keys = {"steps": ["variant", "block", "step", "rank", "consumed", "valid_tokens", "loss", "lr"],
        "stalls": ["variant", "step", "rank", "axis", "waits", "wire_bytes"],
        "collectives": ["variant", "step", "rank", "call", "axis", "kind", "bytes", "group"],
        "ops": ["variant", "step", "rank", "op", "kind", "phase", "layer", "micro", "flops"],
        "memory": ["rank", "class"],
        "point": ["point", "nodes", "ranks", "dp", "parallel", "model", "dtype", "global_batch",
                  "micro_batch", "micro_steps", "sequence", "parameters", "model_flops_per_step"]}
points = [name for name in b["points"] if "." not in name]
assert list(a["points"]) == points
again = [name for name in b["points"] if "." in name]
assert len(again) <= 1, again  # the base, measured again in the second launch
for point in points:
    for table, columns in keys.items():
        x, y = a["points"][point][table][:], b["points"][point][table][:]
        assert len(x) == len(y) and len(x) + (table in ("stalls", "collectives")) > 0, (point, table)
        for column in columns:
            assert (x[column] == y[column]).all(), (point, table, column)
PY
else
    echo "layout and row keys were not compared: python3-h5py is missing"
fi

# ---- what --resume refuses, naming the field ----
# The last point of seed 1 is 2x1, in which a rank is late for each step: it is not over when the job is killed.
again=("$study" -w 1 --min-steps 2 --max-steps 2 --block 2 --check=off --test-delay 0.5s --out r.h5)
: >log
mpi 2 "${again[@]}" --layout 2x1 --sequence 16 >log 2>/dev/null </dev/null &
launcher=$!
await $launcher has_printed log
pkill -9 -f "^$study .*--out r.h5"
wait $launcher 2>/dev/null
again=(mpi 2 "${again[@]}" --resume)
refuses 6 "sequence" "${again[@]}" --layout 2x1 --sequence 32
refuses 6 "seed" "${again[@]}" --layout 2x1 --sequence 16 --seed 2
refuses 6 "layout" "${again[@]}" --layout 1x2 --sequence 16
refuses 6 "model" "${again[@]}" --layout 2x1 --sequence 16 --model gpt2-124m
refuses 8 "unfinished" mpi 2 "$study" --layout 2x1 --sequence 16 --out r.h5
check "nothing was lost by asking" test -n "$(in_file r.h5.parts)"

# ---- a full disk ----
mkdir disk
if mount -t tmpfs -o size=64m tmpfs disk 2>/dev/null; then
    # Room for the point of one rank and not for all, whatever a point weighs now.
    two=(mpi 2 "$study" "${job[@]:2}" --layout 2x1 --nodes 1,2 --check=off)
    run "${two[@]}" --out disk/whole.h5
    expect_exit 0
    whole=$(du -k disk/whole.h5 | cut -f1)
    check "it has a size" test "$whole" -gt 50
    rm -f disk/*
    mount -o remount,size=$((whole * 3 / 4))k disk
    run "${two[@]}" --out disk/x.h5
    expect_exit 8
    expect_stderr "disk/x.h5" "No space left"
    kept=$(printed "$scratch/stdout")
    check "the first point was printed" test -n "$kept"
    for point in $kept; do
        check "point of $point ranks survived the full disk" grep -qw "$point" <(in_file disk/x.h5.parts)
    done
    umount disk
else
    echo "the full disk was not tried: no tmpfs may be mounted here"
fi

# ---- a rank that stands still ends the job within the deadline, named ----
mpi 2 "$study" --layout 2x1 --points 2x1 --run-steps 100000000 --check=off --timeout 6s \
    --out w.h5 >/dev/null 2>err </dev/null &
launcher=$!
await $launcher grep -qs " steps " w.h5.parts/run.log
kill -STOP "$(ranks_of w.h5 | tail -n 1)"
wait $launcher
check "the watchdog's code" test $? = 4
check "it names host, rank and operation" grep -q "timeout: host .* rank 0" err
pkill -9 -f "^$study .*--out w.h5"

finish
