# shellcheck shell=bash
# What the scripts need from the system, by the names of Debian 12 and Ubuntu 22.04, 24.04; sourced.
#
#     install_missing "${packages_run[@]}"      installs what is missing, and nothing when all is there
#     quietly COMMAND...                        shows the output of COMMAND only when it fails
#
# Both return the status of what failed, after one sentence on stderr.

# shellcheck disable=SC2034 # for the scripts that source this
packages_run=(cmake ninja-build gcc libc6-dev pkg-config git
    libopenmpi-dev openmpi-bin libhdf5-dev libgsl-dev libopenblas-pthread-dev libhwloc-dev
    libyaml-dev libjansson-dev libxxhash-dev libssl-dev)
# shellcheck disable=SC2034
packages_test=(clang clang-format shellcheck hdf5-tools python3-h5py iproute2 procps gnuplot-nox)

quietly() {
    local log rc=0
    log=$(mktemp "${TMPDIR:-/tmp}/scalestudy-log.XXXXXX") || return 1
    "$@" >"$log" 2>&1 </dev/null || rc=$?
    if [ "$rc" != 0 ]; then
        cat "$log" >&2
        echo "${0##*/}: status $rc from: $*" >&2
    fi
    rm -f "$log"
    return "$rc"
}

is_installed() {
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

install_missing() {
    local package
    local -a missing=() as_root=()
    if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
        echo "${0##*/}: no apt here, so nothing was installed; needed, by their Debian names: $*" >&2
        return 0
    fi
    for package; do
        is_installed "$package" || missing+=("$package")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    if [ "$(id -u)" != 0 ]; then
        if ! command -v sudo >/dev/null; then
            echo "${0##*/}: neither root nor sudo here; ask for these packages: ${missing[*]}" >&2
            return 1
        fi
        as_root=(sudo)
    fi
    as_root+=(env DEBIAN_FRONTEND=noninteractive)
    quietly "${as_root[@]}" apt-get update -q &&
        quietly "${as_root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}"
}
