// The law of floors: a file includes only its own room and the rooms that its floor allows, and a
// third-party library is seen only by the .cpp files that need it. The table below is the law; the
// picture of the house in README.md must agree with it and with the folders that exist.
//
// The checker is functions over (path, text), so that the last tests here can show it made-up files
// that break each rule. A line that begins with #include counts even inside a comment.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <ostream>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace {

using std::string;
using std::string_view;
using Names = std::vector<string_view>;
namespace fs = std::filesystem;

// ---- the table ------------------------------------------------------------------------------

struct Room {
    string_view name;
    int floor = 0;
    Names rooms;        // whose headers it may include, besides its own
    Names files;        // single headers of other rooms
    Names third_party;  // prefixes of <...> names, in .cpp and .cu files only; fmt goes everywhere
};

const Names data{"base", "hardware", "models", "plan", "plan/program"};
const Names engine{"base", "hardware", "models", "plan", "plan/program", "kernels", "kernels/cpu", "kernels/cuda"};
const Names everything{"base",    "hardware",    "models",       "plan", "plan/program", "sim",
                       "kernels", "kernels/cpu", "kernels/cuda", "exec", "reports",      "cli"};
const Names operating_system{"unistd.h", "fcntl.h",   "malloc.h", "signal.h", "spawn.h",
                             "sched.h",  "pthread.h", "poll.h",   "sys/"};

Names operator+(Names a, const Names& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
}

const std::vector<Room> house{
    {"base", 0, {}, {}, Names{"nlohmann/"} + operating_system},
    {"hardware", 1, {"base"}, {}, {}},
    {"models", 1, {"base"}, {}, {}},
    {"plan", 2, {"base", "hardware", "models"}, {}, {}},
    {"plan/program", 3, {"base", "hardware", "models", "plan"}, {}, {}},
    {"sim", 4, data, {}, {}},
    {"kernels", 4, {"base"}, {"plan/program/kernel_args.h"}, {}},
    {"kernels/cpu", 4, {"base", "kernels"}, {"plan/program/kernel_args.h"}, {"Eigen/", "immintrin.h", "arm_neon.h"}},
    {"kernels/cuda", 4, {"base", "kernels"}, {"plan/program/kernel_args.h"}, {"cuda", "cublas", "mma.h"}},
    {"exec", 5, engine, {}, Names{"mpi.h", "nccl.h", "cuda"} + operating_system},  // never sim
    {"reports", 5, data, {}, {}},                                                  // neither sim nor exec
    {"cli", 6, everything, {}, Names{"boost/"} + operating_system},
    {"tests", 7, everything, {}, Names{"gtest/", "gmock/", "benchmark/"} + operating_system},
};

// `foretrain` predicts and reports, `foretrain-exec` runs and measures; neither carries the other.
const string_view exec_main = "cli/main_exec.cpp";
const Names barred_from_foretrain{"exec", "kernels", "kernels/cpu", "kernels/cuda"};
const Names barred_from_foretrain_exec{"sim"};

std::set<string> words_of(const string& text) {
    std::istringstream words(text);
    return {std::istream_iterator<string>(words), std::istream_iterator<string>()};
}

const std::set<string> standard_library = words_of(
    "algorithm any array atomic barrier bit bitset cassert cctype cerrno cfenv cfloat charconv chrono "
    "cinttypes climits clocale cmath compare complex concepts condition_variable coroutine csetjmp "
    "csignal cstdarg cstddef cstdint cstdio cstdlib cstring ctime cuchar cwchar cwctype deque exception "
    "execution filesystem forward_list fstream functional future initializer_list iomanip ios iosfwd "
    "iostream istream iterator latch limits list locale map memory memory_resource mutex new numbers "
    "numeric optional ostream queue random ranges ratio regex scoped_allocator semaphore set shared_mutex "
    "source_location span sstream stack stdexcept stop_token streambuf string string_view system_error "
    "thread tuple type_traits typeindex typeinfo unordered_map unordered_set utility valarray variant "
    "vector version ");

// ---- reading --------------------------------------------------------------------------------

struct Include {
    int line = 0;
    bool ours = false;  // "..." rather than <...>
    string name;        // empty: not readable as an include of a file
};

std::vector<Include> includes_of(string_view text) {
    std::vector<Include> found;
    std::istringstream lines{string(text)};
    string line;
    for (int number = 1; std::getline(lines, line); ++number) {
        line.erase(std::remove_if(line.begin(), line.end(), [](unsigned char c) { return std::isspace(c) != 0; }),
                   line.end());
        if (!line.starts_with("#include")) continue;
        const string rest = line.substr(string_view("#include").size());
        const bool ours = rest.starts_with('"');
        const std::size_t end = rest.find(ours ? '"' : '>', 1);
        const bool readable = (ours || rest.starts_with('<')) && end != string::npos;
        found.push_back({number, ours, readable ? rest.substr(1, end - 1) : ""});
    }
    return found;
}

