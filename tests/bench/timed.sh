#!/usr/bin/env bash
# timed.sh BIN_DIR: how well the timed device keeps time, for RESULTS.md. One rank of several models
# against the critical path of its plan; then 1 to 8 ranks that share the cores of this machine:
# compute-only steps (no communication) against the kernels' sum, and how late deadlines were.
set -euo pipefail
bin=$(cd "${1:?usage: timed.sh BIN_DIR}" && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/timed.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
cd "$scratch"

study() { # RANKS TOPOLOGY MODEL OPTION...
    local ranks=$1 topology=$2 model=$3
    shift 3
    rm -f out.h5
    mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np "$ranks" "$bin/scalestudy" \
        --layout "${ranks}x1" --points "${ranks}x1" --device timed --topology "$topology" --model "$model" \
        -w 3 --out out.h5 "$@" >out.txt 2>&1 || { cat out.txt >&2 && exit 1; }
    "$bin/scalereport" --csv out.h5 | awk -F, -v what="$ranks x $model on $topology" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        { printf "%-36s step %9.3f ms [%9.3f, %9.3f]  path %9.3f  compute-only %9.3f  stall %8.3f  late %.4f, most %.3f\n",
            what, $at["step_ms_mean"], $at["ci_lo_ms"], $at["ci_hi_ms"], $at["critical_ms"], $at["t_compute_ms"],
            $at["exposed_stall_ms"], $at["late_ms"], $at["late_most_ms"] }'
}

study 1 laptop tiny --min-steps 40 --max-steps 40
study 1 h100-8x400g tiny --min-steps 200 --max-steps 200 --block 20
study 1 h100-8x400g gpt2-124m --global-batch 8 --min-steps 10 --max-steps 10
for ranks in 2 4 8; do
    study $ranks laptop tiny --global-batch 32 --min-steps 20 --max-steps 20
done
