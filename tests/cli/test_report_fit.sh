#!/usr/bin/env bash
# scalereport fit says which laws a curve allows and how far they reach, and refuses the rest in one sentence.
. "$(dirname "$0")/lib.sh"

report=$bin/scalereport
table() { # FILE, rows of gpus,nodes,step_s
    { echo gpus,nodes,global_batch,sequence,step_s; for row in "${@:2}"; do
        IFS=, read -r gpus nodes step <<<"$row"
        echo "$gpus,$nodes,512,4096,$step"
    done; } >"$1"
}
table strong.csv 8,1,10.0 16,2,5.30 32,4,2.74 64,8,1.44 128,16,0.78
table two.csv 16,2,10 32,4,5.2
table one.csv 16,2,10
table inside.csv 1,1,10 2,1,5.2 4,1,2.8

# Text: base with its absolute rate, states of parameters, labels, and no point beyond four times.
run "$report" fit strong.csv --predict 96,256,512,1024
expect_exit 0
expect_stdout "strong scaling, across nodes, 4 points, 16 to 128 devices" \
    "# base    u = N / 16 devices: 395689 tokens/s, exact" "at-bound" "not-identified" \
    "interpolated" "extrapolated-x2" "extrapolated-x4" "extrapolated->x4" \
    "1024 devices: no point forecast: more than 4 times the largest N that was measured" \
    "1 point of one node in another regime" "exact single values"
check "nothing on stderr" diff /dev/null "$scratch/stderr"
check "no line is wider than 140" test -z "$(grep -E '^.{141}' "$scratch/stdout")"
check "again the same text" diff <("$report" fit strong.csv) <("$report" fit strong.csv)
run "$report" fit two.csv
expect_exit 0
expect_stdout "two points determine two parameters" "as-many-as-points"
run "$report" fit inside.csv --predict 4,8
expect_exit 0
expect_stdout "inside a node" "not said: 8 devices: more than a node has"
run "$report" fit strong.csv --unit nodes --law usl,amdahl --residuals absolute
expect_exit 0
expect_stdout "2 to 16 nodes" "absolute residuals" "not-identified"
check "other laws are not printed" test -z "$(grep '^ *power  ' "$scratch/stdout")"

# Forms for machines say the same.
run "$report" fit strong.csv --csv
expect_exit 0
expect_stdout "series,mode,regime,kind,law,name,n,counts,value" "forecast,amdahl*log2,rate,256,devices"
check "every line has 17 fields" test "$(awk -F, '{ print NF }' "$scratch/stdout" | sort -u)" = 17
run "$report" fit strong.csv inside.csv one.csv --json
expect_exit 0
expect_stdout '"program": "scalereport fit"' '"regime": "across nodes"' '"label": "extrapolated x4"' \
    '"at_bound": true'

# A study and its launches; a table of collectives.
check "a study is written" "$bin/unit_report_laws" write study.h5 0
check "and a launch of it" "$bin/unit_report_laws" write again.h5 1
run "$report" fit study.h5 again.h5
expect_exit 0
expect_stdout "across nodes, 5 points, 2 to 32 devices" "2 launches" "size with a time" \
    "# - unsettled at 1 of 5 points: their intervals are wider than the study asked for"
run "$report" study.h5
expect_stdout "# laws    curve set 0, 1 a node: strong scaling, across nodes, 5 points"
cat >nccl.txt <<'END'
# nccl-tests version 2.19.6 nccl-headers=22803 nccl-library=22803
# Collective test starting: all_reduce_perf
# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824 step: 4(factor) warmup iters: 5 iters: 20 agg iters: 1 validation: 1 graph: 0 unalign: 0
#
# Using devices
#  Rank  0 Group  0 Pid   1388 on       hosta device  0 [0000:00:06] NVIDIA H200
#  Rank  1 Group  0 Pid   1389 on       hostb device  0 [0000:00:06] NVIDIA H200
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw  #wrong     time   algbw   busbw  #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)             (us)  (GB/s)  (GB/s)
        2048           512     float     sum      -1    10.70    0.19    0.19       0    10.55    0.19    0.19       0
     2097152        524288     float     sum      -1    29.95   70.03   70.03       0    29.55   70.97   70.97       0
    33554432       8388608     float     sum      -1   138.25  242.71  242.71       0   137.03  244.87  244.87       0
   536870912     134217728     float     sum      -1  1692.09  317.28  317.28       0  1696.10  316.53  316.53       0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 81.718
END
run "$report" fit nccl.txt
expect_exit 0
expect_stdout "# collective all_reduce float, 2 ranks on 2 nodes: 4 sizes" "no model comes within 15 %" \
    "per interface, flat ring: 317.3 GB/s" "per interface, hierarchical: 317.3 GB/s" \
    "no algorithm was recorded: both readings are printed and neither is a gate"
