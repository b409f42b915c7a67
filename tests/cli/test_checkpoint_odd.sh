#!/usr/bin/env bash
# Folders of checkpoints that are odd, shared with others, or taken away, and clocks that are set back: one sentence
# and its exit code, or the study goes on; what was saved stays.
. "$(dirname "$0")/lib.sh"

study=$bin/scalestudy
run_of=(--layout 1x1 --check off -w 2 --run-steps 10 --checkpoint-every 5)
long_of=(--layout 1x2 --points 1x2 --check off -w 2 --run-steps 100000 --checkpoint-every 10 --test-delay 0.02s)
rank_of() { pgrep -f "^$study.* --out $1( |\$)" | head -n 1; }
newest_of() { ls "$1" | sed -n 's/^step-0*\([1-9][0-9]*\)$/\1/p' | sort -n | tail -n 1; }
has_saved() { # FOLDER [STEP]: a checkpoint of that step is published, or of a later one
    local manifest step
    for manifest in "$1"/step-*/manifest.json; do
        step=${manifest%/*} step=${step##*-}
        [ ! -e "$manifest" ] || [ $((10#$step)) -lt "${2:-1}" ] || return 0
    done
    return 1
}
behind() { # LOG COMMAND...: in the background; its status is in LOG.rc
    local log=$1
    shift
    (
        "$@" >"$log" 2>"$log.err" </dev/null
        echo $? >"$log.rc"
    ) &
}

# ---- two studies that begin in the same folder in the same second: one saves, the other is refused ----
behind one mpi 1 "$study" "${run_of[@]}" --checkpoint-dir both --out one.h5
behind two mpi 1 "$study" "${run_of[@]}" --checkpoint-dir both --out two.h5
wait
check "one of them is whole, one refused" test "$(sort -n one.rc two.rc | tr '\n' ' ')" = "0 6 "
check "and says why in one line" test "$(grep -hcE \
    '^scalestudy: --checkpoint-dir: (both holds checkpoints up to step [0-9]+, and this study begins at step 0: take an empty folder, or --resume-from both$|another study saves in both: )' \
    one.err two.err | sort | tr '\n' ' ')" = "0 1 "
check "the folder is one study's" test "$(ls both | tr '\n' ' ')" = "step-0000000005 step-0000000010 "
run mpi 1 "$study" "${run_of[@]}" --checkpoint-dir both --resume-from both --validate
expect_exit 0

# ---- links ----
mkdir real && ln -s real link && ln -s nowhere dangling
run mpi 2 "$study" --layout 1x2 --points 1x2 "${run_of[@]:2}" --checkpoint-dir link --out link.h5
expect_exit 0
check "behind a link" test -e real/step-0000000010/manifest.json
for path in dangling dangling/below; do
    refuses 8 "checkpoint: dangling is a link to what is not there" \
        mpi 2 "$study" --layout 1x2 --points 1x2 "${run_of[@]:2}" --checkpoint-dir $path --out no.h5
    refuses 8 "checkpoint: dangling is a link to what is not there" \
        mpi 2 "$study" --layout 1x2 --points 1x2 "${run_of[@]:2}" --checkpoint-dir $path --validate --out no.h5
done

# ---- names ----
name=$'a b/\xc3\xbc \xff\'"$x'
run mpi 1 "$study" "${run_of[@]}" --checkpoint-dir "$name" --out "o $name.h5"
expect_exit 8 # its folder is not there
expect_stderr "o a b/"
run mpi 1 "$study" "${run_of[@]}" --checkpoint-dir "$name" --out "o ${name//\//}.h5"
expect_exit 0
run mpi 1 "$study" "${run_of[@]}" --checkpoint-dir "$name" --resume-from "$name" --out "p ${name//\//}.h5"
expect_exit 0
expect_stdout "resumed from $name/step-0000000010: step 10,"
check "saved under that name" test -e "$name/step-0000000020/manifest.json"

# ---- read while it is written, by another study; and then taken away ----
behind log mpi 2 "$study" "${long_of[@]}" --checkpoint-dir live --out live.h5
await $! has_saved live
run mpi 1 "$study" "${run_of[@]}" --checkpoint-dir other --resume-from live --out other.h5
expect_exit 0
expect_stdout "resumed from live/step-00000"
mv live gone
await $! grep -q " is gone too" log.err
kill -USR1 "$(rank_of live.h5)"
wait
status=$(cat log.rc) command_line="a run whose folder is taken away"
cp log "$scratch/stdout" && cp log.err "$scratch/stderr"
expect_exit 11
expect_stderr ": the checkpoint of step" " is gone too" "run: stopped by SIGUSR1 at step" "with no checkpoint of it: --resume goes on"
check "the loss is said once, and the end" test "$(without_launcher | wc -l)" -eq 2
# Where it is put back nothing was lost.
mv gone live
newest=$(newest_of live)
sed -i "s/ to step [0-9]*\$/ to step $((newest + 20))/" live.h5.parts/run.log
run mpi 2 "$study" "${long_of[@]}" --checkpoint-dir live --out live.h5 --resume
expect_exit 0
expect_stdout "resumed from live/step-$(printf %010d "$newest"): step $newest,"

# ---- the clock is set back between two launches ----
behind log2 mpi 2 "$study" "${long_of[@]}" --checkpoint-dir back.d --out back.h5
await $! has_saved back.d
kill -KILL "$(rank_of back.h5)"
wait
newest=$(newest_of back.d)
ahead=3600000000000 # what the first launch wrote was an hour ahead, or this one's clock is behind
while read -r first second kind begin end rest; do
    case $first in
    t0) echo "t0 $((second + ahead))" ;;
    [0-9]*) echo "$first $second $kind $((begin + ahead)) $((end + ahead)) ${rest/to step 100000/to step $((newest + 20))}" ;;
    *) echo "$first $second $kind $begin $end $rest" ;;
    esac
done <back.h5.parts/run.log >ahead.log && cp ahead.log back.h5.parts/run.log
run mpi 2 "$study" "${long_of[@]}" --checkpoint-dir back.d --out back.h5 --resume
expect_exit 0
expect_stderr "s behind what the launch before wrote: this launch is recorded as if it had followed at once"
run "$bin/scalereport" back.h5
expect_exit 0
expect_stdout "warning: the clock of this host is 3"
run "$bin/scalereport" goodput back.h5 --csv
expect_exit 0
# ---- parts without a manifest: refused before the first step, unless they are the run's own ----
mkdir -p left/step-0000000005 && touch left/step-0000000005/rank-00000.h5
for more in "" --validate; do
    # shellcheck disable=SC2086 # none is no word
    refuses 6 "--checkpoint-dir: left holds parts of checkpoints up to step 5, and this study begins at step 0: take an empty folder, or remove each step-N there with N above 0" \
        mpi 1 "$study" "${run_of[@]}" --checkpoint-dir left $more --out left.h5
done
check "they are as they were" test -e left/step-0000000005/rank-00000.h5
mkdir both/step-0000000015
refuses 6 "--checkpoint-dir: both holds parts of checkpoints up to step 15, and this study begins at step 10: take an empty folder, or remove each step-N there with N above 10" \
    mpi 1 "$study" --layout 1x1 --check off -w 1 --min-steps 1 --max-steps 1 --block 1 --resume-from both --checkpoint-dir both --out left.h5

# ---- two nodes with folders of their own, by working directory: over two launches both keep the same steps ----
mkdir n0 n1
two_nodes() { # ARGUMENT...
    local of=("$study" "${long_of[@]}" --parallel shard=2 --checkpoint-keep 2 --checkpoint-dir ck --out "$PWD/nodes.h5" "$@")
    timeout -k 5 120 mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 \
        --mca odls_base_sigkill_timeout 0 -np 1 -wdir "$PWD/n0" "${of[@]}" : -np 1 -wdir "$PWD/n1" "${of[@]}"
}
behind log3 two_nodes
await $! has_saved n0/ck 30
kill -KILL "$(rank_of "$PWD/nodes.h5")"
wait
newest=$(newest_of n0/ck)
# As if it had been killed when one node's part of the next step had its name and the manifest was not there yet,
# and another time behind rank 0's removing of an old one.
for step in 1 $((newest + 10)); do
    cp -r "n1/ck/step-$(printf %010d "$newest")" "n1/ck/step-$(printf %010d "$step")"
done
sed -i "s/ to step [0-9]*\$/ to step $((newest + 20))/" nodes.h5.parts/run.log
run two_nodes --resume
expect_exit 0
expect_stdout "resumed from ck/step-$(printf %010d "$newest"): step $newest,"
kept="step-$(printf %010d $((newest + 10))) step-$(printf %010d $((newest + 20))) "
for node in n0 n1; do
    check "what is kept is on $node, and nothing else" test "$(ls $node/ck | tr '\n' ' ')" = "$kept"
done
finish
