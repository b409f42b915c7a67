#!/usr/bin/env bash
# scalereport says of files of known content what is true of them, in three forms, and refuses the rest.
. "$(dirname "$0")/lib.sh"

report=$bin/scalereport
write() { # KIND PATH
    check "a $1 file is written" "$bin/unit_report" write "$1" "$2"
}
write study study.h5
write again again.h5
write other other.h5
write invalid invalid.h5
write parts parts.h5

# Text.
run "$report" study.h5
expect_exit 0
expect_golden report_study.txt
check "nothing on stderr" diff /dev/null "$scratch/stderr"
run "$report" invalid.h5
expect_exit 0
expect_golden report_invalid.txt

# The same files give the same bytes.
check "again the same text" diff <("$report" study.h5) <("$report" study.h5)

# Launches of one study are joined, another study is a section of its own.
run "$report" study.h5 again.h5
expect_exit 0
expect_stdout "3 points, 2 launches" "# study study.h5" "#       again.h5" "fewer than three launches"
run "$report" study.h5 other.h5 again.h5
expect_exit 0
expect_stdout "# study study.h5" "#       again.h5" "# study other.h5"
check "two sections" test "$(grep -c '^# study' "$scratch/stdout")" = 2

# A parts directory is a study that has not been finished.
run "$report" parts.h5.parts
expect_exit 0
expect_stdout "parts directory: the study has not been finished"

# CSV: the shared names first, in their order; a row per point; everything documented.
shared="mode,nodes,ranks,tp,pp,cp,ep,dp,order,mbs,gbs,seq,step_ms_p50,step_ms_p95,step_ms_p99,cv_pct"
shared+=",ci_lo_ms,ci_hi_ms,n_iter,tokens_per_s,tokens_per_s_gpu,mfu_pct,t_compute_ms,t_comm_ms"
shared+=",exposed_ms,wait_ms,slowdown_ms,hidden_pct,dp_ms,tp_ms,pp_ms,cp_ms,ep_ms,bubble_ms"
shared+=",residual_ms,speedup,efficiency_pct,inc_eff_pct,intra_GBps,inter_GBps,ckpt_bytes"
shared+=",ckpt_blocked_ms,ckpt_complete_ms,ckpt_inflation_ms,ckpt_accurate,goodput_pct,wrong"
shared+=",slowest_host,status,"
run "$report" --csv study.h5 other.h5
expect_exit 0
expect_stdout "$shared"
check "a line per point and one header" test "$(wc -l <"$scratch/stdout")" = 7
check "the header is the first line" test "$(head -c 5 "$scratch/stdout")" = mode,
while read -r name; do
    check "column $name is explained" grep -qF -- "\`$name\`" "$tests/../analysis/README.md"
done < <(head -n 1 "$scratch/stdout" | tr ',' '\n')
# Names of the text tables: a header begins with "# nodes ranks"; with two launches it has them all.
sed -n '/^## Names in the text/,/^## JSON/p; /`nodes`/p' "$tests/../analysis/README.md" | tr ' ,|`' '\n' >words
while read -r name; do
    check "text column $name is explained" grep -qxF -- "$name" words
done < <("$report" study.h5 again.h5 | grep '^# nodes ranks' | tr -s ' #' '\n' | sort -u | grep .)
# Throughput and efficiency hang together, whatever the columns say otherwise.
check "tokens_per_s is tokens over time, efficiency its ratio per rank" awk -F, '
    NR == 1 { for (i = 1; i <= NF; i++) c[$i] = i; next }
    NR == 2 { base = $c["tokens_per_s"] / $c["ranks"] }
    NR <= 4 {
        x = $c["tokens_per_step"] / $c["step_ms_mean"] * 1e3
        e = 100 * $c["tokens_per_s"] / $c["ranks"] / base
        if (x / $c["tokens_per_s"] - 1 > 1e-9 || e - $c["efficiency_pct"] > 1e-6) exit 1
        if (x / $c["tokens_per_s"] - 1 < -1e-9 || e - $c["efficiency_pct"] < -1e-6) exit 1
        if ($c["ci_lo_ms"] > $c["step_ms_mean"] || $c["ci_hi_ms"] < $c["step_ms_mean"]) exit 1
        rows++
    }
    END { exit rows != 3 }' "$scratch/stdout"

# JSON.
run "$report" --json invalid.h5
expect_exit 0
expect_stdout '"schema": 1' '"tokens_per_s":' '"goodput_pct": null' '"failed_checks"'
if command -v python3 >/dev/null; then
    check "it is JSON" python3 -m json.tool "$scratch/stdout"
fi

