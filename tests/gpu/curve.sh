#!/usr/bin/env bash
# The curve of one host of 4 or 8 GPUs, and what belongs beside it, as far as a time goes: one command that
# may be cut off and begun again.
#
#     tests/gpu/curve.sh [-g GPUS] [-t SECONDS] [-o FOLDER] [-c MEMORY[,BLOCKS]] [-n LAUNCHES] [-p] BIN [PART...]
#
# BIN is the folder of the programs. Parts, all of them in this order if none is named:
#
#   weak-dp weak-shard      gpt2-1558m, 16 samples a GPU, on 1, 2, 4 and all GPUs: dp in one launch, with its gate,
#                           then each GPU alone, all at once: they differ, and a step takes what the slowest
#                           takes; shard=N in a launch each, the largest first, with its gate
#   strong-dp strong-shard  the same with 16 samples times all GPUs at every size
#   trainer                 TORCH_REFERENCE beside ours at all GPUs and at 4, FSDP and DDP (against_torch.sh)
#   calls                   collectives of a step beside a bare NCCL loop (tables.sh comm), and "calibrate"
#   llama                   llama-8b, 16 samples of 4096 a step: shard, tp, and pp in micro-batches of 1, on all, 2, 4
#   experts                 moe-8x-1b5, ep=2, 4, 8, 4 samples of 2048 a GPU, balanced and skewed
#   saves                   gpt2-1558m, shard on all GPUs, every mode of saving (19 GB a save; SAVES=2 of each)
#   emulated                gpt2-1558m on 2x4 and 4x2 emulated nodes (2x2 with 4 GPUs): dp, and shard inside a node
#
# -t: no command begins that is not expected to end before (-p prints what each is expected to take, and runs
# nothing); each is killed at three times that, or at the end. What has ended well is in FOLDER (curve) and is
# not run again: after a cut, the same command line goes on, with a study's missing points too. -c: --comm-setup
# of the first five parts. -n: launches of a trainer's cell (1). A command that fails says why and the next goes on; the
# exit status is 1 when any failed.
#
# FOLDER has, at most 200 KB together: summary.txt and summary.csv (each cell; what was to be shown, and whether
# it was), curve.csv (scalereport's columns of all points), a text for each command, the measured machine.yaml,
# commands, failures. FOLDER/kept has study files and logs.
#
# Memory: before a study runs "scalereport check --fit" plans it for MEMORY=141GB with 4 GiB beside. By it a rank
# holds at most 70.2 GB (1558M on one GPU, several micro-batches of 16), 113.1, 91.8 and 90.8 GB (llama-8b on two,
# shard and tp in micro-batches of 2, pp of 1) and 97.2 GB (experts, ep=2, of 2 x 2048). 1558M has room for
# scratch copies of its state, the others do without.
#
# Environment: DEVICE, DTYPE (cuda, bf16) and EXTRA go to scalestudy, TRAINER_EXTRA to the trainer; HOWS="fsdp ddp"
# (or "fsdp+ddp": ours both beside the trainer's first); CHECK=off leaves the gate out of the weak parts; DENSE, LLAMA
# and EXPERTS are MODEL:MICRO_BATCH[:SEQUENCE]; PACE=150: everything is expected to take 150 % of what it takes on
# H200s. DEVICE=cpu DTYPE=fp32 DENSE=tiny:2 tries it without a GPU; DEVICE=timed with
# EXTRA="--topology h200-8x400g --validate" has every study's command line looked at, and runs none.
set -uo pipefail
gpus=0 budget=100000 folder=curve setup='' launches=1 plan=no
usage() {
    sed -n '2,46s/^# \{0,1\}//p' "$0"
}
while getopts g:t:o:c:n:ph option; do
    case $option in
    g) gpus=$OPTARG ;;
    t) budget=$OPTARG ;;
    o) folder=$OPTARG ;;
    c) setup=$OPTARG ;;
    n) launches=$OPTARG ;;
    p) plan=yes ;;
    h) usage && exit 0 ;;
    *) usage >&2 && exit 6 ;;
    esac