run "$report" fit nccl.txt --algorithm ring
expect_stdout "per interface, flat ring"
check "one reading" test -z "$(grep hierarchical "$scratch/stdout")"
run "$report" fit nccl.txt --csv
expect_exit 0
expect_stdout "source,operation,ranks,bytes,time_us" ",point"
check "no point and axis of a study" grep -q ',"",$' "$scratch/stdout"

# All-reduce busbw on 8 x B200, one node and four (stas00/ml-engineering): the network over what a node takes.
cat >b200.csv <<'END'
operation,gpus,nodes,bytes,busbw_GBps
all_reduce,8,1,1048576,36.06
all_reduce,8,1,67108864,400.60
all_reduce,8,1,1073741824,723.34
all_reduce,8,1,4294967296,740.64
all_reduce,32,4,1048576,5.37
all_reduce,32,4,67108864,156.74
all_reduce,32,4,1073741824,361.99
all_reduce,32,4,4294967296,377.34
END
run "$report" fit b200.csv
expect_exit 0
expect_stdout "per interface, flat ring: 47.17 GB/s" "per interface, hierarchical: 36.52 GB/s" \
    "# hierarchy 32 ranks on 4 nodes over the measured time of one node, 4 sizes in both tables" \
    "phases fully overlapped: latency" "  22053  "
run "$report" fit b200.csv --json
expect_stdout '"one_after_another"' '"nic_ring_GBps"'

# What a table contradicts itself in is said in every form.
sed '1s/$/,tokens_per_s/; 2,$s/$/,200000/' strong.csv >wrong.csv
run "$report" fit wrong.csv
expect_exit 0
expect_stdout "# - wrong.csv:3: tokens/s is not batch x sequence / step time" "amdahl: X = gamma u / (1 + alpha (u - 1))"
run "$report" fit wrong.csv --json
expect_exit 0
expect_stdout '"notes": [' '"line": 3'
run "$report" fit wrong.csv --csv
expect_exit 0
expect_stderr "scalereport: wrong.csv:3: tokens/s is not batch x sequence / step time"

# Logs of two sizes that do not say them: options are those of import.
for n in 8 16; do grep -v "world size" "$tests/golden/logs/megatron_$n.log" >"unsized$n.log"; done
run "$report" fit unsized8.log unsized16.log --devices 8,16
expect_exit 0
expect_stdout "strong scaling" "2 points, 8 to 16 devices"
refuses 6 "nothing says how many devices" "$report" fit unsized8.log unsized16.log
refuses 6 "3 numbers for 2 files" "$report" fit unsized8.log unsized16.log --devices 8,16,32
cut -d, -f1,2,5 strong.csv >bare.csv
refuses 6 "neither a global batch nor a column mode" "$report" fit bare.csv
run "$report" fit bare.csv --scaling strong
expect_exit 0

# Refusals: one line, on stderr, nothing on stdout.
refuses 6 "one point is no curve" "$report" fit one.csv
refuses 6 "law usl has 3 parameters and the curve 2 points" "$report" fit two.csv --law usl
refuses 6 '"gustafson" is no law: one or more of linear, amdahl' "$report" fit two.csv --law gustafson
refuses 6 '--predict: "x" is no size' "$report" fit two.csv --predict 8,x
refuses 6 '--predict: "-4" is no size' "$report" fit two.csv --predict=-4
refuses 6 "one form at a time" "$report" fit two.csv --csv --json
refuses 6 "no file was named" "$report" fit
refuses 8 "could not be opened" "$report" fit missing.csv
cut -d, -f1,3- strong.csv >plain.csv
refuses 6 "does not say how many nodes" "$report" fit plain.csv --unit nodes
cat >grows.csv <<'END'
gpus,nodes,parameters,layers,global_batch,sequence,step_s
16,2,1e9,24,512,2048,3.5
32,4,2e9,30,512,2048,3.7
64,8,4e9,36,512,2048,3.7
128,16,8e9,40,512,2048,3.9
END
refuses 6 "the model grows with N" "$report" fit grows.csv
cat >layout.csv <<'END'
gpus,nodes,tp,pp,global_batch,sequence,step_s
16,2,1,1,512,2048,3.5
32,4,2,1,512,2048,1.7
64,8,4,1,512,2048,0.9
128,16,8,1,512,2048,0.5
END
refuses 6 "a best-layout curve" "$report" fit layout.csv
sed 's/2.74/nan/' strong.csv >nan.csv
run "$report" fit nan.csv
check "NaN is refused" test "$status" != 0
finish
