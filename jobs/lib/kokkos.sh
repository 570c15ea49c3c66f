# shellcheck shell=bash disable=SC2154
# Builds Kokkos and Kokkos Kernels from Debian's source package `trilinos` into the cache. Sourced by jobs/setup.sh.

# Downloads the source package once and unpacks only the two folders that are used.
# Source entries are switched on in a temporary copy of the machine's own apt sources, so the machine's lists stay as they are.
fetch_kokkos_source() { # DESTINATION
  local destination=$1 work
  work=$(mktemp -d)
  mkdir -p "$work/parts" "$work/lists/partial" "$work/download" "$destination"
  cp /etc/apt/sources.list.d/*.sources /etc/apt/sources.list.d/*.list "$work/parts/" 2> /dev/null || true
  [ -f /etc/apt/sources.list ] && cp /etc/apt/sources.list "$work/parts/main.list"
  sed -i 's/^Types:.*/Types: deb-src/' "$work"/parts/*.sources 2> /dev/null || true
  sed -i 's/^deb /deb-src /' "$work"/parts/*.list 2> /dev/null || true
  chmod -R a+rX "$work"
  local options=(-o "Dir::Etc::sourcelist=/dev/null" -o "Dir::Etc::sourceparts=$work/parts" -o "Dir::State::lists=$work/lists"
    -o "APT::Sandbox::User=root" -o "Acquire::Retries=3")
  (cd "$work/download" && apt-get "${options[@]}" -qq update &&
    apt-get "${options[@]}" -qq source --download-only trilinos) || die "apt-get source trilinos failed: set Kokkos_ROOT and KokkosKernels_ROOT to an installed Kokkos (3.4 to 5.x) instead"
  local archive
  archive=$(ls "$work"/download/trilinos_*.orig.tar.*)
  tar -xf "$archive" -C "$destination" --strip-components=2 --wildcards '*/packages/kokkos/*' '*/packages/kokkos-kernels/*' ||
    die "$archive cannot be unpacked: is it whole, and is there space in $destination?"
  rm -rf "$work"
}

# Options are part of the cache key: changing one builds a new copy beside the old one.
kokkos_options() { # VARIANT (host | cuda)
  # Kokkos 3.4 refuses C++20 under nvcc; C++20 programs can still use what is built as C++17.
  local standard=20
  [ "$1" = cuda ] && standard=17
  printf '%s\n' -DCMAKE_BUILD_TYPE=Release -DCMAKE_CXX_STANDARD=$standard -DKokkos_CXX_STANDARD=$standard -DCMAKE_POSITION_INDEPENDENT_CODE=ON \
    -DKokkos_ENABLE_SERIAL=ON -DKokkos_ENABLE_OPENMP=ON -DKokkos_ENABLE_TESTS=OFF -DKokkos_ENABLE_EXAMPLES=OFF
  if [ "$1" = cuda ]; then
    printf '%s\n' -DKokkos_ENABLE_CUDA=ON -DKokkos_ENABLE_CUDA_LAMBDA=ON -DKokkos_ENABLE_CUDA_CONSTEXPR=ON -DKokkos_ARCH_AMPERE80=ON
  fi
}

# Kokkos 3.4 predates CUDA 13: one changed signature, and a half type that no longer compiles (ours is in core/types).
write_cuda_shim() { # FILE
  cat > "$1" << 'HEADER'
#pragma once
#define KOKKOS_CUDA_HALF_HPP_
#ifdef __CUDACC__
#include <cuda_runtime_api.h>
#if CUDART_VERSION >= 13000
inline cudaError_t cudaMemPrefetchAsync(const void* pointer, size_t bytes, int device, cudaStream_t stream) {
  cudaMemLocation location{};
  location.type = device < 0 ? cudaMemLocationTypeHost : cudaMemLocationTypeDevice;
  location.id = device < 0 ? 0 : device;
  return cudaMemPrefetchAsync(pointer, bytes, location, 0U, stream);
}
#endif
#endif
HEADER
}

kokkos_prefix() { # VARIANT; prints where build_kokkos installs it, whether it is there or not
  local variant=$1 key
  key=$({
    kokkos_options "$variant"
    if [ "$variant" = cuda ]; then
      printf "%s" "${MINIPIPE_CUDA_ARCH:-sm_80}"
      declare -f write_cuda_shim
    fi
    c++ --version | head -1
  } | sha256sum | cut -c1-10)
  printf '%s\n' "$cache/kokkos-3.4.1-$variant-$key"
}

build_kokkos() { # VARIANT, prints the install prefix on the last line
  local variant=$1 prefix work
  prefix=$(kokkos_prefix "$variant")
  if [ -f "$prefix/complete" ]; then
    printf '%s\n' "$prefix"
    return
  fi
  mkdir -p "$cache"
  local source=$cache/kokkos-source-3.4.1
  if [ ! -f "$source/complete" ]; then
    say "fetching the source of Kokkos from Debian's package trilinos (166 MB)" >&2
    rm -rf "$source"
    fetch_kokkos_source "$source" >&2
    touch "$source/complete"
  fi
  say "building Kokkos ($variant) into $prefix" >&2
  work=$(mktemp -d)
  local extra=()
  if [ "$variant" = cuda ]; then
    mkdir -p "$prefix/include"
    write_cuda_shim "$prefix/include/minipipe_cuda13_shim.hpp"
    export NVCC_WRAPPER_DEFAULT_COMPILER=${CXX:-g++} MINIPIPE_CUDA_ARCH=${MINIPIPE_CUDA_ARCH:-sm_80}
    # Kokkos 3.4 knows no architecture after sm_86, refuses to start on another than the one it was built for, and its compiler
    # wrapper refuses two. Nothing but the compiler's option depends on the name.
    sed -i 's/^CHECK_CUDA_ARCH(AMPERE80 .*/CHECK_CUDA_ARCH(AMPERE80 $ENV{MINIPIPE_CUDA_ARCH})/' "$source/kokkos/cmake/kokkos_arch.cmake"
    extra=(-DCMAKE_CXX_COMPILER="$source/kokkos/bin/nvcc_wrapper"
      "-DCMAKE_CXX_FLAGS=-include $prefix/include/minipipe_cuda13_shim.hpp -arch=$MINIPIPE_CUDA_ARCH")
  fi
  local options
  mapfile -t options < <(kokkos_options "$variant")
  { cmake -S "$source/kokkos" -B "$work/kokkos" "${options[@]}" "${extra[@]}" -DCMAKE_INSTALL_PREFIX="$prefix" &&
    cmake --build "$work/kokkos" --parallel "$jobs_parallel" --target install &&
    cmake -S "$source/kokkos-kernels" -B "$work/kernels" "${options[@]}" "${extra[@]}" \
      -DCMAKE_INSTALL_PREFIX="$prefix" -DKokkos_ROOT="$prefix" -DKokkosKernels_ADD_DEFAULT_ETI=OFF \
      -DKokkosKernels_INST_DOUBLE=OFF -DKokkosKernels_INST_LAYOUTLEFT=OFF -DKokkosKernels_INST_LAYOUTRIGHT=OFF \
      -DKokkosKernels_INST_OFFSET_INT=OFF -DKokkosKernels_INST_OFFSET_SIZE_T=OFF -DKokkosKernels_INST_ORDINAL_INT=OFF \
      -DKokkosKernels_INST_EXECSPACE_OPENMP=OFF -DKokkosKernels_INST_EXECSPACE_SERIAL=OFF -DKokkosKernels_INST_MEMSPACE_HOSTSPACE=OFF \
      -DKokkosKernels_ENABLE_TPL_BLAS=ON -DKokkosKernels_ENABLE_TESTS=OFF &&
    cmake --build "$work/kernels" --parallel "$jobs_parallel" --target install; } > "$cache/kokkos-$variant.log" 2>&1 ||
    { tail -40 "$cache/kokkos-$variant.log" >&2; die "building Kokkos ($variant) failed: the whole log is $cache/kokkos-$variant.log"; }
  rm -rf "$work"
  touch "$prefix/complete"
  printf '%s\n' "$prefix"
}
