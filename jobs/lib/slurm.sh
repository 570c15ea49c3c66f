# shellcheck shell=bash
# A Slurm of one node on loopback, in a private folder: for tests. Sourced, not run; needs common.sh.
# start_slurm FOLDER starts munged, slurmctld and slurmd; stop_slurm ends them. Nothing outside FOLDER is read or written.

slurm_pids=()

free_port() { /usr/bin/python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

slurm_conf() { # FOLDER
  cat << CONF
ClusterName=test
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$(free_port)
SlurmdPort=$(free_port)
SlurmUser=root
SlurmdUser=root
StateSaveLocation=$1/state
SlurmdSpoolDir=$1/spool
SlurmctldPidFile=$1/slurmctld.pid
SlurmdPidFile=$1/slurmd.pid
AuthType=auth/munge
CredType=cred/munge
# A requeued job waits until the credential of its last start has expired.
AuthInfo=socket=$1/munge.socket,cred_expire=5
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
MpiDefault=none
SchedulerParameters=sched_interval=2,bf_interval=2
KillWait=15
ReturnToService=2
# Four slots on whatever cores there are.
SlurmdParameters=config_overrides
JobRequeue=1
NodeName=node NodeHostname=$(hostname) NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=node Default=YES MaxTime=INFINITE State=UP
CONF
}

start_slurm() { # FOLDER
  local folder=$1
  mkdir -p "$folder/state" "$folder/spool" "$folder/munge"
  chmod 0755 "$folder" "$folder/munge"
  slurm_conf "$folder" > "$folder/slurm.conf"
  # No cgroups are used. Since 23.02 they can be switched off; before, version 1 does nothing until it is asked to.
  case $(slurmd -V) in
    *" "2[0-2].*) printf 'CgroupPlugin=cgroup/v1\n' ;;
    *) printf 'CgroupPlugin=disabled\n' ;;
  esac > "$folder/cgroup.conf"
  export SLURM_CONF=$folder/slurm.conf
  dd if=/dev/urandom of="$folder/munge.key" bs=128 count=1 status=none
  chmod 0400 "$folder/munge.key"
  munged --foreground --force --socket="$folder/munge.socket" --key-file="$folder/munge.key" \
    --pid-file="$folder/munge/munged.pid" --log-file="$folder/munged.log" --seed-file="$folder/munge/seed" \
    > "$folder/munged.out" 2>&1 &
  slurm_pids+=($!)
  slurmctld -D -f "$SLURM_CONF" > "$folder/slurmctld.log" 2>&1 &
  slurm_pids+=($!)
  slurmd -D -N node -f "$SLURM_CONF" > "$folder/slurmd.log" 2>&1 &
  slurm_pids+=($!)
  local until=$(($(date +%s) + ${SLURM_START_LIMIT:-60}))
  while :; do
    case $(timeout 5 sinfo -h -o %T 2> /dev/null) in idle | mixed | allocated) return 0 ;; esac
    [ "$(date +%s)" -lt "$until" ] || break
    sleep 1
  done
  return 1
}

# Ends the jobs first: a step that is cut off from its slurmd would live on.
stop_slurm() {
  [ ${#slurm_pids[@]} -gt 0 ] || return 0
  if squeue > /dev/null 2>&1; then
    scancel --user="$(id -un)" > /dev/null 2>&1
    local try
    for try in $(seq 20); do
      [ -n "$(squeue -h 2> /dev/null)" ] || break
      sleep 1
    done
  fi
  local pid
  for ((at = ${#slurm_pids[@]} - 1; at >= 0; --at)); do
    pid=${slurm_pids[at]}
    kill -TERM "$pid" 2> /dev/null
    # shellcheck disable=SC2034
    for try in $(seq 50); do
      kill -0 "$pid" 2> /dev/null || break
      sleep 0.1
    done
    kill -KILL "$pid" 2> /dev/null
    wait "$pid" 2> /dev/null
  done
  slurm_pids=()
}
