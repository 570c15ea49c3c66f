#pragma once

#include "core/kernels/packs.hpp"
#include "core/kernels/philox.hpp"

// Factors of dropout, many at a time: the words of philox() for 32 counters in a row, formed side by side on the host.
namespace minipipe::core {

#if defined(__CUDACC__)
inline constexpr bool host_packs = false;
#else
inline constexpr bool host_packs = on_host;
#endif
inline constexpr int philox_block = 128;  // words of 32 counters

// (nvcc loses the type of arrays of such vectors, and needs none of this: its kernels run elsewhere.)
#if !defined(__CUDACC__)
class PhiloxPacks {
 public:
  using Bits = PackTypes<float>::Bits;
  static constexpr int chains = 4;  // of dependent products, to hide their latency

  PhiloxPacks(std::uint64_t key, std::uint64_t high) : high_(high) {
    auto first = static_cast<std::uint32_t>(key), second = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < rounds; ++round) {
      keys_[round][0] = first;
      keys_[round][1] = second;
      first += PHILOX_W32_0;
      second += PHILOX_W32_1;
    }
  }

  // words[q][l] = word (16 q + l) % 4 of the counter (low + (16 q + l) / 4, high).
  void words(Bits (&result)[2 * chains], std::uint64_t low) const {
    // Each lane of 64 bits belongs to one counter; only its lower half counts.
    Wide c0[chains], c1[chains], c2[chains], c3[chains];
    for (int s = 0; s < chains; ++s) {
      c0[s] = Wide{0, 1, 2, 3, 4, 5, 6, 7} + (low + 8 * static_cast<std::uint64_t>(s));
      c1[s] = c0[s] >> 32;
      c2[s] = Wide{} + high_;
      c3[s] = Wide{} + (high_ >> 32);
    }
    MINIPIPE_UNROLL(10)
    for (int round = 0; round < rounds; ++round) {
      for (int s = 0; s < chains; ++s) {
        const Wide even = product(c0[s], PHILOX_M4x32_0), odd = product(c2[s], PHILOX_M4x32_1);
        c0[s] = odd >> 32 ^ c1[s] ^ keys_[round][0];
        c1[s] = odd;
        c2[s] = even >> 32 ^ c3[s] ^ keys_[round][1];
        c3[s] = even;
      }
    }
    constexpr Bits lower = {0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30};
    for (int s = 0; s < chains; ++s) {
      const Wide first = (Wide)__builtin_shuffle((Bits)c0[s], (Bits)c1[s], lower);
      const Wide second = (Wide)__builtin_shuffle((Bits)c2[s], (Bits)c3[s], lower);
      result[2 * s] = (Bits)__builtin_shuffle(first, second, Wide{0, 8, 1, 9, 2, 10, 3, 11});
      result[2 * s + 1] = (Bits)__builtin_shuffle(first, second, Wide{4, 12, 5, 13, 6, 14, 7, 15});
    }
  }

 private:
  typedef std::uint64_t Wide __attribute__((vector_size(64)));
  static constexpr int rounds = 10;

  static Wide product(Wide a, std::uint32_t factor) {
#if defined(MINIPIPE_PACKS_AVX512)
    return (Wide)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)(Wide{} + factor));
#else
    return (a & 0xffffffffU) * factor;
#endif
  }

  std::uint64_t high_;
  std::uint64_t keys_[rounds][2];
};
#endif

// body(lanes, i, factors) covers all i < count, independent of each other; the factors are those of `mask`.
template <class C, class Body>
void for_dropped(const std::string& label, const ExecutionSpace& space, std::int64_t count, const DropoutMask<C>& mask,
                 const Body& body) {
#if !defined(__CUDACC__)
  if constexpr (host_packs && std::is_same_v<C, float>) {
    constexpr std::int64_t block = 4096;
    const PhiloxPacks philox(mask.seed, mask.place);
    Kokkos::parallel_for(label, RowRange(space, 0, (count + block - 1) / block), [=](std::int64_t b) {
      const std::int64_t end = b * block + block < count ? b * block + block : count;
      for (std::int64_t first = b * block; first < end; first += philox_block) {
        PhiloxPacks::Bits words[2 * PhiloxPacks::chains];
        philox.words(words, static_cast<std::uint64_t>(first / 4));
        const auto factors = [&](int q) {
          return words[q] >= mask.threshold ? Pack<float>{} + mask.keep_scale : Pack<float>{};
        };
        if (first + philox_block <= end) {
          MINIPIPE_UNROLL(8)
          for (int q = 0; q < 2 * PhiloxPacks::chains; ++q) body(WholePack{}, first + q * pack_size<float>, factors(q));
        } else {
          for (int q = 0; first + q * pack_size<float> < end; ++q) {
            const std::int64_t place = first + q * pack_size<float>, next = place + pack_size<float>;
            each_pack<float>(place, next < end ? next : end,
                             [&](const auto& lanes, std::int64_t i) { body(lanes, i, factors(q)); });
          }
        }
      }
    });
    return;
  }
#endif
  if constexpr (!(host_packs && std::is_same_v<C, float>)) {
    for_elements(
        label, space, (count + 3) / 4, KOKKOS_LAMBDA(const std::int64_t group) {
          C factors[4];
          mask.factors(factors, static_cast<std::uint64_t>(group));
          for (int l = 0; l < 4; ++l) {
            const std::int64_t i = 4 * group + l;
            if (i < count) body(OneLane{}, i, factors[l]);
          }
        });
  }
}

}  // namespace minipipe::core
