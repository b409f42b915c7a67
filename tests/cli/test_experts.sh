#!/usr/bin/env bash
# Layers of experts through the programs: what cannot be is refused in one sentence, all kinds of routing
# are proved over two ranks, their load is in the file and in the report.
. "$(dirname "$0")/lib.sh"

study=$bin/scalestudy report=$bin/scalereport
two=(--layout 1x2 --points 1x2 -w 1 --min-steps 6 --max-steps 6 --block 2)
cat >small.yaml <<'YAML'
style: llama
layers: 2
hidden: 32
heads: 4
ffn: 64
experts: 8
top-k: 2
expert-ffn: 32
vocabulary: 256
sequence: 32
tied: off
micro-batch: 2
lr: 3e-3
YAML
sed 's/^top-k: 2/top-k: 9/' small.yaml >more.yaml

# ---- refused before anything runs ----
refuses 6 "ep=2 etp=1, and model tiny has no experts" mpi 2 "$study" "${two[@]}" --parallel ep=2
refuses 6 "ep=3 does not divide the 8 experts of model small; choose ep=2 or ep=4" \
    mpi 3 "$study" --layout 1x3 --points 1x3 --model small.yaml --parallel ep=3 --global-batch 6
sed 's/^style: llama/style: gpt2/; /^tied/d' small.yaml >gpt2.yaml
refuses 6 "has experts of style llama (gated, without biases) alone" mpi 2 "$study" "${two[@]}" --model gpt2.yaml
refuses 6 "experts 8 with top-k 9" mpi 2 "$study" "${two[@]}" --model more.yaml
refuses 6 "found \"even\", wanted balanced, skewed:SIGMA or learned" \
    mpi 2 "$study" "${two[@]}" --model small.yaml --routing even
refuses 6 "found 0.5 with --routing balanced" \
    mpi 2 "$study" "${two[@]}" --model small.yaml --capacity 0.5
refuses 6 "--graph: with --routing learned --capacity none the host waits in every layer" \
    mpi 2 "$study" "${two[@]}" --model small.yaml --routing learned --capacity none --graph

# ---- every kind of routing, proved ----
for routing in balanced skewed:1.5 learned; do
    run mpi 2 "$study" "${two[@]}" --model small.yaml --parallel ep=2 --routing "$routing" \
        --out "$routing.h5"
    expect_exit 0
    expect_stdout "ok, ep=2,dp=2"
done
# ---- in bf16 rounding chooses other experts than fp32 would: the reference follows, and says how often ----
run mpi 2 "$study" "${two[@]}" --model small.yaml --parallel ep=2 --routing learned --dtype bf16 --seed 2 --out bf16.h5
expect_exit 0
expect_stdout "ok, ep=2,dp=2"

for parallel in tp=2,ep=2,etp=1,shard=2 pp=2,ep=2; do
    run mpi 4 "$study" --layout 1x4 --points 1x4 -w 1 --min-steps 4 --max-steps 4 --block 2 --micro-batch 1 \
        --global-batch 4 --model small.yaml --parallel "$parallel" --routing learned --checkpoint-dir "$parallel" \
        --checkpoint-saves 1 --out "$parallel.h5"
    expect_exit 0
    expect_stdout "ok, "
done
run mpi 2 "$study" "${two[@]}" --global-batch 4 --model small.yaml --parallel ep=2 --routing learned \
    --resume-from tp=2,ep=2,etp=1,shard=2 --out resumed.h5
expect_exit 0
expect_stdout "ok, ep=2,dp=2"

# ---- dropless: two steps of accumulation, recomputed layers, and what the host waited for ----
run mpi 2 "$study" "${two[@]}" --model small.yaml --parallel ep=2 --routing learned --capacity none \
    --micro-batch 1 --recompute full --out dropless.h5
expect_exit 0
expect_stdout "ok, ep=2,dp=2"
run "$report" dropless.h5
check "no token is dropped" awk '/ learned / { found = $6 == 0 } END { exit !found }' "$scratch/stdout"
expect_stdout "the host waits for counts of rows 8 times a step of a rank"
run "$report" balanced.h5
expect_stdout "# experts, first step"
check "balanced is even" grep -qE "balanced +1.00 +1.00 +0.00" "$scratch/stdout"
run "$report" skewed:1.5.h5
check "the hottest expert has twice its share" \
    awk '/skewed:1.5/ { found = $5 > 2 } END { exit !found }' "$scratch/stdout"
run "$report" learned.h5
check "tokens find no room" awk '/ learned / { found = $6 > 0 } END { exit !found }' "$scratch/stdout"
run "$report" compare balanced.h5 skewed:1.5.h5
expect_stdout "routing"
finish
