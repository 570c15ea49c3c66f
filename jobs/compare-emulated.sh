#!/usr/bin/env bash
# Eight emulated stages (real messages, slept compute): the measured throughput of PACI over 1F1B-flush beside the bubble
# model's (m+N-1)/m, for m = 4, 8, 16 microbatches per update.
#   jobs/compare-emulated.sh [OUT]        (default runs/emulated; OUT/table.json has the rows)
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

only_folder runs/emulated "$@"
cd "$root"
need_program
stages=8
for microbatches in 4 8 16; do
  # The same number of microbatches per run, enough that PACI's one fill and drain are small: 1 + (N-1)/M.
  steps=$((1024 / microbatches))
  for schedule in 1f1b paci; do
    mpirun_minipipe $stages train inputs/verify/emulate.toml "schedule.name=$schedule" "train.microbatches=$microbatches" \
      "run.steps=$steps" "output.directory=$out/$schedule-$microbatches" output.progress=none > /dev/null
  done
done
/usr/bin/python3 - "$out" $stages << 'PYTHON'
import json
import pathlib
import sys

out, stages = pathlib.Path(sys.argv[1]), int(sys.argv[2])
table = []
print(f"{'m':>4} {'1f1b tokens/s':>14} {'paci tokens/s':>14} {'ratio':>8} {'model':>8} {'difference':>11}")
for microbatches in (4, 8, 16):
    rate = {name: json.loads((out / f"{name}-{microbatches}" / "summary.json").read_text())["tokens_per_s"] for name in ("1f1b", "paci")}
    ratio, model = rate["paci"] / rate["1f1b"], (microbatches + stages - 1) / microbatches
    table.append({"microbatches": microbatches, "ratio": ratio, "model": model, "difference": ratio / model - 1})
    print(f"{microbatches:4d} {rate['1f1b']:14.1f} {rate['paci']:14.1f} {ratio:8.3f} {model:8.3f} {100 * (ratio / model - 1):+10.1f} %")
(out / "table.json").write_text(json.dumps(table, indent=1) + "\n")
PYTHON
