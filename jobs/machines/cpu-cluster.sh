# Example of a CPU cluster with environment modules. Copy it, change the names, and submit with MINIPIPE_MACHINE=that file.
# shellcheck shell=bash
export MINIPIPE_MODULES="gcc/12 openmpi/4.1 hdf5/1.14-parallel kokkos/4.5"
# One rank per NUMA domain computes fastest where a stage has several cores; then: sbatch --cpus-per-task=CORES.
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1} OMP_PROC_BIND=close OMP_PLACES=cores
# MPI of the site over PMIx; pmi2 for MPICH and Intel MPI.
export MINIPIPE_MPI=pmix
