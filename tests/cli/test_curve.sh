#!/usr/bin/env bash
# The command that measures a host of several GPUs keeps to its time, goes on where it was cut off, says why what
# fails fails, and judges what it measured by what was to be shown; tried here without a GPU.
. "$(dirname "$0")/lib.sh"

export DEVICE=cpu DTYPE=fp32 DENSE=tiny:2 LLAMA=tiny-llama:2:16 EXPERTS=tiny-moe:1:16 OMPI_MCA_mpi_yield_when_idle=1
export OMPI_MCA_odls_base_sigkill_timeout=0 EXTRA="--sequence 16 -w 1 --min-steps 4 --max-steps 4 --block 2"
curve() {
    "$tests/gpu/curve.sh" "$@"
}

# ---- a plan of it all, within a time ----
run curve -p -g 8 "$bin"
expect_exit 0
expect_stdout "weak-shard-8 " "strong-shard-2 " "trainer-4-ddp " "llama-pp-2 " "experts-skewed-4 " "emulated-4x2 " \
    ", 0 commands do not fit into it, 0 cannot be run"
check "a plan leaves nothing behind" test ! -e curve
PACE=200 run curve -p -g 4 -t 330 "$bin" weak-dp weak-shard emulated
expect_stdout "weak-dp                   256 s expected, ends at   256 s" "weak-shard-4: not begun: 92 s expected, 74 s left" \
    "emulated-2x2: not begun: 184 s expected"
refuses 6 'no part "weak"' curve "$bin" weak
refuses 6 'found "30m", wanted a whole number' curve -t 30m "$bin"
refuses 6 "a curve takes 2 GPUs at least" curve -g 1 "$bin"

# ---- memory ----
MEMORY=4.3GB run curve -p -g 2 "$bin" weak-dp saves
expect_exit 1
expect_stdout "weak-dp failed: does not fit 4.3GB: 1x1, dp=1: a rank holds 0.0 GB" "0 s expected"

# ---- what fails, what is cut off, and what is gone on with ----
mkdir -p torch/distributed && touch torch/__init__.py torch/distributed/__init__.py
cat >torch/distributed/run.py <<'PYTHON'
import subprocess, sys
sys.exit(subprocess.call([sys.executable] + [a for a in sys.argv[1:] if not a.startswith(("--standalone", "--nproc"))]))
PYTHON
echo 'import json, sys; print(json.dumps({"step_ms_p50": 1e6, "peak_allocated_gib": 1.5, "loss": 5.0}))' >trainer.py
echo 'import time; time.sleep(3600)' >hangs.py
export PYTHONPATH=$PWD
mkdir programs && ln -s "$bin/scalestudy" "$bin/scalereport" programs # none that compares calls
HOWS=fsdp TORCH_REFERENCE=hangs.py PACE=1 run curve -g 2 -o c "$bin" trainer # 2 s are expected, 6 allowed
expect_exit 1
expect_stdout "trainer-2-fsdp failed: killed after 6 s" "1 commands ran, 1 failed, 0 not begun"
check "nothing of what was killed is left" bash -c "! pgrep -f '$PWD/[h]angs.py'"
TORCH_REFERENCE=trainer.py HOWS=fsdp run curve -g 2 -o c programs trainer calls weak-dp
expect_exit 1
expect_stdout "calls-ddp failed: exit 1: " "calls-fsdp failed: exit 1: " "6 commands ran, 2 failed, 0 not begun"
check "the machine is kept" grep -q "^levels:" c/machine.yaml
check "the trainer's cell is judged" grep -qE "^step over the trainer's, fsdp, 2 GPUs +at most 1.00 .* over 1000000.0 ms +ok$" c/summary.txt
check "and the curve" grep -qE "^weak-dp, 2 GPUs to the first of them alone +at least 0.96 .* (ok|missed)$" c/summary.txt
check "and its rate beside that of the slowest GPU" grep -qE "^weak-dp, 2 GPUs to the slowest of them alone .* (ok|missed)$" c/summary.txt
check "each of which ran alone" test "$(grep -cE '^weak-one-[01],' c/curve.csv)" = 2
check "what another size must show is not reached" grep -qE "^weak efficiency 1 to 8 GPUs .* not reached$" c/summary.txt
check "its points are kept" test "$(grep -c '^weak-dp,' c/curve.csv)" = 2
check "and its gate" grep -qE "^weak-dp +1 +2 +dp=2 .* passed " c/summary.txt
check "and its report" grep -q "^# weak scaling" c/weak-dp.txt
check "and the file" test -s c/kept/weak-dp.h5
check "and how" grep -qE "^mpirun .* scalestudy --layout 1x2 .*--points 1x1,1x2 --scaling weak" c/commands
check "no path of this machine is in it" bash -c "! grep -rF --exclude-dir=kept '$scratch' c"
check "why is kept" grep -q "^calls-ddp: exit 1" c/failures
run curve -g 2 -o c -t 1 "$bin" weak-dp weak-shard
expect_stdout "weak-dp: is there" "weak-one: is there" "weak-shard-2: not begun" "0 commands ran, 0 failed, 1 not begun"
refuses 6 "c holds another curve" curve -g 2 -c buffers -o c "$bin" weak-dp