done
shift $((OPTIND - 1))
[ $# -ge 1 ] || { usage >&2 && exit 6; }
here=$(cd "$(dirname "$0")" && pwd)
bin=$(realpath -- "$1") && shift
all="weak-dp weak-shard strong-dp strong-shard trainer calls llama experts saves emulated"
# shellcheck disable=SC2086 # words
[ $# -gt 0 ] || set -- $all
for part in "$@"; do
    [[ " $all " == *" $part "* ]] || { echo "curve.sh: no part \"$part\": $all" >&2 && exit 6; }
done
pace=${PACE:-100}
for word in "$gpus" "$budget" "$launches" "$pace"; do
    [[ $word =~ ^[0-9]+$ ]] || { echo "curve.sh: found \"$word\", wanted a whole number" >&2 && exit 6; }
done
device=${DEVICE:-cuda} dtype=${DTYPE:-bf16} memory=${MEMORY:-141GB} check=${CHECK:-on}
if [ "$device" = cuda ] && [ $plan = no ]; then
    have=$("$here/count.sh")
    [ "$have" -gt 0 ] || { echo "skipped: no GPU here" && exit 77; }
    [ "$gpus" -gt 0 ] || gpus=$have
    [ "$gpus" -le "$have" ] || { echo "curve.sh: -g $gpus, and there are $have GPUs here" >&2 && exit 6; }
fi
[ "$gpus" -gt 0 ] || gpus=8
[ "$gpus" -ge 2 ] || { echo "curve.sh: a curve takes 2 GPUs at least, here is $gpus" >&2 && exit 6; }
sizes=()
for ((n = 1; n < gpus; n *= 2)); do sizes+=("$n"); done
sizes+=("$gpus")
extra=${EXTRA:-}
dense=${DENSE:-gpt2-1558m:16} llama=${LLAMA:-llama-8b:2:4096} experts=${EXPERTS:-moe-8x-1b5:2:2048}

[ $plan = yes ] || mkdir -p "$folder/kept" || exit 8
folder=$(realpath -m -- "$folder") && kept=$folder/kept
settings="$gpus GPUs, $device, $dtype, gate $check, $dense, $llama, $experts${setup:+, $setup}${extra:+, $extra}"
if [ -s "$kept/settings" ] && [ "$(cat "$kept/settings")" != "$settings" ]; then
    echo "curve.sh: $folder holds another curve ($(cat "$kept/settings")), wanted $settings: name another folder with -o" >&2
    exit 6
fi
[ $plan = yes ] || echo "$settings" >"$kept/settings"
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
[ -z "${TORCH_REFERENCE:-}" ] || TORCH_REFERENCE=$(realpath -- "$TORCH_REFERENCE") && export TORCH_REFERENCE
export TORCHINDUCTOR_CACHE_DIR=${TORCHINDUCTOR_CACHE_DIR:-$kept/inductor}

# ---- one command, with an end ----

session=0 # of the command that runs
running=no stopped=no
# All of its session, and the one that is about to begin it. Processes come and go meanwhile.
members() {
    cat /proc/[0-9]*/stat 2>/dev/null |
        awk -v s="$session" '{ pid = $1; sub(/^.*\) /, "") } ($4 == s || pid == s) && $1 != "Z" { print pid }'
}
# stop: everything that the command began, in order if it can; what is begun meanwhile too.
stop() {
    local i
    members | xargs -r kill -TERM 2>/dev/null
    for ((i = 0; i < 80; i++)); do
        [ -n "$(members)" ] || return 0
        [ $i -lt 40 ] || members | xargs -r kill -KILL 2>/dev/null
        sleep 0.25
    done
}
# While a command runs, or begins, its loop looks.
trap 'stopped=yes; [ $running = yes ] || exit 130' INT TERM

# limited SECONDS COMMAND...: 124 when it ran longer.
limited() {
    local end=$((SECONDS + $1)) rc
    shift
    running=yes
    (cd "$kept" && exec setsid "$@") </dev/null &
    session=$!
    while kill -0 $session 2>/dev/null; do
        if [ $stopped = yes ] || [ $SECONDS -ge $end ]; then
            stop
            wait $session 2>/dev/null
            [ $stopped = no ] || exit 130
            running=no
            return 124
        fi
        sleep 0.1
    done
    wait $session
    rc=$?
    running=no
    [ $stopped = no ] || exit 130
    return $rc
}

failed=0 skipped=0 ran=0 spent=0
# clock: seconds since the beginning; with -p those that commands so far are expected to take
clock() {
    if [ $plan = yes ]; then echo $spent; else echo $SECONDS; fi
}
# fails NAME WHY...
fails() {
    local name=$1
    shift
    failed=$((failed + 1))
    echo "  $name failed: $*" | cut -c1-220
    [ $plan = yes ] || echo "$*" | cut -c1-300 >"$kept/$name.why"
    return 1
}
# said FILE: what scalestudy says of a failure, else the last line that says something
said() {
    local line
    line=$(grep -m 1 -E '^(scalestudy|scalereport|bench_gpu_comm): ' "$1")
    [ -n "$line" ] || line=$(grep -m 1 -E 'failed|skipped' "$1")
    [ -n "$line" ] || line=$(grep -vE '^[[:space:]]*$|^[-=]+$|^# (study|read)' "$1" | tail -n 1)
    line=${line#"${line%%[! ]*}"}
    echo "${line:-nothing was said}"
}

# begin NAME SECONDS COMMAND...: unless it is there already, or would not end in time. 0: it is there now.
begin() {
    local name=$1 expected=$((($2 * pace + 99) / 100)) left limit rc begun
    shift 2
    [ ! -e "$kept/$name.ok" ] || { echo "  $name: is there" && return 0; }
    left=$((budget - $(clock)))
    if [ "$expected" -gt "$left" ]; then
        skipped=$((skipped + 1))
        echo "  $name: not begun: $expected s expected, $left s left"
        return 1
    fi
    if [ $plan = yes ]; then
        spent=$((spent + expected))
        printf '  %-24s %4d s expected, ends at %5d s\n' "$name" "$expected" $spent
        return 1
    fi
    limit=$((3 * expected < left ? 3 * expected : left)) begun=$SECONDS ran=$((ran + 1))
    rm -f "$kept/$name.why"
    printf '# %s, %s\n%s\n' "$name" "$(date -u +%FT%TZ)" "$*" |
        sed "s#$bin/##g; s#$bin#BIN#g; s#$here/#tests/gpu/#g; s#$folder/#../#g" >>"$folder/commands"
    limited $limit "$@" >"$kept/$name.log" 2>&1
    rc=$?
    echo "  $name: $((SECONDS - begun)) s ($expected expected), exit $rc"
    case $rc in
    0) : >"$kept/$name.ok" ;;
    124) fails "$name" "killed after $limit s: $(said "$kept/$name.log")" ;;
    *) fails "$name" "exit $rc: $(said "$kept/$name.log")" ;;
    esac
}

