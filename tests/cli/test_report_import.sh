#!/usr/bin/env bash
# Tables and logs of others become curves in the form of the report; what cannot be one is refused in
# one sentence with its line, its column and the right code.
. "$(dirname "$0")/lib.sh"

report=$bin/scalereport
tables=$tests/golden/tables
logs=$tests/golden/logs

# A table without a word, with the word, and with a map are the same.
printf 'gpus,step_ms,global_batch,seq\n8,1000,64,2048\n16,520,64,2048\n32,300,64,2048\n' >plain.csv
printf 'N;Iter time;B;S\n8;1000;64;2048\n16;520;64;2048\n32;300;64;2048\n' >other.csv
run "$report" plain.csv
expect_exit 0
expect_stdout "strong over devices, 3 points" "exact" "# base    8 devices, 131072 tokens/s, 1000.000 ms a step (line 2)"
check "nothing on stderr" diff /dev/null "$scratch/stderr"
"$report" --csv plain.csv | cut -d, -f1-50 >plain
"$report" import other.csv --csv --map gpus=N,step_ms=Iter\ time,gbs=B,seq=S | cut -d, -f1-50 >mapped
check "a map says the same" diff plain mapped
sed 's/$/\r/' plain.csv >windows.csv
check "Windows line ends change nothing" diff <("$report" --csv plain.csv | cut -d, -f1-50) <("$report" --csv windows.csv | cut -d, -f1-50)

# CSV has the columns of a study first, in their order; all names are explained.
run "$report" --csv plain.csv
check "the header of a study comes first" test "$(head -c 5 "$scratch/stdout")" = mode,
check "a line per point and one header" test "$(wc -l <"$scratch/stdout")" = 4
while read -r name; do
    check "column $name is explained" grep -qF -- "\`$name\`" "$tests/../analysis/README.md"
done < <(head -n 1 "$scratch/stdout" | tr ',' '\n')
check "speedup, ratio and marginal increment" awk -F, '
    NR == 1 { for (i = 1; i <= NF; i++) c[$i] = i; next }
    NR == 4 {
        exit !($c["speedup"] - 1000 / 300 < 1e-9 && $c["efficiency_pct"] - 100000 / 300 / 4 < 1e-9 &&
               $c["inc_eff_pct"] - 100 * 520 / 300 / 2 < 1e-9 &&
               $c["marginal_eff_pct"] - 100 * (520 / 300 - 1) < 1e-9 && $c["ci_lo_ms"] == "" &&
               $c["mfu_pct"] == "" && $c["inc_eff_pct"] > 86)
    }' "$scratch/stdout"
run "$report" --json plain.csv
expect_exit 0
expect_stdout '"series"' '"rate_unit": "tokens/s"' '"mfu_pct": null' '"exact": true'
if command -v python3 >/dev/null; then
    check "it is JSON" python3 -m json.tool "$scratch/stdout"
fi
# What --csv writes can be read again.
"$report" --csv plain.csv >again.csv
check "a round trip" diff <("$report" plain.csv | grep -v '^#' | awk '{ print $1, $2, $5 }') \
    <("$report" again.csv | grep -v '^#' | awk '{ print $1, $2, $5 }')

# Words: weak is not strong, a growing model is no efficiency, FP8 is labelled, errors are shown.
run "$report" "$tables/v8_dgxc_h100.csv"
expect_exit 0
expect_stdout "weak scaling: work grows with N" "# FP8" "1979 TFLOP/s a device, fp8, dense"
run "$report" "$tables/v1_megatron_sc21_weak.csv"
expect_exit 0
expect_stdout "the model grows with N" "no speedup" "best-layout curve"
run "$report" --csv "$tables/v10_llama3_405b.csv"
expect_exit 0
expect_stderr ":6: tp x pp x cp x dp is not the number of devices: 8192 from its parts, 16384 printed"
run "$report" import "$logs"/megatron_*.log
expect_exit 0
expect_stdout "strong over devices, 2 points" "within a launch only"
run "$report" import "$logs"/mlperf_1.log "$logs"/mlperf_2.log --devices 1024,2048
expect_exit 0
expect_stdout "E_ttw = E_throughput x E_samples x E_goodput"
run "$report" import "$logs"/nccl_tests_2xh200_sockets.txt "$logs"/nccl_tests.json
expect_exit 0
expect_stdout "4 tables of collectives" "all_gather"
for format in $("$report" import --help | grep -o 'auto|[^ ,]*' | head -n 1 | tr '|' ' '); do
    "$report" import plain.csv --as "$format" >/dev/null 2>words
    check "--as $format is known" test "$(grep -c 'is no format' words)" = 0
