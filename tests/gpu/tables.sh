#!/usr/bin/env bash
# Tables of what a step on GPUs does and costs, beside their A/A: all but the comparison with a trainer
# (against_torch.sh) and with PyTorch's kernels (torch_kernels.py).
#
#     tests/gpu/tables.sh [-g GPUS] [-s SECONDS] [-t SECONDS] BIN PART[:MODEL[:MICRO_BATCH[:HOW]]]...
#
# BIN is the folder of the programs; HOW is ddp or fsdp; else 124m:64:ddp. MODEL without a dash is a gpt2.
# -s: seconds of a launch's timed steps (3); -t: no part begins later than that. Parts:
#
#   comm           calls of a step alone, against a bare NCCL loop in the same process (bench_gpu_comm)
#   weak           1 and all GPUs, the same samples a GPU: efficiency, where the step goes, memory by class
#   stamps         --stamps 0, 1, 1, 0: level-1 over bare steps
#   telemetry      --telemetry off, on, on, off: its cost; what was drawn, clocks, tokens a joule
#   audit          on 1 and all GPUs: stamps beside CUPTI's records, unions and single calls
#   tune           --comm-tune: every candidate and which was taken
#   calibrate      ceilings of the model's shapes, floors of a step by them, that the machine it writes is one
#   deterministic  two launches with, two without: digests, and what it costs
#   graph          --graph: eager over graph, host idle, what the terms leave
#   choices        which algorithms and plans products and attention took, and what the first would take
#
# A part that fails says why and the next one goes on; the exit status is 1 when any failed. DEVICE and
# DTYPE (cuda, bf16) and EXTRA go to scalestudy: DEVICE=cpu DTYPE=fp32 tries the script without a GPU.
set -uo pipefail
gpus=0 seconds=3 budget=100000
usage() {
    sed -n '2,26s/^# \{0,1\}//p' "$0"
}
while getopts g:s:t:h option; do
    case $option in
    g) gpus=$OPTARG ;;
    s) seconds=$OPTARG ;;
    t) budget=$OPTARG ;;
    h) usage && exit 0 ;;
    *) usage >&2 && exit 6 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 2 ] || { usage >&2 && exit 6; }
bin=$(realpath -- "$1") && shift
device=${DEVICE:-cuda} dtype=${DTYPE:-bf16}
if [ "$device" = cuda ]; then
    have=$("$(dirname "$0")/count.sh")
    [ "$have" -gt 0 ] || { echo "skipped: no GPU here" && exit 77; }
    [ "$gpus" -gt 0 ] || gpus=$have
fi
[ "$gpus" -gt 0 ] || gpus=2
work=$(mktemp -d) && trap 'rm -rf "$work"' EXIT
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# job RANKS PROGRAM...
job() {
    local n=$1
    shift
    timeout 150 mpirun --oversubscribe --bind-to none -np "$n" "$@"
}

# study NAME RANKS OPTION...: $work/NAME.h5; says why where there is none.
study() {
    local name=$1 n=$2
    shift 2
    rm -rf "$work/$name".h5*
    # shellcheck disable=SC2086 # EXTRA is several words
    job "$n" "$bin/scalestudy" --layout "1x$n" --device "$device" --dtype "$dtype" --model "$model" \
        --micro-batch "$micro" --max-seconds "$seconds" --check off --out "$work/$name.h5" "$@" ${EXTRA:-} \
        >"$work/$name.log" 2>&1 && [ -e "$work/$name.h5" ] && return 0
    echo "  $name failed: $(grep -m 1 '^scalestudy: ' "$work/$name.log" || tail -n 1 "$work/$name.log")" | cut -c1-220
    return 1
}

# plain NAME RANKS OPTION...: one point of all ranks.
plain() {
    local name=$1 n=$2
    shift 2
    study "$name" "$n" --points "1x$n" --global-batch $((micro * n)) --parallel "$(parallel "$n")" "$@"
}
parallel() {
    if [ "$how" = fsdp ]; then echo "shard=$1"; else echo "dp=$1"; fi
}

