// SPDX-License-Identifier: BSD-3-Clause
// What sysfs says of adapters: what keeps them from carrying connections, and which of several is near. The test makes
// a sysfs like that of a machine with two sockets and two adapters.
#include "transport/fabric/devices.hpp"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <map>
#include <set>
#include <string>
#include <unistd.h>
#include <vector>

#include <catch2/catch.hpp>

#include "transport/fabric/handles.hpp"

namespace farside::devices_test {

namespace fs = std::filesystem;

namespace {

// A sysfs of its own, removed at the end.
class Sysfs {
 public:
  Sysfs() { fs::create_directories(adapters()); }
  ~Sysfs() { fs::remove_all(root_); }
  Sysfs(const Sysfs&) = delete;
  Sysfs& operator=(const Sysfs&) = delete;
  const fs::path& root() const { return root_; }

  void add_port(const std::string& adapter, int port, const std::string& state, const std::string& interface = {}) {
    write(port_of(adapter, port) / "state", state);
    if (!interface.empty()) write(port_of(adapter, port) / "gid_attrs/ndevs/0", interface);
  }
  void add_link(const std::string& adapter, int port, const std::string& rate, const std::string& layer) {
    write(port_of(adapter, port) / "rate", rate);
    write(port_of(adapter, port) / "link_layer", layer);
  }
  void add_interface(const std::string& adapter, const std::string& interface) {
    fs::create_directories(adapters() / adapter / "device/net" / interface);
  }
  void set(const std::string& interface, const char* what, const char* value) {
    write(root_ / "conf" / interface / what, value);
  }
  void add_device(const std::string& address, const std::string& cpus) {
    write(root_ / "bus/pci/devices" / address / "local_cpulist", cpus);
  }

 private:
  fs::path adapters() const { return root_ / "class/infiniband"; }
  fs::path port_of(const std::string& adapter, int port) const {
    return adapters() / adapter / "ports" / std::to_string(port);
  }
  static void write(const fs::path& file, const std::string& text) {
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text << "\n";
  }
  const fs::path root_ = fs::temp_directory_path() / ("farside-sysfs-" + std::to_string(getpid()));
};

cpu_set_t processors(std::initializer_list<int> numbers) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int number : numbers) CPU_SET(static_cast<std::size_t>(number), &set);
  return set;
}

// The fi_info of an adapter at 0000:BUS:00.FUNCTION; `network`: the name of its network, or null.
struct Device {
  explicit Device(std::uint8_t bus, std::uint8_t function = 0, const char* network = nullptr) : info(fi_allocinfo()) {
    bus_attributes.bus_type = FI_BUS_PCI;
    bus_attributes.attr.pci = {0, bus, 0, function};
    nic.bus_attr = &bus_attributes;
    nic.device_attr = &attributes;
    info->nic = &nic;
    info->domain_attr->name = strdup("mlx5_0");
    info->fabric_attr->name = network != nullptr ? strdup(network) : nullptr;  // fi_freeinfo() frees it
  }
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;
  ~Device() { info->nic = nullptr; }  // it is not libfabric's

  fi_bus_attr bus_attributes{};
  fi_device_attr attributes{};
  fid_nic nic{};
  InfoHandle info;
};

}  // namespace

