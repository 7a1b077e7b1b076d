// SPDX-License-Identifier: BSD-3-Clause
#include "transport/process.hpp"

#include <algorithm>
#include <bit>
#include <thread>

#include "transport/base/log.hpp"
#include "transport/base/trace.hpp"
#include "transport/fabric/endpoint.hpp"
#include "transport/fabric/provider.hpp"
#include "transport/handler/node_handler.hpp"

namespace farside {

Process::Process() = default;
Process::~Process() = default;

Result<const Settings*> Process::settings() {
  const std::scoped_lock held(mutex_);
  if (!settings_) {
    settings_ = read_settings();
    if (settings_->ok() && !settings_->value().stats.empty()) statistics_.enable();
    if (settings_->ok() && !settings_->value().trace.empty()) Trace::activate();
    if (settings_->ok()) LongWait::report_after(std::chrono::seconds(settings_->value().hang));
    if (statistics_.enabled() || Trace::active() != nullptr) Waiter::measure();
  }
  if (!settings_->ok()) return settings_->error();
  return &settings_->value();
}

Status Process::find_named_provider() {
  Result<const Settings*> known = settings();
  if (!known) return known.error();
  return known.value()->provider.empty() ? Status() : provider_choice().find();
}

ProviderChoice& Process::provider_choice() {
  const Settings& known = *settings().value();
  const std::scoped_lock held(mutex_);
  if (!choice_) choice_ = std::make_unique<ProviderChoice>(known, *this, statistics_);
  return *choice_;
}

void Process::use_fabric(OpenEndpoint& tried) {
  ProviderChoice& choice = provider_choice();
  const std::scoped_lock held(mutex_);
  const Providers provider = choice.use(tried);
  if (provider == 0) return;
  opened_[static_cast<std::size_t>(std::countr_zero(provider))].store(&tried, std::memory_order_release);
  log(LogLevel::kInfo, "libfabric provider {}, device {}: chosen", tried.provider(), tried.device());
}

template <class Call>
void Process::for_each_endpoint(Call&& call) const {
  for (const auto& each : opened_) {
    if (OpenEndpoint* const fabric = each.load(std::memory_order_acquire)) call(*fabric);
  }
}

std::vector<UsedEndpoint> Process::endpoints_in_use() const {
  std::vector<UsedEndpoint> all;
  for (std::size_t i = 0; i < opened_.size(); ++i) {
    if (OpenEndpoint* const fabric = opened_[i].load(std::memory_order_acquire))
      all.push_back({fabric, Providers{1} << i});
  }
  return all;
}

Result<NodeHandler*> Process::node_handler() {
  const std::scoped_lock held(mutex_);
  if (!node_handler_) node_handler_ = NodeHandler::open(statistics_);
  if (!*node_handler_) return node_handler_->error();
  NodeHandler* const opened = node_handler_->value().get();
  opened_node_handler_.store(opened, std::memory_order_release);
  return opened;
}

void Process::shut_down() {
  const std::scoped_lock held(mutex_);
  for (auto& each : opened_) each.store(nullptr, std::memory_order_release);
  opened_node_handler_.store(nullptr, std::memory_order_release);
  // A thread in poll_from_runtime() may still use what was open. A later one finds nothing open.
  while (in_poll_from_runtime_.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
  choice_.reset();
  if (node_handler_ && *node_handler_) node_handler_.reset();
  in_poll_from_runtime_.clear(std::memory_order_release);
}

void Process::poll() {
  for_each_endpoint([](OpenEndpoint& each) { each.poll(); });
  if (NodeHandler* handler = opened_node_handler_.load(std::memory_order_acquire)) handler->poll();
}

void Process::poll_now() {
  for_each_endpoint([](OpenEndpoint& each) { each.poll_now(); });
  if (NodeHandler* handler = opened_node_handler_.load(std::memory_order_acquire)) handler->poll();
}

bool Process::poll_from_runtime() {
  const auto open = [](const auto& each) { return each.load(std::memory_order_relaxed) != nullptr; };
  if (std::ranges::none_of(opened_, open) && !open(opened_node_handler_)) return false;
  // Not a mutex, whose unlock is an atomic operation, too: the runtime polls all the time.
  if (in_poll_from_runtime_.test_and_set(std::memory_order_acquire)) return false;
  bool moved = false;
  for_each_endpoint([&](OpenEndpoint& each) { moved = each.poll_from_runtime() || moved; });
  if (NodeHandler* handler = opened_node_handler_.load(std::memory_order_acquire)) moved = handler->poll() || moved;
  in_poll_from_runtime_.clear(std::memory_order_release);
  return moved;
}

bool Process::transfers() const {
  bool any = false;
  for_each_endpoint([&](OpenEndpoint& fabric) { any = any || fabric.transfers(); });
  return any;
}

void Process::listen(WakeEvent& wake_event) {
  for_each_endpoint([&](OpenEndpoint& each) { each.listen(wake_event); });
}

void Process::stop_listening(WakeEvent& wake_event) {
  for_each_endpoint([&](OpenEndpoint& each) { each.stop_listening(wake_event); });
}

}  // namespace farside
