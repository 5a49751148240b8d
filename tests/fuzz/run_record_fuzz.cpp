// Run records, one a line: refused as a whole, or each has a plan that can be checked and predicted, or a reason.
#include "plan/run_record.h"
#include "tests/fuzz/support/fuzz.h"

using namespace foretrain;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    return fuzz::attempt(data, size, [](std::string_view text) {
        std::vector<RunRecord> records;
        read_run_records(Json::parse_lines(text, "input"), records);
        for (const RunRecord& record : records) {
            fuzz::require(record.plan.has_value() != !record.refused.empty(), "a record has a plan or a reason");
            if (record.plan) fuzz::predict(*record.plan);
        }
    });
}
