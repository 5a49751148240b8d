#include "hardware/basis.h"

namespace foretrain {

std::string_view name_of(Basis basis) {
    switch (basis) {
        case Basis::measured: return "measured";
        case Basis::fitted: return "fitted";
        case Basis::carried_over: return "carried_over";
        case Basis::assumed: return "assumed";
    }
    return "?";
}

Basis basis_of(const BirthCertificate& born) {
    if (born.source.empty() || born.device == "none") return Basis::assumed;
    return born.source.rfind(carried_over_from, 0) == 0 ? Basis::carried_over : Basis::measured;
}

}  // namespace foretrain
