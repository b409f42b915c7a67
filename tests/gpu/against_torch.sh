#!/usr/bin/env bash
# Our step beside a PyTorch trainer's, on the same GPUs in the same minutes.
#
#     TORCH_REFERENCE=trainer.py tests/gpu/against_torch.sh [-n LAUNCHES] [-s SECONDS] [-t SECONDS] BIN CELL...
#
# BIN is the folder of scalestudy and scalereport. A cell is MODEL:MICRO_BATCH:GPUS:HOW[:MORE], HOW being
# ddp, fsdp or fsdp+ddp, where the trainer does the first and ours each, one after the other
# ("1558m:16:2:fsdp"; MODEL without a dash is a gpt2), MORE words between plus signs:
# recompute, and the tokens of a sample ("llama-8b:2:2:fsdp:recompute+4096"). Without any cell:
# 124m:64:1:ddp 124m:64:2:ddp 774m:32:2:ddp 1558m:16:1:ddp 1558m:16:2:ddp 1558m:16:2:fsdp. The trainer takes
# --model, --micro-batch, --par, --sequence, --recompute, --steps and --warm-up, and prints one JSON line
# with step_ms_p50, peak_allocated_gib and loss. Launches alternate, the trainer first; its very first
# launch of a cell compiles and is left out, and its compile cache is kept (TORCHINDUCTOR_CACHE_DIR, else
# a folder of this run's own). Of each launch the median step counts. No cell begins more than -t seconds
# after the first; a launch that fails is said and left out, and the next cell goes on.
#
# Printed for each launch one line, then for each cell: medians over launches and their range, A/A (largest
# over smallest launch of the same program), the ratio ours / trainer of neighbouring launches (median,
# lowest, highest), and the memory that each allocated, ours without the scratch copies that only measuring
# needs. EXTRA holds further options of scalestudy, TRAINER_EXTRA of the trainer; DEVICE and DTYPE (cuda, bf16)
# go to scalestudy: DEVICE=cpu DTYPE=fp32 tries the script without a GPU.
set -uo pipefail
launches=3 seconds=4 budget=100000
while getopts n:s:t:h option; do
    case $option in
    n) launches=$OPTARG ;;
    s) seconds=$OPTARG ;;
    t) budget=$OPTARG ;;
    *) sed -n '2,24s/^# \{0,1\}//p' "$0" && exit 6 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] || { sed -n '2,24s/^# \{0,1\}//p' "$0" >&2 && exit 6; }
bin=$(realpath -- "$1") && shift
[ $# -gt 0 ] || set -- 124m:64:1:ddp 124m:64:2:ddp 774m:32:2:ddp 1558m:16:1:ddp 1558m:16:2:ddp 1558m:16:2:fsdp
: "${TORCH_REFERENCE:?the trainer to compare with}"
[ -f "$TORCH_REFERENCE" ] || { echo "no trainer at $TORCH_REFERENCE" >&2 && exit 6; }
device=${DEVICE:-cuda} dtype=${DTYPE:-bf16} have=1024
if [ "$device" = cuda ]; then
    have=$("$(dirname "$0")/count.sh")
    [ "$have" -gt 0 ] || { echo "skipped: no GPU here" && exit 77; }
fi
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$work/inductor}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

whole_name() {
    case $1 in
    *-* | tiny) echo "$1" ;;
    *) echo "gpt2-$1" ;;
    esac
}

# trainer MODEL MICRO GPUS HOW MORE [OPTION...]: "step_ms GiB loss"
trainer() {
    local model micro=$2 gpus=$3 how=$4 more=$5 options=()
    model=$(whole_name "$1")
    shift 5
    for word in ${more//+/ }; do
        case $word in
        recompute) options+=(--recompute) ;;
        *) options+=(--sequence "$word") ;;
        esac
    done
    # shellcheck disable=SC2086 # TRAINER_EXTRA is several words
    timeout 300 python3 -m torch.distributed.run --standalone --nproc-per-node="$gpus" "$TORCH_REFERENCE" \
        --model "$model" --micro-batch "$micro" --par "$how" "${options[@]}" "$@" ${TRAINER_EXTRA:-} \
        2>"$work/trainer.err" | grep '^{' | tail -n 1 |
        python3 -c 'import json, sys
r = json.loads(sys.stdin.read())
print(r["step_ms_p50"], r["peak_allocated_gib"], r["loss"])' 2>>"$work/trainer.err"
}

