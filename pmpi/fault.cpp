// SPDX-License-Identifier: BSD-3-Clause
#include "pmpi/fault.hpp"

#include <array>

#include "pmpi/call_sites.hpp"
#include "pmpi/library/library.hpp"
#include "pmpi/runtime/runtime.hpp"

namespace farside::pmpi {

int class_of(const Error& error) {
  const int of_mpi = static_cast<int>(error.kind) - static_cast<int>(ErrorKind::kOfMpi);
  if (of_mpi >= 0) return of_mpi;
  switch (error.kind) {
    case ErrorKind::kNoMemory: return MPI_ERR_NO_MEM;
    case ErrorKind::kAssertion: return MPI_ERR_INFO;
    case ErrorKind::kNotOneNode: return MPI_ERR_RMA_SHARED;
    case ErrorKind::kAttach: return MPI_ERR_RMA_ATTACH;
    case ErrorKind::kRange: return MPI_ERR_RMA_RANGE;
    case ErrorKind::kUnsupported: return MPI_ERR_UNSUPPORTED_OPERATION;
    default: return MPI_ERR_OTHER;
  }
}

namespace {

int class_of(epochs::ErrorClass error) {
  switch (error) {
    case epochs::ErrorClass::kRmaSync: return MPI_ERR_RMA_SYNC;
    case epochs::ErrorClass::kRmaConflict: return MPI_ERR_RMA_CONFLICT;
    case epochs::ErrorClass::kRank: return MPI_ERR_RANK;
    case epochs::ErrorClass::kGroup: return MPI_ERR_GROUP;
    case epochs::ErrorClass::kAssert: return MPI_ERR_ASSERT;
    case epochs::ErrorClass::kNoMemory: return MPI_ERR_NO_MEM;
    default: return MPI_ERR_OTHER;
  }
}

}  // namespace

Fault fault_of(const epochs::Violation& violation) {
  std::string text = fmt::format("{}; {}", violation.what, violation.advice);
  if (*violation.section != '\0') text += fmt::format(" ({})", violation.section);
  if (violation.carried) text += kCarriedWithWarn;
  return {class_of(violation.error), std::move(text)};
}

Status status_of(int code, const char* call) {
  if (code == MPI_SUCCESS) return {};
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (runtime().Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  return Error{ErrorKind::kPeer, fmt::format("the runtime's {} failed: {}", call,
                                             length > 0 ? std::string(text.data(), static_cast<std::size_t>(length))
                                                        : fmt::format("code {}", code))};
}

int raise_on(MPI_Comm communicator, const char* call, const Error& error) {
  log_error(call, error, [&] { log(LogLevel::kError, "{}: {}{}", call, error.text, library().sites->called_from()); });
  // If the handler cannot be called, the return code carries the same information.
  (void)runtime().Comm_call_errhandler(communicator, class_of(error));
  return class_of(error);
}

int raise_without_object(const MpiCall& call, const Error& error) {
  return raise_on(MPI_VERSION < 4 ? MPI_COMM_WORLD : MPI_COMM_SELF, call.name, error);
}

int raise_without_window(const MpiCall& call, const char* why) {
  return raise_without_object(call, Fault(MPI_ERR_WIN, why));
}

int raise_on_runtime_window(MPI_Win window, const MpiCall& call) {
  const Fault fault{MPI_ERR_UNSUPPORTED_OPERATION,
                    "the window stays with the MPI runtime, which has no such call; use a put, a flush and a message"};
  log_error(call.name, fault, [&] { log(LogLevel::kError, "{}: {}", call.name, fault.text); });
  (void)runtime().Win_call_errhandler(window, MPI_ERR_UNSUPPORTED_OPERATION);
  return MPI_ERR_UNSUPPORTED_OPERATION;
}

}  // namespace farside::pmpi
