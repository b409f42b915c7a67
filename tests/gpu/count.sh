#!/usr/bin/env bash
# How many GPUs programs here see: those of this machine, or as many as CUDA_VISIBLE_DEVICES names.
have=$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | grep -c .)
if [ -n "${CUDA_VISIBLE_DEVICES+set}" ]; then
    named=$(tr ',' '\n' <<<"$CUDA_VISIBLE_DEVICES" | grep -c .)
    [ "$named" -lt "$have" ] && have=$named
fi
echo "$have"
