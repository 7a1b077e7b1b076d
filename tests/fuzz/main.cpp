// SPDX-License-Identifier: BSD-3-Clause
// Fuzzing without libFuzzer: the seeds of the target, then inputs made from them. The n-th input of a random seed is
// always the same, so each failure can be repeated.
//
//   fuzz-NAME [seconds N] [seed S] [only I]     N: how long (3); S: a new one in each run, if none is given; I: only
//   this input fuzz-NAME write DIR                         the seeds as files, for libFuzzer
//   fuzz-NAME FILE...                           inputs from files
#include <chrono>
#include <cinttypes>
#include <csignal>
#include <fstream>
#include <iterator>
#include <random>
#include <unistd.h>

#include "tests/fuzz/fuzz.hpp"

namespace {

using farside::fuzz::Bytes;

std::uint64_t g_seed = 1, g_input = 0;

// Prints the number of the input, then restores the signal's default action.
void tell(int signal) {
  char text[128];
  const int length = std::snprintf(text, sizeof text,
                                   "fuzz: signal %d in input %" PRIu64 "; again: seed %" PRIu64 " only %" PRIu64 "\n",
                                   signal, g_input, g_seed, g_input);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text, static_cast<std::size_t>(length));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

void change(Bytes& input, const std::vector<Bytes>& seeds, std::mt19937_64& random) {
  const auto below = [&](std::size_t bound) { return bound == 0 ? 0 : static_cast<std::size_t>(random() % bound); };
  const std::size_t at = below(input.size());
  switch (below(8)) {
    case 0:
      if (!input.empty()) input[at] ^= static_cast<std::uint8_t>(1U << below(8));
      return;
    case 1:
      if (!input.empty()) input[at] = static_cast<std::uint8_t>(random());
      return;
    case 2:
    case 3: {  // a number at a place where numbers are
      static constexpr std::uint64_t kNumbers[] = {0,
                                                   1,
                                                   2,
                                                   7,
                                                   8,
                                                   255,
                                                   4096,
                                                   6912,
                                                   0x7fff,
                                                   0xffff,
                                                   0x7fffffff,
                                                   0xffffffff,
                                                   0x8000000000000000,
                                                   0x7fffffffffffffff,
                                                   0xffffffffffffffff,
                                                   0xfffffffffffff000};
      std::uint64_t number = kNumbers[below(std::size(kNumbers))] + below(3) - 1;
      if (below(4) == 0) number = random();
      const std::size_t bytes = std::size_t{1} << below(4);
      if (input.size() < bytes) return;
      std::size_t place = below(input.size() - bytes + 1);
      if (below(2) == 0) place -= place % bytes;
      std::memcpy(input.data() + place, &number, bytes);
      return;
    }
    case 4: input.resize(at); return;
    case 5:
      input.insert(input.begin() + static_cast<std::ptrdiff_t>(at), below(64) + 1, static_cast<std::uint8_t>(random()));
      return;
    case 6: {  // repeats a range of bytes
      const Bytes fragment(input.begin() + static_cast<std::ptrdiff_t>(at),
                           input.begin() + static_cast<std::ptrdiff_t>(at + below(input.size() - at + 1)));
      const std::size_t to = below(input.size() + 1);
      if (input.size() + fragment.size() < 65536)
        input.insert(input.begin() + static_cast<std::ptrdiff_t>(to), fragment.begin(), fragment.end());
      return;
    }
    default: {  // the end of another input
      const Bytes& other = seeds[below(seeds.size())];
      input.resize(at);
      input.insert(input.end(), other.begin() + static_cast<std::ptrdiff_t>(below(other.size())), other.end());
    }
  }
}

void run(std::uint64_t number, const std::vector<Bytes>& seeds) {
  g_input = number;
  Bytes input;
  if (number < seeds.size()) {
    input = seeds[number];
  } else {
    std::mt19937_64 random(g_seed * 0x9e3779b97f4a7c15 + number);
    input = seeds[random() % seeds.size()];
    for (std::uint64_t changes = random() % 6 + 1; changes > 0; --changes) change(input, seeds, random);
  }
  input.shrink_to_fit();  // so that a sanitizer reports reads beyond the end
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<Bytes> seeds = farside::fuzz::seeds();
  double seconds = 3;
  bool one = false;
  g_seed = std::random_device()();
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const char* const value = i + 1 < argc ? argv[i + 1] : "";
    if (word == "seconds") {
      seconds = std::atof(value);
    } else if (word == "seed") {
      g_seed = std::strtoull(value, nullptr, 10);
    } else if (word == "only") {
      one = true;
      g_input = std::strtoull(value, nullptr, 10);
    } else if (word == "write") {
      for (std::size_t s = 0; s < seeds.size(); ++s) {
        std::ofstream file(std::string(value) + "/seed-" + std::to_string(s), std::ios::binary);
        file.write(reinterpret_cast<const char*>(seeds[s].data()), static_cast<std::streamsize>(seeds[s].size()));
        if (!file) return std::fprintf(stderr, "fuzz: cannot write to %s\n", value), 1;
      }
      return 0;
    } else {
      std::ifstream file(word, std::ios::binary);
      if (!file)
        return std::fprintf(stderr, "fuzz: cannot read %s; see the head of tests/fuzz/main.cpp\n", word.c_str()), 2;
      const Bytes input((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
      LLVMFuzzerTestOneInput(input.data(), input.size());
      seconds = 0;
      continue;
    }
    ++i;
  }
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGALRM}) std::signal(signal, tell);
  if (one) return run(g_input, seeds), 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  std::uint64_t number = 0;
  for (; number < seeds.size() || std::chrono::steady_clock::now() < end; ++number) {
    alarm(20);  // an input that takes longer counts as a hang
    run(number, seeds);
  }
  std::printf("%" PRIu64 " inputs from %zu seeds, random seed %" PRIu64 "\n", number, seeds.size(), g_seed);
}
