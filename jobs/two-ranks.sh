#!/usr/bin/env bash
# What two cores give over one: tokens per second of a balanced model on two ranks, under 1f1b and PACI with m = 1, 2, 4, 8
# microbatches per update, against the same model on one rank. By the model of the schedules PACI gives 2, 1f1b 2m / (m + 1).
# Wants an idle machine. Rounds alternate the runs, so that a slow minute hits all of them; medians are compared.
#   jobs/two-ranks.sh [--rounds N] [--microbatches M] [--out DIR] [block.key=value ...]
#     --rounds N         repetitions (3)
#     --microbatches M   microbatches of each run (144)
#     --out DIR          folder of the runs and of table.json (runs/two-ranks)
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

rounds=3 microbatches=144 out=runs/two-ranks
read_options "rounds microbatches out" "$@"
[ $((microbatches % 8)) = 0 ] && [ "$microbatches" -ge 48 ] || die "--microbatches $microbatches: must be a multiple of 8, 48 or more"
[ "$(nproc --all)" -ge 2 ] || die "this machine has one core; two are compared"

cd "$root"
need_program
[ -f data/sample/train.h5 ] || jobs/prepare-sample.sh
mkdir -p "$out"
rm -rf "${out:?}"/{one,1f1b,paci}-[0-9]* # the table has all rounds that are there

run() { # NAME RANKS SCHEDULE M ROUND
  local folder=$out/$1-$5
  rm -rf "${folder:?}"
  mpirun_minipipe "$2" train inputs/studies/two_ranks.toml "schedule.name=$3" "train.microbatches=$4" \
    "run.steps=$((microbatches / $4))" train.warmup_steps=2 output.progress=none "output.directory=$folder" "${overrides[@]}" \
    > "$out/$1-$5.log" 2>&1 || die "$1 failed: see $out/$1-$5.log"
  rm -rf "${folder:?}"/checkpoints
}

for round in $(seq "$rounds"); do
  say "round $round of $rounds"
  for m in 1 2 4 8; do
    run "one-$m" 1 1f1b "$m" "$round"
    run "1f1b-$m" 2 1f1b "$m" "$round"
    run "paci-$m" 2 paci "$m" "$round"
  done
done
/usr/bin/python3 jobs/table_two_ranks.py "$out"
