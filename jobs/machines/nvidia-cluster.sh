# Example of a cluster with NVIDIA GPUs, one rank per GPU. Copy it, change the names, and submit with MINIPIPE_MACHINE=that file
# and sbatch --gpus-per-task=1. The program is the CUDA build: jobs/setup.sh --cuda, on a node with the
# GPU or with its MINIPIPE_CUDA_ARCH (sm_90 for H100), then cmake --preset cuda.
# shellcheck shell=bash
export MINIPIPE_MODULES="gcc/12 cuda/12.4 openmpi/4.1 hdf5/1.14-parallel"
export MINIPIPE=${MINIPIPE:-$root/build/cuda/minipipe}
export OMP_NUM_THREADS=1 OMP_PROC_BIND=false
export MINIPIPE_MPI=pmix
# Kokkos chooses the GPU by the rank on the node where all GPUs of the node are visible to every rank.
export KOKKOS_MAP_DEVICE_ID_BY=mpi_rank
