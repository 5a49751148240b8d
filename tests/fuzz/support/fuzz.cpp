#include "tests/fuzz/support/fuzz.h"

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "plan/check.h"
#include "plan/program/lower.h"
#include "reports/prediction_report.h"
#include "sim/plan_costs.h"
#include "sim/predict.h"

namespace foretrain::fuzz {

namespace {

// What is left of the plans that check: those that take about a millisecond.
bool is_small(const Plan& plan) {
    const Parallelism& p = plan.parallelism;
    return plan.model.layers <= 8 && p.pipeline <= 8 && plan.microbatches() * p.pipeline <= 32;
}

void check_numbers(const Prediction& p) {
    require(p.step.value > 0, "a step takes time");
    require(p.model_flops > 0 && p.hardware_flops > 0, "a step does work");
    for (const StageMemory& m : p.memory) {
        require(m.total().value > 0 && m.live_peak.value > 0, "a stage holds something");
        require(m.live_peak <= m.allocated(), "what lives was set aside");
    }
}

}  // namespace

int attempt(const std::uint8_t* data, std::size_t size, const std::function<void(std::string_view)>& use) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    if (text.find("/dev") != std::string_view::npos || text.find("/proc") != std::string_view::npos) return -1;
    try {
        use(text);
    } catch (const UserError& e) {
        const UserErrorText& t = e.text();
        require(!t.found.empty() || !t.expected.empty(), "a refusal says what is wrong");
        require(std::string_view(e.what()).size() < 20'000, "a refusal can be read");
    }
    return 0;
}

void require(bool holds, const char* promise) {
    if (holds) return;
    std::fprintf(stderr, "broken promise: %s\n", promise);
    std::abort();
}

void predict(const Plan& plan) {
    const std::vector<Rejection> rejections = check(plan);
    for (const Rejection& r : rejections) require(!r.reason.empty() && !text(r).empty(), "a refusal has a reason");
    check_runnable(plan);
    if (!rejections.empty() || !is_small(plan)) return;
    const Prediction estimated = estimate(plan);
    check_numbers(estimated);
    require(!prediction_json(estimated).dump().empty() && !prediction_table(estimated).empty() &&
                !prediction_csv_line(estimated).empty(),
            "a prediction can be told");
    PlanCosts costs(plan);
    costs.set(plan.parallelism);
    require(costs.bound() <= estimated.step, "the bound is below the estimate");
    if (instruction_count(make_skeleton(plan)) > 400) return;
    simulate(plan);  // throws where it differs from the estimate
}

}  // namespace foretrain::fuzz
