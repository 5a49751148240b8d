// Whether other programs had the processors while one that we started ran: then what it measured is
// theirs too.
//
//   const ProcessorTimes before = processor_times();
//   launch_exec(...);
//   if (const double n = taken_by_others(before, processor_times(), ranks); n > 0) ...   // processors
//
// Read from /proc/stat, so of the whole machine, and from what ended children used; where there is no
// such file, nothing is known and nothing is said.
#pragma once

#include <cstdint>

namespace foretrain::cli {

struct ProcessorTimes {
    std::int64_t processors = 0;  // 0: unknown
    double busy_s = 0;            // of all programs, all processors
    double children_s = 0;        // of it, of programs that we started and that have ended
    double clock_s = 0;
};

ProcessorTimes processor_times();

// How many of the processors that `ranks` need were busy with something else on average, 0 if that was
// less than a tenth of them: the rest of a machine is never quite still.
double taken_by_others(const ProcessorTimes& before, const ProcessorTimes& after, std::int64_t ranks);

}  // namespace foretrain::cli
