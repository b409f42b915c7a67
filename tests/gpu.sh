#!/usr/bin/env bash
# Build with CUDA and run everything that needs a GPU. Skips with a word where there is none.
#
#     tests/gpu.sh [-R REGEX] [BUILD_DIR]
#
# Under BUILD_DIR (build/gpu). The tests are those of tests/gpu, on as many GPUs as there are; each
# says what it skipped. CMAKE_ARGS goes to cmake, for example -DNCCL_ROOT=DIR. Where NCCL or cuDNN are
# Python packages (nvidia-nccl-cu13, nvidia-cudnn-cu13) and nothing else is found, those are taken.
set -uo pipefail
filter=. build=
while [ $# -gt 0 ]; do
    case $1 in
    -R) filter=$2 && shift ;;
    -h | --help) sed -n '2,9s/^# \{0,1\}//p' "$0" && exit 0 ;;
    -*) sed -n '2,9s/^# \{0,1\}//p' "$0" >&2 && exit 6 ;;
    *) build=$(realpath -m -- "$1") ;;
    esac
    shift
done
cd "$(dirname "$0")/.." || exit 1
build=${build:-$PWD/build/gpu}

gpus=$(tests/gpu/count.sh)
if [ "$gpus" = 0 ]; then
    echo "skipped: no GPU here"
    exit 0
fi
nvidia-smi --query-gpu=index,name,driver_version,memory.total --format=csv,noheader

# wheel PACKAGE HEADER: folder of a Python package of NVIDIA's that has this header, or nothing.
wheel() {
    python3 - "$1" "$2" 2>/dev/null <<'PYTHON'
import importlib.util, os, sys
spec = importlib.util.find_spec("nvidia." + sys.argv[1])
for root in spec.submodule_search_locations:
    if os.path.exists(os.path.join(root, "include", sys.argv[2])):
        print(root)
        break
PYTHON
}
toolkit=$(dirname "$(dirname "$(command -v nvcc || echo /usr/local/cuda/bin/nvcc)")")
roots=()
for part in NCCL:nccl:nccl.h CUDNN:cudnn:cudnn_backend.h; do
    IFS=: read -r name package header <<<"$part"
    if ! ls "$toolkit"/include/"$header" /usr/include/"$header" /usr/include/*/"$header" >/dev/null 2>&1; then
        root=$(wheel "$package" "$header")
        [ -n "$root" ] && roots+=("-D${name}_ROOT=$root")
    fi
done

generator=()
command -v ninja >/dev/null && generator=(-G Ninja)
# shellcheck disable=SC2086 # CMAKE_ARGS are several words
mkdir -p "$(dirname "$build")"
cmake -S . -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DSCALESTUDY_CUDA=ON \
    -DCMAKE_CUDA_COMPILER="$toolkit/bin/nvcc" "${roots[@]}" ${CMAKE_ARGS:-} >"$build.log" 2>&1 ||
    { tail -n 30 "$build.log"; echo "does not configure"; exit 1; }
cmake --build "$build" --parallel "$(nproc)" --target gpu >"$build.log" 2>&1 ||
    { grep -E "error|FAILED" "$build.log" | head -n 40; echo "does not build"; exit 1; }
"$build/bin/scalestudy" --version

export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
ctest --test-dir "$build" --label-regex gpu --tests-regex "$filter" --no-tests=error --output-on-failure