done

# Launches: a column run, or files of one size.
printf 'gpus,run,step_s,global_batch\n8,a,1.00,64\n8,b,1.02,64\n8,c,0.98,64\n16,a,0.5,64\n16,b,0.52,64\n16,c,0.51,64\n' >runs.csv
run "$report" --csv runs.csv
expect_exit 0
check "three launches give an interval" awk -F, '
    NR == 1 { for (i = 1; i <= NF; i++) c[$i] = i; next }
    NR == 2 { exit !($c["n_iter"] == 3 && $c["ci_lo_ms"] > 900 && $c["ci_hi_ms"] > 1000) }' "$scratch/stdout"
# 3 and 3 logarithms: errors of the means 0.011547 and 0.011321, Welch's freedom 3.998, t 2.7768.
check "and are launches, of which a ratio has Welch's interval" awk -F, '
    NR == 1 { for (i = 1; i <= NF; i++) c[$i] = i; next }
    $c["launches"] != 3 { exit 1 }
    NR == 3 { d = log($c["speedup_hi"] / $c["speedup"]) - 2.7768 * 0.016172; exit !(d < 1e-4 && d > -1e-4) }' "$scratch/stdout"
printf 'gpus,run,step,step_s,global_batch\n' >steps.csv
for gpus in 8 16; do for run in a b; do for step in 1 2 3 4 5 6 7 8; do
    echo "$gpus,$run,$step,$((80 / gpus)).0$step,64"
done; done; done >>steps.csv
run "$report" steps.csv
expect_exit 0
expect_stdout "strong over devices, 2 points" "within a launch only"

# Neither a batch nor a mode: it must be said.
printf 'gpus,step_s\n8,1\n16,0.6\n' >bare.csv
refuses 6 "neither a global batch nor a column mode" "$report" bare.csv
run "$report" import bare.csv --scaling weak
expect_exit 0
expect_stdout "device-steps/s" "weak scaling"

# Bad input, one line each: CODE|WORDS|CONTENT
while IFS='|' read -r code words content; do
    printf '%b' "$content" >bad.csv
    refuses "$code" "$words" "$report" bad.csv
