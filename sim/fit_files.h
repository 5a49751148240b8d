// What a fit writes: profiles and clusters with the fitted figures, in files that every subcommand takes
// (`--framework FILE@VERSION`, `--cluster FILE`). A profile's file says only what differs from the embedded one.
//
//   for (const FitFile& file : fit_files(model, factors)) write(folder + "/" + file.name, file.text);
#pragma once

#include <string>
#include <vector>

#include "sim/fit_model.h"

namespace foretrain {

struct FitFile {
    std::string name;  // "megatron-lm.json", "h100-sxm-80gb.json"
    std::string text;
    std::string used;  // how: "--framework NAME@2024"; in which NAME stands for the file
};

// Of each framework and device of the runs of which a figure changed.
std::vector<FitFile> fit_files(const FitModel& model, const LogFactors& factors);

}  // namespace foretrain
