#!/usr/bin/env bash
# Do the times by kind of layer predict a hybrid, and does the plan tuned from them win as much as they say? Measures a profile on
# real ranks; then, for 1F1B with equal numbers of layers per stage and for the tuned plan: step time and peak bytes as predicted,
# beside those of runs; the speed-up; and whether both train alike, bit for bit. Then the same on emulated ranks, whose stages
# sleep as long as the profile says. Wants an idle machine.
#   jobs/validate-hybrid.sh [--deck DECK] [--ranks N] [--emulated "N.."] [--steps S] [--time T] [--out DIR] [--strict] [block.key=value ...]
#     --deck DECK        deck of a hybrid (inputs/studies/hybrid.toml)
#     --ranks N          real ranks (2)
#     --emulated "N.."   numbers of emulated ranks, "" for none ("4 8")
#     --steps S          updates of each run; the first 25 are a warm-up and do not count (100)
#     --time T           seconds of each search for a plan (10)
#     --out DIR          folder of profile.h5, plans, runs and table.json (runs/hybrid-profile)
#     --strict           end with status 1 if an error is beyond its limit
# Each update has twice as many microbatches as there are ranks.
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

deck=inputs/studies/hybrid.toml ranks=2 emulated="4 8" steps=100 time=10 out=runs/hybrid-profile strict=
read_options "deck ranks emulated? steps time out strict!" "$@"
[ "$steps" -ge 50 ] 2> /dev/null || die "--steps $steps: must be a number of at least 50"
cd "$root"
need_program

take_folder "$out"
rm -rf "${out:?}"/{real,emulated}-[0-9]* # the table has all that are there
fail() { die "$1 failed: see $2"; }
from_json() { # ARRAY KIND FILE...: puts the deck overrides in the last line of a file into the array
  local lines
  lines=$(/usr/bin/python3 jobs/table_hybrid.py --overrides "${@:2}") || die "$3 has no overrides in its last line"
  mapfile -t "$1" <<< "$lines"
}
overrides+=(output.evaluation_interval=0 checkpoint.interval=0 output.progress=none "run.steps=$steps")
say "profile of $deck on $ranks ranks"
mpirun_minipipe "$ranks" profile "$deck" "${overrides[@]}" "train.microbatches=$((2 * ranks))" --out "$out/profile.h5" \
  > "$out/profile.txt" 2>&1 || fail profile "$out/profile.txt"
sed -n '1,/not\|timed/p' "$out/profile.txt"

# Predicts and runs one schedule on N ranks: CASE is real or emulated.
run_case() { # CASE N FOLDER OVERRIDE...
  local case=$1 n=$2 folder=$3 sleeping=()
  shift 3
  rm -rf "$folder"
  mkdir -p "$folder"
  "$minipipe" simulate "$deck" "$@" --profile "$out/profile.h5" > "$folder.simulated.txt" 2>&1 ||
    fail simulate "$folder.simulated.txt"
  [ "$case" = real ] || from_json sleeping stages "$folder.simulated.txt"
  mpirun_minipipe "$n" train "$deck" "$@" "${sleeping[@]}" "output.directory=$folder" > "$folder.txt" 2>&1 ||
    fail train "$folder.txt"
  mv "$folder.simulated.txt" "$folder/simulated.txt"
  rm -rf "${folder:?}/checkpoints"
}

case=real uniform=() tuned=()
for n in "$ranks" $emulated; do
  folder=$out/$case-$n
  mkdir -p "$folder"
  mine=("${overrides[@]}" "train.microbatches=$((2 * n))")
  say "$case, $n ranks: tuning for $time s"
  "$minipipe" tune "$deck" "${mine[@]}" --profile "$out/profile.h5" --devices "$n" --time "$time" --out "$folder/plan.csv" \
    > "$folder/tune.txt" 2>&1 || fail tune "$folder/tune.txt"
  from_json uniform uniform "$folder/tune.txt" "$n"
  from_json tuned plan "$folder/tune.txt" "$folder/plan.csv"
  say "$case, $n ranks: 1f1b with equal numbers of layers, $steps updates"
  run_case "$case" "$n" "$folder/uniform" "${mine[@]}" "${uniform[@]}"
  say "$case, $n ranks: tuned plan, $steps updates"
  run_case "$case" "$n" "$folder/tuned" "${mine[@]}" "${tuned[@]}"
  case=emulated
done
/usr/bin/python3 jobs/table_hybrid.py "$out" $strict