# ---- studies ----

model='' micro=1 sequence=''
# shape MODEL:MICRO_BATCH[:SEQUENCE]: of the studies that follow.
shape() {
    IFS=: read -r model micro sequence <<<"$1"
}
# seconds POINTS MS STEPS [GATES]: of a launch: 6 to start it, 5 to set a point up, 8 for a gate, and so many steps
# of each point, of all kinds, whose lengths add up to MS. On two GPUs 1558M took 37 (1 340 82) like this.
seconds() {
    local gates=${4:-0}
    [ "$check" = on ] || gates=0
    echo $((6 + 5 * $1 + 8 * gates + $2 * $3 / 1000))
}
within='import csv, sys
wanted = dict(word.split("=") for word in sys.argv[1].split(","))
found = "no such choice"
for row in csv.DictReader(sys.stdin):
    other = [a for a in ("tp", "pp", "cp", "shard") if int(row[a]) > 1 and a not in wanted]
    if row["as_asked"] != "1" or other or any(row[a] != n for a, n in wanted.items()):
        continue
    held, over = float(row["bytes"]) / 1e9, float(row["over_bytes"]) / 1e9
    found = "" if over <= 0 else "a rank holds %.1f GB: %.1f GB too much, %s" % (held, over, row["takes_most"])
print(found)'
# fits NAME NODESxRANKS PARALLEL GLOBAL_BATCH: whether a rank's device holds it.
fits() {
    local choices why
    [ ! -e "$kept/$1.ok" ] || return 0
    choices=$("$bin/scalereport" check --fit --layout "$2" --model "$model" ${sequence:+--sequence "$sequence"} --dtype "$dtype" \
        --micro-batch "$micro" --global-batch "$4" --parallel "$3" --memory "$memory" --beside 4GiB --csv 2>&1) ||
        { fails "$1" "$2, $3: $choices" && return 1; }
    why=$(python3 -c "$within" "$3" <<<"$choices")
    [ -z "$why" ] || fails "$1" "does not fit $memory: $2, $3: $why"
}

