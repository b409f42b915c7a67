#!/usr/bin/env bash
# --input file:PATH: bad files are refused in one sentence by one rank; a model learns the text alike
# on every layout and with any number of workers; a file that changes ends the study with code 8.
. "$(dirname "$0")/lib.sh"

study=$bin/scalestudy report=$bin/scalereport
quick=(--check=off --sequence 16 -w 2 --min-steps 20 --max-steps 20 --block 10)
cp "$tests/../LICENSE" text # and no text that changes: losses of layouts drift apart where training is near a spike
: >empty
mkfifo fifo
mkdir none shards
python=$(command -v python3 || true)

digest() { "$report" --json "$1" | sed -n 's/.*"digest": "\([0-9a-f]*\)".*/\1/p'; }

# ---- refused, by one rank, before anything runs ----
on() { # CODE TEXT OPTION...
    local code=$1 words=$2
    shift 2
    refuses "$code" "$words" mpi 2 "$study" --layout 1x2 "$@"
}
on 8 "cannot read missing: No such file" --input file:missing
on 8 "empty is empty" --input synthetic,file:empty
on 8 "fifo is a FIFO" --input file:fifo
on 8 "folder none holds no shard" --input file:none
head -c 100 text >short
on 6 "short is shorter than one batch: its 100 tokens make 2 samples of 64, and a step takes 8" --input file:short
on 6 "--document-end" --input file:text --document-end 256
if [ "$(id -u)" != 0 ]; then
    cp text locked && chmod 0 locked
    on 8 "locked: Permission denied" --input file:locked
fi
if [ -n "$python" ]; then
    "$python" - <<'PY'
import random, struct
random.seed(1)
text = open("text", "rb").read()
def header(magic, version, n):
    return struct.pack("<256i", magic, version, n, *[0] * 253)
u16 = struct.pack("<%dH" % len(text), *text)
open("raw.bin", "wb").write(u16) # as nanoGPT's prepare.py
half = len(text) // 2
for name, part in (("shards/a_000001.bin", text[:half]), ("shards/a_000002.bin", text[half:])): # as llm.c's
    open(name, "wb").write(header(20240520, 1, len(part)) + struct.pack("<%dH" % len(part), *part))
open("llama3.bin", "wb").write(header(20240801, 7, len(text)) + struct.pack("<%dI" % len(text), *text))
open("version.bin", "wb").write(header(20240520, 3, len(text)) + u16)
open("cut.bin", "wb").write(header(20240520, 1, len(text)) + u16[:-2])
open("large.bin", "wb").write(u16[:1000] + struct.pack("<H", 50256) + u16[1000:])
PY
    on 8 "version.bin is no shard that is known: its version is 3, wanted 1" --input file:version.bin
    on 8 "cut.bin is no whole shard" --input file:cut.bin
    on 8 "large.bin: token 50256 at byte 1000 is not below the vocabulary of 256" --input file:large.bin
fi
check "nothing was left behind" test -z "$(find . -name '*.parts')"

# ---- the same losses whoever reads, and however many ----
trains() { # WORKERS LAYOUT POINTS RANKS
    run mpi "$4" "$study" --base alone --layout "$2" --points "$3" --global-batch 8 "${quick[@]}" --input file:text \
        --input-workers "$1" --prefetch $(($1 + 1)) --out "w$1.h5"
    expect_exit 0
    check "the name of the data" test "$(column input "w$1.h5" | sort -u)" = file:text
}
trains 0 2x2 1x1,1x2,2x2 4
trains 1 1x2 1x1,1x2 2
trains 2 2x2 1x1,2x2 4
losses() { column final_loss "$1" | sed -n "$2"; }
check "one worker: the losses of none, bit by bit" test "$(losses w1.h5 1,2p)" = "$(losses w0.h5 1,2p)"
check "two workers, too" test "$(losses w2.h5 1,2p)" = "$(losses w0.h5 '1p;3p')"
near() { awk 'NR == 1 { a = $1 } { if ($1 < a * (1 - 1e-3) || $1 > a * (1 + 1e-3) || $1 == 0) bad = 1 } END { exit bad || NR != n }' n="$1"; }
check "1, 2 and 4 ranks learn the same: $(losses w0.h5 p | tr '\n' ' ')" near 3 < <(losses w0.h5 p)
check "and they learn: $(column final_loss w0.h5 | head -n 1)" awk -v a="$(column initial_loss w0.h5 | head -n 1)" \
    -v b="$(column final_loss w0.h5 | head -n 1)" 'BEGIN { exit !(a > 5.4 && b < 4) }'

