// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/long_wait.hpp"

#include "transport/base/log.hpp"
#include "transport/base/result.hpp"
#include "transport/base/waited.hpp"

namespace farside {

constinit thread_local const LongWait::Reason* LongWait::innermost_ = nullptr;
constinit thread_local bool LongWait::reporting_ = false;

void LongWait::report(std::chrono::seconds waited) {
  if (innermost_ == nullptr || reporting_ || !Log::enabled(LogLevel::kWarn)) return;
  reporting_ = true;
  const Ticks waited_so_far = Waited::here().total;
  (void)without_bad_alloc([&]() -> Status {
    const std::string text = innermost_->text(waited);
    if (!text.empty()) log(LogLevel::kWarn, "{}", text);
    return {};
  });
  Waited::here().total = waited_so_far;  // waits of the report are a part of the one that it reports
  reporting_ = false;
}

}  // namespace farside
