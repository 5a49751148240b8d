// Which profile a plan is predicted with: an embedded one by its reference, or one of the user's own, out of a file
// or with figures of its own on top of an embedded one. It stays with the plan, so nothing global is changed.
//
//   plan.framework = "megatron-lm@2024";                                      // embedded
//   plan.framework = framework_from_json(json);                               // any form of a plan file:
//     "megatron-lm", "megatron-lm@2024", "profiles/mine.json", "mine.json@2024", {"name": ..., "version": ...,
//     "overrides": {"costs": {"host": {"operation_us": {"1": 20}}}}}, or a framework file's object itself
//   const Framework& f = framework_named(plan.framework);                     // plan/framework.h
//
// A file without a version means its last. Errors: UserError for a name, version or figure that is not known.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <string_view>

namespace foretrain {

class Json;
struct Framework;

class FrameworkRef {
public:
    FrameworkRef() = default;
    // Embedded; one that is not known is refused where it is looked for.
    explicit FrameworkRef(std::string reference) : reference_(std::move(reference)) {}
    // The user's own; `written` is what a plan file says of it.
    FrameworkRef(Framework profile, Json written);
    FrameworkRef& operator=(std::string_view reference);

    const std::string& reference() const { return reference_; }  // "megatron-lm@2024", also of one's own
    const Framework* own() const { return own_.get(); }          // nullptr: embedded
    const Json* written() const { return written_.get(); }

    bool operator==(const FrameworkRef& other) const;
    friend bool operator==(const FrameworkRef& ref, std::string_view reference) {
        return ref.own_ == nullptr && ref.reference_ == reference;
    }

private:
    std::string reference_;
    std::shared_ptr<const Framework> own_;
    std::shared_ptr<const Json> written_;
};
std::ostream& operator<<(std::ostream& out, const FrameworkRef& ref);

bool names_framework_file(std::string_view text);
FrameworkRef framework_from_json(const Json& value);
Json framework_to_json(const FrameworkRef& ref);  // it stands alone: files are inlined

}  // namespace foretrain
