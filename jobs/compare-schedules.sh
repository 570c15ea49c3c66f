#!/usr/bin/env bash
# Every schedule on eight emulated ranks (real messages, slept compute) beside the simulator and, where there is one, the closed
# form: efficiency, activations, weight copies, version gaps, for m = 8, 16, 32 microbatches per update. A second table has what
# link latency and one slow stage do to PACI.
#   jobs/compare-schedules.sh [OUT]       (default runs/schedules; OUT/table.json has the rows; runs that are there are kept)
#   jobs/compare-schedules.sh --table OUT       prints the tables of runs that are there
# Efficiency = compute time of all microbatches on one rank / time from the first action to the last. All runs have M = 128
# microbatches and no drain but the last, so the fill and drain of the whole run count: asynchronous 1 / (1 + (N-1) / M); flush
# schedules pay theirs at every update.
# On a machine with other work to do sleepers wake up late, and the emulated figures are low.
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

cd "$root"
case ${1:-} in
  -h | --help) usage ;;
  --table) exec /usr/bin/python3 jobs/table.py schedules "${2:?--table needs a folder}" ;;
  -*) die "unknown argument '$1'; see --help" ;;
esac
[ $# -le 1 ] || die "unknown argument '$2'; see --help"
out=${1:-runs/schedules}
need_program
deck=inputs/studies/schedules.toml
ranks=8
total=128 # microbatches per run
take_folder "$out"
queue=$out/queue.txt
: > "$queue"

# Two stages per rank, each with half the layers of a rank.
two="parallel.stages=16 emulate.forward_ms=5 emulate.backward_ms=10"
enqueue() { # NAME STEPS OVERRIDES...
  local name=$1 steps=$2
  shift 2
  echo "$name $steps $*" >> "$queue"
}
for m in 8 16 32; do
  for schedule in gpipe 1f1b zb-h1 zb-h2 paci pipedream-2bw pipemare; do
    enqueue "$schedule-$m" $((total / m)) "schedule.name=$schedule train.microbatches=$m"
  done
  for schedule in interleaved zb-v; do
    enqueue "$schedule-$m" $((total / m)) "schedule.name=$schedule train.microbatches=$m $two"
  done
  for limit in 1 2; do
    enqueue "zb-auto-${limit}n-$m" $((total / m)) "schedule.name=zb-auto train.microbatches=$m" \
      "schedule.memory_limit=$((limit * ranks)).0"
  done
done
# These update after every microbatch, whatever m is.
for schedule in async-1f1b pipedream; do
  enqueue "$schedule-1" $total "schedule.name=$schedule"
done
# Effects on PACI, a = 8. Latency in tenths of a forward.
for tenths in 1 5 10; do
  enqueue "latency-$tenths" 16 "schedule.name=paci train.microbatches=8 emulate.link_latency_ms=$tenths"
done
for ready in alternate backward_first; do
  for hundredths in 150 200; do
    enqueue "slow-$ready-$hundredths" 16 "schedule.name=paci train.microbatches=8 schedule.ready=$ready" \
      "emulate.stage_factors=[$((hundredths / 100)).$((hundredths % 100)),1,1,1,1,1,1,1]"
  done
done

count=$(wc -l < "$queue")
say "$count runs of $total microbatches"
number=0 ran=0
fail() { die "$1 failed: see $out/$1/$2"; }
while read -r name steps overrides; do
  # shellcheck disable=SC2086
  set -- run.name="$name" run.steps="$steps" output.directory="$out/$name" $overrides
  folder=$out/$name
  key=$(printf '%s ' "$@" | cat - "$deck" | sha256sum)
  number=$((number + 1))
  if [ "$(cat "$folder/made_of" 2> /dev/null)" != "$key" ]; then
    rm -rf "${folder:?}"
    mkdir -p "$folder"
    mpirun_minipipe $ranks train "$deck" "$@" > "$folder/log.txt" 2>&1 < /dev/null || fail "$name" log.txt
    "$minipipe" simulate "$deck" "$@" --updates "$steps" > "$folder/simulated.txt" 2>&1 < /dev/null || fail "$name" simulated.txt
    # The memory plan of the same schedule with real compute: slept compute holds no weights.
    "$minipipe" check "$deck" "$@" emulate.enabled=false > "$folder/check.txt" 2>&1 < /dev/null || fail "$name" check.txt
    rm -rf "${folder:?}/checkpoints" "$folder/timeline.json"
    echo "$key" > "$folder/made_of"
    ran=$((ran + 1))
  fi
  left=$((ran > 0 ? SECONDS * (count - number) / ran : 0))
  printf -- '-- %2d of %d %-24s about %d:%02d left\n' $number "$count" "$name" $((left / 60)) $((left % 60))
done < "$queue"
/usr/bin/python3 jobs/table.py schedules "$out"
