// SPDX-License-Identifier: BSD-3-Clause
#include "tools/doctor/rank_collector.hpp"

#include "tools/hosts/collectives.hpp"

namespace farside::tools {

RankCollector::RankCollector(MPI_Comm comm) : comm_(comm) {
  MPI_Comm_rank(comm, &rank_);
  MPI_Comm_size(comm, &ranks_);
}

std::vector<std::string> RankCollector::collect(const std::string& mine) {
  const int tag = round_++;
  if (rank_ != 0) {
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Isend(mine.data(), static_cast<int>(mine.size()), MPI_CHAR, 0, tag, comm_, &request);
    sleeping_wait(request);
    return {};
  }
  std::vector<std::string> texts(static_cast<std::size_t>(ranks_));
  texts[0] = mine;
  {
    const std::scoped_lock held(mutex_);
    answered_.assign(texts.size(), false);
    answered_[0] = true;
  }
  for (int left = ranks_ - 1; left > 0;) {
    int there = 0;
    MPI_Status status;
    MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_, &there, &status);
    if (there == 0) {
      sleep_between_tests();
      continue;
    }
    int length = 0;
    MPI_Get_count(&status, MPI_CHAR, &length);
    const auto from = static_cast<std::size_t>(status.MPI_SOURCE);
    texts[from].resize(static_cast<std::size_t>(length));
    MPI_Recv(texts[from].data(), length, MPI_CHAR, status.MPI_SOURCE, tag, comm_, MPI_STATUS_IGNORE);
    const std::scoped_lock held(mutex_);
    answered_[from] = true;
    --left;
  }
  const std::scoped_lock held(mutex_);
  answered_.clear();
  return texts;
}

int RankCollector::share(int number) {
  MPI_Request request = MPI_REQUEST_NULL;
  MPI_Ibcast(&number, 1, MPI_INT, 0, comm_, &request);
  sleeping_wait(request);
  return number;
}

std::vector<int> RankCollector::missing() const {
  const std::scoped_lock held(mutex_);
  std::vector<int> all;
  for (std::size_t i = 0; i < answered_.size(); ++i)
    if (!answered_[i]) all.push_back(static_cast<int>(i));
  return all;
}

}  // namespace farside::tools
