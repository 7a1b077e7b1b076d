// SPDX-License-Identifier: BSD-3-Clause
// For random_operations.cpp: the operations of all ranks in a phase between two synchronizations. All ranks draw the
// same operations and carry them out, one after the other, on a plain model of all windows and buffers, which gives the
// expected contents. Conflicting operations (MPI 4.0, section 12.7) are not drawn: no other origin accesses the place
// of a put in that phase, nor the same origin before it has flushed. On one place the accumulates of one origin are of
// any kind, in their order; those of several origins are the same commutative operation.
#pragma once

#include <array>
#include <map>

#include "random_operations/types.hpp"

namespace random_test {

struct Cell {
  unsigned char value = 0;
  bool wild = false;  // no value is prescribed: padding inside a number, or the result of an unordered fetch
};
using Cells = std::vector<Cell>;

enum class Call { kPut, kGet, kAccumulate, kGetAccumulate, kFetchAndOp, kCompareAndSwap };
constexpr int kProcNull = -1;

// A buffer of an origin: memory of its own with a margin on both sides, or a place in its own window.
struct Buffer {
  std::optional<Shape> shape;  // none: the call has no such buffer, or a null one
  std::vector<Entry> map;
  bool in_window = false;
  bool bottom = false;    // passed as absolute addresses
  std::ptrdiff_t at = 0;  // offset of the buffer's address in `before` or in the window
  Cells before, after;    // the buffer's own memory with its margins
};

struct Operation {
  int index = 0;
  int origin = 0;
  int target = 0;  // kProcNull: no effect
  Call call = Call::kPut;
  Op op = Op::kReplace;
  Buffer from, compare, to;
  std::optional<Shape> shape;  // at the target
  std::vector<Entry> map;
  std::ptrdiff_t at = 0;  // bytes from the window's start
  bool shared = false;    // an accumulate to a place that others accumulate to at the same time
  bool request = false;
  bool waits_at_once = false;
  bool large = false;  // by the MPI 4 call with counts of type MPI_Count, if it exists
  int counter = -1;    // that it increments by notified access; -1: none

  std::string text() const {
    static constexpr const char* kCalls[] = {
        "put", "get", "accumulate", "get_accumulate", "fetch_and_op", "compare_and_swap"};
    std::string out = "operation " + std::to_string(index) + ", rank " + std::to_string(origin) + ": " +
                      (request ? "r" : "") + kCalls[static_cast<int>(call)] + (counter >= 0 ? "_notify" : "");
    if (call >= Call::kAccumulate && call != Call::kCompareAndSwap)
      out += std::string(" ") + name(op) + (shared ? " (with others)" : "");
    out += target == kProcNull ? ", target MPI_PROC_NULL"
                               : ", target " + std::to_string(target) + " at byte " + std::to_string(at);
    const auto buffer = [&](const char* what, const Buffer& of) {
      if (!of.shape) return;
      out += std::string("\n    ") + what + of.shape->text();
      if (of.in_window) out += ", in its own window at byte " + std::to_string(of.at);
      if (of.bottom) out += ", by absolute addresses";
    };
    buffer("origin:  ", from);
    buffer("compare: ", compare);
    buffer("result:  ", to);
    if (shape) out += "\n    target:  " + shape->text();
    return out;
  }
};

// The accesses to a byte of a window in this phase.
struct Access {
  enum class Kind : unsigned char { kNone, kRead, kWritten, kOrdered, kShared };
  static constexpr int kMany = -2;
  Kind kind = Kind::kNone;
  Op op = Op::kNoOp;   // kShared
  int origin = kMany;  // kMany: several (kRead, kShared)
  int flushes = 0;     // of this target by the origin before the access; kNever: never complete in this phase
  const Element* element = nullptr;  // kOrdered, kShared
  std::size_t within = 0;            // index of the byte in the element
  bool owned = false;                // a flushed access of the same origin preceded; only for this origin is it ordered
};
constexpr int kNever = 1 << 30;
constexpr int kCounters = 2;

struct ModelWindow {
  std::ptrdiff_t size = 0;
  int unit = 1;
  std::vector<std::pair<std::ptrdiff_t, std::ptrdiff_t>> regions;  // from, to: an access lies in one of them
  Cells cells;
  std::vector<Access> accesses;
  std::vector<int> last;  // the operation that wrote the byte last, -1: none
  std::array<int, kCounters> notified{};
};

enum class Sync { kFence, kActive, kPassive };
enum class Do {
  kOperation,
  kFlush,
  kFlushAll,
  kFlushLocal,
  kFlushLocalAll,
  kWinSync,
  kLock,
  kUnlock,
  kLockAll,
  kUnlockAll
};

struct Item {
  int origin;
  Do what;
  int target = 0;
  int lock_type = MPI_LOCK_SHARED;
  std::size_t operation = 0;
};

struct Store {  // by the owner, before the phase
  int rank;
  std::ptrdiff_t at;
  std::vector<unsigned char> bytes;
};

struct Phase {
  Sync sync = Sync::kFence;
  std::vector<std::vector<int>> starts;  // kActive: the targets of each rank
  int assert_before = 0, assert_after = 0;
  bool nocheck = false;  // kPassive: no two locks can conflict
  bool tests = false;    // kActive: MPI_Win_test instead of MPI_Win_wait
  std::vector<Store> stores;
  std::vector<Item> items;
  std::vector<Operation> operations;
};

class Planner {
 public:
  Planner(Dice& dice, const std::vector<Element>& elements, std::vector<ModelWindow>& windows)
      : dice_(dice), windows_(windows), ranks_(static_cast<int>(windows.size())) {
    for (const Element& each : elements) elements_.push_back(&each);
    // Few types, so that operations overlap.
    for (int i = 0; i < 3; ++i) favorites_.push_back(dice_.pick(elements_));
  }

