// Hand-made inputs of the reports, small enough to check every figure in one's head.
#pragma once

#include "plan/program/program.h"
#include "plan/program/result.h"
#include "plan/program/trace.h"

namespace foretrain::examples {

// Two stages on 8 devices of 100 TFLOP/s and 10 GiB: 1000 tokens a second and device, MFU 0.4.
Prediction two_stages();

// Two stages of one kernel, a message from the first to the second, and a data-parallel all-reduce
// of 6 fp32 elements; two data ranks, so ranks 0 and 1 on stage 0, ranks 2 and 3 on stage 1.
//   stage 0: #0 gemm  #1 send          #2 all_reduce  #3 step_end
//   stage 1: #0 recv  #1 gemm          #2 all_reduce  #3 step_end
Program message_and_reduction();

// Its simulation: gemm 100 us, message 10 us, all-reduce 20 us.
Trace simulated();

// Its measurement over three steps, the first twice as slow. In the others the gemm takes 110 us,
// the receiver waits (60 us for a transfer of 12), and rank 0 waits for the all-reduce (70 for 25).
Trace measured();

}  // namespace foretrain::examples
