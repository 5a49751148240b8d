// Half of the mutations keep the grammar: a word or number of the text is exchanged for one that hurts,
// or for another of the same text. Bytes alone rarely get past a parser.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace {

constexpr std::string_view hostile[] = {"0",
                                        "1",
                                        "2",
                                        "3",
                                        "4",
                                        "6",
                                        "8",
                                        "16",
                                        "100",
                                        "127",
                                        "1024",
                                        "65536",
                                        "67108864",
                                        "2147483647",
                                        "4294967296",
                                        "1099511627776",
                                        "9223372036854775807",
                                        "18446744073709551615",
                                        "-1",
                                        "-9223372036854775808",
                                        "0.5",
                                        "1e-300",
                                        "1e15",
                                        "1e300",
                                        "1e400",
                                        "-0.0",
                                        "NaN",
                                        "null",
                                        "true",
                                        "false",
                                        "[]",
                                        "{}",
                                        "[1,2]",
                                        "\"\"",
                                        "\"1\"",
                                        "\"\xc3\"",
                                        "\"\\ud800\"",
                                        "fp32",
                                        "fp16",
                                        "fp64",
                                        "bf16"};

struct Range {
    std::size_t from, to;
};

bool in_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || std::strchr("_.+-", c) != nullptr; }

std::vector<Range> words_of(std::string_view text) {
    std::vector<Range> words;
    for (std::size_t i = 0; i < text.size();) {
        std::size_t end = i;
        while (end < text.size() && text[end] != '\0' && in_word(text[end])) ++end;
        if (end > i) words.push_back({i, end});
        i = std::max(end, i + 1);
    }
    return words;
}

std::string exchanged(std::string_view text, std::minstd_rand& random) {
    const std::vector<Range> words = words_of(text);
    if (words.empty()) return std::string(text);
    const Range at = words[random() % words.size()];
    std::string_view with = hostile[random() % std::size(hostile)];
    if (random() % 4 == 0) {
        const Range other = words[random() % words.size()];
        with = text.substr(other.from, other.to - other.from);
    }
    return std::string(text.substr(0, at.from)).append(with).append(text.substr(at.to));
}

}  // namespace

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t most, unsigned seed) {
    std::minstd_rand random(seed);
    if (random() % 2 == 0) return LLVMFuzzerMutate(data, size, most);
    std::string text(reinterpret_cast<const char*>(data), size);
    for (unsigned times = 1 + random() % 3; times > 0; --times) text = exchanged(text, random);
    const std::size_t kept = std::min(text.size(), most);
    std::copy_n(text.begin(), kept, data);
    return kept;
}
