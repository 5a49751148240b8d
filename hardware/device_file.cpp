#include "hardware/device_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>

#include "base/error.h"
#include "base/file_name.h"
#include "base/preset.h"
#include "hardware/calibration_file.h"
#include "hardware/fields.h"

namespace foretrain {

namespace {

constexpr const char* device_format = "foretrain.device/1";

DeviceSpec device_from_object(const Json& value) {
    DeviceSpec d;
    FieldReader in(value);
    if (const Json format = in.take("format"); !format.is_null()) format.one_of({device_format});
    visit(in, d);
    in.take("aliases");  // by which a preset is found
    for (const char* name : {"name", "memory_bytes", "memory_bandwidth_bytes_per_second"}) in.require(name);
    in.require("peak_flops_per_second");
    const Json peak = in.take("peak_flops_per_second");
    for (const std::string& key : peak.keys())
        d.peak[dtype_of(peak.at(key), key)] = FlopRate{peak.at(key).number(1e6, 1e18)};
    if (const Json c = in.take("calibration"); !c.is_null()) d.calibration = calibration_from_json(c);
    in.finish();
    if (d.reserved >= d.memory)
        value.at("reserved_bytes").fail(std::to_string(d.reserved.value), "less than memory_bytes");
    return d;
}

}  // namespace

DeviceSpec device_from_json(const Json& value) {
    if (!value.is_string()) return device_from_object(value);
    const std::string name = value.string();
    if (names_a_file(name)) return device_from_object(Json::parse_file(beside(value.file(), name)));
    return device_from_object(hardware_preset(name, device_format, value));
}

Json device_to_json(const DeviceSpec& device) {
    DeviceSpec d = device;
    Json out = Json::object();
    out.set("format", device_format);
    FieldWriter w(out);
    visit(w, d);
    Json peak = Json::object();
    for (const auto& [dtype, rate] : d.peak) peak.set(name_of(dtype), rate.per_second);
    return out.set("peak_flops_per_second", std::move(peak)).set("calibration", calibration_to_json(d.calibration));
}

std::vector<std::string> device_preset_names() { return hardware_preset_names(device_format); }

namespace {

// "H100_SXM5-80GB" as "h100-sxm5-80gb": preset names are lower-case with dashes.
std::string as_preset_name(std::string text) {
    for (char& c : text)
        c = c == '_' || c == ' ' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

// What is embedded never changes, so that each preset is parsed once, when it is first asked for.
Json parsed(const Preset& preset) {
    static std::mutex guard;
    static std::map<std::string_view, Json> known;
    const std::lock_guard lock(guard);
    const auto there = known.find(preset.name);
    if (there != known.end()) return there->second;
    return known.emplace(preset.name, Json::parse(preset.text, fmt::format("preset {}", preset.name))).first->second;
}

bool is_called(const Preset& preset, const Json& json, const std::string& name) {
    if (preset.name == name) return true;
    const Json aliases = json.get("aliases");
    if (aliases.is_null()) return false;
    const std::vector<Json> items = aliases.items();
    return std::any_of(items.begin(), items.end(), [&](const Json& a) { return a.string() == name; });
}

}  // namespace

Json hardware_preset(const std::string& name, const std::string& format, const Json& where) {
    const std::string wanted = as_preset_name(name.substr(0, 100));
    for (const Preset& p : hardware_presets()) {
        if (p.text.find('"' + wanted + '"') == std::string_view::npos && p.name != wanted) continue;  // spares parsing
        Json preset = parsed(p);
        if (preset.at("format").string() == format && is_called(p, preset, wanted)) return preset;
    }
    const std::vector<std::string> names = hardware_preset_names(format);
    where.fail(where.found(),
               fmt::format("one of {} presets (`foretrain clusters` lists them){} or a file name", names.size(),
                           where.path().empty() ? "" : ", an object"),
               nearest(wanted, names));
}

std::vector<std::string> hardware_preset_names(const std::string& format) {
    std::vector<std::string> names;
    for (const Preset& p : hardware_presets())
        if (parsed(p).at("format").string() == format) names.emplace_back(p.name);
    return names;
}

}  // namespace foretrain
