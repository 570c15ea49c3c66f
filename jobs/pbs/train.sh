#!/usr/bin/env bash
#PBS -N minipipe
#PBS -l select=1:ncpus=2:mpiprocs=2
#PBS -l walltime=01:00:00
#PBS -r y
#PBS -j oe
# Trains one deck; a job that is stopped early submits itself again, until summary.json says done.
#   qsub -v MINIPIPE_DECK=DECK[,MINIPIPE_ARGUMENTS="block.key=value ..."] jobs/pbs/train.sh         (from the checkout)
# Environment: MINIPIPE_ROOT (default: where qsub was called), MINIPIPE_RANKS (default: lines of the node file),
# MINIPIPE_BATCH_OPTIONS (options of qsub for when the job submits itself again; default: what qstat says of this one), and what
# jobs/lib/batch.sh lists. The program gets MINIPIPE_TIME seconds; default: the wall time that qstat reports, less the margin.
set -u
root=${MINIPIPE_ROOT:-${PBS_O_WORKDIR:-$PWD}}
[ -f "$root/jobs/lib/batch.sh" ] || { echo "error: $root is not a checkout of minipipe; submit from one, or set MINIPIPE_ROOT" >&2; exit 2; }
cd "${PBS_O_WORKDIR:-$root}" || exit 2
. "$root/jobs/lib/common.sh"
. "$root/jobs/lib/batch.sh"
[ -n "${PBS_JOBID:-}" ] || die "this is no PBS job: qsub -v MINIPIPE_DECK=DECK jobs/pbs/train.sh; without PBS, mpirun -n N build/release/minipipe train DECK"

deck=${MINIPIPE_DECK:-}
[ -n "$deck" ] || die "no deck: qsub -v MINIPIPE_DECK=DECK jobs/pbs/train.sh"
batch_prepare mpirun
# qstat breaks long lines and indents what follows.
facts=$(qstat -f "$PBS_JOBID" 2> /dev/null | awk '/^\t/ { sub(/^\t/, ""); line = line $0; next } { print line; line = $0 } END { print line }')
fact() { printf '%s\n' "$facts" | sed -n "s/^ *$1 = //p" | head -1; } # NAME
limit=$(fact Resource_List.walltime)
used=$(fact resources_used.walltime)
left=
[ -z "$limit" ] || left=$(($(to_seconds "$limit") - $(to_seconds "${used:-0:0}")))
status=0
# shellcheck disable=SC2086
train_once "$left" "${MINIPIPE_RANKS:-$(wc -l < "$PBS_NODEFILE")}" "$deck" ${MINIPIPE_ARGUMENTS:-} || status=$?
if [ $status = 75 ]; then
  say "stopped early with a checkpoint: submitted again"
  options=()
  for name in select place walltime; do
    value=$(fact "Resource_List.$name")
    [ -z "$value" ] || options+=(-l "$name=$value")
  done
  value=$(fact queue)
  [ -z "$value" ] || options+=(-q "$value")
  # shellcheck disable=SC2206
  [ -z "${MINIPIPE_BATCH_OPTIONS:-}" ] || options=($MINIPIPE_BATCH_OPTIONS)
  # With the whole environment: lists of values may hold commas.
  MINIPIPE_ROOT=$root qsub -V ${options[@]+"${options[@]}"} "$root/jobs/pbs/train.sh" ||
    die "cannot be submitted again; qsub jobs/pbs/train.sh to go on"
fi
exit $status
