// Matrix products on strided views: what the GEMM kernel and the tiles of attention call.
//
//   multiply(false, View<float>{q, 64, 64, stride}, transposed(View<float>{k, 64, 64, stride}), scores, 64);
#pragma once

#include <cstdint>

namespace foretrain::cpu {

// A row-major matrix whose rows lie `stride` elements apart, or its transpose.
template <class T>
struct View {
    const T* data;
    std::int64_t rows, columns;  // as used: after the transposition
    std::int64_t stride;
    bool transposed = false;
};

template <class T>
View<T> transposed(View<T> a) {
    return {a.data, a.columns, a.rows, a.stride, !a.transposed};
}

// C (a.rows, b.columns) = A B, or += A B. C overlaps neither A nor B.
template <class T>
void multiply(bool add, View<T> a, View<T> b, T* c, std::int64_t stride);

// C += A B for large matrices (kernels/cpu/blocked_multiply.cpp); `multiply` chooses.
template <class T>
void add_blocked_product(View<T> a, View<T> b, T* c, std::int64_t stride);

}  // namespace foretrain::cpu
