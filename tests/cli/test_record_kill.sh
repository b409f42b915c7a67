#!/usr/bin/env bash
# A writer that is killed at any moment loses no point that it said was published: 25 kills, or 200
# with --deep after the folder of programs (or SCALESTUDY_DEEP=1).
. "$(dirname "$0")/lib.sh"

kills_wanted=25
if [ "${2:-}" = --deep ] || [ "${SCALESTUDY_DEEP:-0}" = 1 ]; then kills_wanted=200; fi
writer=$bin/bench_record_writer
points=24
seed=${SEED:-$$}
RANDOM=$seed

# How long a whole study takes here, in ms: kills fall anywhere within it. A launch that has only the
# merge to do gets twice as long, so that it comes to an end now and then.
started=$(date +%s%N)
run "$writer" write whole.h5 $points
expect_exit 0
whole_ms=$((($(date +%s%N) - started) / 1000000 + 1))
check "a study that nobody killed" "$writer" verify whole.h5 $(seq 0 $((points - 1)))

kills=0 within_append=0 within_finish=0 studies=0 looked_at=0

published() { sed -n 's/^point \([0-9]*\) published$/\1/p' log; }

new_study() {
    rm -rf out.h5 out.h5.parts out.h5.tmp
    : >log
    studies=$((studies + 1))
}

# Start the writer, go on with what is there, and kill it after a while (if it still lives).
launch_and_kill() {
    local how=write pid ms=$((RANDOM % whole_ms))
    [ ! -e out.h5.parts ] || how=resume
    [ ! -e "out.h5.parts/$(printf %03d $((points - 1))).h5" ] || ms=$((2 * ms))
    "$writer" $how out.h5 $points >>log 2>stderr &
    pid=$!
    sleep "$(printf '%d.%03d' $((ms / 1000)) $((ms % 1000)))"
    kill -KILL $pid 2>/dev/null
    wait $pid 2>/dev/null
    status=$?
}

new_study
while [ $kills -lt $kills_wanted ] || [ $within_append -lt $((kills_wanted / 5)) ]; do
    launch_and_kill
    if [ "$status" = 137 ]; then
        kills=$((kills + 1))
        case $(tail -n 1 log) in
        appending*) within_append=$((within_append + 1)) ;;
        finishing*) within_finish=$((within_finish + 1)) ;;
        esac
    elif [ "$status" != 0 ]; then
        miss "the writer left with $status: $(cat stderr)"
        break
    fi
    mapfile -t said < <(published)
    looked_at=$((looked_at + ${#said[@]}))
    if [ ${#said[@]} -gt 0 ]; then
        check "kill $kills (seed $seed): every published point" "$writer" verify out.h5 "${said[@]}"
    fi
    if [ -e out.h5 ]; then
        check "a finished study has all points" "$writer" verify out.h5 $(seq 0 $((points - 1)))
        new_study
    fi
done

# The last one is brought to its end.
if [ -e out.h5.parts ]; then
    run "$writer" resume out.h5 $points
    expect_exit 0
    check "resumed to its end" "$writer" verify out.h5 $(seq 0 $((points - 1)))
    check "its parts are gone" test ! -e out.h5.parts
fi
check "some kills fell into an append" test $within_append -gt 0
echo "$kills kills ($within_append within an append, $within_finish within the merge), $studies" \
    "studies, $looked_at published points looked at"
finish
