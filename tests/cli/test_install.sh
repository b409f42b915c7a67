#!/usr/bin/env bash
# `cmake --install` puts the programs, and the models where the programs look for them.
. "$(dirname "$0")/lib.sh"

build=$bin/..
[ -e "$build/cmake_install.cmake" ] || skip "not a build folder"
check "installs" cmake --install "$build" --prefix "$scratch/prefix"
run "$scratch/prefix/bin/scalereport" --help
expect_exit 0
expect_stdout "scalereport"
if [ -e "$bin/scalestudy" ]; then
    run "$scratch/prefix/bin/scalestudy" --version
    expect_exit 0
    expect_stdout "scalestudy" "mpi" "hdf5"
    for model in "$tests"/../workloads/models/*.yaml; do
        check "$(basename "$model") is installed" \
            cmp "$model" "$scratch/prefix/share/scalestudy/models/$(basename "$model")"
    done
    cp "$tests/../workloads/models/tiny.yaml" "$scratch/prefix/share/scalestudy/models/only-here.yaml"
    run mpi 1 "$scratch/prefix/bin/scalestudy" --layout 1x1 --model only-here --validate
    expect_exit 0 # found beside the installed program
    for topology in "$tests"/../topologies/*.yaml; do
        check "$(basename "$topology") is installed" \
            cmp "$topology" "$scratch/prefix/share/scalestudy/topologies/$(basename "$topology")"
    done
    cp "$tests/../topologies/laptop.yaml" "$scratch/prefix/share/scalestudy/topologies/only-here.yaml"
    run mpi 1 "$scratch/prefix/bin/scalestudy" --layout 1x1 --device timed --topology only-here --validate
    expect_exit 0
fi
check "nothing else is installed" diff \
    <(cd "$scratch/prefix" && find . -type f ! -path './bin/scale*' ! -path './share/scalestudy/*') /dev/null
finish
