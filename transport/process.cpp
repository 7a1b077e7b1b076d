// SPDX-License-Identifier: BSD-3-Clause
#include "transport/process.hpp"

#include "transport/agent/node_agent.hpp"
#include "transport/base/trace.hpp"
#include "transport/base/waited.hpp"
#include "transport/fabric/fabric.hpp"

namespace farside {

Process::Process() = default;
Process::~Process() = default;

Process& Process::instance() {
  static auto* const process = new Process();
  return *process;
}

Result<const Settings*> Process::settings() {
  const std::scoped_lock held(mutex_);
  if (!settings_) {
    settings_ = read_settings();
    if (settings_->ok() && !settings_->value().stats.empty()) statistics_.enable();
    if (settings_->ok() && !settings_->value().trace.empty()) Trace::activate();
    if (statistics_.enabled() || Trace::active() != nullptr) Waited::measure();
  }
  if (!settings_->ok()) return settings_->error();
  return &settings_->value();
}

Result<Fabric*> Process::fabric() {
  if (Fabric* open = open_fabric()) return open;
  Result<const Settings*> known = settings();
  if (!known) return known.error();
  const std::scoped_lock held(mutex_);
  if (fabric_) return fabric_.get();
  if (fabric_error_) return *fabric_error_;
  Result<std::unique_ptr<Fabric>> opened = Fabric::open(*known.value(), *this, statistics_);
  if (!opened) {
    fabric_error_ = opened.error();
    return opened.error();
  }
  fabric_ = std::move(opened.value());
  opened_.store(fabric_.get(), std::memory_order_release);
  return fabric_.get();
}

Result<NodeAgent*> Process::node_agent() {
  const std::scoped_lock held(mutex_);
  if (node_agent_) return node_agent_.get();
  if (node_agent_error_) return *node_agent_error_;
  Result<std::unique_ptr<NodeAgent>> opened = NodeAgent::open(statistics_);
  if (!opened) {
    node_agent_error_ = opened.error();
    return opened.error();
  }
  node_agent_ = std::move(opened.value());
  return node_agent_.get();
}

void Process::shut_down() {
  const std::scoped_lock held(mutex_);
  opened_.store(nullptr, std::memory_order_release);
  fabric_.reset();
  node_agent_.reset();
}

void Process::poll() {
  if (Fabric* open = open_fabric()) open->poll();
}

void Process::poll_runtime() {
  if (void (*hook)() = runtime_progress_.load(std::memory_order_acquire)) hook();
}

void Process::listen(Doorbell& bell) {
  if (Fabric* open = open_fabric()) open->listen(bell);
}

std::chrono::microseconds Process::longest_sleep() const {
  constexpr std::chrono::microseconds kWithoutThread{50};
  const Fabric* const open = open_fabric();
  return open == nullptr || open->serves() ? Progress::longest_sleep() : kWithoutThread;
}

void Process::stop_listening(Doorbell& bell) {
  if (Fabric* open = open_fabric()) open->stop_listening(bell);
}

}  // namespace farside