bool contains(const Names& names, string_view name) {
    return std::find(names.begin(), names.end(), name) != names.end();
}

bool has_prefix(string_view name, const Names& prefixes) {
    return std::any_of(prefixes.begin(), prefixes.end(), [&](string_view p) { return name.starts_with(p); });
}

// The room in which a file stands: its folder, or `tests` for every folder in there.
string room_of(string_view path) {
    if (path.starts_with("tests/")) return "tests";
    const std::size_t slash = path.rfind('/');
    return string(slash == string_view::npos ? "" : path.substr(0, slash));
}

const Room* find_room(string_view name) {
    const auto it = std::find_if(house.begin(), house.end(), [&](const Room& r) { return r.name == name; });
    return it == house.end() ? nullptr : &*it;
}

// ---- the law --------------------------------------------------------------------------------

// Why this include breaks the law, as what is allowed instead; nothing if it obeys.
std::optional<string> objection(string_view path, const Room& room, const Include& include) {
    const bool source = path.ends_with(".cpp") || path.ends_with(".cu");
    const string_view name = include.name;
    if (name.empty()) return "allowed: a file name in quotes or angle brackets";
    if (include.ours) {
        const string target = room_of(name);
        if (find_room(target) == nullptr) return "allowed: a path from the top folder, through a room of the house";
        if (room.name == "cli" && path != exec_main && contains(barred_from_foretrain, target))
            return fmt::format("allowed: exec and kernels only in {}", exec_main);
        if (path == exec_main && contains(barred_from_foretrain_exec, target))
            return "allowed: not sim; foretrain-exec measures and does not predict";
        if (target == room.name || contains(room.rooms, target) || contains(room.files, name)) return std::nullopt;
        return fmt::format("allowed on floor {}: {}", room.floor,
                           fmt::join(Names{room.name} + room.rooms + room.files, ", "));
    }
    if (standard_library.contains(include.name)) return std::nullopt;
    const Names third_party = Names{"fmt/"} + room.third_party;
    // What tests share may be assertions; nothing else of ours shows a third party in its headers.
    const bool shared_by_tests = room.name == "tests" && has_prefix(name, Names{"gtest/", "gmock/"});
    if (!source && !shared_by_tests)
        return "allowed in a header: the standard library and our own headers; third-party ones in .cpp files";
    if (has_prefix(name, third_party)) return std::nullopt;
    return fmt::format("allowed: the standard library (as <cstdint>, not <stdint.h>) and {}",
                       fmt::join(third_party, ", "));
}

using Tree = std::map<string, string>;  // path from the top folder -> text

std::vector<string> check_file(string_view path, string_view text) {
    const string room_name = room_of(path);
    const Room* room = find_room(room_name);
    if (room == nullptr)
        return {fmt::format("{}: '{}' is no room of the house (tests/floors_test.cpp)", path, room_name)};
    if (!path.ends_with(".h") && !path.ends_with(".cpp") && !path.ends_with(".cu"))
        return {fmt::format("{}: allowed: .h, .cpp and .cu", path)};
    std::vector<string> violations;
    std::set<string_view> communicators;
    const auto includes = includes_of(text);
    for (const Include& include : includes) {
        if (const auto why = objection(path, *room, include))
            violations.push_back(fmt::format("{}:{}: {}{}{}: {}", path, include.line, include.ours ? '"' : '<',
                                             include.name, include.ours ? '"' : '>', *why));
        if (include.name == "mpi.h" || include.name == "nccl.h") communicators.insert(include.name);
        if (communicators.size() == 2) {
            violations.push_back(fmt::format("{}:{}: <{}>: allowed: MPI and NCCL each in a file of its own", path,
                                             include.line, include.name));
            communicators.clear();
        }
    }
    return violations;
}

// Every file by itself, and what foretrain-exec's main reaches through other headers.
std::vector<string> check_tree(const Tree& tree) {
    std::vector<string> violations;
    for (const auto& [path, text] : tree)
        for (string& v : check_file(path, text)) violations.push_back(std::move(v));

    std::vector<string> todo{string(exec_main)};
    std::set<string> seen;
    while (!todo.empty()) {
        const string path = todo.back();
        todo.pop_back();
        const auto it = tree.find(path);
        if (it == tree.end() || !seen.insert(path).second) continue;
        for (const Include& include : includes_of(it->second)) {
            if (!include.ours) continue;
            if (path != exec_main && contains(barred_from_foretrain_exec, room_of(include.name)))
                violations.push_back(fmt::format("{}:{}: \"{}\": allowed: not sim in what {} includes", path,
                                                 include.line, include.name, exec_main));
            todo.push_back(include.name);
        }
    }
    return violations;
}

