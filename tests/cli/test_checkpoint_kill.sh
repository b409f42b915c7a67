#!/usr/bin/env bash
# A study that is killed at any moment of saving, publishing, removing or loading leaves its newest
# published checkpoint whole: 10 kills, or 200 with --deep after the folder of programs (or
# SCALESTUDY_DEEP=1). The file layer alone is killed more often in unit test_checkpoint_kill.
. "$(dirname "$0")/lib.sh"

kills_wanted=10
if [ "${2:-}" = --deep ] || [ "${SCALESTUDY_DEEP:-0}" = 1 ]; then kills_wanted=200; fi
study=$bin/scalestudy
seed=${SEED:-$$}
RANDOM=$seed
steps_of() { find D -path 'D/step-*/manifest.json' 2>/dev/null | sed -E 's/.*step-0*([0-9]+).*/\1/' | sort -n; }

# Every rank and the launcher die at once: they are one session, though not one group of processes. Until nobody is
# left: one that was being started is in the next list.
alive_of() { ps -o pid=,stat= --sid "$1" | awk '$2 !~ /^Z/ { print $1 }'; }
kill_job() {
    local pids
    while pids=$(alive_of "$1") && [ -n "$pids" ]; do
        # shellcheck disable=SC2086 # several are several words
        kill -KILL $pids 2>/dev/null
    done
}

kills=0 during_load=0 published=0 folders=0 empty=0
while [ $kills -lt "$kills_wanted" ]; do
    before=$(steps_of | tail -n 1)
    mode=$(shuf -n 1 -e --random-source=<(yes $RANDOM) sync staged snapshot lazy)
    files=$(shuf -n 1 -e --random-source=<(yes $RANDOM) per-rank shared)
    from=()
    [ -z "$before" ] || from=(--resume-from D)
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OPENBLAS_NUM_THREADS=1
    rm -f out.h5
    rm -rf out.h5.parts
    touch marker
    setsid mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np 2 "$study" --layout 1x2 --points 1x2 \
        -w 1 --min-steps 1 --max-steps 1 --block 1 --check off --checkpoint-dir D --checkpoint-mode "$mode" \
        --checkpoint-files "$files" --checkpoint-saves 1000 --checkpoint-keep 2 --out out.h5 "${from[@]}" \
        >log 2>stderr </dev/null &
    job=$!
    # From the first save on (or at once, now and then: while it loads), for up to a second.
    tries=0
    if [ ${#from[@]} -eq 0 ] || [ $((RANDOM % 4)) -ne 0 ]; then
        while [ $tries -lt 200 ] && [ -z "$(find D -name 'saving-*.tmp' -newer marker 2>/dev/null)" ]; do
            sleep 0.05
            tries=$((tries + 1))
        done
    else
        during_load=$((during_load + 1))
    fi
    ms=$((RANDOM % 1000))
    sleep "0.$(printf %03d $ms)"
    alive=no
    kill -0 $job 2>/dev/null && alive=yes
    kill_job $job
    wait $job 2>/dev/null
    check "kill $kills (seed $seed): the job was alive" test $alive = yes
    [ $alive = yes ] || { head -n 5 stderr; break; }
    kills=$((kills + 1))
    newest=$(steps_of | tail -n 1)
    if [ -z "$newest" ]; then
        empty=$((empty + 1))
        check "what was published stays" test -z "$before"
        continue
    fi
    check "kill $kills (seed $seed, $mode, $files): nothing published is lost" test "$newest" -ge "${before:-0}"
    [ "$newest" = "${before:-0}" ] || published=$((published + 1))
    [ -z "$(find D -name 'saving-*.tmp' -newer marker 2>/dev/null)" ] || folders=$((folders + 1))
    run mpi 1 "$study" --layout 1x1 --resume-from D --validate
    if [ "$status" != 0 ]; then
        miss "kill $kills (seed $seed, $mode, $files): the newest loads and verifies"
        show
        break
    fi
    pass
done
check "kills hit saves that were under way" test "$folders" -gt 0
check "checkpoints were published between kills" test "$published" -gt 0

# The next job finds its way: what was half made is gone, and training goes on.
run mpi 2 "$study" --layout 1x2 --points 1x2 -w 1 --min-steps 1 --max-steps 1 --block 1 --check off \
    --checkpoint-dir D --checkpoint-saves 1 --resume-from D --out last.h5
expect_exit 0
check "nothing half is left" test -z "$(find D -name '*.tmp')"
check "what was being removed is gone" test "$(find D -maxdepth 1 -name 'step-*' | wc -l)" = "$(steps_of | wc -l)"
echo "$kills kills, $during_load while loading, $folders with files under way, $published with news, $empty before any"
finish
