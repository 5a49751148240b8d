// Copies that change where things stand: keys and values in and out of a packed qkv, and what lies around
// an exchange of a split by tokens for one by heads.
#include <algorithm>

#include "base/context_split.h"
#include "kernels/cpu/functions.h"

namespace foretrain::cpu {

namespace {

// rows x parts pieces of w: by rows first on one side, by parts first on the other.
template <class T>
void relayout_heads(const RelayoutArgs& a, const T* x, T* y) {
    const std::int64_t rows = a.batch * (a.sequence / a.context), w = a.width / a.context;
    const bool split = a.part == RelayoutArgs::Part::split_heads;
    for (std::int64_t part = 0; part < a.context; ++part)
        for (std::int64_t row = 0; row < rows; ++row) {
            const std::int64_t by_rows = (row * a.context + part) * w, by_parts = (part * rows + row) * w;
            std::copy_n(x + (split ? by_rows : by_parts), w, y + (split ? by_parts : by_rows));
        }
}

// The tokens of a rank's part against those of whole sequences.
template <class T>
void relayout_sequence(const RelayoutArgs& a, const T* x, T* y) {
    const std::int64_t held = a.sequence / a.context, w = a.width / a.context;
    const bool join = a.part == RelayoutArgs::Part::join_sequence;
    for (std::int64_t part = 0; part < a.context; ++part)
        for (std::int64_t sample = 0; sample < a.batch; ++sample)
            for (std::int64_t i = 0; i < held; ++i) {
                const std::int64_t position = position_in_sequence(i, a.sequence, a.context, part);
                const std::int64_t in_part = ((part * a.batch + sample) * held + i) * w;
                const std::int64_t in_whole = (sample * a.sequence + position) * w;
                std::copy_n(x + (join ? in_part : in_whole), w, y + (join ? in_whole : in_part));
            }
}

template <class T>
void run(const KeyValueArgs& a, const KernelContext& c) {
    const std::int64_t group = a.heads / a.kv_heads, pair = 2 * a.head_dim;
    const std::int64_t stride = (group + 2) * a.head_dim, first = group * a.head_dim;  // of a group in qkv
    for (std::int64_t i = 0; i < a.rows * a.kv_heads; ++i) {
        const std::int64_t in_qkv = i * stride + first, apart = i * pair;
        std::copy_n(in<T>(c, 0) + (a.unpack ? apart : in_qkv), pair, out<T>(c, 1) + (a.unpack ? in_qkv : apart));
    }
}

}  // namespace

void key_value(const KeyValueArgs& a, const KernelContext& c) {
    with_type("key_value", a.type, [&]<class T>(T) { run<T>(a, c); });
}

void relayout(const RelayoutArgs& a, const KernelContext& c) {
    using Part = RelayoutArgs::Part;
    with_type("relayout", a.type, [&]<class T>(T) {
        if (a.part == Part::split_heads || a.part == Part::join_heads)
            relayout_heads(a, in<T>(c, 0), out<T>(c, 1));
        else
            relayout_sequence(a, in<T>(c, 0), out<T>(c, 1));
    });
}

}  // namespace foretrain::cpu
