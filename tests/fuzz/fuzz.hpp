// SPDX-License-Identifier: BSD-3-Clause
// The interface of a fuzz target (NAME.cpp): a function that processes an input, and seeds. main.cpp runs the target if
// there is no libFuzzer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace farside::fuzz {

using Bytes = std::vector<std::uint8_t>;

// Returns the seeds: inputs from which the fuzzer makes others. Seeds that the code accepts find more errors.
std::vector<Bytes> seeds();

// Ends the process, and so the run, if the condition does not hold.
inline void require(bool holds, std::string_view what) {
  if (holds) return;
  std::fprintf(stderr, "fuzz: this does not hold: %.*s\n", static_cast<int>(what.size()), what.data());
  std::abort();
}

// Whether a text can be shown on a terminal: it has no control characters but ends of lines.
inline bool is_plain(std::string_view text) {
  return std::ranges::none_of(text, [](unsigned char c) { return (c < ' ' && c != '\n') || c == 0x7f; });
}

template <class T>
void append(Bytes& to, const T& value) {
  const std::size_t at = to.size();
  to.resize(at + sizeof value);
  std::memcpy(to.data() + at, &value, sizeof value);
}

inline Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

// Takes numbers off an input; zeros when it is used up.
class Reader {
 public:
  Reader(const std::uint8_t* data, std::size_t size) : data_(data), left_(size) {}
  std::uint8_t byte() {
    if (left_ == 0) return 0;
    --left_;
    return *data_++;
  }
  bool empty() const { return left_ == 0; }
  const std::uint8_t* rest() const { return data_; }
  std::size_t left() const { return left_; }

 private:
  const std::uint8_t* data_;
  std::size_t left_;
};

}  // namespace farside::fuzz