# ---- bytes and every form of shards hold the same tokens ----
if [ -n "$python" ]; then
    run mpi 2 "$study" --layout 1x2 --points 1x2 --global-batch 8 "${quick[@]}" --min-steps 5 --max-steps 5 --block 5 --document-end none \
        --input 'file:text,file:raw.bin,file:shards,file:shards/a_*.bin,file:llama3.bin' --input-workers 1 --out forms.h5
    expect_exit 0
    check "one loss for five forms" test "$(column final_loss forms.h5 | sort -u | wc -l)$(column final_loss forms.h5 | wc -l)" = 15
fi

# ---- documents: lines; the work is counted in valid tokens ----
run mpi 2 "$study" --layout 1x2 --points 1x2 --global-batch 8 -w 2 --min-steps 5 --max-steps 5 --block 5 --input file:text \
    --document-end 10 --sequence 16,32 --out lines.h5
expect_exit 0
check "all valid" test "$(column valid lines.h5 | sort -u)" = 1
check "fewer tokens than positions" test "$(column tokens_per_step lines.h5 | sort -n | tail -n 1 | cut -d. -f 1)" -lt 256
check "two lengths" test "$(column seq lines.h5 | sort -u | tr '\n' ' ')" = "16 32 "

# ---- three kinds in one job, with the gate; the report sets them side by side ----
run mpi 2 "$study" --layout 1x2 --points 1x2 --sequence 16 -w 2 --min-steps 10 --max-steps 10 --input synthetic,memory,file:text \
    --input-workers 2 --out kinds.h5
expect_exit 0
expect_stdout "ok, memory" "ok, file:text"
check "all valid" test "$(column valid kinds.h5 | tr '\n' ' ')" = "1 1 1 "
run "$report" kinds.h5
expect_exit 0
expect_stdout "of_synth" "resident_MiB" "workers 2, prefetch 4" "file:text - memory = " "memory - synthetic = "
check "waits, depth and bytes are in the file" grep -q "read_bytes" <("$report" schema)

# ---- starved: a step with hardly any work waits for its input; a step that works does not ----
cat >little.yaml <<'YAML'
style: gpt2
layers: 1
hidden: 1
heads: 1
ffn: 1
vocabulary: 256
sequence: 2
pad: 1
micro-batch: 4
YAML
run mpi 1 "$study" --layout 1x1 --model ./little.yaml --check=off -w 2 --min-steps 20 --max-steps 20 --input file:text \
    --out hungry.h5
expect_exit 0
run "$report" hungry.h5
expect_stdout "STARVED (1x1, input file:text): in " " of the steps some rank waits for samples"
run mpi 1 "$study" --layout 1x1 --check=off --sequence 64 -w 0 --min-steps 10 --max-steps 10 --input synthetic,memory \
    --out fed.h5
expect_exit 0
if grep -q STARVED <("$report" fed.h5); then miss "a study that waits for nothing is called starved"; else pass; fi

# ---- the study is that of its data ----
first=$(digest w0.h5)
mkdir elsewhere && cp text elsewhere/text
run mpi 1 "$study" --layout 1x1 "${quick[@]}" --min-steps 1 --max-steps 1 --input file:text --out here.h5
run mpi 1 "$study" --layout 1x1 "${quick[@]}" --min-steps 1 --max-steps 1 --input file:elsewhere/text --out copy.h5
printf '!' | dd of=elsewhere/text conv=notrunc bs=1 seek=1000 2>/dev/null
run mpi 1 "$study" --layout 1x1 "${quick[@]}" --min-steps 1 --max-steps 1 --input file:elsewhere/text --out other.h5
check "there is a digest" test -n "$first"
check "a copy is the same study" test "$(digest here.h5)" = "$(digest copy.h5)"
check "other data are another study" test "$(digest here.h5)" != "$(digest other.h5)"

# ---- a file that changes while it is read ----
changes() { # COMMAND, again and again while the study runs
    cp text changing
    rm -f over
    (
        while [ ! -e over ]; do
            [ -e changing.h5.parts ] && "$@"
            sleep 0.2
        done
    ) &
    run mpi 2 "$study" --layout 1x2 --points 1x2 --check=off --sequence 32 -w 0 --settle 0% --min-steps 1 --max-steps 100000 \
        --max-seconds 2 --input file:changing --input-workers 2 --out changing.h5
    touch over
    wait $!
    rm -rf changing.h5.parts
    expect_exit 8
    expect_stderr "changing changed "
    check "one line" test "$(without_launcher | grep -c 'scalestudy:')" = 1
}
changes truncate -s 100 changing
changes touch changing
finish
