// Constants of a device or of its links from a table that somebody else measured: what `calibrate --from-table`
// writes. The forms are those that predictions call (hardware/kernel_time.h, hardware/collective_time.h).
//
// Half of the rows, drawn with a seed, is fitted to; the other half says how good the fit is. Errors are
// |predicted / measured - 1|. For products they count those of at least 10 GFLOP, of which training is made;
// smaller ones are fitted all the same.
//
//   Csv header: gpu,dtype,m,n,k,latency_us (further columns are let be)
//   std::vector<MeasuredGemm> rows = read_gemm_table("gemm_grid.csv");
//   GemmTableFit fit = fit_gemm_table(rows_of(rows, "H100-SXM", DType::bf16), start, h100, {.seed = 1});
//   fit.constants.efficiency;  fit.held_out.median          // 0.03
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/least_squares.h"
#include "hardware/calibration.h"
#include "hardware/collective_time.h"
#include "hardware/kernel_time.h"

namespace foretrain {

// One product of a benchmark that repeats it: C (m, n) = A (m, k) B (k, n).
struct MeasuredGemm {
    std::string gpu;
    DType dtype = DType::bf16;
    std::int64_t m = 0, n = 0, k = 0;
    double us = 0;
    bool is_large() const { return 2 * m * n * k >= 10'000'000'000; }
};

// One collective of a benchmark: `bytes` as nccl-tests counts them.
struct MeasuredCollective {
    std::string table;  // who measured what
    Collective kind = Collective::all_reduce;
    std::int64_t ranks = 0, nodes = 1, bytes = 0;
    double us = 0;
};

// Rows of a CSV file with a header; UserError with file and line for a row that is not one. Rows of element types that
// foretrain has none for are refused.
std::vector<MeasuredGemm> read_gemm_table(const std::string& path);
std::vector<MeasuredGemm> rows_of(const std::vector<MeasuredGemm>& rows, const std::string& gpu, DType dtype);

// Lines of JSON: {"table", "collective": "all_reduce|all_gather|reduce_scatter|alltoall", "ranks", "nodes", "bytes",
// "time_us"}; other collectives and keys are let be.
std::vector<MeasuredCollective> read_collective_table(const std::string& path);

struct TableFitOptions {
    std::uint64_t seed = 1;  // of the half that is fitted to
    int rounds = 2500;       // of the search, twice: the second time from where the first ended
};

struct GemmTableFit {
    GemmConstants constants;
    FitError fitted, held_out;  // of the products of at least 10 GFLOP
    std::size_t fitted_rows = 0, held_out_rows = 0;
};

// From the constants `start`. Throws UserError for fewer than forty rows.
GemmTableFit fit_gemm_table(const std::vector<MeasuredGemm>& rows, const GemmConstants& start,
                            const Processor& processor, const TableFitOptions& options);

struct DomainTableFit {
    DomainConstants constants;
    FitError fitted, held_out;  // of arrays larger than 1 MiB
    std::size_t fitted_rows = 0, held_out_rows = 0;
};

// Ring, switch and pairwise constants of one node, from its collectives (rows of several nodes are let be).
DomainTableFit fit_domain_table(const std::vector<MeasuredCollective>& rows, const DomainConstants& start,
                                const TableFitOptions& options);

// How well constants agree with rows, of which there must be some.
FitError error_of(const std::vector<MeasuredGemm>& rows, const GemmConstants& constants, const Processor& processor);
FitError error_of(const std::vector<MeasuredCollective>& rows, const DomainConstants& constants);

}  // namespace foretrain
