// SPDX-License-Identifier: BSD-3-Clause
// FARSIDE_CHECK=strict for one window: the operations under way, seen from the origin (epochs/races/access_log.hpp)
// and from the target (epochs/races/shared_log.hpp), and the reports of conflicts. For debugging: it walks through
// datatypes, completes each operation at once, and delays ranks so that conflicting accesses overlap.
//
// Hashes of the local buffers of operations under way show whether the program has stored to them too early (MPI 4.0
// section 12.3), but for stores of the same value. Each operation hashes its buffers twice, up to 1 MiB or 256 blocks.
// Early loads of result buffers are seen where PageWatch may be used.
//
// Accesses through different windows to the same memory conflict, too. The later of the two calls looks at the other
// windows of its process, unless their memory at the target lies elsewhere; so the origin must belong to both windows.
//
// Thread safety: any thread may call any function; one thread of the process at a time is inside any window. Errors: a
// conflict is MPI_ERR_RMA_CONFLICT; failures of the log's operations are those of Space. Memory: SharedLog::bytes() per
// rank.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "epochs/races/access_log.hpp"
#include "epochs/races/shared_log.hpp"
#include "pmpi/datatypes/operation.hpp"
#include "pmpi/fault.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "transport/node/page_watch.hpp"
#include "transport/space/space.hpp"

namespace farside::pmpi {

// The memory of the logs of a window's ranks (epochs/races/shared_log.hpp): its own space, so the ranks reach it
// by the same routes as windows. Cost: each read or write is one operation and its flush.
class LogSpace final : public epochs::LogMemory {
 public:
  explicit LogSpace(std::unique_ptr<Space> space) : space_(std::move(space)) {}

  Status read(int rank, std::uint64_t offset, void* to, std::size_t bytes) override {
    if (Status issued = space_->route(rank).carry_out(rank, DataOperation::get(offset, to, bytes)); !issued)
      return issued;
    return space_->route(rank).flush(rank);
  }
  Status write(int rank, std::uint64_t offset, const void* from, std::size_t bytes) override {
    if (Status issued = space_->route(rank).carry_out(rank, DataOperation::put(offset, from, bytes)); !issued)
      return issued;
    return space_->route(rank).flush(rank);
  }

 private:
  std::unique_ptr<Space> space_;
};

class Strict;

// The windows of this process. lock() admits one thread at a time. It is no mutex, because the thread inside waits for
// other ranks, and the threads outside must keep the runtime moving.
struct StrictWindows {
  void lock();
  void unlock() { busy.store(false, std::memory_order_release); }
  std::atomic<bool> busy{false};
  std::vector<Strict*> all;
  PageWatch watch{reinterpret_cast<const void*>(runtime().Comm_rank)};  // any function of the runtime
};

class Strict {
 public:
  using Epoch = epochs::SharedLog::Epoch;

  // `space` and `group`: the window's. `logs`: the space of the logs, SharedLog::bytes() per rank.
  Strict(Space& space, std::unique_ptr<Space> logs, MPI_Group group);
  // Tells the other ranks where this rank's window lies. A collective step follows before any rank may use the window.
  static void describe(Space& space, Space& logs) { epochs::SharedLog::describe(logs.data(), memory_of(space)); }
  // Warns of flushes() that have never completed anything.
  ~Strict();
  Strict(const Strict&) = delete;
  Strict& operator=(const Strict&) = delete;

  // Watches the result buffers of all windows until a thread is inside again. The frames of farside share pages with
  // local variables of the program, so these are the first and the last step of a call: each access in between would
  // be slow.
  static void call_begins() { const auto inside = enter(); }
  static void call_ends();

  // Issues a checked operation in an epoch by issue_it() and completes it. If the operation conflicts with another,
  // returns a fault and issues nothing.
  template <class Issue>
  Status watch(const Operation& operation, Epoch epoch, Issue&& issue_it) {
    const auto inside = enter();
    Places places;
    if (Status o = begin(operation, epoch, places); !o) return o;
    if (Status o = issue_it(); !o) return o;
    return carried_out(operation, epoch, places);
  }

