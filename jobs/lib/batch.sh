# shellcheck shell=bash
# Shared by the batch scripts (Slurm, Flux, PBS): environment, launch, pre-emption. Sourced, not run; needs common.sh.
#
# Set from outside, all optional:
#   MINIPIPE           the program                                    (build/release/minipipe)
#   MINIPIPE_ARGUMENTS block.key=value ..., before those of the command line (none)
#   MINIPIPE_MACHINE   a file to source first, see jobs/machines/     (none)
#   MINIPIPE_MODULES   modules to load, separated by spaces           (none)
#   MINIPIPE_LAUNCHER  srun | mpirun | flux                           (what the batch system has)
#   MINIPIPE_MPI       srun: pmix | pmi2                              (pmix if srun has it, else pmi2)
#   MINIPIPE_MARGIN    seconds kept for the last checkpoint           (120)
#   MINIPIPE_TIME      seconds for the program                        (what is left of the job, less the margin)

# On SIGTERM Open MPI's mpirun waits so many seconds, sends the ranks SIGTERM, waits as long again and kills them. Its default of
# 1 s is too short for a checkpoint. It waits so after any status but 0, too, which is why scripts at a terminal leave it alone.
export OMPI_MCA_odls_base_sigkill_timeout=${OMPI_MCA_odls_base_sigkill_timeout:-15}

batch_prepare() {
  # Set-up files and module commands of sites use variables that may not be set.
  set +u
  if [ -n "${MINIPIPE_MACHINE:-}" ]; then
    [ -r "$MINIPIPE_MACHINE" ] || die "MINIPIPE_MACHINE=$MINIPIPE_MACHINE cannot be read; name a file such as jobs/machines/cpu-cluster.sh"
    # shellcheck disable=SC1090
    . "$MINIPIPE_MACHINE"
  fi
  local module
  for module in ${MINIPIPE_MODULES:-}; do
    type module > /dev/null 2>&1 ||
      die "MINIPIPE_MODULES names $module, but there is no module command here; source the site's module set-up in MINIPIPE_MACHINE, or leave MINIPIPE_MODULES empty"
    # Some versions of module load return 0 when they fail.
    if ! module load "$module" || ! module list 2>&1 | grep -qF "${module%%/*}"; then
      die "module $module cannot be loaded; 'module avail ${module%%/*}' shows what there is; set MINIPIPE_MODULES"
    fi
  done
  set -u
  minipipe=${MINIPIPE:-$minipipe}
  [ -x "$minipipe" ] || die "no program at $minipipe; build it (jobs/setup.sh, then cmake --preset release && cmake --build --preset release), or set MINIPIPE"
  launcher=${MINIPIPE_LAUNCHER:-$1}
  command -v "$launcher" > /dev/null || die "MINIPIPE_LAUNCHER=$launcher is not on PATH; load the module that has it, or choose srun, mpirun or flux"
  if [ "$launcher" = srun ]; then
    mpi=${MINIPIPE_MPI:-$(srun --mpi=list 2>&1 | grep -q pmix && echo pmix || echo pmi2)}
  fi
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-${SLURM_CPUS_PER_TASK:-1}} OMP_PROC_BIND=${OMP_PROC_BIND:-false}
}

# Where, with what: for the log.
batch_log() { # RANKS
  say "$(date -Is) on $(hostname), job ${SLURM_JOB_ID:-${FLUX_JOB_ID:-${PBS_JOBID:-none}}}, start ${SLURM_RESTART_COUNT:-0}"
  say "launcher $launcher${mpi:+ --mpi=$mpi}, $1 ranks, OMP_NUM_THREADS=$OMP_NUM_THREADS"
  say "modules: $(set +u; type module > /dev/null 2>&1 && module -t list 2>&1 | tr '\n' ' ' || echo 'no module command')"
  alone "$minipipe" --version | sed 's/^/-- /'
  env | grep -E '^(SLURM|FLUX|PBS|OMP|OMPI|PMIX|KOKKOS|MINIPIPE|CUDA)' | sort | sed 's/^/--   /'
  # shellcheck disable=SC2016
  launch "$1" bash -c 'echo "-- rank ${PMIX_RANK:-${OMPI_COMM_WORLD_RANK:-${PMI_RANK:-${SLURM_PROCID:-?}}}} on $(hostname), cores $(taskset -cp $$ | sed "s/.*: //")"' || true
}

# One process that is no part of a parallel start: what the batch system says about ranks would mislead MPI.
alone() { # COMMAND...
  (for name in $(compgen -e | grep -E '^(SLURM_|PMI|FLUX_|PBS_)'); do unset "$name"; done; "$@") < /dev/null
}

launch() { # RANKS COMMAND...
  local ranks=$1
  shift
  case $launcher in
    srun) srun --mpi="$mpi" --ntasks="$ranks" --overcommit "$@" ;;
    flux) flux run -n "$ranks" "$@" ;;
    *) if [ "$ranks" -le "$(nproc)" ]; then mpirun -n "$ranks" "$@"; else mpirun --oversubscribe --bind-to none -n "$ranks" "$@"; fi ;;
  esac < /dev/null
}

