#pragma once

#include <span>

#include "core/types/types.hpp"

namespace minipipe::core {

// out = a + b (the residual connection); out may be a or b.
template <class T>
void residual_add(const ExecutionSpace& space, Vector<T> out, ConstVector<T> a, ConstVector<T> b);

// values *= factor.
template <class T>
void scale(const ExecutionSpace& space, Vector<T> values, T factor);

// values = value.
template <class T>
void fill(const ExecutionSpace& space, Vector<T> values, T value);

// The same for many arrays in a few launches.
template <class T>
void fill(const ExecutionSpace& space, std::span<const Vector<T>> arrays, std::type_identity_t<T> value);

// out = values in another type; both of the same size.
template <class To, class From>
void convert(const ExecutionSpace& space, Vector<To> out, ConstVector<From> values);

// out = values; both of the same size.
template <class T>
void copy(const ExecutionSpace& space, Vector<T> out, ConstVector<T> values);

}  // namespace minipipe::core
