// How Megatron-LM's arguments say a plan's fields: the parts of plan_from_megatron.
//
//   MegatronReader reader(arguments, "runs.jsonl:12");
//   Json model = megatron_model(reader, setting, assumed);      // as in a plan file
//   reader.unread()                                             // nobody asked for these
//
// Names, meanings and defaults: github:NVIDIA/Megatron-LM@d98e8a64ddf3 megatron/training/arguments.py.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "plan/megatron_args.h"

namespace foretrain {

// Looks arguments up, and remembers for which it was asked.
class MegatronReader {
public:
    MegatronReader(const MegatronArguments& arguments, std::string origin)
        : arguments_(arguments), origin_(std::move(origin)) {}
    const std::string* find(const std::string& name);  // nullptr: not given
    bool flag(const std::string& name) { return find(name) != nullptr; }
    std::string text(const std::string& name, std::string otherwise = "");
    // Refused unless it is one of `allowed`, or not given.
    std::string choice(const std::string& name, std::string otherwise, const std::vector<std::string>& allowed);
    std::int64_t integer(const std::string& name, std::int64_t otherwise);
    std::int64_t needed(const std::string& name);
    double number(const std::string& name, double otherwise);
    std::vector<std::string> unread() const;  // neither asked for nor ignorable
    [[noreturn]] void fail(const std::string& name, std::string expected) const;

private:
    const MegatronArguments& arguments_;
    std::string origin_;
    std::set<std::string> read_;
};

struct MegatronLayout {
    Json parallelism;
    std::int64_t world = 0, data = 0, micro_batch_size = 0;
};

MegatronLayout read_layout(MegatronReader& args, const MegatronSetting& setting, std::vector<std::string>& assumed);
Json megatron_model(MegatronReader& args, const MegatronSetting& setting, std::vector<std::string>& assumed);
Json megatron_training(MegatronReader& args, const MegatronLayout& layout, std::vector<std::string>& assumed);

}  // namespace foretrain
