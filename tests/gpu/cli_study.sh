#!/usr/bin/env bash
# Studies on GPUs: the gate holds in every type on one and two ranks, over NVLink, over emulated nodes
# and on shared GPUs; loss falls as the CPU's; what is wrong is refused in one sentence.
gpus=$("$(dirname "$0")/count.sh")
. "$(dirname "$0")/../cli/lib.sh"

study=$bin/scalestudy
[ "$gpus" -gt 0 ] || skip "no GPU here"
quick=(-w 3 --min-steps 8 --max-steps 8)

# bound_mpi RANKS PROGRAM...: as mpirun binds by itself: at two ranks, each to one core.
bound_mpi() {
    local ranks=$1
    shift
    OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 5 300 mpirun -np "$ranks" "$@"
}
points() { # how many points of the last run were ok
    awk '/^ +[0-9]/ && / ok/' "$scratch/stdout" | wc -l
}
# holds POINTS NAME RUN...: the study ends with 0, every point of it valid.
holds() {
    local n=$1
    shift
    run "$@"
    expect_exit 0
    check "$n valid points: $*" test "$(points)" = "$n"
    [ "$(points)" = "$n" ] || show
}

# ---- the gate, one rank ----
for dtype in fp32 tf32 bf16; do
    holds 1 mpi 1 "$study" --layout 1x1 --model tiny --device cuda --dtype "$dtype" --out "one-$dtype.h5" "${quick[@]}"
done
for attention in fused cudnn; do
    holds 1 mpi 1 "$study" --layout 1x1 --model tiny --device cuda --dtype bf16 --attention "$attention" \
        --out "one-$attention.h5" "${quick[@]}"
done
holds 1 mpi 1 "$study" --layout 1x1 --model tiny --device cuda --dtype bf16 --recompute selective --out again.h5 "${quick[@]}"
holds 1 mpi 1 "$study" --layout 1x1 --model tiny --device cuda --dtype bf16 --recompute mlp --out again-mlp.h5 "${quick[@]}"
holds 1 mpi 1 "$study" --layout 1x1 --model tiny --device cuda --dtype bf16 --gemm-search off --out first.h5 "${quick[@]}"
check "what products took is in the file" bash -c "grep -aq 'gemm .*candidates' one-bf16.h5"
check "no search, no candidates" bash -c "! grep -aq 'gemm .*candidates' first.h5"
run mpi 1 "$study" --layout 1x1 --model tiny --device cpu --out cpu.h5 "${quick[@]}"
for dtype in fp32 bf16; do
    check "loss on $dtype is the CPU's" awk -v a="$(column final_loss cpu.h5)" -v b="$(column final_loss "one-$dtype.h5")" \
        'BEGIN { exit !(a > 0 && (a - b) ^ 2 < (0.01 * a) ^ 2) }'
done
check "the host never waited inside a step" bash -c "! grep -aq 'the host waited' one-bf16.h5"

# ---- steps as graphs, the same bits again ----
digest() { grep -ao 'state of all ranks after [0-9]* steps: [0-9a-f]*' "$1"; }
# graphs RANKS NAME MODEL: a study whose steps are graphs too, twice.
graphs() {
    local n=$1 name=$2 model=$3 again
    for again in once again; do
        holds 1 mpi "$n" "$study" --layout "1x$n" --points "1x$n" --model "$model" --device cuda --dtype bf16 --graph --deterministic \
            --out "$name-$again.h5" "${quick[@]}"
    done
    check "the same bits again on $n: $(digest "$name-once.h5")" test "$(digest "$name-once.h5")" = "$(digest "$name-again.h5")"
    check "a digest on $n" test -n "$(digest "$name-once.h5")"
    check "eager/graph on $n is there: $(column host_ratio "$name-once.h5")" awk -v r="$(column host_ratio "$name-once.h5")" \
        'BEGIN { exit !(r > 0.5) }'
}
graphs 1 graph1 tiny
[ "$gpus" -ge 2 ] && graphs 2 graph2 tiny

# ---- heads of 64: kernels of ours on tensor cores ----
cat >heads.yaml <<'YAML'
style: llama
layers: 2
hidden: 256
heads: 4
kv-heads: 2
ffn: 512
vocabulary: 256
sequence: 192
pad: 128
rope-theta: 10000
tied: off
micro-batch: 2
lr: 1e-3
source: "own choice: two layers with heads of 64, a sequence of three tiles"
YAML
kernels=mma
[[ $(nvidia-smi --query-gpu=compute_cap --format=csv,noheader) == 9.* ]] && kernels=wgmma
holds 1 mpi 1 "$study" --layout 1x1 --model heads.yaml --device cuda --dtype bf16 --out heads.h5 "${quick[@]}"
holds 1 mpi 1 "$study" --layout 1x1 --model heads.yaml --device cuda --dtype bf16 --attention fused --out heads-fused.h5 "${quick[@]}"
check "ours alone are named" grep -aq "attention fused, $kernels" heads-fused.h5
graphs 1 heads-graph heads.yaml
[ $kernels = mma ] || check "in a fixed order backward is ours" grep -aq "backward own (wgmma)" heads-graph-once.h5

