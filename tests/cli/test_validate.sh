#!/usr/bin/env bash
# What --validate answers is what the start of that job answers, by code and sentence, and it makes and changes
# nothing: so a job that was asked about before it was queued is not refused when its turn comes.
. "$(dirname "$0")/lib.sh"

study=$bin/scalestudy
job=(--check off -w 1 --min-steps 1 --max-steps 1 --block 1 --sequence 16)

# With what is in the folders, and when it was changed.
tree() { find . -printf '%p %y %s %T@ %l\n' | sort; }

# same CODE TEXT COMMAND...: refused with that code and text, first by --validate, then by the start.
same() {
    local code=$1 text=$2
    shift 2
    tree >"$scratch/before"
    refuses "$code" "$text" "$@" --validate
    without_launcher >"$scratch/asked"
    tree >"$scratch/after"
    check "--validate leaves everything as it was" cmp "$scratch/before" "$scratch/after"
    refuses "$code" "$text" "$@"
    without_launcher >"$scratch/told"
    check "one sentence of both" cmp "$scratch/asked" "$scratch/told"
}

# ---- the study file ----
echo "of somebody else" >there.h5
mkdir cut.h5.parts new.h5.parts
ln -s nowhere link.h5
ln -s nowhere dangling.h5.parts
for option in "" --resume=off; do
    # shellcheck disable=SC2086 # none is no word
    same 8 "there.h5 exists: choose another --out" mpi 1 "$study" --layout 1x1 "${job[@]}" $option --out there.h5
done
same 8 "link.h5 exists: choose another --out" mpi 2 "$study" --layout 1x2 "${job[@]}" --out link.h5
same 8 "cut.h5.parts exists, an unfinished study: --resume goes on with it" mpi 1 "$study" --layout 1x1 "${job[@]}" --out cut.h5
same 8 "dangling.h5.parts exists, an unfinished study" mpi 1 "$study" --layout 1x1 "${job[@]}" --out dangling.h5
same 8 "dangling.h5.parts/lock: No such file" mpi 1 "$study" --layout 1x1 "${job[@]}" --out dangling.h5 --resume
same 8 "there.h5 is whole, there is nothing to resume" mpi 1 "$study" --layout 1x1 "${job[@]}" --out there.h5 --resume
same 8 "there is no none.h5.parts to resume" mpi 1 "$study" --layout 1x1 "${job[@]}" --out none.h5 --resume
same 8 "cannot create nowhere/x.h5.parts: No such file" mpi 1 "$study" --layout 1x1 "${job[@]}" --out nowhere/x.h5
same 8 "cannot create there.h5/x.h5.parts: Not a directory" mpi 1 "$study" --layout 1x1 "${job[@]}" --out there.h5/x.h5
same 8 "File name too long" mpi 1 "$study" --layout 1x1 "${job[@]}" --out "$(printf 'n%.0s' {1..251})"
same 8 "cannot create nowhere/r.h5.parts: No such file" \
    mpi 1 "$study" --layout 1x1 "${job[@]}" --run-steps 2 --out nowhere/r.h5
same 8 "cannot create nowhere/d.h5.parts: No such file" \
    mpi 1 "$study" drill --layout 1x1 "${job[@]}" --run-steps 9 --checkpoint-dir . --checkpoint-every 3 --out nowhere/d.h5

# An interrupted study: of other values, in use, and as it was begun.
going=("$study" --layout 1x1 "${job[@]}" --min-steps 1000000 --max-steps 1000000 --max-seconds 3600 --seed 3 --out going.h5)
run mpi 1 "${going[@]}" --validate
expect_exit 0
check "nothing was made" test ! -e going.h5.parts
timeout 300 "${going[@]}" >"$scratch/log" 2>&1 &
launched=$!
until grep -q "^# study file" "$scratch/log"; do
    kill -0 $launched 2>/dev/null || break
    sleep 0.05
done
same 8 "going.h5.parts is in use: another run is writing this study" mpi 1 "${going[@]}" --resume
kill $launched
wait $launched
same 6 "resume: seed was 3 and is now 4" mpi 1 "${going[@]}" --seed 4 --resume
run mpi 1 "${going[@]}" --resume --validate
expect_exit 0
check "it can be gone on with" test ! -e going.h5 -a -e going.h5.parts/head.h5
run mpi 1 "${going[@]}" --resume --validate --out new.h5 # killed before it had a head: the next launch is the first
expect_exit 0
check "nothing was made" test ! -e new.h5.parts/lock -a ! -e new.h5.parts/head.h5