# ---- a study that was cut off, and what it had ----
run curve -g 2 -o c "$bin" saves
expect_exit 0
check "saves are reported" grep -q "snapshot" c/saves.txt
check "checkpoints are not kept" test ! -e c/kept/checkpoint
# cut_off WHAT_EXISTS_THEN PART: begun with folder d, and ended by a signal when that is there.
cut_off() {
    "$tests/gpu/curve.sh" -g 2 -o d "$bin" "$2" >cut.log 2>&1 &
    local cut=$!
    while kill -0 $cut 2>/dev/null && ! compgen -G "$1" >/dev/null; do sleep 0.01; done
    kill -TERM $cut 2>/dev/null
    wait $cut
}
for moment in 1 2 3; do # its first ones: a command that is just being begun ends with it too
    rm -rf d
    TORCH_REFERENCE=hangs.py cut_off d/kept/trainer-2-fsdp.log trainer
    check "a signal ends it ($moment)" test $? = 130
    check "and what it ran ($moment)" bash -c "! pgrep -f '$PWD/[h]angs.py'"
done
EXTRA="$EXTRA --min-steps 60 --max-steps 60"
rm -rf d
cut_off 'd/kept/weak-dp.h5.parts/[0-9]*.h5' weak-dp
expected=--resume
[ ! -e d/kept/weak-dp.h5 ] || expected="" # all of it was there before the signal came
check "the rest of it is measured" curve -g 2 -o d "$bin" weak-dp
check "beside what was there" grep -q -- "$expected" d/commands
check "both points" test "$(grep -c '^weak-dp,' d/curve.csv)" = 2

# ---- what is said of eight GPUs' figures ----
mkdir -p f/kept && cd f/kept && echo "8 GPUs" >settings || exit
header=nodes,ranks,tp,pp,cp,ep,shard,parallel,mbs,gbs,step_ms_mean,step_ms_p50,ci_lo_ms,ci_hi_ms,tokens_per_s_gpu,eff_device_pct,eff_device_lo_pct
header=$header,eff_device_hi_pct,base_ranks,valid,gate
cat >weak-dp.csv <<CSV
$header
1,1,1,1,1,1,1,dp=1,16,16,100,100,99,101,100,100,100,100,1,1,passed
1,8,1,1,1,1,1,dp=8,16,128,103.6,103.6,103,104,96.5,96.5,95.9,97.1,1,1,passed
CSV
for gpu in 0:102 1:99 2:101 3:101 4:101 5:101 6:101 7:101; do
    printf '%s\n1,1,1,1,1,1,1,dp=1,16,16,98,98,97.02,98.98,%s,,,,,1,off\n' $header ${gpu#*:} >weak-one-${gpu%:*}.csv
done
printf '%s\n1,8,1,1,1,1,8,"dp=8,shard=8",16,128,105,105,103.95,106.05,95.2,,,,,1,passed\n' $header >weak-shard-8.csv
printf '%s\n1,2,2,1,1,1,1,tp=2,2,16,100,100,99,101,50,,,,,1,off\n' $header >llama-2.csv
printf '%s\n1,8,8,1,1,1,1,tp=8,2,16,30,30,29.7,30.3,40,,,,,0,failed\n' $header >llama-8.csv
cat >trainer-8-fsdp.log <<LOG
x:16:8:fsdp: ours fsdp 318.8 48.59 5.0 [37 s]
x:16:8:fsdp ours fsdp: 318.880 [318.880, 318.880] ms, A/A 1.0000; trainer 348.320 [348.320, 348.320] ms, A/A 1.0000; ratio 0.9155 [0.9155, 0.9155]; GiB 48.59 and 48.48; 1 launches
LOG
cat >calls-ddp.log <<LOG
all-reduce      fp32     25.000 MiB x  60  bare     100.0 us  ours     105.3 us  ratio 0.950  busbw  300.0 GB/s
all-reduce      fp64      0.000 MiB x   2  bare      10.0 us  ours      20.0 us  ratio 0.500  busbw    0.0 GB/s
of a step: bare 6000.0 us, ours 6018.0 us, ratio 0.997
LOG
echo "killed after 6 s" >saves.why
seq 60000 >saves.txt
cd ../.. || exit
check "the table" python3 "$tests/gpu/curve_table.py" f 8
verdict() { # TEXT with one blank between cells
    check "$1" grep -qF -- "$1" <(tr -s ' ' <f/summary.txt)
}
verdict "weak-dp, 8 GPUs to the first of them alone at least 0.96 0.9650 [0.9590, 0.9710]: the bound lies within the interval ok"
verdict "weak-shard, 8 GPUs to the first of them alone at least 0.96 0.9426 [0.9277, 0.9574] missed"
verdict "weak-shard, 8 GPUs to the slowest of them alone at least 0.96 0.9616 [0.9480, 0.9752]: the bound lies within the interval ok"
verdict "1 GPU, 2 launches - - passed"
verdict "step over the trainer's, fsdp, 8 GPUs at most 1.00 0.9155 [0.9155, 0.9155], 318.9 over 348.3 ms ok"
verdict "step over the trainer's, ddp, 4 GPUs at most 1.00 - not reached"
verdict "calls over a bare NCCL loop, ddp, 8 GPUs at least 0.97 0.997 over a step, least call 0.950 missed"
verdict "calls over a bare NCCL loop, fsdp, 8 GPUs at least 0.97 - not reached"
verdict "tp=8 2 16 30.000 29.700 30.300 30.000 - 80.00 78.87 81.13 2 GPU, 1 launch - - WRONG"
verdict "saves: killed after 6 s"
check "no more than 200 KB" test "$(cat f/* 2>/dev/null | wc -c)" -le 200000
check "but most of that" test "$(cat f/* 2>/dev/null | wc -c)" -ge 199000
check "what was cut is said" grep -q "^# cut here: kept/saves.txt has all of it" f/saves.txt
finish
