#pragma once

#include "core/kernels/pack_loops.hpp"
#include "core/kernels/philox.hpp"

// Factors of dropout, many at a time: the words of philox() for some counters in a row, formed side by side on the host.
namespace minipipe::core {

#if defined(__CUDACC__)
inline constexpr bool host_packs = false;
#else
inline constexpr bool host_packs = on_host;
#endif

// (nvcc loses the type of arrays of such vectors, and needs none of this: its kernels run elsewhere.)
#if !defined(__CUDACC__)
class PhiloxPacks {
 public:
  using Bits = PackTypes<float>::Bits;
  static constexpr int chains = vector_registers / 8;  // of dependent products with four packs each, to hide their latency
  static constexpr int block = 2 * chains * pack_size<float>;  // words that are formed together

  PhiloxPacks(std::uint64_t key, std::uint64_t high) : high_(high) {
    auto first = static_cast<std::uint32_t>(key), second = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < rounds; ++round) {
      keys_[round][0] = first;
      keys_[round][1] = second;
      first += PHILOX_W32_0;
      second += PHILOX_W32_1;
    }
  }

  // result[q][l], with w = pack_size q + l: word w % 4 of the counter (low + w / 4, high).
  void words(Bits (&result)[2 * chains], std::uint64_t low) const {
    // Each lane of 64 bits belongs to one counter; only its lower half counts.
    Wide c0[chains], c1[chains], c2[chains], c3[chains];
    for (int s = 0; s < chains; ++s) {
      c0[s] = counters(std::make_integer_sequence<int, counted>()) + (low + static_cast<std::uint64_t>(s * counted));
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
    for (int s = 0; s < chains; ++s) {
      const Wide first = lower_halves(c0[s], c1[s]), second = lower_halves(c2[s], c3[s]);
      result[2 * s] = interleaved<0>(first, second, std::make_integer_sequence<int, counted>());
      result[2 * s + 1] = interleaved<counted / 2>(first, second, std::make_integer_sequence<int, counted>());
    }
  }

 private:
  typedef std::uint64_t Wide __attribute__((vector_size(vector_bytes)));
  static constexpr int rounds = 10, counted = pack_size<double>;  // counters of a pack

  template <int... L>
  static Wide counters(std::integer_sequence<int, L...>) {
    return Wide{L...};
  }
  // The lower halves of the lanes of a and b by turns.
  static Wide lower_halves(Wide a, Wide b) { return lower_halves(a, b, std::make_integer_sequence<int, pack_size<float>>()); }
  template <int... L>
  static Wide lower_halves(Wide a, Wide b, std::integer_sequence<int, L...>) {
    return (Wide)__builtin_shuffle((Bits)a, (Bits)b, Bits{(L % 2 == 0 ? L : pack_size<float> + L - 1)...});
  }
  // Lanes of a and b by turns, from lane First on.
  template <int First, int... L>
  static Bits interleaved(Wide a, Wide b, std::integer_sequence<int, L...>) {
    return (Bits)__builtin_shuffle(a, b, Wide{(First + L / 2 + L % 2 * counted)...});
  }
  static Wide product(Wide a, std::uint32_t factor) {
#if defined(MINIPIPE_PACKS_AVX512)
    return (Wide)_mm512_maskz_mul_epu32(0xff, (__m512i)a, (__m512i)(Wide{} + factor));
#elif defined(MINIPIPE_PACKS_AVX2)
    return (Wide)_mm256_mul_epu32((__m256i)a, (__m256i)(Wide{} + factor));
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
    static_assert(block % PhiloxPacks::block == 0);
    const PhiloxPacks philox(mask.seed, mask.place);
    Kokkos::parallel_for(label, RowRange(space, 0, (count + block - 1) / block), [=](std::int64_t b) {
      const std::int64_t end = b * block + block < count ? b * block + block : count;
      for (std::int64_t first = b * block; first < end; first += PhiloxPacks::block) {
        PhiloxPacks::Bits words[2 * PhiloxPacks::chains];
        philox.words(words, static_cast<std::uint64_t>(first / 4));
        const auto factors = [&](int q) {
          return words[q] >= mask.threshold ? Pack<float>{} + mask.keep_scale : Pack<float>{};
        };
        if (first + PhiloxPacks::block <= end) {
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
