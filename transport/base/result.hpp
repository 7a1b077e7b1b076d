// SPDX-License-Identifier: BSD-3-Clause
// The errors of the layers below pmpi/. An Error has a kind, which pmpi/ maps to an MPI error class, and one sentence
// that says what was tried, on what, and the exact cause. These layers report no errors by exceptions.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <variant>

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
  kConflict,     // an access that the state of the target's window forbids
};

struct [[nodiscard]] Error {
  static constexpr int kNoRank = -1;
  ErrorKind kind = ErrorKind::kOther;
  std::string text;
  int rank =
      kNoRank;  // the peer, in the space's group: a call may reach several ranks, or other ranks than its target
};

// Success, or the Error that prevented it. It has the size of a pointer, so success costs nothing on a fast path.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Error error) : error_(std::make_unique<Error>(std::move(error))) {}  // NOLINT(google-explicit-constructor)
  bool ok() const { return error_ == nullptr; }
  explicit operator bool() const { return ok(); }
  const Error& error() const { return *error_; }

 private:
  std::unique_ptr<Error> error_;
};

// A T, or the Error that prevented it. Precondition of value(): ok(). Precondition of error(): !ok().
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : held_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
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

}  // namespace farside
