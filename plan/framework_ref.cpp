#include "plan/framework_ref.h"

#include <fmt/format.h>

#include <algorithm>
#include <ostream>
#include <vector>

#include "base/error.h"
#include "base/file_name.h"
#include "base/json.h"
#include "plan/framework.h"
#include "plan/framework_file.h"

namespace foretrain {

FrameworkRef::FrameworkRef(Framework profile, Json written)
    : reference_(profile.name + "@" + profile.version),
      own_(std::make_shared<const Framework>(std::move(profile))),
      written_(std::make_shared<const Json>(std::move(written))) {}

FrameworkRef& FrameworkRef::operator=(std::string_view reference) {
    *this = FrameworkRef(std::string(reference));
    return *this;
}

bool FrameworkRef::operator==(const FrameworkRef& other) const {
    if (reference_ != other.reference_) return false;
    if (own_ == nullptr || other.own_ == nullptr) return own_ == other.own_;
    return *own_ == *other.own_;
}

std::ostream& operator<<(std::ostream& out, const FrameworkRef& ref) {
    return out << ref.reference() << (ref.own() == nullptr ? "" : " (own)");
}

namespace {

// One of a file's versions; `version` empty: its last.
FrameworkRef version_of(const Json& file, const std::string& version, const Json& where) {
    std::vector<Framework> all = frameworks_from_json(file);
    if (all.empty()) file.at("versions").fail("no version", "at least one");
    std::size_t chosen = all.size() - 1;
    if (!version.empty()) {
        std::vector<std::string> versions;
        for (const Framework& f : all) versions.push_back(f.version);
        const auto found = std::find(versions.begin(), versions.end(), version);
        if (found == versions.end())
            where.fail(fmt::format("version \"{}\"", version.substr(0, 80)), "one of the file's versions",
                       nearest(version.substr(0, 80), versions));
        chosen = static_cast<std::size_t>(found - versions.begin());
    }
    Json written = framework_file_json({all[chosen]});
    return {std::move(all[chosen]), std::move(written)};
}

// "mine.json" or "mine.json@2024"
FrameworkRef from_file(const Json& value, const std::string& text) {
    const std::size_t at = text.rfind('@');
    const bool versioned = at != std::string::npos && text.find('/', at) == std::string::npos;
    const std::string path = text.substr(0, versioned ? at : text.size());
    return version_of(Json::parse_file(beside(value.file(), path)), versioned ? text.substr(at + 1) : "", value);
}

std::string known_name(const Json& value) {
    std::string name = value.string();
    if (find_framework(name) != nullptr) return name;
    UnknownFramework unknown = unknown_framework(name);
    value.fail(value.found(), "one of " + unknown.allowed, std::move(unknown.suggestion));
}

// {"name", "version"}
std::string reference_from(const Json& value) {
    const Json name = value.at("name");
    std::string found = known_name(name);
    if (!value.has("version")) return found;
    const std::vector<std::string> versions = framework_versions(found);
    if (versions.empty()) name.fail(name.found(), "a name without a version, beside \"version\"");
    return fmt::format("{}@{}", found, versions[value.at("version").one_of(versions)]);
}

}  // namespace

bool names_framework_file(std::string_view text) {
    return names_a_file(text) || names_a_file(text.substr(0, text.rfind('@')));
}

FrameworkRef framework_from_json(const Json& value) {
    if (!value.is_object()) {
        const std::string text = value.string();
        return names_framework_file(text) ? from_file(value, text) : FrameworkRef(known_name(value));
    }
    if (value.has("versions")) return version_of(value, "", value);
    value.only_keys({"name", "version", "overrides"});
    std::string reference = reference_from(value);
    if (!value.has("overrides") || value.at("overrides").keys().empty()) return FrameworkRef(std::move(reference));
    Framework profile = *find_framework(reference);
    override_framework(profile, value.at("overrides"));
    Json written = Json::object();
    written.set("name", profile.name).set("version", profile.version).set("overrides", value.at("overrides"));
    return {std::move(profile), std::move(written)};
}

// A version that was named stays named.
Json framework_to_json(const FrameworkRef& ref) {
    if (ref.written() != nullptr) return *ref.written();
    const std::size_t at = ref.reference().find('@');
    if (at == std::string::npos) return Json(ref.reference());
    Json out = Json::object();
    return out.set("name", ref.reference().substr(0, at)).set("version", ref.reference().substr(at + 1));
}

}  // namespace foretrain
