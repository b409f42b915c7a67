#!/usr/bin/env bash
# Install what is missing, build in every way, run every test. Quiet while all goes well.
#
#     tests/run.sh [--no-install] [--deep] [BUILD_DIR]
#
# Under BUILD_DIR (build): dev (gcc, warnings are errors: every test), asan (unit tests and
# scalereport under AddressSanitizer and UndefinedBehaviorSanitizer), clang (everything compiles),
# cuda (where nvcc is found: everything compiles for one card, and runs without one), report
# (scalereport alone, configured where no MPI can be found). --deep adds the long tests. What needs a
# GPU is run by tests/gpu.sh.
# The last line counts over everything: builds and tests. No test at all is a failure.
set -uo pipefail
usage() { sed -n '2,11s/^# \{0,1\}//p' "$0"; }

install=yes build=
while [ $# -gt 0 ]; do
    case $1 in
    --no-install) install=no ;;
    --deep) export SCALESTUDY_DEEP=1 ;;
    -h | --help) usage && exit 0 ;;
    -*) usage >&2 && exit 6 ;;
    *) build=$(realpath -m -- "$1") ;;
    esac
    shift
done
cd "$(dirname "$0")/.." || exit 1
. jobscripts/packages.sh
if [ "$install" = yes ]; then
    install_missing "${packages_run[@]}" "${packages_test[@]}" || exit 1
fi
build=${build:-$PWD/build}
jobs=$(nproc)
passed=0 failed=0

# build NAME TARGETS CMAKE_OPTION...: one check, in $build/NAME.
build() {
    local name=$1 targets=$2
    shift 2
    # shellcheck disable=SC2086 # several targets are several words
    if quietly cmake -B "$build/$name" "$@" &&
        quietly cmake --build "$build/$name" --parallel "$jobs" --target $targets; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "$name: does not build"
        return 1
    fi
}

count() { # attribute of ctest's junit file
    sed -n "s/^[[:space:]]*$1=\"\([0-9]*\)\".*/\1/p" "$2" | head -n 1
}

# run_tests NAME CTEST_OPTION...: every test is a check.
run_tests() {
    local name=$1 xml=$build/$1/tests.xml log=$build/$1/tests.log rc=0 total bad skipped
    shift
    rm -f "$xml"
    ctest --test-dir "$build/$name" --no-tests=error --output-on-failure --parallel "$jobs" \
        --output-junit "$xml" "$@" >"$log" 2>&1 </dev/null || rc=$?
    total=$(count tests "$xml") bad=$(count failures "$xml") skipped=$(count skipped "$xml")
    if [ "$rc" != 0 ]; then
        cat "$log"
        [ "${bad:-0}" -gt 0 ] || bad=1 # ctest itself failed, or found no test
    fi
    passed=$((passed + ${total:-0} - ${bad:-0} - ${skipped:-0}))
    failed=$((failed + ${bad:-0}))
    echo "$name: ${total:-0} tests, ${bad:-0} failed, ${skipped:-0} skipped"
    sed -n 's/.*- \(.*\) (Skipped)$/  skipped: \1/p' "$log"
}

gold=() # links faster; what users link is linked as theirs
command -v ld.gold >/dev/null && gold=(-DCMAKE_EXE_LINKER_FLAGS=-fuse-ld=gold)
build dev all --preset dev "${gold[@]}" && run_tests dev
build asan "unit scalereport" --preset asan "${gold[@]}" && run_tests asan --tests-regex '^(unit\.|cli\.test_report(_fit)?$)'
CC=clang build clang all --preset dev "${gold[@]}" -DCMAKE_BUILD_TYPE=Debug -DCMAKE_C_FLAGS_DEBUG=-O0
if command -v nvcc >/dev/null; then
    build cuda "scalestudy scalereport gpu unit_nccl" --preset cuda -DCMAKE_CUDA_ARCHITECTURES=90 \
        -DSCALESTUDY_WERROR=ON && run_tests cuda --tests-regex '^(cli\.test_cuda|unit\.collectives\.test_nccl)$'
fi
build report "scalereport unit_report unit_report_laws" --preset release -DSCALESTUDY_DRIVER=OFF -DSCALESTUDY_WERROR=ON \
    -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON && run_tests report --tests-regex '^cli\.test_(report|report_fit|install)$'

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
