#!/usr/bin/env bash
# drills.sh BIN_DIR [N [FIRST]]: N drills (20), from number FIRST (0) on, with kill moments spread over step and save, modes and victims, for
# RESULTS.md. Each line is one drill: for every measured interval the study's seconds, those of an observer
# with a clock of his own (tests/observer.py), and the difference. Leaves with 1 when one is above 0.2 s.
set -euo pipefail
bin=$(cd "${1:?usage: drills.sh BIN_DIR [N [FIRST]]}" && pwd)
wanted=${2:-20} first=${3:-0}
top=$(cd "$(dirname "$0")/../.." && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/drills.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
export OPENBLAS_NUM_THREADS=1
cd "$scratch"
python=/usr/bin/python3
"$python" -c 'import h5py' || { echo "drills.sh: $python has no h5py" >&2 && exit 77; }

modes=(staged sync lazy snapshot) who=(rank:0 rank:1 host:1 rank:3) moments=(step save)
failed=0
for ((i = first; i < first + wanted; i++)); do
    rm -rf "d$i.h5" "d$i.h5.parts" ckpt
    printf '%2d %-8s ' "$i" "${modes[i / 2 % 4]}"
    "$python" "$top/tests/observer.py" "$scratch/d$i.h5" "$top/jobscripts/drill.sh" "$scratch/d$i.h5" \
        mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np 4 "$bin/scalestudy" drill \
        --layout 2x2 --points 2x2 --check off -w 2 --run-steps 60 --checkpoint-dir ckpt --checkpoint-every 12 \
        --checkpoint-mode "${modes[i / 2 % 4]}" --kill "${who[i % 4]}" --kill-in "${moments[i / 4 % 2]}" \
        --kill-seed "$i" || failed=$((failed + 1))
done
echo "$((wanted - failed)) of $wanted drills agree within 0.2 s in every interval"
[ "$failed" = 0 ]
