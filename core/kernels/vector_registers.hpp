#pragma once

// The vector registers of the host that code is compiled for: what a pack (packs.hpp) and lanes (lanes.hpp) fill. Bits of sums
// depend on it, as they do on the products of the libraries: kinds of processors differ in the last digits.
namespace minipipe::core {

#if defined(__AVX512F__)
inline constexpr int vector_bytes = 64;
#elif defined(__AVX__)
inline constexpr int vector_bytes = 32;
#else
inline constexpr int vector_bytes = 16;  // SSE2, NEON, and what no compiler has
#endif
#if defined(__AVX512F__) || defined(__aarch64__)
inline constexpr int vector_registers = 32;
#else
inline constexpr int vector_registers = 16;
#endif

}  // namespace minipipe::core
