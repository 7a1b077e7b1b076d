// SPDX-License-Identifier: BSD-3-Clause
// `farside explain` reads forged statistics. It must refuse them with a reason, or explain them.
#include <stdexcept>

#include "tests/fuzz/fuzz.hpp"
#include "tools/explain/explain.hpp"

namespace farside::fuzz {

std::vector<Bytes> seeds() {
  return {bytes_of(
              R"({"rank": 0, "ranks": 2, "host": "a",
    "job": {"started": 1.5e9, "written": 1.6e9, "agreed": "00ff"},
    "seconds": 1.5, "windows": {"farside": 1, "runtime": 2}, "window_kinds": {"create cma": {"windows": 1,
    "epochs": {"fence": 3, "lock_shared": 70000}, "waits": {"MPI_Win_fence": {"count": 3, "seconds": 0.5, "longest_seconds": 0.4}},
    "routes": {"cma": {"put": {"count": 4000000, "bytes": 8}, "accumulate": {"count": 1, "bytes": 18446744073709551615}}},
    "slow_accumulates": {"lock": {"long double": 2000}, "handler": {"quad": 1}}, "flushes": 4000000, "flushes_all": 1,
    "slow_operations": {"count": 5, "seconds": 0.25}, "names": ["grid\u001b"]}}, "cpus": "0-3,8",
    "targets": {"1": {"count": 7, "bytes": 8, "wait_seconds": 0.5, "slow_operation_seconds": 0.1}},
    "sizes": {"put": {"8": {"count": 7, "bytes": 8, "slow_count": 2, "slow_seconds": 0.1}}},
    "sites": [{"site": "solve+0x1", "calls": {"lock": {"calls": 9, "count": 3, "seconds": 0.5, "longest_seconds": 0.4}}}]})"),
          bytes_of(R"({"rank": 0, "ranks": 2, "host": "a",
    "job": {"started": 1.5e9, "written": 1.6e9, "spawned": true},
    "seconds": 0, "windows": {}, "window_kinds": {}})"),
          bytes_of(R"({"rank": 0, "ranks": 2, "host": "a",
    "job": {"started": 1.5e9, "written": 1.6e9, "agreed": "00ff"},
    "seconds": 1e308, "windows": {"runtime": 0}, "window_kinds": {"": {"windows": 0}}})"),
          Bytes(50'000, '[')};
}

}  // namespace farside::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace farside::tools::explain;
  Run run;
  try {
    add(run, "file", std::string(reinterpret_cast<const char*>(data), size));
  } catch (const std::runtime_error&) {
    return 0;
  }
  const auto require_text = [](const std::string& text, std::string_view what) {
    farside::fuzz::require(!text.empty() && farside::fuzz::is_plain(text), what);
  };
  farside::fuzz::require(run.files.size() == 1, "what is read counts");
  require_text(in_words(run), "what is read can be explained");
  for (const char* by : {"rank", "size", "pair", "site"})
    require_text(figures_by(run, by), "what is read can be listed");
  for (const Advice& advice : advise(run)) farside::fuzz::require(!advice.text.empty(), "advice has words");
  return 0;
}
