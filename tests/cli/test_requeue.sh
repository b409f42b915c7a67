#!/usr/bin/env bash
# The Slurm script resumes by itself: a launch that a signal stopped is requeued and gone on with, one that
# was refused is not. Slurm is played by two scripts; the study that it starts is the real one.
. "$(dirname "$0")/lib.sh"

mkdir fake
cat >fake/srun <<'EOF'
#!/usr/bin/env bash
# srun --nodes=N --ntasks-per-node=G PROGRAM...: a job of N x G ranks, which is signalled when STOP is there
for word; do
    case $word in
    --nodes=*) nodes=${word#*=} ;;
    --ntasks-per-node=*) per_node=${word#*=} ;;
    --*) ;;
    *) break ;;
    esac
    shift
done
[ ! -e EARLY ] || exit 138 # SIGUSR1 before the program could say what it does with it
mpirun --oversubscribe --bind-to none --mca mpi_yield_when_idle 1 -np $((nodes * per_node)) "$@" &
job=$!
if [ -e STOP ]; then
    rm STOP
    until [ "$(cat studies/*.parts/run.log 2>/dev/null | grep -c ' steps ')" -ge 3 ] || ! kill -0 $job; do sleep 0.05; done
    kill -USR1 $job # mpirun hands it on
fi
wait $job
EOF
printf '#!/usr/bin/env bash\necho "$@" >>requeued\n' >fake/scontrol
chmod +x fake/*
export PATH="$PWD/fake:$PATH" OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OPENBLAS_NUM_THREADS=1
export OMPI_MCA_odls_base_sigkill_timeout=0 # ranks leave together: the launcher has nobody to wait for
export SLURM_SUBMIT_DIR=$PWD SLURM_JOB_NUM_NODES=1 SLURM_NTASKS_PER_NODE=2 SLURM_JOB_ID=7
export SCALESTUDY_BIN=$bin SCALESTUDY_LAUNCHES=1
script=$tests/../jobscripts/slurm.sbatch
options=(--points 1x2 --check off -w 2 --run-steps 40 --test-delay 0.1s --timeout 60s --checkpoint-dir ckpt --checkpoint-every 10)

touch STOP
run bash "$script" "${options[@]}"
expect_exit 11
expect_stderr "stopped by SIGUSR1" "# job 7 is requeued"
check "scontrol is asked once" test "$(cat requeued)" = "requeue 7"
check "Slurm's script says when it knew" grep -q "^detected [0-9]*$" studies/scalestudy-7.1.h5.parts/run.log
run env SLURM_RESTART_COUNT=1 bash "$script" "${options[@]}"
expect_exit 0
expect_stderr "resumed from"
check "the study is whole" test -e studies/scalestudy-7.1.h5
run "$bin/scalereport" goodput studies/scalestudy-7.1.h5
expect_stdout "no failure was counted, but runs were started again"
check "it was not undisturbed" bash -c "! grep -q undisturbed '$scratch/stdout'"
check "nothing is requeued any more" test "$(wc -l <requeued)" -eq 1

# What another try would not change.
run env SLURM_JOB_ID=8 bash "$script" --run-steps -3
expect_exit 6
check "a refusal is not requeued" test "$(wc -l <requeued)" -eq 1
touch EARLY
run env SLURM_JOB_ID=9 bash "$script" "${options[@]}"
expect_exit 138
check "a signal while MPI starts requeues too" grep -qx "requeue 9" requeued

rm EARLY
# Launches of one allocation are runs of their own: each saves where no other does, and all become one report.
run env SLURM_JOB_ID=10 SCALESTUDY_LAUNCHES=2 bash "$script" --points 1x2 --check off -w 2 --run-steps 4 --checkpoint-every 2 \
    --checkpoint-dir "two of them"
expect_exit 0
for launch in 1 2; do
    check "launch $launch saved" test -d "two of them/launch-$launch/step-0000000004"
done
expect_stdout "2 launches"

finish
