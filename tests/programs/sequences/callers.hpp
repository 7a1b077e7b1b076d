// SPDX-License-Identifier: BSD-3-Clause
// The threads that make the calls of a sequence: each call is made by the next one, and meanwhile the others make calls
// of their own. Without threads, the calling thread makes all calls.
#pragma once

#include <cstddef>
#include <functional>
#include <pthread.h>
#include <thread>
#include <vector>

namespace sequences {

// A barrier that the thread sanitizer knows, unlike std::barrier in a program without it.
class Barrier {
 public:
  explicit Barrier(int count) { pthread_barrier_init(&barrier_, nullptr, static_cast<unsigned>(count)); }
  Barrier(const Barrier&) = delete;
  Barrier& operator=(const Barrier&) = delete;
  ~Barrier() { pthread_barrier_destroy(&barrier_); }
  void arrive_and_wait() { pthread_barrier_wait(&barrier_); }

 private:
  pthread_barrier_t barrier_;
};

class Callers {
 public:
  // `count`: 0 (no threads) or more.
  explicit Callers(int count) : start_(count + 1), end_(count + 1) {
    for (int i = 0; i < count; ++i) threads_.emplace_back([this, i] { work(static_cast<std::size_t>(i)); });
  }
  Callers(const Callers&) = delete;
  Callers& operator=(const Callers&) = delete;
  ~Callers() {
    stop_ = true;
    if (!threads_.empty()) start_.arrive_and_wait();
    for (std::thread& thread : threads_) thread.join();
  }

  std::size_t count() const { return threads_.size(); }
  // Runs call() in the next thread, and beside(i) in each other thread at the same time. Returns when all are done.
  void run(const std::function<void()>& call, const std::function<void(std::size_t)>& beside) {
    if (threads_.empty()) return call();
    turn_ = (turn_ + 1) % threads_.size();
    call_ = &call;
    beside_ = &beside;
    start_.arrive_and_wait();
    end_.arrive_and_wait();
  }

 private:
  void work(std::size_t index) {
    for (;;) {
      start_.arrive_and_wait();
      if (stop_) return;
      if (index == turn_) {
        (*call_)();
      } else {
        (*beside_)(index);
      }
      end_.arrive_and_wait();
    }
  }

  Barrier start_, end_;
  bool stop_ = false;
  std::size_t turn_ = 0;
  const std::function<void()>* call_ = nullptr;
  const std::function<void(std::size_t)>* beside_ = nullptr;
  std::vector<std::thread> threads_;
};

}  // namespace sequences
