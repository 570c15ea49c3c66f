#!/usr/bin/env bash
# Tuned plans beside the baselines for every published profile and cost vector: simulated makespans and geometric-mean
# speed-ups. First the stated cases of inputs/profiles, which must agree to the tick. Fails if a tuned plan is behind a baseline.
#   jobs/octopipe.sh [OUT] [SECONDS]      (default runs/octopipe, 5 s for each, two minutes in all; OUT/table.json has the rows)
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

case ${2:-5} in *[!0-9.]*) die "'$2' is no number of seconds; see --help" ;; esac
[ $# -le 2 ] || die "unknown argument '$3'; see --help"
only_folder runs/octopipe "${@:1:1}"
seconds=${2:-5}
cd "$root"
need_program
export OMP_NUM_THREADS=1 OMP_PROC_BIND=false
take_folder "$out"
"$minipipe" simulate --profile inputs/profiles/nemotron_nano_9b.json
/usr/bin/python3 jobs/octopipe_profiles.py "$out/profiles"
cp inputs/profiles/nemotron_nano_9b.json "$out/profiles/"
for profile in "$out"/profiles/*.json; do
  name=$(basename "$profile" .json)
  "$minipipe" tune --profile "$profile" --time "$seconds" --out "$out/$name.csv" > "$out/$name.txt"
done
"$minipipe" tune --profile inputs/profiles/nemotron_nano_9b.json --time "$seconds" --cap 56 --out "$out/capped.csv" > "$out/capped.out"
/usr/bin/python3 - "$out" << 'PYTHON'
import json
import math
import pathlib
import sys

out = pathlib.Path(sys.argv[1])
names = ["1f1b", "interleaved", "zero-bubble", "partition-only", "placement-only", "schedule-only"]
rows = {path.stem: json.loads(path.read_text().splitlines()[-1]) for path in sorted(out.glob("*.txt"))}
print("ticks of 0.01 ms (nemotron-h-4096, gemma, deepseek-4096: of a hundredth of a base layer's forward); N devices, m microbatches")
print(f"{'profile':22}{'N':>3}{'m':>4}" + "".join(f"{name:>15}" for name in names) + f"{'tuned':>10}{'of bound':>9}{'best gain':>10}")
for name, row in rows.items():
    base, tuned = row["baselines"], row["makespan_ticks"]
    cells = "".join(f"{base[b]:15d}" if b in base else f"{'-':>15}" for b in names)
    print(f"{name:22}{len(row['placement']):3d}{row['microbatches']:4d}{cells}{tuned:10d}{tuned / row['lower_bound_ticks']:9.4f}"
          f"{min(base.values()) / tuned:10.3f}")
means = {}
for b in names:
    ratios = [row["baselines"][b] / row["makespan_ticks"] for row in rows.values() if b in row["baselines"]]
    means[b] = math.exp(sum(map(math.log, ratios)) / len(ratios))
print("geometric-mean speed-up of tuned over " + ", ".join(f"{b} {value:.3f}" for b, value in means.items()))
capped = json.loads((out / "capped.out").read_text().splitlines()[-1])
free = min(rows["nemotron_nano_9b"]["makespan_ticks"], capped["uncapped_ticks"])
print(f"nemotron_nano_9b: {free} ticks without a cap, {capped['makespan_ticks']} within 56 units: the cap costs "
      f"{100 * (capped['makespan_ticks'] / free - 1):.2f} %")
worse = [name for name, row in rows.items() if row["makespan_ticks"] > min(row["baselines"].values())]
(out / "table.json").write_text(json.dumps({"rows": rows, "geometric_mean_speed_up": means, "capped": capped}, indent=1) + "\n")
sys.exit(f"tuned is worse than a baseline: {worse}" if worse else 0)
PYTHON
