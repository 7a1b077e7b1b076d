// SPDX-License-Identifier: BSD-3-Clause
// Large puts and gets between hosts with two devices each: halves go by the second one, whatever completes them, and
// nothing overtakes them.
//
//   rails [create] DEVICE|none    DEVICE carries its share of what is transferred, as the kernel counts it: an
//                                 interface (/proc/net/dev) or an adapter (hw_counters of sysfs); none: not looked at
//   rails [create] not DEVICE     it carries nothing
#include <fstream>
#include <optional>

#include "check.hpp"

namespace {

constexpr int kSplitFrom = 256 << 10;
constexpr MPI_Aint kBytes = MPI_Aint{6} << 20;
// Around the limit, and of no whole pages.
constexpr int kSizes[] = {kSplitFrom - 1, kSplitFrom, kSplitFrom + 1, 1'000'003, 3 << 20};

std::vector<unsigned char> pattern(int bytes, int seed) {
  std::vector<unsigned char> data(static_cast<std::size_t>(bytes));
  std::mt19937 random(static_cast<std::uint32_t>(seed));
  for (unsigned char& each : data) each = static_cast<unsigned char>(random());
  return data;
}

int next() { return (check::rank() + 1) % check::size(); }
int previous() { return (check::rank() + check::size() - 1) % check::size(); }

void expect(const unsigned char* memory, const std::vector<unsigned char>& wanted, const char* what) {
  const auto [found, there] = std::mismatch(wanted.begin(), wanted.end(), memory);
  if (found == wanted.end()) return;
  check::fail(__FILE__, __LINE__,
              std::string(what) + ": byte " + std::to_string(found - wanted.begin()) + " of " +
                  std::to_string(wanted.size()) + " is wrong");
}

// What was put is there after a fence, and comes back.
void fences(const check::Window& window) {
  for (const int bytes : kSizes) {
    const int offset = bytes % 4099;
    const std::vector<unsigned char> out = pattern(bytes, bytes + check::rank());
    CHECK_MPI(MPI_Win_fence(0, window));
    CHECK_MPI(MPI_Put(out.data(), bytes, MPI_BYTE, next(), offset, bytes, MPI_BYTE, window));
    CHECK_MPI(MPI_Win_fence(0, window));
    expect(window.as<unsigned char>() + offset, pattern(bytes, bytes + previous()), "a put before a fence");
    std::vector<unsigned char> in(out.size());
    CHECK_MPI(MPI_Get(in.data(), bytes, MPI_BYTE, next(), offset, bytes, MPI_BYTE, window));
    CHECK_MPI(MPI_Win_fence(0, window));
    expect(in.data(), out, "a get before a fence");
  }
}

// The next owner of the lock sees what was put before the lock was given back, many times.
void locks(const check::Window& window) {
  constexpr int kRounds = 30, kLength = 2 * kSplitFrom;
  const int last = check::size() - 1;
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, check::rank(), 0, window));
  std::memset(window.as<unsigned char>(), 0, kLength);
  CHECK_MPI(MPI_Win_unlock(check::rank(), window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  for (int round = 0; round < kRounds; ++round) {
    std::vector<unsigned char> seen(kLength);
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, last, 0, window));
    CHECK_MPI(MPI_Get(seen.data(), kLength, MPI_BYTE, last, 0, kLength, MPI_BYTE, window));
    CHECK_MPI(MPI_Win_flush(last, window));
    for (const unsigned char each : seen) CHECK_EQ(int{each}, int{seen[0]});
    const std::vector<unsigned char> own(seen.size(), static_cast<unsigned char>(seen[0] + 1));
    CHECK_MPI(MPI_Put(own.data(), kLength, MPI_BYTE, last, 0, kLength, MPI_BYTE, window));
    CHECK_MPI(MPI_Win_unlock(last, window));
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  if (check::rank() == last) {
    CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, last, 0, window));
    const auto wanted = static_cast<unsigned char>(kRounds * check::size());
    expect(window.as<unsigned char>(), std::vector<unsigned char>(kLength, wanted), "the last owner's put");
    CHECK_MPI(MPI_Win_unlock(last, window));
  }
}

