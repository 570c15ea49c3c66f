#pragma once

// Before a loop with a constant count: at most `count` rounds of it are written out, so that arrays in it become registers.
// (nvcc knows no such pragma and needs none: these loops are the host's.)
#if defined(__CUDACC__) || !defined(__GNUC__)
#define MINIPIPE_UNROLL(count)
#else
#define MINIPIPE_PRAGMA(text) _Pragma(#text)
#define MINIPIPE_UNROLL(count) MINIPIPE_PRAGMA(GCC unroll count)
#endif
