#!/usr/bin/env bash
# From a clean clone to a result: installs what is missing, builds, prepares real text, trains the same small GPT twice on two
# ranks bound to two cores, under 1F1B-flush and under PACI, and compares them.
#   jobs/quickstart.sh [block.key=value ...]
# Ends with a table, and runs/quickstart/loss.png.
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

cd "$root"
"$root/jobs/setup.sh" --no-data
load_setup
configure_and_build release minipipe
"$root/jobs/prepare-sample.sh"

deck=inputs/quickstart/quickstart.toml
out=runs/quickstart
progress=lines
[ -t 1 ] && progress=bar
for schedule in 1f1b paci; do
  say "training under $schedule"
  mpirun_minipipe 2 train "$deck" "schedule.name=$schedule" "output.directory=$out/$schedule" "output.progress=$progress" "$@"
done
/usr/bin/python3 "$root/jobs/compare_runs.py" "$out/1f1b" "$out/paci" --out "$out"
