#!/usr/bin/env bash
#flux: --job-name=minipipe
#flux: --nslots=2
#flux: --time-limit=60m
#flux: --signal=SIGUSR1@180s
#flux: --output=minipipe-{{id}}.log
# Trains one deck; a job that is stopped early submits itself again, until summary.json says done.
#   flux batch jobs/flux/train.sh DECK [block.key=value ...]         (from the checkout)
# Environment: MINIPIPE_ROOT, MINIPIPE_RANKS (default 2), MINIPIPE_DECK, MINIPIPE_BATCH_OPTIONS (the options of flux batch, such as
# "--nslots=8 --time-limit=2h", for when the job submits itself again), and what jobs/lib/batch.sh lists.
set -u
root=${MINIPIPE_ROOT:-$PWD}
[ -f "$root/jobs/lib/batch.sh" ] || { echo "error: $root is not a checkout of minipipe; submit from one, or set MINIPIPE_ROOT" >&2; exit 2; }
. "$root/jobs/lib/common.sh"
. "$root/jobs/lib/batch.sh"

deck=${1:-${MINIPIPE_DECK:-}}
[ -n "$deck" ] || die "no deck: flux batch jobs/flux/train.sh DECK, or set MINIPIPE_DECK"
shift $(($# > 0 ? 1 : 0))
# shellcheck disable=SC2086
set -- ${MINIPIPE_ARGUMENTS:-} "$@"
batch_prepare flux
left=$(flux job timeleft 2> /dev/null || true)
left=${left%%.*}
case $left in *[!0-9]*) left= ;; esac # "infinity"
status=0
train_once "$left" "${MINIPIPE_RANKS:-2}" "$deck" "$@" || status=$?
if [ $status = 75 ]; then
  say "stopped early with a checkpoint: submitted again"
  # The parent instance has the queue; this job is an instance of its own. MINIPIPE_ARGUMENTS are among the arguments by now.
  # shellcheck disable=SC2086
  MINIPIPE_ROOT=$root MINIPIPE_ARGUMENTS='' flux --parent batch ${MINIPIPE_BATCH_OPTIONS:-} "$root/jobs/flux/train.sh" "$deck" "$@" ||
    die "cannot be submitted again; run flux batch jobs/flux/train.sh $deck to go on"
fi
exit $status
