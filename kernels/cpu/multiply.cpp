#include "kernels/cpu/multiply.h"

#define EIGEN_DONT_PARALLELIZE
#include <Eigen/Core>
#include <algorithm>

namespace foretrain::cpu {

namespace {

template <class T>
using Matrix = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
template <class T>
using ConstMap = Eigen::Map<const Matrix<T>, Eigen::Unaligned, Eigen::OuterStride<>>;

// Eigen's general product packs its operands, so addresses do not show in the result. Tiny and
// vector-shaped products take other paths in Eigen, which are not so careful: they go through here.
template <class T>
void multiply_plain(View<T> a, View<T> b, T* c, std::int64_t stride) {
    const std::int64_t a_row = a.transposed ? 1 : a.stride, a_column = a.transposed ? a.stride : 1;
    const std::int64_t b_row = b.transposed ? 1 : b.stride, b_column = b.transposed ? b.stride : 1;
    for (std::int64_t i = 0; i < a.rows; ++i)
        for (std::int64_t k = 0; k < a.columns; ++k) {
            const T x = a.data[i * a_row + k * a_column];
            for (std::int64_t j = 0; j < b.columns; ++j) c[i * stride + j] += x * b.data[k * b_row + j * b_column];
        }
}

// From here on packing pays for itself.
constexpr std::int64_t large = 128 * 128 * 128;

template <class T>
ConstMap<T> map(View<T> a) {  // as it lies in memory
    return a.transposed ? ConstMap<T>(a.data, a.columns, a.rows, Eigen::OuterStride<>(a.stride))
                        : ConstMap<T>(a.data, a.rows, a.columns, Eigen::OuterStride<>(a.stride));
}

}  // namespace

template <class T>
void multiply(bool add, View<T> a, View<T> b, T* c, std::int64_t stride) {
    if (!add)
        for (std::int64_t i = 0; i < a.rows; ++i) std::fill_n(c + i * stride, b.columns, T{0});
    if (a.rows == 1 || b.columns == 1 || a.rows + a.columns + b.columns < 24) return multiply_plain(a, b, c, stride);
    if (a.rows * a.columns * b.columns >= large) return add_blocked_product(a, b, c, stride);
    Eigen::Map<Matrix<T>, Eigen::Unaligned, Eigen::OuterStride<>> out(c, a.rows, b.columns,
                                                                      Eigen::OuterStride<>(stride));
    const ConstMap<T> left = map(a), right = map(b);
    if (a.transposed && b.transposed) out.noalias() += left.transpose() * right.transpose();
    if (a.transposed && !b.transposed) out.noalias() += left.transpose() * right;
    if (!a.transposed && b.transposed) out.noalias() += left * right.transpose();
    if (!a.transposed && !b.transposed) out.noalias() += left * right;
}

template void multiply<float>(bool, View<float>, View<float>, float*, std::int64_t);
template void multiply<double>(bool, View<double>, View<double>, double*, std::int64_t);

}  // namespace foretrain::cpu
