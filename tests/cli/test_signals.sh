#!/usr/bin/env bash
# Whatever stops a job in its first moments, before MPI knows how many ranks there are, is said by one rank,
# with the code of the table; and what was printed to nobody is no success.
. "$(dirname "$0")/lib.sh"

study=$bin/scalestudy
quick=(--layout 1x1 --check=off --sequence 16 -w 1 --min-steps 2 --max-steps 2 --block 2)

# A study file that nobody has written yet holds the program where it reads its options.
mkfifo options.yaml

# catches PID SIGNAL_NUMBER: it has said what it does with that signal.
catches() {
    local mask
    mask=$(awk '/^SigCgt/ { print $2 }' "/proc/$1/status" 2>/dev/null)
    [ -n "$mask" ] && (((0x${mask: -8} >> ($2 - 1)) & 1))
}

# stopped SIGNAL NUMBER COMMAND...: send it as soon as the command would hear it.
stopped() {
    local signal=$1 number=$2 i
    shift 2
    command_line="SIG$signal to $*"
    "$@" --study options.yaml >"$scratch/stdout" 2>"$scratch/stderr" </dev/null &
    local pid=$!
    for ((i = 0; i < 500; i++)); do
        ! catches $pid "$number" || break
        sleep 0.02
    done
    kill "-$signal" $pid
    "${feed[@]}"
    wait $pid
    status=$?
}

feed=(true)
stopped TERM 15 "$study" "${quick[@]}" --out a.h5
expect_exit 11
expect_stderr "interrupted while starting: nothing was measured"
expect_one_line
stopped TERM 15 env PMI_RANK=1 PMI_SIZE=2 "$study" "${quick[@]}" --out a.h5
expect_exit 11
check "the second rank leaves the word to the first" test ! -s "$scratch/stderr"
stopped TERM 15 env PMI_RANK=0 PMI_SIZE=2 "$study" "${quick[@]}" --out a.h5
expect_exit 11
expect_one_line
if [ -x /usr/bin/python3 ]; then # a shell lets its background jobs ignore SIGINT
    stopped INT 2 /usr/bin/python3 -c 'import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])' "$study" "${quick[@]}" --out a.h5
    expect_exit 130
    expect_stderr "interrupted while starting"
    expect_one_line
fi
for signal in "TERM 15" "USR1 10"; do # a calibration has nothing to keep
    # shellcheck disable=SC2086 # name and number
    stopped $signal "$study" calibrate --layout 1x1
    expect_exit 11
    expect_stderr "of a calibration nothing is kept"
    expect_one_line
done
check "nothing was written" test -z "$(find . -type f)"

# SIGUSR1 asks for an end in order, however early: the study begins, and stops before its first block.
feed=(timeout 20 bash -c 'echo "min-steps: 2" >options.yaml')
stopped USR1 10 "$study" "${quick[@]}" --out b.h5
expect_exit 11
expect_stderr "study: stopped by SIGUSR1: finished points are in b.h5.parts"
run "$study" "${quick[@]}" --study <(echo "min-steps: 2") --out b.h5 --resume
expect_exit 0

# ---- killed in MPI_Finalize, since another rank has left already: all is said, and the code stands ----
killed_last() { env LD_PRELOAD="$bin/../tests/fake/libfake_finalize.so" "$@"; }
refuses 6 "no topology called nowhere" killed_last "$study" --layout 1x1 --topology nowhere
refuses 6 "no model called nowhere" killed_last "$study" calibrate --layout 1x1 --model nowhere
run killed_last "$study" "${quick[@]}" --study <(echo "min-steps: 2") --out f.h5
expect_exit 0
check "nothing beside the table" test ! -s "$scratch/stderr"
run killed_last "$study" "${quick[@]}" --out g.h5 --check=on --test-drop-op 20
expect_exit 7
check "one rank speaks" test "$(grep -c ^scalestudy: "$scratch/stderr")" = 1

# ---- one rank cannot go on: it says why, at once; what another says, whom the launcher ends, contradicts nothing ----
mpi_seconds=60
broken() { # RANK CALL COMMAND...
    mpi 3 env LD_PRELOAD="$bin/../tests/fake/libfake_broken.so" FAKE_RANK="$1" FAKE_CALL="$2" "${@:3}"
}
three=("${quick[@]}" --layout 1x3 --points 1x1,1x3 --timeout 40)
for rank in 0 1; do
    for call in 3 60; do
        rm -rf h.h5.parts
        run broken $rank $call "$study" "${three[@]}" --out h.h5
        expect_exit 3
        expect_stderr "rank $rank)"
        check "the reason is said once" test "$(grep -c "scalestudy: mpi: MPI_Iallreduce(" "$scratch/stderr")" = 1
        without_launcher | grep -vF "scalestudy: mpi: MPI_Iallreduce(" >others
        check "beside what is left" test -z "$(grep -vxF -e "scalestudy: interrupted while starting: nothing was measured" \
            -e "scalestudy: interrupted; finished points are in h.h5.parts, --resume goes on" others)"
        check "which rank 0 says of others alone" test $rank = 1 -o ! -s others
    done
    run broken $rank 3 "$study" calibrate --layout 1x3 --block 1 --timeout 40
    expect_exit 3
    expect_stderr "rank $rank)"
    without_launcher | grep -vF "scalestudy: mpi: MPI_Iallreduce(" >others
    check "and that nothing is kept" test -z "$(grep -vxF "scalestudy: interrupted: of a calibration nothing is kept" others)"
    check "which rank 0 says of others alone" test $rank = 1 -o ! -s others
done
rm -rf h.h5.parts others

# ---- a limit of the size of files is a sentence, not a signal ----
limited() { (ulimit -f 8 && exec "$study" "${quick[@]}" --out c.h5); }
refuses 8 "File too large" limited
check "and leaves nothing" test ! -e c.h5.parts

# ---- stdout on a full disk ----
for what in --help --version "--validate --layout 1x1"; do
    # shellcheck disable=SC2086 # words
    into_full() { "$study" $what >/dev/full; }
    refuses 8 "could not be written to standard output: No space left on device" into_full
done

# ---- no streams at all: what is printed does not go to whatever is opened in their place ----
closed() { "$study" "${quick[@]}" --out d.h5 <&- >&- 2>&-; }
run closed
expect_exit 8
check "the study is whole" "$bin/scalereport" d.h5
without_stdout() { "$study" "${quick[@]}" --out e.h5 >&-; }
refuses 8 "the table could not be written to standard output: Bad file descriptor; e.h5 is complete" without_stdout
drawn() { "$bin/scalereport" d.h5 --plot drawn.svg <&- >&- 2>&-; }
run "$bin/scalereport" d.h5 --plot alone.svg
run drawn
expect_exit 8
check "the picture holds no table" cmp alone.svg drawn.svg

finish
