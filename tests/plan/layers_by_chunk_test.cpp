#include "plan/layers_by_chunk.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "hardware/cluster_file.h"
#include "models/model_file.h"

namespace foretrain {
namespace {

using Layers = std::vector<std::int64_t>;

// On as many GPUs as the pipeline has stages, with microbatches enough.
Plan plan_of(std::int64_t layers, const Parallelism& parallelism, std::int64_t microbatches = 0) {
    static const ModelSpec model = read_model("llama-3-8b");
    static const ClusterSpec cluster = read_cluster("dgx-h100");
    Plan p;
    p.model = model;
    p.model.layers = layers;
    p.cluster = cluster;
    p.cluster.devices_per_node = 1;
    p.cluster.nodes = parallelism.pipeline;
    p.framework = "megatron-lm";
    p.parallelism = parallelism;
    p.training.global_batch_size = microbatches > 0 ? microbatches : parallelism.pipeline * 2;
    p.training.sequence_length = 4096;
    return p;
}

Layers layers_of(std::int64_t layers, const Parallelism& parallelism) {
    const Plan plan = plan_of(layers, parallelism);
    for (const Rejection& no : check(plan)) ADD_FAILURE() << text(no);
    Layers out = layers_by_chunk(plan);
    EXPECT_EQ(std::accumulate(out.begin(), out.end(), std::int64_t{0}), layers);
    EXPECT_EQ(*std::max_element(out.begin(), out.end()), most_layers_of_chunk(plan));
    return out;
}

// The text of the only rule that the plan breaks.
std::string refusal(const Plan& plan) {
    const std::vector<Rejection> no = check(plan);
    EXPECT_EQ(no.size(), 1u);
    if (no.empty()) return "none";
    EXPECT_FALSE(no[0].reason.empty());
    return text(no[0]);
}

std::string refusal(std::int64_t layers, const Parallelism& parallelism, std::int64_t microbatches = 0) {
    return refusal(plan_of(layers, parallelism, microbatches));
}

TEST(LayersByChunk, AreEvenUnlessSaidOtherwise) {
    EXPECT_EQ(layers_of(12, {.pipeline = 4}), (Layers{3, 3, 3, 3}));
    EXPECT_EQ(layers_of(12, {.pipeline = 2, .virtual_pipeline = 3}), (Layers{2, 2, 2, 2, 2, 2}));
    EXPECT_EQ(layers_of(7, {}), (Layers{7}));
}

TEST(LayersByChunk, ListsHaveOneEntryAChunk) {
    EXPECT_EQ(layers_of(6, {.pipeline = 3, .stage_layers = {1, 3, 2}}), (Layers{1, 3, 2}));
    EXPECT_EQ(layers_of(9, {.pipeline = 2, .virtual_pipeline = 2, .stage_layers = {1, 3, 2, 3}}), (Layers{1, 3, 2, 3}));
    EXPECT_EQ(refusal(9, {.pipeline = 2, .virtual_pipeline = 2, .stage_layers = {4, 5}}),
              "parallelism.stage_layers = 2 entries: must have one for each of pipeline 2 x virtual_pipeline 2 = 4 "
              "chunks");
}

// 9 layers on 4 stages, 2 on the first and 1 on the last; 40 layers on 16 stages, 6 on either.
TEST(LayersByChunk, FirstAndLastStageMayDiffer) {
    EXPECT_EQ(layers_of(9, {.pipeline = 4, .first_stage_layers = 2, .last_stage_layers = 1}), (Layers{2, 3, 3, 1}));
    Layers gpt3_13b(16, 2);
    gpt3_13b.front() = gpt3_13b.back() = 6;
    EXPECT_EQ(layers_of(40, {.pipeline = 16, .first_stage_layers = 6, .last_stage_layers = 6}), gpt3_13b);
    EXPECT_EQ(layers_of(7, {.pipeline = 3, .last_stage_layers = 1}), (Layers{3, 3, 1}));
    EXPECT_EQ(layers_of(7, {.pipeline = 2, .first_stage_layers = 5}), (Layers{5, 2}));
    EXPECT_EQ(layers_of(7, {.pipeline = 2, .first_stage_layers = 5, .last_stage_layers = 2}), (Layers{5, 2}));
    // Each stage's layers in equal chunks.
    EXPECT_EQ(layers_of(14, {.pipeline = 3, .virtual_pipeline = 2, .first_stage_layers = 4, .last_stage_layers = 2}),
              (Layers{2, 4, 1, 2, 4, 1}));

    EXPECT_EQ(refusal(9, {.pipeline = 4, .first_stage_layers = 2, .last_stage_layers = 2}),
              "parallelism.first_stage_layers = 2 and last 2: must leave the 2 other stages an equal number of layers, "
              "at least 1: 5 of 9 are left");
    EXPECT_EQ(refusal(9, {.pipeline = 4, .last_stage_layers = 9}),
              "parallelism.last_stage_layers = 9: must leave the 3 other stages an equal number of layers, at least 1: "
              "0 of 9 are left");
    EXPECT_EQ(refusal(7, {.pipeline = 2, .first_stage_layers = 5, .last_stage_layers = 1}),
              "parallelism.first_stage_layers = 5 and last 1: must make up layers = 7: pipeline = 2 leaves no other "
              "stage");
    EXPECT_EQ(refusal(7, {.first_stage_layers = 5, .last_stage_layers = 2}),
              "parallelism.first_stage_layers = 5 and last 2: names two stages, but pipeline = 1 (try pipeline 2)");
    EXPECT_EQ(
        refusal(14, {.pipeline = 3, .virtual_pipeline = 2, .first_stage_layers = 5, .last_stage_layers = 1}),
        "parallelism.first_stage_layers = 5 and last 1: must leave virtual_pipeline = 2 equal chunks on every stage");
}

// 126 layers, of Llama 3.1 405B, on 16 stages.
TEST(LayersByChunk, EmbeddingAndHeadMayCount) {
    Layers llama(16, 8);
    llama.front() = llama.back() = 7;
    EXPECT_EQ(layers_of(126, {.pipeline = 16, .embedding_and_head_as_layers = true}), llama);
    EXPECT_EQ(layers_of(10, {.pipeline = 2, .virtual_pipeline = 3, .embedding_and_head_as_layers = true}),
              (Layers{1, 2, 2, 2, 2, 1}));
    EXPECT_EQ(layers_of(4, {.pipeline = 2, .embedding_and_head_as_layers = true}), (Layers{2, 2}));
    EXPECT_EQ(layers_of(5, {.embedding_and_head_as_layers = true}), (Layers{5}));
    EXPECT_EQ(refusal(125, {.pipeline = 16, .embedding_and_head_as_layers = true}),
              "parallelism.pipeline = 16: must divide layers + embedding and head = 127 and leave a layer to every "
              "stage (allowed: 1; try 1)");
    // A stage with the embedding alone would have no layer.
    EXPECT_EQ(refusal(14, {.pipeline = 16, .embedding_and_head_as_layers = true}),
              "parallelism.pipeline = 16: must divide layers + embedding and head = 16 and leave a layer to every "
              "stage (allowed: 1, 2, 4, 8; try 8)");
}

TEST(LayersByChunk, OneLayoutAtATime) {
    EXPECT_EQ(refusal(9, {.pipeline = 4, .stage_layers = {2, 3, 3, 1}, .first_stage_layers = 2}),
              "parallelism.first_stage_layers = stage_layers and first_stage_layers: decide the same thing: which "
              "layers a stage holds (allowed: one of stage_layers, first_stage_layers with last_stage_layers, "
              "embedding_and_head_as_layers)");
    EXPECT_NE(refusal(10, {.pipeline = 2, .last_stage_layers = 5, .embedding_and_head_as_layers = true})
                  .find("last_stage_layers and embedding_and_head_as_layers"),
              std::string::npos);
}

// No layer is ever dropped: 40 layers do not make two or four chunks on each of 8 stages.
TEST(LayersByChunk, ChunksMustTakeAllLayers) {
    EXPECT_EQ(refusal(40, {.pipeline = 8, .virtual_pipeline = 2}),
              "parallelism.virtual_pipeline = 2 on 8 stages: pipeline x virtual_pipeline must divide layers = 40, so "
              "that all chunks are equal, or stage_layers be given (allowed: 1, 5; try 1)");
    EXPECT_NE(refusal(40, {.pipeline = 8, .virtual_pipeline = 4}).find("(allowed: 1, 5; try 5)"), std::string::npos);
    EXPECT_EQ(layers_of(40, {.pipeline = 8, .virtual_pipeline = 5}), Layers(40, 1));
    EXPECT_NE(refusal(40, {.pipeline = 7}).find("must divide layers = 40"), std::string::npos);
}

TEST(LayersByChunk, InterleavingNeedsStagesAndMicrobatches) {
    EXPECT_EQ(refusal(12, {.virtual_pipeline = 2}),
              "parallelism.virtual_pipeline = 2 with pipeline = 1: interleaves the chunks of several stages: needs "
              "pipeline of at least 2 (allowed: 1; try 1)");
    EXPECT_EQ(
        refusal(12, {.pipeline = 6, .virtual_pipeline = 2}, 3),
        "parallelism.virtual_pipeline = 2 with 3 microbatches on pipeline = 6 stages: interleaving needs at least "
        "as many microbatches as stages: 3 < 6 (allowed: 1; try virtual_pipeline 1 or global_batch_size 6)");
    EXPECT_EQ(refusal(12, {.pipeline = 6, .virtual_pipeline = 2}, 15),
              "parallelism.virtual_pipeline = 2 with 15 microbatches on pipeline = 6 stages: interleaving takes "
              "microbatches in rounds of pipeline = 6: their number (global batch / micro-batch / data) must be a "
              "multiple of it (allowed: 1; try virtual_pipeline 1 or global_batch_size 12)");
    EXPECT_EQ(check(plan_of(12, {.pipeline = 6, .virtual_pipeline = 2}, 18)).size(), 0u);
    EXPECT_NE(refusal(12, {.pipeline = 6, .virtual_pipeline = 0}).find("must be from 1 to 32767"), std::string::npos);
}

TEST(LayersByChunk, RecomputeCountsTheLayersOfAChunk) {
    const Parallelism p{.pipeline = 2, .virtual_pipeline = 3, .recompute = {Recompute::Kind::block, 3}};
    EXPECT_EQ(refusal(12, p), "parallelism.recompute = block 3: must be from 1 to the 2 layers of a chunk (try 2)");
}

// What is said to divide does, whatever the layout: as many runs as chunks, none empty, all layers.
TEST(LayersByChunk, WhatDividesIsWhole) {
    int divided = 0;
    for (std::int64_t layers = 1; layers <= 24; ++layers)
        for (std::int64_t pipeline = 1; pipeline <= 6; ++pipeline)
            for (std::int64_t chunks = 1; chunks <= 3; ++chunks)
                for (std::int64_t first = 0; first <= 4; ++first)
                    for (std::int64_t last = 0; last <= 4; ++last)
                        for (bool ends_count : {false, true}) {
                            const Plan plan = plan_of(layers, {.pipeline = pipeline,
                                                               .virtual_pipeline = chunks,
                                                               .first_stage_layers = first,
                                                               .last_stage_layers = last,
                                                               .embedding_and_head_as_layers = ends_count});
                            std::vector<Rejection> no;
                            check_stage_layers(plan, no);
                            const bool alone = chunks > 1 && pipeline == 1;
                            EXPECT_EQ(no.empty(), layers_divide(plan) && !alone);
                            if (!layers_divide(plan)) continue;
                            const Layers runs = layers_by_chunk(plan);
                            ASSERT_EQ(static_cast<std::int64_t>(runs.size()), pipeline * chunks);
                            ASSERT_GE(*std::min_element(runs.begin(), runs.end()), 1);
                            ASSERT_EQ(std::accumulate(runs.begin(), runs.end(), std::int64_t{0}), layers);
                            ASSERT_EQ(*std::max_element(runs.begin(), runs.end()), most_layers_of_chunk(plan));
                            ++divided;
                        }
    EXPECT_GT(divided, 500);
}

}  // namespace
}  // namespace foretrain
