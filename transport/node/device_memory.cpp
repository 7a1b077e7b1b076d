// SPDX-License-Identifier: BSD-3-Clause
#include "transport/node/device_memory.hpp"

#include <algorithm>
#include <dlfcn.h>
#include <link.h>
#include <string_view>

#include "transport/base/log.hpp"

namespace farside {
namespace {

struct Kind {
  const char* library;
  std::unique_ptr<DeviceDriver> (*make)(void* library);
};
// By the names with which programs are linked to them.
constexpr Kind kKinds[] = {{"libcuda.so.1", make_cuda_driver},
                           {"libamdhip64.so.7", make_hip_driver},
                           {"libamdhip64.so.6", make_hip_driver},
                           {"libamdhip64.so.5", make_hip_driver},
                           {"libze_loader.so.1", make_level_zero_driver}};

struct Objects {                 // that the process has loaded
  unsigned long long loads = 0;  // how many ever
  bool maybe_driver = false;
};

int look_at(dl_phdr_info* object, std::size_t, void* data) {
  auto& objects = *static_cast<Objects*>(data);
  objects.loads = object->dlpi_adds;
  const std::string_view path = object->dlpi_name != nullptr ? object->dlpi_name : "";
  // A file may have more of a version in its name than the library's own name.
  for (const Kind& kind : kKinds) {
    const std::string_view library = kind.library;
    objects.maybe_driver |= path.find(library.substr(0, library.find(".so"))) != path.npos;
  }
  return 0;
}

}  // namespace

DeviceMemory& DeviceMemory::instance() {
  static auto* const memory = new DeviceMemory();
  return *memory;
}

void DeviceMemory::look_for_drivers() {
  const std::scoped_lock held(mutex_);
  // dlopen looks through all folders for a library that is not loaded, some 70 system calls at the first time.
  Objects objects;
  dl_iterate_phdr(look_at, &objects);
  if (objects.loads == looked_at_loads_) return;
  looked_at_loads_ = objects.loads;
  if (!objects.maybe_driver) return;
  for (const Kind& kind : kKinds) {
    void* const library = dlopen(kind.library, RTLD_LAZY | RTLD_NOLOAD);  // stays open, as the driver uses it
    if (library == nullptr) continue;
    if (std::ranges::find(found_, library) != found_.end()) {
      dlclose(library);
      continue;
    }
    found_.push_back(library);
    std::unique_ptr<DeviceDriver> driver = kind.make(library);
    if (driver == nullptr) {
      log(LogLevel::kWarn, "{} lacks functions that tell memory of GPUs; do not give it to one-sided calls",
          kind.library);
      continue;
    }
    log(LogLevel::kInfo, "operations look for memory of GPUs, by {}", driver->name());
    const auto place = std::ranges::find(drivers_, nullptr, [](const auto& each) { return each.load(); });
    if (place == drivers_.end()) continue;
    place->store(driver.release());
    possible_.store(true, std::memory_order_relaxed);
  }
}

DeviceDriver* DeviceMemory::driver_of(const void* address) {
  for (const std::atomic<DeviceDriver*>& each : drivers_) {
    DeviceDriver* const driver = each.load();
    if (driver == nullptr) break;
    if (driver->holds(address)) return driver;
  }
  return nullptr;
}

bool DeviceMemory::ask(const void* address) {
  if (driver_of(address) != nullptr) return true;
  const std::uintptr_t page = page_of(address);
  host_pages_[page % host_pages_.size()].store(page, std::memory_order_relaxed);
  return false;
}

Status DeviceMemory::copy(void* to, const void* from, std::size_t bytes) {
  if (bytes == 0) return {};
  for (const void* const address : {static_cast<const void*>(to), from}) {
    if (DeviceDriver* const driver = driver_of(address)) return driver->copy(to, from, bytes, address);
  }
  return Error{ErrorKind::kOther, "the memory of a GPU was freed during the call"};
}

void DeviceMemory::lock_pages(void* host, std::size_t bytes, const void* device) {
  if (DeviceDriver* const driver = driver_of(device)) driver->lock_pages(host, bytes, device);
}

}  // namespace farside
