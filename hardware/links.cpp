#include "hardware/links.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "hardware/calibration_file.h"
#include "hardware/device_file.h"
#include "hardware/fields.h"

namespace foretrain {

namespace {

constexpr const char* links_format = "foretrain.links/1";

// "domain" or "network": an object of entries by name.
Json section(const char* name) { return hardware_preset("links", links_format, Json("links")).at(name); }

template <class Constants>
Constants entry(const Json& all, const std::string& name) {
    Constants c;
    const Json value = all.at(name);
    FieldReader in(value);
    if (const std::optional<Carried> carried = carried_over(in)) {
        c = entry<Constants>(all, carried->like);
        carry_over(c, *carried);
    }
    visit(in, c);
    in.finish();
    return c;
}

[[noreturn]] void unknown(const Json& at, const std::vector<std::string>& names) {
    at.fail(at.found(), fmt::format("one of {}", fmt::join(names, ", ")), nearest(at.string().substr(0, 100), names));
}

}  // namespace

std::optional<DomainConstants> find_domain_constants(const std::string& link) {
    const Json all = section("domain");
    if (!all.has(link)) return std::nullopt;
    DomainConstants d = entry<DomainConstants>(all, link);
    d.link = link;
    return d;
}

DomainConstants domain_constants(const Json& link) {
    if (const auto d = find_domain_constants(link.string())) return *d;
    unknown(link, domain_links());
}

NetworkConstants network_constants(const Json& fabric) {
    const Json all = section("network");
    if (!all.has(fabric.string())) unknown(fabric, fabrics());
    return entry<NetworkConstants>(all, fabric.string());
}

std::vector<std::string> domain_links() { return section("domain").keys(); }

std::vector<std::string> fabrics() { return section("network").keys(); }

}  // namespace foretrain
