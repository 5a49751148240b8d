#include "sim/sweep.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <set>

#include "base/error.h"
#include "base/parallel.h"
#include "plan/check.h"
#include "sim/batch_advice.h"
#include "sim/plan_costs.h"
#include "sim/predict.h"

namespace foretrain {

namespace {

// What is known of a plan of the space.
struct Candidate {
    Bytes peak;
    Time time;  // a bound, until it is estimated
    bool feasible = false;
    bool estimated = false;
    bool not_costed = false;  // found when it was to be estimated
};

// Why plans fell, counted; the example is the first of them, or the one that nearly fits.
struct Fall {
    std::int64_t count = 0;
    std::size_t example = 0;
    Bytes peak{INT64_MAX};

    void add(std::size_t i, Bytes needed) {
        ++count;
        if (count == 1 || std::pair(needed, i) < std::pair(peak, example)) example = i, peak = needed;
    }
    void join(const Fall& other) {
        if (count == 0 || std::pair(other.peak, other.example) < std::pair(peak, example))
            example = other.example, peak = other.peak;
        count += other.count;
    }
};
using Falls = std::map<std::string, Fall>;
constexpr const char* not_costed = "cannot_be_costed";

// The fastest plan for every size of memory: each faster than all that need no more.
class Front {
public:
    void add(Time time, Bytes peak) {
        const auto after = fastest_.upper_bound(peak);
        if (after != fastest_.begin() && std::prev(after)->second <= time) return;
        auto slower = fastest_.lower_bound(peak);
        while (slower != fastest_.end() && slower->second >= time) slower = fastest_.erase(slower);
        fastest_[peak] = time;
    }

    // Is some plan at least as fast with no more memory?
    bool covers(Time time, Bytes peak) const {
        const auto after = fastest_.upper_bound(peak);
        return after != fastest_.begin() && std::prev(after)->second <= time;
    }

private:
    std::map<Bytes, Time> fastest_;
};

class Sweep {
public:
    Sweep(const Plan& base, const SweepOptions& options)
        : base_(base),
          options_(options),
          space_(enumerate(base, options.space)),
          candidates_(space_.size()),
          workers_(options.threads),
          capacity_(std::min(base.cluster.device.memory, options.max_memory.value_or(base.cluster.device.memory))) {
        for (int w = 0; w < workers_.count(); ++w) costs_.push_back(std::make_unique<PlanCosts>(base));
    }

    SweepResult run() {
        bound_all();
        options_.exhaustive ? estimate_all() : estimate_what_matters();
        SweepResult result;
        result.base = base_;
        result.enumerated = static_cast<std::int64_t>(space_.size());
        for (std::size_t i = 0; i < candidates_.size(); ++i) {
            const Candidate& c = candidates_[i];
            result.feasible += c.feasible ? 1 : 0;
            result.estimated += c.estimated ? 1 : 0;
            if (c.not_costed) falls_[not_costed].add(i, Bytes{});
        }
        for (const auto& [reason, fall] : falls_) result.fell[reason] = told(reason, fall);
        result.left_out = left_out_by_batch(base_.training.global_batch_size, space_.combinations());
        if (space_.empty()) result.nothing = text(why_nothing(base_, options_.space));
        rank();
        predict(first(ranked_, static_cast<std::size_t>(options_.top)), pareto(), result);
        return result;
    }

private:
    // Memory and bound of every plan. A worker takes a part of the space after another, so that its plans
    // share what they can.
    void bound_all() {
        const auto parts = space_.parts();
        std::vector<Falls> falls(static_cast<std::size_t>(workers_.count()));
        std::atomic<std::int64_t> done{0};
        const auto total = static_cast<std::int64_t>(space_.size());
        workers_.for_each(parts.size(), [&](std::size_t part, int worker) {
            Plan plan = base_;
            for (const std::size_t i : parts[part]) {
                plan.parallelism = space_.parallelism(i);
                bound_one(i, plan, *costs_[static_cast<std::size_t>(worker)], falls[static_cast<std::size_t>(worker)]);
                constexpr std::int64_t now_and_then = 64;
                const std::int64_t n = ++done;
                if (worker == 0 && options_.progress && n % now_and_then == 0) options_.progress(n, total);
            }
        });
        for (const Falls& some : falls)
            for (const auto& [reason, fall] : some)
                if (fall.count > 0) falls_[reason].join(fall);
    }

    void bound_one(std::size_t i, const Plan& plan, PlanCosts& costs, Falls& falls) {
        Candidate& c = candidates_[i];
        if (const std::vector<Rejection> no = check(plan); !no.empty()) {
            std::set<std::string> reasons;
            for (const Rejection& r : no)
                if (reasons.insert(r.reason).second) falls[r.reason].add(i, Bytes{});
            return;
        }
        try {
            bound_checked(i, plan, costs, falls);
        } catch (const UserError&) {  // it cannot be costed; others of the space can
            c = {};
            falls[not_costed].add(i, Bytes{});
        }
    }

    void bound_checked(std::size_t i, const Plan& plan, PlanCosts& costs, Falls& falls) {
        Candidate& c = candidates_[i];
        costs.set(plan.parallelism);
        // What is far from fitting need not be known to the byte.
        const Bytes least = costs.least_bytes();
        if (least > capacity_ && least > falls["out_of_memory"].peak) {
            ++falls["out_of_memory"].count;
            return;
        }
        c.peak = costs.peak_bytes();
        c.feasible = c.peak <= capacity_;
        if (c.feasible)
            c.time = costs.bound();
        else
            falls["out_of_memory"].add(i, c.peak);
    }

