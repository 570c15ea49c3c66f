#!/usr/bin/env bash
# Is the time that a profile predicts the time that a run takes? Measures the deck's layers and links on real ranks, then for
# 1f1b, paci and gpipe: step time and peak bytes as predicted from the profile, beside those of a run. Wants an idle machine.
#   jobs/validate-profile.sh [--deck DECK] [--ranks N] [--steps S] [--out DIR] [block.key=value ...]
#     --deck DECK   deck to measure (inputs/quickstart/quickstart.toml)
#     --ranks N     ranks, one stage each (2)
#     --steps S     updates of each run; the first 25 are a warm-up and do not count (120)
#     --out DIR     folder of profile.h5, the runs and table.json (runs/profile)
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

deck=inputs/quickstart/quickstart.toml ranks=2 steps=120 out=runs/profile
read_options "deck ranks steps out" "$@"
[ "$steps" -ge 50 ] 2> /dev/null || die "--steps $steps: must be a number of at least 50"
cd "$root"
need_program

take_folder "$out"
fail() { die "$1 failed: see $2"; }
# Flush schedules are timed in segments of 25 updates; PACI gets such a segment, too, by synchronous updates. The first segment
# does not count in schedule_tokens_per_s.
overrides+=(output.evaluation_interval=0 checkpoint.interval=0 output.progress=none schedule.synchronous_updates=25 "run.steps=$steps")
say "profile of $deck on $ranks ranks"
mpirun_minipipe "$ranks" profile "$deck" "${overrides[@]}" --out "$out/profile.h5" > "$out/profile.txt" 2>&1 || fail profile "$out/profile.txt"
for schedule in 1f1b paci gpipe; do
  say "$schedule: $steps updates"
  set -- "$deck" "${overrides[@]}" "schedule.name=$schedule"
  mpirun_minipipe "$ranks" train "$@" "output.directory=$out/$schedule" > "$out/$schedule.txt" 2>&1 || fail "$schedule" "$out/$schedule.txt"
  "$minipipe" simulate "$@" --stages "$ranks" --profile "$out/profile.h5" > "$out/$schedule/simulated.txt" 2>&1 || fail simulate "$out/$schedule/simulated.txt"
  rm -rf "${out:?}/$schedule/checkpoints" "${out:?}/$schedule/previous."*
done
/usr/bin/python3 jobs/table.py profile "$out"
