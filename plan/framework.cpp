#include "plan/framework.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/preset.h"
#include "plan/framework_file.h"

namespace foretrain {

namespace {

// All versions of all profiles, a framework's own one after the other.
const std::vector<Framework>& profiles() {
    static const std::vector<Framework> all = [] {
        std::vector<Framework> out;
        // What begins as a copy of another framework's profile comes after all that do not.
        std::vector<Preset> presets(plan_presets().begin(), plan_presets().end());
        std::stable_partition(presets.begin(), presets.end(),
                              [](const Preset& preset) { return !begins_as_another(preset); });
        for (const Preset& preset : presets) read_frameworks(preset, out);
        std::stable_sort(out.begin(), out.end(),
                         [](const Framework& a, const Framework& b) { return a.name < b.name; });
        // Ours first.
        std::stable_partition(out.begin(), out.end(), [](const Framework& f) { return f.runnable; });
        return out;
    }();
    return all;
}

struct Reference {
    std::string_view name, version;  // no version: the newest
};

Reference parts_of(std::string_view reference) {
    const std::size_t at = reference.find('@');
    if (at == std::string_view::npos) return {reference, {}};
    return {reference.substr(0, at), reference.substr(at + 1)};
}

}  // namespace

const Framework* find_framework(std::string_view reference) {
    const Reference wanted = parts_of(reference);
    const bool newest = wanted.name.size() == reference.size();
    const Framework* found = nullptr;
    for (const Framework& f : profiles())
        if (f.name == wanted.name && (newest ? !f.by_name_only : f.version == wanted.version)) found = &f;
    return found;
}

const Framework& framework_named(std::string_view reference) {
    if (const Framework* f = find_framework(reference)) return *f;
    UnknownFramework unknown = unknown_framework(reference);
    throw UserError({.field = "framework",
                     .found = fmt::format("\"{}\"", reference.substr(0, 80)),
                     .expected = "one of " + unknown.allowed,
                     .suggestion = std::move(unknown.suggestion)});
}

const Framework* find_framework(const FrameworkRef& ref) {
    return ref.own() != nullptr ? ref.own() : find_framework(ref.reference());
}

const Framework& framework_named(const FrameworkRef& ref) {
    return ref.own() != nullptr ? *ref.own() : framework_named(ref.reference());
}

std::vector<std::string> framework_names() {
    std::vector<std::string> names;
    for (const Framework& f : profiles())
        if (names.empty() || names.back() != f.name) names.push_back(f.name);
    return names;
}

std::vector<std::string> framework_versions(std::string_view name) {
    std::vector<std::string> versions;
    for (const Framework& f : profiles())
        if (f.name == name) versions.push_back(f.version);
    return versions;
}

std::vector<std::string> frameworks_with_zero(int stage, bool tensor, bool pipeline) {
    std::vector<std::string> names;
    for (const std::string& name : framework_names()) {
        const Framework& f = *find_framework(name);
        const bool has = std::find(f.zero_stages.begin(), f.zero_stages.end(), stage) != f.zero_stages.end();
        if (f.runnable || !has || (tensor && !f.has_tensor_ranks) || (pipeline && !f.has_pipeline)) continue;
        names.insert(f.has_pipeline ? names.begin() : names.end(), name);
    }
    return names;
}

namespace {

// "torchtitan" is what people call a version of fsdp.
std::string version_called(std::string_view word) {
    for (const Framework& f : profiles())
        if (!word.empty() && f.version == word) return fmt::format("{}@{}", f.name, f.version);
    return "";
}

}  // namespace

UnknownFramework unknown_framework(std::string_view reference) {
    const Reference wanted = parts_of(reference);
    std::vector<std::string> known = framework_names();
    if (std::string version = version_called(wanted.name); !version.empty())
        return {fmt::format("{}", fmt::join(known, ", ")), std::move(version)};
    if (const std::vector<std::string> versions = framework_versions(wanted.name); !versions.empty()) {
        known.clear();
        for (const std::string& v : versions) known.push_back(fmt::format("{}@{}", wanted.name, v));
        return {fmt::format("{}", fmt::join(known, ", ")), nearest(reference.substr(0, 80), known)};
    }
    return {fmt::format("{}", fmt::join(known, ", ")), nearest(wanted.name.substr(0, 80), known)};
}

StateTypes state_types(const Training& training, DType half_gradient) {
    const DType precision = training.precision;
    if (half_gradient == DType::fp16 && precision != DType::fp16) half_gradient = DType::fp32;
    if (precision == DType::bf16 || precision == DType::fp16)
        return {.weight = precision,
                .gradient = training.gradient_type.value_or(half_gradient),
                .optimizer = DType::fp32,
                .master = true};
    return {.weight = precision, .gradient = precision, .optimizer = precision, .master = false};
}

std::int64_t padded_vocabulary(const ModelSpec& model, const Framework& framework, std::int64_t tensor_ranks) {
    return round_up(model.vocab_size, framework.vocab_multiple * tensor_ranks);
}

}  // namespace foretrain