# ---- refused ----
refuses 6 "--test-delay is a task of the host" mpi 1 "$study" --layout 1x1 --device cuda --graph --test-delay 1ms
refuses 6 "found --pinned off" mpi 1 "$study" --layout 1x1 --device cuda --graph --pinned off
refuses 6 "found --block 100, wanted at most 63" mpi 1 "$study" --layout 1x1 --device cuda --graph --block 100
refuses 6 "$gpus GPU" mpi $((gpus + 1)) "$study" --layout 1x$((gpus + 1)) --device cuda
refuses 6 "does not move the memory of device \"cuda\": take nccl" mpi 1 "$study" --layout 1x1 --device cuda --comm mpi
refuses 6 "a rank needs" mpi 1 "$study" --layout 1x1 --device cuda --model gpt2-124m --micro-batch 4096 --dtype bf16
refuses 6 "for activations" mpi 1 "$study" --layout 1x1 --device cuda --model gpt2-124m --micro-batch 4096 --dtype bf16
one_gpu() { CUDA_VISIBLE_DEVICES=0 mpi 2 "$@"; }
refuses 6 "has 2 ranks and 1 GPU for them" one_gpu "$study" --layout 1x2 --device cuda
no_gpu() { CUDA_VISIBLE_DEVICES='' mpi 1 "$@"; }
refuses 5 "shows no GPU to this process" no_gpu "$study" --layout 1x1 --device cuda

# ---- several ranks ----
holds 1 mpi 2 "$study" --layout 1x2 --points 1x2 --emulate-nodes --device cuda --dtype bf16 --model tiny --out any.h5 "${quick[@]}"
if [ "$gpus" -ge 2 ]; then
    refuses 6 "say --emulate-nodes" mpi 2 "$study" --layout 2x1 --device cuda
    for dtype in fp32 bf16; do
        holds 2 bound_mpi 2 "$study" --layout 1x2 --points 1x1,1x2 --model tiny --device cuda --dtype "$dtype" \
            --out "two-$dtype.h5" "${quick[@]}"
    done
    check "a rank bound to one core was spread" bash -c \
        "grep -aq 'NVIDIA' two-bf16.h5"
    check "NCCL's choice is in the file" bash -c "grep -aq 'AllReduce' two-bf16.h5"
    holds 1 mpi 2 "$study" --layout 1x2 --points 1x2 --model tiny --device cuda --dtype bf16 --comm-tune on --comm-tune-seconds 0.1s \
        --out tuned.h5 "${quick[@]}"
    check "how communicators were made is in the file" bash -c "grep -aq 'calls alone .*(taken' tuned.h5"
    holds 1 mpi 2 "$study" --layout 1x2 --points 1x2 --model tiny --device cuda --dtype bf16 --comm-setup buffers,8 \
        --out asked.h5 "${quick[@]}"
    check "what was asked for is in the file" grep -aq "communicators: buffers, at most 8 blocks, as asked" asked.h5
    for kind in ring allgather ulysses; do # sequences cut over two GPUs
        holds 1 mpi 2 "$study" --layout 1x2 --points 1x2 --model tiny-llama --device cuda --dtype bf16 --parallel cp=2 \
            --cp-kind "$kind" --out "cp-$kind.h5" "${quick[@]}"
    done
    for kind in ring allgather ulysses; do
        for attention in auto fused; do
            holds 1 mpi 2 "$study" --layout 1x2 --points 1x2 --model heads.yaml --device cuda --dtype bf16 --parallel cp=2 \
                --cp-kind "$kind" --attention "$attention" --out "heads-$kind-$attention.h5" "${quick[@]}"
        done
    done
    holds 1 mpi 2 "$study" --layout 1x2 --points 1x2 --model tiny --device cuda --parallel cp=2 --out cp-fp32.h5 "${quick[@]}"
    # A delay of one rank's communication is found as stall of the other, and nowhere else.
    holds 1 mpi 2 "$study" --layout 1x2 --points 1x2 --model tiny --device cuda --dtype bf16 --test-delay 20ms \
        --out late.h5 "${quick[@]}"
    check "a delay of 20 ms is stalled for" awk -v a="$(awk '/^ +[0-9]/ { print $8 }' "$scratch/stdout")" \
        'BEGIN { exit !(a > 15 && a < 30) }'
    holds 1 mpi 2 "$study" --layout 1x2 --points 1x2 --model tiny --device cuda --dtype bf16 --grad-dtype bf16 \
        --out narrow.h5 "${quick[@]}"
    holds 3 bound_mpi 2 "$study" --layout 2x1 --points 1x1,2x1 --base loaded --model tiny --device cuda --dtype bf16 --emulate-nodes \
        --out emulated.h5 "${quick[@]}"
    check "emulated rows say so" test "$(grep -c 'emulated nodes' "$scratch/stdout")" -ge 1
    holds 1 mpi 4 "$study" --layout 1x4 --points 1x4 --model tiny --device cuda --dtype bf16 --emulate-nodes \
        --out shared.h5 -w 1 --min-steps 2 --max-steps 2
    check "shared GPUs are labelled" bash -c "grep -aq 'shared device, functional only' shared.h5"
fi
finish
