// Plans for the laws: small models on an imagined machine that has costs for every precision, drawn
// at random or listed, always the same ones.
#pragma once

#include <cstdint>
#include <ostream>
#include <random>
#include <string>
#include <vector>

#include "plan/plan.h"

namespace foretrain {

// By their names in the names of tests.
inline void PrintTo(const ModelSpec& model, std::ostream* out) { *out << model.name; }

namespace test {

ModelSpec small_gpt();    // GPT-2 type: 4 layers, hidden 32, 4 heads, tied embeddings
ModelSpec small_llama();  // Llama type: 4 layers, hidden 32, 8 heads over 4 key-value heads

// Small models that together have everything else that the engine runs.
ModelSpec small_neox();    // parallel block with a norm each and all biases, partial rope, biased head
ModelSpec small_cohere();  // parallel block behind one norm, LayerNorm without bias, a norm of each head
ModelSpec small_gemma();   // post norms, gated GELU, a norm that all heads share, a window too long to matter
ModelSpec small_opt();     // ReLU, embedding norm, positions with unused rows, biases in some places only

// Those that it only predicts.
ModelSpec small_moe();     // Llama type: two dense layers first, then 4 experts, of which 2 a token, and a shared one
ModelSpec small_latent();  // latent attention, and every second layer with experts that GELU and biases are in

// Eight nodes at most; device constants of the A100 preset, given for fp32 and fp64 too.
ClusterSpec any_machine(std::int64_t devices);

// A plan of the engine's own framework, in fp64, with every other field as given.
Plan small_plan(const ModelSpec& model, const Parallelism& parallelism, std::int64_t global_batch = 8);

// Every version of every profile, as "name@version".
std::vector<std::string> every_framework();

// A random plan that checks: models from tiny to large, 1 to 64 devices, every field drawn.
Plan random_plan(std::mt19937& random);

}  // namespace test
}  // namespace foretrain
