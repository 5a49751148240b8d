// Reading the tables that hardware/table_fit.h fits to.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <fstream>
#include <map>

#include "base/error.h"
#include "base/json.h"
#include "hardware/table_fit.h"

namespace foretrain {

namespace {

constexpr std::int64_t longest_side = std::int64_t{1} << 32;  // of a matrix
constexpr double longest_call_us = 1e9;

std::vector<std::string> cells_of(const std::string& line) {
    std::vector<std::string> cells;
    for (std::size_t from = 0; from <= line.size();) {
        const std::size_t comma = std::min(line.find(',', from), line.size());
        std::string cell = line.substr(from, comma - from);
        while (!cell.empty() && (cell.back() == '\r' || cell.back() == ' ')) cell.pop_back();
        cells.push_back(std::move(cell));
        from = comma + 1;
    }
    return cells;
}

// A CSV file's columns by name.
class Columns {
public:
    Columns(const std::string& file, const std::string& header) : file_(file) {
        const std::vector<std::string> names = cells_of(header);
        for (std::size_t i = 0; i < names.size(); ++i) index_.emplace(names[i], i);
        for (const char* name : {"gpu", "dtype", "m", "n", "k", "latency_us"})
            if (!index_.contains(name))
                throw UserError(
                    {.file = file,
                     .field = "line 1",
                     .found = "\"" + shortened(header) + "\"",
                     .expected = fmt::format("a header with a column {}: gpu, dtype, m, n, k, latency_us", name),
                     .suggestion = ""});
    }

    void take(std::string line, std::size_t number) {
        line_ = number;
        cells_ = cells_of(line);
        if (cells_.size() < index_.size())
            fail("columns", fmt::format("{} of them", cells_.size()), fmt::format("{}, as the header", index_.size()));
    }

    const std::string& text(const char* name) const { return cells_[index_.at(name)]; }

    double number(const char* name, double most) const {
        const std::string& cell = text(name);
        double x = 0;
        const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), x);
        if (error != std::errc{} || end != cell.data() + cell.size() || !(x > 0) || x > most)
            fail(name, "\"" + shortened(cell) + "\"", fmt::format("a number above 0, at most {:g}", most));
        return x;
    }

    std::int64_t side(const char* name) const {
        const double x = number(name, static_cast<double>(longest_side));
        if (x != static_cast<double>(static_cast<std::int64_t>(x)))
            fail(name, "\"" + text(name) + "\"", "a whole number");
        return static_cast<std::int64_t>(x);
    }

    [[noreturn]] void fail(const std::string& column, std::string found, std::string expected) const {
        throw UserError({.file = file_,
                         .field = fmt::format("line {}, {}", line_, column),
                         .found = std::move(found),
                         .expected = std::move(expected),
                         .suggestion = ""});
    }

private:
    std::string file_;
    std::map<std::string, std::size_t> index_;
    std::vector<std::string> cells_;
    std::size_t line_ = 1;
};

DType dtype_in(const Columns& columns) {
    const std::string& name = columns.text("dtype");
    if (const auto type = dtype_from_name(name)) return *type;
    columns.fail("dtype", "\"" + shortened(name) + "\"", "an element type: fp32, bf16, fp16, fp8");
}

}  // namespace

std::vector<MeasuredGemm> read_gemm_table(const std::string& path) {
    std::ifstream in(path);
    std::string line;
    if (!in || !std::getline(in, line))
        throw UserError({.file = path,
                         .field = "",
                         .found = in.is_open() ? "an empty file" : "no file that can be read",
                         .expected = "a CSV table of measured products",
                         .suggestion = ""});
    Columns columns(path, line);
    std::vector<MeasuredGemm> rows;
    for (std::size_t number = 2; std::getline(in, line); ++number) {
        if (line.empty() || line == "\r") continue;
        columns.take(line, number);
        rows.push_back({columns.text("gpu"), dtype_in(columns), columns.side("m"), columns.side("n"), columns.side("k"),
                        columns.number("latency_us", longest_call_us)});
    }
    return rows;
}

std::vector<MeasuredGemm> rows_of(const std::vector<MeasuredGemm>& rows, const std::string& gpu, DType dtype) {
    std::vector<MeasuredGemm> out;
    std::copy_if(rows.begin(), rows.end(), std::back_inserter(out),
                 [&](const MeasuredGemm& r) { return r.gpu == gpu && r.dtype == dtype; });
    return out;
}

std::vector<MeasuredCollective> read_collective_table(const std::string& path) {
    static const std::map<std::string, Collective> kinds{{"all_reduce", Collective::all_reduce},
                                                         {"all_gather", Collective::all_gather},
                                                         {"reduce_scatter", Collective::reduce_scatter},
                                                         {"alltoall", Collective::all_to_all}};
    constexpr std::int64_t most_ranks = 1 << 24, most_bytes = std::int64_t{1} << 50;
    std::vector<MeasuredCollective> rows;
    for (const Json& line : Json::parse_lines_of(path)) {
        const auto kind = kinds.find(line.at("collective").string());
        // Some were published as a bandwidth alone, or without the number of ranks.
        if (kind == kinds.end() || !line.has("time_us") || !line.has("ranks")) continue;
        rows.push_back({line.has("table") ? line.at("table").string() : "", kind->second,
                        line.at("ranks").integer(1, most_ranks),
                        line.has("nodes") ? line.at("nodes").integer(1, most_ranks) : 1,
                        line.at("bytes").integer(1, most_bytes), line.at("time_us").number(1e-3, longest_call_us)});
    }
    return rows;
}

}  // namespace foretrain
