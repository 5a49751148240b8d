// Columns of text, as wide as their widest cell: what every table of the reports is set with.
//
// The first `left` columns are set flush left (names), the others flush right (figures). A row may
// be shorter than the heading. Cells are ASCII, so that a byte is a column.
//
//   TextTable table({"kind", "count", "time"}, /*left=*/1);
//   table.row({"gemm", "96", "1.20 ms"});
//   std::cout << table.text(/*indent=*/2);
//   //   kind  count     time
//   //   gemm     96  1.20 ms
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace foretrain {

class TextTable {
public:
    explicit TextTable(std::vector<std::string> heading, std::size_t left = 1);

    TextTable& row(std::vector<std::string> cells);
    TextTable& rule();  // a line of dashes under the rows so far, e.g. above a sum
    std::size_t rows() const { return rows_.size(); }

    // Without heading if all its cells are empty; no trailing blanks.
    std::string text(std::size_t indent = 0) const;

private:
    std::vector<std::string> heading_;
    std::size_t left_;
    std::vector<std::vector<std::string>> rows_;  // an empty row is a rule
};

// One line of comma-separated values; cells with commas, quotes or line ends are quoted.
std::string csv_line(const std::vector<std::string>& cells);

}  // namespace foretrain
