// SPDX-License-Identifier: BSD-3-Clause
#include "transport/process.hpp"

#include "transport/fabric/fabric.hpp"

namespace farside {

Process& Process::instance() {
  static auto* const process = new Process();
  return *process;
}

Result<const Settings*> Process::settings() {
  if (!settings_) {
    settings_ = read_settings();
    if (settings_->ok() && !settings_->value().stats.empty()) statistics_.enable();
  }
  if (!settings_->ok()) return settings_->error();
  return &settings_->value();
}

Result<Fabric*> Process::fabric() {
  if (fabric_) return fabric_.get();
  if (fabric_error_) return *fabric_error_;
  Result<const Settings*> known = settings();
  if (!known) return known.error();
  Result<std::unique_ptr<Fabric>> opened = Fabric::open(known.value()->provider, *this, statistics_);
  if (!opened) {
    fabric_error_ = opened.error();
    return opened.error();
  }
  fabric_ = std::move(opened.value());
  return fabric_.get();
}

void Process::shut_down() { fabric_.reset(); }

void Process::poll() {
  if (fabric_) fabric_->poll();
}

void Process::poll_runtime() {
  if (runtime_progress_ != nullptr) runtime_progress_();
}

void Process::listen(Doorbell& bell) {
  if (fabric_) fabric_->listen(bell);
}

void Process::stop_listening(Doorbell& bell) {
  if (fabric_) fabric_->stop_listening(bell);
}

}  // namespace farside
