#!/usr/bin/env bash
# Tests the Slurm scripts against a real Slurm of one node: munged, slurmctld and slurmd on loopback, in a temporary folder, ended
# with the test. Shows that
#   - a job stopped twice by its time limit, and one told to stop by a signal, are requeued and end with the same /trace, bit for
#     bit, as a job that was never stopped (srun and mpirun);
#   - Slurm's own warning before the wall time ends leads to a checkpoint and a requeue, and a cancelled job stays cancelled;
#   - srun starts the ranks of one run, or says that MPI does not see them;
#   - a sweep as an array fills its table, and a failing case is reported as failed and leaves the others alone;
#   - the log has environment, modules, version and each rank's cores; wrong settings are named with the remedy.
#   jobs/test-slurm.sh        (two to four minutes; exit status 77: skipped, with the reason)
# Environment: MINIPIPE (the program).
set -uo pipefail
. "$(dirname "$0")/lib/common.sh"
. "$root/jobs/lib/slurm.sh"

case ${1:-} in
  "") ;;
  -h | --help) usage ;;
  *) die "unknown argument '$1'; see --help" ;;
esac
skip() { printf 'skipped: %s\n' "$*"; exit 77; }

[ "$(id -u)" = 0 ] || skip "the daemons are started as root; run the test in a container"
for program in slurmctld slurmd munged sbatch; do
  command -v $program > /dev/null || skip "no $program: Slurm is not installed (jobs/setup.sh --slurm, where Debian's packages can be had)"
done
need_program > /dev/null || die "no program"

work=$(mktemp -d /tmp/minipipe-slurm-XXXXXX)
failed=0
# shellcheck disable=SC2317
cleanup() {
  trap '' INT TERM # a second signal must not leave daemons behind
  stop_slurm
  cd /
  if [ $failed = 0 ]; then rm -rf "$work"; else printf 'logs are in %s\n' "$work"; fi
}
trap cleanup EXIT
trap 'failed=1; exit 130' INT TERM

