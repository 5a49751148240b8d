#include "cli/processor_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <sstream>
#include <string>

namespace foretrain::cli {

ProcessorTimes processor_times() {
    ProcessorTimes t;
    std::ifstream stat("/proc/stat");
    std::string line;
    while (std::getline(stat, line) && line.rfind("cpu", 0) == 0) {
        if (line.rfind("cpu ", 0) != 0) {  // "cpu0 ...": one processor
            ++t.processors;
            continue;
        }
        // "cpu  user nice system idle iowait irq softirq steal": in ticks; a stolen one went to another machine.
        std::istringstream in(line.substr(4));
        double ticks = 0;
        for (int column = 0; in >> ticks && column < 8; ++column)
            if (column != 3 && column != 4) t.busy_s += ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
    }
    rusage used{};
    getrusage(RUSAGE_CHILDREN, &used);
    const auto time = [](const timeval& v) {
        return static_cast<double>(v.tv_sec) + 1e-6 * static_cast<double>(v.tv_usec);
    };
    t.children_s = time(used.ru_utime) + time(used.ru_stime);
    t.clock_s = std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
    return t;
}

double taken_by_others(const ProcessorTimes& before, const ProcessorTimes& after, std::int64_t ranks) {
    const double took = after.clock_s - before.clock_s;
    if (before.processors == 0 || after.processors == 0 || took <= 0) return 0;
    const double others = ((after.busy_s - before.busy_s) - (after.children_s - before.children_s)) / took;
    const auto needed = static_cast<double>(std::min(ranks, after.processors));
    const double taken =
        std::min(others, static_cast<double>(after.processors)) + needed - static_cast<double>(after.processors);
    return taken < 0.1 * needed ? 0 : taken;
}

}  // namespace foretrain::cli
