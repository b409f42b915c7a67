#!/usr/bin/env bash
# scalereport check: plans of all ranks of a layout, without MPI, BLAS or any device.
. "$(dirname "$0")/lib.sh"

report="$bin/scalereport"

check "scalereport needs no MPI and no fast BLAS at run time" \
    sh -c "! ldd '$report' | grep -qE 'libmpi|libopenblas|libblis'"

# 4,096 ranks: one class, in seconds, in little memory.
TIMEFORMAT=%R
seconds=$({ time "$report" check --layout 512x8 --parallel tp=8,shard=512 --model llama-70b -d bf16 \
    >large 2>err; } 2>&1)
check "4,096 ranks of llama-70b are checked" grep -q '^# 4096 ranks in 1 class of' large
check "they all meet their partners" grep -q 'calls: all meet their partners, also one at a time' large
check "tp stays inside the node" awk '$1 == "tp" && $3 > 0 && $4 == 0 {found = 1} END {exit !found}' large
check "shard crosses nodes alone" awk '$1 == "shard" && NF == 4 && $3 == 0 && $4 > 0 {found = 1} END {exit !found}' large
echo "4,096 ranks: $seconds s"
check "in 60 s on a loaded machine" awk "BEGIN {exit !($seconds < 60)}"
(
    ulimit -v 2097152
    "$report" check --layout 512x8 --parallel tp=8,shard=512 --model llama-70b -d bf16 >limited 2>&1
)
check "in 2 GiB of address space" cmp -s <(grep -v '^# 4096' large) <(grep -v '^# 4096' limited)

# FSDP of a model with a tied head: A (2 gathers of 2 B and a reduction of 4 B) N (n-1)/n, but for
# the final norm, which is gathered once, and 2 (n-1)/n 8 B for the norm of gradients; units are
# padded to 16 n elements.
"$report" check --layout 1x2 --parallel shard=2 --model gpt2-124m -d bf16 --micro-batch 1 \
    --global-batch 6 >fsdp
check "volume of FSDP in three micro-batches" awk '
    $1 == "shard" && NF == 4 {
        h = 768; layer = 12 * h * h + 13 * h; embeddings = (50304 + 1024) * h; last = 2 * h
        want = (3 * (8 * (12 * layer + embeddings) + 6 * last) + 2 * 8) / 2
        exit !($3 == want && $4 == 0); }' fsdp

# Several layouts, and what a policy changes.
"$report" check --layout 2x4 --parallel dp=8 --parallel tp=2,shard=2 --parallel shard=8 >several
check "a table for each layout" test "$(grep -c 'of equal calls' several)" = 3
"$report" check --layout 1x4 --parallel shard=4 --global-batch 32 --reduce last --pack off >last
"$report" check --layout 1x4 --parallel shard=4 --global-batch 32 --reduce every --pack off >every
"$report" check --layout 1x4 --parallel shard=4 --global-batch 32 --reduce every >packed
check "values that do not live together share memory" test \
    "$(awk '$1 == "all" { print $2 }' packed)" -lt "$(awk '$1 == "all" { print $2 }' every)"
check "and it is said what lived where most did" grep -q '^# packed: .* live together, at op' packed
check "--pack off says nothing of it" test "$(grep -c '^# packed' every)" = 0
check "whole gradients are held where they are reduced in the last micro-batch" \
    test "$(awk '$1 == "gradient" {print $2}' last)" -gt "$(awk '$1 == "gradient" {print $2}' every)"

# What zb-h1 leaves for later: dW of layers that are not recomputed.
bubble() { # OPTION...: of two stages and eight micro-batches, 1f1b: 12.5 %
    "$report" check --layout 1x2 --parallel pp=2 --global-batch 8 --micro-batch 1 "$@" |
        sed -n 's/.*bubble\/ideal \([0-9.]*\) %.*/\1/p'
}
check "zb-h1: a third of the idle time of 1f1b" test "$(bubble --schedule zb-h1)" = 4.17
check "zb-h1: of experts too" test "$(bubble --schedule zb-h1 --model tiny-moe)" = 4.17
check "zb-h1: nothing is left where all is recomputed" test "$(bubble --schedule zb-h1 --recompute full)" = 12.50
check "zb-h1: half of it where every other layer is" test "$(bubble --schedule zb-h1 --recompute full --recompute-every 2)" = 8.93
check "1f1b does not ask" test "$(bubble --recompute full)" = 12.50

refused() { # WORDS ARGUMENT...: exit 6, one line on stderr, nothing on stdout
    local words=$1 rc=0
    shift
    "$report" check "$@" >out 2>err || rc=$?
    check "$*: exit 6" test "$rc" = 6
    check "$*: one line" test "$(wc -l <err)" = 1
    check "$*: nothing else" test ! -s out
    check "$*: $words" grep -qF -- "$words" err
}
refused 'is 3, which does not divide the 8 ranks of 2x4; choose a product of 2 or 4' --layout 2x4 --parallel tp=3
refused 'tp=2 does not divide the heads, 25 of model gpt2-1558m; choose tp=1 or tp=5' \
    --layout 1x2 --parallel tp=2 --model gpt2-1558m
refused 'shard=3 does not divide dp=8 on 1x8; choose shard=2 or shard=4' --layout 1x8 --parallel shard=3
refused 'names tp, cp, ep, etp, dp, pp, shard; did you mean tp?' --layout 1x8 --parallel tpp=2
refused 'found "all", wanted some of grad,param,tp,cp,ep,pp, or none' --layout 1x2 --overlap all
refused 'wanted nodes x ranks such as 64x8' --layout 8
refused 'takes options alone, found "file.h5"' --layout 1x2 file.h5
refused '3 samples a step do not split over 2 replicas in micro-batches of 1; choose 2 or 4' --layout 1x2 --global-batch 3 --micro-batch 1
refused 'shard-stage' --layout 1x2 --parallel shard=2 --shard-stage 4
refused 'recompute: mlp with a model of experts is not in this version' --layout 1x2 --model tiny-moe --recompute mlp
refused '128 rows of a micro-batch do not split into 3 parts; choose 2' --layout 1x2 --head-chunks 3
refused 'there is no model called gpt5' --layout 1x2 --model gpt5
finish
