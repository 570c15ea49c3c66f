#pragma once

// The vector registers of the host that code is compiled for. (With nvcc's own vector types and crashes in mind, code of packs
// and lanes uses the intrinsics of an instruction set only where the compiler is not nvcc.)
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
