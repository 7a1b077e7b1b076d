// SPDX-License-Identifier: BSD-3-Clause
// What a thread waits for in a call on a window, for the reports of FARSIDE_HANG (transport/base/waiter.hpp). A call
// has a CallReason, and a wait in it whose cause the window knows more closely a WaitReason. The texts are in
// wait_reasons.cpp. Thread safety: a reason belongs to its thread.
#pragma once

#include <chrono>
#include <string>
#include <utility>

#include "pmpi/window/window.hpp"
#include "transport/base/waiter.hpp"

namespace farside::pmpi {

// Waits for operations to be acknowledged, where no closer reason is known.
class CallReason final : public LongWait::Reason {
 public:
  CallReason(Window& window, const CallSite& call) : window_(window), call_(call) {}
  std::string text(std::chrono::seconds waited) const override {
    return window_.report_wait(call_.name, waited, window_.awaited_by_operations(call_.target));
  }
  const char* call() const override { return call_.name; }

 private:
  Window& window_;
  const CallSite& call_;
};

// `Describe` returns a Window::Awaited.
template <class Describe>
class WaitReason final : public LongWait::Reason {
 public:
  WaitReason(Window& window, Describe describe) : window_(window), describe_(std::move(describe)) {}
  std::string text(std::chrono::seconds waited) const override {
    return window_.report_wait(call(), waited, describe_());
  }

 private:
  Window& window_;
  Describe describe_;
};

}  // namespace farside::pmpi