  Phase draw() {
    phase_ = Phase{};
    for (ModelWindow& window : windows_) window.accesses.assign(window.cells.size(), {});
    flushes_.clear();
    phase_.sync = static_cast<Sync>(dice_.below(3));
    const int operations = dice_.between(1, 12) * ranks_;
    switch (phase_.sync) {
      case Sync::kFence:
        if (dice_.one_in(2)) phase_.assert_before = MPI_MODE_NOPRECEDE;
        if (dice_.one_in(2)) phase_.assert_after = MPI_MODE_NOSUCCEED;
        for (int i = 0; i < operations; ++i) operation(dice_.below(ranks_), all());
        break;
      case Sync::kActive: active(operations); break;
      case Sync::kPassive: passive(operations); break;
    }
    return std::move(phase_);
  }

 private:
  std::vector<int> all() const {
    std::vector<int> ranks(static_cast<std::size_t>(ranks_));
    std::iota(ranks.begin(), ranks.end(), 0);
    return ranks;
  }
  ModelWindow& window(int rank) { return windows_[static_cast<std::size_t>(rank)]; }

  // ---- synchronization

  void active(int operations) {
    phase_.tests = dice_.one_in(2);
    phase_.starts.resize(static_cast<std::size_t>(ranks_));
    for (auto& targets : phase_.starts) {
      for (int target = 0; target < ranks_; ++target)
        if (dice_.one_in(2)) targets.push_back(target);
      dice_.shuffle(targets);
    }
    for (int i = 0; i < operations; ++i) {
      const int origin = dice_.below(ranks_);
      if (!phase_.starts[static_cast<std::size_t>(origin)].empty())
        operation(origin, phase_.starts[static_cast<std::size_t>(origin)]);
    }
  }

  // Each origin chooses how it locks: lock_all, shared locks on each target in order, or one target after the other.
  // Only an origin that holds a single lock takes it exclusively, so there is no deadlock.
  void passive(int operations) {
    enum class Style { kAll, kEach, kOne };
    std::vector<Style> styles;
    for (int rank = 0; rank < ranks_; ++rank) styles.push_back(static_cast<Style>(dice_.below(3)));
    phase_.nocheck = std::find(styles.begin(), styles.end(), Style::kOne) == styles.end() && dice_.one_in(2);
    std::vector<int> locked(static_cast<std::size_t>(ranks_), -1);
    for (int rank = 0; rank < ranks_; ++rank) {
      if (styles[static_cast<std::size_t>(rank)] == Style::kAll) item(rank, Do::kLockAll);
      if (styles[static_cast<std::size_t>(rank)] == Style::kEach)
        for (int target = 0; target < ranks_; ++target) item(rank, Do::kLock, target);
    }
    for (int i = 0; i < operations; ++i) {
      const int origin = dice_.below(ranks_);
      if (styles[static_cast<std::size_t>(origin)] == Style::kOne) {
        int& held = locked[static_cast<std::size_t>(origin)];
        if (held < 0 || dice_.one_in(3)) {
          if (held >= 0) unlock(origin, held);
          held = dice_.below(ranks_);
          item(origin, Do::kLock, held, dice_.one_in(2) ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED);
        }
        operation(origin, {held});
        if (dice_.one_in(4)) flush(origin, {held});
      } else {
        operation(origin, all());
        if (dice_.one_in(4)) flush(origin, all());
      }
    }
    for (int rank = 0; rank < ranks_; ++rank) {
      const Style style = styles[static_cast<std::size_t>(rank)];
      if (style == Style::kAll) item(rank, Do::kUnlockAll);
      if (style == Style::kEach)
        for (int target = 0; target < ranks_; ++target) item(rank, Do::kUnlock, target);
      if (style == Style::kOne && locked[static_cast<std::size_t>(rank)] >= 0)
        item(rank, Do::kUnlock, locked[static_cast<std::size_t>(rank)]);
    }
  }

