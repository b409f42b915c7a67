#!/usr/bin/env bash
# Run a study until it is whole: start it, and start it again with --resume when it was killed.
#
#     jobscripts/drill.sh FILE.h5 LAUNCHER... scalestudy drill OPTION...
#     jobscripts/drill.sh r.h5 mpirun -np 4 build/release/bin/scalestudy drill --layout 2x2 --points 2x2 \
#         --run-steps 400 --checkpoint-dir ckpt --checkpoint-every 50 --kill host:1 --kill-in save
#
# "scalestudy drill" kills its first launch itself; without the word any run (--run-steps) is kept going
# the same way, whatever ends it. The script adds --out FILE.h5, writes into FILE.h5.parts/run.log when it
# knew that a launch had ended, which is where detection ends and restart begins, and leaves with the
# status of the last launch. From the environment:
#
#     SCALESTUDY_RESTARTS   how often it starts again, at most (3)
#
# Not started again: what ended in order (0, 7, 9, 10, 12), what was refused (5, 6) or could not be written (8), and
# what this script was told to stop: SIGTERM and SIGUSR1 go to LAUNCHER as SIGUSR1, which mpirun and srun hand on,
# so that the run saves its state and leaves with 11. LAUNCHER is to be one of them, not a shell around it.
set -uo pipefail
usage() { sed -n '2,18s/^# \{0,1\}//p' "$0"; }
case ${1:-} in
-h | --help) usage && exit 0 ;;
esac
[ $# -ge 2 ] || { usage >&2 && exit 6; }

out=$1
shift
resume=()
[ ! -d "$out.parts" ] || resume=(--resume)
child='' stopping=no hit=no
stop() { # SIGNAL
    stopping=yes hit=yes
    [ -z "$child" ] || kill "-$1" "$child"
}
trap 'stop USR1' USR1 TERM
trap 'stop TERM' INT
for ((launch = 0; ; launch++)); do
    "$@" --out "$out" "${resume[@]}" &
    child=$!
    status=127
    while :; do # a signal ends a wait and not the launch
        hit=no
        wait "$child"
        now_is=$?
        [ "$now_is" = 127 ] || status=$now_is # 127: nothing is left to wait for
        [ "$hit" = yes ] || break
    done
    now=${EPOCHREALTIME:+${EPOCHREALTIME/[.,]/}000} # bash 5: without another process
    now=${now:-$(date +%s%N)}
    case $status in
    0 | 5 | 6 | 7 | 8 | 9 | 10 | 12) exit "$status" ;;
    esac
    echo "# drill.sh: launch ended with status $status, known at $now" >&2
    if [ "$stopping" = yes ] || [ "$launch" -ge "${SCALESTUDY_RESTARTS:-3}" ] || [ ! -d "$out.parts" ]; then
        exit "$status"
    fi
    echo "detected $now" >>"$out.parts/run.log"
    resume=(--resume)
done
