// SPDX-License-Identifier: BSD-3-Clause
// What sysfs says of adapters, and what keeps them from carrying connections.
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "transport/fabric/devices.hpp"
#include "transport/fabric/handles.hpp"

namespace farside::adapters_test {

namespace fs = std::filesystem;

namespace {

// A sysfs of its own, removed at the end.
class Sysfs {
 public:
  Sysfs() : root_(fs::temp_directory_path() / ("farside-sysfs-" + std::to_string(getpid()))) {
    fs::create_directories(adapters());
  }
  ~Sysfs() { fs::remove_all(root_); }
  Sysfs(const Sysfs&) = delete;
  Sysfs& operator=(const Sysfs&) = delete;
  const fs::path& root() const { return root_; }

  void add_port(const std::string& adapter, int port, const std::string& state, const std::string& interface = {}) {
    const fs::path folder = adapters() / adapter / "ports" / std::to_string(port);
    fs::create_directories(folder / "gid_attrs/ndevs");
    std::ofstream(folder / "state") << state << "\n";
    if (!interface.empty()) std::ofstream(folder / "gid_attrs/ndevs/0") << interface << "\n";
  }
  void add_link(const std::string& adapter, int port, const std::string& rate, const std::string& layer) {
    const fs::path folder = adapters() / adapter / "ports" / std::to_string(port);
    std::ofstream(folder / "rate") << rate << "\n";
    std::ofstream(folder / "link_layer") << layer << "\n";
  }
  void set(const std::string& interface, const char* what, const char* value) {
    fs::create_directories(root_ / "conf" / interface);
    std::ofstream(root_ / "conf" / interface / what) << value << "\n";
  }
  void add_interface(const std::string& adapter, const std::string& interface) {
    fs::create_directories(adapters() / adapter / "device/net" / interface);
  }

 private:
  fs::path adapters() const { return root_ / "class/infiniband"; }
  const fs::path root_;
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
  const InfoHandle info(fi_allocinfo());
  CHECK_FALSE(is_emulated(*info));
  fid_nic nic{};
  fi_device_attr device{};
  nic.device_attr = &device;
  info->nic = &nic;
  CHECK_FALSE(is_emulated(*info));
  char mellanox[] = "0x02c9", rxe[] = "0xffffff", siw[] = "0x626d74";
  device.vendor_id = mellanox;
  CHECK_FALSE(is_emulated(*info));
  device.vendor_id = rxe;
  CHECK(is_emulated(*info));
  device.vendor_id = siw;
  CHECK(is_emulated(*info));
  info->nic = nullptr;  // it is not libfabric's
}

}  // namespace farside::adapters_test