  void item(int origin, Do what, int target = 0, int lock_type = MPI_LOCK_SHARED) {
    phase_.items.push_back({origin, what, target, lock_type, 0});
  }
  void unlock(int origin, int target) {
    item(origin, Do::kUnlock, target);
    ++flushes_[{origin, target}];
  }
  void flush(int origin, const std::vector<int>& locked) {
    const int target = dice_.pick(locked);
    switch (dice_.below(5)) {
      case 0:
        item(origin, Do::kFlush, target);
        ++flushes_[{origin, target}];
        break;
      case 1:
        item(origin, Do::kFlushAll);
        for (const int each : locked) ++flushes_[{origin, each}];
        break;
      // The remaining calls complete nothing at the target.
      case 2: item(origin, Do::kFlushLocal, target); break;
      case 3: item(origin, Do::kFlushLocalAll); break;
      default: item(origin, Do::kWinSync); break;
    }
  }

  // ---- one operation

  // Draws an operation and carries it out on the model; draws none if no place for it is free.
  void operation(int origin, const std::vector<int>& targets) {
    Operation made;
    made.index = static_cast<int>(phase_.operations.size());
    made.origin = origin;
    made.target = dice_.one_in(25) ? kProcNull : dice_.pick(targets);
    made.request = phase_.sync == Sync::kPassive && dice_.one_in(3);
    made.waits_at_once = dice_.one_in(2);
    made.large = dice_.one_in(3);
    made.call = static_cast<Call>(dice_.below(6));
    if (made.call < Call::kFetchAndOp && !made.large && dice_.one_in(3)) made.counter = dice_.below(kCounters);
    bool drawn = made.call == Call::kPut || made.call == Call::kGet ? moving(made) : combining(made);
    if (!drawn) return;
    log_.clear();
    samples_.clear();
    if (!claim(made)) {
      for (auto undo = log_.rbegin(); undo != log_.rend(); ++undo) *undo->first = undo->second;
      return;
    }
    for (const auto& [rank, at, element, op] : samples_) store(rank, at, *element, op);
    apply(made);
    phase_.items.push_back({origin, Do::kOperation, made.target, 0, phase_.operations.size()});
    phase_.operations.push_back(std::move(made));
  }

  // Returns how many units of `bytes` bytes an operation moves, at most as many as its target holds without gaps.
  int units(const Operation& made, std::size_t bytes) {
    const auto size = static_cast<std::size_t>(made.target == kProcNull ? 1000 : window(made.target).size);
    const int most = static_cast<int>(size / bytes);
    if (most == 0 || dice_.one_in(12)) return 0;
    if (dice_.one_in(4)) return 1;
    const int wanted = dice_.one_in(25)  ? dice_.between(300, 4000)
                       : dice_.one_in(3) ? dice_.between(2, 60)
                                         : dice_.between(2, 12);
    return std::min(wanted, most);
  }

  bool moving(Operation& made) {
    std::vector<const Element*> unit;
    for (int i = dice_.one_in(3) ? dice_.between(2, 4) : 1; i > 0; --i)
      unit.push_back(dice_.one_in(2) ? dice_.pick(favorites_) : dice_.pick(elements_));
    TypeMaker maker(dice_, unit);
    if (dice_.one_in(10)) maker.unaligned();
    std::size_t bytes = 0;
    for (const Element* element : unit) bytes += element->extent;
    const int count = units(made, bytes);
    const bool get = made.call == Call::kGet;
    made.shape = maker.make(count, get);
    Buffer& buffer = get ? made.to : made.from;
    buffer.shape = maker.make(count, !get);
    return place(made, maker.alignment()) && furnish(made, buffer, Op::kReplace, maker.alignment(), get);
  }

