#!/usr/bin/env bash
# What GPUs say beside a study is in its file, an audit finds the stamps right and leaves nothing behind,
# and a calibration of this machine is one that a study takes.
gpus=$("$(dirname "$0")/count.sh")
. "$(dirname "$0")/../cli/lib.sh"

study=$bin/scalestudy
[ "$gpus" -gt 0 ] || skip "no GPU here"
ranks=$((gpus > 1 ? 2 : 1))
run_of=(--layout "1x$ranks" --points "1x$ranks" --device cuda --dtype bf16 --model gpt2-124m --micro-batch 16
    --global-batch $((16 * ranks)) --sequence 1024 --check off -w 5 --min-steps 10 --max-steps 10)

within() { # WHAT VALUE LOW HIGH
    check "$1 $2 is within $3 and $4" awk -v x="$2" -v low="$3" -v high="$4" 'BEGIN { exit !(x != "" && x >= low && x <= high) }'
}

# ---- telemetry and audit ----
run mpi "$ranks" "$study" "${run_of[@]}" --audit --out a.h5
expect_exit 0
expect_stdout "# audit: step "
within "joules of a token" "$(column joules_per_token a.h5)" 1e-5 1
within "blocks" "$(column joules_n a.h5)" 1 100
within "watts" "$(column gpu_watts a.h5)" $((50 * ranks)) $((1500 * ranks))
within "clock" "$(column sm_mhz a.h5)" 200 3000
within "apart" "$(column audit_off_pct a.h5)" 0 2
within "audited over bare" "$(column audit_ratio a.h5)" 0.95 2
run mpi "$ranks" "$study" "${run_of[@]}" --telemetry off --out b.h5
expect_exit 0
check "telemetry off is none" test -z "$(column joules_per_token b.h5)"

# ---- calibration ----
run mpi "$ranks" "$study" calibrate --layout "1x$ranks" --device cuda --dtype bf16 --model gpt2-124m --micro-batch 16 \
    --global-batch $((16 * ranks)) --out c.h5 --topology-out here.yaml
expect_exit 0
expect_stdout "# step measured"
ratio=$(sed -n 's/.*measured alone [0-9.]* ms, ratio \([0-9.]*\);.*/\1/p' "$scratch/stdout")
within "the step that its own ops explain" "$ratio" 0.7 1.2
run mpi "$ranks" "$study" --layout "1x$ranks" --device timed --topology here.yaml --model gpt2-124m --dtype bf16 --validate
expect_exit 0
finish
