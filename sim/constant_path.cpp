#include "sim/constant_path.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <limits>

namespace foretrain {

namespace {

constexpr std::array<std::string_view, 4> room_names{"costs", "calibration", "domain", "network"};

struct Member {
    std::string name;
    Json value;
};

// By their keys; of a list by their first text.
std::vector<Member> members_of(const Json& value) {
    std::vector<Member> members;
    if (value.is_object())
        for (const std::string& key : value.keys()) members.push_back({key, value.at(key)});
    if (!value.is_array()) return members;
    for (const Json& item : value.items()) {
        std::string name;
        if (item.is_object())
            for (const std::string& key : item.keys())
                if (name.empty() && item.at(key).is_string()) name = item.at(key).string();
        members.push_back({std::move(name), item});
    }
    return members;
}

void expand(const Json& value, const Place& pattern, Place so_far, std::vector<Place>& out) {
    if (so_far.size() == pattern.size()) {
        if (value.is_number()) out.push_back(std::move(so_far));
        return;
    }
    for (const Member& m : members_of(value)) {
        if (!matches(pattern[so_far.size()], m.name)) continue;
        Place longer = so_far;
        longer.push_back(m.name);
        expand(m.value, pattern, std::move(longer), out);
    }
}

Json with_figure(const Json& figures, const Place& place, std::size_t depth, const Json& value) {
    if (depth == place.size()) return value;
    const bool list = figures.is_array();
    Json out = list ? Json::array() : Json::object();
    for (const Member& m : members_of(figures)) {
        Json member = m.name == place[depth] ? with_figure(m.value, place, depth + 1, value) : m.value;
        if (list)
            out.push(std::move(member));
        else
            out.set(m.name, std::move(member));
    }
    return out;
}

}  // namespace

std::string_view name_of(FigureRoom room) { return room_names[static_cast<std::size_t>(room)]; }

ConstantPath constant_path(const Json& text) {
    const std::string path = text.string();
    for (std::size_t r = 0; r < room_names.size(); ++r) {
        const std::string mark = fmt::format(".{}.", room_names[r]);
        const std::size_t at = path.find(mark);
        if (at == std::string::npos || at == 0) continue;
        ConstantPath p{.owner = path.substr(0, at), .room = static_cast<FigureRoom>(r), .inside = {}};
        for (std::size_t from = at + mark.size(); from <= path.size();) {
            const std::size_t dot = std::min(path.find('.', from), path.size());
            p.inside.push_back(path.substr(from, dot - from));
            if (p.inside.back().empty()) break;
            from = dot + 1;
        }
        if (!p.inside.back().empty()) return p;
    }
    text.fail(text.found(),
              "a path such as \"megatron-lm@2024.costs.stall.step_us\" or "
              "\"h100-sxm-80gb.calibration.gemm.bf16.efficiency\"");
}

std::string text_of(const ConstantPath& p) {
    return fmt::format("{}.{}.{}", p.owner, name_of(p.room), fmt::join(p.inside, "."));
}

bool matches(std::string_view pattern, std::string_view name) {
    const std::size_t star = pattern.find('*');
    if (star == std::string_view::npos) return pattern == name;
    if (name.substr(0, star) != pattern.substr(0, star)) return false;
    const std::string_view rest = pattern.substr(star + 1);
    for (std::size_t from = star; from <= name.size(); ++from)
        if (matches(rest, name.substr(from))) return true;
    return false;
}

std::vector<Place> places_in(const Json& figures, const Place& pattern) {
    std::vector<Place> out;
    expand(figures, pattern, {}, out);
    return out;
}

double figure_in(const Json& figures, const Place& place) {
    Json value = figures;
    for (const std::string& name : place)
        for (const Member& m : members_of(Json(value)))
            if (m.name == name) {
                value = m.value;
                break;
            }
    constexpr double most = std::numeric_limits<double>::max();
    return value.number(-most, most);
}

Json with_figure(const Json& figures, const Place& place, Json value) { return with_figure(figures, place, 0, value); }

}  // namespace foretrain
