#!/usr/bin/env bash
# Sequences cut over cp: each kind passes the gate and gives the loss of one rank, its traffic and memory
# are what was said before; state goes from one cut to another; what does not divide is refused.
. "$(dirname "$0")/lib.sh"
study=$bin/scalestudy
report=$bin/scalereport
short=(-w 1 --min-steps 2 --max-steps 2 --block 2 --model tiny --global-batch 4 --micro-batch 2)
two=(--layout 1x2 --points 1x2)
loss() { "$report" "$1" --json | sed -nE 's/.*"final_loss": ?([0-9.]+).*/\1/p' | head -n 1; }

run mpi 1 "$study" --layout 1x1 "${short[@]}" --check off --out one.h5
expect_exit 0
for kind in ring allgather ulysses; do
    run mpi 2 "$study" "${two[@]}" "${short[@]}" --parallel cp=2 --cp-kind "$kind" --out "$kind.h5"
    expect_exit 0
    expect_stdout "ok, cp=2"
    check "$kind: the loss of one rank" awk -v a="$(loss one.h5)" -v b="$(loss "$kind.h5")" \
        'BEGIN { exit !(a > 0 && (a - b) ^ 2 < (1e-4 * a) ^ 2) }'
    run "$report" "$kind.h5"
    expect_exit 0
    check "$kind: bytes of cp agree" grep -qE "^ +1 +2 +cp +inside .* yes$" "$scratch/stdout"
    check "$kind: gradients go over dp with cp" grep -qE "^ +1 +2 +dp-cp +inside .* yes$" "$scratch/stdout"
done
check "a kind is its own layout" test "$("$report" compare ring.h5 ulysses.h5 | grep -c "cp=2")" -ge 2

# ---- gradients that are rounded on their way are judged as such, whatever computes ----
run mpi 2 "$study" "${two[@]}" "${short[@]}" --grad-dtype bf16 --parallel dp=2 --parallel cp=2 --parallel shard=2 \
    --out rounded.h5
expect_exit 0
check "all are proved" test "$(grep -c ' ok, \| ok$' "$scratch/stdout")" = 3

# ---- a longer life than one cut ----
run mpi 2 "$study" "${two[@]}" "${short[@]}" --check off --parallel cp=2 --checkpoint-dir D --out save.h5
expect_exit 0
newest=$(ls D | tail -n 1)
for parallel in cp=2 dp=2 shard=2; do
    run mpi 2 "$study" "${two[@]}" "${short[@]}" --check off --parallel "$parallel" --cp-kind ulysses --resume-from D \
        --out "from-$parallel.h5"
    expect_exit 0
    expect_stdout "# resumed from D/$newest: step "
done

# ---- refusals ----
refuses 6 "the sequence 30 does not divide by 4, the chunks of cp=2 (two of each rank, zig-zag); choose 28 or 32" \
    mpi 2 "$study" "${two[@]}" "${short[@]}" --parallel cp=2 --sequence 30
refuses 6 "cp=2 with ulysses does not divide the 25 heads and 25 kv heads" \
    "$report" check --layout 1x2 --parallel cp=2 --model gpt2-1558m --cp-kind ulysses
refuses 6 "--cp-kind: found \"rings\", wanted one of ring|allgather|ulysses" \
    mpi 2 "$study" "${two[@]}" "${short[@]}" --parallel cp=2 --cp-kind rings
refuses 6 "keeps cp=2 and dp=2 apart" \
    "$report" check --layout 1x8 --parallel cp=2,dp=2,tp=2 --model gpt2-124m --order cp-tp-dp-pp
finish