TEST_CASE("an adapter carries connections if an active port has an interface with an address") {
  Sysfs sysfs;
  const InterfaceNetworks none, both = {{"eth0", {}}, {"ib0", {}}};
  const auto unusable = [&](const char* name, const InterfaceNetworks& interfaces) {
    return adapter_traits(name, interfaces, sysfs.root()).unusable;
  };
  CHECK(adapter_names(sysfs.root()).empty());
  CHECK(unusable("mlx5_0", both) == "no adapter mlx5_0 on this host, which has none");

  sysfs.add_port("mlx5_1", 1, "1: DOWN", "eth1");
  sysfs.add_port("mlx5_1", 2, "2: INIT");
  CHECK(adapter_names(sysfs.root()) == std::vector<std::string>{"mlx5_1"});
  CHECK(unusable("mlx5_0", both) == "no adapter mlx5_0 on this host, which has mlx5_1");
  CHECK(unusable("mlx5_1", both) == "adapter mlx5_1: port 1 is DOWN, port 2 is INIT");

  sysfs.add_port("rocep1s0", 1, "4: ACTIVE", "eth0");
  CHECK(unusable("rocep1s0", both).empty());
  CHECK(unusable("rocep1s0", none) == "adapter rocep1s0: no IP address on eth0 (port 1)");

  // InfiniBand: the interfaces are those of the adapter.
  sysfs.add_port("mlx5_0", 1, "4: ACTIVE");
  sysfs.add_interface("mlx5_0", "ib0");
  sysfs.add_interface("mlx5_0", "ib1");
  CHECK(unusable("mlx5_0", both).empty());
  CHECK(unusable("mlx5_0", {{"ib1", {}}}).empty());
  CHECK(unusable("mlx5_0", none) == "adapter mlx5_0: no IP address on ib0 or ib1 (port 1)");

  // One good port suffices. Nothing is said against a port whose interfaces are not known.
  sysfs.add_port("mlx5_1", 2, "4: ACTIVE", "eth0");
  CHECK(unusable("mlx5_1", both).empty());
  sysfs.add_port("usnic_0", 1, "4: ACTIVE");
  CHECK(unusable("usnic_0", none).empty());
}

TEST_CASE("the link of an adapter is that of its active ports") {
  Sysfs sysfs;
  const InterfaceNetworks interfaces = {
      {"eth0", {"10.1.0.0/16", "fd00::/64"}}, {"eth1", {"10.2.0.0/16"}}, {"ib0", {"10.3.0.0/16"}}};
  const auto link = [&](const char* name) {
    return adapter_traits(name, interfaces, sysfs.root(), sysfs.root() / "conf");
  };
  sysfs.add_port("mlx5_0", 1, "4: ACTIVE", "eth0");
  sysfs.add_link("mlx5_0", 1, "100 Gb/sec (4X EDR)", "Ethernet");
  sysfs.add_port("mlx5_0", 2, "1: DOWN", "eth1");
  sysfs.add_link("mlx5_0", 2, "200 Gb/sec (4X HDR)", "Ethernet");
  CHECK(link("mlx5_0").rate == 100);
  CHECK(link("mlx5_0").networks == std::set<std::string>{"Ethernet 10.1.0.0/16", "Ethernet fd00::/64"});
  sysfs.add_port("mlx5_0", 2, "4: ACTIVE", "eth1");
  CHECK(link("mlx5_0").rate == 200);
  CHECK(link("mlx5_0").networks.size() == 3);

  // InfiniBand: the interfaces are those of the adapter.
  sysfs.add_port("mlx5_1", 1, "4: ACTIVE");
  sysfs.add_link("mlx5_1", 1, "2.5 Gb/sec (1X SDR)", "InfiniBand");
  sysfs.add_interface("mlx5_1", "ib0");
  sysfs.add_interface("mlx5_1", "ib1");
  CHECK(link("mlx5_1").rate == 2.5);
  CHECK(link("mlx5_1").networks == std::set<std::string>{"InfiniBand 10.3.0.0/16"});

  CHECK(link("nowhere").rate == 0);
  CHECK(link("nowhere").networks.empty());
  CHECK_FALSE(link("nowhere").beside_others);

  // All interfaces of active ports answer for themselves alone, by either setting, of their own or for all.
  sysfs.set("eth0", "arp_ignore", "1");
  CHECK_FALSE(link("mlx5_0").beside_others);
  sysfs.set("eth1", "arp_ignore", "0");
  CHECK_FALSE(link("mlx5_0").beside_others);
  sysfs.set("eth1", "arp_filter", "1");
  CHECK(link("mlx5_0").beside_others);
  sysfs.set("eth0", "arp_ignore", "0");
  CHECK_FALSE(link("mlx5_0").beside_others);
  CHECK_FALSE(link("mlx5_1").beside_others);
  sysfs.set("all", "arp_ignore", "2");
  CHECK(link("mlx5_1").beside_others);
}

