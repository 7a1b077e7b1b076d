// SPDX-License-Identifier: BSD-3-Clause
// Notified access (pmpi/include/farside.h; natively its fall-back) and what programs do without it: there and back
// between two ranks, and a halo exchange in a ring of all ranks.
#include <cstdint>
#include <farside.h>

#include "tools/bench/program/measuring.hpp"

namespace farside::bench {
namespace {

enum class Way {
  kNotify,   // put_notify, wait_notify
  kSend,     // put, flush, an empty message
  kMessage,  // MPI_Send
  kFence,
  kPost,  // post, start, put, complete, wait
};

// A halo exchange with the neighbours. In the window are a halo of `bytes` for each side, twice, since a
// neighbour may be a step ahead. The first and the last word of all data is the number of the step.
template <Way way>
class Exchange {
 public:
  Exchange(const Pair& pair, const Options& options, std::size_t bytes)
      : comm_(pair.comm), words_(bytes / 8), mine_(words_), window_(pair, options.window, 4 * bytes) {
    neighbours_ = {(ranks_.mine + ranks_.all - 1) % ranks_.all, (ranks_.mine + 1) % ranks_.all};
    MPI_Group all = MPI_GROUP_NULL;
    MPI_Comm_group(comm_, &all);
    MPI_Group_incl(all, neighbours_[0] == neighbours_[1] ? 1 : 2, neighbours_.data(), &group_);
    MPI_Group_free(&all);
    if (way == Way::kNotify) MPIX_Win_set_num_notify(win_, MPI_INFO_NULL, 2);
    if (kPassive) MPI_Win_lock_all(0, win_);
    if (way == Way::kFence) MPI_Win_fence(0, win_);
  }
  ~Exchange() {
    if (kPassive) MPI_Win_unlock_all(win_);
    if (way == Way::kFence) MPI_Win_fence(MPI_MODE_NOSUCCEED, win_);
    MPI_Group_free(&group_);
  }

  void there_and_back(bool origin) {
    begin();
    if (!origin) take(1, words_);
    give(origin ? 0 : 1, origin ? words_ : 1);
    given();
    if (origin) take(0, 1);
  }
  void with_both_neighbours() {
    begin();
    if (way == Way::kPost) {
      MPI_Win_post(group_, 0, win_);
      MPI_Win_start(group_, 0, win_);
    }
    for (const std::size_t side : {0, 1}) give(side, words_);
    given();
    if (way == Way::kFence) MPI_Win_fence(0, win_);
    if (way == Way::kPost) {
      MPI_Win_complete(win_);
      MPI_Win_wait(win_);
    }
    for (const std::size_t side : {0, 1}) take(side, words_);
  }
  bool right() const { return right_; }

 private:
  static constexpr bool kPassive = way == Way::kNotify || way == Way::kSend;

  void begin() {
    if (way == Way::kMessage) MPI_Waitall(2, requests_.data(), MPI_STATUSES_IGNORE);
    mine_.front() = mine_.back() = ++step_;
  }
  // To the neighbour on this side, whose halo is that of its other side.
  void give(std::size_t side, std::size_t count) {
    const int to = neighbours_[side], words = static_cast<int>(count), there = side == 0 ? 1 : 0;
    const auto at = static_cast<MPI_Aint>(8 * place(there));
    if constexpr (way == Way::kMessage) {
      MPI_Isend(mine_.data(), words, MPI_INT64_T, to, there, comm_, &requests_[side]);
    } else if constexpr (way == Way::kNotify) {
      MPIX_Put_notify(mine_.data(), words, MPI_INT64_T, to, at, words, MPI_INT64_T, there, win_);
    } else {
      MPI_Put(mine_.data(), words, MPI_INT64_T, to, at, words, MPI_INT64_T, win_);
      if constexpr (kPassive) MPI_Win_flush(to, win_);
      if constexpr (way == Way::kSend) MPI_Send(nullptr, 0, MPI_BYTE, to, there, comm_);
    }
  }
  // `mine_` may change again after this, and after begin().
  void given() {
    if (way != Way::kNotify) return;
    for (const int to : neighbours_) MPI_Win_flush_local(to, win_);
  }
  void take(std::size_t side, std::size_t count) {
    const int from = neighbours_[side], here = static_cast<int>(side);
    std::int64_t* const halo = window_.template as<std::int64_t>() + place(here);
    if constexpr (way == Way::kMessage)
      MPI_Recv(halo, static_cast<int>(count), MPI_INT64_T, from, here, comm_, MPI_STATUS_IGNORE);
    if constexpr (way == Way::kNotify) MPIX_Win_wait_notify(win_, here, step_);
    if constexpr (way == Way::kSend) MPI_Recv(nullptr, 0, MPI_BYTE, from, here, comm_, MPI_STATUS_IGNORE);
    right_ = right_ && halo[0] == step_ && halo[count - 1] == step_;
  }
  std::size_t place(int side) const { return static_cast<std::size_t>(2 * (step_ % 2) + side) * words_; }

  const MPI_Comm comm_;
  const tools::Ranks ranks_{comm_};
  const std::size_t words_;
  std::vector<std::int64_t> mine_;
  const Window window_;
  const MPI_Win win_ = window_.handle();
  std::array<int, 2> neighbours_{};
  std::array<MPI_Request, 2> requests_{MPI_REQUEST_NULL, MPI_REQUEST_NULL};
  MPI_Group group_ = MPI_GROUP_NULL;
  std::int64_t step_ = 0;
  bool right_ = true;
};

// info.x bytes to both neighbours ("halo_"); or there, and 8 bytes back. "asleep": the origin is late each time.
template <Way way>
Outcome measure_exchange(const MeasureInfo& info, const Pair& pair, const Options& options) {
  Exchange<way> exchange(pair, options, bytes_of(info));
  const bool halo = info.name.starts_with("halo_"), late = pair.origin && info.name.ends_with("_asleep");
  const auto once = [&] { halo ? exchange.with_both_neighbours() : exchange.there_and_back(pair.origin); };
  const auto batch = [&](long count) { return time_of(count, once, late ? kLate : kLate.zero()); };
  batch(3);
  Outcome outcome;
  outcome.values = in_unit(info, 0, sample_together(pair, options.sample_seconds, batch));
  if (!tools::at_all(exchange.right(), pair.comm)) outcome.wrong = "the data are not those of their step";
  return outcome;
}

const Registered kMeasures[] = {
    {"notify_put", measure_exchange<Way::kNotify>},      {"notify_send", measure_exchange<Way::kSend>},
    {"notify_message", measure_exchange<Way::kMessage>}, {"halo_notify", measure_exchange<Way::kNotify>},
    {"halo_fence", measure_exchange<Way::kFence>},       {"halo_post", measure_exchange<Way::kPost>},
    {"halo_send", measure_exchange<Way::kMessage>}};

}  // namespace
}  // namespace farside::bench
