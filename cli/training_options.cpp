#include "cli/training_options.h"

#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>

namespace foretrain::cli {

OptionGroup training_option_group() {
    return {"A whole training (nothing is added for restarts, evaluation or checkpoints)",
            {{"tokens", "N", "tokens to train on, as 15T, 300B or 1.4e12: days and GPU-hours"},
             {"price", "USD", "for a GPU and hour (the cluster file's, if it has one): money"},
             {"power", "WATTS", "of a GPU with its share of the node (the file's at most): energy"}}};
}

double count_from_text(const std::string& option, const std::string& text) {
    double x = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), x);
    const std::string suffix(end, text.data() + text.size());
    double unit = 1;
    if (suffix.size() == 1) {
        switch (std::toupper(static_cast<unsigned char>(suffix[0]))) {
            case 'K': unit = 1e3; break;
            case 'M': unit = 1e6; break;
            case 'B': unit = 1e9; break;
            case 'T': unit = 1e12; break;
            default: unit = 0;
        }
    }
    const double most = 1e18;
    if (error != std::errc{} || suffix.size() > 1 || unit == 0 || !std::isfinite(x) || !(x * unit >= 1) ||
        x * unit > most)
        option_error(option, fmt::format("\"{}\"", text.substr(0, 80)),
                     "a count from 1 to 1e18, as 15T, 300B, 20M or 1.4e12");
    return x * unit;
}

std::optional<TrainingWish> training_wish(const Options& options) {
    for (const char* name : {"price", "power"})
        if (options.has(name) && !options.has("tokens"))
            option_error(name, "it without --tokens", "both: the number of tokens says how long it is paid for",
                         "--tokens 1T");
    if (!options.has("tokens")) return std::nullopt;
    TrainingWish wish{.tokens = count_from_text("tokens", options.text("tokens"))};
    const auto positive = [&](const char* name, double most) {
        const double x = options.number(name, 0);
        if (x <= 0 || x > most)
            option_error(name, fmt::format("\"{}\"", options.text(name).substr(0, 80)),
                         fmt::format("more than 0 and at most {:.0e}", most));
        return x;
    };
    if (options.has("price")) wish.price = positive("price", 1e6);
    if (options.has("power")) wish.watts = positive("power", 1e6);
    return wish;
}

void check_tokens(const Options& options, const Plan& plan) {
    if (!options.has("tokens")) return;
    const std::string text = options.text("tokens");
    const double step =
        static_cast<double>(plan.training.global_batch_size) * static_cast<double>(plan.training.sequence_length);
    if (count_from_text("tokens", text) >= step) return;
    const bool bare = text.find_first_not_of("0123456789.") == std::string::npos;  // its unit was forgotten
    option_error("tokens", text, fmt::format("at least the {:.0f} of one step, as in 15T or 300B", step),
                 bare ? text + "T" : "");
}

void set_training(Prediction& prediction, const std::optional<TrainingWish>& wish) {
    if (wish && prediction.step.value > 0) prediction.training = training_cost(prediction, *wish);
}

}  // namespace foretrain::cli
