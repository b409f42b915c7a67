#!/usr/bin/env bash
# net_up.sh [N=2]: N hosts ssnode0, ssnode1, ... as network namespaces, joined by a bridge that lives
# in a namespace of its own (ssbridge). The machine's own network and /etc stay as they are. Needs
# root; answers 77 (skipped) where namespaces cannot be made. net_down.sh takes everything away.
set -euo pipefail
n=${1:-2}
state=${SSNET_DIR:-/run/ssnet}

[ "$(id -u)" = 0 ] || { echo "net_up: needs root" >&2; exit 77; }
for tool in ip tc nsenter unshare taskset; do
    command -v "$tool" >/dev/null || { echo "net_up: needs $tool (iproute2, util-linux)" >&2; exit 77; }
done
[ ! -e "$state" ] || { echo "net_up: $state exists: another network is up, or net_down.sh was not run" >&2; exit 1; }
mkdir "$state"
trap '"$(dirname "$0")/net_down.sh"' ERR
if ! ip netns add ssbridge 2>/dev/null; then
    rmdir "$state"
    echo "net_up: cannot make a network namespace" >&2
    exit 77
fi
echo ssbridge >"$state/made"
ip -n ssbridge link set lo up
ip -n ssbridge link add br0 type bridge forward_delay 0 stp_state 0
ip -n ssbridge link set br0 up

echo "127.0.0.1 localhost" >"$state/hosts"
for ((i = 0; i < n; i++)); do
    node=ssnode$i
    ip netns add "$node"
    echo "$node" >>"$state/made"
    echo "10.77.$((i / 250)).$((i % 250 + 1)) $node" >>"$state/hosts"
    # both ends are born inside their namespaces
    ip link add eth0 netns "$node" type veth peer name "p$i" netns ssbridge
    ip -n ssbridge link set "p$i" master br0 up
    ip -n "$node" link set lo up
    ip -n "$node" addr add "10.77.$((i / 250)).$((i % 250 + 1))/16" dev eth0
    ip -n "$node" link set eth0 up
done