start_slurm "$work/slurm" || { tail -n 5 "$work"/slurm/*.log "$work"/slurm/*.out; skip "the daemons did not start within 60 s (see above)"; }
say "Slurm $(slurmd -V | cut -d ' ' -f 2) runs in $work"

ok() { printf 'ok      %s\n' "$*"; }
fail() {
  failed=1
  printf 'FAILED  %s\n' "$1"
  [ -z "${2:-}" ] || tail -n 40 "$2"
}
check() { # TEXT COMMAND... ; on failure shows $log
  local text=$1
  shift
  if "$@"; then ok "$text"; else fail "$text" "${log:-}"; fi
}

export MINIPIPE=$minipipe MINIPIPE_ROOT=$root OMP_NUM_THREADS=1 OMP_PROC_BIND=false
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
mkdir "$work/jobs" && cd "$work/jobs" || exit 1
"$minipipe" prepare --synthetic --tokens 400000 --vocab 64 --out data/sample > /dev/null || die "prepare failed"
cat > deck.toml << 'DECK'
[run]
steps = 640
grace = 60.0
[model]
layers = 4
width = 96
heads = 4
vocab = 64
context = 64
[train]
sequence = 64
microbatch_size = 4
microbatches = 4
[schedule]
name = "paci"
order = "fixed"
[checkpoint]
interval = 8
[output]
evaluation_interval = 16
evaluation_batches = 2
log_interval = 8
DECK
sed -e 's/^steps = .*/steps = 12/' deck.toml > sweep.toml
cat >> sweep.toml << 'DECK'
[sweep]
"parallel.stages" = [1, 9, 2]       # nine stages of four layers: this case fails
"train.microbatches" = [2, 4]
DECK

submit() { sbatch --parsable --output="$1.log" "${@:2}"; } # NAME SBATCH-ARGUMENT...

wait_for() { # JOB SECONDS
  local until=$(($(date +%s) + $2))
  while [ -n "$(squeue -h -j "$1" 2> /dev/null)" ]; do
    if [ "$(date +%s)" -ge "$until" ]; then
      squeue
      return 1
    fi
    sleep 0.5
  done
}

state() { scontrol show job "$1" | sed -n 's/.*JobState=\([A-Z_]*\).*/\1/p' | sort | uniq -c | xargs; }
restarts() { scontrol show job "$1" | sed -n 's/.*Restarts=\([0-9]*\).*/\1/p'; }
done_in() { grep -q '"done":true' "$1/summary.json"; }

same_trace() { # FOLDER FOLDER
  /usr/bin/python3 - "$1" "$2" << 'PYTHON'
import sys
import h5py
names = ("step", "tokens", "loss", "lr", "grad_norm", "val/step", "val/loss")
first, second = (h5py.File(folder + "/trace.h5") for folder in sys.argv[1:])
differ = [n for n in names if first["trace/" + n][...].tobytes() != second["trace/" + n][...].tobytes() or not first["trace/" + n].size]
print("/trace:", ", ".join(f"{n} {first['trace/' + n].size} values" for n in names) if not differ else f"differs: {differ}")
sys.exit(bool(differ))
PYTHON
}

# --- one job, never stopped
log=whole.log
job=$(submit whole --time=10 "$root/jobs/slurm/train.sbatch" deck.toml output.directory=whole)
wait_for "$job" 300
check "a job runs to its end: $(state "$job")" done_in whole
check "the log names each rank's cores" grep -q "rank 1 on $(hostname), cores" whole.log
check "the log names the program's version" grep -q -- "-- $("$minipipe" --version 2> /dev/null)" whole.log
check "the log names the environment" grep -q -- "--   SLURM_JOB_ID=$job" whole.log
check "the log names the modules" grep -q -- '-- modules: ' whole.log
check "the log names launcher and ranks" grep -Eq -- '-- launcher srun --mpi=pm(ix|i2), 2 ranks' whole.log
check "both ranks are of one run" /usr/bin/python3 -c 'import json; assert json.load(open("whole/summary.json"))["ranks"] == 2'
check "the wall time is handed to the program" /usr/bin/python3 -c 'import re, h5py; assert 300 < float(re.search("time_limit = ([0-9.]+)", str(h5py.File("whole/trace.h5").attrs["deck"])).group(1)) <= 480'
[ $failed = 0 ] || exit 1

# --- stopped by its time limit alone (CONT does nothing). The machine may be faster now than before: then with less time.
whole=$(/usr/bin/python3 -c 'import json; print(max(json.load(open("whole/summary.json"))["seconds"]["wall"]))')
for share in 0.3 0.15 0.08; do
  seconds=$(/usr/bin/python3 -c "print(max(2, round($share * $whole)))")
  say "the whole run took $whole s; now $seconds s for each start"
  log=limit.log
  rm -rf limit limit.log
  job=$(MINIPIPE_MARGIN=$((60 - seconds)) submit limit --time=1 --signal=B:CONT@1 "$root/jobs/slurm/train.sbatch" deck.toml output.directory=limit)
  wait_for "$job" 400
  [ "$(restarts "$job")" -lt 2 ] || break
done
check "a job stopped by its time limit: $(state "$job") after $(restarts "$job") requeues" test "$(restarts "$job")" -ge 2
check "it is done" done_in limit
check "its trace is that of the job never stopped" same_trace whole limit

# --- stopped by a signal, under mpirun
log=signal.log
job=$(MINIPIPE_LAUNCHER=mpirun submit signal --time=10 "$root/jobs/slurm/train.sbatch" deck.toml output.directory=signal)
for _ in $(seq 200); do
  [ -n "$(ls signal/checkpoints 2> /dev/null)" ] && break
  sleep 0.2
done
scancel --batch --signal=USR1 "$job"
wait_for "$job" 300
check "mpirun has started it" grep -q -- '-- launcher mpirun, 2 ranks' signal.log
check "a job stopped by a signal: $(state "$job") after $(restarts "$job") requeues" test "$(restarts "$job")" -ge 1
check "it is done" done_in signal
check "its trace is that of the job never stopped" same_trace whole signal

# --- Slurm's own warning. It comes up to a minute early, so that a job of one minute may get it at once; this one never ends by
# itself in that time. Then it is cancelled, which is no reason to go on.
log=warned.log
job=$(MINIPIPE_TIME=600 submit warned --time=1 --signal=B:USR1@45 "$root/jobs/slurm/train.sbatch" deck.toml run.steps=100000 checkpoint.interval=0 output.evaluation_interval=0 schedule.name=1f1b output.directory=warned)
for _ in $(seq 150); do
  grep -q 'stopped early with a checkpoint: job .* goes back into the queue' warned.log 2> /dev/null && break
  sleep 0.5
done
check "Slurm's warning reaches the program" grep -q 'signal USR1: asking the program for a checkpoint' warned.log
check "the job goes back into the queue" grep -q "stopped early with a checkpoint: job $job goes back into the queue" warned.log
check "with a checkpoint" test -n "$(ls warned/checkpoints 2> /dev/null)"
for _ in $(seq 60); do
  [ "$(squeue -h -j "$job" -o '%T %r')" = "RUNNING None" ] && [ "$(restarts "$job")" -ge 1 ] && [ "$(grep -c -- '-- launcher' warned.log)" -ge 2 ] && break
  sleep 0.5
done
check "it runs again" test "$(restarts "$job")" -ge 1
scancel "$job"
wait_for "$job" 60
sleep 3
check "a cancelled job stays cancelled: $(state "$job")" test "$(state "$job")" = "1 CANCELLED"

# --- PMI2: two ranks of one run where the MPI library speaks it, else refused
log=pmi2.log
if srun --mpi=list 2>&1 | grep -q pmi2; then
  job=$(MINIPIPE_MPI=pmi2 submit pmi2 --time=10 "$root/jobs/slurm/train.sbatch" deck.toml run.steps=4 output.evaluation_interval=0 output.directory=pmi2)
  wait_for "$job" 60
  if [ -f pmi2/summary.json ]; then
    check "PMI2: both ranks are of one run" /usr/bin/python3 -c 'import json; assert json.load(open("pmi2/summary.json"))["ranks"] == 2'
  else
    # By the program, or by an MPI library that does not start at all.
    check "PMI2 is refused with the remedy, since this MPI library does not speak it" grep -Eq 'but MPI sees each of them alone; start them with|if MPI could not start under srun --mpi=pmi2, choose with MINIPIPE_MPI' pmi2.log
    check "the job has failed" test "$(state "$job")" = "1 FAILED"
  fi
fi

# --- a job that is done is left alone
log=again.log
job=$(submit again --time=10 "$root/jobs/slurm/train.sbatch" deck.toml output.directory=limit)
wait_for "$job" 60
check "a finished run is not run again" grep -q 'limit: done already' again.log

# --- a sweep
log=sweep_0.log
last=$(($("$minipipe" train sweep.toml --cases) - 1))
# One process for all stages, so that the failing case fails in the program.
job=$(MINIPIPE_RANKS=1 sbatch --parsable --output=sweep_%a.log --array=0-$last --time=10 --ntasks=2 "$root/jobs/slurm/sweep.sbatch" sweep.toml output.directory=sweep)
wait_for "$job" 300
"$root/jobs/sweep.sh" sweep.toml sweep --report > table.log 2>&1
status=$?
log=table.log
cat table.log
check "two cases of the array have failed, the others are done: $(state "$job")" test "$(state "$job")" = "4 COMPLETED 2 FAILED"
check "the table's program says that cases are missing" test $status = 1
check "cases 2 and 3 are named as failed" bash -c 'grep -c "not finished: case [23] .*failed, status" table.log | grep -qx 2'
check "the table is full" /usr/bin/python3 -c '
import json
pivots = json.load(open("sweep/table.json"))["pivots"]
loss = next(p for p in pivots if p["metric"] == "validation_loss")
assert loss["row_values"] == [1, 2] and loss["column_values"] == [2, 4], loss
assert all(cell for line in loss["cells"] for cell in line), loss'

# --- wrong settings
log=wrong.log
job=$(MINIPIPE_MODULES=nosuchmodule/1.0 submit wrong --time=1 "$root/jobs/slurm/train.sbatch" deck.toml output.directory=wrong)
wait_for "$job" 60
check "a missing module is named" grep -q 'MINIPIPE_MODULES' wrong.log
log=wrong2.log
job=$(MINIPIPE_MACHINE=nosuchfile submit wrong2 --time=1 "$root/jobs/slurm/train.sbatch" deck.toml output.directory=wrong)
wait_for "$job" 60
check "a missing machine file is named" grep -q 'MINIPIPE_MACHINE=nosuchfile cannot be read' wrong2.log

[ $failed = 0 ] && say "all as it should be"
exit $failed
