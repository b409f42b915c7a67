#!/usr/bin/env bash
# scalereport --plot draws the curve with gnuplot, and no text of a study is ever a command to it.
. "$(dirname "$0")/lib.sh"

report=$bin/scalereport
check "a study file is written" "$bin/unit_report" write study study.h5
check "another study is written" "$bin/unit_report" write other other.h5
check "a study with a failed gate is written" "$bin/unit_report" write invalid invalid.h5

refuses 6 "ends in none of .svg, .png, .pdf" "$report" study.h5 --plot curve.gif
run "$report" study.h5 --plot nowhere/curve.svg
expect_exit 8
expect_stdout "speedup"
expect_stderr "cannot be written"

# Without gnuplot the report is there, the script too, and one sentence says what is missing.
run env PATH=/nowhere "$report" study.h5 --plot alone.svg
expect_exit 5
expect_stdout "speedup"
expect_stderr "there is no gnuplot on this machine"
check "one sentence" test "$(wc -l <"$scratch/stderr")" = 1
check "the script is ready" grep -q '^\$curve_0 << END' alone.svg.gnuplot
check "no picture" test ! -e alone.svg
command -v gnuplot >/dev/null || finish

run "$report" study.h5 --plot curve.svg
expect_exit 0
check "nothing on stderr" diff /dev/null "$scratch/stderr"
check "the picture is an SVG" grep -q '</svg>' curve.svg
for label in devices "tokens/s, all devices" "efficiency against the base" ideal compute; do
    check "the picture says $label" grep -q "$label" curve.svg
done
cp "$scratch/stdout" with
run "$report" study.h5
check "the report is the same with and without a picture" diff with "$scratch/stdout"

# The numbers in the script are those of the CSV, every measured point with its interval.
"$report" --csv study.h5 >study.csv
awk -F, 'NR == 1 { for (i = 1; i <= NF; i++) at[$i] = i; next }
    { printf "%d %.6g %.6g\n", $at["ranks"], $at["tokens_per_s"], $at["efficiency_pct"] }' study.csv |
    sort -n >wanted
sed -n '/^\$curve_0 << END/,/^END/p' curve.svg.gnuplot | awk 'NF > 3 { printf "%d %.6g %.6g\n", $1, $2, $6 }' |
    sort -n >drawn
check "data of the picture" diff wanted drawn
check "some points were drawn" test -s drawn

# No line joins measured points.
check "lines are models" test "$(grep -c 'with lines' curve.svg.gnuplot)" = 2
# From four points of one regime on the laws of the text are drawn: one line where points were measured, one beyond.
check "a study with laws is written" "$bin/unit_report_laws" write laws.h5 0
run "$report" laws.h5 --plot laws.svg
expect_exit 0
check "nothing on stderr" diff /dev/null "$scratch/stderr"
check "lines of models in both panels" test "$(grep -c 'with lines' laws.svg.gnuplot)" = 6
for label in "geometric mean of amdahl and log2" "envelope of all laws" "envelope, extrapolated" "forecast, 95 % interval" x2 x4; do
    check "the picture says $label" grep -qF "$label" laws.svg
done
check "the line begins with the regime" grep -q '^ 2 ' <(sed -n '/^\$law_0_0/,/^END/p' laws.svg.gnuplot)
check "and ends at four times the largest" grep -q '^ 128 ' <(sed -n '/^\$beyond_0_0/,/^END/p' laws.svg.gnuplot)
"$report" fit laws.h5 --csv 2>"$scratch/words" | awk -F, '$5 == "forecast" { printf "%d %.6g\n", $8, $10 }' >said # the name has a comma
sed -n '/^\$forecast_0_0/,/^END/p' laws.svg.gnuplot | awk 'NF > 5 { printf "%d %.6g\n", $1, $2 }' >drawn
check "forecasts are those of the text" diff said drawn
check "two forecasts" test "$(wc -l <drawn)" = 2
run "$report" invalid.h5 --plot invalid.svg
expect_exit 0
check "failed points are apart" grep -qE '^[0-9]+ [0-9]' <(sed -n '/^\$invalid_0/,/^END/p' invalid.svg.gnuplot)

run "$report" study.h5 other.h5 --plot two.png
expect_exit 0
check "the picture is a PNG" grep -q PNG <(head -c 8 two.png)
check "curves are told apart by number" grep -qF "'(2) " two.png.gnuplot
check "and their points stand side by side" grep -qF '($1*0.9794):2:3:4' two.png.gnuplot
check "ten curves are written" "$bin/unit_report" write sets ten.h5
run "$report" ten.h5 --plot ten.svg
expect_exit 0
check "curves are told apart by what differs" grep -q '(8) .*file:7' ten.svg
check "what is not drawn is said" grep -q 'curves that are not drawn: 2' ten.svg
run "$report" study.h5 --plot -odd.pdf
expect_exit 0
check "the picture is a PDF" grep -q '%PDF' <(head -c 8 ./-odd.pdf)

# Titles that would be commands. Each writes a witness if any part of it is ever executed.
nasty=('`touch witness`' "'; system('touch witness'); '" "' . system('touch witness') . '" '<touch witness'
    '$(touch witness)' '"; system("touch witness"); "' "@X{/Symbol a}_b^c" $'line\n!touch witness' "''" '\')
for i in "${!nasty[@]}"; do
    run "$report" study.h5 --plot "nasty$i.svg" --title "${nasty[i]}"
    expect_exit 0
    check "picture of title $i" grep -q '</svg>' "nasty$i.svg"
done
check "no title was a command" test ! -e witness
check "a title is shown as it is" grep -qF '@X{/Symbol a}_b^c' nasty6.svg
nasty_name="it's \`touch witness\` <x.svg"
run "$report" study.h5 --plot "$nasty_name"
expect_exit 0
check "a file name is only a name" test -s "$nasty_name"
check "no name was a command" test ! -e witness
finish