  bool combining(Operation& made) {
    const Element& element = *(dice_.one_in(3) ? dice_.pick(elements_) : dice_.pick(favorites_));
    if (element.operations.empty() || (made.call == Call::kCompareAndSwap && !element.swaps)) return false;
    made.op = made.call == Call::kCompareAndSwap ? Op::kReplace : dice_.pick(element.operations);
    if (made.call == Call::kAccumulate && made.op == Op::kNoOp) return false;
    made.shared = made.call != Call::kCompareAndSwap && element.commutes(made.op) && dice_.one_in(2);
    TypeMaker maker(dice_, {&element});
    const bool single = made.call == Call::kFetchAndOp || made.call == Call::kCompareAndSwap;
    const int count = single ? 1 : units(made, element.extent);
    const auto shape = [&](bool source) { return single ? maker.plain(1) : maker.make(count, source); };
    made.shape = shape(false);
    if (single) made.request = made.large = false;
    if (made.op != Op::kNoOp) made.from.shape = shape(true);
    if (made.call >= Call::kGetAccumulate) made.to.shape = shape(false);
    if (made.call == Call::kCompareAndSwap) made.compare.shape = shape(true);
    const int align = maker.alignment();
    if (!place(made, align) || !furnish(made, made.from, made.op, align, false) ||
        !furnish(made, made.to, made.op, align, true) || !furnish(made, made.compare, made.op, align, false))
      return false;
    // Half of all swaps succeed.
    if (made.call == Call::kCompareAndSwap && made.target != kProcNull && dice_.one_in(2)) {
      for (std::size_t i = 0; i < element.extent; ++i) {
        if (made.compare.in_window) break;
        made.compare.before[static_cast<std::size_t>(made.compare.at) + i].value =
            window(made.target).cells[static_cast<std::size_t>(made.at) + i].value;
      }
      made.compare.after = made.compare.before;
    }
    return true;
  }

  // Draws a displacement at which the shape fits, a multiple of the unit and of the alignment.
  bool place(Operation& made, int align) {
    made.map = made.shape->type.repeated(made.shape->count);
    if (made.target == kProcNull) return true;
    const ModelWindow& of = window(made.target);
    const auto [from, to] = dice_.pick(of.regions);
    return find_place(span_of(made.map), from, to, std::lcm(of.unit, align), made.at);
  }
  bool find_place(const Span& span, std::ptrdiff_t from, std::ptrdiff_t to, std::ptrdiff_t step, std::ptrdiff_t& at) {
    const std::ptrdiff_t first = (std::max<std::ptrdiff_t>(from - span.low, from) + step - 1) / step;
    if (to < span.high || (to - span.high) / step < first) return false;
    const std::ptrdiff_t last = (to - span.high) / step;
    // Often close to the start, so that operations overlap.
    const auto room = static_cast<int>(last - first + 1);
    at = (first + dice_.below(dice_.one_in(2) ? std::min(room, 4) : room)) * step;
    return true;
  }

  // Draws the memory for a buffer of the origin, and its contents.
  bool furnish(Operation& made, Buffer& buffer, Op op, int align, bool written) {
    if (!buffer.shape) return true;
    buffer.map = buffer.shape->type.repeated(buffer.shape->count);
    const Span span = span_of(buffer.map);
    if (dice_.one_in(10) && made.target != kProcNull) {
      const ModelWindow& own = window(made.origin);
      const auto [from, to] = dice_.pick(own.regions);
      buffer.in_window = true;
      return find_place(span, from, to, align, buffer.at);
    }
    constexpr std::ptrdiff_t kMargin = 64;
    // The buffer's address is 64-byte aligned, after the margin and the part of the shape at negative offsets.
    buffer.at = (kMargin + std::max<std::ptrdiff_t>(0, -span.low) + 63) / 64 * 64;
    buffer.before.resize(static_cast<std::size_t>(buffer.at + std::max<std::ptrdiff_t>(0, span.high) + kMargin));
    for (Cell& cell : buffer.before) cell.value = static_cast<unsigned char>(dice_.bits());
    if (!written)
      for (const Entry& entry : buffer.map)
        sample(*entry.element, op, &buffer.before[static_cast<std::size_t>(buffer.at + entry.at)]);
    buffer.after = buffer.before;
    buffer.bottom = dice_.one_in(20);
    return true;
  }