done <<'BAD'
8|is empty|
8|none of the formats|# nothing\n\n
8|has a header and no rows|gpus,step_s\n
6|no column of the header is known|colour,taste\nred,sour\n
6|both give step_s|gpus,step_s,step_ms\n1,1,1000\n
8|bad.csv:2: column "step_s": "nan" is not a finite number|gpus,step_s\n8,nan\n
8|column "step_s": "0" is zero or negative|gpus,step_s\n8,0\n
8|column "step_s": "1e-320" was never measured|gpus,step_s\n8,1e-320\n
8|column "step_s": "-1.5" is zero or negative|gpus,step_s\n8,-1.5\n
8|is not a whole number of 1 or more|gpus,step_s\n8.5,1\n
8|"1,5" has a comma|gpus;step_s\n8;1,5\n
8|3 columns where the header has 2: a decimal comma|gpus,step_s\n8,1,5\n
8|"12 ms" is not one plain number|gpus,step_s\n8,12 ms\n
8|the file ends in the middle of a line (2 of 3 columns)|gpus,step_s,global_batch\n8,1.0,64\n16,0.
8|a quote is not closed|gpus,step_s\n"8,1\n
8|a byte 0|gpus,step_s\n8\0,1\n
6|N = 8 follows N = 16|gpus,step_s,global_batch\n16,1,64\n8,2,64\n
6|N = 8 is there twice (line 2)|gpus,step_s,global_batch\n8,1,64\n8,2,64\n
6|neither constant (strong) nor in step with N|gpus,step_s,global_batch\n8,1,64\n16,1,100\n32,1,101\n
6|global_batch is 64 at N = 8 and 128 at N = 16: a changed batch|gpus,step_s,global_batch,mode\n8,1,64,strong\n16,1,128,strong\n
6|it does not follow N|gpus,step_s,global_batch,mode\n8,1,64,weak\n16,1,64,weak\n
6|is neither strong nor weak|gpus,step_s,global_batch,mode\n8,1,64,mixed\n16,1,64,mixed\n
6|not the same work as line 2 of series "a": dtype differs|series,gpus,step_s,global_batch,dtype\na,8,1,64,bf16\na,16,1,64,fp8\n
6|: seq differs|series,gpus,step_s,global_batch,seq\na,8,1,64,2048\na,16,1,64,4096\n
6|: dense or MoE differs|series,gpus,step_s,global_batch,experts\na,8,1,64,1\na,16,1,64,8\n
6|: devices per node differs|series,nodes,gpus,step_s,global_batch\na,2,16,1,64\na,8,32,1,64\n
6|: fabric differs|series,gpus,step_s,global_batch,fabric\na,8,1,64,IB\na,16,1,64,Ethernet\n
6|so that MFU means two things|series,gpus,step_s,global_batch,mfu_pct,peak_tflops\na,8,1,64,40,989\na,16,1,64,20,1979\n
6|nothing says how many devices|step_s,global_batch\n1,64\n
6|no rate that all its points have|gpus,global_batch\n8,64\n16,64\n
8|is no share: a column in percent|gpus,tokens_per_s,mfu\n8,1000,41\n
7|may mean bits or bytes|operation,gpus,size,busbw_gbps\nall_reduce,8,1GiB,100\n
7|8 times size / time in every row: bits for bytes|operation,gpus,size,time_us,algbw_GBps\nall_reduce,8,8000000,100,640\nall_reduce,8,16000000,100,1280\n
7|1.074 times size / time in every row|operation,gpus,size,time_us,algbw_GBps\nall_reduce,8,8000000,100,85.899\nall_reduce,8,16000000,100,171.799\n
8|"1GB" may be decimal or binary|operation,gpus,size,time_us\nall_reduce,8,1GB,100\n
6|sizes must increase|operation,gpus,size,time_us\nall_reduce,8,1MiB,100\nall_reduce,8,1KiB,10\n
8|is compressed by gzip|\037\213\010\000
8|UTF-16|\377\376g\000
8|none of the formats|hello world\nthis is no table\n
BAD

# Identities of one row are shown with both numbers; nothing is changed.
while IFS='|' read -r words content; do
    printf '%b' "$content" >odd.csv
    run "$report" odd.csv
    expect_exit 0
    expect_stdout "$words"
done <<'ODD'
:2: tokens/s is not batch x sequence / step time: 131072 from its parts, 999999 printed|gpus,step_s,global_batch,seq,tokens_per_s\n8,1.000,64,2048,999999\n
:2: tokens/s is not that of a device times devices: 8000 from its parts, 9000 printed|gpus,tokens_per_s_gpu,tokens_per_s\n8,1000,9000\n
the printed MFU is half of what a dense peak gives: it was taken against the 2:4-sparse peak|gpus,tflops_per_gpu,mfu_pct,peak_tflops\n8,400.0,20.2,989\n
MFU of 141 % is above 100 %|gpus,tokens_per_s,mfu_pct\n8,1000,141\n
TFLOP/s of a device x devices is not the aggregate in PFLOP/s: 1.6 from its parts, 2.5 printed|gpus,tflops_per_gpu,pflops\n8,200,2.50\n
the last line has no line end|gpus,step_s,global_batch\n8,1.0,64\n16,0.5,64
:3: not the same work as line 2: seq differs, so a curve of its own begins|gpus,step_s,global_batch,seq\n8,1.0,64,2048\n16,0.5,64,4096\n
columns that were not used: colour|gpus,step_s,global_batch,colour\n8,1.0,64,red\n16,0.5,64,red\n
one point: no speedup, no efficiency|gpus,step_s,global_batch\n8,1.0,64\n
is not algbw times the factor 1.75|operation,gpus,size,algbw_GBps,busbw_GBps\nall_reduce,8,1MiB,100,100\n
ODD

