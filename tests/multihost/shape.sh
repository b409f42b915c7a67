#!/usr/bin/env bash
# shape.sh RATE|off [BURST=64k]: limit every link of the hosts that net_up.sh made, both directions
# (the host's eth0 and its port on the bridge), with htb; "1gbit", "100mbit". The first BURST bytes
# after a pause pass at full speed.
set -euo pipefail
rate=${1:?usage: shape.sh RATE|off [BURST]}
burst=${2:-64k}
state=${SSNET_DIR:-/run/ssnet}

limit() { # namespace device
    tc -n "$1" qdisc del dev "$2" root 2>/dev/null || true
    [ "$rate" != off ] || return 0
    tc -n "$1" qdisc add dev "$2" root handle 1: htb default 1
    tc -n "$1" class add dev "$2" parent 1: classid 1:1 htb rate "$rate" burst "$burst" cburst "$burst" quantum 60000
}

while read -r name; do
    [[ $name == ssnode* ]] || continue
    limit "$name" eth0
    limit ssbridge "p${name#ssnode}"
done <"$state/made"
