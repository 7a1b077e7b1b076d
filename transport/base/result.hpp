// SPDX-License-Identifier: BSD-3-Clause
// The errors of the layers below pmpi/. An Error has a kind, which pmpi/ maps to an MPI error class, and one sentence
// that says what was tried, on what, and the exact cause. These layers report no errors by exceptions, except a lack of
// memory (std::bad_alloc), which the callers that must not throw turn into an error (without_bad_alloc).
#pragma once

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <variant>

#include "transport/base/timing.hpp"

namespace farside {

enum class ErrorKind {
  kOther,        // no other kind fits
  kBadSetting,   // a FARSIDE_* variable has a value that is not allowed
  kNoRoute,      // no allowed route reaches a peer
  kNoMemory,     // shared memory, locked memory or address space is exhausted
  kPeer,         // a peer has ended or answers incorrectly, or its connection failed
  kAssertion,    // an info hint that does not hold
  kNotOneNode,   // shared memory for ranks of several nodes
  kAttach,       // memory that cannot be attached or detached
  kRange,        // an access beyond a region (found at the target)
  kUnsupported,  // a combination that does not exist
  kOfMpi = 4096  // from here on: error classes of MPI, with which pmpi/ refuses a call
};

struct [[nodiscard]] Error {
  static constexpr int kNoRank = -1;
  ErrorKind kind = ErrorKind::kOther;
  std::string text;
  int rank = kNoRank;  // the peer, in the space's group: a call may reach several ranks, or other ranks than its target

  // Needs no memory: the text lies in the string itself.
  static Error out_of_memory() { return {ErrorKind::kNoMemory, "out of memory"}; }
};

// Stands for an Error for which there was no memory.
inline Error error_without_memory = Error::out_of_memory();
struct DeleteError {
  [[gnu::noinline, gnu::cold]] void operator()(Error* error) const {
    if (error != &error_without_memory) delete error;
  }
};

// Success, or the Error that prevented it. It has the size of a pointer, so success costs nothing on a fast path.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(new (std::nothrow) Error(std::move(error))) {  // NOLINT(google-explicit-constructor)
    if (error_ == nullptr) error_.reset(&error_without_memory);
  }
  Status(Status&& other) = default;
  Status(const Status& other) {
    if (!other.ok()) *this = other.error();
  }
  Status& operator=(Status other) {
    error_ = std::move(other.error_);
    return *this;
  }
  bool ok() const { return error_ == nullptr; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }
  // Gives the error away, and takes it back; null: success.
  Error* release() { return error_.release(); }
  explicit Status(Error* released) { error_.reset(released); }
  // Takes a later status, unless there is an error already: the first one stays.
  void keep(Status later) {
    if (ok()) *this = std::move(later);
  }

 private:
  std::unique_ptr<Error, DeleteError> error_;
};

// Returns the first failure of two steps that were both carried out.
inline Status first_of(Status one, Status other) { return one ? std::move(other) : std::move(one); }

// A T, or the Error that prevented it. Precondition of value(): ok(). Precondition of error(): !ok().
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : held_(std::in_place_index<1>, std::move(error)) {}  // NOLINT
  bool ok() const { return held_.index() == 0; }
  explicit operator bool() const { return ok(); }
  T& value() { return *std::get_if<0>(&held_); }
  const T& value() const { return *std::get_if<0>(&held_); }
  const Error& error() const { return *std::get_if<1>(&held_); }
  Status status() const { return ok() ? Status() : Status(error()); }

 private:
  std::variant<T, Error> held_;
};

// Calls work() again, for a second, if it lacks memory: where something has begun that must not stay half done.
template <class Work>
decltype(auto) patiently(Work&& work) {
  for (int tries = 1;; ++tries) {
    try {
      return work();
    } catch (const std::bad_alloc&) {
      if (tries == Timing::kTriesForMemory) throw;
    }
    std::this_thread::sleep_for(Timing::kTryAgain);
  }
}

// Calls work(), and returns a lack of memory as an error; a Status if work() returns nothing.
template <class Work>
auto without_bad_alloc(Work&& work) {
  constexpr bool kNothing = std::is_void_v<decltype(work())>;
  using Returned = std::conditional_t<kNothing, Status, decltype(work())>;
  try {
    if constexpr (kNothing)
      return work(), Status();
    else
      return work();
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {  // more elements than an address space has
  }
  return Returned(Error::out_of_memory());
}

}  // namespace farside
