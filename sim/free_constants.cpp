#include "sim/free_constants.h"

#include <algorithm>

#include "base/error.h"
#include "base/preset.h"

namespace foretrain {

namespace {

constexpr const char* constants_format = "foretrain.constants/1";
constexpr double largest_figure = 1e9;
constexpr double widest_prior = 2;  // more than a factor of seven says nothing

ConstantRule rule_from(const Json& value) {
    value.only_keys({"name", "paths", "each", "whole", "least", "most", "prior", "neutral", "reason"});
    ConstantRule r;
    r.name = value.at("name").name();
    for (const Json& path : value.at("paths").items()) r.paths.push_back(constant_path(path));
    if (r.paths.empty()) value.at("paths").fail("none", "at least one path");
    if (value.has("each")) r.each = value.at("each").boolean();
    if (value.has("whole")) r.whole = value.at("whole").boolean();
    r.least = value.at("least").number(0, largest_figure);
    r.most = value.at("most").number(r.least, largest_figure);
    const Json prior = value.at("prior");
    if (!prior.is_string())
        r.prior = prior.number(1e-3, widest_prior);
    else
        prior.one_of({"spread"});
    if (value.has("neutral")) r.neutral = value.at("neutral").number(r.least, r.most);
    r.reason = value.at("reason").string();
    return r;
}

bool means(const std::string& pattern, const ConstantRule& rule) {
    return matches(pattern, rule.name) || std::any_of(rule.paths.begin(), rule.paths.end(), [&](const ConstantPath& p) {
               return matches(pattern, text_of(p));
           });
}

}  // namespace

std::vector<ConstantRule> constant_rules_from_json(const Json& file) {
    file.only_keys({"format", "constants"});
    file.at("format").one_of({constants_format});
    std::vector<ConstantRule> rules;
    for (const Json& value : file.at("constants").items()) {
        rules.push_back(rule_from(value));
        const auto same = [&](const ConstantRule& r) { return r.name == rules.back().name; };
        if (std::count_if(rules.begin(), rules.end(), same) > 1)
            value.at("name").fail(value.at("name").found() + " again", "a name of its own");
    }
    return rules;
}

const std::vector<ConstantRule>& constant_rules() {
    static const std::vector<ConstantRule> rules = [] {
        std::vector<ConstantRule> all;
        for (const Preset& preset : sim_presets())
            for (ConstantRule& rule : constant_rules_from_json(Json::parse(preset.text, preset.name)))
                all.push_back(std::move(rule));
        return all;
    }();
    return rules;
}

std::vector<ConstantRule> constant_rules(const std::string& pattern) {
    std::vector<ConstantRule> some;
    std::vector<std::string> names;
    for (const ConstantRule& rule : constant_rules()) {
        names.push_back(rule.name);
        if (means(pattern, rule)) some.push_back(rule);
    }
    if (some.empty())
        throw UserError({.field = "constants",
                         .found = "\"" + pattern.substr(0, 80) + "\"",
                         .expected = "a constant's name or path, in which * stands for any letters",
                         .suggestion = nearest(pattern.substr(0, 80), names)});
    return some;
}

}  // namespace foretrain
