// SPDX-License-Identifier: BSD-3-Clause
// A cable between two network namespaces, which delays, reorders and loses frames (support/virtual_hosts uses it, since
// not every kernel has netem).
//
//   poor-link PID PID "[delay MS] [jitter MS] [loss PERCENT] [rate MBIT] [seed N]"
//
// The namespaces are those of the two processes; the interface at each end is eth0. delay: the least delay of a frame;
// jitter: the largest additional delay, random for each frame; rate: the rate of each direction. The program prints a
// line when the interfaces exist, and then runs until it is ended.
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <map>
#include <net/if.h>
#include <poll.h>
#include <random>
#include <sched.h>
#include <sstream>
#include <string>
#include <sys/ioctl.h>
#include <unistd.h>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::duration<double, std::milli>;

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "poor-link: %s: %s\n", what.c_str(), std::strerror(errno));
  std::exit(1);
}

int open_end(const char* process) {
  const int space = open((std::string("/proc/") + process + "/ns/net").c_str(), O_RDONLY | O_CLOEXEC);
  if (space < 0 || setns(space, CLONE_NEWNET) != 0) fail(std::string("the namespace of process ") + process);
  close(space);
  const int end = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
  ifreq request{};
  std::strcpy(request.ifr_name, "eth0");
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  if (end < 0 || ioctl(end, TUNSETIFF, &request) != 0) fail("a tap device");
  return end;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "poor-link: two processes, and what the cable is like\n");
    return 2;
  }
  std::map<std::string, double> like = {{"delay", 0}, {"jitter", 0}, {"loss", 0}, {"rate", 0}, {"seed", 1}};
  std::istringstream words(argv[3]);
  for (std::string name; words >> name;) {
    const auto found = like.find(name);
    if (found == like.end() || !(words >> found->second)) {
      std::fprintf(stderr, "poor-link: '%s': delay, jitter, loss, rate or seed, and a number behind each\n",
                   name.c_str());
      return 2;
    }
  }
  const std::array<int, 2> ends = {open_end(argv[1]), open_end(argv[2])};
  std::puts("ready");
  std::fflush(stdout);

  std::mt19937_64 dice(static_cast<std::uint64_t>(like["seed"]));
  std::uniform_real_distribution<double> chance(0, 1);
  std::array<std::multimap<Clock::time_point, std::vector<char>>, 2>
      under_way;  // frames for each end, by time of arrival
  std::array<Clock::time_point, 2> free_from{};
  std::vector<char> frame(1 << 16);
  while (true) {
    const Clock::time_point now = Clock::now();
    Clock::time_point next = now + std::chrono::seconds(1);
    for (std::size_t to = 0; to < 2; ++to) {
      auto& frames = under_way[to];
      while (!frames.empty() && frames.begin()->first <= now) {
        // If the interface accepts no frame, the frame is lost, as on a cable.
        if (write(ends[to], frames.begin()->second.data(), frames.begin()->second.size()) < 0 && errno != EAGAIN &&
            errno != EIO)
          fail("write");
        frames.erase(frames.begin());
      }
      if (!frames.empty()) next = std::min(next, frames.begin()->first);
    }
    pollfd waits[] = {{ends[0], POLLIN, 0}, {ends[1], POLLIN, 0}};
    const auto wait =
        std::chrono::duration_cast<std::chrono::nanoseconds>(std::max(next - Clock::now(), Clock::duration{}));
    const timespec limit = {static_cast<time_t>(wait.count() / 1'000'000'000),
                            static_cast<long>(wait.count() % 1'000'000'000)};
    if (ppoll(waits, 2, &limit, nullptr) < 0 && errno != EINTR) fail("poll");
    for (std::size_t from = 0; from < 2; ++from) {
      const std::size_t to = 1 - from;
      for (ssize_t bytes = 0; (bytes = read(ends[from], frame.data(), frame.size())) > 0;) {
        if (chance(dice) < like["loss"] / 100) continue;
        Clock::time_point sent = Clock::now();
        if (like["rate"] > 0) {
          sent = std::max(sent, free_from[to]) + std::chrono::duration_cast<Clock::duration>(Milliseconds(
                                                     static_cast<double>(bytes) * 8 / like["rate"] / 1000));
          free_from[to] = sent;
        }
        const Milliseconds takes(like["delay"] + like["jitter"] * chance(dice));
        under_way[to].emplace(sent + std::chrono::duration_cast<Clock::duration>(takes),
                              std::vector<char>(frame.data(), frame.data() + bytes));
      }
    }
  }
}
