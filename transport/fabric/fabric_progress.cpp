// SPDX-License-Identifier: BSD-3-Clause
// The polls of application threads, and what the progress thread does (ProgressThread::Work). It checks the peers for
// peer_health.hpp, and acts on those that are out of reach.
#include <algorithm>
#include <utility>
#include <vector>

#include <rdma/fi_rma.h>

#include "transport/base/log.hpp"
#include "transport/base/threads.hpp"
#include "transport/base/ticks.hpp"
#include "transport/fabric/fabric.hpp"

namespace farside {
namespace {

constexpr std::chrono::milliseconds kIdle{10'000};  // the longest sleep while nothing is under way
constexpr std::chrono::milliseconds kTryAgain{1};   // while answers are unsent, receives refused or requests deferred
constexpr std::uint64_t kMovedData = 10'000;  // ns; a poll that takes so long has moved data (one without: 1 to 2 us)
// ns; between two polls that look at connection events. A thread that polls without a pause keeps the mutex from the
// progress thread, which would have to sleep until it is unlocked.
constexpr std::uint64_t kReadEventsEveryNs = std::chrono::nanoseconds(ProgressThread::kReadEventsEvery).count();
// Polls of the endpoint for each pass of the runtime's progress engine, while arrivals are left to it. (fetch_and_op
// between two hosts, target in MPICH's MPI_Barrier: 23.3 us with one, 21.4 with two, 23.3 with four.)
constexpr int kPollsFromRuntime = 2;

}  // namespace

// Polls; a lack of memory there is none of the caller's, and the next poll tries again.
bool Fabric::advance_safely(int thread, std::uint64_t begin_ns) {
  bool moved = false;
  (void)without_bad_alloc([&]() -> Status {
    moved = advance_for(thread, begin_ns);
    return {};
  });
  return moved;
}

bool Fabric::poll() {
  const int thread = ThreadSlot::get();
  const std::uint64_t begin = monotonic_ns();
  if (polls_.repeats(thread, begin)) return false;
  thread_.polled();
  // A thread that holds the mutex already makes progress, or holds it for a moment only to find out whether another
  // thread does (endpoint_is_busy).
  bool moved = false;
  if (const std::unique_lock held(mutex_, std::try_to_lock); held) moved = advance_safely(thread, begin);
  // Another thread may sleep until one of these completions.
  if (moved) thread_.wake_listeners();
  return moved;
}

void Fabric::poll_now() {
  thread_.polled();
  bool moved = false;
  {
    const std::scoped_lock held(mutex_);
    moved = advance_safely(ThreadSlot::get(), monotonic_ns());
  }
  if (moved) thread_.wake_listeners();
}

// A poll by `thread` that has begun at `begin_ns`. Called with the mutex held.
bool Fabric::advance_for(int thread, std::uint64_t begin_ns) {
  bool moved = false;
  if (begin_ns >= read_events_at_ns_) {
    moved = connections_->progress();  // libfabric 1.18 and later poll the sockets there; advance() reads the rings
    read_events_at_ns_ = begin_ns + kReadEventsEveryNs;
  }
  moved = advance() || moved;
  end_long_sleep();
  const std::uint64_t end_ns = monotonic_ns();
  polls_.polled(thread, begin_ns, end_ns);
  // RDMA over TCP that a peer issues generates no completion here. Only the duration of the poll shows that it moved
  // data.
  if (moved || end_ns - begin_ns >= kMovedData) thread_.taken();
  return moved;
}

bool Fabric::poll_from_runtime() {
  if (!thread_.polled_from_runtime()) return false;
  for (int polls = 0; polls < kPollsFromRuntime; ++polls) {
    if (poll()) {
      statistics_.add(RouteKind::kFabric, Counted::kFromRuntime, 0);
      return true;
    }
  }
  return false;
}

// Returns whether the progress thread has nothing to do until something arrives.
bool Fabric::idle() const {
  return under_way_.peers().active().empty() && deferred_.empty() && !replies_.any_unsent() &&
         !receives_.any_refused() && !eviction_->any_disconnecting() && !connections_->connecting() &&
         !connections_->any_lost();
}

// Wakes the progress thread if it sleeps long and there is something to check. Called with the mutex held.
void Fabric::end_long_sleep() {
  if (!sleeps_long_ || idle()) [[likely]]
    return;
  sleeps_long_ = false;
  thread_.wake();
}

void Fabric::check() {
  std::vector<OperationPool::Operations> unused;  // freed at the end, without a mutex
  {
    const std::scoped_lock held(mutex_);
    connections_->clear_lost([this](Peer peer) { return !under_way_.peers().any_under_way(peer); });
    unused = under_way_.peers().deactivate_unused([this](PeerState& stalled) {
      if (OperationsUnderWay::stays_open(stalled)) end_run(stalled, nullptr);
    });
    health_.check(Clock::now());
  }
  if (!domain_.by_sockets()) return;
  end_silent_connections();
  std::vector<PeerHealth::QuietPath> paths;
  {
    const std::scoped_lock held(mutex_);
    paths = health_.quiet_paths(Clock::now());
  }
  if (paths.empty()) return;
  PeerHealth::read_states(paths);  // without the mutex, as a search may take a millisecond
  const std::scoped_lock held(mutex_);
  health_.abandon_silent(paths, Clock::now());
}

// Ends connections on which nothing has arrived for FARSIDE_PEER_TIMEOUT, or for a second if there are many. The
// provider accepts each connection to its listener, and keeps it until the request of a peer has come.
void Fabric::end_silent_connections() {
  constexpr std::size_t kMany = 64;
  constexpr std::chrono::seconds kLongest{60}, kShortest{1};
  const Clock::duration longest = health_.timeout().count() > 0 ? std::min(health_.timeout(), kLongest) : kLongest;
  const Clock::time_point now = Clock::now();
  if (now < look_for_silence_at_) return;
  look_for_silence_at_ = now + std::min<Clock::duration>(longest / 2, std::chrono::seconds(5));
  std::vector<SilentSocket> silent = find_silent_sockets(address().socket);
  const Clock::duration limit = silent.size() > kMany ? kShortest : longest;
  std::erase_if(silent, [&](const SilentSocket& each) { return each.age < limit; });
  if (silent.empty()) return;
  log(LogLevel::kInfo, "{} connections on which nothing has come are closed", silent.size());
  const std::scoped_lock held(mutex_);
  connections_->progress();  // it may have arrived, after a stop of this process
  for (const SilentSocket& each : silent) end_silent_socket(each);
}

void Fabric::read_connection_events() {
  if (const std::unique_lock held(mutex_, std::try_to_lock); held) connections_->progress();
}

ProgressThread::Work::Sleep Fabric::progress(bool connection_woke) {
  const std::scoped_lock held(mutex_);
  if (!connections_->progress() && connection_woke) connections_->look_for_shortage();
  advance();
  sleeps_long_ = idle();
  // While the listener lacks descriptors, the file descriptor of connection events stays readable.
  Sleep sleep{sleeps_long_ ? kIdle : ProgressThread::kSafetyNet,
              connections_->shortage() ? -1 : connections_->events_fd()};
  // The answers, credits and receives that the provider has refused are soon given to it again.
  if (replies_.any_unsent() || receives_.any_refused() || connections_->owes_credits() || !deferred_.empty()) {
    sleep.limit = kTryAgain;
  } else if (eviction_->too_many()) {
    sleep.limit = ConnectionEviction::kRoomAgain;
  }
  return sleep;
}

bool Fabric::may_sleep() {
  fid* waited[] = {&domain_.queue()->fid, connections_->events()};
  // fi_trywait polls: a message may come into a ring, which wakes nobody. With the mutex, since another thread may be
  // reading the rings.
  const std::scoped_lock held(mutex_);
  if (fi_trywait(domain_.fabric(), waited, waited[1] != nullptr ? 2 : 1) != FI_SUCCESS) return false;
  return !connections_->any_message();
}

// An adapter completes an operation when the peer's adapter has acknowledged it. An empty write therefore suffices as a
// probe, and no process has to wake for it.
std::optional<ssize_t> Fabric::send_probe(Peer peer) {
  if (!replies_.room()) return {};
  std::unique_ptr<Reply> probe = replies_.take(peer);
  probe->header.kind = MessageKind::kProbe;
  probe->probe = true;
  if (!domain_.by_adapter()) return replies_.send(std::move(probe), [this](Reply& reply) { return send(reply); });
  return replies_.send(std::move(probe), [this](Reply& reply) -> ssize_t {
    fid_ep* endpoint = nullptr;
    if (const ssize_t code = connections_->reach(reply.peer, endpoint); code != 0) return code;
    reply.endpoint = endpoint;
    const fi_rma_iov nowhere{};
    const fi_msg_rma nothing{nullptr, nullptr, 0, FI_ADDR_UNSPEC, &nowhere, 1, &reply.provider_context, 0};
    return fi_writemsg(endpoint, &nothing, FI_COMPLETION);
  });
}

void Fabric::abandon(PeerState& peer_state, const std::string& why) {
  connections_->stop(peer_state.peer);  // first: the provider must not read what fail_all() gives free
  under_way_.fail_all(peer_state, out_of_reach(peer_state.peer, why));
}

}  // namespace farside
