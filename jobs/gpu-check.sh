#!/usr/bin/env bash
# Is the program right on this machine's GPU, and how fast? A few minutes after the build:
#   - losses of a small deck on the GPU beside those on the host; flush schedules in four stages of one process give the bits of
#     one stage; with two GPUs: two ranks over MPI, over MPI with device memory (--device-mpi), over NCCL, all the same bits;
#     so do two replicas over NCCL (ddp, zero1, fsdp) and over MPI. With one GPU these are left out: NCCL refuses two ranks on it;
#   - GPT-2 124M in bf16 and fp32: tokens per second and the share of the card's own matrix rate (minipipe bench).
# Ends with a table and OUT/table.json, which names the card.
#   jobs/gpu-check.sh [--out DIR] [--steps N] [--device-mpi]
#     --out DIR      folder of everything (runs/gpu-check)
#     --steps N      updates of each comparison of losses (20)
#     --device-mpi   the MPI library takes device memory: try parallel.staging = "device", too
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"

out=runs/gpu-check steps=20 device_mpi=
while [ $# -gt 0 ]; do
  case $1 in
    -h | --help) usage ;;
    --out) out=$(from_here "${2:?--out needs a folder}"); shift 2 ;;
    --steps) steps=${2:?--steps needs a number}; shift 2 ;;
    --device-mpi) device_mpi=1; shift ;;
    *) die "unknown argument '$1'; see --help" ;;
  esac
done

cd "$root"
card=$(nvidia-smi --query-gpu=name --format=csv,noheader 2> /dev/null | head -1) || true
[ -n "$card" ] || die "no GPU: nvidia-smi finds none here"
cards=$(nvidia-smi -L | wc -l)
take_folder "$out"
rm -rf "${out:?}"/runs "$out"/bench-*.json "$out"/gpu*.log
say "$cards x $card"
export PATH=$PATH:/usr/local/cuda/bin
for preset in release cuda; do
  [ -x "build/$preset/minipipe" ] && continue
  say "building preset $preset"
  grep -q KOKKOS_CUDA=/ "$cache/setup.env" 2> /dev/null || jobs/setup.sh --no-data --cuda
  load_setup
  configure_and_build "$preset" minipipe > "$out/build-$preset.log" 2>&1 || die "preset $preset was not built, see $out/build-$preset.log"
done
[ -f data/sample/train.h5 ] || jobs/prepare-sample.sh

train() { # NAME PRESET RANKS OVERRIDES...
  local name=$1 preset=$2 ranks=$3
  shift 3
  say "$name"
  mpirun --oversubscribe --bind-to none -n "$ranks" "build/$preset/minipipe" train inputs/verify/verify.toml "run.steps=$steps" \
    checkpoint.interval=0 output.evaluation_interval=0 output.progress=none "output.directory=$out/runs/$name" "$@" \
    > "$out/$name.log" 2>&1 || say "$name failed: $(tail -1 "$out/$name.log")"
}
export OMP_NUM_THREADS=1 OMP_PROC_BIND=false
train host release 1
train gpu cuda 1
train host-bf16 release 1 precision.compute=bf16
train gpu-bf16 cuda 1 precision.compute=bf16
train gpu-stages cuda 1 parallel.stages=4
train gpu-paci cuda 1 parallel.stages=4 schedule.name=paci schedule.order=fixed
train host-paci release 1 parallel.stages=4 schedule.name=paci schedule.order=fixed
if [ "$cards" -ge 2 ]; then
  train gpu-mpi cuda 2
  [ -z "$device_mpi" ] || train gpu-device-mpi cuda 2 parallel.staging=device
  train gpu-nccl cuda 2 parallel.transport=nccl
  train gpu-replicas cuda 2 parallel.data=2
  train gpu-ddp-nccl cuda 2 parallel.data=2 parallel.transport=nccl
  train gpu-zero1-nccl cuda 2 parallel.data=2 parallel.mode=zero1 parallel.transport=nccl
  train gpu-fsdp-nccl cuda 2 parallel.data=2 parallel.mode=fsdp parallel.fsdp_reduce=window parallel.transport=nccl
else
  say "one GPU: messages between GPUs, of stages and of replicas, are not tried (NCCL refuses two ranks on one GPU)"
fi
for compute in bf16 fp32; do
  say "bench, $compute"
  build/cuda/minipipe bench inputs/verify/gpt2_124m.toml "precision.compute=$compute" train.sequence=1024 train.microbatch_size=8 \
    --repeat 15 --json "$out/bench-$compute.json" > "$out/bench-$compute.txt" 2> "$out/bench-$compute.log" ||
    say "bench failed: $(tail -1 "$out/bench-$compute.log")"
done
/usr/bin/python3 jobs/table_gpu.py "$out" --card "$card"
