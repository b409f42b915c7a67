#!/usr/bin/env bash
# net_down.sh: end the processes on the hosts that net_up.sh made, and remove those hosts.
state=${SSNET_DIR:-/run/ssnet}

[ -f "$state/made" ] || exit 0
while read -r name; do
    ip netns pids "$name" 2>/dev/null | xargs -r kill -9 2>/dev/null
    ip netns del "$name"
done <"$state/made"
rm -f "$state"/*
rmdir "$state"
