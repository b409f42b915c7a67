#!/usr/bin/env bash
# scalestudy from mpirun to scalereport: refusals in one sentence with the right code, a study whose
# points do the same work, planted faults that are caught.
. "$(dirname "$0")/lib.sh"

study=$bin/scalestudy report=$bin/scalereport
quick=(--sequence 16 -w 2 --min-steps 5 --max-steps 5)

above() { awk -v a="$1" -v b="$2" 'BEGIN { exit !(a != "" && a > b) }'; }

# ---- refused before anything runs ----
refuses 6 "--layout" mpi 1 "$study"
refuses 6 "2x8 asks for 16 ranks but this job has 4" mpi 4 "$study" --layout 2x8
refuses 6 "did you mean --model?" mpi 2 "$study" --layout 2x1 --modle tiny
refuses 6 "7 samples do not split" mpi 2 "$study" --layout 2x1 --global-batch 7
refuses 6 "8x1" mpi 2 "$study" --layout 2x1 --points 8x1
refuses 6 "tp=2" mpi 2 "$study" --layout 1x2 --parallel tp=2 --points 1x1
refuses 5 "cuda" mpi 2 "$study" --layout 2x1 --device cuda
refuses 6 "\"cpu\" has no tf32" mpi 2 "$study" --layout 2x1 --device cpu --dtype tf32
refuses 8 "input: cannot read x: No such file" mpi 2 "$study" --layout 2x1 --input file:x
refuses 6 "there is no model called nope" mpi 2 "$study" --layout 2x1 --model nope
refuses 8 "No such file or directory" mpi 2 "$study" --layout 2x1 --out no/such/folder/x.h5
touch there.h5
refuses 8 "there.h5 exists" mpi 2 "$study" --layout 2x1 --out there.h5
refuses 8 "cannot create $(printf 'n%.0s' {1..249}).h5.parts: File name too long" \
    mpi 1 "$study" --layout 1x1 --out "$(printf 'n%.0s' {1..249}).h5"
touch file.h5.parts
refuses 8 "file.h5.parts exists" mpi 1 "$study" --layout 1x1 --out file.h5
rm file.h5.parts
refuses 8 "to resume" mpi 2 "$study" --layout 2x1 --out new.h5 --resume
printf 'style: gpt2\nlayers: 2\nhidden: 64\nheads: 7\nffn: 8\nvocabulary: 64\nsequence: 8\n' >bad.yaml
refuses 6 "bad.yaml:4: heads 7 does not divide hidden 64" mpi 2 "$study" --layout 2x1 --model bad.yaml
printf 'style: gpt2\nlayers: 2\nhiden: 64\n' >bad.yaml
refuses 6 "bad.yaml:3" mpi 2 "$study" --layout 2x1 --model bad.yaml
printf 'style: gpt2\nlayers: two\n' >bad.yaml
refuses 6 "bad.yaml:2" mpi 2 "$study" --layout 2x1 --model bad.yaml
refuses 6 "GiB" mpi 2 "$study" --layout 2x1 --model gpt2-124m --micro-batch 4096
singletons() { # what a launcher of another MPI library starts: ranks that do not know each other
    local r rc=0
    for r in 1 2 0; do
        PMI_RANK=$r PMI_SIZE=3 "$study" --layout 3x1 || rc=$?
    done
    return $rc
}
refuses 6 "each sees an MPI job of 1" singletons
sed 's/^ffn:.*/ffn: 128/' "$tests/../workloads/models/tiny.yaml" >tiny.yaml
differ() { # OPTION...: of the second rank alone
    timeout -k 5 60 mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 --mca odls_base_sigkill_timeout 0 \
        -np 1 "$study" --layout 1x2 --points 1x2 "${quick[@]}" --check=off : -np 1 "$study" "$@" "${quick[@]}" --check=off
}
refuses 6 "rank 0 has layout=1x2 and this rank layout=2x1" differ --layout 2x1
refuses 6 "rank 0 has seed=1 and this rank seed=2" differ --layout 1x2 --points 1x2 --seed 2
refuses 6 "rank 0 has validate=off and this rank validate=on" differ --layout 1x2 --points 1x2 --validate
refuses 6 "rank 0 has calibrate=off and this rank calibrate=on" differ calibrate --layout 1x2
refuses 6 "rank 0 has ffn: 256 and this rank ffn: 128" differ --layout 1x2 --points 1x2 --model ./tiny.yaml
check "nothing was left behind" test -z "$(find . -name '*.parts')"

# ---- what needs no MPI ----
run "$study" --help
expect_exit 0
expect_stdout --layout --max-seconds
run "$study" --version
expect_exit 0
expect_stdout "mpi " "hdf5 " "blas " "cuda none"
run mpi 2 "$study" --layout 2x1 --validate
expect_exit 0
expect_stdout "valid: 1x1 batch 8 sequence 64, 2x1 batch 8"
refuses 6 "operations a step" mpi 1 "$study" --layout 1x1 --global-batch 1073741824 --micro-batch 1

