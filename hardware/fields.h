// The fields of the structs in a device or cluster file, with their ranges: named once, for reading
// and for writing.
//
//   NetworkConstants n;
//   FieldReader in(json);  visit(in, n);  in.finish();      // unknown keys are errors
//   Json out = Json::object();  FieldWriter w(out);  visit(w, n);
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "hardware/cluster_spec.h"

namespace foretrain {

// {"64": 0.65, "128": 0.703}: figures by a whole number, ascending. `key` says what the number is.
std::vector<std::pair<int, double>> by_count(const Json& value, const char* key, double least, double most);
Json by_count(const std::vector<std::pair<int, double>>& figures);

// Reads the keys that are there (null counts as left out) and keeps the defaults of the others.
class FieldReader {
public:
    explicit FieldReader(const Json& json) : json_(json) { json_.keys(); }  // refuses what is no object

    void operator()(const char* name, double& x, double least, double most) {
        if (const Json v = take(name); !v.is_null()) x = v.number(least, most);
    }
    void operator()(const char* name, int& x, int least, int most) {
        if (const Json v = take(name); !v.is_null()) x = static_cast<int>(v.integer(least, most));
    }
    void operator()(const char* name, std::int64_t& x, std::int64_t least, std::int64_t most) {
        if (const Json v = take(name); !v.is_null()) x = v.integer(least, most);
    }
    void operator()(const char* name, Bytes& x, std::int64_t least, std::int64_t most) {
        (*this)(name, x.value, least, most);
    }
    void operator()(const char* name, Bandwidth& x, double least, double most) {
        (*this)(name, x.bytes_per_second, least, most);
    }
    void operator()(const char* name, bool& x) {
        if (const Json v = take(name); !v.is_null()) x = v.boolean();
    }
    void operator()(const char* name, std::string& x) {
        const Json v = take(name);
        if (v.is_null()) return;
        x = std::string_view(name) == "name" ? v.name() : v.string();
    }
    void operator()(const char* name, std::map<std::string, std::string>& x) {
        const Json v = take(name);
        if (v.is_null()) return;
        for (const std::string& key : v.keys()) x[key] = v.at(key).string();
    }
    void operator()(const char* name, PriceRange& x, double least, double most) {
        const Json v = take(name);
        if (v.is_null()) return;
        const std::vector<Json> ends = v.items();
        if (ends.size() != 2) v.fail(v.found(), "two numbers: the lowest and the highest price");
        x.least = ends[0].number(least, most);
        x.most = ends[1].number(x.least, most);
    }
    // {"2": 20, "4": 80}: by number of ranks, of TFLOP/s
    void operator()(const char* name, std::vector<std::pair<int, double>>& x, double least, double most) {
        if (const Json v = take(name); !v.is_null()) x = by_count(v, "a number such as \"2\"", least, most);
    }
    void operator()(const char* name, BirthCertificate& x);

    template <class... Arguments>
    void unless_zero(const char* name, Arguments&&... arguments) {
        (*this)(name, std::forward<Arguments>(arguments)...);
    }

    // A member with a form of its own; it stands among the known keys from now on.
    Json take(const char* name) {
        names_.emplace_back(name);
        return json_.get(name);
    }
    void require(const char* name) const { json_.at(name); }
    void finish() const { json_.only_keys(names_); }

private:
    const Json& json_;
    std::vector<std::string> names_;
};

class FieldWriter {
public:
    explicit FieldWriter(Json& out) : out_(out) {}

    void operator()(const char* name, double x, double, double) { out_.set(name, x); }
    void operator()(const char* name, int x, int, int) { out_.set(name, x); }
    void operator()(const char* name, std::int64_t x, std::int64_t, std::int64_t) { out_.set(name, x); }
    void operator()(const char* name, Bytes x, std::int64_t, std::int64_t) { out_.set(name, x.value); }
    void operator()(const char* name, Bandwidth x, double, double) { out_.set(name, x.bytes_per_second); }
    void operator()(const char* name, const std::string& x) { out_.set(name, x); }
    void operator()(const char* name, const bool& x) { out_.set(name, x); }
    void operator()(const char* name, const std::map<std::string, std::string>& x) {
        if (x.empty()) return;
        Json members = Json::object();
        for (const auto& [key, value] : x) members.set(key, value);
        out_.set(name, std::move(members));
    }
    void operator()(const char* name, PriceRange x, double, double) {
        if (x.most > 0) out_.set(name, Json::array().push(Json(x.least)).push(Json(x.most)));
    }
    void operator()(const char* name, const std::vector<std::pair<int, double>>& x, double, double) {
        out_.set(name, by_count(x));
    }
    void operator()(const char* name, const BirthCertificate& x);

