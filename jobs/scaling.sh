#!/usr/bin/env bash
# What a step costs at sizes no machine at hand has, by simulation: stages, microbatches, width, sequence and replicas, under
# 1f1b, interleaved, zb-h1 and paci. Model: inputs/profiles/llama3_8b.json, its costs scaled (docs/studies.md).
#   jobs/scaling.sh [OUT]      (default runs/scaling; prints the table; OUT/table.json has the rows, OUT/scaling.png the figure)
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

only_folder runs/scaling "$@"
cd "$root"
need_program
export OMP_NUM_THREADS=1 OMP_PROC_BIND=false
take_folder "$out"
MINIPIPE="$minipipe" /usr/bin/python3 jobs/scaling.py "$out"
