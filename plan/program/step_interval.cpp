#include "plan/program/step_interval.h"

namespace foretrain {

std::string_view key_of(UncertainPart part) {
    switch (part) {
        case UncertainPart::gemm: return "gemm";
        case UncertainPart::attention: return "attention";
        case UncertainPart::memory_bound: return "memory_bound";
        case UncertainPart::links_inside: return "links_inside";
        case UncertainPart::links_between: return "links_between";
        case UncertainPart::software: return "software";
    }
    return "?";
}

std::string_view label_of(UncertainPart part) {
    switch (part) {
        case UncertainPart::gemm: return "GEMM";
        case UncertainPart::attention: return "attention";
        case UncertainPart::memory_bound: return "memory-bound kernels";
        case UncertainPart::links_inside: return "links in a node";
        case UncertainPart::links_between: return "network";
        case UncertainPart::software: return "the framework's profile";
    }
    return "?";
}

}  // namespace foretrain
