// The product of large matrices, in blocks that stay in the caches: an eighth faster than Eigen's with
// AVX-512, and matrix products are most of what a training step costs.
//
// The loops are those of Goto and of BLIS. A (depth x columns) block of B is packed into panels of
// `tile_columns`, a (rows x depth) block of A into panels of `tile_rows`, both padded with zeros; the
// innermost kernel holds one tile of C in registers and runs down the depth.
#include <algorithm>

#include "kernels/cpu/functions.h"
#include "kernels/cpu/multiply.h"
#include "kernels/cpu/pack.h"

namespace foretrain::cpu {

namespace {

// 2 x tile_rows accumulators and a few operands fill the registers: 32 with AVX-512, else 16.
constexpr std::int64_t tile_rows = pack_bytes == 64 ? 12 : 4;
template <class T>
constexpr std::int64_t tile_columns = 2 * Pack<T>::lanes;
constexpr std::int64_t block_depth = 128, block_rows = 16 * tile_rows, block_columns = 3072;

// One panel: `width` lanes (rows of A, columns of B) by depth, stored (depth, width). Element (k, lane)
// lies at from[k * depth_step + lane * lane_step], and one of the steps is 1; lanes from `valid` on are 0.
template <class T, std::int64_t width>
void pack_panel(const T* from, std::int64_t depth_step, std::int64_t lane_step, std::int64_t depth, std::int64_t valid,
                T* packed) {
    if (valid < width) std::fill_n(packed, depth * width, T{0});
    if (depth_step == 1) {
        for (std::int64_t lane = 0; lane < valid; ++lane)
            for (std::int64_t k = 0; k < depth; ++k) packed[k * width + lane] = from[lane * lane_step + k];
    } else if (valid == width) {
        for (std::int64_t k = 0; k < depth; ++k) std::copy_n(from + k * depth_step, width, packed + k * width);
    } else {
        for (std::int64_t k = 0; k < depth; ++k) std::copy_n(from + k * depth_step, valid, packed + k * width);
    }
}

// A block of A or B as panels of `width` lanes. `a` is seen with its lanes as rows.
template <class T, std::int64_t width>
void pack(View<T> a, std::int64_t first, std::int64_t lanes, std::int64_t first_depth, std::int64_t depth, T* packed) {
    const std::int64_t lane_step = a.transposed ? 1 : a.stride, depth_step = a.transposed ? a.stride : 1;
    for (std::int64_t panel = 0; panel < lanes; panel += width, packed += depth * width)
        pack_panel<T, width>(a.data + (first + panel) * lane_step + first_depth * depth_step, depth_step, lane_step,
                             depth, std::min(width, lanes - panel), packed);
}

// C (rows, columns) += one panel of A times one panel of B; rows and columns are at most a tile's.
template <class T>
void multiply_tile(std::int64_t depth, const T* a, const T* b, T* c, std::int64_t stride, std::int64_t rows,
                   std::int64_t columns) {
    using Vector = typename Pack<T>::Vector;
    constexpr std::int64_t lanes = Pack<T>::lanes;
    for (std::int64_t r = 0; r < rows; ++r) {  // wanted at the end, and often far away
        __builtin_prefetch(c + r * stride, 1);
        __builtin_prefetch(c + r * stride + lanes, 1);
    }
    Vector sum[tile_rows][2] = {};
    for (std::int64_t k = 0; k < depth; ++k, a += tile_rows, b += 2 * lanes) {
        const Vector left = Pack<T>::load(b).v, right = Pack<T>::load(b + lanes).v;
#pragma GCC unroll 16
        for (std::int64_t r = 0; r < tile_rows; ++r) {
            sum[r][0] += a[r] * left;
            sum[r][1] += a[r] * right;
        }
    }
    if (rows == tile_rows && columns == 2 * lanes) {
#pragma GCC unroll 16
        for (std::int64_t r = 0; r < tile_rows; ++r) {
            T* row = c + r * stride;
            (Pack<T>::load(row) + Pack<T>(sum[r][0])).store(row);
            (Pack<T>::load(row + lanes) + Pack<T>(sum[r][1])).store(row + lanes);
        }
        return;
    }
    T tile[tile_rows][2 * lanes];
    for (std::int64_t r = 0; r < tile_rows; ++r) {
        Pack<T>(sum[r][0]).store(tile[r]);
        Pack<T>(sum[r][1]).store(tile[r] + lanes);
    }
    for (std::int64_t r = 0; r < rows; ++r)
        for (std::int64_t j = 0; j < columns; ++j) c[r * stride + j] += tile[r][j];
}

// C (rows, columns) += a packed block of A times a packed block of B.
template <class T>
void multiply_block(std::int64_t rows, std::int64_t columns, std::int64_t depth, const T* left, const T* right, T* c,
                    std::int64_t stride) {
    for (std::int64_t j = 0; j < columns; j += tile_columns<T>)
        for (std::int64_t i = 0; i < rows; i += tile_rows)
            multiply_tile(depth, left + i * depth, right + j * depth, c + i * stride + j, stride,
                          std::min(tile_rows, rows - i), std::min(tile_columns<T>, columns - j));
}

}  // namespace

template <class T>
void add_blocked_product(View<T> a, View<T> b, T* c, std::int64_t stride) {
    T* left = scratch<T, 8>(block_rows * block_depth);
    T* right = scratch<T, 9>(block_depth * round_up(std::min(block_columns, b.columns), tile_columns<T>));
    for (std::int64_t j = 0; j < b.columns; j += block_columns) {
        const std::int64_t columns = std::min(block_columns, b.columns - j);
        for (std::int64_t k = 0; k < a.columns; k += block_depth) {
            const std::int64_t depth = std::min(block_depth, a.columns - k);
            pack<T, tile_columns<T>>(transposed(b), j, columns, k, depth, right);
            for (std::int64_t i = 0; i < a.rows; i += block_rows) {
                const std::int64_t rows = std::min(block_rows, a.rows - i);
                pack<T, tile_rows>(a, i, rows, k, depth, left);
                multiply_block(rows, columns, depth, left, right, c + i * stride + j, stride);
            }
        }
    }
}

template void add_blocked_product<float>(View<float>, View<float>, float*, std::int64_t);
template void add_blocked_product<double>(View<double>, View<double>, double*, std::int64_t);

}  // namespace foretrain::cpu