# The ranks see USR1 through the launcher; the script waits on. Returns the program's status.
launch_until_done() { # RANKS COMMAND...
  local status ranks=$1
  shift
  # shellcheck disable=SC2034
  asked=0 # by the trap below
  # USR1 is ignored until the program listens and after it has ended its work: it must not kill what is nearly done.
  # shellcheck disable=SC2016
  launch "$ranks" bash -c 'trap "" USR1; exec "$@"' rank "$@" &
  local child=$!
  # The launcher is a child of the subshell that `launch &` made.
  trap 'asked=$((asked + 1)); say "signal USR1: asking the program for a checkpoint"; pkill -USR1 -P "$child" || kill -USR1 "$child"' USR1
  status=0
  wait_through "$child" asked || status=$?
  trap '' USR1
  return $status
}

# [days-][hours:]minutes:seconds -> seconds; nothing for what is no time (UNLIMITED).
to_seconds() {
  /usr/bin/env awk -v text="$1" 'BEGIN {
    if (text !~ /^([0-9]+-)?[0-9:]+$/) exit
    days = 0; if (split(text, d, "-") == 2) { days = d[1]; text = d[2] }
    n = split(text, t, ":"); s = 0; for (i = 1; i <= n; i++) s = s * 60 + t[i]
    print days * 86400 + s }'
}

time_limit() { # LEFT: seconds left of the job, may be empty; prints the override
  local left=${1:-}
  local seconds=${MINIPIPE_TIME:-}
  if [ -z "$seconds" ] && [ -n "$left" ]; then
    seconds=$((left - ${MINIPIPE_MARGIN:-120}))
    [ "$seconds" -gt 0 ] || die "$left s of wall time are left, not more than MINIPIPE_MARGIN=${MINIPIPE_MARGIN:-120} s; ask for more time or lower MINIPIPE_MARGIN"
  fi
  [ -z "$seconds" ] || echo "run.time_limit=$seconds"
}

newest_checkpoint() { find "$1/checkpoints" -name 'step_*.h5' 2> /dev/null | sort | tail -1; } # FOLDER

# Runs the program once, from the newest checkpoint if there is one. Status: 0 done, 75 to be started again, else failed.
train_once() { # LEFT RANKS DECK ARGUMENT...
  local left=$1 ranks=$2
  shift 2
  local settings folder steps before limit progress status
  settings=$(alone "$minipipe" train "$@" --print-deck) || return 2 # the program has said why
  folder=$(sed -n 's/^directory = "\(.*\)".*/\1/p' <<< "$settings")
  case $folder in
    *\\*) die "output.directory = \"$folder\": the batch scripts take no folder with quotes, backslashes or control characters; name another" ;;
  esac
  steps=$(sed -n 's/^steps = \([0-9]*\).*/\1/p' <<< "$settings")
  if is_done "$folder" "$steps"; then
    say "$folder: done already"
    return 0
  fi
  # A key may be given once: what the user says holds, but for what the script has to say itself.
  progress=output.progress=lines limit=
  case " $* " in *" output.progress="*) progress= ;; esac
  case " $* " in *" run.time_limit="*) ;; *) limit=$(time_limit "$left") || return 1 ;; esac
  case " $* " in *" run.resume="*) die "run.resume: batch jobs go on from the newest checkpoint of their output.directory by themselves; leave it out" ;; esac
  before=$(newest_checkpoint "$folder")
  batch_log "$ranks"
  # shellcheck disable=SC2086
  launch_until_done "$ranks" "$minipipe" train "$@" run.resume=latest $progress $limit
  status=$?
  if [ $status = 75 ] && is_done "$folder" "$steps"; then status=0; fi
  case $status in
    0 | 2 | 3 | 75) ;;
    *) say "status $status is not the program's: if MPI could not start under $launcher${mpi:+ --mpi=$mpi}, choose with MINIPIPE_MPI (srun --mpi=list names what there is) or MINIPIPE_LAUNCHER" ;;
  esac
  if [ $status = 75 ] && [ "$before" = "$(newest_checkpoint "$folder")" ]; then
    die "$folder: stopped without a new checkpoint; nothing would be gained by starting again. Ask for more time, or lower checkpoint.interval or MINIPIPE_MARGIN"
  fi
  mkdir -p "$folder" && case $status in
    0) echo "done" ;;
    75) echo "stopped, to be started again" ;;
    *) echo "failed, status $status" ;;
  esac > "$folder/status.txt"
  return $status
}

slurm_seconds_left() { to_seconds "$(squeue -h -j "$SLURM_JOB_ID" -o %L)"; }

# Slurm: runs, and puts the job back into the queue where it was stopped early. Ends the script.
slurm_train() { # RANKS DECK ARGUMENT...
  local status=0
  train_once "$(slurm_seconds_left)" "$@" || status=$?
  if [ $status = 75 ]; then
    say "stopped early with a checkpoint: job $SLURM_JOB_ID goes back into the queue"
    scontrol requeue "$SLURM_JOB_ID" || die "job $SLURM_JOB_ID cannot be requeued (submitted with --no-requeue?); submit it again to go on"
    # Slurm ends this script; until then the job must not count as finished.
    sleep 60
  fi
  exit $status
}