// ---- the picture in README.md ---------------------------------------------------------------

struct PictureLine {
    int floor = 0;
    string room;
};

// The fenced block whose first line starts with "floor": then one room a line, "floor room what".
std::vector<PictureLine> read_picture(string_view readme) {
    std::vector<PictureLine> picture;
    std::istringstream lines{string(readme)};
    bool fence = false;
    bool inside = false;
    string line;
    while (std::getline(lines, line)) {
        if (line.starts_with("```")) {
            if (inside) break;
            fence = true;
            continue;
        }
        std::istringstream words(line);
        PictureLine entry;
        if (inside) {
            if (words >> entry.floor >> entry.room) {
                if (entry.room.ends_with('/')) entry.room.pop_back();
                picture.push_back(entry);
            }
        } else if (fence) {
            inside = line.starts_with("floor");
        }
        fence = false;
    }
    return picture;
}

std::vector<string> check_picture(const std::vector<PictureLine>& picture, const Tree& tree) {
    std::vector<string> wrong;
    std::set<string> exist;
    for (const auto& [path, text] : tree) exist.insert(room_of(path));
    std::map<string, int> floors;
    for (const PictureLine& line : picture) {
        if (!floors.emplace(line.room, line.floor).second) wrong.push_back(line.room + ": listed twice");
        if (!exist.contains(line.room)) wrong.push_back(line.room + ": listed, but there is no such room");
        const Room* room = find_room(line.room);
        if (room != nullptr && room->floor != line.floor)
            wrong.push_back(fmt::format("{}: listed on floor {}, the law says {}", line.room, line.floor, room->floor));
    }
    for (const string& room : exist)
        if (!floors.contains(room)) wrong.push_back(room + ": exists, but is not listed");
    for (const auto& [path, text] : tree)
        for (const Include& include : includes_of(text)) {
            const auto from = floors.find(room_of(path));
            const auto to = floors.find(room_of(include.name));
            if (include.ours && from != floors.end() && to != floors.end() && to->second > from->second)
                wrong.push_back(fmt::format("{}:{}: \"{}\": from floor {} up to floor {}", path, include.line,
                                            include.name, from->second, to->second));
        }
    return wrong;
}

// Files that README.md names in backticks with their path, and that do not exist.
std::vector<string> missing_files(string_view readme, const Tree& tree) {
    std::vector<string> missing;
    for (std::size_t at = readme.find('`'); at != string_view::npos; at = readme.find('`', at + 1)) {
        const std::size_t end = readme.find_first_of("` \n", at + 1);
        if (end == string_view::npos || readme[end] != '`') continue;
        const string name(readme.substr(at + 1, end - at - 1));
        const bool is_source = name.ends_with(".h") || name.ends_with(".cpp") || name.ends_with(".cu");
        const bool pattern = name.find('*') != string::npos;
        if (is_source && !pattern && find_room(room_of(name)) != nullptr && !tree.contains(name))
            missing.push_back(name);
    }
    return missing;
}

// ---- this repository ------------------------------------------------------------------------

string read_text(const fs::path& path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

// Every C++ and CUDA file, hidden and build folders left out.
Tree read_tree(const fs::path& root) {
    const Names kinds{".h", ".hpp", ".hh", ".cuh", ".cpp", ".cc", ".cxx", ".cu"};
    Tree tree;
    for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator(); ++it) {
        if (it->is_directory()) {
            const string name = it->path().filename().string();
            if (name.starts_with('.') || name.starts_with("build") || fs::exists(it->path() / "CMakeCache.txt"))
                it.disable_recursion_pending();
        } else if (contains(kinds, it->path().extension().string())) {
            tree[fs::relative(it->path(), root).generic_string()] = read_text(it->path());
        }
    }
    return tree;
}

const Tree& repository() {
    static const Tree tree = read_tree(FORETRAIN_SOURCE_DIR);
    return tree;
}

string listed(const std::vector<string>& lines) { return fmt::format("{}", fmt::join(lines, "\n")); }

TEST(Floors, EveryIncludeObeys) {
    ASSERT_TRUE(repository().contains("base/units.h")) << "the sources were not found";
    EXPECT_EQ(listed(check_tree(repository())), "");
}

