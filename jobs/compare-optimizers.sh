#!/usr/bin/env bash
# Which optimizer bears PACI's delay? Flush and PACI (eight stages, a = 4, real text, a million tokens) under AdamW, NAdam and
# Muon, with 0 and 50 synchronous updates before PACI: validation loss at equal tokens and at equal time.
#   jobs/compare-optimizers.sh [SEEDS] [--ratio R] [--out DIR] [--processes P]
#     SEEDS       seeds per setting (3): run.seed = 0, 1, ...
#     --ratio R   throughput of PACI over 1F1B-flush, by which equal time is counted (2.75, the bubble model's (m+N-1)/m;
#                 jobs/compare-emulated.sh and jobs/compare-schedules.sh measure it)
#     --out DIR   folder of the runs and of table.json (runs/optimizers); runs that are there already are kept
#     --processes P   runs side by side, one core each (2)
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

seeds=3 ratio=2.75 out=runs/optimizers processes=2
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage ;;
    --ratio) ratio=${2:?--ratio needs a number}; shift 2 ;;
    --out) out=$(from_here "${2:?--out needs a folder}"); shift 2 ;;
    --processes) processes=${2:?--processes needs a number}; shift 2 ;;
    [1-9]*) seeds=$1; shift ;;
    *) die "unknown argument '$1'; see --help" ;;
  esac
done

cd "$root"
need_program
[ -f data/sample/train.h5 ] || jobs/prepare-sample.sh
deck=inputs/studies/optimizers.toml
take_folder "$out"
equal=250
longer=$(/usr/bin/python3 -c "print(round($equal * $ratio))")

# One run a line: updates, folder, overrides.
queue=$out/queue.txt
: > "$queue"
enqueue() { # SCHEDULE OPTIMIZER SYNCHRONOUS UPDATES SEED
  local name=$2-$1-sync$3-$4-seed$5
  echo "$4 $name run.name=$name run.seed=$5 run.steps=$4 train.warmup_steps=$(($4 / 50)) schedule.name=$1 train.optimizer=$2" \
    "schedule.synchronous_updates=$3 output.evaluation_interval=$4 output.directory=$out/$name" >> "$queue"
}
for ((seed = 0; seed < seeds; ++seed)); do
  # What matters most comes first, so that an interrupted study has something to say.
  for optimizer in adamw muon nadam; do
    enqueue 1f1b $optimizer 0 $equal $seed
    enqueue paci $optimizer 0 $equal $seed
    [ $optimizer = muon ] && enqueue paci $optimizer 0 "$longer" $seed
    enqueue paci $optimizer 50 $equal $seed
  done
  for optimizer in muon adamw nadam; do
    [ $optimizer = muon ] || enqueue paci $optimizer 0 "$longer" $seed
    enqueue paci $optimizer 50 "$longer" $seed
  done
done

total=$(awk '{ sum += $1 } END { print sum }' "$queue")
: > "$out/done.txt" # "updates computed", one line per ended run
export minipipe deck out total
SECONDS=0
run_one() { # SINCE UPDATES NAME OVERRIDES...
  local since=$1 updates=$2 name=$3 computed=0
  shift 3
  local key
  key=$(printf '%s ' "$*" | cat - "$deck" | sha256sum)
  if [ ! -f "$out/$name/summary.json" ] || [ "$(cat "$out/$name/made_of" 2> /dev/null)" != "$key" ]; then
    rm -rf "${out:?}/$name"
    if ! OMP_NUM_THREADS=1 OMP_PROC_BIND=false "$minipipe" train "$deck" "$@" > "$out/$name.log" 2>&1; then
      echo "error: $name failed, see $out/$name.log" >&2
      return 255 # ends xargs
    fi
    rm -rf "${out:?}/$name/checkpoints" "$out/$name/timeline.json" # large, and of no use here
    echo "$key" > "$out/$name/made_of"
    mv "$out/$name.log" "$out/$name/log.txt"
    computed=$updates
  fi
  echo "$updates $computed" >> "$out/done.txt"
  awk -v name="$name" -v seconds=$(($(date +%s) - since)) -v total="$total" '
    { done += $1; computed += $2 }
    END { printf "%-34s done; %d of %d updates", name, done, total
          left = computed > 0 ? seconds * (total - done) / computed : 0
          if (computed > 0) printf ", about %d:%02d:%02d left", left / 3600, left % 3600 / 60, left % 60
          printf "\n" }
  ' "$out/done.txt"
}
export -f run_one
say "$(wc -l < "$queue") runs, $total updates, $processes side by side"
since=$(date +%s)
xargs -P "$processes" -L 1 -a "$queue" bash -c 'run_one "$@"' run_one "$since"
/usr/bin/python3 jobs/table.py optimizers "$out" --seeds "$seeds" --updates $equal "$longer"
