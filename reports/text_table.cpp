#include "reports/text_table.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace foretrain {

namespace {

constexpr std::size_t gap = 2;

void append_line(std::string& out, std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + '\n';
}

}  // namespace

TextTable::TextTable(std::vector<std::string> heading, std::size_t left) : heading_(std::move(heading)), left_(left) {}

TextTable& TextTable::row(std::vector<std::string> cells) {
    cells.resize(std::max(cells.size(), heading_.size()));
    rows_.push_back(std::move(cells));
    return *this;
}

TextTable& TextTable::rule() {
    rows_.emplace_back();
    return *this;
}

std::string TextTable::text(std::size_t indent) const {
    std::vector<std::size_t> width(heading_.size(), 0);
    const auto widen = [&](const std::vector<std::string>& cells) {
        width.resize(std::max(width.size(), cells.size()), 0);
        for (std::size_t i = 0; i < cells.size(); ++i) width[i] = std::max(width[i], cells[i].size());
    };
    widen(heading_);
    for (const auto& cells : rows_) widen(cells);
    const std::size_t total =
        std::accumulate(width.begin(), width.end(), std::size_t{0}) + gap * (width.empty() ? 0 : width.size() - 1);

    std::string out;
    const auto print = [&](const std::vector<std::string>& cells) {
        std::string line(indent, ' ');
        for (std::size_t i = 0; i < cells.size(); ++i) {
            const std::string blanks(width[i] - cells[i].size(), ' ');
            if (i > 0) line.append(gap, ' ');
            line += i < left_ ? cells[i] + blanks : blanks + cells[i];
        }
        append_line(out, line);
    };
    if (std::any_of(heading_.begin(), heading_.end(), [](const std::string& s) { return !s.empty(); })) print(heading_);
    for (const auto& cells : rows_) {
        if (cells.empty())
            append_line(out, std::string(indent, ' ') + std::string(total, '-'));
        else
            print(cells);
    }
    return out;
}

std::string csv_line(const std::vector<std::string>& cells) {
    std::string line;
    for (std::size_t i = 0; i < cells.size(); ++i) {
        if (i > 0) line += ',';
        if (cells[i].find_first_of(",\"\n\r") == std::string::npos) {
            line += cells[i];
            continue;
        }
        line += '"';
        for (char c : cells[i]) {
            if (c == '"') line += '"';
            line += c;
        }
        line += '"';
    }
    return line + '\n';
}

}  // namespace foretrain
