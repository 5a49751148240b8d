#include "sim/nearest_change.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "sim/sweep.h"
#include "sim/what_if.h"

namespace foretrain {

namespace {

// A field that may change: how the wish's own value is the only one, and how it is left open.
struct Field {
    const char* name;
    void (*fix)(SweepSpace&, const Parallelism&);
    void (*open)(SweepSpace&, const Parallelism&);
};

void leave(SweepSpace&, const Parallelism&) {}

constexpr std::array fields{
    Field{"micro_batch_size", [](SweepSpace& s, const Parallelism& p) { s.micro_batch_size = {p.micro_batch_size}; },
          leave},
    Field{"recompute", [](SweepSpace& s, const Parallelism& p) { s.recompute = {p.recompute}; }, leave},
    Field{"zero_stage", [](SweepSpace& s, const Parallelism& p) { s.zero_stage = {p.zero_stage}; }, leave},
    Field{"zero_shard_size", [](SweepSpace& s, const Parallelism& p) { s.zero_shard_size = {p.zero_shard_size}; },
          leave},
    // Without tensor ranks there is nothing to be sequence-parallel in: then it is the framework's choice.
    Field{"sequence_parallel",
          [](SweepSpace& s, const Parallelism& p) {
              if (p.tensor > 1) s.sequence_parallel = p.sequence_parallel;
          },
          [](SweepSpace& s, const Parallelism& p) { s.sequence_parallel = !p.sequence_parallel; }},
    Field{"tensor", [](SweepSpace& s, const Parallelism& p) { s.tensor = {p.tensor}; }, leave},
    Field{"context", [](SweepSpace& s, const Parallelism& p) { s.context = {p.context}; }, leave},
    Field{"virtual_pipeline", [](SweepSpace& s, const Parallelism& p) { s.virtual_pipeline = {p.virtual_pipeline}; },
          leave},
    Field{"pipeline", [](SweepSpace& s, const Parallelism& p) { s.pipeline = {p.pipeline}; }, leave},
    Field{"expert", [](SweepSpace& s, const Parallelism& p) { s.expert = {p.expert}; }, leave},
    Field{"expert_tensor", [](SweepSpace& s, const Parallelism& p) { s.expert_tensor = {p.expert_tensor}; }, leave},
};
constexpr std::size_t expert_fields = 2;  // the last ones

std::size_t fields_of(const ModelSpec& model) { return fields.size() - (model.has_experts() ? 0 : expert_fields); }

SweepSpace space_around(const Parallelism& wish, std::size_t first, std::size_t second) {
    SweepSpace space;
    for (std::size_t f = 0; f < fields.size(); ++f)
        (f == first || f == second ? fields[f].open : fields[f].fix)(space, wish);
    space.schedule = {wish.schedule};
    space.context_method = {wish.context_method};
    return space;
}

void add_fastest(const Prediction& wish, std::size_t first, std::size_t second, std::vector<NearestChange>& out) {
    const SweepResult found = sweep(wish.plan, {.space = space_around(wish.plan.parallelism, first, second), .top = 1});
    if (found.best.empty()) return;
    NearestChange change;
    change.then = alternative_of(found.best.front());
    change.changes = changes_between(wish.plan.parallelism, change.then.parallelism);
    change.cost = change.then.step - wish.step;
    out.push_back(std::move(change));
}

}  // namespace

std::vector<std::string> changes_between(const Parallelism& from, const Parallelism& to) {
    std::vector<std::string> out;
    const auto differ = [&](const char* name, const auto& a, const auto& b) {
        if (a != b) out.push_back(fmt::format("{} {} -> {}", name, a, b));
    };
    differ("micro_batch_size", from.micro_batch_size, to.micro_batch_size);
    differ("recompute", describe(from.recompute), describe(to.recompute));
    differ("zero_stage", from.zero_stage, to.zero_stage);
    const auto shards = [](std::int64_t n) { return n == 0 ? std::string("all") : std::to_string(n); };
    if (from.zero_stage > 0 && to.zero_stage > 0)  // else there are none to speak of
        differ("zero_shard_size", shards(from.zero_shard_size), shards(to.zero_shard_size));
    const auto on_off = [](bool on) { return on ? "on" : "off"; };
    // Turned on or off by the number of tensor ranks alone, it goes without saying.
    if ((from.tensor > 1) == (to.tensor > 1) && from.sequence_parallel != to.sequence_parallel)
        out.push_back(
            fmt::format("sequence_parallel {} -> {}", on_off(from.sequence_parallel), on_off(to.sequence_parallel)));
    differ("tensor", from.tensor, to.tensor);
    differ("context", from.context, to.context);
    differ("virtual_pipeline", from.virtual_pipeline, to.virtual_pipeline);
    differ("pipeline", from.pipeline, to.pipeline);
    differ("expert", from.expert, to.expert);
    differ("expert_tensor", from.expert_tensor, to.expert_tensor);
    return out;
}

std::vector<NearestChange> nearest_changes(const Prediction& wish) {
    std::vector<NearestChange> out;
    const std::size_t count = fields_of(wish.plan.model);
    for (std::size_t f = 0; f < count; ++f) add_fastest(wish, f, f, out);
    if (out.empty())
        for (std::size_t f = 0; f < count; ++f)
            for (std::size_t g = f + 1; g < count; ++g) add_fastest(wish, f, g, out);
    std::stable_sort(out.begin(), out.end(),
                     [](const NearestChange& a, const NearestChange& b) { return a.then.step < b.then.step; });
    return out;
}

}  // namespace foretrain
