#!/usr/bin/env bash
# From a clean clone to a result: installs what is missing, builds, prepares real text, trains the same small GPT twice on two
# ranks bound to two cores, under 1F1B-flush and under PACI, and compares them.
#   jobs/quickstart.sh [block.key=value ...]
# A shorter run (run.steps=20, at least 8) gets fewer synchronous updates and more frequent validations in proportion.
# Ends with a table, and runs/quickstart/loss.png.
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

# Overrides that follow the deck's own; a later one wins.
overrides=()
for argument in "$@"; do
  case $argument in
    -h | --help) usage ;;
    run.steps=*[!0-9]* | run.steps=) die "'$argument': a number of updates is needed" ;;
    run.steps=*)
      steps=${argument#*=}
      [ "$steps" -ge 8 ] || die "'$argument': the comparison needs at least 8 updates"
      # The deck has 60 synchronous ones of 160, and a validation every 40.
      [ "$steps" -ge 160 ] || overrides=("schedule.synchronous_updates=$((steps * 3 / 8))" "output.evaluation_interval=$((steps / 4))")
      ;;
    *.*=*) ;;
    *) die "unknown argument '$argument'; see --help" ;;
  esac
done
set -- ${overrides[@]+"${overrides[@]}"} "$@"

cd "$root"
"$root/jobs/setup.sh" --no-data
load_setup
configure_and_build release minipipe
"$root/jobs/prepare-sample.sh"

deck=inputs/quickstart/quickstart.toml
out=runs/quickstart
progress=lines
[ -t 1 ] && progress=bar

# Leaves out the program's last line, which is for other programs. Whatever is there is passed on at once: a bar has no lines.
without_json() {
  /usr/bin/python3 -c '
import os
import re
import signal
import sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # mpirun and its ranks end first
begins, hidden = True, False
while block := os.read(0, 65536):
    for line in re.findall(rb"[^\n]*\n|[^\n]+", block):
        hidden = line.startswith(b"{") if begins else hidden
        begins = line.endswith(b"\n")
        if not hidden:
            sys.stdout.buffer.write(line)
    sys.stdout.buffer.flush()
'
}

for schedule in 1f1b paci; do
  say "training under $schedule"
  mpirun_minipipe 2 train "$deck" "schedule.name=$schedule" "output.directory=$out/$schedule" "output.progress=$progress" "$@" | without_json
done
/usr/bin/python3 "$root/jobs/compare_runs.py" "$out/1f1b" "$out/paci" --out "$out"
