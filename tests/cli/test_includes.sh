#!/usr/bin/env bash
# Includes point one way, and headers of other libraries stay in the .c files that speak to them.
. "$(dirname "$0")/lib.sh"

# Who may include whom: base <- topologies <- collectives <- workloads <- driver, base <- analysis
# <- driver; scalereport.c and its command_*.c alone join analysis with arithmetic of the left branch. The C standard
# library and POSIX are no libraries of others. MPI is spoken in three places.
wrong_includes() { # FOLDER: one line per include that should not be there
    (cd "$1" && find base topologies collectives workloads analysis driver -name '*.[ch]' \
        -exec grep -HoE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"][^>"]+' {} +) |
        sed -E 's/#[[:space:]]*include[[:space:]]*//; s/:[[:space:]]*([<"])/ \1 /' | awk '
    BEGIN {
        may["base"] = " base "
        may["topologies"] = " base topologies "
        may["collectives"] = " base topologies collectives "
        may["workloads"] = " base topologies collectives workloads "
        may["analysis"] = " base analysis "
        may["driver"] = " base topologies collectives workloads analysis driver "
        joins = " topologies/topology.h topologies/layout.h collectives/coll.h workloads/plan.h" \
                " workloads/model.h workloads/cost.h workloads/simulate.h workloads/plan_check.h" \
                " workloads/policy_options.h workloads/memory_fit.h "
        plain = " assert ctype errno fcntl float getopt inttypes limits math pthread signal stdarg" \
                " stdatomic stdbool stddef stdint stdio stdlib string sys/types time unistd "
    }
    {
        file = $1; where = file; sub("/.*", "", where)
        if ($2 == "\"") {
            of = $3
            if (!sub("/.*", "", of)) { print file ": name " $3 " from the top of the tree"; next }
            if (index(may[where], " " of " ")) next
            if (file ~ /^analysis\/(scalereport|command_[a-z_]+)\.c$/ && index(joins, " " $3 " ")) next
            print file ": " where " may not include " $3
        } else {
            name = $3; sub("[.]h$", "", name)
            if (file ~ /[.]h$/ && !index(plain, " " name " ")) print file ": <" $3 "> in a header"
            if (name == "mpi" && file !~ /^(driver|collectives)\// && file != "topologies/discover.c")
                print file ": MPI is not spoken here"
        }
    }'
}

root=$tests/..
wrong_includes "$root" >found
check "all includes of the tree are allowed" diff /dev/null found
check "quantiles that GSL's search misses come from analysis/quantile" \
    bash -c "! grep -lE 'gsl_cdf_(chisq|fdist)_[PQ]inv' '$root'/*/*.c | grep -v analysis/quantile.c"

# The check itself: one planted line of each kind is found, and nothing else.
mkdir base topologies collectives workloads workloads/kernels analysis driver
plant() { # FILE LINE MESSAGE
    rm -f -- */*.[ch] */*/*.[ch]
    printf '#include <stdio.h>\n  # include %s\n' "$2" >"$1"
    wrong_includes . >found
    check "$2 in $1 is refused" grep -qF -- "$3" found
    check "$2 in $1 is one line" test "$(wc -l <found)" = 1
}
plant base/a.c '"topologies/layout.h"' "base may not include topologies/layout.h"
plant topologies/a.c '"collectives/coll.h"' "topologies may not include collectives/coll.h"
plant collectives/a.h '"workloads/plan.h"' "collectives may not include workloads/plan.h"
plant workloads/kernels/cpu_a.c '"driver/execute.h"' "workloads may not include driver/execute.h"
plant workloads/a.c '"analysis/record.h"' "workloads may not include analysis/record.h"
plant analysis/a.c '"topologies/layout.h"' "analysis may not include topologies/layout.h"
plant analysis/a.c '"driver/study.h"' "analysis may not include driver/study.h"
plant analysis/scalereport.c '"collectives/comm.h"' "analysis may not include collectives/comm.h"
plant driver/a.c '"study.h"' "name study.h from the top of the tree"
plant driver/a.h '<mpi.h>' "<mpi.h> in a header"
plant workloads/kernels/a.h '<cblas.h>' "<cblas.h> in a header"
plant analysis/a.c '<mpi.h>' "MPI is not spoken here"

# And what is allowed stays quiet.
rm -f -- */*.[ch] */*/*.[ch]
echo '#include "workloads/simulate.h"' >analysis/scalereport.c
echo '#include "analysis/record.h"' >driver/a.c
printf '#include <mpi.h>\n#include <hwloc.h>\n#include "base/err.h"\n' >topologies/discover.c
printf '#include <stdint.h>\n#include "collectives/coll.h"\n' >workloads/a.h
wrong_includes . >found
check "allowed includes are quiet" diff /dev/null found
finish
