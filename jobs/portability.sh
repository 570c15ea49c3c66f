#!/usr/bin/env bash
# One deck on every back end at hand: which share of the matrix rate does a training step reach on each, and what is their
# harmonic mean (the performance-portability metric of Pennycook, Sewall, Lee, arXiv 1611.07409)?
# Back ends: Kokkos' Serial (preset serial), OpenMP with 1 and 2 threads (preset release), CUDA where a GPU, nvcc and a Kokkos
# with CUDA are found (preset cuda; jobs/setup.sh --cuda). Two thread counts of one processor are not two machines: the metric
# says how even the code is over back ends here, no more.
#   jobs/portability.sh [--out DIR] [--repeat N] [--core C] [block.key=value...]
#     --out DIR    folder of the results, of table.json and portability.png (runs/portability)
#     --repeat N   samples of each measurement (15)
#     --core C     the first core (0)
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

out=runs/portability repeat=15 core=0
read_options "out repeat core" "$@"

cd "$root"
load_setup
deck=inputs/studies/portability.toml
take_folder "$out"
rm -f "$out"/{serial,openmp-1,openmp-2,cuda}.json # of back ends that may be gone

run() { # NAME PRESET THREADS
  local name=$1 preset=$2 threads=$3
  say "$name"
  [ -x "build/$preset/minipipe" ] || configure_and_build "$preset" minipipe > "$out/build-$preset.log" 2>&1 ||
    die "preset $preset was not built, see $out/build-$preset.log"
  bound "$core" "$threads" "build/$preset/minipipe" bench "$deck" "${overrides[@]}" --repeat "$repeat" --json "$out/$name.json" \
    --out "$out/$name.h5" > "$out/$name.txt" 2> "$out/$name.log" || {
    # Not to run on a back end is a result, too: an efficiency of 0.
    say "$name failed: $(tail -1 "$out/$name.log")"
    echo '{"failed": true}' > "$out/$name.json"
  }
}

run serial serial 1
run openmp-1 release 1
if [ $((core + 2)) -le "$(nproc --all)" ]; then
  run openmp-2 release 2
else
  say "openmp-2 left out: there is no second core"
fi
if nvidia-smi -L > /dev/null 2>&1 && [ -d "${MINIPIPE_KOKKOS_CUDA:-/nowhere}" ]; then
  PATH=$PATH:/usr/local/cuda/bin
  run cuda cuda 1
else
  say "cuda left out: no GPU, or no Kokkos with CUDA (jobs/setup.sh --cuda)"
fi
/usr/bin/python3 jobs/portability.py "$out"
