// SPDX-License-Identifier: BSD-3-Clause
// Random one-sided operations against a plain sequential model: random datatypes (random_operations/types.hpp) of
// random predefined ones with random operations (random_operations/elements.hpp), by every call, to random targets and
// displacements, on windows of random flavors, sizes and units, between random synchronizations. All ranks draw the
// same plan and carry it out on the model (random_operations/plan.hpp). Then each rank carries out its part by MPI and
// compares its window and all its buffers, byte for byte, with the model's. Datatypes are freed right after the call.
//
//   random_operations [create] [fixed] [seed S] [cases N] [seconds T] [only Q] [show]
//
// create: only windows on memory of the program (create, create_dynamic). fixed: no create_dynamic. Q: runs one case
// only, to repeat a failure; a case does not depend on earlier cases. show: prints the operations. T: runs cases for so
// many seconds; at the end, descriptors, threads and memory must be as after the first quarter.
#include <array>
#include <chrono>
#include <cinttypes>
#include <memory>

#include <climits>

#include "notified_calls.hpp"
#include "random_operations/plan.hpp"
#include "usage.hpp"

namespace {

using namespace random_test;

enum class Flavor { kCreate, kDynamic, kCreateAlloc, kAllocate, kShared };
constexpr const char* kFlavors[] = {"create", "create_dynamic", "create on MPI_Alloc_mem", "allocate",
                                    "allocate_shared"};

struct Options {
  bool own_memory = false;
  bool fixed = false;
  bool show = false;
  std::uint64_t seed = 1;
  int only = -1;
  int cases = 100;
};

#ifdef MPICH
constexpr std::int64_t kLostPerType = 64;  // bytes that MPICH 4.0.2 leaks (tests/runtime-errors.md)
#else
constexpr std::int64_t kLostPerType = 0;
#endif

// Memory that begins at a multiple of 64 bytes.
class Aligned {
 public:
  explicit Aligned(std::size_t bytes) : bytes_(bytes + 64) {
    void* at = bytes_.data();
    std::size_t room = bytes_.size();
    start_ = static_cast<unsigned char*>(std::align(64, bytes, at, room));
  }
  unsigned char* data() const { return start_; }

 private:
  std::vector<unsigned char> bytes_;
  unsigned char* start_;
};

class Case {
 public:
  Case(const Options& options, const std::vector<Element>& elements, int number, const char* program)
      : options_(options),
        number_(number),
        program_(program),
        elements_(elements),
        dice_(options.seed * 1000003U + static_cast<std::uint64_t>(number)) {
    std::snprintf(section_, sizeof section_, "seed %" PRIu64 " only %d", options.seed, number);
    check::section(section_);
    communicator();
    window();
  }
  ~Case() {
    if (flavor_ == Flavor::kDynamic)
      for (const auto& [from, to] : of(rank_).regions) CHECK_MPI(MPI_Win_detach(window_, base_ + from));
    CHECK_MPI(MPI_Win_free(&window_));
    if (flavor_ == Flavor::kCreateAlloc) CHECK_MPI(MPI_Free_mem(base_));
    if (comm_ != MPI_COMM_WORLD) CHECK_MPI(MPI_Comm_free(&comm_));
  }
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;

  void run(long* operations) {
    Planner planner(dice_, elements_, windows_);
    for (int phases = dice_.between(1, 5); phases > 0; --phases) {
      phase_ = planner.draw();
      ++phases_;
      *operations += static_cast<long>(phase_.operations.size());
      if (options_.show && rank_ == 0) show();
      check_same_plan();
      buffers_.clear();
      store();
      switch (phase_.sync) {
        case Sync::kFence: fence(); break;
        case Sync::kActive: active(); break;
        case Sync::kPassive: passive(); break;
      }
      check_buffers();
      CHECK_MPI(MPI_Barrier(comm_));
    }
  }

