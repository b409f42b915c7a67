#!/usr/bin/env bash
# Checkpoints from a GPU: every mode saves what every layout and the CPU can go on from, and the gate
# proves the next step.
gpus=$("$(dirname "$0")/count.sh")
. "$(dirname "$0")/../cli/lib.sh"

study=$bin/scalestudy
[ "$gpus" -gt 0 ] || skip "no GPU here"
common=(--model tiny --device cuda -w 3 --min-steps 8 --max-steps 8 --block 4 --global-batch 8)
modes=sync,staged,snapshot,lazy

# saves NAME RANKS OPTION...: all modes, three saves each, every point valid.
saves() {
    local name=$1 ranks=$2
    shift 2
    run mpi "$ranks" "$study" --layout "1x$ranks" --points "1x$ranks" "${common[@]}" "$@" \
        --checkpoint-dir "$name" --checkpoint-mode "$modes" --checkpoint-every 4 --checkpoint-saves 3 --out "$name.h5"
    expect_exit 0
    run "$bin/scalereport" "$name.h5"
    for mode in ${modes//,/ }; do
        check "$name: $mode" grep -qE "^ +1 +$ranks +$mode +" "$scratch/stdout"
    done
}
# resumes FROM NAME RANKS OPTION...: whole, and by the gate's own measure right.
resumes() {
    local from=$1 name=$2 ranks=$3
    shift 3
    run mpi "$ranks" "$study" --layout "1x$ranks" --points "1x$ranks" "${common[@]}" "$@" --resume-from "$from" --out "$name.h5"
    expect_exit 0
    [ "$(awk '/^ +[0-9]/ && / ok/' "$scratch/stdout" | wc -l)" = 1 ] || show
}

for dtype in fp32 bf16; do
    saves "one-$dtype" 1 --dtype "$dtype"
    resumes "one-$dtype" "again-$dtype" 1 --dtype "$dtype"
done
resumes one-fp32 on-cpu 1 --dtype fp32 --device cpu
if [ "$gpus" -gt 1 ]; then
    saves two-shard 2 --dtype bf16 --parallel shard=2
    resumes two-shard shard-dp 2 --dtype bf16 --parallel dp=2
    resumes two-shard shard-tp 2 --dtype bf16 --parallel tp=2
    resumes two-shard shard-zero 2 --dtype bf16 --parallel shard=2 --shard-stage 1
    resumes two-shard shard-one 1 --dtype bf16
    saves two-dp 2 --dtype bf16 --parallel dp=2
    resumes two-dp dp-shard 2 --dtype bf16 --parallel shard=2
fi
finish
