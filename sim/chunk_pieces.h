// What the passes of a chunk hold and compute, put together from pieces: the code of a segment of layers
// (plan/program/stage_layout.h), and what comes before and after all of them. A segment's piece does not
// depend on how many others there are, nor on which; only the outermost differ, where they read or write a
// message instead of a tensor. So a handful of pieces, made from stages of two or three layers, give every
// chunk of every number of layers and form of recompute, to the byte and the picosecond.
//
// One serves all plans of one model, framework and training that share tensor, context and micro-batch size, and
// differ in nothing else that a pass depends on but `recompute` (selective, selective_op and offload apart) and the
// layers of a stage.
//
//   ChunkPieces pieces;
//   ChunkPieces::Whole w = pieces.of(plan, shape, pattern, cost);
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "plan/program/stage.h"
#include "sim/cost.h"

namespace foretrain {

class ChunkPieces {
public:
    // Of one pass over a piece, or over the whole chunk.
    struct Pass {
        Life life;
        Time computing, hosting;  // busy times of the compute stream and the host
    };
    struct Whole {
        Pass forward, backward;
        Bytes slot;  // kept of a microbatch between the two
        // Computing in the pass over the layer that takes least, and backward up to where its gradients are written;
        // 0 where several layers are recomputed as one.
        Time forward_layer, backward_layer, to_gradients;
    };

    // `pattern`: as layer_pattern. `cost()` is asked only where a piece is new.
    template <class Cost>
    Whole of(const Plan& plan, const StageShape& shape, const LayerPattern& pattern, Cost&& cost) {
        list(plan.parallelism.recompute, shape, pattern);
        if (!find()) {
            make(plan, shape, pattern, cost());
            FORETRAIN_CHECK(find(), "a piece of the chunk was not made");
        }
        return sum();
    }

private:
    // Which piece: of a segment, or 0 layers for what is before or after them all.
    struct Key {
        std::int32_t count = 0;
        std::int32_t phase = 0;  // which of the layers that differ in windows and experts it begins with
        bool recomputed = false;
        bool begins = false, ends = false;  // reads the chunk's message; writes it. Of 0 layers: the chunk is the
                                            // model's first; its last
        bool after = false;                 // of 0 layers: after all of them
        bool operator==(const Key&) const = default;
    };
    struct KeyHash {
        std::size_t operator()(const Key& k) const;
    };
    struct Piece {
        Pass forward, backward;
        Bytes slot;
        Time to_gradients;
    };
    struct Use {
        Key key;
        std::int64_t times = 1;
        const Piece* piece = nullptr;
    };

    void list(const Recompute& recompute, const StageShape& shape, const LayerPattern& pattern);
    bool find();
    void make(const Plan& plan, const StageShape& shape, const LayerPattern& pattern, const CostModel& cost);
    Whole sum() const;

    std::unordered_map<Key, Piece, KeyHash> pieces_;
    std::vector<Use> uses_;  // of the chunk at hand, in the order of its layers
};

}  // namespace foretrain
