#include "sim/sweep.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "plan/check.h"
#include "plan/program/skeleton.h"
#include "sim/estimate.h"
#include "sim/predict.h"

namespace foretrain {

namespace {

// What the first pass learns of each plan.
struct Candidate {
    bool feasible = false;
    Time bound;
    Time step;  // once estimated
    bool estimated = false;
    Bytes peak;
    std::vector<Rejection> rejections;
};

// Runs f(i) for i in [0, n) on some threads. An exception of any is thrown here.
template <class F>
void for_each_index(std::size_t n, int threads, F&& f) {
    std::atomic<std::size_t> next{0};
    std::vector<std::exception_ptr> errors(std::clamp<std::size_t>(n, 1, static_cast<std::size_t>(threads)));
    const auto work = [&](std::size_t self) {
        try {
            for (std::size_t i = next++; i < n; i = next++) f(i);
        } catch (...) {
            errors[self] = std::current_exception();
            next = n;
        }
    };
    std::vector<std::thread> pool;
    try {
        for (std::size_t t = 1; t < std::min(errors.size(), n); ++t) pool.emplace_back(work, t);
    } catch (const std::system_error&) {
        // No more threads to be had: those that started do the work.
    }
    work(0);
    for (std::thread& t : pool) t.join();
    for (const std::exception_ptr& e : errors)
        if (e) std::rethrow_exception(e);
}

class Sweep {
public:
    Sweep(const Plan& base, const SweepOptions& options)
        : base_(base),
          options_(options),
          plans_(enumerate(base, options.space)),
          candidates_(plans_.size()),
          threads_(options.threads > 0 ? options.threads
                                       : std::max(1, static_cast<int>(std::thread::hardware_concurrency()))),
          capacity_(std::min(base.cluster.device.memory, options.max_memory.value_or(base.cluster.device.memory))) {}

    SweepResult run() {
        bound_all();
        estimate_what_matters();
        SweepResult result;
        result.base = base_;
        Bytes nearest_to_fit{INT64_MAX};
        result.enumerated = static_cast<std::int64_t>(plans_.size());
        for (std::size_t i = 0; i < plans_.size(); ++i) {
            const Candidate& c = candidates_[i];
            result.feasible += c.feasible ? 1 : 0;
            result.estimated += c.estimated ? 1 : 0;
            for (const Rejection& no : c.rejections) {
                RejectionCount& count = result.fell[no.reason];
                ++count.count;
                const bool nearer = no.reason == "out_of_memory" && c.peak < nearest_to_fit;
                if (nearer) nearest_to_fit = c.peak;
                if (nearer || count.example.empty()) {
                    count.example = describe(plans_[i].parallelism);
                    count.text = text(no);
                }
            }
        }
        if (plans_.empty()) result.nothing = text(why_nothing(base_, options_.space));
        result.best = finalists();
        result.pareto = pareto();
        return result;
    }

private:
    void bound_all() {
        std::atomic<std::int64_t> done{0};
        const auto total = static_cast<std::int64_t>(plans_.size());
        const std::thread::id caller = std::this_thread::get_id();
        for_each_index(plans_.size(), threads_, [&](std::size_t i) {
            bound_one(plans_[i], candidates_[i]);
            const std::int64_t n = ++done;
            if (options_.progress && std::this_thread::get_id() == caller) options_.progress(n, total);
        });
    }

    void bound_one(const Plan& plan, Candidate& c) const {
        c.rejections = check(plan);
        if (!c.rejections.empty()) return;
        const Skeleton skeleton = make_skeleton(plan, Depth::brief);
        const CostModel cost(plan.cluster, plan.grid());
        const Estimator estimator(skeleton, cost);
        const std::vector<StageMemory> memory = with_reserved(plan, estimator.memory());
        c.peak = memory[largest_of(memory)].total();
        c.rejections = check_memory(plan, memory, capacity_);
        c.feasible = c.rejections.empty();
        if (c.feasible) c.bound = estimator.bound();
    }

    // In ascending order of bounds, a block at a time; the blocks do not depend on the threads.
    void estimate_what_matters() {
        std::vector<std::size_t> order;
        for (std::size_t i = 0; i < plans_.size(); ++i)
            if (candidates_[i].feasible) order.push_back(i);
        std::stable_sort(order.begin(), order.end(),
                         [&](std::size_t a, std::size_t b) { return candidates_[a].bound < candidates_[b].bound; });
        constexpr std::size_t block = 16;
        std::vector<std::size_t> now;
        for (std::size_t first = 0; first < order.size(); first += block) {
            now.clear();
            for (std::size_t n = first; n < std::min(first + block, order.size()); ++n)
                if (options_.exhaustive || !excluded(candidates_[order[n]])) now.push_back(order[n]);
            for_each_index(now.size(), threads_, [&](std::size_t n) { estimate_one(now[n]); });
            for (std::size_t i : now) ranked_.push_back(i);
            std::stable_sort(ranked_.begin(), ranked_.end(),
                             [&](std::size_t a, std::size_t b) { return before(a, b); });
        }
    }

    void estimate_one(std::size_t i) {
        const Skeleton skeleton = make_skeleton(plans_[i], Depth::brief);
        const CostModel cost(plans_[i].cluster, plans_[i].grid());
        candidates_[i].step = Estimator(skeleton, cost).estimate().step;
        candidates_[i].estimated = true;
        FORETRAIN_CHECK(candidates_[i].bound <= candidates_[i].step, "a bound exceeds its estimate");
    }

    bool before(std::size_t a, std::size_t b) const {
        return std::pair(candidates_[a].step, a) < std::pair(candidates_[b].step, b);
    }

    bool excluded(const Candidate& c) const {
        const auto top = static_cast<std::size_t>(options_.top);
        if (ranked_.size() < top || c.bound <= candidates_[ranked_[top - 1]].step) return false;
        return std::any_of(ranked_.begin(), ranked_.end(), [&](std::size_t i) {
            return candidates_[i].step <= c.bound && candidates_[i].peak <= c.peak;
        });
    }

    std::vector<Prediction> finalists() const {
        std::vector<Prediction> out;
        for (std::size_t n = 0; n < std::min(ranked_.size(), static_cast<std::size_t>(options_.top)); ++n)
            out.push_back(simulated(plans_[ranked_[n]]));
        return out;
    }

    // What is too long to simulate keeps its estimate.
    static Prediction simulated(const Plan& plan) {
        Prediction p = simulate(plan);
        return p.feasible() ? p : estimate(plan);
    }

    // Fastest first, each with less memory than all before it.
    std::vector<Prediction> pareto() const {
        std::vector<Prediction> out;
        Bytes least{INT64_MAX};
        for (std::size_t i : ranked_) {
            if (candidates_[i].peak >= least) continue;
            least = candidates_[i].peak;
            out.push_back(estimate(plans_[i]));
        }
        return out;
    }

    const Plan& base_;
    const SweepOptions& options_;
    std::vector<Plan> plans_;
    std::vector<Candidate> candidates_;
    std::vector<std::size_t> ranked_;  // estimated plans, fastest first
    int threads_;
    Bytes capacity_;
};

}  // namespace

SweepResult sweep(const Plan& base, const SweepOptions& options) {
    FORETRAIN_CHECK(options.top >= 1, "a sweep keeps at least one plan");
    return Sweep(base, options).run();
}

}  // namespace foretrain
