// SPDX-License-Identifier: BSD-3-Clause
// `farside trace` on traces that this test makes: what is told from them, and that no file, however damaged,
// is believed.
#include "tools/trace/trace.hpp"

#include <bit>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

namespace farside::trace_test {

using namespace farside::tools::trace;
using Catch::Matchers::Contains;

namespace {

constexpr std::uint64_t kWindowId = 77;

// A trace whose ticks are nanoseconds since 1,000,000.
class Writer {
 public:
  explicit Writer(int rank, int ranks = 4, std::uint64_t clock = 1, std::uint64_t ahead = 0) {
    header_.header_bytes = sizeof(TraceHeader);
    header_.ranks = ranks;
    header_.record_bytes = sizeof(TraceRecord);
    header_.rank = rank;
    header_.pid = 1000 + rank;
    header_.clock = clock;
    header_.first = {1'000'000, 1'000'000 + ahead};
    header_.last = {101'000'000, 101'000'000 + ahead};
    std::strcpy(header_.host.data(), "node");
    TraceRecord window;
    window.kind = TraceKind::kWindow;
    window.detail = static_cast<std::uint8_t>(TraceFlavor::kAllocate);
    window.begin = at(0);
    window.granted = kWindowId;
    window.closing = static_cast<std::uint64_t>(rank) | static_cast<std::uint64_t>(ranks) << 32;
    records_.push_back(window);
  }
  static Ticks at(double us) { return 1'000'000 + static_cast<Ticks>(us * 1000); }
  Writer& epoch(EpochKind kind, int target, double begin, double granted, double closing, double end,
                std::uint64_t puts = 0) {
    TraceRecord record;
    record.detail = static_cast<std::uint8_t>(kind);
    record.target = target;
    record.begin = at(begin);
    record.granted = at(granted);
    record.closing = at(closing);
    record.end = at(end);
    record.route = static_cast<std::uint8_t>(RouteKind::kMapped);
    record.count = puts;
    record.bytes = 8 * puts;
    records_.push_back(record);
    return *this;
  }
  Writer& exclusive(int target, double begin, double granted, double end) {
    return epoch(EpochKind::kLockExclusive, target, begin, granted, end, end, 1);
  }
  Writer& add(const TraceRecord& record) {
    records_.push_back(record);
    return *this;
  }
  // Several records if the text is long.
  Writer& text(TraceText::Of of, std::uint32_t number, std::string_view text) {
    for (; !text.empty();) {
      TraceText part;
      part.of = of;
      part.number = number;
      part.bytes = static_cast<std::uint16_t>(text.copy(part.text.data(), part.text.size()));
      text.remove_prefix(part.bytes);
      records_.push_back(std::bit_cast<TraceRecord>(part));
    }
    return *this;
  }
  Writer& host(const char* name) {
    header_.host = {};
    std::strcpy(header_.host.data(), name);
    return *this;
  }
  TraceHeader& header() { return header_; }
  std::vector<TraceRecord>& records() { return records_; }
  std::string bytes() {
    header_.records = records_.size();
    std::string result(reinterpret_cast<const char*>(&header_), sizeof header_);
    result.append(reinterpret_cast<const char*>(records_.data()), records_.size() * sizeof(TraceRecord));
    return result;
  }
  RankTrace trace() { return parse("t." + std::to_string(header_.rank) + ".trace", bytes()); }

