#!/usr/bin/env bash
# A program built with CUDA where there is no driver: it says so in one line, runs every study on the
# CPU, and refuses what needs a GPU.
. "$(dirname "$0")/lib.sh"

study=$bin/scalestudy
"$study" --version | grep -q '^cuda none' && skip "a build without CUDA"
command -v nvidia-smi >/dev/null && nvidia-smi -L >/dev/null 2>&1 && skip "this machine has a GPU"
quick=(-w 2 --min-steps 5 --max-steps 5)

run "$study" --version
expect_stdout "cuda 1" "nccl 2." "cudnn 9."
check "no driver library is linked" bash -c "! ldd '$study' | grep -q 'libcuda\.so'"
check "scalereport needs nothing of CUDA" bash -c "! ldd '$bin/scalereport' | grep -qE 'cuda|cublas|nccl|cudnn'"
check "NCCL can find its profiler in the program" bash -c "nm -D '$study' | grep -q ncclProfiler_v4"

refuses 5 "no NVIDIA driver is loaded here" mpi 2 "$study" --layout 1x2 --device cuda
refuses 5 "no NVIDIA driver is loaded here" mpi 1 "$study" --layout 1x1 --device cuda --comm nccl --dtype bf16
refuses 6 "\"nccl\" does not move the memory of device \"cpu\": take mpi" mpi 2 "$study" --layout 1x2 --comm nccl
refuses 6 "device \"cpu\" has no tf32" mpi 2 "$study" --layout 1x2 --dtype tf32
refuses 6 "one attention" mpi 2 "$study" --layout 1x2 --attention fused
refuses 6 "device \"cpu\" has no graphs" mpi 2 "$study" --layout 1x2 --device cpu --graph
refuses 6 "device \"timed\" has no graphs" mpi 2 "$study" --layout 1x2 --device timed --topology "node:1 gpu:8" --graph

run mpi 2 "$study" --layout 1x2 --model tiny --out auto.h5 "${quick[@]}"
expect_exit 0
expect_stdout "# device: no NVIDIA driver is loaded here" "using the CPU" "device cpu, comm mpi"
check "the fallback is one line" test "$(grep -c 'using the CPU' "$scratch/stdout")" = 1
run mpi 2 "$study" --layout 2x1 --model tiny --out named.h5 --device cpu --dtype bf16 --emulate-nodes "${quick[@]}"
expect_exit 0
check "nothing is said of GPUs where nobody asked" bash -c "! grep -q NVIDIA '$scratch/stdout'"
finish
