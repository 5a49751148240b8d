#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "tests/cli/support/console.h"

namespace foretrain::cli {
namespace {

std::string record(const std::string& id, const std::string& framework, const std::string& parallelism,
                   const std::string& measured = R"("step_time_s": 1.5)") {
    return R"({"id": ")" + id + R"(", "framework": ")" + framework +
           R"(", "framework_release": "2025", "model": "gpt2", "cluster": {"gpu": "a100-sxm-80gb", "gpus": 8},
"training": {"global_batch_size": 64, "sequence_length": 1024}, "parallelism": {)" +
           parallelism + R"(}, "measured": {)" + measured + "}}";
}

// One line each, in a file that is gone with its test.
class Records {
public:
    explicit Records(const std::vector<std::string>& lines)
        : path_(std::filesystem::temp_directory_path() /
                ("foretrain_backtest_" + std::to_string(::getpid()) + "_" + std::to_string(number_++) + ".jsonl")) {
        std::ofstream out(path_);
        for (std::string line : lines) {
            for (char& c : line)
                if (c == '\n') c = ' ';
            out << line << '\n';
        }
    }
    ~Records() { std::filesystem::remove(path_); }
    std::string path() const { return path_.string(); }

private:
    static inline int number_ = 0;
    std::filesystem::path path_;
};

std::vector<std::string> three() {
    return {record("may-1", "megatron-lm", R"("tensor": 2)"), record("may-2", "fsdp", R"("zero_stage": 3)"),
            record("june-1", "megatron-lm", R"("expert": 2)")};
}

TEST(BacktestCommand, PredictsWhatWasMeasuredAndCountsTheRest) {
    const Records file(three());
    const Outcome o = call({"backtest", file.path()});
    ASSERT_EQ(o.code, done) << o.err;
    for (const char* part : {"may-1", "refused: expert", "3 runs, 2 predicted, 1 refused", "by source", "The worst"})
        EXPECT_TRUE(contains(o.out, part)) << part << " is missing in\n" << o.out;
    const Outcome summary = call({"backtest", file.path(), "--summary"});
    EXPECT_TRUE(o.out.ends_with(summary.out)) << "the same below the runs";
    EXPECT_EQ(call({"backtest", file.path(), "--threads", "3"}).out, o.out);
}

TEST(BacktestCommand, ReadsSeveralFilesAndPicks) {
    const Records a(three()), b({record("july-1", "megatron-lm@2022", R"("tensor": 4)")});
    const auto ids = [&](const Arguments& further) {
        Arguments arguments{"backtest", a.path(), b.path(), "--format", "json"};
        arguments.insert(arguments.end(), further.begin(), further.end());
        const Outcome o = call(arguments);
        std::string s;
        for (const Json& row : Json::parse(o.out, "out").at("rows").items()) s += row.at("id").string() + " ";
        return s;
    };
    EXPECT_EQ(ids({}), "may-1 may-2 june-1 july-1 ");
    EXPECT_EQ(ids({"--source", "may,july"}), "may-1 may-2 july-1 ");
    EXPECT_EQ(ids({"--framework", "megatron-lm"}), "may-1 june-1 july-1 ");
    EXPECT_EQ(ids({"--framework", "megatron-lm@2022"}), "july-1 ");
    const Outcome unknown = call({"backtest", a.path(), "--source", "mai"});
    EXPECT_EQ(unknown.code, bad_input);
    EXPECT_TRUE(contains(unknown.err, "of those in the files: june, may (try may)")) << unknown.err;
    EXPECT_EQ(call({"backtest", a.path(), a.path()}).code, bad_input) << "each id once";
}

TEST(BacktestCommand, WritesAScatterPlotAndCsv) {
    const Records file(three());
    const std::string picture = file.path() + ".svg";
    const Outcome o = call({"backtest", file.path(), "--format", "csv", "--scatter", picture});
    ASSERT_EQ(o.code, done) << o.err;
    EXPECT_TRUE(o.out.starts_with("id,source,framework,")) << o.out;
    EXPECT_TRUE(contains(o.err, "wrote " + picture)) << o.err;
    std::ifstream in(picture);
    std::string first;
    std::getline(in, first);
    EXPECT_TRUE(first.starts_with("<svg ")) << first;
    std::filesystem::remove(picture);
}

TEST(BacktestCommand, AnErrorNamesFileLineAndField) {
    const Records file({three()[0], record("may-2", "fsdp", R"("zero_stge": 3)")});
    const Outcome o = call({"backtest", file.path()});
    EXPECT_EQ(o.code, bad_input);
    EXPECT_TRUE(contains(o.err, file.path() + ":2: parallelism.zero_stge: found an unknown key")) << o.err;
    EXPECT_TRUE(contains(o.err, "(try zero_stage)")) << o.err;
    EXPECT_EQ(call({"backtest"}).code, bad_input);
    EXPECT_EQ(call({"backtest", "no/such.jsonl"}).code, bad_input);
    const Records empty({""});
    EXPECT_TRUE(contains(call({"backtest", empty.path()}).err, "no run record"));
}

TEST(BacktestCommand, TheAnswerIsNoWhereNothingCanBePredicted) {
    const Records file({three()[2]});
    const Outcome o = call({"backtest", file.path()});
    EXPECT_EQ(o.code, answer_is_no);
    EXPECT_TRUE(contains(o.out, "1 runs, 0 predicted, 1 refused")) << o.out;
}

TEST(BacktestCommand, HelpShowsExamples) {
    const Outcome o = call({"backtest", "--help"});
    EXPECT_EQ(o.code, done);
    for (const char* part : {"Usage: foretrain backtest FILE...", "Examples:", "--scatter FILE", "--source NAME,..."})
        EXPECT_TRUE(contains(o.out, part)) << part << o.out;
}

}  // namespace
}  // namespace foretrain::cli