// MPI_Win_complete does not overtake puts.
void active(const check::Window& window) {
  const check::Group to({next()}), from({previous()});
  for (int round = 0; round < 20; ++round) {
    const std::vector<unsigned char> out = pattern(kSplitFrom + 7, 100 * round + check::rank());
    CHECK_MPI(MPI_Win_post(from, 0, window));
    CHECK_MPI(MPI_Win_start(to, 0, window));
    CHECK_MPI(MPI_Put(out.data(), kSplitFrom + 7, MPI_BYTE, next(), 5, kSplitFrom + 7, MPI_BYTE, window));
    CHECK_MPI(MPI_Win_complete(window));
    CHECK_MPI(MPI_Win_wait(window));
    expect(window.as<unsigned char>() + 5, pattern(kSplitFrom + 7, 100 * round + previous()), "a put before complete");
  }
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

// Requests, and blocks of a derived type.
void requests(const check::Window& window) {
  const int bytes = 1'000'003;
  const std::vector<unsigned char> out = pattern(bytes, 7 * check::rank());
  std::vector<unsigned char> in(out.size());
  MPI_Request request = MPI_REQUEST_NULL;
  CHECK_MPI(MPI_Win_lock_all(0, window));
  CHECK_MPI(MPI_Rput(out.data(), bytes, MPI_BYTE, next(), 3, bytes, MPI_BYTE, window, &request));
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  CHECK_MPI(MPI_Win_flush(next(), window));
  CHECK_MPI(MPI_Rget(in.data(), bytes, MPI_BYTE, next(), 3, bytes, MPI_BYTE, window, &request));
  CHECK_MPI(MPI_Wait(&request, MPI_STATUS_IGNORE));
  expect(in.data(), out, "MPI_Rget");
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  MPI_Datatype blocks = MPI_DATATYPE_NULL;
  CHECK_MPI(MPI_Type_vector(3, 300'000, 500'000, MPI_BYTE, &blocks));
  CHECK_MPI(MPI_Type_commit(&blocks));
  CHECK_MPI(MPI_Put(out.data(), 900'000, MPI_BYTE, next(), 0, 1, blocks, window));
  CHECK_MPI(MPI_Win_flush_all(window));
  CHECK_MPI(MPI_Get(in.data(), 900'000, MPI_BYTE, next(), 0, 1, blocks, window));
  CHECK_MPI(MPI_Win_unlock_all(window));
  expect(in.data(), {out.begin(), out.begin() + 900'000}, "three large blocks");
  CHECK_MPI(MPI_Type_free(&blocks));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
}

// Accumulates stay with the first device, between large puts elsewhere.
void accumulates(const check::Window& window) {
  const std::vector<unsigned char> out = pattern(kSplitFrom, check::rank());
  const std::int64_t one = 1;
  if (check::rank() == 0) *window.as<std::int64_t>() = 0;
  CHECK_MPI(MPI_Win_fence(0, window));
  const MPI_Aint place = 4096 + MPI_Aint{kSplitFrom} * check::rank();
  for (int i = 0; i < 10; ++i) {
    CHECK_MPI(MPI_Put(out.data(), kSplitFrom, MPI_BYTE, 0, place, kSplitFrom, MPI_BYTE, window));
    CHECK_MPI(MPI_Accumulate(&one, 1, MPI_INT64_T, 0, 0, 1, MPI_INT64_T, MPI_SUM, window));
  }
  CHECK_MPI(MPI_Win_fence(0, window));
  if (check::rank() == 0) CHECK_EQ(*window.as<std::int64_t>(), std::int64_t{10} * check::size());
}

// The memory of a dynamic window is reached by the first device alone.
void dynamic() {
  std::vector<unsigned char> memory(1'000'003);
  MPI_Win window = MPI_WIN_NULL;
  CHECK_MPI(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &window));
  CHECK_MPI(MPI_Win_attach(window, memory.data(), static_cast<MPI_Aint>(memory.size())));
  MPI_Aint own = 0, there = 0;
  CHECK_MPI(MPI_Get_address(memory.data(), &own));
  CHECK_MPI(MPI_Sendrecv(&own, 1, MPI_AINT, previous(), 0, &there, 1, MPI_AINT, next(), 0, MPI_COMM_WORLD,
                         MPI_STATUS_IGNORE));
  const std::vector<unsigned char> out = pattern(static_cast<int>(memory.size()), 31 + check::rank());
  CHECK_MPI(MPI_Win_fence(0, window));
  CHECK_MPI(MPI_Put(out.data(), static_cast<int>(out.size()), MPI_BYTE, next(), there, static_cast<int>(out.size()),
                    MPI_BYTE, window));
  CHECK_MPI(MPI_Win_fence(0, window));
  expect(memory.data(), pattern(static_cast<int>(memory.size()), 31 + previous()), "a put into attached memory");
  CHECK_MPI(MPI_Win_detach(window, memory.data()));
  CHECK_MPI(MPI_Win_free(&window));
}

// Windows of different sizes, and of some of the ranks: the last two, which are on different hosts if there are two.
void sizes(check::Memory memory) {
  constexpr int kLength = 2 * kSplitFrom;
  const check::Window uneven(memory, check::rank() == check::size() - 1 ? kLength : 8, 1);
  const std::vector<unsigned char> out = pattern(kLength, 77);
  std::vector<unsigned char> in(out.size());
  const int last = check::size() - 1;
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, last, 0, uneven));
  if (check::rank() == 0) CHECK_MPI(MPI_Put(out.data(), kLength, MPI_BYTE, last, 0, kLength, MPI_BYTE, uneven));
  CHECK_MPI(MPI_Win_unlock(last, uneven));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  CHECK_MPI(MPI_Win_lock(MPI_LOCK_SHARED, last, 0, uneven));
  CHECK_MPI(MPI_Get(in.data(), kLength, MPI_BYTE, last, 0, kLength, MPI_BYTE, uneven));
  CHECK_MPI(MPI_Win_unlock(last, uneven));
  expect(in.data(), out, "in a window of different sizes");
  MPI_Comm some = MPI_COMM_NULL;
  const bool joins = check::rank() >= check::size() - 2;
  CHECK_MPI(MPI_Comm_split(MPI_COMM_WORLD, joins ? 0 : MPI_UNDEFINED, -check::rank(), &some));
  if (!joins) return;
  {
    const check::Window two(memory, kLength, 1, some);
    CHECK_MPI(MPI_Win_fence(0, two));
    CHECK_MPI(MPI_Put(out.data(), kLength, MPI_BYTE, check::rank() == last ? 1 : 0, 0, kLength, MPI_BYTE, two));
    CHECK_MPI(MPI_Win_fence(0, two));
    expect(two.as<unsigned char>(), out, "in a window of two ranks");
  }
  CHECK_MPI(MPI_Comm_free(&some));
}

constexpr check::Section<const check::Window&> kSections[] = {
    {"fences", fences},           {"locks", locks}, {"post, start, complete, wait", active}, {"requests", requests},
    {"accumulates", accumulates},
};

// Returns how many bytes the device of this host has sent; of an adapter, packets of 1 KiB.
double sent(const std::string& device) {
  std::ifstream adapter("/sys/class/infiniband/" + device + "/ports/1/hw_counters/sent_pkts");
  if (double packets = 0; adapter >> packets) return packets * 1024;
  std::ifstream file("/proc/net/dev");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (name != device + ":") continue;
    double value = 0;
    for (int column = 0; column < 9; ++column) words >> value;  // the ninth: bytes sent
    return value;
  }
  check::fail(__FILE__, __LINE__, "no device " + device);
}

// Returns whether this rank has two devices for the window, as its info says.
bool has_two_devices(const check::Window& window) {
  const std::string devices = check::hint(window, "farside_device");
  CHECK(!devices.empty());
  return devices.find(',') != std::string::npos;
}

// `carries`: whether the device carries half of what this rank puts.
void count(const check::Window& window, const std::string& device, bool carries) {
  check::section("the second device's share");
  constexpr int kLength = 4 << 20, kTimes = 8;
  const std::vector<unsigned char> out = pattern(kLength, 3);
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const double before = sent(device);
  CHECK_MPI(MPI_Win_lock_all(0, window));
  if (check::rank() == 0) {
    for (int i = 0; i < kTimes; ++i)
      CHECK_MPI(MPI_Put(out.data(), kLength, MPI_BYTE, check::size() - 1, 0, kLength, MPI_BYTE, window));
  }
  CHECK_MPI(MPI_Win_unlock_all(window));
  CHECK_MPI(MPI_Barrier(MPI_COMM_WORLD));
  const double share = (sent(device) - before) / (double{kLength} * kTimes);
  if (check::rank() != 0) return;
  std::printf("rails: the second device has carried %.2f of what was put\n", share);
  // Headers and acknowledgements come on top.
  CHECK(carries ? share > 0.49 && share < 0.65 : share < 0.01);
}

}  // namespace

int main(int argc, char** argv) {
  check::Program program(argc, argv);
  const std::string device = argc > 1 ? argv[argc - 1] : "none";
  // The first window that needs a network tries the devices, whether it uses the second ones or not.
  check::section("a dynamic window");
  dynamic();
  {
    const check::Window window(program.memory(), kBytes, 1);
    CHECK_EQ(has_two_devices(window), !program.has("not"));
    check::run(kSections, window);
    if (device != "none") count(window, device, !program.has("not"));
  }
  check::section("other sizes and groups");
  sizes(program.memory());
}