  // Called by the calls that complete operations, before they notify other ranks. A fault reports that a buffer was
  // changed too early; the caller carries out its call nevertheless. `locally`: at the origin. `alone`: no other rank
  // may access the target now.
  Status completed(int target, bool locally, bool alone);
  // A call that flushes one target begins.
  void flushes(int target);
  Status completed_all();
  // The request of the operation with this number is complete. Does nothing if the operation was completed before.
  Status request_completed(std::uint64_t number);
  Status start_completed();
  // Called before and after the barrier of a fence; then another barrier follows.
  Status fence_reached();
  Status fence_passed();
  // Keeps the first bytes of this rank's window for changes_of_own_window(). Called before a post, and without an epoch
  // by MPI_Win_sync, which lets others see the stores of this rank.
  Status keep_image(std::optional<Epoch> epoch = {});
  // Called when all origins have completed.
  Status exposure_ended();
  // Keeps memory that an operation has used as a local buffer until the window is freed.
  void keep(std::shared_ptr<const void> buffer) {
    const auto inside = enter();
    kept_.push_back(std::move(buffer));
  }

 private:
  using Clock = std::chrono::steady_clock;
  // A local buffer of an operation that has been carried out, which the program may not change until it is complete.
  struct Buffer {
    const char* call;
    int target;
    std::uint64_t number;
    std::uint16_t site;
    bool written;                          // the operation writes the buffer
    std::vector<epochs::StridedRun> runs;  // addresses
    std::uint64_t hash;
    std::uint16_t used_at = 0;  // the place in the program of an early access
    bool stored = false;        // it was a store
  };
  // The bytes that an operation accesses: offsets in the target's window, addresses in the local buffers.
  struct Places {
    epochs::RunBuilder target, read, written;
    std::vector<std::uint64_t> before;  // hashes of the runs at the target, before the operation
  };
  // The flushes of one place in the program.
  struct Flushes {
    bool completed_any = false;
    int target = 0;  // of one for which no operation was under way
    int other = -1;  // the target of operations that were
  };
  friend struct StrictWindows;
  static std::unique_lock<StrictWindows> enter();
  static epochs::SharedLog::Memory memory_of(Space& space);
  Status begin(const Operation& operation, Epoch epoch, Places& places);
  Status carried_out(const Operation& operation, Epoch epoch, const Places& places);
  Status look(Epoch epoch, const Places& places) const;
  Status check_other_ranks(const Operation& operation, Epoch epoch, const Places& places);
  Status check_other_windows(const Operation& operation, const Places& places);
  // The same for memory of one rank, at these addresses there, and one other window.
  Status check_other_window(Strict& other, int rank, const epochs::SharedLog::Access& access,
                            std::vector<epochs::StridedRun> addresses);
  // The number of this window's rank in another window; negative: none.
  int rank_in(const Strict& other, int rank) const;
  std::vector<std::uint64_t> hashes_at_target(int target, const Places& places) const;
  Status changes_of_own_window(Epoch epoch, const char* until);
  // The program has accessed a watched result buffer, of this window or another one.
  void accessed(const PageWatch::Hit& hit);
  // The operations of the buffers for which `which` holds are complete: reports the first one that has changed, and
  // forgets them all.
  template <class Which>
  Status check_buffers(Which&& which, const char* until = "this one has completed it");
  Status check_all_buffers();
  // Completes operations: delays if under_way() says that other ranks may conflict with them, then calls end().
  template <class UnderWay, class End>
  Status end(UnderWay&& under_way, End&& end);
  void delay();

  static constexpr std::uint64_t kImageBytes = std::uint64_t{1} << 20;

  Space& space_;
  LogSpace log_space_;
  MPI_Group group_;
  std::uint64_t number_ = 0;  // the number of the last operation
  std::uint16_t site_ = 0;    // its place in the program
  epochs::AccessLog log_;
  epochs::SharedLog shared_;
  std::vector<Buffer> buffers_;
  std::vector<std::byte> image_;
  Epoch image_epoch_ = Epoch::kFence;
  std::map<std::uint16_t, Flushes> flushes_;  // by site
  std::vector<std::shared_ptr<const void>> kept_;
  Clock::time_point made_ = Clock::now();
  Clock::duration delayed_{};
};

}  // namespace farside::pmpi
