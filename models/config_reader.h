// A published `config.json` as a set of keys that are either read, or ignored by name, or an error:
// whoever reads a key makes it known, so there is no second list of what is read.
//
//   ConfigReader c(config, Json());
//   m.layers = c.size("num_hidden_layers", 32);          // must be there; 32 is what its class takes
//   m.kv_heads = c.size_or("num_key_value_heads", m.attention_heads);
//   c.refuse_unread({"attention_dropout"});              // anything else may change what the model is
//
// A text model nested in another file (`outer`) is written as its difference from its class's
// defaults, so that sizes may be missing there; they are then taken from the class, with a note.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "models/model_limits.h"

namespace foretrain {

class ConfigReader {
public:
    using Key = const char*;

    ConfigReader(const Json& config, const Json& outer) : config_(config), outer_(outer) {}

    bool nested() const { return outer_.is_object(); }
    bool has(Key key) { return config_.has(read(key)); }  // and is not null
    bool given(Key key);                                  // even as null
    Json get(Key key) { return config_.get(read(key)); }
    Json at(Key key) { return config_.at(read(key)); }
    // The first of several names of one thing that the file has, else the first of all.
    Key one_of(const std::vector<Key>& names);

    std::int64_t size(Key key, std::int64_t class_default);
    std::int64_t size_or(Key key, std::int64_t otherwise, std::int64_t most = largest_size);
    bool flag_or(Key key, bool otherwise);
    double number_or(Key key, double otherwise, double least, double most);
    double epsilon_or(Key key, double otherwise) {
        return number_or(key, otherwise, smallest_epsilon, largest_epsilon);
    }
    // Tied embeddings: said here, else around here, else what the class takes.
    bool tied_or(bool otherwise);

    // A flag that is `needed` or left out; else an error that says why.
    void require(Key key, bool needed, const char* why);

    void note(std::string text) { notes_.push_back(std::move(text)); }
    std::string notes() const;

    // UserError at the first key that was neither read nor is ignorable, here or for every model.
    void refuse_unread(const std::vector<std::string_view>& ignorable) const;

private:
    Key read(Key key) {
        read_.insert(key);
        return key;
    }

    Json config_, outer_;
    std::set<std::string> read_;
    std::vector<std::string> notes_, from_class_;
};

}  // namespace foretrain