# Logs: empty, without a step, cut in mid-line, localised, of an unknown size.
: >empty.log
refuses 8 "is empty" "$report" import empty.log --as megatron
head -n 16 "$logs/megatron_8.log" >header.log
refuses 8 "has no step" "$report" import header.log
head -c -100 "$logs/megatron_8.log" >cut.log
run "$report" import cut.log
expect_exit 0
expect_stdout "ends in the middle of this line" "10 samples kept"
sed 's/\(iteration (ms): [0-9]*\)\./\1,/' "$logs/megatron_8.log" >local.log
refuses 8 "has a comma" "$report" import local.log
sed 's/ms): [0-9.]* |/ms): nan |/' "$logs/megatron_8.log" >nan.log
refuses 8 "is not a finite number" "$report" import nan.log
sed 's/ms): [0-9.]* |/ms): -5.0 |/' "$logs/megatron_8.log" >negative.log
refuses 8 "is no time" "$report" import negative.log
grep -v "world size" "$logs/megatron_8.log" >unsized.log
refuses 6 "nothing says how many devices" "$report" import unsized.log
run "$report" import unsized.log --devices 8
expect_exit 0
sed 's/$/\r/' "$logs/llmc_gpt2_124m_1xh200.txt" >windows.log
check "Windows line ends in a log" diff <("$report" import --csv "$logs/llmc_gpt2_124m_1xh200.txt" 2>/dev/null | cut -d, -f1-50) \
    <("$report" import --csv windows.log 2>/dev/null | cut -d, -f1-50)
sed 's/{"namespace/{namespace/' "$logs/mlperf_1.log" >damaged.log
refuses 8 "the JSON behind :::MLLOG is damaged" "$report" import damaged.log
sed 's/"success"/"aborted"/' "$logs/mlperf_1.log" >aborted.log
run "$report" import aborted.log --devices 8
expect_exit 0
expect_stdout "the run did not reach it: no time to the target"
head -c 900 "$logs/nccl_tests.json" >cut.json
refuses 8 "the JSON is cut or damaged" "$report" import cut.json
sed 's/ 83.87 /  0.00 /' "$logs/nccl_tests_2xh200_sockets.txt" >zero.txt
refuses 8 "is zero or negative" "$report" import zero.txt
cat "$logs/megatron_8.log" <(sed 's/micro_batch_size \(.*\) 2$/micro_batch_size \1 4/' "$logs/megatron_8.log") >twice.log
run "$report" import twice.log
expect_exit 0
expect_stdout "taken as another launch"

# Two launches of one size that are not the same work, and what is asked wrongly.
sed 's/micro_batch_size \(.*\) 2$/micro_batch_size \1 4/' "$logs/megatron_8.log" >mbs4.log
refuses 6 "is not the same work: mbs differs" "$report" import "$logs/megatron_8.log" mbs4.log
refuses 6 "no file was named" "$report" import
refuses 6 "has no column \"Zeit\"" "$report" import plain.csv --map step_s=Zeit
refuses 6 "is no name that import knows" "$report" import plain.csv --map speed=gpus
refuses 6 "is not name=column" "$report" import plain.csv --map step_s
refuses 6 "no columns to map" "$report" import "$logs/megatron_8.log" --map gpus=N
refuses 6 "2 numbers for 1 files" "$report" import plain.csv --devices 1,2
refuses 8 "absent.csv" "$report" import absent.csv
refuses 8 "absent.csv" "$report" absent.csv
"$bin/unit_report" write study study.h5 >/dev/null
refuses 6 "study files and tables" "$report" study.h5 plain.csv
refuses 8 "is an HDF5 file" "$report" import study.h5

# A long log takes no more memory than a short one.
head -n 16 "$logs/megatron_8.log" >long.log
seq -f ' iteration %8.0f/  300000 | elapsed time per iteration (ms): 4000.0 | global batch size:   128 |' 300000 >>long.log
check "300,000 steps in 64 MiB" bash -c "ulimit -v 65536; '$report' import long.log >out && grep -q 'mean of 8 neighbouring steps' out"
finish