    void estimate_one(std::size_t i, PlanCosts& costs) {
        Candidate& c = candidates_[i];
        costs.set(space_.parallelism(i));
        Time step;
        try {
            step = costs.step();
        } catch (const UserError&) {
            c.feasible = false;
            c.not_costed = true;
            return;
        }
        FORETRAIN_CHECK(c.time <= step, "a bound exceeds its estimate");
        c.time = step;
        c.estimated = true;
    }

    void estimate_all() {
        const auto parts = space_.parts();
        workers_.for_each(parts.size(), [&](std::size_t part, int worker) {
            for (const std::size_t i : parts[part])
                if (candidates_[i].feasible) estimate_one(i, *costs_[static_cast<std::size_t>(worker)]);
        });
    }

    // In ascending order of bounds, a block at a time; the blocks do not depend on the workers.
    void estimate_what_matters() {
        std::vector<std::size_t> order;
        for (std::size_t i = 0; i < space_.size(); ++i)
            if (candidates_[i].feasible) order.push_back(i);
        std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return before(a, b); });
        constexpr std::size_t block = 16;
        const auto top = static_cast<std::size_t>(options_.top);
        std::vector<Time> best;  // the `top` fastest, ascending
        Front front;
        std::vector<std::size_t> now;
        for (auto next = order.begin(); next != order.end();) {
            now.clear();
            for (; next != order.end() && now.size() < block; ++next) {
                const Candidate& c = candidates_[*next];
                if (best.size() < top || c.time <= best.back() || !front.covers(c.time, c.peak)) now.push_back(*next);
            }
            workers_.for_each(now.size(), [&](std::size_t n, int worker) {
                estimate_one(now[n], *costs_[static_cast<std::size_t>(worker)]);
            });
            for (const std::size_t i : now) {
                const Candidate& c = candidates_[i];
                if (!c.estimated) continue;
                front.add(c.time, c.peak);
                best.insert(std::upper_bound(best.begin(), best.end(), c.time), c.time);
                if (best.size() > top) best.pop_back();
            }
        }
    }

    // By time; of equals the one that was enumerated first.
    bool before(std::size_t a, std::size_t b) const {
        return std::pair(candidates_[a].time, a) < std::pair(candidates_[b].time, b);
    }

    void rank() {
        for (std::size_t i = 0; i < space_.size(); ++i)
            if (candidates_[i].estimated) ranked_.push_back(i);
        std::sort(ranked_.begin(), ranked_.end(), [&](std::size_t a, std::size_t b) { return before(a, b); });
    }

    static std::vector<std::size_t> first(const std::vector<std::size_t>& all, std::size_t n) {
        return {all.begin(), all.begin() + static_cast<std::ptrdiff_t>(std::min(n, all.size()))};
    }

    // Fastest first, each with less memory than all before it.
    std::vector<std::size_t> pareto() const {
        std::vector<std::size_t> out;
        Bytes least{INT64_MAX};
        for (const std::size_t i : ranked_) {
            if (candidates_[i].peak >= least) continue;
            least = candidates_[i].peak;
            out.push_back(i);
        }
        return out;
    }

    // Many a plan is both among the best and on the front.
    void predict(const std::vector<std::size_t>& best, const std::vector<std::size_t>& front, SweepResult& result) {
        std::vector<std::size_t> plans = best;
        plans.insert(plans.end(), front.begin(), front.end());
        std::sort(plans.begin(), plans.end());
        plans.erase(std::unique(plans.begin(), plans.end()), plans.end());
        std::vector<Prediction> out(plans.size());
        workers_.for_each(plans.size(), [&](std::size_t n, int worker) {
            out[n] = estimate(space_.plan(plans[n]), *costs_[static_cast<std::size_t>(worker)]);
            FORETRAIN_CHECK(out[n].step == candidates_[plans[n]].time, "a plan alone is predicted otherwise");
        });
        const auto of = [&](std::size_t i) -> const Prediction& {
            return out[static_cast<std::size_t>(std::lower_bound(plans.begin(), plans.end(), i) - plans.begin())];
        };
        for (const std::size_t i : best) result.best.push_back(of(i));
        for (const std::size_t i : front) result.pareto.push_back(of(i));
    }

    RejectionCount told(const std::string& reason, const Fall& fall) const {
        const Plan plan = space_.plan(fall.example);
        RejectionCount out{.count = fall.count, .example = describe(plan.parallelism), .text = {}};
        if (reason == not_costed) {
            try {
                estimate(plan);
            } catch (const UserError& e) {
                out.text = e.what();
            }
            return out;
        }
        std::vector<Rejection> rejections = check(plan);
        if (rejections.empty()) rejections = check_memory(plan, estimate(plan).memory, capacity_);
        for (const Rejection& r : rejections)
            if (r.reason == reason) out.text = text(r);
        return out;
    }

    const Plan& base_;
    const SweepOptions& options_;
    PlanSpace space_;
    std::vector<Candidate> candidates_;
    Workers workers_;
    Bytes capacity_;
    std::vector<std::unique_ptr<PlanCosts>> costs_;  // one for each worker
    Falls falls_;
    std::vector<std::size_t> ranked_;  // estimated plans, fastest first
};

}  // namespace

SweepResult sweep(const Plan& base, const SweepOptions& options) {
    FORETRAIN_CHECK(options.top >= 1, "a sweep keeps at least one plan");
    return Sweep(base, options).run();
}

}  // namespace foretrain
