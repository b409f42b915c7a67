#!/usr/bin/env bash
# Install what is missing, build, measure this machine, print the curve. No cluster, no GPU needed.
#
#     jobscripts/local.sh [--no-install] [BUILD_DIR] [-- OPTION...]
#
# BUILD_DIR (build/release) receives the programs and the study. The job has one rank a core, at most
# four, each declared a node of its own: powers of two up to there. OPTIONs go to scalestudy. A second
# curve shows 1, 2, 4 and 8 nodes of a machine that is not there (the timed device).
set -euo pipefail
usage() { sed -n '2,8s/^# \{0,1\}//p' "$0"; }

install=yes build=build/release
while [ $# -gt 0 ]; do
    case $1 in
    --no-install) install=no ;;
    --) shift && break ;;
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && exit 6 ;;
    *) build=$(realpath -m -- "$1") ;;
    esac
    shift
done
cd "$(dirname "$0")/.."
. jobscripts/packages.sh

[ "$install" = no ] || install_missing "${packages_run[@]}"
quietly cmake --preset release -B "$build"
quietly cmake --build "$build" --parallel "$(nproc)" --target scalestudy scalereport

# Cores, not hardware threads, and only those that this shell may use.
cpus=$(nproc)
cores=$(lscpu -p=core,socket 2>/dev/null | grep -v '^#' | sort -u | wc -l || true)
if [ "$cores" -eq 0 ] || [ "$cores" -gt "$cpus" ]; then cores=$cpus; fi
ranks=$((cores < 4 ? cores : 4))

if [ "$(id -u)" = 0 ]; then
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
fi
study=$build/local-$(date -u +%Y%m%dT%H%M%S)-$$.h5
echo "# $ranks rank(s); a point ends when its interval is within 1 %, or after a minute of timed steps" >&2
launch=(mpirun --bind-to core:if-supported -np "$ranks")
"${launch[@]}" "$build/bin/scalestudy" --layout "${ranks}x1" --out "$study" "$@" >&2
"$build/bin/scalereport" "$study"
echo "# study: $study"

# Kernels that sleep: eight ranks share the cores. Their communication is this machine's.
timed=${study%.h5}-timed.h5
echo "# then 1, 2, 4, 8 nodes of a timed device, half a minute" >&2
mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np 8 "$build/bin/scalestudy" \
    --layout 8x1 --nodes 1,2,4,8 --base alone --device timed --topology laptop --min-steps 15 --max-seconds 3 \
    --out "$timed" >&2
"$build/bin/scalereport" "$timed" | sed -n '/^# TIMED/p; /^# work    /,/^#$/p; /^# nodes ranks tokens.s +-/,/^#$/p'
echo "# study: $timed"