reports=()
# report NAME: text and CSV of a study, of its finished points if it was cut off, beside what runs next.
report() {
    local file=$1.h5
    [ -s "$kept/$file" ] || file=$1.h5.parts
    [ -e "$kept/$file" ] || return
    [ ! -e "$kept/$1.csv" ] || [ "$kept/$file" -nt "$kept/$1.csv" ] || return
    (cd "$kept" || exit
    for form in txt csv; do
        if [ $form = csv ]; then set -- "$1" --csv; fi
        if "$bin/scalereport" "$file" "${@:2}" >"$1.$form.new" 2>/dev/null; then mv "$1.$form.new" "$1.$form"; fi
        rm -f "$1.$form.new"
    done) &
    reports+=($!)
}
# study NAME NODESxRANKS SECONDS OPTION...: its file kept, gone on with if it was cut off.
study() {
    local name=$1 layout=$2 expected=$3 ranks options=() rc
    ranks=$((${layout%x*} * ${layout#*x}))
    shift 3
    if [ ! -e "$kept/$name.ok" ] && [ $plan = no ]; then
        if [ -d "$kept/$name.h5.parts" ] && [ ! -e "$kept/$name.h5" ]; then options=(--resume); else rm -rf "$kept/$name".h5*; fi
    fi
    # shellcheck disable=SC2086 # several words
    begin "$name" "$expected" "${alone[@]}" mpirun --oversubscribe --bind-to none -np "$ranks" "$bin/scalestudy" "${how[@]}" \
        --layout "$layout" --device "$device" --dtype "$dtype" --model "$model" ${sequence:+--sequence "$sequence"} \
        --micro-batch "$micro" --anonymous --max-seconds 2 --timeout 100s "$@" "${options[@]}" $comms $extra --out "$name.h5"
    rc=$?
    [ $plan = no ] || return $rc
    report "$name"
    # what cannot be gone on with is begun again
    [ $rc = 0 ] || [ ${#options[@]} = 0 ] || grep -q '^killed' "$kept/$name.why" 2>/dev/null || rm -rf "$kept/$name.h5.parts"
    return $rc
}
how=()   # a command of scalestudy, or none
comms='' # how its communicators are made
alone=() # what starts the launcher

commas() {
    printf '%s\n' "${sizes[@]}" | sed "s/.*/1x&/" | paste -sd,
}
# sum of 1 / size, in thousandths: strong points take a share of the first one's step
shares() {
    printf '%s\n' "${sizes[@]}" | awk '{ s += 1000 / $1 } END { printf "%d\n", s }'
}
# sizes from the largest down; from $1 up
down() {
    printf '%s\n' "${sizes[@]}" | sort -rn | awk -v least="$1" '$1 >= least'
}
brief=(-w 2 --min-steps 8 --block 4 --check off)  # 32 steps of all kinds
least=(-w 1 --min-steps 4 --block 2 --check off)  # 19
without=(--scratch recreate)

# ---- parts ----

part_weak_dp() {
    local n bad=0
    shape "$dense"
    for n in "${sizes[@]}"; do
        fits weak-dp "1x$n" "dp=$n" $((micro * n)) || bad=1
    done
    [ $bad = 0 ] || return
    study weak-dp "1x$gpus" "$(seconds ${#sizes[@]} $((340 * ${#sizes[@]})) 82 ${#sizes[@]})" --points "$(commas)" --scaling weak \
        --global-batch "$micro" --check "$check"
    weak_one
}
# weak_one: each GPU alone, all of them at once: weak-one-0.h5, ...
weak_one() {
    local ids i
    ids=${CUDA_VISIBLE_DEVICES:-$(seq -s, 0 $((gpus - 1)))}
    if [ $plan = no ] && [ ! -e "$kept/weak-one.ok" ]; then rm -rf "$kept"/weak-one-*; fi
    fits weak-one 1x1 dp=1 "$micro" || return
    alone=(bash "$here/curve_each.sh" "$(cut -d, -f1-"$gpus" <<<"$ids")")
    study weak-one 1x1 "$(seconds 1 340 82)" --points 1x1 --scaling weak --global-batch "$micro" --check off
    alone=()
    for ((i = 0; i < gpus; i++)); do report "weak-one-$i"; done
}
part_weak_shard() {
    local n
    shape "$dense"
    for n in $(down 2); do
        fits "weak-shard-$n" "1x$n" "shard=$n" $((micro * n)) && study "weak-shard-$n" "1x$n" "$(seconds 1 340 82 1)" \
            --points "1x$n" --parallel "shard=$n" --scaling weak --global-batch $((micro * n)) --check "$check"
    done
}
part_strong_dp() {
    local n bad=0
    shape "$dense"
    for n in "${sizes[@]}"; do
        fits strong-dp "1x$n" "dp=$n" $((micro * gpus)) || bad=1
    done
    [ $bad = 0 ] || return
    study strong-dp "1x$gpus" "$(seconds ${#sizes[@]} $((340 * gpus * $(shares) / 1000)) 32)" --points "$(commas)" \
        --global-batch $((micro * gpus)) "${brief[@]}"
}
part_strong_shard() {
    local n
    shape "$dense"
    for n in $(down 2); do
        fits "strong-shard-$n" "1x$n" "shard=$n" $((micro * gpus)) && study "strong-shard-$n" "1x$n" \
            "$(seconds 1 $((340 * gpus / n)) 32)" --points "1x$n" --parallel "shard=$n" --global-batch $((micro * gpus)) "${brief[@]}"
    done
}
part_trainer() {
    local n words compile=50
    shape "$dense"
    for words in ${HOWS:-fsdp ddp}; do
        for n in $(printf '%s\n' "$gpus" 4 | awk -v most="$gpus" '$1 <= most' | sort -run); do
            # the first compiles; each launch of the trainer takes 35 s and of ours 37
            EXTRA="$comms $extra" begin "trainer-$n-${words//+/-}" $((35 + compile + launches * (35 + 37 * $(wc -w <<<"${words//+/ }")))) \
                bash "$here/against_torch.sh" -n "$launches" "$bin" "$model:$micro:$n:$words"
            compile=15
        done
    done
}
part_calls() {
    local words
    shape "$dense"
    for words in ddp fsdp; do
        begin "calls-$words" 30 bash "$here/tables.sh" -g "$gpus" "$bin" "comm:$model:$micro:$words"
    done
    how=(calibrate)
    study calibrate "1x$gpus" 90 --global-batch $((micro * gpus)) --topology-out "$folder/machine.yaml"
    how=()
}
part_llama() {
    local n axis batch bad ms
    for n in $(down 2 | awk -v most="$gpus" '$1 == most || $1 == 2') $(down 3 | awk -v most="$gpus" '$1 != most'); do
        shape "$llama"
        batch=$((8 * micro)) bad=0 ms=$((5900 / n)) # 16 samples of 4096 on one GPU
        for axis in shard tp; do
            fits "llama-$n" "1x$n" "$axis=$n" $batch || bad=1
        done
        [ $bad = 1 ] || study "llama-$n" "1x$n" "$(seconds 2 $((2 * ms)) 19)" --points "1x$n" --parallel "shard=$n" --parallel "tp=$n" \
            --global-batch $batch "${least[@]}" "${without[@]}"
        micro=1
        fits "llama-pp-$n" "1x$n" "pp=$n" $batch && study "llama-pp-$n" "1x$n" "$(seconds 1 "$ms" 19)" --points "1x$n" \
            --parallel "pp=$n" --global-batch $batch "${least[@]}" "${without[@]}"
    done
}
part_experts() {
    local n routing
    shape "$experts"
    for n in $(down 2); do
        for routing in balanced skewed:1.0; do
            fits "experts-${routing%:*}-$n" "1x$n" "ep=$n" $((2 * micro * n)) &&
                study "experts-${routing%:*}-$n" "1x$n" "$(seconds 2 350 32)" --points "1x$n" --parallel "ep=$n" \
                    --global-batch $((2 * micro * n)) --routing "$routing" "${brief[@]}" "${without[@]}"
        done
    done
}
part_saves() {
    shape "$dense"
    fits saves "1x$gpus" "shard=$gpus" $((micro * gpus)) && study saves "1x$gpus" 150 --points "1x$gpus" --parallel "shard=$gpus" \
        --global-batch $((micro * gpus)) "${least[@]}" --checkpoint-dir checkpoint --checkpoint-mode sync,staged,snapshot,lazy \
        --checkpoint-saves "${SAVES:-2}" --checkpoint-keep 1 --timeout 300s
    rm -rf "$kept/checkpoint"
}
part_emulated() {
    local nodes each
    shape "$dense"
    for nodes in 2 4; do
        each=$((gpus / nodes))
        if [ $((nodes * each)) != "$gpus" ] || [ $each -lt 2 ]; then continue; fi
        fits "emulated-${nodes}x$each" "${nodes}x$each" "dp=$gpus" $((micro * gpus)) &&
            study "emulated-${nodes}x$each" "${nodes}x$each" "$(seconds 2 4000 19)" --points "${nodes}x$each" --emulate-nodes --base alone \
                --parallel "dp=$gpus" --parallel "shard=$each" --global-batch $((micro * gpus)) "${least[@]}"
    done
}

for part in "$@"; do
    echo "== $part, at $(clock) of $budget s"
    comms=''
    [[ $part != weak-* && $part != strong-* && $part != trainer ]] || comms=${setup:+--comm-setup $setup}
    "part_${part//-/_}"
done
if [ $plan = yes ]; then
    echo "$spent s expected of $budget, $skipped commands do not fit into it, $failed cannot be run"
    [ $failed = 0 ]
    exit
fi
[ ${#reports[@]} = 0 ] || wait "${reports[@]}"
python3 "$here/curve_table.py" "$folder" "$gpus" || { echo "curve.sh: no summary" >&2 && failed=$((failed + 1)); }
cat "$folder/summary.txt"
echo "$ran commands ran, $failed failed, $skipped not begun; $SECONDS s; $folder"
[ $failed = 0 ]