 private:
  TraceHeader header_;
  std::vector<TraceRecord> records_;
};

// Rank 0's lock goes from rank 1 to 3 to 2; rank 0 reads rank 1 meanwhile.
Timeline convoy() {
  Writer zero(0), one(1), two(2), three(3);
  zero.epoch(EpochKind::kLockShared, 1, 50, 50, 60, 60, 12);
  one.exclusive(0, 10, 10, 1010);
  three.exclusive(0, 20, 1015, 2000);
  two.exclusive(0, 30, 2005, 3000);
  return merge({zero.trace(), one.trace(), two.trace(), three.trace()});
}

nlohmann::json chrome(const Timeline& timeline) {
  std::ostringstream out;
  write_chrome(out, timeline);
  return nlohmann::json::parse(out.str());
}

std::string refused(const std::string& bytes) {
  try {
    parse("t.0.trace", bytes);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "accepted";
}

}  // namespace

TEST_CASE("of a lock convoy each waiter names those that held the lock, in their order") {
  const Timeline timeline = convoy();
  const std::vector<LockWait> waits = lock_waits(timeline);
  REQUIRE(waits.size() == 2);
  CHECK_THAT(in_words(timeline, waits[0]), Contains("rank 2 waited 1.98 ms for an exclusive lock at rank 0") &&
                                               Contains("held by rank 1 (980 us), rank 3 (985 us)"));
  CHECK_THAT(in_words(timeline, waits[1]),
             Contains("rank 3 waited 995 us") && Contains("held by rank 1 (990 us)") && !Contains("rank 2"));
}

TEST_CASE("readers wait for writers and writers for readers, but readers not for readers") {
  Writer one(1), two(2), three(3);
  one.epoch(EpochKind::kLockShared, 0, 10, 10, 100, 100);
  two.epoch(EpochKind::kLockShared, 0, 20, 25, 120, 120);
  three.exclusive(0, 30, 121, 200);
  const Timeline timeline = merge({one.trace(), two.trace(), three.trace()});
  const std::vector<LockWait> waits = lock_waits(timeline);
  REQUIRE(waits.size() == 2);
  CHECK(waits[0].holders.size() == 2);
  CHECK(timeline.epochs[waits[0].epoch].process == 2);
  CHECK(waits[1].holders.empty());
}

TEST_CASE(
    "lock_all and exclusive locks at any target wait for each other; locks of other targets and windows do "
    "not count") {
  Writer one(1), two(2), three(3);
  one.epoch(EpochKind::kLockAll, -1, 10, 10, 100, 100);
  two.exclusive(3, 20, 101, 150);
  three.epoch(EpochKind::kLockAll, -1, 110, 151, 200, 200);
  one.exclusive(1, 100, 100, 160);
  TraceRecord window = one.records()[0];
  window.window = 1;
  window.granted = 78;
  three.add(window);
  three.exclusive(0, 30, 90, 95);
  three.records().back().window = 1;
  const Timeline timeline = merge({one.trace(), two.trace(), three.trace()});
  CHECK(timeline.windows.size() == 2);
  const std::vector<LockWait> waits = lock_waits(timeline);
  REQUIRE(waits.size() == 3);
  CHECK(waits[0].holders.size() == 1);  // rank 2 for the lock_all of rank 1
  CHECK(timeline.epochs[waits[0].holders[0].epoch].kind == EpochKind::kLockAll);
  CHECK(waits[1].holders.empty());      // in another window
  CHECK(waits[2].holders.size() == 2);  // rank 3's lock_all for both exclusive locks
}

TEST_CASE("clocks of other nodes are moved by their offset") {
  constexpr std::uint64_t kAhead = 5'000'000'000;  // of rank 0's
  for (const bool known : {true, false}) {
    Writer zero(0), one(1, 4, 2, kAhead);
    zero.exclusive(0, 10, 10, 500);
    one.exclusive(0, 100, 505, 600);
    if (known) {
      TraceRecord offset;
      offset.kind = TraceKind::kClock;
      offset.granted = 1;
      offset.begin = static_cast<std::uint64_t>(-static_cast<std::int64_t>(kAhead));  // the other is behind
      offset.end = 20'000;
      one.add(offset);
    }
    const Timeline timeline = merge({zero.trace(), one.trace()});
    CHECK(timeline.processes[1].uncertain == (known ? 20'000 : -1));
    const std::vector<LockWait> waits = lock_waits(timeline);
    REQUIRE(waits.size() == 1);
    CHECK(waits[0].holders.size() == (known ? 1 : 0));
    CHECK_THAT(summary(timeline),
               known ? Contains("aligned to 20.0 us") : Contains("! the clock of rank 1 on node was not compared"));
  }
}

TEST_CASE("of a fence the last to come is the one the others waited for") {
  Writer zero(0, 2), one(1, 2);
  zero.epoch(EpochKind::kFence, -1, 10, 10, 10, 105).epoch(EpochKind::kFence, -1, 105, 105, 200, 210);
  one.epoch(EpochKind::kFence, -1, 100, 100, 100, 105).epoch(EpochKind::kFence, -1, 105, 105, 205, 210);
  const Timeline timeline = merge({zero.trace(), one.trace()});
  const std::vector<FenceWait> waits = fence_waits(timeline);
  REQUIRE(waits.size() == 2);
  CHECK(timeline.epochs[waits[0].last].process == 1);
  CHECK(waits[0].together == 90'000);
  CHECK(waits[1].together == 5'000);
  // Where some are missing, the n-th of one rank need not be the n-th of the others.
  Writer lost(1, 2);
  lost.epoch(EpochKind::kFence, -1, 105, 105, 205, 210).header().lost_epochs = 1;
  CHECK(fence_waits(merge({zero.trace(), lost.trace()})).empty());
}

TEST_CASE("the summary has epochs, operations by route and slow targets, and says what was lost") {
  Writer zero(0);
  zero.epoch(EpochKind::kLockShared, 2, 10, 10, 50, 60, 7);
  TraceRecord more = zero.records().back();
  more.kind = TraceKind::kCounts;
  more.what = static_cast<std::uint8_t>(Counted::kGet);
  more.route = static_cast<std::uint8_t>(RouteKind::kFabric);
  more.count = 9;
  more.begin = more.granted = more.closing = 0;
  zero.add(more);
  TraceRecord total;
  total.kind = TraceKind::kTotal;
  total.detail = static_cast<std::uint8_t>(EpochKind::kLockShared);
  total.count = 1000;
  total.begin = 50'000'000;
  total.end = 10'000'000;
  zero.add(total);
  zero.header().lost_epochs = 999;
  const std::string text = summary(merge({zero.trace()}));
  CHECK_THAT(text, Contains("lock_shared |   1000 |      50.0 ms |          10.0 ms"));
  CHECK_THAT(text, Contains("mapped: put") && Contains("fabric: get"));
  CHECK_THAT(text, Contains("rank 2 of the window, window 0"));
  CHECK_THAT(text, Contains("! rank 0: the oldest records were overwritten: 999 of epochs"));
}

TEST_CASE("the trace for Perfetto is JSON with a slice per epoch and an arrow per wait") {
  const nlohmann::json trace = chrome(convoy());
  int slices = 0, waits = 0, begins = 0, ends = 0;
  for (const auto& event : trace.at("traceEvents")) {
    const std::string phase = event.at("ph");
    if (phase == "X") (event.at("cat") == "wait" ? waits : slices) += 1;
    begins += phase == "s";
    ends += phase == "f";
    if (phase == "X" && event.at("pid") == 2 && event.at("cat") == "epoch") {
      CHECK(event.at("args").at("waited for") == nlohmann::json({"rank 1", "rank 3"}));
      CHECK(event.at("ts").get<double>() == Approx(30));
      CHECK(event.at("dur").get<double>() == Approx(2970));
    }
  }
  CHECK(slices == 4);
  CHECK(waits == 2);
  CHECK(begins == 2);
  CHECK(ends == 2);
}

TEST_CASE("ranks are named with their host if there are several, and windows by the program's name") {
  Writer zero(0, 2), one(1, 2);
  zero.exclusive(0, 10, 10, 1010).host("a");
  one.exclusive(0, 20, 1015, 2000).host("b").text(TraceText::Of::kWindow, 0, std::string(60, 'x') + " grid\n");
  const Timeline timeline = merge({zero.trace(), one.trace()});
  CHECK_THAT(in_words(timeline, lock_waits(timeline).at(0)),
             Contains("rank 1 on b waited 995 us for an exclusive lock at rank 0 on a (window 0 '" +
                      std::string(60, 'x') + " grid?', at ") &&
                 Contains("held by rank 0 on a (990 us)"));
  CHECK_THAT(summary(timeline), !Contains("all on "));
  CHECK_THAT(summary(convoy()), Contains("all on node\n"));
  CHECK_THAT(summary(convoy()), !Contains("rank 0 on node"));
}

TEST_CASE("ranks that share cores are said first") {
  Writer zero(0, 2), one(1, 2);
  zero.text(TraceText::Of::kCpus, 0, "3");
  one.text(TraceText::Of::kCpus, 0, "3");
  CHECK_THAT(summary(merge({zero.trace(), one.trace()})), Contains("\n! 2 ranks share 1 core on node: "));
}

TEST_CASE("those for whom others waited come in the order of these waits") {
  Writer zero(0, 3), one(1, 3), two(2, 3);
  one.exclusive(0, 10, 10, 1010);
  two.exclusive(0, 20, 1015, 2000);
  zero.exclusive(0, 30, 2005, 3000);
  for (Writer* each : {&zero, &one, &two})
    each->epoch(EpochKind::kFence, -1, 4000, 4000, each == &zero ? 9000 : 5000, 9001);
  const Timeline timeline = merge({zero.trace(), one.trace(), two.trace()});
  const std::vector<AwaitedProcess> found = awaited_processes(timeline);
  REQUIRE(found.size() == 3);
  CHECK(in_words(timeline, found[0]) == "rank 0: others waited 8.00 ms for it at fences (1)");
  CHECK(in_words(timeline, found[1]) == "rank 1: others waited 1.97 ms for locks that it held (2 waits)");
  CHECK(found[2].process == 2);
}

TEST_CASE("what is between two fences is not shown as a fence") {
  Writer zero(0, 1);
  zero.epoch(EpochKind::kFence, -1, 10, 10, 500, 510);
  double between = 0, fences = 0;
  const nlohmann::json trace = chrome(merge({zero.trace()}));
  for (const auto& event : trace.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const std::string name = event.at("name");
    CHECK((name == "between fences" || name == "MPI_Win_fence"));
    (name == "MPI_Win_fence" ? fences : between) += event.at("dur").get<double>();
  }
  CHECK(between == Approx(490));
  CHECK(fences == Approx(10));
}

TEST_CASE("the trace for Perfetto has the call sites") {
  Writer zero(0, 2);
  zero.exclusive(1, 10, 30, 100);
  zero.records().back().site = 1;
  TraceRecord put;
  put.kind = TraceKind::kOperation;
  put.what = static_cast<std::uint8_t>(Counted::kPut);
  put.site = 2;
  put.begin = put.end = Writer::at(200);
  zero.add(put);
  zero.text(TraceText::Of::kSite, 1, "solve+0x10 (program+0x1234)").text(TraceText::Of::kSite, 2, "program+0x2000");
  const nlohmann::json trace = chrome(merge({zero.trace()}));
  std::map<std::string, std::string> sites;  // by slice
  for (const auto& event : trace.at("traceEvents"))
    if (event.contains("args") && event.at("args").contains("call site"))
      sites[event.at("name")] = event.at("args").at("call site");
  CHECK(sites == std::map<std::string, std::string>{{"lock_exclusive", "solve+0x10 (program+0x1234)"},
                                                    {"put", "program+0x2000"}});
}

TEST_CASE("what was reported to the program is told with its rank and time, and shown above the time lines") {
  Writer zero(0, 2), one(1, 2);
  zero.epoch(EpochKind::kFence, -1, 0, 0, 1, 1);
  TraceRecord report;
  report.kind = TraceKind::kReport;
  report.begin = report.end = Writer::at(500);
  report.count = 7;
  one.add(report).text(TraceText::Of::kReport, 7, "MPI_Put on window 'grid', target 0: bytes 0 to 4 are in use");
  report.count = 8;  // without a text
  one.add(report);
  const Timeline timeline = merge({zero.trace(), one.trace()});
  REQUIRE(timeline.warnings.size() == 1);
  CHECK_THAT(timeline.warnings[0],
             Contains("rank 1, at 500") && Contains(": MPI_Put on window 'grid', target 0: bytes"));
  CHECK_THAT(summary(timeline), Contains("! " + timeline.warnings[0]));
  CHECK(chrome(timeline).at("otherData").at("warnings").at(0) == timeline.warnings[0]);
}

TEST_CASE("a wait for a lock names the code that held it") {
  Writer zero(0, 3), one(1, 3), two(2, 3);
  zero.epoch(EpochKind::kFence, -1, 0, 0, 1, 1);
  one.exclusive(0, 10, 10, 1000);
  one.records().back().site = 1;
  one.text(TraceText::Of::kSite, 1, "write_row (grid.c:7)");
  two.exclusive(0, 20, 1000, 1010);
  const Timeline timeline = merge({zero.trace(), one.trace(), two.trace()});
  const std::vector<LockWait> waits = lock_waits(timeline);
  REQUIRE(waits.size() == 1);
  CHECK_THAT(in_words(timeline, waits.front()), Contains("held by rank 1 (980 us, in write_row (grid.c:7))"));
  std::ostringstream page;
  write_page(page, timeline);
  CHECK_THAT(page.str(), Contains("in write_row (grid.c:7)"));
}

TEST_CASE("the page holds its data and asks for nothing else; of too many bars the shortest are left out") {
  const auto data_of = [](std::size_t most) {
    std::ostringstream out;
    write_page(out, convoy(), most);
    const std::string page = out.str();
    CHECK(page.find("src=") == std::string::npos);
    CHECK(page.find("http") == std::string::npos);
    const std::string mark = "id=\"data\">";
    const std::size_t begin = page.find(mark) + mark.size();
    return nlohmann::json::parse(page.substr(begin, page.find("</script>", begin) - begin));
  };
  CHECK(data_of(100).at("bars").size() == 4);
  CHECK(data_of(100).at("left_out") == 0);
  CHECK(data_of(100).at("waits").size() == 2);
  CHECK(data_of(100).at("culprits").size() == 2);
  CHECK(data_of(100).at("processes").at(1) == nlohmann::json({"rank 1", "node"}));
  // Those that waits speak of stay.
  CHECK(data_of(1).at("bars").size() == 3);
  CHECK(data_of(1).at("left_out") == 1);
}

TEST_CASE("a trace that is damaged is refused, with the reason") {
  Writer writer(0);
  writer.exclusive(0, 10, 20, 30);
  const std::string good = writer.bytes();
  CHECK(refused(good) == "accepted");
  CHECK_THAT(refused(""), Contains("t.0.trace: 0 bytes are less than"));
  CHECK_THAT(refused(good.substr(0, 255)), Contains("less than the 256 of a header"));
  CHECK_THAT(refused(good.substr(0, good.size() - 1)), Contains("2 records are announced and 1 are there"));
  CHECK_THAT(refused(good + "x"), Contains("cut short"));
  const auto with = [&](auto change) {
    Writer other = writer;
    change(other);
    return refused(other.bytes());
  };
  CHECK_THAT(with([](Writer& w) { w.header().magic[3] = '?'; }), Contains("no trace of farside"));
  CHECK_THAT(with([](Writer& w) { w.header().version = 1; }), Contains("of version 1"));
  CHECK_THAT(with([](Writer& w) { w.header().ranks = -1; }), Contains("its header has a value"));
  CHECK_THAT(with([](Writer& w) { w.header().spawned = 2; }), Contains("its header has a value"));
  CHECK_THAT(with([](Writer& w) { w.header().written = -1; }), Contains("its header has a value"));
  CHECK_THAT(with([](Writer& w) { w.header().order = 0x04030201; }), Contains("another byte order"));
  CHECK_THAT(with([](Writer& w) { w.header().last = w.header().first; }), Contains("clock does not run"));
  CHECK_THAT(with([](Writer& w) { w.records()[1].begin = ~Ticks{0}; }), Contains("record 1 is of a time"));
  CHECK_THAT(with([](Writer& w) { std::swap(w.records()[1].begin, w.records()[1].end); }),
             Contains("ends before it begins"));
  CHECK_THAT(with([](Writer& w) { w.records()[1].kind = static_cast<TraceKind>(0); }), Contains("of kind 0"));
  CHECK_THAT(with([](Writer& w) {
               TraceText text;
               text.bytes = 57;
               w.add(std::bit_cast<TraceRecord>(text));
             }),
             Contains("a value that there is not"));
  CHECK_THAT(with([](Writer& w) {
               TraceText text;
               text.of = static_cast<TraceText::Of>(4);
               w.add(std::bit_cast<TraceRecord>(text));
             }),
             Contains("a value that there is not"));
  CHECK_THAT(with([](Writer& w) { w.records()[1].detail = 6; }), Contains("a value that there is not"));
  CHECK_THAT(with([](Writer& w) { w.records()[1].route = 4; }), Contains("a value that there is not"));
  CHECK_THAT(with([](Writer& w) { w.records()[1].target = -2; }), Contains("a value that there is not"));
}

TEST_CASE("traces of two launches are refused, and ranks without a trace are said") {
  std::string folder = (std::filesystem::temp_directory_path() / "farside-test.XXXXXX").string();
  REQUIRE(mkdtemp(folder.data()) != nullptr);
  const std::string prefix = folder + "/t";
  const auto write = [&](int rank, int ranks, std::uint64_t agreed) {
    Writer writer(rank, ranks);
    writer.header().agreed = agreed;
    std::ofstream(prefix + "." + std::to_string(rank) + ".trace", std::ios::binary) << writer.bytes();
  };
  for (int rank = 0; rank < 4; ++rank) write(rank, 4, 7);
  std::vector<std::string> left_out;
  CHECK(read_all(prefix, left_out).size() == 4);
  CHECK(read_all(prefix + ".3.trace", left_out).size() == 4);
  CHECK_THAT(summary(merge(read_all(prefix, left_out))), !Contains("! "));
  std::filesystem::resize_file(prefix + ".1.trace", 20);
  CHECK(read_all(prefix, left_out).size() == 3);
  REQUIRE(left_out.size() == 1);
  CHECK_THAT(left_out[0], Contains("t.1.trace: 20 bytes are less than"));
  for (int rank = 0; rank < 2; ++rank) write(rank, 2, 8);
  CHECK_THROWS_WITH(read_all(prefix, left_out),
                    Contains("written by 2 launches") && Contains("t.2.trace, ") && Contains("FARSIDE_TRACE=PREFIX"));
  std::filesystem::remove(prefix + ".0.trace");
  std::filesystem::remove(prefix + ".1.trace");
  CHECK_THAT(summary(merge(read_all(prefix, left_out))),
             Contains("! 2 of 4 ranks have left no file here (ranks 0, 1)"));
  std::filesystem::remove_all(folder);
}

TEST_CASE("a prefix without files says what to do") {
  std::vector<std::string> left_out;
  CHECK_THROWS_WITH(read_all("/nonexistent/prefix", left_out), Contains("/nonexistent"));
  CHECK_THROWS_WITH(read_all("/tmp/farside-no-such-trace", left_out),
                    Contains("run the program with FARSIDE_TRACE=/tmp/farside-no-such-trace"));
}

}  // namespace farside::trace_test
