#!/usr/bin/env bash
# Kernels and a training step against this machine's own rates (minipipe bench), for the quick-start model and for GPT-2 124M,
# bound to cores. Nothing else should run on the machine: the copy rate is shared by all cores.
#   jobs/bench.sh [--out DIR] [--repeat N] [--threads T] [--core C] [DECK...]
#     --out DIR     folder of the results: NAME.txt, NAME.json and NAME.h5 for each deck (runs/bench)
#     --repeat N    samples of each measurement (15)
#     --threads T   threads (1), each on a core of its own
#     --core C      the first core (0)
#     DECK...       decks instead of the two
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

out=runs/bench repeat=15 threads=1 core=0 decks=()
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage ;;
    --out) out=$(from_here "${2:?--out needs a folder}"); shift 2 ;;
    --repeat) repeat=${2:?--repeat needs a number}; shift 2 ;;
    --threads) threads=${2:?--threads needs a number}; shift 2 ;;
    --core) core=${2:?--core needs a number}; shift 2 ;;
    -*) die "unknown option '$1'; see --help" ;;
    *) decks+=("$(deck_from_here "$1")"); shift ;;
  esac
done

cd "$root"
[ ${#decks[@]} -gt 0 ] || decks=(inputs/quickstart/quickstart.toml inputs/verify/gpt2_124m.toml)
need_program
repeated=$(for deck in "${decks[@]}"; do basename "$deck" .toml; done | sort | uniq -d)
[ -z "$repeated" ] || die "several decks are named $repeated, and so would be their results: run them with an --out of their own"
take_folder "$out"
for deck in "${decks[@]}"; do
  name=$(basename "$deck" .toml)
  say "$deck: $threads threads from core $core on"
  bound "$core" "$threads" "$minipipe" bench "$deck" --repeat "$repeat" --json "$out/$name.json" --out "$out/$name.h5" > "$out/$name.txt"
  cat "$out/$name.txt"
done
say "written to $out"
