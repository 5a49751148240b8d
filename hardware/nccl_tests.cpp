#include "hardware/nccl_tests.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <set>

#include "base/error.h"
#include "hardware/fields.h"
#include "hardware/measured.h"

namespace foretrain {

namespace {

constexpr std::array<std::string_view, 6> collectives{"all_reduce", "all_gather", "reduce_scatter",
                                                      "sendrecv",   "alltoall",   "broadcast"};
// Of a line of results: size, count, type, redop, root, time, algorithm and bus bandwidth.
constexpr std::size_t size_column = 0, time_column = 5, bus_column = 7;

std::vector<std::string_view> words_of(std::string_view line) {
    std::vector<std::string_view> words;
    for (std::size_t at = line.find_first_not_of(" \t\r"); at != std::string_view::npos;) {
        const std::size_t end = std::min(line.find_first_of(" \t\r", at), line.size());
        words.push_back(line.substr(at, end - at));
        at = line.find_first_not_of(" \t\r", end);
    }
    return words;
}

bool is_number(std::string_view word, double& x) {
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), x);
    return error == std::errc{} && end == word.data() + word.size() && std::isfinite(x) && x >= 0;
}

std::string collective_in(std::string_view text) {
    for (const std::string_view c : collectives)
        if (text.find(c) != std::string_view::npos) return std::string(c);
    return "";
}

// "#  Rank  0 Group  0 Pid 1234 on   node-1 device  0 [0x07] NVIDIA H100": the word after `on` is the host.
void count_rank(const std::vector<std::string_view>& words, std::set<std::string>& hosts, NcclTest& test) {
    if (words.size() < 3 || words[0] != "#" || words[1] != "Rank") return;
    ++test.ranks;
    const auto on = std::find(words.begin(), words.end(), "on");
    if (on != words.end() && on + 1 != words.end()) hosts.emplace(on[1]);
}

NcclTest::Size size_of(const std::vector<std::string_view>& words, const std::string& file, std::size_t line) {
    const auto figure = [&](std::size_t column, const char* what, double least, double most) {
        double x = 0;
        if (column >= words.size() || !is_number(words[column], x) || x < least || x > most)
            throw UserError({.file = fmt::format("{}:{}", file, line),
                             .field = what,
                             .found = column >= words.size()
                                          ? "nothing"
                                          : fmt::format("\"{}\"", shortened(std::string(words[column]), 40)),
                             .expected = "a number, as nccl-tests print it: size, count, type, redop, root, time, "
                                         "algbw, busbw"});
        return x;
    };
    constexpr double largest_size = 1e15;
    const double bytes = figure(size_column, "size", 0, largest_size);
    figure(time_column, "time", 0, largest_size);
    return {static_cast<std::int64_t>(bytes), figure(bus_column, "busbw", 0, fastest_gbps)};
}

[[noreturn]] void refuse(const std::string& source, std::string found, std::string expected) {
    throw UserError({.file = source, .found = std::move(found), .expected = std::move(expected)});
}

}  // namespace

double NcclTest::plateau_gbps() const {
    double most = 0;
    for (const Size& s : sizes)
        if (s.bytes >= sizes.back().bytes / 4) most = std::max(most, s.bus_gbps);
    return most;
}

NcclTest read_nccl_test(std::string_view text, const std::string& origin) {
    NcclTest test;
    std::set<std::string> hosts;
    std::size_t number = 0;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::string_view line = text.substr(0, end);
        text.remove_prefix(std::min(end + 1, text.size()));
        ++number;
        const std::vector<std::string_view> words = words_of(line);
        if (words.empty()) continue;
        if (words[0].front() == '#') {
            count_rank(words, hosts, test);
            if (line.find("test starting") != std::string_view::npos) test.collective = collective_in(line);
            continue;
        }
        double first = 0;
        if (!is_number(words[0], first)) continue;  // what a launcher says in between
        test.sizes.push_back(size_of(words, origin, number));
    }
    if (test.collective.empty()) test.collective = collective_in(origin);
    test.nodes = static_cast<int>(hosts.size());
    if (test.sizes.empty()) refuse(origin, "no line of results", "the output of nccl-tests, such as all_reduce_perf's");
    std::stable_sort(test.sizes.begin(), test.sizes.end(),
                     [](const NcclTest::Size& a, const NcclTest::Size& b) { return a.bytes < b.bytes; });
    if (test.collective.empty())
        refuse(origin, "no name of a collective",
               "one in the output (\"Collective test starting: ...\") or in the file's name (\"all_reduce.txt\")");
    return test;
}

void set_measured(ClusterSpec& cluster, const NcclTest& t, const std::string& source) {
    constexpr std::int64_t least_size = std::int64_t{64} << 20;
    if (t.sizes.back().bytes < least_size)
        refuse(source, fmt::format("sizes up to {} bytes", t.sizes.back().bytes),
               fmt::format("at least {} MiB, where the bandwidth no longer rises", least_size / MiB));
    const bool across = t.nodes > 1 || t.ranks > cluster.devices_per_node;
    if (!across && t.ranks > 0 && t.ranks != cluster.devices_per_node)
        refuse(source, fmt::format("{} ranks on a node", t.ranks),
               fmt::format("all {} devices of a node of {}", cluster.devices_per_node, cluster.name));
    const bool pairwise = t.collective == "sendrecv";
    const bool gather = t.collective == "all_gather" || t.collective == "reduce_scatter";
    const bool reduce = t.collective == "all_reduce";
    if (!reduce && (across || !(pairwise || gather)))
        refuse(source, fmt::format("{}{}", t.collective, across ? " across nodes" : ""),
               "all_reduce, or on one node all_gather, reduce_scatter or sendrecv");
    Json measured = Json::object();
    measured.set(pairwise ? "pairwise" : gather ? "all_gather" : "all_reduce", t.plateau_gbps());
    measured.set("source", fmt::format("nccl-tests, {}", source));
    // Parsed again, so that an error names the file.
    const Json read = Json::parse(measured.dump(-1), source);
    if (across)
        set_measured(cluster.network, read);
    else
        set_measured(cluster.domain, read, cluster.devices_per_node);
}

}  // namespace foretrain
