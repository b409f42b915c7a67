#!/usr/bin/env bash
# agent.sh HOST COMMAND...: what ssh is to real hosts (Open MPI's plm_rsh_agent): runs a shell command
# on one of the hosts of net_up.sh, with its own host name, /dev/shm and /etc/hosts.
# agent.sh HOST -- PROGRAM ARGUMENTS...: the same for a program, arguments kept as they are.
# SSNET_CORES=C: host i may use the C cores from i*C on (modulo what there is); 0: all of them.
set -euo pipefail
host=${1:?usage: agent.sh HOST COMMAND...}
shift
state=${SSNET_DIR:-/run/ssnet}
cores=${SSNET_CORES:-0}
online=$(getconf _NPROCESSORS_ONLN)
list=0-$((online - 1))
if [ "$cores" -gt 0 ]; then
    first=$(((${host#ssnode} * cores) % online))
    last=$((first + cores - 1))
    list=$first-$((last < online ? last : online - 1))
fi
if [ "$1" = -- ]; then shift; else set -- sh -c "$*"; fi
# shellcheck disable=SC2016  # expands in the inner shell
exec nsenter --net="/run/netns/$host" unshare --uts --ipc --mount sh -c '
    hostname "$1" && mount --bind "$2" /etc/hosts && mount -t tmpfs -o size=2g tmpfs /dev/shm || exit 1
    list=$3
    shift 3
    exec taskset -c "$list" "$@"' sh "$host" "$state/hosts" "$list" "$@"