    // A member with a form of its own.
    void put(const char* name, Json value) { out_.set(name, std::move(value)); }

    // What is unknown where it is zero or empty is left out.
    template <class T, class... Range>
    void unless_zero(const char* name, const T& x, Range... range) {
        if (x != T{}) (*this)(name, x, range...);
    }

private:
    Json& out_;
};

constexpr double longest_us = 1e7;     // ten seconds: no launch or hop takes longer
constexpr double slowest_gbps = 1e-3;  // a megabyte a second
constexpr double fastest_gbps = 1e6;   // a petabyte a second
constexpr double fastest_link = 1e15;  // the same in bytes a second
constexpr std::int64_t largest_memory = std::int64_t{1} << 50;
constexpr std::int64_t most_nodes = std::int64_t{1} << 24;
constexpr double widest_spread = 1;

template <class Visitor, class Struct>
void visit_born(Visitor& v, Struct& b) {
    v("source", b.source);
    v("device", b.device);
    v("date", b.date);
}

inline void FieldReader::operator()(const char* name, BirthCertificate& x) {
    const Json value = take(name);
    if (value.is_null()) return;
    FieldReader inner(value);
    visit_born(inner, x);
    inner.finish();
}

inline void FieldWriter::operator()(const char* name, const BirthCertificate& x) {
    if (x == BirthCertificate{}) return;
    Json members = Json::object();
    FieldWriter inner(members);
    visit_born(inner, x);
    out_.set(name, std::move(members));
}

// `dtype`, `tiles` and `splits` have forms of their own.
template <class Visitor>
void visit(Visitor& v, GemmConstants& g) {
    v("efficiency", g.efficiency, 1e-6, 10.0);
    v("intensity", g.intensity, 0.0, 1e6);
    v("tile_overhead_us", g.tile_overhead_us, 0.0, longest_us);
    v("wave_quantisation", g.wave_quantisation, 0.0, 10.0);
    v("p", g.p, 0.5, 100.0);
    v("launch_us", g.launch_us, 0.0, longest_us);
    v("sustained", g.sustained, 0.0, 10.0);
    v.unless_zero("throttle", g.throttle, 0.0, 10.0);
    v("split_cost", g.split_cost, 0.0, 1e3);
    v("epilogue", g.epilogue, 0.0, 1e3);
    v.unless_zero("quantisation", g.quantisation, 0.0, 1e3);
    v("spread", g.spread, 0.0, widest_spread);
    v("born", g.born);
}

// `efficiency` has a form of its own.
template <class Visitor>
void visit(Visitor& v, AttentionPass& a) {
    v("tile_overhead_us", a.tile_overhead_us, 0.0, longest_us);
    v("p", a.p, 0.5, 100.0);
    v("launch_us", a.launch_us, 0.0, longest_us);
}

// `forward` and `backward` have forms of their own.
template <class Visitor>
void visit(Visitor& v, AttentionConstants& a) {
    v("kernel", a.kernel);
    v("spread", a.spread, 0.0, widest_spread);
    v("born", a.born);
}

template <class Visitor>
void visit(Visitor& v, MemoryBoundConstants::Override& o) {
    v("kind", o.kind);
    v("launch_us", o.launch_us, 0.0, longest_us);
    v("efficiency", o.efficiency, 1e-6, 1e3);  // above 1 where a cache serves
}

// `overrides` has a form of its own.
template <class Visitor>
void visit(Visitor& v, MemoryBoundConstants& m) {
    v("launch_us", m.launch_us, 0.0, longest_us);
    v("efficiency", m.efficiency, 1e-6, 1e3);
    v("spread", m.spread, 0.0, widest_spread);
    v("born", m.born);
}

template <class Visitor>
void visit(Visitor& v, DomainConstants& d) {
    v("link", d.link);
    v("ring_gbps", d.ring_gbps, 0.0, fastest_gbps);
    v("ring_gbps_by_ranks", d.ring_gbps_by_ranks, 1e-3, fastest_gbps);
    v("a_us", d.a_us, 0.0, longest_us);
    v("s_us", d.s_us, 0.0, longest_us);
    v("d", d.d, 0.0, 1e3);
    v("ramp_us", d.ramp_us, 0.0, longest_us);
    v("simple_s_us", d.simple_s_us, 0.0, longest_us);
    v("simple_from_bytes", d.simple_from, std::int64_t{0}, largest_memory);
    v("nvls_ranks", d.nvls_ranks, 0, 1 << 20);
    v("nvls_gbps", d.nvls_gbps, 0.0, fastest_gbps);
    v("nvls_wide_gbps", d.nvls_wide_gbps, 0.0, fastest_gbps);
    v("nvls_a_us", d.nvls_a_us, 0.0, longest_us);
    v("nvls_ramp_us", d.nvls_ramp_us, 0.0, longest_us);
    v("pairwise_gbps", d.pairwise_gbps, 0.0, fastest_gbps);
    v("pairwise_a_us", d.pairwise_a_us, 0.0, longest_us);
    v("pairwise_p_us", d.pairwise_p_us, 0.0, longest_us);
    v("pairwise_ramp_us", d.pairwise_ramp_us, 0.0, longest_us);
    v("pairwise_s_us", d.pairwise_s_us, 0.0, longest_us);
    v("pairwise_d", d.pairwise_d, 0.0, 1e3);
    v("spread", d.spread, 0.0, widest_spread);
    v("born", d.born);
}

template <class Visitor>
void visit(Visitor& v, NetworkConstants& c) {
    v("efficiency", c.efficiency, 1e-3, 1.0);
    v("hop_us", c.hop_us, 0.0, longest_us);
    v("l1_us", c.l1_us, 0.0, longest_us);
    v("k_us", c.k_us, 0.0, longest_us);
    v("ramp_us", c.ramp_us, 0.0, longest_us);
    v("two_node_tree_gbps", c.two_node_tree_gbps, 0.0, fastest_gbps);
    v("p2p_us", c.p2p_us, 0.0, longest_us);
    v("p2p_efficiency", c.p2p_efficiency, 1e-3, 1.0);
    v("latency_scale", c.latency_scale, 0.0, 1e3);
    v("spread", c.spread, 0.0, widest_spread);
    v("born", c.born);
}

template <class Visitor>
void visit(Visitor& v, NetworkSpec& n) {
    v.unless_zero("fabric", n.fabric);
    v("nics_per_node", n.nics_per_node, 0, 1 << 16);
    v("nic_bytes_per_second", n.nic, 0.0, fastest_link);
    v("oversubscription", n.oversubscription, 1.0, 1e4);
    v.unless_zero("leaf_nodes", n.leaf_nodes, std::int64_t{0}, most_nodes);
    visit(v, n.constants);
}

// `peak` and `calibration` have forms of their own.
template <class Visitor>
void visit(Visitor& v, DeviceSpec& d) {
    v("name", d.name);
    v("memory_bytes", d.memory, MiB, largest_memory);
    v("memory_bandwidth_bytes_per_second", d.memory_bandwidth, 1e6, fastest_link);
    v.unless_zero("host_link_bytes_per_second", d.host_link.bytes_per_second, 0.0, fastest_link);
    v("multiprocessors", d.multiprocessors, 1, 1 << 20);
    v("reserved_bytes", d.reserved, std::int64_t{0}, largest_memory);
    v.unless_zero("power_watts", d.power_watts, 0.0, 1e6);
    v("price_usd_per_hour", d.price, 0.0, 1e6);
    v.unless_zero("system", d.system);
    v("sources", d.sources);
}

// `device`, `domain` and `network` have forms of their own.
template <class Visitor>
void visit(Visitor& v, ClusterSpec& c) {
    v("name", c.name);
    v("devices_per_node", c.devices_per_node, 1, 1 << 20);
    v.unless_zero("devices_per_whole_node", c.devices_per_whole_node, 0, 1 << 20);
    v.unless_zero("devices_per_tray", c.devices_per_tray, 0, 1 << 20);
    v("nodes", c.nodes, std::int64_t{1}, most_nodes);
    v("host_memory_bytes", c.host_memory, std::int64_t{0}, largest_memory);
    v.unless_zero("power_watts_per_node", c.power_watts_per_node, 0.0, 1e8);
    v("price_usd_per_device_hour", c.price, 0.0, 1e6);
    v("default_framework", c.default_framework);
    v("sources", c.sources);
}

}  // namespace foretrain
