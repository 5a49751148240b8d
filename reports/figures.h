// Figures as a person reads them: four significant digits with a unit of fitting size, thousands
// apart, bars. Machines read the JSON instead, which holds plain seconds and bytes.
//
//   figure(from_seconds(0.0123456))   "12.35 ms"
//   figure(Bytes{3 << 20})            "3.000 MiB"
//   grouped(1234567.2)                "1 234 567"
//   percent(0.4213)                   "42.1 %"
//   bar(0.5, 10)                      "[#####.....]"
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "base/units.h"

namespace foretrain {

std::string figure(Time time);
std::string figure(Bytes bytes);
std::string grouped(double value);            // rounded to an integer
std::string amount(double value);             // grouped, or three digits where that says little
std::string percent(double fraction);         // one decimal
std::string signed_percent(double fraction);  // with its sign, "-5.1 %"
std::string gib(Bytes bytes);                 // "12.34", for columns whose heading says GiB
std::string short_count(double value);        // "8.03 B", "124 M": parameters
// Words set in lines of at most `width` columns, indented; further lines two columns more. Ends in a line end.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t width);

// A bar of `width` cells, `fraction` of them filled; more than full ends in '!'.
std::string bar(double fraction, std::size_t width);

}  // namespace foretrain
