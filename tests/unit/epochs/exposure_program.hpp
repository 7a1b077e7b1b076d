// SPDX-License-Identifier: BSD-3-Clause
// The script of an actor of the explorer for post, start, complete and wait, and its properties: accesses fall into
// an exposure that was posted to their origin, wait returns after all data have arrived, and at the end the words
// hold no trace.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "epochs/protocols/exposure.hpp"
#include "tests/unit/epochs/explorer.hpp"

namespace farside::explore {

using epochs::ControlBlock;
using epochs::LockWord;

struct ExposureAction {
  enum class What : std::uint8_t { kPost, kStart, kPut, kComplete, kCompleteTooEarly, kWait } what;
  std::vector<int> group;
};
using ExposureScript = std::vector<ExposureAction>;

class ExposureProgram {
  using What = ExposureAction::What;
  using Notify = epochs::Notify<Memory>;
  using AwaitPosts = epochs::AwaitPosts<Memory>;

  // The data of an access epoch: its number, written to the word of the origin at each target.
  class Put {
   public:
    Put(Memory& memory, const std::vector<int>& targets, const std::uint8_t* epochs) : count_(targets.size()) {
      for (std::size_t i = 0; i < count_; ++i) {
        memory.write(operations_[i], targets[i], data_word(memory.rank()), epochs[targets[i]]);
      }
    }
    bool advance() {
      for (std::size_t i = 0; i < count_; ++i) {
        if (!operations_[i].done()) return false;
      }
      return true;
    }

   private:
    std::array<Memory::Operation, kRanks> operations_;
    std::size_t count_;
  };

 public:
  struct Shared {
    struct Target {
      std::uint8_t posts[kRanks] = {};  // per origin
      std::uint8_t exposed = 0;
      std::uint8_t completes_awaited = 0;
    };
    Target targets[kRanks];
  };

  ExposureProgram() = default;
  explicit ExposureProgram(const ExposureScript* script) : script_(script) {}

  bool over() const { return position_ == script_->size(); }
  bool begins() const { return !begun_; }

  void step(Memory& memory, Shared& shared) {
    const ExposureAction& action = (*script_)[position_];
    const bool begin = !begun_;
    begun_ = true;
    Shared::Target& self = shared.targets[memory.rank()];
    switch (action.what) {
      case What::kPost:
        if (begin) {
          if (!epochs::ExposureMark<Memory>::set(memory)) memory.broken("a post finds a lock where there is none");
          self.exposed = 1;
          for (const int origin : action.group) ++self.posts[origin];
          notify_.emplace(memory, memory.rank(), Notify::What::kPosted, action.group);
        }
        if (!notify_->advance()) return;
        break;
      case What::kStart:
        if (begin) running_.begin<AwaitPosts>(memory, action.group);
        if (!running_.get<AwaitPosts>().advance()) return;
        for (const int target : action.group) {
          ++started_[target];
          if (!exposed(shared, target, memory)) memory.broken("a start is over without the post of a target");
        }
        break;
      case What::kPut:
        if (begin) running_.begin<Put>(memory, action.group, started_);
        if (!running_.get<Put>().advance()) return;
        break;
      case What::kCompleteTooEarly:
        if (begin) running_.begin<Put>(memory, action.group, started_);
        [[fallthrough]];
      case What::kComplete:
        if (begin) notify_.emplace(memory, memory.rank(), Notify::What::kCompleted, action.group);
        if (!notify_->advance() || (running_ && !running_.get<Put>().advance())) return;
        break;
      case What::kWait:
        if (!completions_.take(memory, action.group.size())) return;
        epochs::ExposureMark<Memory>::clear(memory);
        self.exposed = 0;
        for (const int origin : action.group) {
          ++self.completes_awaited;
          if (memory.memory_state().at(memory.rank(), data_word(origin)) != self.posts[origin]) {
            memory.broken("a wait is over before the data has arrived");
          }
        }
        break;
    }
    running_.end();
    notify_.reset();
    memory.retire_operations();
    begun_ = false;
    ++position_;
  }