# cells NAME COLUMN...: the columns of each point, by name, on a line.
cells() {
    local name=$1
    shift
    "$bin/scalereport" "$work/$name.h5" --csv 2>>"$work/$name.log" | python3 -c 'import csv, sys
for row in csv.DictReader(sys.stdin):
    cells = [row["ranks"] + " GPU"]
    for column in sys.argv[1:]:
        try:
            cells.append("%s %.5g" % (column, float(row[column])))
        except ValueError:
            cells.append("%s %s" % (column, row[column] or "-"))
    print("  " + ", ".join(cells))' "$@"
}

# section NAME PATTERN LINES: of the text report.
section() {
    "$bin/scalereport" "$work/$1.h5" 2>>"$work/$1.log" | grep -A "$3" -E "^# $2" | grep -vE '^(#|--)$' | cut -c1-210
}

# notes NAME PATTERN: lines that the study keeps among its events, each once, in their order.
notes() {
    grep -aoE "$2[[:print:]]*" "$work/$1.h5" | awk '!seen[$0]++ { print "  " substr($0, 1, 230) }'
}

# middle NAME...: the median step of each, ms.
middle() {
    for name in "$@"; do
        "$bin/scalereport" "$work/$name.h5" --csv 2>>"$work/$name.log" |
            python3 -c 'import csv, sys
print(list(csv.DictReader(sys.stdin))[-1]["step_ms_p50"])'
    done
}

# alternate A B: launches with options a, b, b, a on all GPUs; b over a beside the A/A of each.
alternate() {
    local ok=0
    plain a1 "$gpus" "$1" || ok=1
    plain b2 "$gpus" "$2" || ok=1
    plain b3 "$gpus" "$2" || ok=1
    plain a4 "$gpus" "$1" || ok=1
    [ $ok = 0 ] || return 1
    middle a1 b2 b3 a4 | python3 -c 'import sys
a, b, c, d = (float(x) for x in sys.stdin)
print("  %s over %s: %.4f; %.3f and %.3f over %.3f and %.3f ms; A/A %.4f and %.4f" % (
    sys.argv[2], sys.argv[1], (b + c) / (a + d), b, c, a, d, c / b, d / a))' "$1" "$2"
}

