// SPDX-License-Identifier: BSD-3-Clause
// Which of several devices is near. The test makes a sysfs like that of a machine with two sockets and two adapters.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/fabric/devices.hpp"
#include "transport/fabric/handles.hpp"

namespace farside::nearest_device_test {

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

// The fi_info of a device at 0000:BUS:00.0; `network`: the name of its network, or null.
class Device {
 public:
  Device(std::uint8_t bus, const char* network) : info_(fi_allocinfo()) {
    bus_.bus_type = FI_BUS_PCI;
    bus_.attr.pci = {0, bus, 0, 0};
    nic_.bus_attr = &bus_;
    info_->nic = &nic_;
    info_->domain_attr->name = strdup("mlx5_0");
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
  CHECK(read_cpu_list("0-3,8") == std::set<int>{0, 1, 2, 3, 8});
  CHECK(read_cpu_list("5") == std::set<int>{5});
  CHECK(read_cpu_list("")->empty());
  for (const char* const bad : {"x", "1-", "-1", "3-1", "1,,2", "1 2", "1-2-3", "0-99999999", "99999999999"}) {
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

TEST_CASE("what the choice needs to know of an adapter comes from libfabric and from sysfs") {
  cpu_set_t own;
  REQUIRE(sched_getaffinity(0, sizeof own, &own) == 0);
  std::string here;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (CPU_ISSET(static_cast<std::size_t>(number), &own)) here += (here.empty() ? "" : ",") + std::to_string(number);
  }
  const Sysfs sys;
  sys.device("0000:01:00.0", here);
  const auto port = sys.root() / "class/infiniband/mlx5_0/ports/1";
  std::filesystem::create_directories(port);
  std::ofstream(port / "state") << "4: ACTIVE\n";
  std::ofstream(port / "rate") << "100 Gb/sec (4X EDR)\n";
  const Device device(1, "network"), nowhere(3, nullptr);
  const DeviceTraits traits = device_traits(device.info(), true, sys.root());
  CHECK(traits.fabric == "network");
  CHECK(traits.rate == 100);
  CHECK(traits.nearness == Nearness::kNear);
  CHECK_FALSE(traits.beside_others);  // no interface of it is known
  CHECK(device_traits(device.info(), false, sys.root()).rate == 0);
  CHECK(device_traits(device.info(), false, sys.root()).beside_others);
  CHECK(device_traits(nowhere.info(), true, sys.root()).fabric.empty());
  CHECK(device_traits(nowhere.info(), true, sys.root()).nearness == Nearness::kUnknown);
}

TEST_CASE("of the devices on the network of the fastest one the nearest is taken") {
  const auto device = [](Nearness nearness, double rate = 100, const char* network = "InfiniBand 10.1.0.0/16",
                         const char* fabric = "IB-0xfe80000000000000") {
    return DeviceTraits{fabric, {network}, rate, true, nearness};
  };
  constexpr auto kNear = Nearness::kNear, kPartly = Nearness::kPartly, kFar = Nearness::kFar;
  const auto chosen = [](const std::vector<DeviceTraits>& all) {
    std::set<std::size_t> indexes;
    for (std::size_t process = 0; process < 64; ++process) indexes.insert(choose_device(all, process));
    return indexes;
  };
  using Indexes = std::set<std::size_t>;
  CHECK(chosen({device(kFar)}) == Indexes{0});
  CHECK(chosen({device(kNear), device(kFar)}) == Indexes{0});
  CHECK(chosen({device(kFar), device(kNear)}) == Indexes{1});
  CHECK(chosen({device(kFar), device(kPartly), device(kNear), device(kPartly)}) == Indexes{2});
  // Other processes may take the first device, so a nearer device on another network cannot reach them.
  CHECK(chosen({device(kFar), device(kNear, 100, "InfiniBand 10.2.0.0/16")}) == Indexes{0});
  CHECK(chosen({device(kFar), device(kNear, 100, "Ethernet 10.1.0.0/16")}) == Indexes{0});
  CHECK(chosen({device(kFar), device(kNear, 100, "InfiniBand 10.1.0.0/16", "IB-0xfe80000000000001")}) == Indexes{0});
  // Slower devices are not taken, even if they are the first or nearer.
  CHECK(chosen({device(kNear, 25), device(kFar), device(kFar)}) == Indexes{1, 2});
  CHECK(chosen({device(kNear), device(kNear, 25)}) == Indexes{0});
  // If the interface of a device also answers for other addresses, neither it nor another device replaces the first
  // one.
  for (const std::size_t which : {0U, 1U}) {
    std::vector<DeviceTraits> two = {device(kFar), device(kNear)};
    two[which].beside_others = false;
    CHECK(chosen(two) == Indexes{0});
  }
  // The processes are distributed among equally near devices.
  CHECK(chosen({device(kNear), device(kNear)}) == Indexes{0, 1});
  CHECK(chosen({device(kFar), device(kFar)}) == Indexes{0, 1});
  CHECK(chosen({device(kFar), device(kNear), device(kNear), device(kFar)}) == Indexes{1, 2});
  CHECK(chosen({device(kNear), device(kNear, 100, "InfiniBand 10.2.0.0/16"), device(kNear)}) == Indexes{0, 2});
  // A device whose nearness is unknown does not replace another one, and is not replaced.
  constexpr auto kUnknown = Nearness::kUnknown;
  CHECK(chosen({device(kUnknown), device(kNear)}) == Indexes{0});
  CHECK(chosen({device(kFar), device(kUnknown)}) == Indexes{0});
  CHECK(chosen({device(kUnknown), device(kUnknown)}) == Indexes{0, 1});
}

TEST_CASE("the processes of a node are spread evenly, however the launcher binds them") {
  for (const std::size_t devices : {1U, 2U, 4U}) {
    for (const std::size_t sockets : {1U, 2U, 4U}) {
      for (const bool alternately : {false, true}) {
        constexpr std::size_t kProcesses = 64;
        // How many processes of a socket take each of its devices.
        std::vector<std::vector<std::size_t>> taken(sockets, std::vector<std::size_t>(devices));
        for (std::size_t process = 0; process < kProcesses; ++process) {
          const std::size_t socket = alternately ? process % sockets : process * sockets / kProcesses;
          ++taken[socket][spread_over(devices, process)];
        }
        INFO(devices << " devices, " << sockets << " sockets, " << alternately);
        for (const auto& of_socket : taken)
          CHECK(of_socket == std::vector<std::size_t>(devices, kProcesses / sockets / devices));
      }
    }
  }
  for (std::size_t first = 0; first < 30; first += 3) {
    std::set<std::size_t> three;
    for (std::size_t process = first; process < first + 3; ++process) three.insert(spread_over(3, process));
    CHECK(three.size() == 3);
  }
}

TEST_CASE("the launcher says which process of its node this is") {
  const char* const kNames[] = {"OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_LOCALID", "FLUX_TASK_LOCAL_ID",
                                "PALS_LOCAL_RANKID"};
  for (const char* const name : kNames) unsetenv(name);
  CHECK(process_of_node() == 0);
  for (const char* const name : kNames) {
    INFO(name);
    setenv(name, "17", 1);
    CHECK(process_of_node() == 17);
    setenv(name, "x", 1);
    CHECK(process_of_node() == 0);
    setenv(name, "", 1);
    CHECK(process_of_node() == 0);
    unsetenv(name);
  }
}

}  // namespace farside::nearest_device_test
