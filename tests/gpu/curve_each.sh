#!/usr/bin/env bash
# The same command on each of some GPUs, all at once: of curve.sh.
#
#     curve_each.sh ID[,ID...] COMMAND... NAME.h5
#
# The command sees GPU ID alone, and its last word is NAME-I.h5, I counting from 0.
set -u
IFS=, read -ra ids <<<"$1"
last=$(($# - 1)) out=${!#} rc=0 jobs=()
for i in "${!ids[@]}"; do
    CUDA_VISIBLE_DEVICES=${ids[i]} "${@:2:last-1}" "${out%.h5}-$i.h5" &
    jobs+=($!)
done
for job in "${jobs[@]}"; do
    wait "$job" || rc=$?
done
exit $rc
