#include "plan/layers_by_chunk.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "plan/check_rules.h"

namespace foretrain {

namespace {

using namespace check_rules;
using Rejections = std::vector<Rejection>;

bool has_ends(const Parallelism& p) { return p.first_stage_layers != 0 || p.last_stage_layers != 0; }

// What is shared out evenly by the runs: the layers, and embedding and head where they count as such.
std::int64_t counted_layers(const Plan& plan) {
    return plan.model.layers + (plan.parallelism.embedding_and_head_as_layers ? 2 : 0);
}

// With first_stage_layers or last_stage_layers: the stages between them and what is left for each.
struct Middle {
    std::int64_t stages = 0;
    std::int64_t layers = 0;  // of all of them
    std::int64_t each() const { return stages > 0 ? layers / stages : 0; }
};

Middle middle(const Plan& plan) {
    const Parallelism& p = plan.parallelism;
    return {p.pipeline - (p.first_stage_layers != 0 ? 1 : 0) - (p.last_stage_layers != 0 ? 1 : 0),
            plan.model.layers - p.first_stage_layers - p.last_stage_layers};
}

bool ends_divide(const Plan& plan) {
    const Parallelism& p = plan.parallelism;
    const Middle m = middle(plan);
    if (m.stages < 0 || m.layers < 0) return false;
    if (m.stages == 0 ? m.layers != 0 : m.layers < m.stages || m.layers % m.stages != 0) return false;
    return p.first_stage_layers % p.virtual_pipeline == 0 && p.last_stage_layers % p.virtual_pipeline == 0 &&
           m.each() % p.virtual_pipeline == 0;
}

bool list_divides(const Plan& plan, std::int64_t chunks) {
    const std::vector<std::int64_t>& list = plan.parallelism.stage_layers;
    std::int64_t left = plan.model.layers;
    for (std::int64_t n : list) {
        if (n < 1 || n > left) return false;
        left -= n;
    }
    return left == 0 && static_cast<std::int64_t>(list.size()) == chunks;
}

// How the user says which layers a stage holds; more than one of these contradict each other.
std::vector<const char*> layouts_given(const Parallelism& p) {
    std::vector<const char*> out;
    if (!p.stage_layers.empty()) out.push_back("stage_layers");
    if (p.first_stage_layers != 0) out.push_back("first_stage_layers");
    if (p.last_stage_layers != 0) out.push_back("last_stage_layers");
    if (p.embedding_and_head_as_layers) out.push_back("embedding_and_head_as_layers");
    return out;
}

bool contradicts(const Parallelism& p) {
    return (!p.stage_layers.empty() ? 1 : 0) + (has_ends(p) ? 1 : 0) + (p.embedding_and_head_as_layers ? 1 : 0) > 1;
}

// ---- rules ----------------------------------------------------------------------------------

std::string chunks_text(const Parallelism& p) {
    if (p.virtual_pipeline == 1) return fmt::format("pipeline = {} stages", p.pipeline);
    return fmt::format("pipeline {} x virtual_pipeline {} = {} chunks", p.pipeline, p.virtual_pipeline,
                       product({p.pipeline, p.virtual_pipeline}).value_or(0));
}

// The first values of `field` with which the layers divide; another pipeline must divide the devices too.
std::vector<std::int64_t> values_that_divide(Plan plan, std::int64_t Parallelism::*field) {
    const std::int64_t devices = plan.cluster.devices(), pipeline = plan.parallelism.pipeline;
    const auto fits_devices = [&](const Plan& p) {
        return p.parallelism.pipeline == pipeline || devices % p.parallelism.pipeline == 0;
    };
    std::vector<std::int64_t> out;
    const std::int64_t most = std::min<std::int64_t>(counted_layers(plan), 4096);
    for (std::int64_t n = 1; n <= most && out.size() < 16; ++n) {
        plan.parallelism.*field = n;
        if (layers_divide(plan) && fits_devices(plan)) out.push_back(n);
    }
    return out;
}

Rejection with_values(Rejection r, std::int64_t found, const std::vector<std::int64_t>& allowed) {
    r.allowed = fmt::format("{}", fmt::join(allowed, ", "));
    if (!allowed.empty()) r.suggestion = std::to_string(nearest_of(found, allowed));
    return r;
}

void check_even(const Plan& plan, Rejections& out) {
    const Parallelism& p = plan.parallelism;
    Plan whole = plan;
    whole.parallelism.virtual_pipeline = 1;
    const std::int64_t n = counted_layers(plan);
    const std::string layers = p.embedding_and_head_as_layers ? fmt::format("layers + embedding and head = {}", n)
                                                              : fmt::format("layers = {}", n);
    if (layers_divide(whole))
        return out.push_back(with_values(
            {.reason = "virtual_pipeline_divides_layers",
             .field = "parallelism.virtual_pipeline",
             .found = fmt::format("{} on {} stages", p.virtual_pipeline, p.pipeline),
             .rule = fmt::format("pipeline x virtual_pipeline must divide {}, so that all chunks are equal, or "
                                 "stage_layers be given",
                                 layers)},
            p.virtual_pipeline, values_that_divide(plan, &Parallelism::virtual_pipeline)));
    if (p.embedding_and_head_as_layers)
        return out.push_back(
            with_values({.reason = "pipeline_divides_layers",
                         .field = "parallelism.pipeline",
                         .found = std::to_string(p.pipeline),
                         .rule = fmt::format("must divide {} and leave a layer to every stage", layers)},
                        p.pipeline, values_that_divide(whole, &Parallelism::pipeline)));
    Rejection r =
        must_divide("pipeline_divides_layers", "parallelism.pipeline", p.pipeline, "layers", n, plan.cluster.devices());
    r.rule += ", or stage_layers be given";
    out.push_back(std::move(r));
}

void check_list(const Plan& plan, Rejections& out) {
    const std::vector<std::int64_t>& stages = plan.parallelism.stage_layers;
    const auto refuse = [&](const char* reason, std::string found, std::string rule) {
        out.push_back({.reason = reason,
                       .field = "parallelism.stage_layers",
                       .found = std::move(found),
                       .rule = std::move(rule)});
    };
    const std::optional<std::int64_t> chunks = product({plan.parallelism.pipeline, plan.parallelism.virtual_pipeline});
    if (chunks != static_cast<std::int64_t>(stages.size()))
        refuse("stage_layers_per_stage", fmt::format("{} entries", stages.size()),
               fmt::format("must have one for each of {}", chunks_text(plan.parallelism)));
    std::int64_t left = plan.model.layers;  // counted down, so that no sum overflows
    for (std::int64_t n : stages) {
        if (n < 1) return refuse("stage_layers_positive", std::to_string(n), "must be at least 1 each");
        if (n > left) {
            left = -1;
            break;
        }
        left -= n;
    }
    if (left != 0)
        refuse("stage_layers_sum", fmt::format("a sum {} layers", left > 0 ? "below" : "above"),
               fmt::format("must sum to layers = {}", plan.model.layers));
}

void check_ends(const Plan& plan, Rejections& out) {
    const Parallelism& p = plan.parallelism;
    const char* field = p.first_stage_layers != 0 ? "parallelism.first_stage_layers" : "parallelism.last_stage_layers";
    std::string found = p.first_stage_layers != 0 ? std::to_string(p.first_stage_layers) : "";
    if (p.last_stage_layers != 0)
        found += found.empty() ? std::to_string(p.last_stage_layers) : fmt::format(" and last {}", p.last_stage_layers);
    const auto refuse = [&](const char* reason, std::string rule, std::string suggestion = "") {
        out.push_back({.reason = reason,
                       .field = field,
                       .found = std::move(found),
                       .rule = std::move(rule),
                       .suggestion = std::move(suggestion)});
    };
    const Middle m = middle(plan);
    if (m.stages < 0)
        return refuse("end_stage_layers_need_pipeline", "names two stages, but pipeline = 1", "pipeline 2");
    if (m.stages == 0 && m.layers != 0)
        return refuse("end_stage_layers_divide",
                      fmt::format("must make up layers = {}: pipeline = {} leaves no other stage", plan.model.layers,
                                  p.pipeline));
    if (m.stages > 0 && (m.layers < m.stages || m.layers % m.stages != 0))
        return refuse("end_stage_layers_divide",
                      fmt::format("must leave the {} other stages an equal number of layers, at least 1: {} of {} are "
                                  "left",
                                  m.stages, std::max<std::int64_t>(m.layers, 0), plan.model.layers));
    refuse("end_stage_layers_divide",
           fmt::format("must leave virtual_pipeline = {} equal chunks on every stage", p.virtual_pipeline));
}

void check_interleaving(const Plan& plan, Rejections& out) {
    const Parallelism& p = plan.parallelism;
    if (p.virtual_pipeline == 1) return;
    if (p.pipeline == 1)
        return out.push_back({.reason = "interleaving_needs_pipeline",
                              .field = "parallelism.virtual_pipeline",
                              .found = fmt::format("{} with pipeline = 1", p.virtual_pipeline),
                              .rule = "interleaves the chunks of several stages: needs pipeline of at least 2",
                              .allowed = "1",
                              .suggestion = "1"});
    const std::optional<std::int64_t> round = product({p.micro_batch_size, p.data});
    const std::int64_t batch = plan.training.global_batch_size;
    if (!round || batch % *round != 0) return;  // check_batch says so
    const std::int64_t microbatches = batch / *round;
    if (microbatches_fill_rounds(p, microbatches)) return;
    const bool few = microbatches < p.pipeline;
    const std::int64_t rounds = std::max<std::int64_t>(microbatches / p.pipeline, 1);
    const std::optional<std::int64_t> better = product({rounds, p.pipeline, *round});
    out.push_back(
        {.reason = few ? "interleaving_needs_microbatches" : "microbatches_fill_rounds",
         .field = "parallelism.virtual_pipeline",
         .found = fmt::format("{} with {} microbatches on pipeline = {} stages", p.virtual_pipeline, microbatches,
                              p.pipeline),
         .rule = few ? fmt::format("interleaving needs at least as many microbatches as stages: {} < {}", microbatches,
                                   p.pipeline)
                     : fmt::format("interleaving takes microbatches in rounds of pipeline = {}: their number (global "
                                   "batch / micro-batch / data) must be a multiple of it",
                                   p.pipeline),
         .allowed = "1",
         .suggestion = better ? fmt::format("virtual_pipeline 1 or global_batch_size {}", *better) : "1"});
}

}  // namespace

std::vector<std::int64_t> layers_by_chunk(const Plan& plan) {
    const Parallelism& p = plan.parallelism;
    if (!p.stage_layers.empty()) return p.stage_layers;
    const std::int64_t chunks = p.pipeline * p.virtual_pipeline;
    std::vector<std::int64_t> out(static_cast<std::size_t>(chunks), counted_layers(plan) / chunks);
    if (p.embedding_and_head_as_layers) {
        --out.front();
        --out.back();
    }
    if (!has_ends(p)) return out;
    const std::int64_t each = middle(plan).each();
    for (std::int64_t run = 0; run < chunks; ++run) {
        const std::int64_t stage = run % p.pipeline;
        const bool first = stage == 0 && p.first_stage_layers != 0;
        const bool last = stage + 1 == p.pipeline && p.last_stage_layers != 0;
        const std::int64_t layers = first ? p.first_stage_layers : last ? p.last_stage_layers : each;
        out[static_cast<std::size_t>(run)] = layers / p.virtual_pipeline;
    }
    return out;
}

std::int64_t most_layers_of_chunk(const Plan& plan) {
    const Parallelism& p = plan.parallelism;
    if (!p.stage_layers.empty()) return *std::max_element(p.stage_layers.begin(), p.stage_layers.end());
    if (has_ends(p))
        return std::max({p.first_stage_layers, p.last_stage_layers, middle(plan).each()}) / p.virtual_pipeline;
    const std::int64_t chunks = p.pipeline * p.virtual_pipeline;
    const bool only_ends = p.embedding_and_head_as_layers && chunks <= 2;
    return counted_layers(plan) / chunks - (only_ends ? 2 / chunks : 0);
}

bool layers_divide(const Plan& plan) {
    const Parallelism& p = plan.parallelism;
    const std::optional<std::int64_t> chunks = product({p.pipeline, p.virtual_pipeline});
    if (!chunks || *chunks > plan.model.layers || contradicts(p)) return false;
    if (!p.stage_layers.empty()) return list_divides(plan, *chunks);
    if (has_ends(p)) return ends_divide(plan);
    if (counted_layers(plan) % *chunks != 0) return false;
    // One layer each on first and last run is the embedding or the head.
    return !p.embedding_and_head_as_layers || *chunks == 1 || counted_layers(plan) / *chunks >= 2;
}

bool microbatches_fill_rounds(const Parallelism& p, std::int64_t microbatches) {
    return p.virtual_pipeline == 1 || microbatches % p.pipeline == 0;
}

void check_stage_layers(const Plan& plan, std::vector<Rejection>& out) {
    const Parallelism& p = plan.parallelism;
    check_interleaving(plan, out);
    if (p.virtual_pipeline > 1 && p.pipeline == 1) return;
    if (contradicts(p))
        return out.push_back({.reason = "stage_layout_contradicts",
                              .field = fmt::format("parallelism.{}", layouts_given(p).back()),
                              .found = fmt::format("{}", fmt::join(layouts_given(p), " and ")),
                              .rule = "decide the same thing: which layers a stage holds",
                              .allowed = "one of stage_layers, first_stage_layers with last_stage_layers, "
                                         "embedding_and_head_as_layers"});
    if (layers_divide(plan)) return;
    if (!p.stage_layers.empty()) return check_list(plan, out);
    if (has_ends(p)) return check_ends(plan, out);
    check_even(plan, out);
}

}  // namespace foretrain
