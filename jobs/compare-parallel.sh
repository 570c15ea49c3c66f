#!/usr/bin/env bash
# Data-parallel modes on four replicas of a small LLaMA (inputs/studies/parallel.toml): memory by category, bytes sent, flops,
# and the validation loss of the full model at equal updates and at equal flops.
#   jobs/compare-parallel.sh [SEEDS] [--steps N] [--out DIR]
#     SEEDS      seeds per mode (3): run.seed = 0, 1, ...
#     --steps N  updates of the equal-updates runs (250: a million tokens)
#     --out DIR  folder of the runs and of table.json (runs/parallel); runs that are there already are kept
#   jobs/compare-parallel.sh --table DIR [--steps N]    prints the tables of runs that are there
# zero1, fsdp and recomputation change no loss, so they run with the first seed only.
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

seeds=3 steps=250 out=runs/parallel table=
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage ;;
    --table) table=${2:?--table needs a folder}; shift 2 ;;
    --steps) steps=${2:?--steps needs a number}; shift 2 ;;
    --out) out=$(from_here "${2:?--out needs a folder}"); shift 2 ;;
    [1-9]*) seeds=$1; shift ;;
    *) die "unknown argument '$1'; see --help" ;;
  esac
done

[ -z "$table" ] || exec /usr/bin/python3 "$root/jobs/table_parallel.py" "$table" --steps "$steps"
cd "$root"
need_program
[ -f data/sample/train.h5 ] || jobs/prepare-sample.sh
deck=inputs/studies/parallel.toml
take_folder "$out"

# Runs once; prints the folder. NAME STEPS SEED OVERRIDES...
run() {
  local name=$1 updates=$2 seed=$3 folder=$out/$1-$2-seed$3
  shift 3
  if ! is_done "$folder"; then
    say "$name, $updates updates, seed $seed"
    rm -rf "${folder:?}"
    mpirun_minipipe 4 train "$deck" run.name="$name" run.seed="$seed" run.steps="$updates" \
      train.warmup_steps=$((updates / 50)) output.evaluation_interval="$updates" output.directory="$folder" "$@" \
      > "$folder.log" 2>&1 || die "$name failed, see $folder.log"
    rm -rf "$folder/checkpoints" "$folder/timeline.json" # large, and of no use here
    mv "$folder.log" "$folder/log.txt"
  fi
}

sdp() { echo "parallel.mode=sdp sdp.unit=$1 sdp.coverage=$2 sdp.masking=$3"; }
cases=(
  "ddp|parallel.mode=ddp"
  "zero1|parallel.mode=zero1"
  "fsdp|parallel.mode=fsdp"
  "fsdp-recompute|parallel.mode=fsdp train.recompute=block"
)
for coverage in 0.75 0.6875 0.5 0.375; do
  cases+=("b-sdp-$coverage-forward|$(sdp block $coverage forward)" "b-sdp-$coverage-backward|$(sdp block $coverage backward)")
done
cases+=("n-sdp-0.5-forward|$(sdp neuron 0.5 forward)" "n-sdp-0.5-backward|$(sdp neuron 0.5 backward)")
cases+=("b-sdp-0.6875-fsdp-recompute|$(sdp block 0.6875 forward) sdp.fsdp=true train.recompute=block")

for ((seed = 0; seed < seeds; ++seed)); do
  for entry in "${cases[@]}"; do
    name=${entry%%|*}
    case $name in zero1 | fsdp* | *recompute) [ "$seed" = 0 ] || continue ;; esac
    # shellcheck disable=SC2086
    run "$name" "$steps" "$seed" ${entry#*|}
    # As many flops as the full model: more updates where an update has fewer.
    longer=$(/usr/bin/python3 - "$out/$name-$steps-seed$seed/summary.json" "$steps" <<'P'
import json, sys
summary = json.load(open(sys.argv[1]))
print(round(int(sys.argv[2]) * summary["model_flops_per_update"] / summary["flops_per_update"]))
P
    )
    # shellcheck disable=SC2086
    case $name in *recompute) ;; *) [ "$longer" = "$steps" ] || run "$name" "$longer" "$seed" ${entry#*|} ;; esac
  done
done
/usr/bin/python3 jobs/table_parallel.py "$out" --steps "$steps"