part_comm() {
    job "$gpus" "$bin/bench_gpu_comm" "$model" "$([ "$how" = fsdp ] && parallel "$gpus")" 20 >"$work/comm.log" 2>&1 ||
        { grep -m 1 '^bench_gpu_comm: ' "$work/comm.log" || tail -n 2 "$work/comm.log"; return 1; }
    cut -c1-140 "$work/comm.log"
}
# where_it_goes NAME: the step as a sum, with and without communication, by axis, and memory.
where_it_goes() {
    cells "$1" step_ms_p50 aa_ratio_lo aa_ratio_hi exposed_ms slowdown_ms mfu_pct
    section "$1" "instrumented steps in ms" 4
    section "$1" "instrumented, compute-only" 5
    section "$1" "communication by axis" 6
    section "$1" "memory by class" 40 | grep -E "training|reserved|process"
}
part_weak() {
    local ok=0
    if [ "$how" = fsdp ]; then # one GPU has nothing to shard: launches of their own, 1 2 2 1
        plain one1 1 && plain two1 "$gpus" && plain two2 "$gpus" && plain one2 1 || ok=1
        [ $ok = 0 ] || return 1
        middle one1 two1 two2 one2 | python3 -c 'import sys
a, b, c, d = (float(x) for x in sys.stdin)
print("  efficiency %.4f; one %.3f and %.3f, all %.3f and %.3f ms" % ((a + d) / (b + c), a, d, b, c))'
        where_it_goes one2
        where_it_goes two2
        return 0
    fi
    study weak "$gpus" --points "1x1,1x$gpus" --scaling weak --global-batch "$micro" || return 1
    cells weak eff_device_pct eff_device_lo_pct eff_device_hi_pct
    where_it_goes weak
}
part_stamps() {
    alternate --stamps=0 --stamps=1
}
part_telemetry() {
    alternate --telemetry=off --telemetry=on || return 1
    cells b2 joules_per_token tokens_per_joule gpu_watts sm_mhz sm_least_mhz gpu_celsius power_held_pct throttled
}
part_audit() {
    local n ok=0
    for n in $(printf '%s\n' 1 "$gpus" | sort -nu); do
        plain "audit$n" "$n" --audit --min-steps 10 --max-steps 10 || { ok=1 && continue; }
        section "audit$n" "audit" 12
        cells "audit$n" bare_ratio bare_ratio_lo bare_ratio_hi audit_off_pct
    done
    return $ok
}
part_tune() {
    plain tune "$gpus" --comm-tune || return 1
    notes tune "communicators: "
    cells tune step_ms_p50 exposed_ms slowdown_ms
}
part_calibrate() {
    local begun=$SECONDS ok=0
    rm -rf "$work"/calibrate.h5*
    job "$gpus" "$bin/scalestudy" calibrate --layout "1x$gpus" --device "$device" --dtype "$dtype" --model "$model" \
        --micro-batch "$micro" --global-batch $((micro * gpus)) --topology-out "$work/here.yaml" \
        --out "$work/calibrate.h5" >"$work/calibrate.log" 2>&1 || ok=1
    echo "  $((SECONDS - begun)) s, exit $ok"
    [ $ok = 0 ] || { grep -m 1 "^scalestudy: " "$work/calibrate.log" && return 1; }
    "$bin/scalereport" "$work/calibrate.h5" 2>>"$work/calibrate.log" | grep -A 90 "^# ceilings" | cut -c1-140
    cut -c1-160 "$work/here.yaml"
    plain floors "$gpus" --min-steps 10 --max-steps 10 &&
        "$bin/scalereport" "$work/floors.h5" --ceilings "$work/calibrate.h5" 2>>"$work/floors.log" |
        grep -A 30 "^# floors" | sed '/^#$/,$d' | cut -c1-170
    job "$gpus" "$bin/scalestudy" --layout "1x$gpus" --points "1x$gpus" --device timed --topology "$work/here.yaml" \
        --model "$model" --dtype "$dtype" --micro-batch "$micro" --global-batch $((micro * gpus)) --check off \
        --validate 2>&1 | tail -n 1 | cut -c1-160
}
part_deterministic() {
    local name ok=0
    for name in fixed1 free1 free2 fixed2; do
        plain $name "$gpus" -w 3 --min-steps 15 --max-steps 15 --scratch recreate \
            "$([[ $name = fixed* ]] && echo "--deterministic=on" || echo "--deterministic=off")" || ok=1
    done
    [ $ok = 0 ] || return 1
    for name in fixed1 fixed2; do
        notes $name "state of all ranks after"
    done
    middle fixed1 free1 free2 fixed2 | python3 -c 'import sys
a, b, c, d = (float(x) for x in sys.stdin)
print("  deterministic over free: %.4f; %.3f and %.3f over %.3f and %.3f ms; A/A %.4f and %.4f" % (
    (a + d) / (b + c), a, d, b, c, d / a, c / b))'
}
part_graph() {
    local n ok=0
    for n in $(printf '%s\n' 1 "$gpus" | sort -nu); do
        plain "graph$n" "$n" --graph || { ok=1 && continue; }
        cells "graph$n" step_ms_p50 graph_step_ms host_ratio host_ratio_lo host_ratio_hi aa_ratio_lo aa_ratio_hi \
            idle_ms stamps_ms residual_worst_pct
    done
    return $ok
}
part_choices() {
    plain choices "$gpus" --min-steps 5 --max-steps 5 || return 1
    notes choices "kernels: "
}

failed=0 ran=0
for cell in "$@"; do
    IFS=: read -r part model micro how <<<"$cell"
    [[ ${model:=124m} == *-* || $model == tiny ]] || model=gpt2-$model
    : "${micro:=64}" "${how:=ddp}"
    if ! declare -F "part_$part" >/dev/null; then
        echo "tables.sh: no part \"$part\": comm, weak, stamps, telemetry, audit, tune, calibrate, deterministic, graph, choices" >&2
        exit 6
    fi
    if [ "$SECONDS" -gt "$budget" ]; then
        echo "== $cell: skipped: $SECONDS s are over"
        continue
    fi
    begun=$SECONDS ran=$((ran + 1))
    echo "== $part: $model, $micro samples a GPU, $how, $gpus GPUs"
    "part_$part" || { failed=$((failed + 1)) && echo "  $part failed"; }
    echo "  [$((SECONDS - begun)) s]"
done
echo "$ran parts, $failed failed"
[ $failed = 0 ]
