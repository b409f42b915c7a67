#!/usr/bin/env bash
# overlap.sh BIN_DIR [ROUNDS [MiB...]]: bench_overlap on two hosts of one rank each, joined by a link
# of 1 Gbit/s. SSNET_CORES cores a rank (default 1), of which OPENBLAS_NUM_THREADS compute (all but
# one where there are several, so that the progress thread has a core).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=${1:?usage: overlap.sh BIN_DIR [ROUNDS [MiB...]]}
shift
export SSNET_CORES=${SSNET_CORES:-1}
export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-$((SSNET_CORES > 1 ? SSNET_CORES - 1 : 1))}

"$here/net_up.sh" 2
trap '"$here/net_down.sh"' EXIT
"$here/shape.sh" "${SSNET_RATE:-1gbit}"
"$here/mpirun.sh" 2 1 "$bin/bench_overlap" "$@"
