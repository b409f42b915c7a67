#!/usr/bin/env bash
# Pipelines through the programs: what cannot be is refused in one sentence; every schedule is proved over
# real ranks; on a timed device what stages idle is what the replay of its cost model says.
. "$(dirname "$0")/lib.sh"

study=$bin/scalestudy report=$bin/scalereport
two=(--layout 1x2 --points 1x2 --model tiny --micro-batch 1 -w 1 --min-steps 4 --max-steps 4 --block 2)
column() { # NAME FILE: that column of the CSV
    "$report" --csv "$2" | awk -F, -v name="$1" '
        NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next } { print $at }'
}

# ---- refused before anything runs ----
refuses 6 "1 micro-batch a step for pp=2 stages" \
    mpi 2 "$study" "${two[@]}" --parallel pp=2 --global-batch 1
refuses 6 "zb-h1 has one chunk a stage, and --virtual-stages is 2" \
    mpi 2 "$study" "${two[@]}" --parallel pp=2 --schedule zb-h1 --virtual-stages 2
refuses 6 "8 layers do not split into pp=2 times 3 chunks; choose --virtual-stages 2 or 4" \
    mpi 2 "$study" "${two[@]}" --parallel pp=2 --schedule interleaved --virtual-stages 3
refuses 6 "interleaved takes micro-batches by the stages" \
    mpi 2 "$study" "${two[@]}" --parallel pp=2 --schedule interleaved --virtual-stages 2 --global-batch 3
refuses 6 "ZeRO-2 (--shard-stage 2)" mpi 4 "$study" --layout 1x4 --points 1x4 --model tiny --micro-batch 1 \
    --parallel pp=2,shard=2 --shard-stage 2
refuses 6 "choose --reduce last" mpi 4 "$study" --layout 1x4 --points 1x4 --model tiny --micro-batch 1 \
    --parallel pp=2,shard=2 --reduce every

# ---- every schedule, proved ----
for schedule in "gpipe --overlap none" 1f1b "interleaved --virtual-stages 2" zb-h1; do
    name=${schedule%% *}
    # shellcheck disable=SC2086
    run mpi 2 "$study" "${two[@]}" --parallel pp=2 --global-batch 4 --schedule $schedule --out "$name.h5"
    expect_exit 0
    expect_stdout "ok, pp=2"
    # its parts are disjoint, also where an op waits for stages and for the sum of the tied table
    check "$name: no wait counts twice" awk -v rest="$(column residual_ms "$name.h5")" 'BEGIN { exit !(rest != "" && rest > -1e-3) }'
done
run "$report" zb-h1.h5
expect_stdout "# pipeline: a replay" "bubble/step_%" "bubble/ideal_%"
check "both stages are in the file" test "$(column pp zb-h1.h5)" = 2

# ---- a timed device: the bubble is that of the replay; asked again where a busy machine woke stages too late ----
cat >equal.yaml <<'YAML'
style: gpt2
layers: 8
hidden: 256
heads: 8
ffn: 1024
vocabulary: 125
sequence: 128
pad: 128
tied: off
micro-batch: 1
lr: 3e-4
YAML
near() { awk -v ideal="$(column bubble_ideal_pct t.h5)" 'BEGIN { exit !(ideal > 11 && ideal < 18) }'; }
for _ in 1 2 3 4 5; do
    rm -f t.h5
    run mpi 2 "$study" --layout 1x2 --points 1x2 --model equal.yaml --parallel pp=2 --global-batch 8 \
        --device timed --topology laptop -w 1 --min-steps 2 --max-steps 2 --block 2 --max-seconds 5 --out t.h5
    near && break
done
expect_exit 0
check "bubble over ideal is near (pp-1)/m" near
check "the step is not shorter than the replay of the model" awk -v step="$(column step_ms_mean t.h5)" \
    -v model="$(column critical_ms t.h5)" 'BEGIN { exit !(model > 0 && step > 0.97 * model) }'
finish
