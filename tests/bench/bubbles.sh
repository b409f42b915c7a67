#!/usr/bin/env bash
# bubbles.sh BIN_DIR [CASE...]: pipelines on the timed device, for RESULTS.md. What a step takes against the
# replay of its schedule with the ops that it timed, transfers free and as long as this run's were; and
# idle over ideal time against the closed form. "equal": equal stages without the cost of a head; a
# model of its own file otherwise. CASE: 1f1b-4, v4-4, ... as in the first column; all take 6 minutes on
# two idle cores. Ranks sleep while they compute, but transfers want cores: keep the machine idle.
set -euo pipefail
bin=$(cd "${1:?usage: bubbles.sh BIN_DIR [CASE...]}" && pwd)
models=$(cd "$(dirname "$0")/../../workloads/models" && pwd)
shift
wanted=" $* "
scratch=$(mktemp -d "${TMPDIR:-/tmp}/bubbles.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
if [ "$(id -u)" = 0 ]; then export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1; fi
cd "$scratch"

# 16 layers as wide: their time grows with the square, that of embedding, loss and transfers does not.
equal() { # WIDTH
    cat <<YAML
style: gpt2
layers: 16
hidden: $1
heads: 8
ffn: $((4 * $1))
vocabulary: 8
sequence: 128
pad: 8
tied: off
micro-batch: 1
lr: 3e-4
YAML
}
equal 256 >equal.yaml
equal 512 >wide.yaml

printf '%-15s %-10s %-11s %2s %2s %3s | %8s %9s %6s | %9s %9s %9s %9s %9s %9s | %7s %7s\n' case model schedule p v m \
    'bubble_%' 'closed_%' ratio ideal_ms replay_ms transf_ms   late_ms expect_ms step_ms /replay /expect
row() { # NAME STAGES CHUNKS MICRO_BATCHES MODEL TOPOLOGY OPTION...
    local name=$1 p=$2 v=$3 m=$4 model=$5 topology=$6
    shift 6
    case $wanted in "  " | *" $name "*) ;; *) return 0 ;; esac
    mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np "$p" "$bin/scalestudy" \
        --layout "1x$p" --points "1x$p" --model "$model" --parallel "pp=$p" --global-batch "$m" --micro-batch 1 \
        --device timed --topology "$topology" --virtual-stages "$v" --check off -w 1 --min-steps 4 --max-steps 4 \
        --block 2 --max-seconds 12 --out "$name.h5" "$@" >out.txt 2>&1 || { cat out.txt >&2 && exit 1; }
    "$bin/scalereport" --csv "$name.h5" | sed 's/"[^"]*"/text/g' | awk -F, -v name="$name" -v model="${model%.yaml}" '
        NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
        {
            replay = $at["replay_ms"]; expect = $at["replay_moved_ms"]; step = $at["step_ms_mean"]
            bubble = $at["bubble_ideal_pct"]; closed = $at["bubble_closed_pct"]
            printf "%-15s %-10s %-11s %2d %2d %3d | %8.3f %9.3f %6.3f | %9.3f %9.3f %9.3f %9.3f %9.3f %9.3f | %7.4f %7.4f\n",
                name, model, $at["schedule"], $at["pp"], $at["virtual_stages"], $at["gbs"], bubble, closed,
                bubble / closed, replay - $at["bubble_ms"], replay, $at["pp_transfer_ms"], $at["late_ms"], expect, step,
                step / replay, step / expect
        }'
}

for p in 2 4; do
    m=$((4 * p))
    row "1f1b-$p" $p 1 $m equal.yaml laptop
    row "gpipe-$p" $p 1 $m equal.yaml laptop --schedule gpipe
    row "v2-$p" $p 2 $m equal.yaml laptop --schedule interleaved
    row "v4-$p" $p 4 $m equal.yaml laptop --schedule interleaved
    # chunks of 3 ms show how late ranks wake up, some 0.1 ms a task: the same with four times the work
    row "v4-$p-wide" $p 4 $m wide.yaml laptop --schedule interleaved
    row "zb-$p" $p 1 $m equal.yaml laptop --schedule zb-h1
    row "blocked-$p" $p 1 $m equal.yaml laptop --overlap none
done
# The whole of models, head and tables included. Not tied: the sum of a table of 50,000 words over stages
# would go through this machine's memory.
real() { # MODEL TOPOLOGY SEQUENCE
    sed '/^tied:/d; /^name:/d' "$models/$1.yaml" >"$1.yaml"
    echo 'tied: off' >>"$1.yaml"
    row "$1-1f1b" 2 1 8 "$1.yaml" "$2" --sequence "$3"
    row "$1-v2" 2 2 8 "$1.yaml" "$2" --sequence "$3" --schedule interleaved
    row "$1-zb" 2 1 8 "$1.yaml" "$2" --sequence "$3" --schedule zb-h1
}
real gpt2-124m laptop 16
real llama-1b h100-8x400g 512
