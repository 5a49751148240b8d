#include "plan/framework_ref.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "base/json.h"
#include "plan/framework.h"
#include "plan/framework_file.h"
#include "tests/support/refusal.h"

namespace foretrain {
namespace {

namespace fs = std::filesystem;
using support::refusal;

Json json(std::string_view text) { return Json::parse(text, "plan.json"); }

// A folder of its own for each test, gone afterwards.
class FrameworkRefFile : public testing::Test {
protected:
    void SetUp() override {
        folder_ = fs::temp_directory_path() /
                  (std::string("framework_ref_") + testing::UnitTest::GetInstance()->current_test_info()->name());
        fs::create_directories(folder_);
    }
    void TearDown() override { fs::remove_all(folder_); }
    std::string write(const std::string& name, const std::string& text) const {
        std::ofstream(folder_ / name) << text;
        return (folder_ / name).string();
    }
    fs::path folder_;
};

TEST(FrameworkRef, NamesAnEmbeddedProfile) {
    FrameworkRef ref;
    ref = "megatron-lm@2022";
    EXPECT_EQ(&framework_named(ref), find_framework("megatron-lm@2022"));
    EXPECT_EQ(ref, "megatron-lm@2022");
    EXPECT_EQ(framework_from_json(json(R"({"name": "megatron-lm", "version": "2022"})")), ref);
    EXPECT_EQ(framework_from_json(json(R"("megatron-lm@2022")")), ref);
    EXPECT_EQ(framework_from_json(framework_to_json(ref)), ref);
    EXPECT_NE(framework_from_json(json(R"("megatron-lm")")), ref);
    ref = "x";
    EXPECT_EQ(find_framework(ref), nullptr);
}

TEST(FrameworkRef, OverridesStayWithThePlan) {
    const FrameworkRef ref = framework_from_json(json(
        R"({"name": "megatron-lm", "version": "2022", "overrides": {"costs": {"host": {"operation_us": {"1": 20}}}}})"));
    const Framework& own = framework_named(ref);
    const Framework& embedded = framework_named("megatron-lm@2022");
    EXPECT_EQ(figure_at(own.costs.host.operation_us, 312), 20);
    EXPECT_NE(figure_at(embedded.costs.host.operation_us, 312), 20) << "the embedded profile is as it was";
    EXPECT_EQ(own.costs.host.forward_operations, embedded.costs.host.forward_operations);
    EXPECT_EQ(own.sources.at("host"), "stated in the plan");
    EXPECT_EQ(own.sources.at("traffic"), embedded.sources.at("traffic"));
    EXPECT_FALSE(ref == "megatron-lm@2022") << "it is not the embedded one";
    EXPECT_EQ(framework_from_json(framework_to_json(ref)), ref);
}

TEST(FrameworkRef, RefusesWhatIsNotKnown) {
    const auto field = [](std::string_view text) { return refusal([&] { framework_from_json(json(text)); }).field; };
    EXPECT_EQ(field(R"({"name": "megatron-ml"})"), "name");
    EXPECT_EQ(field(R"({"name": "megatron-lm", "version": "2012"})"), "version");
    EXPECT_EQ(field(R"({"name": "megatron-lm", "overrides": {"cost": {}}})"), "overrides.cost");
    EXPECT_EQ(field(R"({"name": "megatron-lm", "overrides": {"costs": {"stall": {"step_us": -1}}}})"),
              "overrides.costs.stall.step_us");
    EXPECT_EQ(field(R"({"name": "megatron-lm", "overrides": {"version": "2025"}})"), "overrides.version");
}

TEST_F(FrameworkRefFile, HoldsVersionsOfItsOwn) {
    const std::string path =
        write("mine.json", R"({"format": "foretrain.framework/1", "name": "megatron-lm", "versions":
        [{"version": "2022", "like": "megatron-lm@2022", "costs": {"stall": {"step_us": 9}}, "sources": {"stall": "us"}},
         {"version": "2024", "like": "megatron-lm@2024", "costs": {"stall": {"step_us": 8}}, "sources": {"stall": "us"}}]})");
    EXPECT_EQ(framework_named(framework_from_json(Json(path))).costs.stall.step_us, 8) << "its last";
    const FrameworkRef old = framework_from_json(Json(path + "@2022"));
    EXPECT_EQ(framework_named(old).costs.stall.step_us, 9);
    EXPECT_EQ(framework_named(old).recompute, framework_named("megatron-lm@2022").recompute);
    EXPECT_EQ(old.reference(), "megatron-lm@2022");
    EXPECT_EQ(framework_from_json(framework_to_json(old)), old) << "inlined, it stands alone";
    EXPECT_EQ(refusal([&] { framework_from_json(Json(path + "@2021")); }).found, "version \"2021\"");
    const Json plan = Json::parse_file(write("plan.json", R"({"framework": "mine.json"})"));
    EXPECT_EQ(framework_from_json(plan.at("framework")), framework_from_json(Json(path))) << "relative to the plan";
    const std::string lost = write("lost.json", R"({"format": "foretrain.framework/1", "name": "x", "versions":
        [{"version": "1", "like": "megatron-lm@2012"}]})");
    EXPECT_EQ(refusal([&] { framework_from_json(Json(lost)); }).field, "versions[0].like");
}

// Whatever a profile says is written, so that a fitted one loses nothing.
TEST(FrameworkFile, EveryProfileReadsBackEqual) {
    for (const std::string& name : framework_names())
        for (const std::string& version : framework_versions(name)) {
            const Framework& f = framework_named(name + "@" + version);
            const std::vector<Framework> back =
                frameworks_from_json(Json::parse(framework_file_json({f}).dump(), "written"));
            ASSERT_EQ(back.size(), 1u);
            EXPECT_TRUE(back[0] == f) << name << "@" << version;
        }
}

}  // namespace
}  // namespace foretrain