# ---- a calibration, which writes its files at its end ----
machine=("$study" calibrate --layout 1x1 --block 1)
touch m.yaml
ln -s nowhere l.yaml
same 8 "there.h5 exists: choose another --out" mpi 1 "${machine[@]}" --out there.h5
same 8 "cut.h5.parts exists" mpi 1 "${machine[@]}" --out cut.h5
same 8 "link.h5 exists" mpi 1 "${machine[@]}" --out link.h5
same 8 "cannot create nowhere/c.h5.parts: No such file" mpi 2 "$study" calibrate --layout 1x2 --block 1 --out nowhere/c.h5
same 8 "m.yaml exists: choose another --topology-out" mpi 1 "${machine[@]}" --out c.h5 --topology-out m.yaml
same 8 "l.yaml exists: choose another --topology-out" mpi 1 "${machine[@]}" --out c.h5 --topology-out l.yaml
same 8 "m.yaml/x cannot be written: Not a directory" mpi 1 "${machine[@]}" --out c.h5 --topology-out m.yaml/x
same 6 "--out and --topology-out are both ./c.h5: wanted two files" \
    mpi 1 "${machine[@]}" --out c.h5 --topology-out ./c.h5
run mpi 1 "${machine[@]}" --validate --topology-out c.yaml
expect_exit 0
check "nothing was made" test ! -e c.yaml
# Only rank 0 writes: what the folder of another host lacks is nobody's concern.
mkdir -p host0/out host1
two_hosts() { # PROGRAM ARGUMENT...
    timeout -k 5 120 mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 \
        --mca odls_base_sigkill_timeout 0 -np 1 -wdir "$PWD/host0" "$@" : -np 1 -wdir "$PWD/host1" "$@"
}
run two_hosts "$study" calibrate --layout 1x2 --out out/c.h5 --topology-out out/c.yaml --validate
expect_exit 0

# ---- folders of checkpoints ----
run_of=(--layout 1x1 "${job[@]}" --run-steps 4)
same 8 "cannot make there.h5/c: Not a directory" mpi 1 "$study" "${run_of[@]}" --checkpoint-dir there.h5/c --out c.h5
same 8 "there.h5 is no folder" mpi 1 "$study" "${run_of[@]}" --checkpoint-dir there.h5 --out c.h5
same 8 "link.h5 is a link to what is not there" mpi 1 "$study" "${run_of[@]}" --checkpoint-dir link.h5/c --out c.h5
mkdir held
in_use() { flock held "$@"; }
same 6 "another study saves in held" in_use timeout 120 "$study" "${run_of[@]}" --checkpoint-dir held --out c.h5
# Two nodes with folders of their own.
mkdir -p host1/parts/step-0000000005 host0/parts
touch host1/parts/step-0000000005/rank-00001.h5 host1/file
mkdir host0/file
two_of=(--layout 2x1 --points 2x1 "${job[@]}" --run-steps 4 --out "$PWD/two.h5")
same 6 "parts of this node holds parts of checkpoints up to step 5" two_hosts "$study" "${two_of[@]}" --checkpoint-dir parts
same 8 "file is no folder" two_hosts "$study" "${two_of[@]}" --checkpoint-dir file

# ---- what may not be written ----
closed() { # COMMAND...: nothing can be made in folder shut
    unshare -rm bash -c 'mount -t tmpfs -o ro tmpfs shut && "$@"' closed "$@"
}
mkdir shut
if closed true 2>/dev/null; then
    same 8 "cannot create shut/s.h5.parts: Read-only file system" closed timeout 120 "$study" --layout 1x1 "${job[@]}" --out shut/s.h5
    same 8 "shut/m.yaml cannot be written: Read-only file system" closed timeout 120 "${machine[@]}" --out c.h5 --topology-out shut/m.yaml
    same 8 "cannot write in shut: Read-only file system" closed timeout 120 "$study" "${run_of[@]}" --checkpoint-dir shut --out c.h5
    same 8 "cannot make shut/d: Read-only file system" closed timeout 120 "$study" "${run_of[@]}" --checkpoint-dir shut/d --out c.h5
fi
finish
