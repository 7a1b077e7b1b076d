// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_CHECK=strict for one window: the operations of this rank that are under way, as ranges of bytes, and the
// report of two that conflict (epochs/access_log.hpp). For debugging: it walks through datatypes and takes a lock.
#pragma once

#include <cstdint>
#include <mutex>

#include "epochs/access_log.hpp"
#include "pmpi/datatype.hpp"
#include "pmpi/fault.hpp"

namespace farside::pmpi {

class Strict {
 public:
  // One side of an operation.
  struct Side {
    const void* address;
    std::int64_t count;
    const Datatype* type;
  };
  struct Target {
    int rank;
    std::int64_t at;  // bytes from the beginning of the window to element 0
    std::int64_t count;
    const Datatype* type;
  };

  // An operation that is about to be issued, and is allowed by its epoch. A fault if it conflicts with one before it;
  // else it is remembered. `origin` and `result` are null where the call has none.
  Outcome transfer(const Side& origin, const Target& target, bool put);
  Outcome accumulate(const char* call, const Side* origin, const Side* result, const Target& target, BasicType type);

  void completed(int target);
  void completed_all();
  void locally_completed(int target);

 private:
  enum class Then : std::uint8_t { kLook, kAdd };
  // Looks for conflicts of a pair of sides, or adds it.
  Outcome walk(Then then, const Side& local, epochs::LocalUse use, const Target& target);

  std::mutex mutex_;
  epochs::AccessLog log_;
};

}  // namespace farside::pmpi
