#!/usr/bin/env bash
# Is the program right on this machine's GPU, and how fast? A few minutes after the build:
#   - losses of small models on the GPU beside those on the host, in training and in evaluations: GPT-2 in fp32 and bf16, LLaMA,
#     a hybrid, Muon with dropout, recomputation and clipping, PACI;
#   - what must be the same bits: four stages in one process, a resumed run, two ranks as stages and as replicas (ddp, zero1,
#     fsdp) over MPI (with one GPU they share it); with two GPUs also over NCCL, and over MPI with device memory (--device-mpi);
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
[[ $steps =~ ^[0-9]+$ && $steps -ge 4 && $((steps % 2)) = 0 ]] || die "--steps $steps: give an even number, 4 or more"

cd "$root"
cards=$(nvidia-smi -L 2> /dev/null | grep -c '^GPU ') || true
[ "$cards" -gt 0 ] || die "no GPU: nvidia-smi finds none here"
card=$(nvidia-smi --query-gpu=name --format=csv,noheader | head -1)
arch=$(card_arch)  # whatever is in the environment: a setup.env may be of another machine
arch=${arch:-${MINIPIPE_CUDA_ARCH:-}}
take_folder "$out"
rm -rf "${out:?}"/runs "$out"/bench-*.json "$out"/gpu*.log
say "$cards x $card${arch:+, $arch}"
export PATH=$PATH:/usr/local/cuda/bin
# What was built for another card does not start on this one.
if [ -n "$arch" ] && ! grep -qs -- "-arch=$arch " build/cuda/CMakeCache.txt; then rm -f build/cuda/CMakeCache.txt build/cuda/minipipe; fi
for preset in release cuda; do
  [ -x "build/$preset/minipipe" ] && continue
  say "building preset $preset"
  if ! grep -qs KOKKOS_CUDA=/ "$cache/setup.env" || ! grep -qs "CUDA_ARCH=${arch:-sm_}" "$cache/setup.env"; then
    MINIPIPE_CUDA_ARCH=$arch jobs/setup.sh --no-data --cuda
  fi
  load_setup
  configure_and_build "$preset" minipipe > "$out/build-$preset.log" 2>&1 || die "preset $preset was not built, see $out/build-$preset.log"
done
[ -f data/sample/train.h5 ] || jobs/prepare-sample.sh

reason() { grep -a '^minipipe: ' "$1" | tail -1 | grep . || tail -1 "$1"; } # LOG
train() { # NAME PRESET RANKS OVERRIDES... ; without schedule.name in a flush schedule, whose losses no grid changes
  local name=$1 preset=$2 ranks=$3
  shift 3
  [[ " $* " = *" schedule.name="* ]] || set -- schedule.name=1f1b "$@"
  say "$name"
  timeout -k 30 900 mpirun --oversubscribe --bind-to none -n "$ranks" "build/$preset/minipipe" train inputs/verify/verify.toml \
    "run.steps=$steps" "checkpoint.interval=$((steps / 2))" "output.evaluation_interval=$((steps / 2))" output.progress=none \
    "output.directory=$out/runs/$name" "$@" > "$out/$name.log" 2>&1 < /dev/null || say "$name failed: $(reason "$out/$name.log")"
}
both() { # SUFFIX OVERRIDES...
  local suffix=$1
  shift
  train "host$suffix" release 1 "$@"
  train "gpu$suffix" cuda 1 "$@"
}
export OMP_NUM_THREADS=1 OMP_PROC_BIND=false
both ""
both -bf16 precision.compute=bf16
both -llama model.family=llama
both -hybrid model.family=hybrid "model.pattern=M-M*M#*#" model.experts=4 model.state_size=16 model.state_head_size=16
both -muon train.optimizer=muon model.dropout=0.1 train.recompute=block train.clip=global
both -paci parallel.stages=4 schedule.name=paci schedule.order=fixed
train gpu-stages cuda 1 parallel.stages=4
train gpu-resume cuda 1 "run.resume=$(printf '%s/runs/gpu/checkpoints/step_%08d.h5' "$out" $((steps / 2)))"
train gpu-mpi cuda 2
train gpu-replicas cuda 2 parallel.data=2
train gpu-zero1-mpi cuda 2 parallel.data=2 parallel.mode=zero1
train gpu-fsdp-mpi cuda 2 parallel.data=2 parallel.mode=fsdp parallel.fsdp_reduce=window
if [ "$cards" -ge 2 ]; then
  [ -z "$device_mpi" ] || train gpu-device-mpi cuda 2 parallel.staging=device
  train gpu-nccl cuda 2 parallel.transport=nccl
  train gpu-ddp-nccl cuda 2 parallel.data=2 parallel.transport=nccl
  train gpu-zero1-nccl cuda 2 parallel.data=2 parallel.mode=zero1 parallel.transport=nccl
  train gpu-fsdp-nccl cuda 2 parallel.data=2 parallel.mode=fsdp parallel.fsdp_reduce=window parallel.transport=nccl
else
  say "one GPU: messages from GPU to GPU are not tried (NCCL refuses two ranks on one)"
fi
# With the vocabulary rounded up to a multiple of 64, as is usual on GPUs: the rows of 50257 logits are not aligned.
for compute in bf16 fp32; do
  say "bench, $compute"
  timeout -k 30 1800 build/cuda/minipipe bench inputs/verify/gpt2_124m.toml "precision.compute=$compute" model.vocab=50304 \
    train.sequence=1024 train.microbatch_size=8 --repeat 15 --json "$out/bench-$compute.json" > "$out/bench-$compute.txt" 2> "$out/bench-$compute.log" ||
    say "bench failed: $(reason "$out/bench-$compute.log")"
done
/usr/bin/python3 jobs/table_gpu.py "$out" --card "$card"