TEST_CASE("the loopback interface has an address, and its network is known") {
  CHECK(interface_networks().at("lo").contains("127.0.0.0/8"));
}

TEST_CASE("an emulated adapter is known by its vendor") {
  CHECK_FALSE(is_emulated(*InfoHandle(fi_allocinfo())));
  Device device(1);
  CHECK_FALSE(is_emulated(*device.info));
  char mellanox[] = "0x02c9", rxe[] = "0xffffff", siw[] = "0x626d74";
  for (char* const vendor : {mellanox, rxe, siw}) {
    device.attributes.vendor_id = vendor;
    CHECK(is_emulated(*device.info) == (vendor != mellanox));
  }
}

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
  Sysfs sys;
  sys.add_device("0000:3b:00.0", "0-15,32-47");
  sys.add_device("0000:d8:00.1", "16-31,48-63");
  sys.add_device("0000:01:00.0", "");
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
  CHECK(pci_address(*InfoHandle(fi_allocinfo())).empty());
  Device device(0xd8, 1);
  CHECK(pci_address(*device.info) == "0000:d8:00.1");
  device.bus_attributes.bus_type = FI_BUS_UNKNOWN;
  CHECK(pci_address(*device.info).empty());
}

TEST_CASE("what the choice needs to know of an adapter comes from libfabric and from sysfs") {
  cpu_set_t own;
  REQUIRE(sched_getaffinity(0, sizeof own, &own) == 0);
  std::string here;
  for (int number = 0; number < CPU_SETSIZE; ++number) {
    if (CPU_ISSET(static_cast<std::size_t>(number), &own)) here += (here.empty() ? "" : ",") + std::to_string(number);
  }
  Sysfs sys;
  sys.add_device("0000:01:00.0", here);
  sys.add_port("mlx5_0", 1, "4: ACTIVE");
  sys.add_link("mlx5_0", 1, "100 Gb/sec (4X EDR)", "Ethernet");
  const Device device(1, 0, "network"), nowhere(3);
  const DeviceTraits traits = device_traits(*device.info, true, sys.root());
  CHECK(traits.fabric == "network");
  CHECK(traits.rate == 100);
  CHECK(traits.nearness == Nearness::kNear);
  CHECK_FALSE(traits.beside_others);  // no interface of it is known
  CHECK(device_traits(*device.info, false, sys.root()).rate == 0);
  CHECK(device_traits(*device.info, false, sys.root()).beside_others);
  CHECK(device_traits(*nowhere.info, true, sys.root()).fabric.empty());
  CHECK(device_traits(*nowhere.info, true, sys.root()).nearness == Nearness::kUnknown);
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
  constexpr std::size_t kProcesses = 64;
  for (const std::size_t devices : {1U, 2U, 4U}) {
    for (const std::size_t sockets : {1U, 2U, 4U}) {
      // How many processes of a socket take each of its devices: sockets in turn, or one after the other.
      std::map<std::size_t, std::size_t> in_turn, one_by_one;
      for (std::size_t process = 0; process < kProcesses; ++process) {
        const std::size_t device = spread_over(devices, process);
        ++in_turn[process % sockets * devices + device];
        ++one_by_one[process * sockets / kProcesses * devices + device];
      }
      for (std::size_t each = 0; each < sockets * devices; ++each) {
        INFO(devices << " devices, " << sockets << " sockets");
        CHECK((in_turn[each] == kProcesses / sockets / devices && one_by_one[each] == in_turn[each]));
      }
    }
  }
  for (std::size_t first = 0; first < 30; first += 3)
    CHECK(std::set{spread_over(3, first), spread_over(3, first + 1), spread_over(3, first + 2)}.size() == 3);
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

}  // namespace farside::devices_test