  void sample(const Element& element, Op op, Cell* to) {
    unsigned char bytes[64] = {};
    element.sample(dice_, op, bytes);
    for (const Element::Member& member : element.members)
      for (std::size_t i = 0; i < member.bytes; ++i)
        to[member.at + i] = {element.has_value(member, i) ? bytes[member.at + i] : static_cast<unsigned char>(0),
                             false};
  }
  void store(int rank, std::ptrdiff_t at, const Element& element, Op op) {
    Cell* cells = &window(rank).cells[static_cast<std::size_t>(at)];
    sample(element, op, cells);
    for (const Element::Member& member : element.members) {
      Store store{rank, at + static_cast<std::ptrdiff_t>(member.at), {}};
      for (std::size_t i = 0; i < member.bytes; ++i) store.bytes.push_back(cells[member.at + i].value);
      phase_.stores.push_back(std::move(store));
    }
  }

  // ---- conflicts

  // Marks the bytes that the operation accesses. Returns false on a conflict; log_ then has the changes to undo.
  bool claim(const Operation& made) {
    if (made.target == kProcNull) return true;
    const bool arithmetic = made.call >= Call::kAccumulate;
    for (const Buffer* buffer : {&made.from, &made.compare, &made.to}) {
      if (!buffer->in_window) continue;
      const bool written = buffer == &made.to;
      for (const Entry& entry : buffer->map) {
        Access access{
            written ? Access::Kind::kWritten : Access::Kind::kRead, Op::kNoOp, made.origin, kNever, nullptr, 0};
        const bool sampled = !written && arithmetic && !entry.element->any_bits;
        if (!claim(made.origin, buffer->at + entry.at, *entry.element, access, sampled, made.op)) return false;
      }
    }
    Access access{Access::Kind::kWritten, made.op, made.origin, flushes_[{made.origin, made.target}], nullptr, 0};
    if (made.call == Call::kGet) access.kind = Access::Kind::kRead;
    if (arithmetic) access.kind = made.shared ? Access::Kind::kShared : Access::Kind::kOrdered;
    for (const Entry& entry : made.map) {
      if (arithmetic) access.element = entry.element;
      if (!claim(made.target, made.at + entry.at, *entry.element, access, arithmetic && !entry.element->any_bits,
                 made.op))
        return false;
    }
    return true;
  }

  // `sampled`: the element must have a value of its type. An untouched element gets one before the phase.
  bool claim(int rank, std::ptrdiff_t at, const Element& element, Access access, bool sampled, Op op) {
    ModelWindow& of = window(rank);
    bool touched = false;
    for (const Element::Member& member : element.members) {
      for (std::size_t i = 0; i < member.bytes; ++i) {
        access.within = member.at + i;
        Access& there = of.accesses[static_cast<std::size_t>(at) + access.within];
        touched = touched || there.kind != Access::Kind::kNone;
        const auto next = meet(there, access, sampled);
        if (!next) return false;
        log_.emplace_back(&there, there);
        there = *next;
      }
    }
    if (sampled && !touched) samples_.push_back({rank, at, &element, op});
    return true;
  }

  static std::optional<Access> meet(const Access& there, const Access& access, bool sampled) {
    using enum Access::Kind;
    if (there.kind == kNone) return access;
    const bool same_place =
        there.kind == access.kind && there.element == access.element && there.within == access.within;
    const bool by_same = there.origin == access.origin;
    if (there.owned && !by_same) return std::nullopt;
    Access both = there;
    both.flushes = std::max(there.flushes, access.flushes);
    if (access.kind == kOrdered && same_place && by_same) return both;
    if (sampled && !(access.kind == kShared && same_place)) return std::nullopt;
    if (!by_same) both.origin = Access::kMany;
    if (access.kind == kRead && there.kind == kRead) return both;
    if (access.kind == kShared && same_place && there.op == access.op) return both;
    if (!by_same || there.flushes >= access.flushes || access.flushes == kNever) return std::nullopt;
    Access after = access;
    after.owned = true;
    return after;
  }

  // ---- the model

