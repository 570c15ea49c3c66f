#!/usr/bin/env bash
# Installs what minipipe needs on Debian and, once the program is built, prepares the sample text. Safe to run again: what is
# there is kept.
#   jobs/setup.sh [--cuda] [--slurm] [--no-data]
# --slurm adds a Slurm to test the batch scripts with; where it cannot be had, setting up goes on and that test is skipped.
# Environment: MINIPIPE_CACHE (where dependencies built from source go), MINIPIPE_JOBS (parallel compile jobs),
# MINIPIPE_CUDA_ARCH (default: that of this machine's GPU, else that of the last time, else sm_80),
# Kokkos_ROOT (an installed Kokkos and Kokkos Kernels to use instead of building them).
set -euo pipefail
. "$(dirname "$0")/lib/common.sh"
. "$root/jobs/lib/kokkos.sh"

cuda=no
slurm=no
data=yes
for argument in "$@"; do
  case $argument in
    --cuda) cuda=yes ;;
    --slurm) slurm=yes ;;
    --no-data) data=no ;;
    -h | --help) usage ;;
    *) die "unknown argument '$argument'; known: --cuda, --slurm, --no-data" ;;
  esac
done

packages=(build-essential cmake ninja-build ccache pkg-config git dpkg-dev clang-format
  libopenmpi-dev openmpi-bin libhdf5-openmpi-dev libopenblas-serial-dev libdnnl-dev
  libtomlplusplus-dev libcli11-dev nlohmann-json3-dev librandom123-dev libsentencepiece-dev
  libgtest-dev libgmock-dev python3 python3-numpy python3-h5py python3-matplotlib dict-gcide)

missing_of() { # PACKAGE... ; prints those that are not installed
  local package
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${Status}' "$package" 2> /dev/null)" = "install ok installed" ] || printf '%s\n' "$package"
  done
}
# --no-install-recommends: documentation and graphical front ends are not needed on a compute node.
install_packages() { # PACKAGE...
  DEBIAN_FRONTEND=noninteractive "${elevate[@]}" apt-get -qq -y -o Acquire::Retries=3 --no-install-recommends install "$@" > /dev/null
}

mapfile -t missing < <(missing_of "${packages[@]}")
extra=()
[ "$slurm" = no ] || mapfile -t extra < <(missing_of slurmctld slurmd slurm-client munge)
if [ ${#missing[@]} -gt 0 ] || [ ${#extra[@]} -gt 0 ]; then
  if [ "$(id -u)" = 0 ]; then
    elevate=()
  elif command -v sudo > /dev/null && sudo -n true 2> /dev/null; then
    elevate=(sudo)
  elif [ ${#missing[@]} -eq 0 ]; then
    say "no Slurm: this user may not install ${extra[*]}"
    extra=()
  else
    die "these packages are missing and this user may not install them; ask an administrator for:
  apt-get install ${missing[*]}"
  fi
fi
if [ ${#missing[@]} -gt 0 ] || [ ${#extra[@]} -gt 0 ]; then
  "${elevate[@]}" apt-get -qq update || [ ${#missing[@]} -eq 0 ]
fi
if [ ${#missing[@]} -gt 0 ]; then
  say "installing ${#missing[@]} packages: ${missing[*]}"
  install_packages "${missing[@]}"
fi
if [ ${#extra[@]} -gt 0 ]; then
  say "installing Slurm: ${extra[*]}"
  install_packages "${extra[@]}" || say "no Slurm: the packages cannot be installed"
fi

mkdir -p "$cache"
# Two at a time would build into the same folders.
exec 9> "$cache/setup.lock"
flock -n 9 || { say "waiting for another jobs/setup.sh"; flock 9 || true; }
MINIPIPE_CUDA_ARCH=${MINIPIPE_CUDA_ARCH:-$(card_arch)}
# shellcheck disable=SC1091
[ -n "$MINIPIPE_CUDA_ARCH" ] || [ ! -f "$cache/setup.env" ] || MINIPIPE_CUDA_ARCH=$(. "$cache/setup.env" && printf %s "$MINIPIPE_CUDA_ARCH")
if [ -n "${Kokkos_ROOT:-}" ] && [ "$cuda" = no ]; then
  say "using the Kokkos in Kokkos_ROOT=$Kokkos_ROOT"
  host=$Kokkos_ROOT
elif [ -n "$(apt-cache policy libkokkos-dev 2> /dev/null | sed -n 's/.*Candidate: \([0-9].*\)/\1/p')" ] &&
  [ -n "$(apt-cache policy libkokkos-kernels-dev 2> /dev/null | sed -n 's/.*Candidate: \([0-9].*\)/\1/p')" ] && [ "$(id -u)" = 0 ]; then
  apt-get -qq -y install libkokkos-dev libkokkos-kernels-dev > /dev/null
  host=/usr
else
  host=$(build_kokkos host | tail -1)
fi
if [ "$cuda" = yes ]; then
  nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2> /dev/null || true)
  [ -n "$nvcc" ] || die "--cuda: nvcc was not found on PATH nor in /usr/local/cuda/bin; install the CUDA toolkit or add its bin folder to PATH"
  PATH=$(dirname "$nvcc"):$PATH
  export PATH
  device=$(build_kokkos cuda | tail -1)
else
  device=$(kokkos_prefix cuda)
  [ -f "$device/complete" ] || device=
fi
{
  printf 'export MINIPIPE_KOKKOS_HOST=%q\n' "$host"
  printf 'export MINIPIPE_KOKKOS_CUDA=%q\n' "$device"
  printf 'export MINIPIPE_CUDA_ARCH=%q\n' "${MINIPIPE_CUDA_ARCH:-sm_80}"
} > "$cache/setup.env.tmp"
mv "$cache/setup.env.tmp" "$cache/setup.env"
if [ "$data" = yes ] && [ -x "$minipipe" ]; then
  "$root/jobs/prepare-sample.sh"
fi
say "Kokkos: $host${device:+, CUDA: $device}"
