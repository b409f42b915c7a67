#!/usr/bin/env bash
# The README keeps its word: its options exist, its links lead somewhere, nothing in it waits to be filled in.
. "$(dirname "$0")/lib.sh"

root=$tests/..
for page in "$root"/*.md "$root"/*/*.md; do
    if grep -nE '@@[A-Z_]+@@' "$page" >"$scratch/open"; then
        miss "$(basename "$page") waits to be filled in: $(head -n 1 "$scratch/open")"
    else
        pass
    fi
    while IFS= read -r link; do
        check "$(basename "$page") links to $link" test -e "$(dirname "$page")/$link"
    done < <(grep -oE '\]\([^)#:]+\)' "$page" | sed -E 's/^\]\(|\)$//g')
done
"$bin/scalestudy" --help >"$scratch/help" 2>&1
while IFS= read -r option; do
    check "the README's $option is an option of scalestudy, scalereport or a launcher" \
        grep -qE -- "(^|[ ,])$option([ =]|\$)" "$scratch/help" \
        <("$bin/scalereport" --help 2>&1) <(printf '%s\n' --map-by --bind-to --oversubscribe --mca --preset --build --install --prefix)
done < <(grep -oE -- '--[a-z][a-z-]+' "$root/README.md" | sort -u)
finish
