#include "base/error.h"

#include <gtest/gtest.h>

namespace foretrain {
namespace {

TEST(UserError, SaysFileFieldFoundExpectedAndSuggestion) {
    const UserError e({.file = "plan.json", .field = "a.b", .found = "3", .expected = "4", .suggestion = "5"});
    EXPECT_STREQ(e.what(), "plan.json: a.b: found 3; expected 4 (try 5)");
    EXPECT_STREQ(UserError({.expected = "4"}).what(), "expected 4");
}

TEST(Nearest, AnswersSlipsOnly) {
    EXPECT_EQ(nearest("tensr", {"pipeline", "tensor", "data"}), "tensor");
    EXPECT_EQ(nearest("xyz", {"pipeline", "tensor", "data"}), "");
    EXPECT_EQ(nearest("", {}), "");
}

TEST(Nearest, AWordCutShortIsNearToWhatItBegins) {
    EXPECT_EQ(nearest("inter_node_gbps", {"intra_node", "inter_node_gbps_per_node"}), "inter_node_gbps_per_node");
    EXPECT_EQ(nearest("llama", {"gpt2", "llama-3.1-70b", "llama-3-8b"}), "llama-3-8b");
    EXPECT_EQ(nearest("step", {"steps_of_a_run", "steps"}), "steps");
    EXPECT_EQ(nearest("a", {"abcdef"}), "");
}

TEST(Nearest, AFamilyIsNearerThanAnotherOfItsKind) {
    const std::vector<std::string> names{"gpt2", "gpt3-175b", "gpt3-13b", "llama-13b", "llama-3-8b", "dgx-h100"};
    EXPECT_EQ(nearest("gpt3", names), "gpt3-13b");
    EXPECT_EQ(nearest("llama3", names), "llama-3-8b");
    EXPECT_EQ(nearest("Llama_3_8B", names), "llama-3-8b");
    EXPECT_EQ(nearest("h100", names), "dgx-h100");
}

TEST(Check, ThrowsAnInternalError) { EXPECT_THROW(FORETRAIN_CHECK(1 == 2, "no"), InternalError); }

TEST(Shortened, IsNotCutInsideACharacter) {
    EXPECT_EQ(shortened("abc", 3), "abc");
    EXPECT_EQ(shortened("abcd", 3), "abc...");
    EXPECT_EQ(shortened("ab\xc3\xa9", 3), "ab...");
}

}  // namespace
}  // namespace foretrain
