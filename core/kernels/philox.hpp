#pragma once

#include <Random123/philox.h>

#include "core/kernels/dropout.hpp"
#include "core/types/types.hpp"

namespace minipipe::core {

// Philox4x32 with 10 rounds (Salmon et al., SC 2011): four 32-bit words as a function of a 64-bit key and a 128-bit counter.
KOKKOS_INLINE_FUNCTION r123::Philox4x32::ctr_type philox(std::uint64_t key, std::uint64_t low, std::uint64_t high) {
  const r123::Philox4x32::ctr_type counter = {{static_cast<std::uint32_t>(low), static_cast<std::uint32_t>(low >> 32),
                                               static_cast<std::uint32_t>(high), static_cast<std::uint32_t>(high >> 32)}};
  const r123::Philox4x32::key_type words = {{static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)}};
  return r123::Philox4x32()(counter, words);
}

// What a kernel needs of the options: word w of a counter keeps its element if w >= threshold.
template <class T>
struct DropoutMask {
  std::uint64_t seed = 0;
  std::uint64_t place = 0;  // layer and microbatch
  std::uint32_t threshold = 0;
  T keep_scale = 1;

  explicit DropoutMask(const Dropout& options)
      : seed(options.seed),
        place(options.layer | static_cast<std::uint64_t>(options.microbatch) << 32),
        threshold(static_cast<std::uint32_t>(options.probability * 4294967296.0)),
        keep_scale(static_cast<T>(1 / (1 - options.probability))) {}

  // The factors of elements 4 group .. 4 group + 3.
  KOKKOS_INLINE_FUNCTION void factors(T (&result)[4], std::uint64_t group) const {
    const auto words = philox(seed, group, place);
    for (int l = 0; l < 4; ++l) {
      result[l] = words.v[l] >= threshold ? keep_scale : T(0);
    }
  }
};

}  // namespace minipipe::core
