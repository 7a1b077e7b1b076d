// SPDX-License-Identifier: BSD-3-Clause
// Which of several devices is near, with a sysfs made for the test: what two adapters of a machine with two sockets
// show.
#include <catch2/catch.hpp>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <string>

#include <unistd.h>

#include "transport/fabric/handles.hpp"
#include "transport/fabric/nearest_device.hpp"

using namespace farside;

namespace {

cpu_set_t processors(std::initializer_list<int> numbers) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int number : numbers) CPU_SET(static_cast<std::size_t>(number), &set);
  return set;
}

class Sysfs {
 public:
  Sysfs() { std::filesystem::create_directories(root_); }
  ~Sysfs() { std::filesystem::remove_all(root_); }
  void device(const std::string& address, const std::string& cpus) const {
    const auto folder = root_ / "bus/pci/devices" / address;
    std::filesystem::create_directories(folder);
    std::ofstream(folder / "local_cpulist") << cpus << "\n";
  }
  const std::filesystem::path& root() const { return root_; }

 private:
  std::filesystem::path root_ = std::filesystem::temp_directory_path() / ("farside-sysfs-" + std::to_string(getpid()));
};

// What libfabric says of a device at 0000:BUS:00.0, in a network, if it has a name.
class Device {
 public:
  Device(std::uint8_t bus, const char* network) : info_(fi_allocinfo()) {
    bus_.bus_type = FI_BUS_PCI;
    bus_.attr.pci = {0, bus, 0, 0};
    nic_.bus_attr = &bus_;
    info_->nic = &nic_;
    info_->fabric_attr->name = network != nullptr ? strdup(network) : nullptr;  // fi_freeinfo() frees it
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { info_->nic = nullptr; }
  const fi_info& info() const { return *info_; }

 private:
  fi_bus_attr bus_{};
  fid_nic nic_{};
  InfoHandle info_;
};

}  // namespace

TEST_CASE("lists of processors are read as Linux writes them, and nothing else is") {
  CHECK(read_cpu_list("0-3,8") == std::vector<int>{0, 1, 2, 3, 8});
  CHECK(read_cpu_list("5") == std::vector<int>{5});
  CHECK(read_cpu_list("")->empty());
  for (const char* const bad : {"x", "1-", "-1", "1,,2", "1 2", "1-2-3", "99999999999"}) {
    INFO(bad);
    CHECK_FALSE(read_cpu_list(bad).has_value());
  }
}

TEST_CASE("a device is near that belongs to the socket on which the process runs") {
  const Sysfs sys;
  sys.device("0000:3b:00.0", "0-15,32-47");
  sys.device("0000:d8:00.1", "16-31,48-63");
  sys.device("0000:01:00.0", "");
  const auto nearness = [&](const char* address, const cpu_set_t& own) {
    return nearness_of(address, own, sys.root());
  };
  CHECK(nearness("0000:3b:00.0", processors({0, 33})) == Nearness::kNear);
  CHECK(nearness("0000:d8:00.1", processors({0, 33})) == Nearness::kFar);
  CHECK(nearness("0000:d8:00.1", processors({20})) == Nearness::kNear);
  CHECK(nearness("0000:3b:00.0", processors({0, 20})) == Nearness::kPartly);
  CHECK(nearness("0000:01:00.0", processors({0})) == Nearness::kUnknown);
  CHECK(nearness("0000:99:00.0", processors({0})) == Nearness::kUnknown);
  CHECK(nearness("", processors({0})) == Nearness::kUnknown);
  CHECK(Nearness::kNear > Nearness::kPartly);
  CHECK(Nearness::kPartly > Nearness::kFar);
}

TEST_CASE("where a device is on the bus is told as Linux names it") {
  const InfoHandle info(fi_allocinfo());
  CHECK(pci_address(*info).empty());
  fid_nic nic{};
  fi_bus_attr bus{};
  bus.bus_type = FI_BUS_PCI;
  bus.attr.pci = {0, 0xd8, 0, 1};
  nic.bus_attr = &bus;
  info->nic = &nic;
  CHECK(pci_address(*info) == "0000:d8:00.1");
  bus.bus_type = FI_BUS_UNKNOWN;
  CHECK(pci_address(*info).empty());
  info->nic = nullptr;
}

TEST_CASE("of two devices of one network the one that is known to be nearer to this process is taken") {
  cpu_set_t own;
  REQUIRE(sched_getaffinity(0, sizeof own, &own) == 0);
  std::string here;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (CPU_ISSET(static_cast<std::size_t>(number), &own)) here += (here.empty() ? "" : ",") + std::to_string(number);
  }
  constexpr int kNobodys = CPU_SETSIZE - 1;
  REQUIRE_FALSE(CPU_ISSET(static_cast<std::size_t>(kNobodys), &own));
  const Sysfs sys;
  sys.device("0000:01:00.0", here);
  sys.device("0000:02:00.0", std::to_string(kNobodys));
  const Device near(1, "network"), far(2, "network"), unknown(3, "network"), near_elsewhere(1, "another network"),
      nowhere(1, nullptr);
  const auto nearer = [&](const Device& one, const Device& other) {
    return is_nearer(one.info(), other.info(), sys.root());
  };
  CHECK(nearer(near, far));
  CHECK_FALSE(nearer(far, near));
  CHECK_FALSE(nearer(near, near));
  CHECK_FALSE(nearer(far, far));
  CHECK_FALSE(nearer(near_elsewhere, far));
  CHECK_FALSE(nearer(nowhere, far));
  // What is not known is not nearer, nor what stands beside it.
  CHECK_FALSE(nearer(near, unknown));
  CHECK_FALSE(nearer(unknown, far));
  CHECK_FALSE(nearer(unknown, unknown));
}
