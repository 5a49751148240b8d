#include "plan/megatron_args.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include "base/error.h"
#include "hardware/cluster_file.h"
#include "hardware/device_file.h"
#include "plan/megatron_mapping.h"
#include "plan/plan_file.h"

namespace foretrain {

namespace {

constexpr std::size_t longest_shown = 60;

std::string text_of(const Json& value) {
    if (value.is_string()) return value.string();
    return value.dump(-1);  // a number, a flag
}

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\\'; }

std::vector<std::string> words_of(std::string_view text) {
    std::vector<std::string> words;
    std::string word;
    char quote = 0;
    bool comment = false;
    for (const char c : text) {
        if (comment) {
            comment = c != '\n';
        } else if (quote != 0) {
            if (c == quote)
                quote = 0;
            else
                word += c;
        } else if (c == '"' || c == '\'') {
            quote = c;
        } else if (c == '#' && word.empty()) {
            comment = true;
        } else if (!is_space(c)) {
            word += c;
        } else if (!word.empty()) {
            words.push_back(std::exchange(word, {}));
        }
    }
    if (!word.empty()) words.push_back(word);
    return words;
}

bool is_name(const std::string& word) { return word.size() > 2 && word[0] == '-' && word[1] == '-'; }

}  // namespace

MegatronArguments arguments_from_json(const Json& object) {
    if (!object.is_object()) object.fail(object.found(), "an object of Megatron-LM's arguments");
    MegatronArguments out;
    for (const std::string& key : object.keys())
        if (const std::string value = text_of(object.at(key)); value != "false") out[key] = value;
    return out;
}

MegatronArguments arguments_from_text(std::string_view text) {
    MegatronArguments out;
    std::string name;
    for (const std::string& word : words_of(text)) {
        if (is_name(word)) {
            const std::size_t equals = word.find('=');
            name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
            out[name] = equals == std::string::npos ? "true" : word.substr(equals + 1);
        } else if (name.empty()) {
            throw UserError({.field = "megatron-args",
                             .found = fmt::format("\"{}\"", shortened(word, longest_shown)),
                             .expected = "arguments as Megatron-LM takes them, --num-layers 32 and so on"});
        } else {
            std::string& value = out[name];
            value = value == "true" ? word : value + " " + word;
        }
    }
    return out;
}

// ---- reading --------------------------------------------------------------------------------

const std::string* MegatronReader::find(const std::string& name) {
    const auto found = arguments_.find(name);
    if (found == arguments_.end()) return nullptr;
    read_.insert(name);
    return &found->second;
}

std::string MegatronReader::text(const std::string& name, std::string otherwise) {
    const std::string* value = find(name);
    return value == nullptr ? std::move(otherwise) : *value;
}

std::string MegatronReader::choice(const std::string& name, std::string otherwise,
                                   const std::vector<std::string>& allowed) {
    const std::string* value = find(name);
    if (value == nullptr) return otherwise;
    if (std::find(allowed.begin(), allowed.end(), *value) == allowed.end())
        fail(name, fmt::format("one of {}", fmt::join(allowed, ", ")));
    return *value;
}

void MegatronReader::fail(const std::string& name, std::string expected) const {
    const auto found = arguments_.find(name);
    throw UserError(
        {.file = origin_,
         .field = "--" + name,
         .found = found == arguments_.end() ? "none" : fmt::format("\"{}\"", shortened(found->second, longest_shown)),
         .expected = std::move(expected)});
}

std::int64_t MegatronReader::integer(const std::string& name, std::int64_t otherwise) {
    const std::string* value = find(name);
    if (value == nullptr) return otherwise;
    std::int64_t n = 0;
    const auto [end, error] = std::from_chars(value->data(), value->data() + value->size(), n);
    constexpr std::int64_t most = std::int64_t{1} << 40;
    if (error != std::errc{} || end != value->data() + value->size() || n < 0 || n > most) fail(name, "a whole number");
    return n;
}

std::int64_t MegatronReader::needed(const std::string& name) {
    if (find(name) == nullptr) fail(name, "a whole number: Megatron-LM has no default for it");
    return integer(name, 0);
}

double MegatronReader::number(const std::string& name, double otherwise) {
    const std::string* value = find(name);
    if (value == nullptr) return otherwise;
    try {
        std::size_t end = 0;
        const double x = std::stod(*value, &end);
        if (end == value->size()) return x;
    } catch (const std::exception&) {
    }
    fail(name, "a number");
}

std::vector<std::string> MegatronReader::unread() const {
    std::vector<std::string> out;
    for (const auto& [name, value] : arguments_)
        if (read_.count(name) == 0 && !megatron_ignores(name)) out.push_back(name);
    return out;
}

// ---- the plan -------------------------------------------------------------------------------

namespace {

Json cluster_of(const MegatronSetting& setting, std::int64_t world) {
    if (setting.cluster) return cluster_to_json(*setting.cluster);
    const DeviceSpec device = device_from_json(Json(setting.gpu));
    ClusterSpec cluster = read_cluster(device.system);
    scale_to_devices(cluster, world);
    return cluster_to_json(cluster);
}

MegatronRun refusal(std::string reason, std::string why) {
    MegatronRun run;
    run.refused = std::move(reason);
    run.why = std::move(why);
    return run;
}

}  // namespace

MegatronRun plan_from_megatron(const MegatronArguments& arguments, const MegatronSetting& setting) {
    if (const std::string what = megatron_beyond(arguments, setting); !what.empty())
        return refusal(what, fmt::format("{} is not described here", what));
    MegatronReader reader(arguments, setting.origin);
    MegatronRun run;
    try {
        const MegatronLayout layout = read_layout(reader, setting, run.assumed);
        Json root = Json::object();
        root.set("model", megatron_model(reader, setting, run.assumed))
            .set("cluster", cluster_of(setting, layout.world))
            .set("framework", arguments.count("use-megatron-fsdp") > 0 ? "megatron-fsdp" : "megatron-lm@2024")
            .set("training", megatron_training(reader, layout, run.assumed))
            .set("parallelism", layout.parallelism);
        if (const std::vector<std::string> unread = reader.unread(); !unread.empty())
            return refusal("--" + unread.front(),
                           fmt::format("what --{} does is not described here", fmt::join(unread, ", --")));
        run.plan = plan_from_json(Json::parse(root.dump(-1), setting.origin));
    } catch (const Unsupported& e) {
        return refusal(e.text().field, fmt::format("{}: {}", e.text().field, e.text().found));
    }
    return run;
}

MegatronImage image_of(std::string_view env, bool deterministic) {
    const auto has = [&](std::string_view word) { return env.find(word) != std::string_view::npos; };
    MegatronImage out;
    const bool newest = has("gb200"), hopper = has("h100") || env == "dev";
    if (newest)
        out.gpu = "gb200-186gb";
    else if (hopper)
        out.gpu = "h100-sxm-80gb";
    else if (has("a100") || env == "lts")
        out.gpu = "a100-sxm-80gb";
    const bool before = has("dracooci");  // images of an older Transformer Engine, which had none that is deterministic
    if (before)
        out.attention = AttentionKind::unfused;
    else if (newest && deterministic)
        out.attention = AttentionKind::flash2;
    out.compiled = (has("lts") && !before) || hopper || newest;
    return out;
}

}  // namespace foretrain
