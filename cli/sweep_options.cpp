#include "cli/sweep_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ostream>

#include "cli/plan_options.h"
#include "plan/plan_file.h"

namespace foretrain::cli {

namespace {

constexpr std::int64_t largest = std::int64_t{1} << 40;
constexpr std::int64_t most_devices = std::int64_t{1} << 24;

SweepSpace space_from(const Options& options) {
    SweepSpace space;
    const auto sizes = [&](const char* name, std::vector<std::int64_t>& axis) {
        if (options.has(name)) axis = options.integers(name, 1, largest);
    };
    sizes("tensor", space.tensor);
    sizes("context", space.context);
    sizes("expert", space.expert);
    sizes("expert-tensor", space.expert_tensor);
    sizes("pipeline", space.pipeline);
    sizes("virtual-pipeline", space.virtual_pipeline);
    sizes("data", space.data);
    space.every_micro_batch = options.has("micro-batch-size") && options.text("micro-batch-size") == "all";
    if (!space.every_micro_batch) sizes("micro-batch-size", space.micro_batch_size);
    if (options.has("zero-stage"))
        for (std::int64_t stage : options.integers("zero-stage", 0, 3))
            space.zero_stage.push_back(static_cast<int>(stage));
    if (options.has("zero-shard-size")) space.zero_shard_size = options.integers("zero-shard-size", 0, largest);
    if (options.has("context-method"))
        for (const std::string& how : options.list("context-method"))
            space.context_method.push_back(for_option("context-method", [&] { return context_method_from_text(how); }));
    if (options.has("schedule"))
        for (const std::string& name : options.list("schedule"))
            space.schedule.push_back(for_option("schedule", [&] { return schedule_from_text(name); }));
    if (options.has("recompute"))
        for (const std::string& how : options.list("recompute")) {
            if (how == "blocks")
                space.every_block = true;
            else
                space.recompute.push_back(for_option("recompute", [&] { return recompute_from_text(how); }));
        }
    if (options.has("sequence-parallel"))
        space.sequence_parallel = options.choice("sequence-parallel", {"on", "off"}) == "on";
    return space;
}

}  // namespace

std::vector<OptionGroup> sweep_option_groups() {
    std::vector<OptionGroup> groups = sweep_base_option_groups();
    groups.push_back({"Axes (values with commas between them; left out: all that are worth trying)",
                      {{"tensor", "N,...", "tensor-parallel ranks"},
                       {"context", "N,...", "ranks that share a sequence (1; up to 16 from 16k tokens on)"},
                       {"context-method", "HOW,...", "ring, all-to-all (the plan file's, else ring)"},
                       {"expert", "N,...", "ranks that share out a layer's experts"},
                       {"expert-tensor", "N,...", "ranks that share an expert's matrices (1 and the tensor ranks)"},
                       {"pipeline", "N,...", "pipeline stages"},
                       {"virtual-pipeline", "N,...", "chunks a stage"},
                       {"data", "N,...", "data-parallel ranks"},
                       {"zero-stage", "N,...", "0 to 3"},
                       {"zero-shard-size", "N,...", "replicas that share out what ZeRO shards; 0: all (0)"},
                       {"micro-batch-size", "N,...", "samples a microbatch; all: every divisor of a data rank's share"},
                       {"schedule", "NAME,...", "gpipe, 1f1b (the plan file's, else 1f1b)"},
                       {"recompute", "HOW,...", "as for one plan, or blocks: block N for every N"},
                       {"max-memory", "GIB", "of each GPU, less than it has"}}});
    return groups;
}

Option threads_option() { return {"threads", "N", "to search with (all cores); the answer is the same"}; }

SweepOptions sweep_options_from(const Options& options) {
    SweepOptions sweep;
    sweep.space = space_from(options);
    sweep.top = static_cast<int>(options.integer_or("top", 10, 1, 1'000'000));
    sweep.threads = static_cast<int>(options.integer_or("threads", 0, 1, 4096));
    sweep.exhaustive = options.has("exhaustive");
    if (options.has("max-memory")) {
        const double bytes = options.number("max-memory", 0) * static_cast<double>(GiB);
        if (bytes < 1 || bytes > 1e18)
            option_error("max-memory", options.text("max-memory"), "GiB, more than 0 and less than 900 million");
        sweep.max_memory = Bytes{static_cast<std::int64_t>(bytes)};
    }
    return sweep;
}

namespace {

// "64..512" for "64-512" and "64:512".
std::string dotted(const std::string& text) {
    const std::size_t mark = text.find_first_not_of("0123456789");
    if (mark == 0 || mark == std::string::npos) return "";
    const std::size_t next = text.find_first_of("0123456789", mark);
    if (next == std::string::npos || text.find_first_not_of("0123456789", next) != std::string::npos) return "";
    return text.substr(0, mark) + ".." + text.substr(next);
}

std::int64_t size_of_cluster(const std::string& option, const std::string& text) {
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
    if (error != std::errc{} || end != text.data() + text.size() || n < 1 || n > most_devices)
        option_error(option, fmt::format("\"{}\"", text.substr(0, 80)),
                     "N, several as N,N,... (8,16,32), or A..B, which doubles from A to B (64..512)", dotted(text));
    return n;
}

}  // namespace

std::vector<std::int64_t> sizes_in(const std::string& option, const std::string& text) {
    std::vector<std::int64_t> sizes;
    if (const std::size_t dots = text.find(".."); dots != std::string::npos) {
        const std::int64_t first = size_of_cluster(option, text.substr(0, dots));
        const std::int64_t last = size_of_cluster(option, text.substr(dots + 2));
        for (std::int64_t n = first; n <= last; n *= 2) sizes.push_back(n);
        if (sizes.empty() || sizes.back() != last)
            option_error(option, fmt::format("\"{}\"", text), "a range whose end is its begin doubled some times",
                         fmt::format("{}..{}", first, sizes.empty() ? first * 2 : sizes.back()));
        return sizes;
    }
    for (std::size_t from = 0; from <= text.size();) {
        const std::size_t comma = std::min(text.find(',', from), text.size());
        sizes.push_back(size_of_cluster(option, text.substr(from, comma - from)));
        from = comma + 1;
    }
    std::sort(sizes.begin(), sizes.end());
    if (std::adjacent_find(sizes.begin(), sizes.end()) != sizes.end())
        option_error(option, fmt::format("\"{}\"", text), "each size once");
    return sizes;
}

void show_progress(SweepOptions& options, Console& console) {
    if (!console.interactive) return;
    options.progress = [&console](std::int64_t done_so_far, std::int64_t of) {
        console.err << fmt::format("\rsweep: {} of {}", done_so_far, of) << std::flush;
    };
}

void clear_progress(Console& console) {
    if (console.interactive) console.err << "\r\033[K" << std::flush;
}

void show_stage(Console& console, const std::string& what) {
    if (console.interactive) console.err << "\r\033[K" << what << std::flush;
}

}  // namespace foretrain::cli
