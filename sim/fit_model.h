// Measured steps as a function of the constants that may be fitted: each constant is a factor on its figures, told by
// its logarithm, so that 0 is as it was and +0.1 about ten percent more.
//
//   FitModel model(std::move(runs), constant_rules(), threads);
//   std::vector<double> t = model.log_steps(factors, rows);          // ln of the predicted step of each row
//   Sensitivity s = model.sensitivity(factors, rows);                // d ln(step) / d factor
//   Framework f = ...;  model.correct(f, factors);                   // the profile with fitted figures
//
// The figures are those of the runs' own frameworks, devices and links; runs that share them share the work of
// correcting them. Answers are the same for any number of threads.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "plan/framework.h"
#include "plan/plan.h"
#include "sim/free_constants.h"

namespace foretrain {

struct FitRun {
    std::string id, source;  // source: by which runs are left out together
    Plan plan;               // precondition: it checks
    double measured_s = 0;
};

struct FreeConstant {
    std::string name;                // of its rule, with the owner where each has one: "traffic of fsdp@composer"
    std::vector<std::string> paths;  // of the figures that it scales, the first one's value is `before`
    double before = 0;
    double least = 0, most = 0;  // of the factor's logarithm
    double prior = 0;            // standard deviation of the factor's logarithm
    double neutral = 0;          // logarithm of the factor where nothing was seen of its owners
    bool of_framework = false;
    std::string reason;
};

using LogFactors = std::vector<double>;  // by constant
using Rows = std::vector<std::size_t>;   // of the model's runs

// By row, then by constant.
using Sensitivity = std::vector<std::vector<double>>;

class FitModel {
public:
    FitModel(std::vector<FitRun> runs, const std::vector<ConstantRule>& rules, int threads);

    const std::vector<FitRun>& runs() const { return runs_; }
    const std::vector<FreeConstant>& constants() const { return constants_; }
    Rows all_rows() const;

    std::vector<double> log_steps(const LogFactors& factors, const Rows& rows) const;
    Sensitivity sensitivity(const LogFactors& factors, const Rows& rows,
                            const std::function<void(double part)>& progress) const;

    // What the factors make of figures that are not those of a run, but of the same owners.
    void correct(Framework& framework, const LogFactors& factors) const;
    void correct(ClusterSpec& cluster, const LogFactors& factors) const;

private:
    // One figure that a constant scales.
    struct Scaled {
        std::size_t constant = 0;
        Place place;
        double least = 0, most = 0;
        bool whole = false;
    };
    // Figures that runs share.
    struct Holder {
        FigureRoom room = FigureRoom::costs;
        std::string owner;
        Framework framework;                 // of a framework's costs
        ClusterSpec cluster;                 // of all others
        std::vector<std::size_t> constants;  // that act on it, ascending
    };
    using Owner = std::pair<FigureRoom, std::string>;

    std::size_t holder_of(FigureRoom room, const Plan& plan);
    void find_constants(const std::vector<ConstantRule>& rules);
    void add_constant(const ConstantRule& rule, const std::vector<std::size_t>& holders);
    Json corrected(const Owner& owner, Json figures, const LogFactors& factors) const;
    Holder corrected(const Holder& holder, const LogFactors& factors) const;
    void correct(ClusterSpec& cluster, const LogFactors& factors, FigureRoom room, const std::string& owner) const;
    static Json figures_of(const Holder& holder);
    double log_step(std::size_t run, const std::vector<const Holder*>& holders) const;

    std::vector<FitRun> runs_;
    Workers workers_;
    std::vector<Holder> holders_;
    std::vector<std::vector<std::size_t>> holders_of_run_;  // one of each room
    std::vector<FreeConstant> constants_;
    std::map<Owner, std::vector<Scaled>> scaled_;
};

}  // namespace foretrain