# ours MODEL MICRO GPUS HOW MORE: the same of scalestudy
ours() {
    local parallel="dp=$3" file="$work/ours.h5" options=()
    [ "$4" = fsdp ] && parallel="shard=$3"
    for word in ${5//+/ }; do
        case $word in
        recompute) options+=(--recompute full) ;;
        *) options+=(--sequence "$word") ;;
        esac
    done
    rm -rf "$file" "$file".parts
    # shellcheck disable=SC2086 # EXTRA is several words
    timeout 300 mpirun --oversubscribe --bind-to none -np "$3" "$bin/scalestudy" --layout "1x$3" \
        --points "1x$3" --device "$device" --dtype "$dtype" --model "$(whole_name "$1")" --micro-batch "$2" \
        --global-batch $(($2 * $3)) --parallel "$parallel" --max-seconds "$seconds" --check off \
        --out "$file" "${options[@]}" ${EXTRA:-} >"$work/ours.log" 2>&1
    "$bin/scalereport" "$file" >"$work/ours.txt" 2>>"$work/ours.log"
    "$bin/scalereport" "$file" --csv 2>>"$work/ours.log" | python3 -c 'import csv, sys
row = list(csv.DictReader(sys.stdin))[-1]
held = [line.split() for line in open(sys.argv[1]) if " training " in line]
gib = float(held[-1][held[-1].index("training") + 2]) / 1024 if held else float("nan")
print(row["step_ms_p50"], round(gib, 2), row["final_loss"])' "$work/ours.txt" 2>>"$work/ours.log"
}

report='import statistics, sys
rows = [line.split() for line in open(sys.argv[1])]
a = [float(r[1]) for r in rows if r[0] == "ours"]
b = [float(r[1]) for r in rows if r[0] == "trainer"]
ratio = [x / y for x, y in zip(a, b)]
def words(x, digits):
    return "%.*f [%.*f, %.*f]" % (digits, statistics.median(x), digits, min(x), digits, max(x))
memory = {r[0]: float(r[2]) for r in rows}
print("%-18s: %s ms, A/A %.4f; trainer %s ms, A/A %.4f; ratio %s; GiB %.2f and %.2f; %d launches" % (
    sys.argv[2], words(a, 3), max(a) / min(a), words(b, 3), max(b) / min(b), words(ratio, 4),
    memory["ours"], memory["trainer"], len(ratio)), flush=True)'

# why FILE: what scalestudy said, else its last line that says something
why() {
    local said
    said=$(grep -m 1 '^scalestudy: ' "$1")
    [ -n "$said" ] || said=$(grep -vE '^[[:space:]]*$|^-+$' "$1" | tail -n 1)
    cut -c1-200 <<<"$said"
}

failed=0
for cell in "$@"; do
    IFS=: read -r model micro gpus how more <<<"$cell"
    if [ "$gpus" -gt "$have" ]; then
        echo "$cell: skipped: $have GPUs here"
        continue
    fi
    if [ "$SECONDS" -gt "$budget" ]; then
        echo "$cell: skipped: $SECONDS s are over"
        continue
    fi
    rm -f "$work"/cell.*
    begun=$SECONDS hows=${how//+/ } how=${how%%+*}
    trainer "$model" "$micro" "$gpus" "$how" "$more" --warm-up 2 --steps 1 >/dev/null # compiles
    echo "$cell: compiled in $((SECONDS - begun)) s"
    for ((i = 0; i < launches; i++)); do
        begun=$SECONDS
        t=$(trainer "$model" "$micro" "$gpus" "$how" "$more")
        echo "$cell: trainer ${t:-failed: $(why "$work/trainer.err")} [$((SECONDS - begun)) s] (ms, GiB, loss)"
        for how in $hows; do
            begun=$SECONDS
            o=$(ours "$model" "$micro" "$gpus" "$how" "$more")
            echo "$cell: ours $how ${o:-failed: $(why "$work/ours.log")} [$((SECONDS - begun)) s]"
            [ -n "$t" ] && [ -n "$o" ] && printf 'trainer %s\nours %s\n' "$t" "$o" >>"$work/cell.$how"
        done
        how=${hows%% *}
    done
    for how in $hows; do
        if [ -s "$work/cell.$how" ]; then
            python3 -c "$report" "$work/cell.$how" "$cell ours $how"
        else
            failed=1
        fi
    done
done
exit $failed