TEST(Floors, ReadmeShowsTheHouseThatExists) {
    const auto picture = read_picture(read_text(fs::path(FORETRAIN_SOURCE_DIR) / "README.md"));
    ASSERT_FALSE(picture.empty()) << "README.md has no fenced block that starts with 'floor'";
    EXPECT_EQ(listed(check_picture(picture, repository())), "");
}

TEST(Floors, ReadmeNamesFilesThatExist) {
    const string readme = read_text(fs::path(FORETRAIN_SOURCE_DIR) / "README.md");
    EXPECT_EQ(listed(missing_files(readme, repository())), "");
}

// ---- mutations: the law notices each way of breaking it -------------------------------------

// The table itself goes down only, and onto the same floor only inside one kind of room.
TEST(Floors, TheTableGoesDown) {
    for (const Room& room : house)
        for (string_view target : room.rooms) {
            ASSERT_NE(find_room(target), nullptr) << target;
            const int floor = find_room(target)->floor;
            EXPECT_TRUE(floor < room.floor || (floor == room.floor && room.name.starts_with(target)))
                << room.name << " -> " << target;
        }
}

// From every room to every room: reported if and only if the table does not have it.
TEST(Floors, EveryForbiddenPairIsReported) {
    for (const Room& from : house)
        for (const Room& to : house) {
            if (from.name == "cli") continue;  // its two programs differ: below
            const string path = fmt::format("{}/x.cpp", from.name);
            const bool allowed = from.name == to.name || contains(from.rooms, to.name);
            const auto reports = check_file(path, fmt::format("// x\n#include \"{}/y.h\"\n", to.name));
            ASSERT_EQ(reports.size(), allowed ? 0U : 1U) << path << " -> " << to.name;
            if (!allowed) {
                EXPECT_TRUE(reports[0].starts_with(fmt::format("{}:2: \"{}/y.h\": allowed", path, to.name)))
                    << reports[0];
            }
        }
}

struct MadeUp {
    const char* path;
    const char* line;
    bool obeys;
};

// In the tests' names and on failure.
void PrintTo(const MadeUp& file, std::ostream* out) { *out << file.path << ": " << file.line; }

class FloorsMutation : public testing::TestWithParam<MadeUp> {};

TEST_P(FloorsMutation, IsReportedWithPlaceAndWhatIsAllowed) {
    const MadeUp& file = GetParam();
    const auto reports = check_file(file.path, fmt::format("#pragma once\n\n{}\n", file.line));
    if (file.obeys) {
        EXPECT_EQ(listed(reports), "");
    } else {
        ASSERT_EQ(reports.size(), 1U) << file.path << ' ' << file.line;
        EXPECT_TRUE(reports[0].starts_with(file.path)) << reports[0];
        EXPECT_NE(reports[0].find("allowed"), string::npos) << reports[0];
    }
}

