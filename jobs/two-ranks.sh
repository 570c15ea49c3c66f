#!/usr/bin/env bash
# What two cores give over one: tokens per second of a balanced model on two ranks, under 1f1b and PACI with m = 1, 2, 4, 8
# microbatches per update, against the same model on one rank. By the model of the schedules PACI gives 2, 1f1b 2m / (m + 1).
# Two jobs of one rank each, at the same time on a core each, show what the cores leave of that: they share memory and caches.
# Wants an idle machine. Rounds alternate the runs, so that a slow minute hits all of them; medians are compared.
#   jobs/two-ranks.sh [--rounds N] [--microbatches M] [--out DIR] [block.key=value ...]
#     --rounds N         repetitions (3)
#     --microbatches M   microbatches of each run (288)
#     --out DIR          folder of the runs and of table.json (runs/two-ranks)
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

rounds=3 microbatches=288 out=runs/two-ranks
read_options "rounds microbatches out" "$@"
[ $((microbatches % 8)) = 0 ] && [ "$microbatches" -ge 48 ] || die "--microbatches $microbatches: must be a multiple of 8, 48 or more"
[ "$(nproc --all)" -ge 2 ] || die "this machine has one core; two are compared"

cd "$root"
need_program
[ -f data/sample/train.h5 ] || jobs/prepare-sample.sh
take_folder "$out"
rm -rf "${out:?}"/{one,1f1b,paci}-[0-9]* # the table has all rounds that are there

run() { # NAME SCHEDULE M LAUNCHER...
  local name=$1 schedule=$2 m=$3
  shift 3
  rm -rf "${out:?}/$name"
  "$@" train inputs/studies/two_ranks.toml "schedule.name=$schedule" "train.microbatches=$m" \
    "run.steps=$((microbatches / m))" train.warmup_steps=2 output.progress=none "output.directory=$out/$name" "${overrides[@]}" \
    > "$out/$name.log" 2>&1 || die "$name failed: see $out/$name.log"
  rm -rf "${out:?}/$name/checkpoints"
}

# Without a launcher, which would bind both jobs to the first core.
on_core() { # CORE ARGUMENT...
  local core=$1
  shift
  OMPI_MCA_ess_singleton_isolated=1 OMPI_MCA_orte_create_session_dirs=0 bound "$core" 1 "$minipipe" "$@"
}

for round in $(seq "$rounds"); do
  say "round $round of $rounds"
  for m in 1 2 4 8; do
    run "one-$m-$round" 1f1b "$m" mpirun_minipipe 1
    run "1f1b-$m-$round" 1f1b "$m" mpirun_minipipe 2
    run "paci-$m-$round" paci "$m" mpirun_minipipe 2
    run "job0-$m-$round" 1f1b "$m" on_core 0 &
    other=$!
    run "job1-$m-$round" 1f1b "$m" on_core 1
    wait "$other" || exit 1
  done
done
/usr/bin/python3 jobs/table_two_ranks.py "$out"