# Time to the same work: E_ttw = E_throughput x E_samples x E_goodput, and 1 / E_ttw is the price over the base.
run "$report" study.h5 --work-tokens 3e11 --goodput 1=99,2=98,4=90
expect_exit 0
expect_stdout "# time to the same work, 3e+11 tokens" "E_throughput x E_samples x E_goodput"
run "$report" --csv study.h5 --work-tokens 3e11 --goodput 1=99,2=98,4=90
check "hours and factors" awk -F, '
    function near(a, b) { return a / b - 1 < 1e-9 && a / b - 1 > -1e-9 }
    NR == 1 { for (i = 1; i <= NF; i++) c[$i] = i; next }
    {
        h = 3e11 / $c["tokens_per_s"] / ($c["goodput_pct"] / 100) / 3600
        e = $c["throughput_factor"] * $c["samples_factor"] * $c["goodput_factor"] * 100
        if (NR == 2) price = $c["hours_to_work"] * $c["ranks"]
        if (!near($c["hours_to_work"], h) || !near($c["ttw_eff_pct"], e) || $c["samples_factor"] != 1) exit 1
        if (!near(price / ($c["hours_to_work"] * $c["ranks"]), e / 100)) exit 1
        if ($c["hours_to_work_lo"] > h || $c["hours_to_work_hi"] < h || $c["ttw_eff_lo_pct"] > e) exit 1
        rows++
    }
    END { exit rows != 3 }' "$scratch/stdout"
run "$report" study.h5 --samples-to-target 8=1e6,32=4e6
expect_exit 0
expect_stdout "# time to the same target, by samples of each batch" "no --goodput was given"
check "2e6 samples of 64 tokens at batch 16" awk '/^# time to the same/ { on = 1 } on && $2 == 1 && $1 == 1 { exit !($4 - 2e6 * 64 / 12292.4 / 3600 < 1e-2 && 2e6 * 64 / 12292.4 / 3600 - $4 < 1e-2) }' "$scratch/stdout"
run "$report" --csv study.h5
check "nothing is said when nothing was asked" awk -F, '
    NR == 1 { for (i = 1; i <= NF; i++) c[$i] = i; next }
    { if ($c["hours_to_work"] != "" || $c["ttw_eff_pct"] != "" || $c["goodput_pct"] != "") exit 1 }' "$scratch/stdout"
refuses 6 "both say what the work is" "$report" study.h5 --work-tokens 1e9 --samples-to-target 16=1e6
refuses 6 "--goodput needs work to count" "$report" study.h5 --goodput 95
refuses 6 "101 % is more than all of the time" "$report" study.h5 --work-tokens 1e9 --goodput 101
refuses 6 "nothing is said about the point of 4 devices" "$report" study.h5 --work-tokens 1e9 --goodput 1=99,2=98
refuses 6 "a point has global batch 16, outside 32 to 64" "$report" study.h5 --samples-to-target 32=1e6,64=2e6
refuses 6 '"16" is not two positive numbers' "$report" study.h5 --samples-to-target 16
refuses 6 '"16=nan" is not two positive numbers' "$report" study.h5 --samples-to-target 16=nan
refuses 6 "the left sides must increase" "$report" study.h5 --samples-to-target 32=1e6,16=2e6
refuses 6 "--work-tokens" "$report" study.h5 --work-tokens=-5

# The program about itself.
run "$report" schema
expect_exit 0
expect_stdout steps start_ns "since t0"
run "$report" --help
expect_exit 0
expect_stdout "usage: scalereport" --csv --json --version "scalereport fit a.h5" "scalereport table.csv" "scalereport import"
run "$report" --version
expect_exit 0
expect_stdout "scalereport " "file schema 4" "json schema 1" "gsl " "jansson "

# Refusals: one line, the right code.
refuses 6 "no study file" "$report"
refuses 6 "--csv and --json" "$report" --csv --json study.h5
refuses 6 "cvs" "$report" --cvs study.h5
refuses 6 "study.h5 and ./study.h5 hold the same launch" "$report" study.h5 ./study.h5
refuses 8 "absent.h5" "$report" absent.h5
echo "no HDF5 at all" >text.h5
refuses 8 "text.h5" "$report" text.h5
head -c 20000 study.h5 >cut.h5
refuses 8 "cut.h5" "$report" cut.h5
refuses 8 "absent.h5" "$report" --json study.h5 absent.h5
if [ -w /dev/full ]; then
    for form in "" --csv --json; do
        # shellcheck disable=SC2086 # no form is no argument
        "$report" $form study.h5 >/dev/full 2>"$scratch/words"
        check "a full disk is exit 8 (${form:-text})" test $? = 8
        check "and one sentence" grep -q "^scalereport: .*No space left" "$scratch/words"
    done
fi
finish
