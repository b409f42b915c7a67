#!/usr/bin/env bash
# timed_link.sh BIN_DIR: half the bandwidth of a link moves exposed communication as computed. Two hosts
# of one rank each run the timed device over a link of 1 Gbit/s, then of half. TCP carries 119 MB/s over
# the first; the non-blocking all-reduce of two ranks in Open MPI 4.1 sends the whole buffer twice, so
# its bus bandwidth is half of that. Two topologies that say so, and the cost model, tell how much longer
# the step gets: their critical paths, in which kernels are the same. Prints both differences; fails
# when they are more than 15 % apart. Two minutes, root, an idle machine; 77 where hosts cannot be made.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "${1:?usage: timed_link.sh BIN_DIR}" && pwd)
export SSNET_CORES=${SSNET_CORES:-1}
scratch=$(mktemp -d "${TMPDIR:-/tmp}/timed-link.XXXXXX")

"$here/net_up.sh" 2
trap '"$here/net_down.sh"; rm -rf "$scratch"' EXIT
cd "$scratch"
# 15 MB of gradients in buckets of 4 MiB; 0.3 s of kernels
cat >small.yaml <<'END'
style: gpt2
layers: 4
hidden: 256
heads: 8
ffn: 1024
vocabulary: 2048
sequence: 128
END

machine() { # FILE BYTES_PER_S: laptop.yaml with another link between nodes
    awk -v rate="$2" '/name: node/ { node = 1 }
        node && /bandwidth:/ { print "    bandwidth: " rate " B/s"; node = 0; next } { print }' \
        "$here/../../topologies/laptop.yaml" >"$1"
}
study() { # NAME TOPOLOGY
    "$here/mpirun.sh" 2 1 "$bin/scalestudy" --layout 2x1 --points 2x1 --model small.yaml \
        --global-batch 16 --micro-batch 8 --bucket 4M --device timed --topology "$2" \
        -w 2 --min-steps 12 --max-steps 12 --block 3 --out "$scratch/$1.h5" >"$1.out"
    grep -A1 "^ *2 " "$1.out"
}
column() { # NAME STUDY
    "$bin/scalereport" --csv "$scratch/$2.h5" | awk -F, -v name="$1" '
        NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next } { print $at }'
}

machine full.yaml 59.5e6
machine half.yaml 29.75e6
"$here/shape.sh" 1gbit
study full "$scratch/full.yaml"
"$here/shape.sh" 500mbit
study half "$scratch/half.yaml"

# Kernels take the same time in both, so what the step gains is exposed communication. Medians: other
# processes on the cores can hold up single steps.
awk -v full="$(column step_ms_p50 full)" -v half="$(column step_ms_p50 half)" \
    -v stall="$(column exposed_stall_ms full)" -v longer="$(column exposed_stall_ms half)" \
    -v comm="$(column t_comm_ms full)" -v twice="$(column t_comm_ms half)" \
    -v path="$(column critical_ms full)" -v narrow="$(column critical_ms half)" 'BEGIN {
    ratio = (half - full) / (narrow - path)
    printf "step (median)  %.1f ms at 1 Gbit/s, %.1f at half: %.1f more exposed\n", full, half, half - full
    printf "critical path  %.1f, %.1f: %.1f more; measured / computed %.3f\n", path, narrow, narrow - path, ratio
    printf "stall (mean)   %.1f, %.1f; comm-only steps (mean) %.1f, %.1f\n", stall, longer, comm, twice
    exit !(ratio > 0.85 && ratio < 1.15)
}'