  void apply(Operation& made) {
    if (made.target == kProcNull) return;
    ModelWindow& of = window(made.target);
    if (made.counter >= 0) ++of.notified[static_cast<std::size_t>(made.counter)];
    const std::size_t elements = made.map.size();
    for (std::size_t i = 0; i < elements; ++i) {
      const Element& element = *made.map[i].element;
      Cell* target = &of.cells[static_cast<std::size_t>(made.at + made.map[i].at)];
      Cell* from = cells(made, made.from, i);
      Cell* to = cells(made, made.to, i);
      const Cell* compare = cells(made, made.compare, i);
      switch (made.call) {
        case Call::kPut: move(element, from, target); break;
        case Call::kGet: move(element, target, to); break;
        case Call::kAccumulate:
        case Call::kGetAccumulate:
        case Call::kFetchAndOp:
          if (to != nullptr) fetch(element, target, to, made.shared);
          if (made.op != Op::kNoOp) combine(element, made.op, target, from);
          break;
        case Call::kCompareAndSwap: swap(element, target, from, compare, to); break;
      }
      note(of, target, element, made);
      if (to != nullptr && made.to.in_window) note(window(made.origin), to, element, made);
    }
  }
  void note(ModelWindow& of, const Cell* at, const Element& element, const Operation& made) {
    if (at < of.cells.data() || at >= of.cells.data() + of.cells.size()) return;
    if (made.call == Call::kGet && &of == &window(made.target) && !made.to.in_window) return;
    for (std::size_t i = 0; i < element.extent; ++i)
      if (static_cast<std::size_t>(at - of.cells.data()) + i < of.last.size())
        of.last[static_cast<std::size_t>(at - of.cells.data()) + i] = made.index;
  }
  Cell* cells(Operation& made, Buffer& buffer, std::size_t i) {
    if (!buffer.shape) return nullptr;
    Cells& all = buffer.in_window ? window(made.origin).cells : buffer.after;
    return &all[static_cast<std::size_t>(buffer.at + buffer.map[i].at)];
  }
  template <class Visit>
  static void each_byte(const Element& element, Visit visit) {
    for (const Element::Member& member : element.members)
      for (std::size_t i = 0; i < member.bytes; ++i) visit(member.at + i, element.has_value(member, i));
  }
  static void move(const Element& element, const Cell* from, Cell* to) {
    each_byte(element, [&](std::size_t i, bool) { to[i] = from[i]; });
  }
  static void fetch(const Element& element, const Cell* target, Cell* to, bool unordered) {
    each_byte(element, [&](std::size_t i, bool has_value) {
      to[i] = {target[i].value, target[i].wild || !has_value || unordered};
    });
  }
  static bool wild(const Element& element, const Cell* cells) {
    bool any = false;
    each_byte(element, [&](std::size_t i, bool has_value) { any = any || (has_value && cells[i].wild); });
    return any;
  }
  static void combine(const Element& element, Op op, Cell* target, const Cell* origin) {
    unsigned char a[64] = {}, b[64] = {};
    each_byte(element, [&](std::size_t i, bool) {
      a[i] = target[i].value;
      b[i] = origin[i].value;
    });
    element.combine(op, a, b);
    const bool spoiled = wild(element, origin) || (op != Op::kReplace && wild(element, target));
    // Padding keeps its bytes: what the compiler leaves there differs from rank to rank, and a compare_and_swap of
    // another type may take its operand from there.
    each_byte(element, [&](std::size_t i, bool has_value) {
      target[i] = {has_value ? a[i] : target[i].value, spoiled || !has_value};
    });
  }
  static void swap(const Element& element, Cell* target, const Cell* origin, const Cell* compare, Cell* to) {
    bool equal = true;
    each_byte(element, [&](std::size_t i, bool) { equal = equal && target[i].value == compare[i].value; });
    const bool spoiled = wild(element, target) || wild(element, compare);
    fetch(element, target, to, false);
    each_byte(element, [&](std::size_t i, bool) {
      if (spoiled)
        target[i].wild = true;
      else if (equal)
        target[i] = origin[i];
    });
  }

  struct Sample {
    int rank;
    std::ptrdiff_t at;
    const Element* element;
    Op op;
  };
  Dice& dice_;
  std::vector<ModelWindow>& windows_;
  int ranks_;
  std::vector<const Element*> elements_, favorites_;
  Phase phase_;
  std::map<std::pair<int, int>, int> flushes_;  // by origin and target, in this phase
  std::vector<std::pair<Access*, Access>> log_;
  std::vector<Sample> samples_;
};

}  // namespace random_test
