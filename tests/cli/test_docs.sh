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
        <("$bin/scalereport" --help 2>&1) <("$bin/scalereport" check --help 2>&1) \
        <("$bin/scalereport" check --fit --help 2>&1) <("$bin/scalereport" goodput --help 2>&1) <(printf '%s\n' --map-by --bind-to --oversubscribe --mca --preset --build --install --prefix)
done < <(awk '# of the table that names the options of others, the first column is ours
    /^\| here \| Megatron-LM/ { others = 1 } !/^\|/ { others = 0 }
    { if (others) { split($0, cell, "|"); print cell[2] } else print }' "$root/README.md" |
    grep -oE -- '--[a-z][a-z-]+' | sort -u)
"$bin/scalereport" --help >"$scratch/commands" 2>&1
while IFS= read -r command; do
    check "the README's $command is a command" grep -q "^       scalereport $command " "$scratch/commands"
done < <(grep -oE 'scalereport [a-z]+' "$root/README.md" | cut -d' ' -f2 | grep -vxE 'alone|study|reads|records' | sort -u)
while read -r folder name; do
    check "the README's $name is one of $folder" test -r "$root/$folder/$name.yaml"
done < <(grep -oE -- '--(model|topology) [a-z0-9-]+' "$root/README.md" | sed 's|--model|workloads/models|; s|--topology|topologies|' | sort -u)
for file in "$root"/workloads/models/*.yaml; do
    check "$(basename "$file") says where its sizes come from" grep -qE '^source: "?[A-Za-z].{10}' "$file"
done
finish