# ---- a study ----
run mpi 3 "$study" --layout 3x1 "${quick[@]}" --padding 20% --out a.h5 --show-map --anonymous
expect_exit 0
expect_stdout "EMULATED" "rank 2" "read it with" "emulated nodes" "host00"
host=$(hostname)
names_host() { { h5dump -A a.h5; h5dump -d /machine/hosts a.h5; cat "$scratch/stdout"; } | grep -qw -- "$host"; }
if command -v h5dump >/dev/null; then
    check "the anonymous file can be searched" grep -q host00 <(h5dump -d /machine/hosts a.h5)
    if names_host; then miss "an anonymous study names the host"; else pass; fi
fi
check "points 1, 2 and N itself, one node also loaded" test "$(column ranks a.h5 | tr '\n' ' ')" = "1 1 2 3 "
check "copies of the loaded node" test "$(column copies a.h5 | tr '\n' ' ')" = "1 3 1 1 "
check "all valid" test "$(column valid a.h5 | tr '\n' ' ')" = "1 1 1 1 "
check "gates passed" test "$(column gate a.h5 | tr '\n' ' ')" = "passed passed passed passed "
check "the same work" test "$(column positions_per_step a.h5 | sort -u | wc -l)" = 1
check "padding masks tokens" test "$(column tokens_per_step a.h5 | head -n 1)" -lt "$(column positions_per_step a.h5 | head -n 1)"
check "the same valid tokens" test "$(column tokens_per_step a.h5 | sort -u | wc -l)" = 1
check "exactly the frozen window" test "$(column n_iter a.h5 | sort -u)" = 5
refuses 8 "a.h5 exists" mpi 2 "$study" --layout 2x1 --out a.h5
run "$report" a.h5
expect_exit 0
expect_stdout "tokens/s" "EMULATED" "fewer than three launches"

# ---- below a node, weak, from memory, in a study file ----
printf 'layout: 2x2\npoints: 1x1,1x2,2x2\nsequence: 16\nscaling: weak\ninput: memory\noverlap: none\nwarm-up: 2\nmin-steps: 5\nmax-steps: 5\n' >study.yaml
run mpi 4 "$study" --study study.yaml --base alone --out b.h5
expect_exit 0
check "points below a node" test "$(column ranks b.h5 | tr '\n' ' ')" = "1 2 4 "
check "the batch grows with the ranks" test "$(column gbs b.h5 | tr '\n' ' ')" = "4 8 16 "
check "weak" test "$(column mode b.h5 | sort -u)" = weak

# ---- an op that is not run: the gate sees wrong values; without it the count of work does ----
run mpi 2 "$study" --layout 1x2 --points 1x2 "${quick[@]}" --test-drop-op 5 --out c.h5
expect_exit 7
expect_stdout INVALID
expect_stderr "gate:"
check "its data is kept" test "$(column n_iter c.h5)" = 5
check "it is invalid" test "$(column valid c.h5)" = 0
for op in 0 2 3 4 5 12; do # zero, input, embed, norm, gemm, a later one
    run mpi 1 "$study" --layout 1x1 "${quick[@]}" --check=off --test-drop-op $op --out "d$op.h5"
    expect_exit 7
    expect_stderr "work: "
done

# ---- a long step of short operations is no timeout ----
run mpi 1 "$study" --layout 1x1 -w 0 --min-steps 1 --max-steps 1 --block 1 --global-batch 256 --check=off --timeout 1s --out t.h5
expect_exit 0

# ---- a delay in one collective appears in all three measures of exposed communication ----
six=(--sequence 16 -w 1 --min-steps 6 --max-steps 6 --block 3)
run mpi 2 "$study" --layout 1x2 --points 1x2 "${six[@]}" --check=off --out e.h5
expect_exit 0
run mpi 2 "$study" --layout 1x2 --points 1x2 "${six[@]}" --check=off --test-delay 200ms --out f.h5
expect_exit 0
for measure in stall interval counterfactual; do
    before=$(column exposed_${measure}_ms e.h5) after=$(column exposed_${measure}_ms f.h5)
    check "the delay in $measure: $before -> $after" \
        above "$(awk -v a="$after" -v b="$before" 'BEGIN { print a - b }')" 100
done
run "$report" f.h5
expect_stdout "delay was planted"

# ---- without scratch memory the state is made again, and the file says so ----
run mpi 2 "$study" --layout 1x2 --points 1x2 "${quick[@]}" --scratch recreate --out g.h5
expect_exit 0
run "$report" g.h5
expect_stdout "made again from the generator"

# ---- an unsettled point is no error unless asked for ----
run mpirun --bind-to none --mca odls_base_sigkill_timeout 0 -np 1 "$study" --layout 1x1 "${quick[@]}" --settle 0% --require-settled --check=off --out h.h5
expect_exit 9
check "and is kept" test "$(column n_iter h.h5)" = 5

finish
