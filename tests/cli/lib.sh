# shellcheck shell=bash
# What the command-line tests share. A test is a script tests/cli/test_x.sh that ctest runs with the
# folder of the built programs as its argument:
#
#     # The sentence that this file proves.
#     . "$(dirname "$0")/lib.sh"
#     check "help names the layout" grep -q -- --layout <("$bin/scalestudy" --help)
#     refuses 6 "2 x 2 is 4 ranks" mpi 3 "$bin/scalestudy" --layout 2x2
#     run "$bin/scalereport" study.h5
#     expect_exit 0
#     expect_stdout "speedup"
#     finish
#
# The script runs in a fresh folder of its own, which is removed at the end. It must reach `finish`,
# which prints "N passed, N failed"; it fails when a check failed, when none ran, or when the script
# ended before.
set -u
# shellcheck disable=SC2034 # for the scripts that source this
bin=$(cd "${1:?"usage: $0 FOLDER_OF_PROGRAMS"}" && pwd) || exit 1
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
scratch=$(mktemp -d "${TMPDIR:-/tmp}/scalestudy-cli.XXXXXX") || exit 1
mkdir "$scratch/here" && cd "$scratch/here" || exit 1
passed=0 failed=0 finished=no
status=0 command_line="(nothing ran)" # of the last run

leave() {
    local rc=$?
    rm -rf "$scratch"
    if [ "$finished" = no ] && [ "$rc" != 77 ]; then
        echo "$0: ended before finish (status $rc)" >&2
        exit 1
    fi
}
trap leave EXIT

pass() { passed=$((passed + 1)); }
miss() { # what was wanted
    failed=$((failed + 1))
    echo "failed: $1"
}

# check DESCRIPTION COMMAND...: the command succeeds.
check() {
    local what=$1
    shift
    if "$@" >"$scratch/check" 2>&1; then
        pass
    else
        miss "$what: $*"
        head -n 20 "$scratch/check"
    fi
}

# run COMMAND...: keep its status in $status and its output for the expect_* below. CLI_TRACE=1 in the
# environment says each command as it begins: where a test is, when it takes long.
run() {
    command_line="$*"
    [ -z "${CLI_TRACE:-}" ] || echo "$SECONDS s: $command_line" >&2
    "$@" >"$scratch/stdout" 2>"$scratch/stderr" </dev/null
    status=$?
}

show() { # the last run, after something was missed
    echo "  command: $command_line"
    echo "  status:  $status"
    sed 's/^/  stdout:  /' "$scratch/stdout" | head -n 20
    sed 's/^/  stderr:  /' "$scratch/stderr" | head -n 20
}

expect_exit() {
    if [ "$status" = "$1" ]; then pass; else miss "exit status $1" && show; fi
}

expect_in() { # stream, TEXT...
    local stream=$1 text
    shift
    for text; do
        if grep -qF -- "$text" "$scratch/$stream"; then pass; else miss "\"$text\" on $stream" && show; fi
    done
}
expect_stdout() { expect_in stdout "$@"; }
expect_stderr() { expect_in stderr "$@"; }

# await PID COMMAND...: until it succeeds, for as long as that process lives: a slow machine is no failure.
await() {
    local pid=$1
    shift
    until "$@"; do
        kill -0 "$pid" 2>/dev/null || { miss "until the job ended: $*" && return 1; }
        sleep 0.02
    done
}

# column NAME FILE: that column of the CSV of a study, one value a line, in the order of points. Quoted texts
# may hold commas.
column() {
    "$bin/scalereport" --csv "$2" | sed 's/"[^"]*"/quoted/g' | awk -F, -v name="$1" '
        NR == 1 { for (i = 1; i <= NF; i++) if ($i == name) at = i; next } { print $at }'
}

# What the launcher adds to stderr when a job ends with a status other than 0.
without_launcher() {
    awk '/^-----------------*$/ { inside = !inside; next } /^\[[^]]*:[0-9]+\] / { next } !inside && NF' \
        "$scratch/stderr"
}

# The rule for refusals: exactly one line, on stderr, nothing on stdout, however many ranks there are.
expect_one_line() {
    local lines
    lines=$(without_launcher | wc -l)
    if [ "$lines" -eq 1 ] && [ ! -s "$scratch/stdout" ]; then
        pass
    else
        miss "exactly one line of words, on stderr alone ($lines there)" && show
    fi
}

# refuses CODE TEXT COMMAND...: leaves with CODE, having said one line that contains TEXT.
refuses() {
    local code=$1 text=$2
    shift 2
    run "$@"
    expect_exit "$code"
    expect_stderr "$text"
    expect_one_line
}

# For every job that a test starts: as root, one thread a rank, and no look for fabrics, which takes
# longer than a small job; as does a launcher for a rank without one, which starts nobody.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OPENBLAS_NUM_THREADS=1 OMPI_MCA_pml=ob1
export OMPI_MCA_ess_singleton_isolated=1

# mpi RANKS PROGRAM...: start a job on this machine, at most $mpi_seconds (120) long. Ranks may
# outnumber cores and then yield while they wait. After a status other than 0 the launcher does not
# wait its usual second: ranks leave together, so nobody is left then. One rank needs no launcher.
mpi() {
    local ranks=$1
    shift
    if [ "$ranks" = 1 ]; then
        timeout -k 5 "${mpi_seconds:-120}" "$@"
        return
    fi
    timeout -k 5 "${mpi_seconds:-120}" mpirun --oversubscribe --bind-to none \
        --mca mpi_yield_when_idle 1 --mca odls_base_sigkill_timeout 0 -np "$ranks" "$@"
}

# expect_golden NAME [SED...]: stdout of the last run equals tests/golden/NAME, after `sed -E` with
# the given expressions has replaced what may differ from run to run. UPDATE_GOLDEN=1 rewrites it.
expect_golden() {
    local golden=$tests/golden/$1 expression
    local -a mask=(-e '')
    shift
    for expression; do mask+=(-e "$expression"); done
    sed -E "${mask[@]}" "$scratch/stdout" >"$scratch/masked"
    if [ "${UPDATE_GOLDEN:-0}" = 1 ]; then cp "$scratch/masked" "$golden"; fi
    if diff -u "$golden" "$scratch/masked" >"$scratch/diff" 2>&1; then
        pass
    else
        miss "the text of golden/$(basename "$golden") (UPDATE_GOLDEN=1 rewrites it)"
        head -n 40 "$scratch/diff"
    fi
}

# skip WHY: this machine cannot show it.
skip() {
    echo "skipped: $1"
    exit 77
}

finish() {
    finished=yes
    echo "$passed passed, $failed failed"
    [ "$failed" = 0 ] && [ "$passed" != 0 ]
    exit $?
}
