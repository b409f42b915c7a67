#!/usr/bin/env bash
# A disk that fills while a study is written costs the point that did not fit, and none before it.
. "$(dirname "$0")/lib.sh"

writer=$bin/bench_record_writer
if [ "${IN_NAMESPACE:-}" != yes ]; then
    unshare -rm true 2>/dev/null || skip "no mount namespace for a small tmpfs"
    # shellcheck disable=SC2034 # lib.sh looks: the one inside says how it went
    finished=yes
    IN_NAMESPACE=yes unshare -rm bash "$0" "$@"
    exit
fi
mkdir disk roomy
mount -t tmpfs -o size=64m tmpfs roomy || skip "no small tmpfs"

# The disk holds four points and half of the fifth, whatever a row takes by now: the writer tells, and dies of its
# broken pipe with its parts still there.
"$writer" write roomy/a.h5 1000 2>"$scratch/roomy" | grep -qm1 "point 4 published"
four=$(du -ck roomy/a.h5.parts/{head,000,001,002,003}.h5 | tail -1 | cut -f1)
fifth=$(du -k roomy/a.h5.parts/004.h5 | cut -f1)
umount roomy
check "points that grow" test "$fifth" -gt 100 -a "$four" -gt "$fifth"
mount -t tmpfs -o size=$((four + fifth / 2))k tmpfs disk

refuses_late() { # TEXT
    expect_exit 8
    expect_stderr "$1" "No space left on device"
    check "one line" test "$(wc -l <"$scratch/stderr")" -eq 1
}
run "$writer" write disk/a.h5 12
refuses_late "disk/a.h5.parts/004.h5"
expect_stdout "point 3 published"
check "nothing half is left" test -z "$(find disk -name '*.tmp')"
check "published points are as they were" "$writer" verify disk/a.h5 0 1 2 3

# All parts fit, a copy of them does not.
run "$writer" resume disk/a.h5 4
refuses_late "cannot write disk/a.h5: "
check "nothing half is left" test -z "$(find disk -name '*.tmp')"
check "the parts are as they were" "$writer" verify disk/a.h5 0 1 2 3

# With room again the study goes on.
mount -o remount,size=$((12 * four))k disk
run "$writer" resume disk/a.h5 12
expect_exit 0
check "all points" "$writer" verify disk/a.h5 $(seq 0 11)
check "whole" test -f disk/a.h5

# No room for anything: the head cannot be written, and nothing is left behind.
mkdir full
mount -t tmpfs -o size=8k tmpfs full
refuses 8 "full/b.h5.parts/head.h5: No space left on device" "$writer" write full/b.h5 1
check "nothing is left" test -z "$(ls full)"
umount disk full
finish
