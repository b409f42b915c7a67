#!/usr/bin/env bash
# The path of a checkpoint against raw writes on a disk that gives 100 MiB/s and nothing else: the same
# benchmark inside a group of the blkio controller.
#
#     tests/bench/throttled.sh BUILD_DIR/bin [DIR=.] [MIB=64] [PAIRS=21] [MIB_PER_S=100]
#
# Needs root and a blkio controller (cgroup v1), or io in cgroup v2 where this shell may make a group.
set -eu
[ $# -ge 1 ] || { sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 6; }
bin=$1 dir=${2:-.} mib=${3:-64} pairs=${4:-21} rate=$((${5:-100} * 1048576))
disk=$(stat -c %d -- "$dir") # st_dev: of a partition its disk is what can be throttled
device=$((disk >> 8 & 0xfff)):$((disk & 0xff))
if [ -e "/sys/dev/block/$device/partition" ]; then
    device=$(cat "/sys/dev/block/$device/../dev")
fi
if [ -d /sys/fs/cgroup/blkio ]; then
    group=/sys/fs/cgroup/blkio/scalestudy.$$
    mkdir "$group"
    echo "$device $rate" >"$group/blkio.throttle.write_bps_device"
else
    group=/sys/fs/cgroup/scalestudy.$$
    mkdir "$group"
    echo "$device wbps=$rate" >"$group/io.max"
fi
trap 'rmdir "$group"' EXIT
echo "# writes to device $device held at $rate bytes/s"
(
    echo "$BASHPID" >"$group/cgroup.procs"
    exec "$bin/bench_checkpoint_write" "$mib" "$pairs" "$dir"
)
