// When a text that may be a preset's name or a file's is a file's, and where that file lies.
//
//   names_a_file("dgx-h100") == false;  names_a_file("my.json") == true;  names_a_file("./my") == true
//   beside("plans/a.json", "models/m.json") == "plans/models/m.json"
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace foretrain {

inline bool names_a_file(std::string_view text) {
    return text.find('/') != std::string_view::npos || (text.size() > 5 && text.ends_with(".json"));
}

// Paths in a file are relative to it.
inline std::string beside(const std::string& file, const std::string& path) {
    return (std::filesystem::path(file).parent_path() / path).string();
}

}  // namespace foretrain
