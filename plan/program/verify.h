// Proof, before anything runs, that a program can be run:
//
//   - every index is in range, and waits name earlier instructions of the stream they state;
//   - every collective and message has a partner of the same size, in the same order;
//   - nothing deadlocks: run untimed, every instruction completes;
//   - alloc and free balance, and nothing is used outside its life;
//   - every access of a piece of memory is ordered, by streams and waits, after the accesses that it
//     conflicts with: so reads follow their writes, and no two live tensors share an address;
//   - nothing is read that was never written (parameters and their state are given);
//   - what a framework adds (launches, stalls, shares of collectives) is a time, on the stream that is its own.
//
//   if (auto wrong = verify(program)) std::cerr << *wrong;
//
// The answer is empty, or says what does not hold and where, with the stage x time grid around it.
#pragma once

#include <optional>
#include <string>

#include "plan/program/program.h"

namespace foretrain {

std::optional<std::string> verify(const Program& program);

}  // namespace foretrain