  void effect(const Request& request, Memory& memory, Shared& shared) {
    if (request.word >= kData && !exposed(shared, request.rank, memory)) {
      memory.broken("data arrives at a target that is not exposed to its origin");
    }
  }

  // Notify's position follows from which of its operations are done.
  std::uint64_t hash(std::uint64_t seed) const {
    seed = running_.hash(mix(seed, position_ * 2 + static_cast<std::uint64_t>(begun_)));
    static_assert(std::has_unique_object_representations_v<epochs::CompletionCount>);
    return hash_bytes(hash_bytes(seed, &completions_, sizeof(completions_)), started_, sizeof(started_));
  }
  static bool own_word(std::uint32_t word) { return word == ControlBlock::kCompleted || word == ControlBlock::kPosted; }
  static void check_end(const MemoryState& memory_state, const Shared& shared, std::string& failure) {
    for (int rank = 0; rank < kRanks; ++rank) {
      if (memory_state.at(rank, ControlBlock::kPosted) != 0) failure = "in the end a post is left";
      if (memory_state.at(rank, ControlBlock::kLock) != 0) failure = "in the end a rank is marked as exposed";
      if (memory_state.at(rank, ControlBlock::kCompleted) != shared.targets[rank].completes_awaited) {
        failure = "in the end a complete is left";
      }
    }
  }

  std::string describe_position() const {
    if (over()) return "";
    static constexpr const char* kNames[] = {"post", "start", "put", "complete", "complete and put", "wait"};
    return std::string(" (") + (begun_ ? "in " : "begins ") + kNames[static_cast<int>((*script_)[position_].what)] +
           ")";
  }
  std::string describe(int actor) const {
    return "then actor " + std::to_string(actor) + (over() ? " is done" : " is at" + describe_position());
  }

 private:
  static std::uint32_t data_word(int origin) { return kData + 8U * static_cast<std::uint32_t>(origin); }
  // Whether `target` is in the exposure that belongs to the latest start of this origin.
  bool exposed(const Shared& shared, int target, const Memory& origin) const {
    return shared.targets[target].exposed != 0 && shared.targets[target].posts[origin.rank()] == started_[target];
  }

  const ExposureScript* script_ = nullptr;
  std::uint64_t position_ = 0;
  epochs::CompletionCount completions_;
  std::uint8_t started_[kRanks] = {};  // access epochs per target
  bool begun_ = false;
  Running<AwaitPosts, Put> running_;
  std::optional<Notify> notify_;  // contains a deque: copied, but not as bytes
};
static_assert(std::has_unique_object_representations_v<ExposureProgram::Shared>);

// "P12 S0 C W": post to 1 and 2, start to 0, put and complete, wait. "E": complete without waiting for the put.
inline ExposureScript parse_exposures(const std::string& text) {
  using What = ExposureAction::What;
  ExposureScript script;
  std::vector<int> posted;
  std::vector<int> started;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char call = text[i];
    std::vector<int> group;
    while (i + 1 < text.size() && text[i + 1] >= '0' && text[i + 1] <= '9') group.push_back(text[++i] - '0');
    if (call == 'P') script.push_back({What::kPost, posted = group});
    if (call == 'S') script.push_back({What::kStart, started = group});
    if (call == 'C') {
      script.push_back({What::kPut, started});
      script.push_back({What::kComplete, started});
    }
    if (call == 'E') script.push_back({What::kCompleteTooEarly, started});
    if (call == 'W') script.push_back({What::kWait, posted});
  }
  return script;
}

inline Report explore_exposures(const std::vector<std::string>& texts, const Options& options) {
  std::vector<ExposureScript> scripts;
  for (const std::string& text : texts) scripts.push_back(parse_exposures(text));
  std::vector<ExposureProgram> programs;
  for (const ExposureScript& script : scripts) programs.emplace_back(&script);
  return Explorer<ExposureProgram>(programs, options).run();
}

}  // namespace farside::explore
