// SPDX-License-Identifier: BSD-3-Clause
// Registered memory for small buffers does not grow with the number of operations that are under way. The domain is one
// of libfabric's tcp provider, which registers memory as any other does.
#include <vector>

#include <catch2/catch.hpp>
#include <rdma/fabric.h>
#include <rdma/fi_domain.h>

#include "tests/unit/transport/fabric/fake_provider.hpp"
#include "transport/fabric/operation.hpp"
#include "transport/fabric/provider.hpp"

namespace farside::local_memory_test {

using namespace farside::testing;

TEST_CASE("operations of this process wait for slots, and answers do not") {
  const InfoHandle hints(fi_allocinfo());
  hints->ep_attr->type = FI_EP_MSG;
  hints->fabric_attr->prov_name = strdup("tcp");
  fi_info* found = nullptr;
  REQUIRE(fi_getinfo(FI_VERSION(1, 15), nullptr, nullptr, 0, hints.get(), &found) == 0);
  const InfoHandle info(found);
  info->domain_attr->mr_mode |= FI_MR_PROV_KEY;  // as adapters: the provider chooses the keys
  fid_fabric* fabric = nullptr;
  REQUIRE(fi_fabric(info->fabric_attr, &fabric, nullptr) == 0);
  const FabricHandle<fid_fabric> fabric_owner(fabric);
  fid_domain* domain = nullptr;
  REQUIRE(fi_domain(fabric, info.get(), &domain, nullptr) == 0);
  const FabricHandle<fid_domain> domain_owner(domain);

  LocalMemory memory;
  memory.begin(domain);
  std::vector<LocalMemory::Slot*> slots(LocalMemory::kMostOwn);
  for (LocalMemory::Slot*& slot : slots) REQUIRE(memory.take(true, slot) == 0);
  LocalMemory::Slot* more = nullptr;
  CHECK(memory.take(true, more) == -FI_EAGAIN);
  CHECK(more == nullptr);
  LocalMemory::Slot* answer = nullptr;
  CHECK(memory.take(false, answer) == 0);
  // The end of an answer makes no room for operations, the end of an operation does.
  memory.release(answer);
  CHECK(memory.take(true, more) == -FI_EAGAIN);
  memory.release(slots.back());
  CHECK(memory.take(true, more) == 0);

  // Large buffers.
  std::vector<char> buffer(64);
  std::vector<FabricHandle<fid_mr>> large(LocalMemory::kMostLarge);
  for (FabricHandle<fid_mr>& each : large) {
    REQUIRE(memory.begin_large());
    REQUIRE(memory.register_memory(buffer.data(), 64, FI_WRITE, each) == 0);
  }
  CHECK_FALSE(memory.begin_large());
  memory.end_large(large.front());
  CHECK(large.front() == nullptr);
  CHECK(memory.begin_large());
}

TEST_CASE("where no more memory can be registered, operations wait for slots, and leave some to answers") {
  const FabricDomain domain = std::move(FabricDomain::open(fake_provider(), 64).value());
  LocalMemory memory;
  memory.begin(domain.domain());
  LocalMemory::Slot* slot = nullptr;
  {
    const FakeMemoryLimit none(1);
    CHECK(memory.take(true, slot) == -FI_ENOMEM);
  }
  std::vector<LocalMemory::Slot*> own, answers;
  REQUIRE(memory.take(true, slot) == 0);
  own.push_back(slot);
  const FakeMemoryLimit none(1);
  int code = 0;
  for (; (code = memory.take(true, slot)) == 0;) own.push_back(slot);
  CHECK(code == -FI_EAGAIN);
  CHECK(own.size() > 32);
  for (; (code = memory.take(false, slot)) == 0;) answers.push_back(slot);
  CHECK(code == -FI_EAGAIN);
  CHECK(answers.size() == LocalMemory::kForAnswers);
  // The end of an answer makes room for an answer, and that of an operation for either.
  memory.release(answers.back());
  CHECK(memory.take(true, slot) == -FI_EAGAIN);
  CHECK(memory.take(false, slot) == 0);
  for (LocalMemory::Slot* const each : answers) memory.release(each);
  memory.release(own.back());
  CHECK(memory.take(true, slot) == 0);
  CHECK(memory.take(true, slot) == -FI_EAGAIN);
}

}  // namespace farside::local_memory_test
