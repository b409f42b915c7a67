#!/usr/bin/env bash
# mpirun.sh NODES PER_NODE PROGRAM ARGUMENTS...: Open MPI over the hosts of net_up.sh, started on
# ssnode0. Arguments before the program are mpirun's own. Ranks that wait yield their core: hosts do
# not see that they share it. A hanging job is ended after SSNET_TIMEOUT (300) seconds.
set -euo pipefail
nodes=${1:?usage: mpirun.sh NODES PER_NODE PROGRAM...}
per_node=${2:?usage: mpirun.sh NODES PER_NODE PROGRAM...}
shift 2
here=$(cd "$(dirname "$0")" && pwd)
state=${SSNET_DIR:-/run/ssnet}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OPENBLAS_NUM_THREADS=${OPENBLAS_NUM_THREADS:-1}

for ((i = 0; i < nodes; i++)); do
    echo "ssnode$i slots=$per_node"
done >"$state/hostfile"
exec timeout -k 5 "${SSNET_TIMEOUT:-300}" "$here/agent.sh" ssnode0 -- \
    mpirun --hostfile "$state/hostfile" -np $((nodes * per_node)) --bind-to none \
    --mca plm rsh --mca plm_rsh_agent "$here/agent.sh" --mca btl_tcp_if_include eth0 \
    --mca oob_tcp_keepalive_time 3 --mca oob_tcp_keepalive_intvl 1 --mca oob_tcp_keepalive_probes 3 \
    --mca oob_tcp_if_include eth0 --mca mpi_yield_when_idle 1 -x OPENBLAS_NUM_THREADS "$@"
