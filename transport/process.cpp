// SPDX-License-Identifier: BSD-3-Clause
#include "transport/process.hpp"

#include "transport/base/log.hpp"
#include "transport/base/trace.hpp"
#include "transport/base/waited.hpp"
#include "transport/fabric/fabric.hpp"
#include "transport/fabric/provider_choice.hpp"
#include "transport/handler/node_handler.hpp"

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

ProviderChoice& Process::choice(const Settings& settings) {
  if (!choice_) choice_ = std::make_unique<ProviderChoice>(settings, *this, statistics_);
  return *choice_;
}

Process::ProviderOffer Process::offer_providers() {
  Result<const Settings*> known = settings();
  if (!known) return {};
  const std::scoped_lock held(mutex_);
  if (fabric_) return {provider_in_use(), provider_in_use(), std::nullopt};
  ProviderChoice& own = choice(*known.value());
  const Providers usable = own.usable();
  return {usable, own.wanted(), own.unknown_device()};
}

std::string Process::why_not(Providers one) {
  const std::scoped_lock held(mutex_);
  if (fabric_)
    return fmt::format("this process uses libfabric provider {} since an earlier window", fabric_->provider());
  return choice_ ? choice_->why_not(one) : std::string();
}

Result<Fabric*> Process::try_fabric(Providers among) {
  Result<const Settings*> known = settings();
  if (!known) return known.error();
  const std::scoped_lock held(mutex_);
  if (!fabric_) {
    ProviderChoice& own = choice(*known.value());
    if (trials_ > 0 && (own.opened() & among) == 0) {
      return Error{ErrorKind::kNoRoute,
                   "another thread is making the first window over libfabric, with a provider that not all ranks of "
                   "this window can use; make one window after the other"};
    }
    Result<Fabric*> opened = own.open(trials_ > 0 ? own.opened() : among);
    if (opened) ++trials_;
    return opened;
  }
  if ((provider_in_use() & among) == 0) {
    return Error{
        ErrorKind::kNoRoute,
        fmt::format(
            "this process uses libfabric provider {} since an earlier window, and not all ranks of this one do; "
            "set FARSIDE_PROVIDER to one that all have",
            fabric_->provider())};
  }
  ++trials_;
  return fabric_.get();
}

void Process::use_fabric() {
  const std::scoped_lock held(mutex_);
  --trials_;
  if (fabric_) return;
  in_use_.store(choice_->opened(), std::memory_order_release);
  fabric_ = choice_->take();
  choice_.reset();
  opened_.store(fabric_.get(), std::memory_order_release);
  log(LogLevel::kInfo, "libfabric provider {}, device {}: chosen", fabric_->provider(), fabric_->device());
}

void Process::discard_fabric(const std::string& why) {
  const std::scoped_lock held(mutex_);
  if (--trials_ == 0 && !fabric_) choice_->reject(why);
}

void Process::leave_fabric() {
  const std::scoped_lock held(mutex_);
  --trials_;
}

Result<Fabric*> Process::fabric(Providers among) {
  Result<Fabric*> tried = try_fabric(among);
  if (tried) use_fabric();
  return tried;
}

Result<NodeHandler*> Process::node_handler() {
  const std::scoped_lock held(mutex_);
  if (node_handler_) return node_handler_.get();
  if (node_handler_error_) return *node_handler_error_;
  Result<std::unique_ptr<NodeHandler>> opened = NodeHandler::open(statistics_);
  if (!opened) {
    node_handler_error_ = opened.error();
    return opened.error();
  }
  node_handler_ = std::move(opened.value());
  opened_node_handler_.store(node_handler_.get(), std::memory_order_release);
  return node_handler_.get();
}

void Process::shut_down() {
  const std::scoped_lock held(mutex_);
  opened_.store(nullptr, std::memory_order_release);
  in_use_.store(0, std::memory_order_release);
  opened_node_handler_.store(nullptr, std::memory_order_release);
  // A thread in poll_from_runtime() may still use what was open: close() waits for it.
  from_runtime_.close();
  choice_.reset();
  fabric_.reset();
  node_handler_.reset();
  from_runtime_.reopen();
}

void Process::poll() {
  if (Fabric* open = open_fabric()) open->poll();
  if (NodeHandler* handler = opened_node_handler_.load(std::memory_order_acquire)) handler->poll();
}

bool Process::poll_from_runtime() {
  if (open_fabric() == nullptr && opened_node_handler_.load(std::memory_order_relaxed) == nullptr) return false;
  if (!from_runtime_.try_enter()) return false;
  Fabric* const open = open_fabric();
  bool moved = open != nullptr && open->poll_from_runtime();
  if (NodeHandler* handler = opened_node_handler_.load(std::memory_order_acquire)) moved = handler->poll() || moved;
  from_runtime_.leave();
  return moved;
}

void Process::poll_runtime() {
  if (void (*hook)() = runtime_progress_.load(std::memory_order_acquire)) hook();
}

void Process::listen(WakeEvent& wake_event) {
  if (Fabric* open = open_fabric()) open->listen(wake_event);
}

void Process::stop_listening(WakeEvent& wake_event) {
  if (Fabric* open = open_fabric()) open->stop_listening(wake_event);
}

}  // namespace farside
