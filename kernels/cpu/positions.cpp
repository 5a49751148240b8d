// What tells a token and its place: embedding, learned positions, rotary positions.
#include <algorithm>
#include <cmath>

#include "base/context_split.h"
#include "kernels/cpu/functions.h"

namespace foretrain::cpu {

namespace {

template <class T>
void add_row(const T* from, T* to, std::int64_t width) {
    for (std::int64_t j = 0; j < width; ++j) to[j] += from[j];
}

// Calls body(token index, row of this rank's shard or -1).
template <class Body>
void each_token(const EmbeddingArgs& a, const KernelContext& c, Body&& body) {
    const std::int32_t* tokens = in<std::int32_t>(c, 0);
    const std::int64_t first = c.tensor_rank * a.rows;
    for (std::int64_t i = 0; i < a.tokens; ++i) {
        const std::int64_t row = tokens[i] - first;
        body(i, row >= 0 && row < a.rows ? row : -1);
    }
}

template <class T>
void run(const EmbeddingArgs& a, const KernelContext& c) {
    if (a.backward) {
        const T* dy = in<T>(c, 1);
        T* dtable = out<T>(c, 2);
        if (!a.accumulate) std::fill_n(dtable, a.rows * a.width, T{0});
        each_token(a, c, [&](std::int64_t i, std::int64_t row) {
            if (row >= 0) add_row(dy + i * a.width, dtable + row * a.width, a.width);
        });
        return;
    }
    const T* table = in<T>(c, 1);
    T* y = out<T>(c, 2);
    each_token(a, c, [&](std::int64_t i, std::int64_t row) {
        if (row >= 0)
            std::copy_n(table + row * a.width, a.width, y + i * a.width);
        else
            std::fill_n(y + i * a.width, a.width, T{0});
    });
}

template <class T>
void run(const PositionsArgs& a, const KernelContext& c) {
    const std::int64_t first = a.split_tokens ? c.tensor_rank * a.tokens : 0;
    const std::int64_t held = a.sequence / a.context;  // of each sequence
    const auto row = [&](std::int64_t i) {
        return position_in_sequence((first + i) % held, a.sequence, a.context, c.context_rank) * a.width;
    };
    if (!a.backward) {
        T* x = out<T>(c, 0);
        for (std::int64_t i = 0; i < a.tokens; ++i) add_row(in<T>(c, 1) + row(i), x + i * a.width, a.width);
        return;
    }
    T* dtable = out<T>(c, 1);
    if (!a.accumulate) std::fill_n(dtable, a.table_rows * a.width, T{0});
    for (std::int64_t i = 0; i < a.tokens; ++i) add_row(in<T>(c, 0) + i * a.width, dtable + row(i), a.width);
}

// Cosines and sines of the angles: (sequence, 2, half). A pure function of its arguments, and dearer
// than the rotation itself, so each thread keeps the last one.
template <class T>
const T* rotations(const RopeArgs& a) {
    struct Table {
        std::int64_t sequence = 0, turned = 0;
        double theta = 0;
        std::vector<T> values;
    };
    thread_local Table table;
    if (table.sequence >= a.sequence && table.turned == a.turned() && table.theta == a.theta)
        return table.values.data();
    const std::int64_t half = a.turned() / 2;
    table = {a.sequence, a.turned(), a.theta, std::vector<T>(static_cast<std::size_t>(a.sequence * 2 * half))};
    T* at = table.values.data();
    for (std::int64_t s = 0; s < a.sequence; ++s, at += 2 * half)
        for (std::int64_t i = 0; i < half; ++i) {
            const double power = -2.0 * static_cast<double>(i) / static_cast<double>(a.turned());
            const double angle = static_cast<double>(s) * std::pow(a.theta, power);
            at[i] = static_cast<T>(std::cos(angle));
            at[half + i] = static_cast<T>(std::sin(angle));
        }
    return table.values.data();
}

template <class T>
void turn(T* head, const T* rotation, std::int64_t half, T direction) {
    const T *cosine = rotation, *sine = rotation + half;
    for (std::int64_t i = 0; i < half; ++i) {
        const T low = head[i], high = head[half + i], s = direction * sine[i];
        head[i] = low * cosine[i] - high * s;
        head[half + i] = high * cosine[i] + low * s;
    }
}

template <class T>
void run(const RopeArgs& a, T* qkv, std::int64_t context_rank) {
    const std::int64_t half = a.turned() / 2, heads = a.heads / a.kv_heads + 1;  // queries and the key of a group
    const std::int64_t group_width = (heads + 1) * a.head_dim;
    const T* rotation = rotations<T>(a);
    const std::int64_t held = a.sequence / a.context;  // of each sequence
    for (std::int64_t row = 0; row < a.batch * held; ++row) {
        const T* turned = rotation + position_in_sequence(row % held, a.sequence, a.context, context_rank) * 2 * half;
        for (std::int64_t g = 0; g < a.kv_heads; ++g) {
            T* group = qkv + (row * a.kv_heads + g) * group_width;
            for (std::int64_t h = 0; h < heads; ++h) turn(group + h * a.head_dim, turned, half, T(a.backward ? -1 : 1));
        }
    }
}

}  // namespace

void embedding(const EmbeddingArgs& a, const KernelContext& c) {
    if (a.backward) require_same("embedding_backward", a.type, a.gradient);
    with_type("embedding", a.type, [&]<class T>(T) { run<T>(a, c); });
}

void positions(const PositionsArgs& a, const KernelContext& c) {
    if (a.backward) require_same("positions_backward", a.type, a.gradient);
    with_type("positions", a.type, [&]<class T>(T) { run<T>(a, c); });
}

void rope(const RopeArgs& a, const KernelContext& c) {
    with_type("rope", a.type, [&]<class T>(T) { run(a, out<T>(c, 0), c.context_rank); });
}

}  // namespace foretrain::cpu
