// A trace that claims to be measured: it reads back as it is written, and is joined with a prediction.
#include "plan/program/lower.h"
#include "plan/program/trace.h"
#include "reports/validate.h"
#include "reports/validation_report.h"
#include "sim/predict.h"
#include "tests/fuzz/support/fuzz.h"
#include "tests/plan/support/small_plans.h"

using namespace foretrain;

namespace {

struct Expected {
    Program program;
    Trace simulated;
    Prediction prediction;
};

// What the trace is compared with; tests/fuzz/seeds.cpp writes a trace of the same plan.
const Expected& expected() {
    static const Expected e = [] {
        const Plan plan = fuzz::linked(testing::small_plan(testing::small_gpt(true), {.pipeline = 2}));
        Expected x{lower(make_skeleton(plan)), {}, {}};
        x.prediction = simulate(plan, &x.simulated);
        return x;
    }();
    return e;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::attempt(data, size, [](std::string_view text) {
        const Trace trace = trace_from_json(Json::parse(text, "input"));
        const std::string written = trace_to_json(trace).dump(-1);
        fuzz::require(trace_to_json(trace_from_json(Json::parse(written, "written"))).dump(-1) == written,
                      "a trace reads back");
        const Expected& e = expected();
        const Validation v = join(e.prediction, e.program, e.simulated, trace, 0);
        fuzz::require(!validation_table(v).empty() && !validation_json(v).dump().empty() && !validation_csv(v).empty(),
                      "a validation can be told");
    });
}
