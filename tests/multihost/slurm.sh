#!/usr/bin/env bash
# slurm.sh BIN_DIR [NODES=2 [PER_NODE=1 [OPTION...]]]: jobscripts/slurm.sbatch under a real Slurm, whose
# nodes are the hosts of net_up.sh: one slurmctld, a slurmd per host, one munged of its own. Prints
# what the job printed; the exit code is the job's. Answers 77 where Slurm or namespaces are missing.
# Needs the packages slurmctld slurmd slurm-client munge, and root.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
bin=$(cd "${1:?usage: slurm.sh BIN_DIR [NODES [PER_NODE [OPTION...]]]}" && pwd)
nodes=${2:-2} per_node=${3:-1}
shift $(($# < 3 ? $# : 3))
for tool in slurmctld slurmd sbatch munged mungekey; do
    command -v "$tool" >/dev/null || { echo "slurm: needs $tool" >&2; exit 77; }
done
"$here/net_up.sh" "$nodes"
work=$(mktemp -d /tmp/scalestudy-slurm.XXXXXX)
chmod 755 "$work"
# shellcheck disable=SC2317 # called by trap
down() {
    # slurmd and slurmctld live in the hosts that net_down.sh empties
    "$here/net_down.sh"
    [ ! -e "$work/munged.pid" ] || kill "$(cat "$work/munged.pid")"
    rm -rf "$work"
}
trap down EXIT

mkdir "$work/state" "$work/spool" "$work/munge" "$work/here"
chmod 711 "$work/munge"
mungekey --create --keyfile="$work/munge/key"
# as root the daemons want --force; a socket in the file system is seen from every host
munged --force --key-file="$work/munge/key" --socket="$work/munge/socket" \
    --pid-file="$work/munged.pid" --log-file="$work/munged.log" --seed-file="$work/munge/seed" 2>/dev/null

export SLURM_CONF=$work/slurm.conf
cores=$(($(nproc) > per_node ? $(nproc) : per_node))
cat >"$SLURM_CONF" <<END
ClusterName=scalestudy
SlurmctldHost=ssnode0(10.77.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$work/munge/socket
StateSaveLocation=$work/state
SlurmdSpoolDir=$work/spool/%n
TmpFS=$work/tmp/%n
SlurmctldPidFile=$work/slurmctld.pid
SlurmdPidFile=$work/slurmd.%n.pid
SlurmctldLogFile=$work/slurmctld.log
SlurmdLogFile=$work/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=pmix
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
$(for ((i = 0; i < nodes; i++)); do
    echo "NodeName=ssnode$i NodeAddr=10.77.0.$((i + 1)) CPUs=$cores RealMemory=1000"
done)
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
END
echo "CgroupPlugin=cgroup/v1" >"$work/cgroup.conf" # not used, but slurmd wants to know one

for ((i = 0; i < nodes; i++)); do
    mkdir -p "$work/tmp/ssnode$i" "$work/spool/ssnode$i"
    "$here/agent.sh" "ssnode$i" -- slurmd -N "ssnode$i" -D >/dev/null 2>&1 &
done
"$here/agent.sh" ssnode0 -- slurmctld -D >/dev/null 2>&1 &
for ((wait = 0; wait < 300; wait++)); do
    idle=$("$here/agent.sh" ssnode0 -- sinfo -h -t idle -o %D 2>/dev/null || true)
    [ "$idle" != "$nodes" ] || break
    sleep 0.1
done
if [ "$idle" != "$nodes" ]; then
    tail -n 5 "$work"/slurm*.log >&2
    exit 1
fi

export SCALESTUDY_BIN=$bin SCALESTUDY_OUT=$work/here/studies
export OMPI_MCA_btl_tcp_if_include=eth0 OMPI_MCA_mpi_yield_when_idle=1 OPENBLAS_NUM_THREADS=1
status=0
cd "$work/here"
timeout "${SSNET_TIMEOUT:-600}" "$here/agent.sh" ssnode0 -- sbatch --wait --nodes="$nodes" \
    --ntasks-per-node="$per_node" --overcommit "$here/../../jobscripts/slurm.sbatch" "$@" || status=$?
cat "$work"/here/scalestudy-*.txt
exit "$status"