 private:
  // Each rank draws the plan of all ranks by itself. Where they differed, a correct result would count as an error.
  void check_same_plan() {
    std::uint64_t hash = 14695981039346656037U;  // FNV-1a
    const auto add = [&](unsigned byte) { hash = (hash ^ byte) * 1099511628211U; };
    const auto add_all = [&](const auto& cells, bool wild_too) {
      for (const Cell& cell : cells) {
        add(cell.wild ? 1 : 0);
        if (wild_too || !cell.wild) add(cell.value);
      }
    };
    for (const Operation& operation : phase_.operations) {
      for (const Buffer* buffer : {&operation.from, &operation.compare, &operation.to}) {
        add_all(buffer->before, true);
        add_all(buffer->after, false);
      }
    }
    for (const ModelWindow& window : windows_) add_all(window.cells, false);
    const std::array<std::uint64_t, 2> own{hash, ~hash};
    std::array<std::uint64_t, 2> common{};
    CHECK_MPI(MPI_Allreduce(own.data(), common.data(), 2, MPI_UINT64_T, MPI_BAND, comm_));
    CHECK_EQ(common[0], ~common[1]);
  }
  ModelWindow& of(int rank) { return windows_[static_cast<std::size_t>(rank)]; }

  // ---- the window

  void communicator() {
    switch (dice_.below(3)) {
      case 0: break;
      case 1: CHECK_MPI(MPI_Comm_dup(MPI_COMM_WORLD, &comm_)); break;
      default: CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, 0, -check::rank(), &comm_)); break;  // in reversed order
    }
    CHECK_MPI(MPI_Comm_rank(comm_, &rank_));
    CHECK_MPI(MPI_Comm_size(comm_, &ranks_));
  }

  void window() {
    flavor_ = static_cast<Flavor>(dice_.below(options_.own_memory ? 2 : 5));
    if (options_.fixed && flavor_ == Flavor::kDynamic) flavor_ = Flavor::kCreate;
    windows_.resize(static_cast<std::size_t>(ranks_));
    for (ModelWindow& each : windows_) {
      each.size = 64 * (dice_.one_in(8) ? 0 : dice_.one_in(5) ? dice_.between(100, 800) : dice_.between(1, 40));
      if (flavor_ != Flavor::kShared && flavor_ != Flavor::kDynamic) each.size += dice_.one_in(4) ? dice_.below(64) : 0;
      each.unit = flavor_ == Flavor::kDynamic ? 1 : dice_.pick(std::vector<int>{1, 1, 2, 3, 4, 8, 16, 24});
      each.regions = {{0, each.size}};
      if (flavor_ == Flavor::kDynamic && each.size >= 256 && dice_.one_in(2))
        each.regions = {{0, each.size / 128 * 64}, {each.size / 128 * 64 + 64, each.size}};
      each.cells.resize(static_cast<std::size_t>(each.size));
      for (Cell& cell : each.cells) cell.value = static_cast<unsigned char>(dice_.bits());
      each.last.assign(each.cells.size(), -1);
    }
    const MPI_Aint size = of(rank_).size;
    const int unit = of(rank_).unit;
    void* base = nullptr;
    if (flavor_ == Flavor::kCreate || flavor_ == Flavor::kDynamic) {
      memory_ = std::make_unique<Aligned>(static_cast<std::size_t>(size));
      base = memory_->data();
    } else if (flavor_ == Flavor::kCreateAlloc) {
      CHECK_MPI(MPI_Alloc_mem(size, MPI_INFO_NULL, &base));
    }
    if (flavor_ == Flavor::kDynamic)
      CHECK_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, comm_, &window_));
    else if (flavor_ == Flavor::kAllocate)
      CHECK_MPI(MPI_Win_allocate(size, unit, MPI_INFO_NULL, comm_, &base, &window_));
    else if (flavor_ == Flavor::kShared)
      CHECK_MPI(MPI_Win_allocate_shared(size, unit, MPI_INFO_NULL, comm_, &base, &window_));
    else
      CHECK_MPI(MPI_Win_create(base, size, unit, MPI_INFO_NULL, comm_, &window_));
    if (MPIX_Win_set_num_notify != nullptr) CHECK_MPI(MPIX_Win_set_num_notify(window_, MPI_INFO_NULL, kCounters));
    base_ = static_cast<unsigned char*>(base);
    MPI_Aint address = 0;
    if (flavor_ == Flavor::kDynamic) {
      for (const auto& [from, to] : of(rank_).regions) CHECK_MPI(MPI_Win_attach(window_, base_ + from, to - from));
      CHECK_MPI(MPI_Get_address(base_, &address));
    }
    addresses_.resize(static_cast<std::size_t>(ranks_));
    for (std::size_t i = 0; i < of(rank_).cells.size(); ++i) base_[i] = of(rank_).cells[i].value;
    CHECK_MPI(MPI_Allgather(&address, 1, MPI_AINT, addresses_.data(), 1, MPI_AINT, comm_));
  }

  // ---- synchronization

  // Carries out the owner's stores of the phase.
  void store() {
    if (phase_.sync == Sync::kPassive) CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, rank_, 0, window_));
    for (const Store& each : phase_.stores)
      if (each.rank == rank_) std::memcpy(base_ + each.at, each.bytes.data(), each.bytes.size());
    if (phase_.sync == Sync::kPassive) {
      CHECK_MPI(MPI_Win_unlock(rank_, window_));
      CHECK_MPI(MPI_Barrier(comm_));
    }
  }

  void fence() {
    CHECK_MPI(MPI_Win_fence(phase_.assert_before, window_));
    items();
    CHECK_MPI(MPI_Win_fence(phase_.assert_after, window_));
    check_window();
    check_that_none_is_late();
  }
  // The owner may change its window as soon as the exposure has ended: no get sees that, and no put replaces it.
  void check_that_none_is_late() {
    const std::vector<unsigned char> before(base_, base_ + of(rank_).size);
    const auto other = [](unsigned char byte) { return static_cast<unsigned char>(~byte); };
    std::transform(before.begin(), before.end(), base_, other);
    CHECK_MPI(MPI_Barrier(comm_));
    for (std::size_t i = 0; i < before.size(); ++i) CHECK_EQ(+base_[i], +other(before[i]));
    std::copy(before.begin(), before.end(), base_);
  }

  void active() {
    std::vector<int> from, to;
    for (int other = 0; other < ranks_; ++other) {
      const std::vector<int>& targets = phase_.starts[static_cast<std::size_t>(other)];
      if (std::find(targets.begin(), targets.end(), rank_) != targets.end()) from.push_back(other);
    }
    to = phase_.starts[static_cast<std::size_t>(rank_)];
    if (!from.empty()) with_group(from, [&](MPI_Group group) { CHECK_MPI(MPI_Win_post(group, 0, window_)); });
    if (!to.empty()) with_group(to, [&](MPI_Group group) { CHECK_MPI(MPI_Win_start(group, 0, window_)); });
    items();
    if (!to.empty()) CHECK_MPI(MPI_Win_complete(window_));
    if (!from.empty() && phase_.tests) {
      for (int flag = 0; flag == 0;) CHECK_MPI(MPI_Win_test(window_, &flag));
    } else if (!from.empty()) {
      CHECK_MPI(MPI_Win_wait(window_));
    }
    check_window();
    check_that_none_is_late();
  }
  template <class Use>
  void with_group(const std::vector<int>& ranks, Use use) {
    MPI_Group all, some;
    CHECK_MPI(MPI_Comm_group(comm_, &all));
    CHECK_MPI(MPI_Group_incl(all, static_cast<int>(ranks.size()), ranks.data(), &some));
    use(some);
    CHECK_MPI(MPI_Group_free(&some));
    CHECK_MPI(MPI_Group_free(&all));
  }

  void passive() {
    items();
    CHECK_MPI(MPI_Barrier(comm_));
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, rank_, 0, window_));
    check_window();
    CHECK_MPI(MPI_Win_unlock(rank_, window_));
  }

  void items() {
    const int assert = phase_.nocheck ? MPI_MODE_NOCHECK : 0;
    for (const Item& item : phase_.items) {
      if (item.origin != rank_) continue;
      switch (item.what) {
        case Do::kOperation: issue(phase_.operations[item.operation]); break;
        case Do::kFlush: CHECK_MPI(MPI_Win_flush(item.target, window_)); break;
        case Do::kFlushAll: CHECK_MPI(MPI_Win_flush_all(window_)); break;
        case Do::kFlushLocal: CHECK_MPI(MPI_Win_flush_local(item.target, window_)); break;
        case Do::kFlushLocalAll: CHECK_MPI(MPI_Win_flush_local_all(window_)); break;
        case Do::kWinSync: CHECK_MPI(MPI_Win_sync(window_)); break;
        case Do::kLock: CHECK_MPI(MPI_Win_lock(item.lock_type, item.target, assert, window_)); break;
        case Do::kLockAll: CHECK_MPI(MPI_Win_lock_all(assert, window_)); break;
        case Do::kUnlock:
          complete_requests();
          CHECK_MPI(MPI_Win_unlock(item.target, window_));
          break;
        case Do::kUnlockAll:
          complete_requests();
          CHECK_MPI(MPI_Win_unlock_all(window_));
          break;
      }
    }
  }
  void complete_requests() {
    CHECK_MPI(MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), MPI_STATUSES_IGNORE));
    requests_.clear();
  }

  // ---- an operation

  // Address, count and datatype of a buffer, as passed to the call.
  struct Argument {
    void* address = nullptr;
    int count = 0;
    MPI_Datatype type = MPI_BYTE;
    MPI_Datatype absolute = MPI_DATATYPE_NULL;  // to be freed
  };
  Argument argument(const Operation& made, const Buffer& buffer) {
    Argument result;
    if (!buffer.shape) return result;
    result.count = buffer.shape->count;
    result.type = buffer.shape->type.handle();
    result.address = buffer.in_window ? base_ + buffer.at : memory(made, buffer).data() + buffer.at;
    if (buffer.bottom && made.call < Call::kFetchAndOp) {
      MPI_Aint address;
      CHECK_MPI(MPI_Get_address(result.address, &address));
      CHECK_MPI(MPI_Type_create_struct(1, &result.count, &address, &result.type, &result.absolute));
      CHECK_MPI(MPI_Type_commit(&result.absolute));
      return {MPI_BOTTOM, 1, result.absolute, result.absolute};
    }
    return result;
  }
  // Returns the buffer's own memory, which is filled at the first request.
  Aligned& memory(const Operation& made, const Buffer& buffer) {
    const int which = &buffer == &made.from ? 0 : &buffer == &made.compare ? 1 : 2;
    std::unique_ptr<Aligned>& own = buffers_[{made.index, which}];
    if (own == nullptr) {
      own = std::make_unique<Aligned>(buffer.before.size());
      for (std::size_t i = 0; i < buffer.before.size(); ++i) own->data()[i] = buffer.before[i].value;
    }
    return *own;
  }

  void issue(Operation& made) {
    std::snprintf(section_, sizeof section_, "seed %" PRIu64 " only %d, operation %d of phase %d", options_.seed,
                  number_, made.index, phases_);
    Argument from = argument(made, made.from), to = argument(made, made.to), compare = argument(made, made.compare);
    const MPI_Datatype type = made.shape->type.handle();
    const int target = made.target == kProcNull ? MPI_PROC_NULL : made.target;
    MPI_Aint at = made.at;
    if (made.target != kProcNull)
      at = flavor_ == Flavor::kDynamic ? MPI_Aint_add(addresses_[static_cast<std::size_t>(made.target)], made.at)
                                       : made.at / of(made.target).unit;
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = call(made, from, to, compare, {target, at, made.shape->count, type}, &request);
    if (code != MPI_SUCCESS) fail("gave " + check::class_name(check::class_of(code)), &made);
    made.shape->type.free();
    for (Buffer* buffer : {&made.from, &made.to, &made.compare})
      if (buffer->shape) buffer->shape->type.free();
    for (Argument* each : {&from, &to})
      if (each->absolute != MPI_DATATYPE_NULL) CHECK_MPI(MPI_Type_free(&each->absolute));
    if (made.request && made.waits_at_once)
      CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
    else if (made.request)
      requests_.push_back(request);
  }

  struct At {
    int rank;
    MPI_Aint displacement;
    int count;
    MPI_Datatype type;
  };
  int call(const Operation& made, const Argument& from, const Argument& to, const Argument& compare, const At& at,
           MPI_Request* request) {
    const MPI_Op op = handle(made.op);
    const bool large = made.large && MPI_VERSION >= 4;
#if MPI_VERSION < 4
    // The runtime has no such calls; these names are never called.
#define MPI_Put_c MPI_Put
#define MPI_Get_c MPI_Get
#define MPI_Accumulate_c MPI_Accumulate
#define MPI_Get_accumulate_c MPI_Get_accumulate
#define MPI_Rput_c MPI_Rput
#define MPI_Rget_c MPI_Rget
#define MPI_Raccumulate_c MPI_Raccumulate
#define MPI_Rget_accumulate_c MPI_Rget_accumulate
#endif
#define FROM from.address, from.count, from.type
#define TO to.address, to.count, to.type
#define AT at.rank, at.displacement, at.count, at.type
#define CALL(plain, ...) (large ? plain##_c(__VA_ARGS__) : plain(__VA_ARGS__))
    if (made.counter >= 0 && MPIX_Put_notify != nullptr) {
      const int counter = made.counter;
      switch (made.call) {
        case Call::kPut:
          return made.request ? MPIX_Rput_notify(FROM, AT, counter, window_, request)
                              : MPIX_Put_notify(FROM, AT, counter, window_);
        case Call::kGet:
          return made.request ? MPIX_Rget_notify(TO, AT, counter, window_, request)
                              : MPIX_Get_notify(TO, AT, counter, window_);
        case Call::kAccumulate:
          return made.request ? MPIX_Raccumulate_notify(FROM, AT, op, counter, window_, request)
                              : MPIX_Accumulate_notify(FROM, AT, op, counter, window_);
        default:
          return made.request ? MPIX_Rget_accumulate_notify(FROM, TO, AT, op, counter, window_, request)
                              : MPIX_Get_accumulate_notify(FROM, TO, AT, op, counter, window_);
      }
    }
    switch (made.call) {
      case Call::kPut:
        return made.request ? CALL(MPI_Rput, FROM, AT, window_, request) : CALL(MPI_Put, FROM, AT, window_);
      case Call::kGet: return made.request ? CALL(MPI_Rget, TO, AT, window_, request) : CALL(MPI_Get, TO, AT, window_);
      case Call::kAccumulate:
        return made.request ? CALL(MPI_Raccumulate, FROM, AT, op, window_, request)
                            : CALL(MPI_Accumulate, FROM, AT, op, window_);
      case Call::kGetAccumulate:
        return made.request ? CALL(MPI_Rget_accumulate, FROM, TO, AT, op, window_, request)
                            : CALL(MPI_Get_accumulate, FROM, TO, AT, op, window_);
      case Call::kFetchAndOp:
        return MPI_Fetch_and_op(from.address, to.address, at.type, at.rank, at.displacement, op, window_);
      case Call::kCompareAndSwap:
        return MPI_Compare_and_swap(from.address, compare.address, to.address, at.type, at.rank, at.displacement,
                                    window_);
    }
#undef FROM
#undef TO
#undef AT
#undef CALL
    return MPI_ERR_OTHER;
  }

  // ---- checks

  void check_window() {
    ModelWindow& mine = of(rank_);
    for (int counter = 0; MPIX_Put_notify != nullptr && counter < kCounters; ++counter) {
      MPI_Count notified = -1;
      CHECK_MPI(MPIX_Win_reset_notify_value(window_, counter, &notified));
      CHECK_EQ(notified, mine.notified[static_cast<std::size_t>(counter)]);
    }
    for (ModelWindow& each : windows_) each.notified = {};
    for (std::size_t i = 0; i < mine.cells.size(); ++i) {
      if (mine.cells[i].wild || base_[i] == mine.cells[i].value) continue;
      const Operation* last = nullptr;
      if (mine.last[i] >= 0 && static_cast<std::size_t>(mine.last[i]) < phase_.operations.size())
        last = &phase_.operations[static_cast<std::size_t>(mine.last[i])];
      fail("byte " + std::to_string(i) + " of rank " + std::to_string(rank_) + "'s window is " +
               std::to_string(base_[i]) + ", not " + std::to_string(mine.cells[i].value) +
               (last != nullptr ? "; the model wrote there last by" : "; nothing wrote there"),
           last);
    }
    std::fill(of(rank_).last.begin(), of(rank_).last.end(), -1);
    for (ModelWindow& each : windows_) std::fill(each.last.begin(), each.last.end(), -1);
  }

  void check_buffers() {
    for (const auto& [key, memory] : buffers_) {
      const Operation& made = phase_.operations[static_cast<std::size_t>(key.first)];
      static constexpr const char* kNames[] = {"origin", "compare", "result"};
      const Buffer& buffer = key.second == 0 ? made.from : key.second == 1 ? made.compare : made.to;
      for (std::size_t i = 0; i < buffer.after.size(); ++i) {
        if (buffer.after[i].wild || memory->data()[i] == buffer.after[i].value) continue;
        fail("byte " + std::to_string(static_cast<std::ptrdiff_t>(i) - buffer.at) + " of the " + kNames[key.second] +
                 " buffer is " + std::to_string(memory->data()[i]) + ", not " + std::to_string(buffer.after[i].value) +
                 " (" + std::to_string(buffer.before[i].value) + " before), after",
             &made);
      }
    }
  }

  [[noreturn]] void fail(const std::string& what, const Operation* made) {
    static constexpr const char* kSyncs[] = {"fences", "post and start", "locks"};
    std::string text = what + (made != nullptr ? "\n  " + made->text() : std::string()) + "\n  phase " +
                       std::to_string(phases_) + ", by " + kSyncs[static_cast<int>(phase_.sync)] +
                       ", window of MPI_Win_" + kFlavors[static_cast<int>(flavor_)] + ", " +
                       std::to_string(of(rank_).size) + " bytes here\n  again: ";
    for (const char* name : {"FARSIDE_ROUTES", "FARSIDE_PROVIDER", "FARSIDE_CHECK"})
      if (const char* value = std::getenv(name)) text += std::string(name) + "='" + value + "' ";
    text += "mpirun -n " + std::to_string(ranks_) + " " + program_ + (options_.own_memory ? " create" : "") +
            (options_.fixed ? " fixed" : "") + " seed " + std::to_string(options_.seed) + " only " +
            std::to_string(number_);
    check::fail(__FILE__, __LINE__, text);
  }

  void show() {
    std::printf("case %d, MPI_Win_%s, phase %d, synchronization %d, asserts %d and %d, nocheck %d\n", number_,
                kFlavors[static_cast<int>(flavor_)], phases_, static_cast<int>(phase_.sync), phase_.assert_before,
                phase_.assert_after, phase_.nocheck);
    for (int each = 0; each < ranks_; ++each)
      std::printf("  window of rank %d: %td bytes, unit %d\n", each, of(each).size, of(each).unit);
    for (const Store& each : phase_.stores)
      std::printf("  rank %d stores %zu bytes at %td\n", each.rank, each.bytes.size(), each.at);
    for (const Item& item : phase_.items) {
      if (item.what == Do::kOperation)
        std::printf("  %s\n", phase_.operations[item.operation].text().c_str());
      else
        std::printf("  rank %d: synchronization %d, target %d, type %d\n", item.origin, static_cast<int>(item.what),
                    item.target, item.lock_type);
    }
    std::fflush(stdout);
  }

  const Options& options_;
  int number_;
  const char* program_;
  const std::vector<Element>& elements_;
  Dice dice_;
  char section_[120] = "";
  MPI_Comm comm_ = MPI_COMM_WORLD;
  int rank_ = 0;
  int ranks_ = 1;
  Flavor flavor_ = Flavor::kCreate;
  MPI_Win window_ = MPI_WIN_NULL;
  std::unique_ptr<Aligned> memory_;
  unsigned char* base_ = nullptr;
  std::vector<MPI_Aint> addresses_;
  std::vector<ModelWindow> windows_;
  Phase phase_;
  int phases_ = 0;
  std::map<std::pair<int, int>, std::unique_ptr<Aligned>> buffers_;  // by operation and which of its buffers
  std::vector<MPI_Request> requests_;
};

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  Options options;
  options.own_memory = program.memory() == check::Memory::kCreate;
  options.fixed = program.has("fixed");
  options.show = program.has("show");
  options.seed = static_cast<std::uint64_t>(program.seed());
  options.only = program.number("only", -1);
  options.cases = program.number("cases", 100);
  const int first = options.only < 0 ? 0 : options.only;
  const std::chrono::seconds seconds(program.number("seconds", 0));
  const int last = options.only >= 0 ? options.only + 1 : seconds.count() > 0 ? INT_MAX : options.cases;
  const Elements elements;
  if (check::rank() == 0) {
    std::printf("seed %" PRIu64 ", cases from %d\n", options.seed, first);
    std::fflush(stdout);
  }
  long operations = 0;
  const auto begin = std::chrono::steady_clock::now();
  check::Usage warm;
  std::int64_t types = 0;
  int quarters = 0, each = first;
  for (; each < last; ++each) {
    Case(options, elements.all(), each, argv[0]).run(&operations);
    check::section("between two cases");
    if (seconds.count() == 0) continue;
    // All ranks use rank 0's clock.
    int now = static_cast<int>((std::chrono::steady_clock::now() - begin) / (seconds / 4.0));
    CHECK_MPI(MPI_Bcast(&now, 1, MPI_INT, 0, MPI_COMM_WORLD));
    if (quarters == 0 && now > 0) {
      warm = check::usage();
      types = Type::committed;
    }
    quarters = now;
    if (now >= 4) break;
  }
  // The number of touched pages grows for a long time; a leak per case shows on the heap.
  if (seconds.count() > 0) {
    const std::int64_t of_types = kLostPerType * (Type::committed - types) / 1024;
    check::same_usage(warm, check::usage(),
                      {.mappings = 64, .kilobytes = (64 << 10) + of_types, .heap = (4 << 10) + of_types});
  }
  if (check::rank() == 0) {
    std::printf("%ld operations on %zu predefined types, cases to %d\n", operations, elements.all().size(), each);
    if (seconds.count() > 0) {
      const check::Usage now = check::usage();
      std::printf("rank 0: %" PRId64 " KiB of heap after the first quarter, %" PRId64 " at the end; resident %" PRId64
                  ", %" PRId64 "\n",
                  warm.heap, now.heap, warm.kilobytes, now.kilobytes);
    }
  }
  return 0;
}
