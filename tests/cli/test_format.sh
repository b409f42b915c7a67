#!/usr/bin/env bash
# C files are as clang-format 14 lays them out; shell scripts have no warning of shellcheck.
. "$(dirname "$0")/lib.sh"

cd "$tests/.." || exit 1
files() { # ENDING: what the next commit would hold, outside of build folders
    local folder
    local -a patterns=()
    for folder in base topologies collectives workloads analysis driver tests jobscripts; do
        patterns+=("$folder/*$1")
    done
    git ls-files -z --cached --others --exclude-standard -- "${patterns[@]}"
}
git rev-parse --is-inside-work-tree >"$scratch/git" 2>&1 || skip "not a git checkout"

# Other versions lay out some lines otherwise, so only the one that wrote them can judge.
formatter=$(command -v clang-format-14 || command -v clang-format)
if [ -n "$formatter" ] && "$formatter" --version | grep -q 'version 14[.]'; then
    files .[ch] >"$scratch/c"
    check "there are C files" test -s "$scratch/c"
    check "all are formatted" xargs -0 -a "$scratch/c" "$formatter" --dry-run -Werror
else
    echo "no clang-format 14 here"
fi

if command -v shellcheck >/dev/null; then
    { files .sh && printf '.ci/run\0'; } >"$scratch/sh"
    check "there are scripts" test -s "$scratch/sh"
    # SC2054 takes the commas of an option's value (--nodes 1,2,4) for a mistaken array.
    check "none has a warning" xargs -0 -a "$scratch/sh" shellcheck --external-sources \
        --source-path=SCRIPTDIR --severity=warning --exclude=SC2054
else
    echo "no shellcheck here"
fi
[ "$passed" != 0 ] || [ "$failed" != 0 ] || skip "neither tool is here"
finish