// clang-format off
INSTANTIATE_TEST_SUITE_P(Each, FloorsMutation, testing::Values(
    // The rules of section "rooms".
    MadeUp{"exec/runtime.cpp", "#include \"sim/cost.h\"", false},
    MadeUp{"reports/validate.cpp", "#include \"sim/cost.h\"", false},
    MadeUp{"reports/validate.cpp", "#include \"exec/runtime.h\"", false},
    MadeUp{"reports/validate.cpp", "#include \"plan/program/trace.h\"", true},
    MadeUp{"sim/cost.cpp", "#include \"kernels/kernel_table.h\"", false},
    MadeUp{"base/json.cpp", "#include \"models/model_spec.h\"", false},
    MadeUp{"kernels/kernel_table.h", "#include \"plan/program/kernel_args.h\"", true},
    MadeUp{"kernels/kernel_table.h", "#include \"plan/program/program.h\"", false},
    MadeUp{"kernels/cpu/gemm.cpp", "#include \"plan/program/program.h\"", false},
    MadeUp{"kernels/cpu/gemm.cpp", "#include \"models/model_spec.h\"", false},
    MadeUp{"cli/main.cpp", "#include \"exec/runtime.h\"", false},
    MadeUp{"cli/sweep_command.cpp", "#include \"exec/runtime.h\"", false},
    MadeUp{"cli/main.cpp", "#include \"sim/sweep.h\"", true},
    MadeUp{"cli/main_exec.cpp", "#include \"sim/sweep.h\"", false},
    MadeUp{"cli/main_exec.cpp", "#include \"exec/runtime.h\"", true},
    // Third-party libraries: where, and never in a header.
    MadeUp{"base/json.h", "#include <nlohmann/json.hpp>", false},
    MadeUp{"base/json.cpp", "#include <nlohmann/json.hpp>", true},
    MadeUp{"plan/plan_file.cpp", "#include <nlohmann/json.hpp>", false},
    MadeUp{"kernels/cpu/gemm.cpp", "#include <Eigen/Core>", true},
    MadeUp{"kernels/cpu/gemm.h", "#include <Eigen/Core>", false},
    MadeUp{"exec/runtime.cpp", "#include <Eigen/Core>", false},
    MadeUp{"plan/plan.h", "#include <fmt/format.h>", false},
    MadeUp{"plan/plan.cpp", "#include <fmt/format.h>", true},
    MadeUp{"cli/options.cpp", "#include <boost/program_options.hpp>", true},
    MadeUp{"cli/options.h", "#include <boost/program_options.hpp>", false},
    MadeUp{"sim/sweep.cpp", "#include <boost/program_options.hpp>", false},
    MadeUp{"kernels/cuda/gemm.cu", "#include <cuda_bf16.h>", true},
    MadeUp{"kernels/cuda/gemm.h", "#include <cuda_bf16.h>", false},
    MadeUp{"kernels/cpu/gemm.cpp", "#include <cuda_runtime.h>", false},
    MadeUp{"exec/mpi_communicator.cpp", "#include <mpi.h>", true},
    MadeUp{"exec/mpi_communicator.cpp", "#include <mpi.h>\n#include <nccl.h>", false},
    MadeUp{"sim/network.cpp", "#include <mpi.h>", false},
    MadeUp{"sim/cost.cpp", "#include <gtest/gtest.h>", false},
    MadeUp{"tests/sim/cost_test.cpp", "#include <gtest/gtest.h>", true},
    MadeUp{"tests/kernels/support/tensors.h", "#include <gtest/gtest.h>", true},
    MadeUp{"tests/kernels/support/tensors.h", "#include <fmt/format.h>", false},
    // Forms that would slip by.
    MadeUp{"exec/runtime.cpp", "  #  include  \"sim/cost.h\"", false},
    MadeUp{"exec/runtime.cpp", "#include \"../sim/cost.h\"", false},
    MadeUp{"exec/runtime.cpp", "#include \"cost.h\"", false},
    MadeUp{"exec/runtime.cpp", "#include <sim/cost.h>", false},
    MadeUp{"exec/runtime.cpp", "#include COST", false},
    MadeUp{"base/units.h", "#include <stdint.h>", false},
    MadeUp{"base/units.h", "#include <cstdint>", true},
    MadeUp{"plan/plan.cpp", "#include <unistd.h>", false},
    MadeUp{"exec/runtime.hpp", "", false}));
// clang-format on

TEST(Floors, AnUnknownRoomIsReported) {
    EXPECT_EQ(check_file("utils/strings.h", "").size(), 1U);
    EXPECT_EQ(check_file("sim/deep/strings.h", "").size(), 1U);
    EXPECT_EQ(check_file("strings.h", "").size(), 1U);
}

TEST(Floors, WhatForetrainExecReachesIsReported) {
    Tree tree{{"cli/main_exec.cpp", "#include \"cli/options.h\"\n"}, {"cli/options.h", "#include <string>\n"}};
    EXPECT_EQ(listed(check_tree(tree)), "");
    tree["cli/options.h"] = "#include \"sim/sweep.h\"\n";
    EXPECT_EQ(listed(check_tree(tree)),
              "cli/options.h:1: \"sim/sweep.h\": allowed: not sim in what cli/main_exec.cpp includes");
}

TEST(Floors, AWrongPictureIsReported) {
    const Tree tree{{"base/a.h", ""}, {"sim/b.h", "#include \"base/a.h\"\n"}};
    const auto wrong = [&](string_view lines) {
        return listed(
            check_picture(read_picture(fmt::format("# x\n```sh\nls\n```\n```text\nfloor room\n{}```\n", lines)), tree));
    };
    EXPECT_EQ(wrong("4 sim/ what\n0 base/ what\n"), "");
    EXPECT_EQ(wrong("4 sim/ what\n"), "base: exists, but is not listed");
    EXPECT_EQ(wrong("4 sim/\n2 plan/\n0 base/\n"), "plan: listed, but there is no such room");
    EXPECT_EQ(wrong("4 sim/\n1 base/\n"), "base: listed on floor 1, the law says 0");
    EXPECT_EQ(wrong("4 sim/\n5 base/\n"),
              "base: listed on floor 5, the law says 0\nsim/b.h:1: \"base/a.h\": from floor 4 up to floor 5");
    EXPECT_EQ(missing_files("see `base/a.h`, `sim/c.h` and `--option`", tree), std::vector<string>{"sim/c.h"});
}

}  // namespace
