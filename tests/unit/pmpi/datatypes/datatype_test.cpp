// SPDX-License-Identifier: BSD-3-Clause
// Translations of datatypes and operations by pmpi/, compared with the runtime's answers and packed bytes. One rank.
#include "pmpi/datatypes/datatype.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>
#include <mpi.h>

#include "pmpi/library/library.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "tests/support/catch_session.hpp"
#include "tests/support/seeds.hpp"

using namespace farside;
using namespace farside::pmpi;
using farside::testing::many_seeds;
using farside::testing::named;

namespace {

// A derived datatype that is freed at the end of its scope.
class OwnedType {
 public:
  explicit OwnedType(MPI_Datatype handle) : handle_(handle) {}
  OwnedType(OwnedType&& other) noexcept : handle_(std::exchange(other.handle_, MPI_DATATYPE_NULL)) {}
  OwnedType& operator=(OwnedType&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~OwnedType() { reset(); }
  MPI_Datatype get() const { return handle_; }
  void reset() {
    if (handle_ != MPI_DATATYPE_NULL) MPI_Type_free(&handle_);
  }

 private:
  MPI_Datatype handle_;
};

// Calls a constructor whose last argument is the new handle.
template <class Constructor, class... Arguments>
OwnedType make(Constructor constructor, Arguments... arguments) {
  MPI_Datatype handle = MPI_DATATYPE_NULL;
  REQUIRE(constructor(arguments..., &handle) == MPI_SUCCESS);
  return OwnedType(handle);
}

// MPICH 4.0 includes empty blocks and the like in the true extent of some types, so its true extent is only an outer
// bound.
#ifdef MPICH_VERSION
constexpr bool kExactTrueBounds = false;
constexpr int kLeastCount = 1;  // MPICH divides by 0 when it packs some types with empty members
#else
constexpr bool kExactTrueBounds = true;
constexpr int kLeastCount = 0;
#endif

// Compares size, bounds and the packed bytes of `count` elements with the runtime's.
void check_against_runtime(MPI_Datatype handle, int count, std::mt19937& random) {
  const Datatype* const found = find_datatype(handle);
  REQUIRE(found != nullptr);
  const Layout& layout = *found->layout;
  MPI_Count size = 0, lower = 0, extent = 0, true_lower = 0, true_extent = 0;
  MPI_Type_size_x(handle, &size);
  MPI_Type_get_extent_x(handle, &lower, &extent);
  MPI_Type_get_true_extent_x(handle, &true_lower, &true_extent);
  REQUIRE(layout.size() == static_cast<std::size_t>(size));
  REQUIRE(found->size == layout.size());
  REQUIRE(layout.lower_bound() == lower);
  REQUIRE(layout.extent() == extent);
  REQUIRE(found->extent == extent);
  REQUIRE(found->contiguous == layout.contiguous());
  if (size > 0 && kExactTrueBounds) {
    REQUIRE(layout.true_lower_bound() == true_lower);
    REQUIRE(layout.true_upper_bound() == true_lower + true_extent);
  } else if (size > 0) {
    REQUIRE(layout.true_lower_bound() >= true_lower);
    REQUIRE(layout.true_upper_bound() <= true_lower + true_extent);
  }
  const std::ptrdiff_t step = layout.extent() * std::max(count - 1, 0);
  const std::ptrdiff_t first = layout.true_lower_bound() + std::min<std::ptrdiff_t>(step, 0);
  const std::ptrdiff_t last = layout.true_upper_bound() + std::max<std::ptrdiff_t>(step, 0);
  if (last - first > (1 << 20) || layout.size() > (1 << 18)) return;

  std::vector<unsigned char> memory(static_cast<std::size_t>(last - first) + 64);
  for (unsigned char& byte : memory) byte = static_cast<unsigned char>(random());
  unsigned char* const base = memory.data() + 32 - first;
  std::vector<unsigned char> packed(layout.size() * static_cast<std::size_t>(count) + 1), gathered;
  int position = 0;
  // One by one, because Open MPI 4.1.4 packs several elements at the wrong distance if an empty member at the end
  // determines the extent.
  for (int element = 0; element < count; ++element) {
    REQUIRE(MPI_Pack(base + element * layout.extent(), 1, handle, packed.data(), static_cast<int>(packed.size()),
                     &position, MPI_COMM_SELF) == MPI_SUCCESS);
  }
  packed.resize(static_cast<std::size_t>(position));
  ByteFragments fragments(layout, static_cast<std::size_t>(count), *Layout::basic(BasicType::kByte), packed.size());
  Fragment fragment;
  while (fragments.next(fragment)) {
    REQUIRE(fragment.target_offset == static_cast<std::ptrdiff_t>(gathered.size()));
    gathered.insert(gathered.end(), base + fragment.origin_offset,
                    base + fragment.origin_offset + static_cast<std::ptrdiff_t>(fragment.count));
  }
  REQUIRE(gathered == packed);
}

class RandomTypes {
 public:
  explicit RandomTypes(unsigned seed) : random_(seed), predefined_(make_predefined_types()) {
    // MPICH packs 16-byte floating-point numbers by value if they are not contiguous, so their padding becomes 0.
    std::erase_if(predefined_, [](const PredefinedType& type) {
      return type.datatype.layout->size() % 16 == 0 || type.datatype.basic == BasicType::kLongDoubleInt;
    });
  }

  std::mt19937& random() { return random_; }
  int refused() const { return refused_; }
  int below(int limit) { return static_cast<int>(random_() % static_cast<unsigned>(limit)); }

  // The returned object owns the handle. The types it was made from are freed before, as MPI allows.
  OwnedType make_type(int depth) {
    if (depth <= 1) {
      MPI_Datatype handle;
      REQUIRE(MPI_Type_dup(predefined_[random_() % predefined_.size()].handle, &handle) == MPI_SUCCESS);
      return OwnedType(handle);
    }
    const OwnedType inner = make_type(depth - 1 - below(2));
    const MPI_Datatype child = inner.get();
    const std::vector<int> lengths = ints(4, kLeastCount), places = ints(30);
    const std::vector<MPI_Aint> addresses(places.begin(), places.end());
    const int blocks = kLeastCount + below(kBlocks - 1);
    switch (below(kKinds)) {
      case 0: return attempt(child, MPI_Type_contiguous, kLeastCount + below(5), child);
      case 1: return attempt(child, MPI_Type_vector, blocks, lengths[0], stride(child, lengths[0]), child);
      case 2: return attempt(child, MPI_Type_create_hvector, blocks, lengths[0], byte_stride(child, lengths[0]), child);
      case 3: return attempt(child, MPI_Type_indexed, blocks, lengths.data(), places.data(), child);
      case 4: return attempt(child, MPI_Type_create_hindexed, blocks, lengths.data(), addresses.data(), child);
      case 5: return attempt(child, MPI_Type_create_indexed_block, blocks, lengths[0], places.data(), child);
      case 6: return attempt(child, MPI_Type_create_hindexed_block, blocks, lengths[0], addresses.data(), child);
      case 7: return attempt(child, MPI_Type_create_resized, child, MPI_Aint{below(40) - 20}, MPI_Aint{1 + below(100)});
      case 8: return make(MPI_Type_dup, child);
      case 9:
      case 10: return make_struct(child, blocks, lengths, addresses);
      case 11: return make_subarray(child);
      case 12: return make_darray(child);
      default: return make_large(child);
    }
  }

 private:
  static constexpr int kBlocks = 5;

  // Returns the child itself if the constructor fails: Open MPI 4.1 refuses some legal types (arrays of types without
  // data).
  template <class Constructor, class... Arguments>
  OwnedType attempt(MPI_Datatype child, Constructor constructor, Arguments... arguments) {
    MPI_Datatype handle = MPI_DATATYPE_NULL;
    if (constructor(arguments..., &handle) == MPI_SUCCESS) return OwnedType(handle);
    ++refused_;
    return make(MPI_Type_dup, child);
  }

#if MPI_VERSION >= 4
  static constexpr int kKinds = 16;
#else
  static constexpr int kKinds = 13;
#endif

  std::vector<int> ints(int limit, int least = 0) {
    std::vector<int> values;
    for (int index = 0; index < kBlocks; ++index) values.push_back(least + below(limit - least));
    return values;
  }

  // Strides in elements and in bytes. Negative strides only where blocks neither overlap nor touch: Open MPI 4.1.4
  // treats blocks that touch as contiguous.
  int stride(MPI_Datatype child, int length) {
    MPI_Aint lower, extent, true_extent;
    MPI_Type_get_extent(child, &lower, &extent);
    MPI_Type_get_true_extent(child, &lower, &true_extent);
    return true_extent > extent || below(3) > 0 ? std::max(length, 1) + below(5) : -length - 1 - below(5);
  }
  MPI_Aint byte_stride(MPI_Datatype child, int length) {
    MPI_Aint lower, extent;
    MPI_Type_get_extent(child, &lower, &extent);
    const int elements = stride(child, length);
    return elements * extent + (elements < 0 ? -1 : 1) * (1 + below(50));
  }

  OwnedType make_struct(MPI_Datatype child, int blocks, const std::vector<int>& lengths,
                        const std::vector<MPI_Aint>& addresses) {
    const OwnedType other = make_type(2);
    std::vector<MPI_Datatype> types;
    for (int block = 0; block < kBlocks; ++block) {
      types.push_back(std::array{child, other.get(), MPI_DOUBLE, MPI_SHORT}[random_() % 4]);
    }
    return attempt(child, MPI_Type_create_struct, blocks, lengths.data(), addresses.data(), types.data());
  }

  template <class Count>
  struct Box {
    int dimensions;
    std::vector<Count> sizes, subsizes, starts;
    int order;
  };
  template <class Count>
  Box<Count> make_box() {
    Box<Count> box{1 + below(3), {}, {}, {}, below(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN};
    for (int dimension = 0; dimension < box.dimensions; ++dimension) {
      box.sizes.push_back(1 + below(5));
      box.subsizes.push_back(1 + below(static_cast<int>(box.sizes.back())));
      box.starts.push_back(below(static_cast<int>(box.sizes.back() - box.subsizes.back() + 1)));
    }
    return box;
  }

  OwnedType make_subarray(MPI_Datatype child) {
    const Box<int> box = make_box<int>();
    return attempt(child, MPI_Type_create_subarray, box.dimensions, box.sizes.data(), box.subsizes.data(),
                   box.starts.data(), box.order, child);
  }

  struct Grid {
    int processes, rank, dimensions;
    std::vector<int> sizes, kinds, arguments, grid;
    int order;
  };
  Grid make_grid() {
    Grid grid{1, 0, 1 + below(3), {}, {}, {}, {}, below(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN};
    for (int dimension = 0; dimension < grid.dimensions; ++dimension) {
      const int size = 1 + below(9);
      const int kind = std::array{MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE}[random_() % 3];
      const int processes = kind == MPI_DISTRIBUTE_NONE ? 1 : 1 + below(3);
      int argument = MPI_DISTRIBUTE_DFLT_DARG;
      if (kind != MPI_DISTRIBUTE_NONE && below(2)) {
        argument = kind == MPI_DISTRIBUTE_CYCLIC ? 1 + below(3) : (size + processes - 1) / processes + below(2);
      }
      grid.sizes.push_back(size);
      grid.kinds.push_back(kind);
      grid.arguments.push_back(argument);
      grid.grid.push_back(processes);
      grid.processes *= processes;
    }
    grid.rank = kLeastCount == 0 ? below(grid.processes) : 0;  // rank 0 always has a part
    return grid;
  }

  OwnedType make_darray(MPI_Datatype child) {
    const Grid grid = make_grid();
    return attempt(child, MPI_Type_create_darray, grid.processes, grid.rank, grid.dimensions, grid.sizes.data(),
                   grid.kinds.data(), grid.arguments.data(), grid.grid.data(), grid.order, child);
  }

#if MPI_VERSION >= 4
  OwnedType make_large(MPI_Datatype child) {
    const std::vector<int> some = ints(4, kLeastCount), others = ints(30);
    const std::vector<MPI_Count> lengths(some.begin(), some.end()), places(others.begin(), others.end());
    const MPI_Count blocks = kLeastCount + below(kBlocks - 1), length = some[0];
    const Box<MPI_Count> box = make_box<MPI_Count>();
    const Grid grid = make_grid();
    const std::vector<MPI_Count> sizes(grid.sizes.begin(), grid.sizes.end());
    const std::vector<MPI_Datatype> types(kBlocks, child);
    switch (below(10)) {
      case 0: return attempt(child, MPI_Type_contiguous_c, length, child);
      case 1: return attempt(child, MPI_Type_vector_c, blocks, length, MPI_Count{stride(child, some[0])}, child);
      case 2:
        return attempt(child, MPI_Type_create_hvector_c, blocks, length, MPI_Count{byte_stride(child, some[0])}, child);
      case 3: return attempt(child, MPI_Type_indexed_c, blocks, lengths.data(), places.data(), child);
      case 4: return attempt(child, MPI_Type_create_hindexed_c, blocks, lengths.data(), places.data(), child);
      case 5: return attempt(child, MPI_Type_create_indexed_block_c, blocks, length, places.data(), child);
      case 6: return attempt(child, MPI_Type_create_struct_c, blocks, lengths.data(), places.data(), types.data());
      case 7: return attempt(child, MPI_Type_create_resized_c, child, MPI_Count{-8}, MPI_Count{1 + below(100)});
      case 8:
        return attempt(child, MPI_Type_create_subarray_c, box.dimensions, box.sizes.data(), box.subsizes.data(),
                       box.starts.data(), box.order, child);
      default:
        return attempt(child, MPI_Type_create_darray_c, grid.processes, grid.rank, grid.dimensions, sizes.data(),
                       grid.kinds.data(), grid.arguments.data(), grid.grid.data(), grid.order, child);
    }
  }
#else
  OwnedType make_large(MPI_Datatype child) { return make(MPI_Type_dup, child); }
#endif

  std::mt19937 random_;
  int refused_ = 0;
  std::vector<PredefinedType> predefined_;
};

}  // namespace

TEST_CASE("every predefined type has the size, extent and bytes that the runtime gives it") {
  std::mt19937 random(1);
  const std::vector<PredefinedType> types = make_predefined_types();
  CHECK(types.size() > 60);
  for (const PredefinedType& type : types) {
    INFO(&type - types.data());
    check_against_runtime(type.handle, 3, random);
    const Datatype* const found = find_datatype(type.handle);
    CHECK(found->basic == type.datatype.basic);
    if (found->basic) CHECK(found->layout->uniform_type() == found->basic);
  }
  for (const MPI_Datatype type : {MPI_INT, MPI_AINT, MPI_LONG_DOUBLE_INT, MPI_2INTEGER, MPI_2DOUBLE_PRECISION,
                                  MPI_LOGICAL, MPI_COMPLEX32, MPI_C_BOOL, MPI_PACKED, MPI_COUNT, MPI_CXX_BOOL}) {
    CHECK(std::ranges::count(types, type, &PredefinedType::handle) >= 1);
  }
}

TEST_CASE("predefined types are what their names say") {
  using enum BasicType;
  CHECK(find_datatype(MPI_INT)->basic == kInt32);
  CHECK(find_datatype(MPI_UNSIGNED_LONG)->basic == kUint64);
  CHECK(find_datatype(MPI_CHAR)->basic == kInt8);
  CHECK(find_datatype(MPI_CHARACTER)->basic == kCharacter);
  CHECK(find_datatype(MPI_SIGNED_CHAR)->basic == kInt8);
  CHECK(find_datatype(MPI_BYTE)->basic == kByte);
  CHECK(find_datatype(MPI_DOUBLE_PRECISION)->basic == kDouble);
  CHECK(find_datatype(MPI_LOGICAL)->basic == kLogical4);
  CHECK(find_datatype(MPI_C_DOUBLE_COMPLEX)->basic == kComplexDouble);
  CHECK(find_datatype(MPI_2INTEGER)->basic == kInt32Int32);
  CHECK(find_datatype(MPI_DOUBLE_INT)->basic == kDoubleInt);
  CHECK(find_datatype(MPI_2REAL)->basic == kFloatFloat);
  CHECK(find_datatype(MPI_REAL16)->basic == kQuad);
  CHECK(find_datatype(MPI_LONG_DOUBLE)->basic == kLongDouble);
}

TEST_CASE("Fortran kinds are found by precision") {
  std::mt19937 random(1);
  MPI_Datatype type;
  MPI_Type_create_f90_real(6, MPI_UNDEFINED, &type);
  CHECK(find_datatype(type)->basic == BasicType::kFloat);
  check_against_runtime(type, 3, random);
  MPI_Type_create_f90_real(15, 300, &type);
  CHECK(find_datatype(type)->basic == BasicType::kDouble);
  MPI_Type_create_f90_complex(12, MPI_UNDEFINED, &type);
  CHECK(find_datatype(type)->basic == BasicType::kComplexDouble);
  MPI_Type_create_f90_integer(9, &type);
  CHECK(find_datatype(type)->basic == BasicType::kInt32);
  MPI_Type_create_f90_integer(15, &type);
  CHECK(find_datatype(type)->basic == BasicType::kInt64);
  const OwnedType pairs = make(MPI_Type_vector, 3, 2, 4, type);
  MPI_Datatype handle = pairs.get();
  MPI_Type_commit(&handle);
  check_against_runtime(handle, 2, random);
}

TEST_CASE("random nested types have the size, bounds and bytes that the runtime gives them") {
  int refused = 0;
  for (const std::uint32_t seed : many_seeds(4000)) {
    INFO(named(seed));
    RandomTypes types(seed);
    const OwnedType type = types.make_type(2 + types.below(5));
    MPI_Datatype handle = type.get();
    MPI_Type_commit(&handle);
    check_against_runtime(handle, types.below(4), types.random());
    refused += types.refused();
  }
  CHECK(refused < 200);
}

OwnedType commit(OwnedType type) {
  MPI_Datatype handle = type.get();
  MPI_Type_commit(&handle);
  return type;
}

TEST_CASE("a large vector of one type costs one node and is one run") {
  const OwnedType row = make(MPI_Type_contiguous, 1 << 20, MPI_DOUBLE);
  const OwnedType matrix = commit(make(MPI_Type_contiguous, 1 << 10, row.get()));
  const Datatype* const found = find_datatype(matrix.get());
  REQUIRE(found != nullptr);
  CHECK(found->size == std::size_t{8} << 30);
  CHECK(found->contiguous);
  CHECK_FALSE(found->basic.has_value());
  CHECK(found->layout->uniform_type() == BasicType::kDouble);
}

TEST_CASE("a type that occurs twice in each type around it is translated once") {
  OwnedType type = make(MPI_Type_contiguous, 1, MPI_INT);
  MPI_Aint lower_bound = 0, extent = 0;
  for (int level = 0; level < 20; ++level) {
    MPI_Type_get_extent(type.get(), &lower_bound, &extent);
    const std::array<int, 3> counts{1, 1, 1};
    const std::array<MPI_Aint, 3> places{0, extent, extent + 4};
    const std::array<MPI_Datatype, 3> members{type.get(), MPI_INT, type.get()};
    type = make(MPI_Type_create_struct, 3, counts.data(), places.data(), members.data());
  }
  const auto begun = std::chrono::steady_clock::now();
  const Result<Datatype> made = flatten(type.get());
  // One by one, the 10^6 members would take more than a second.
  CHECK(std::chrono::steady_clock::now() - begun < std::chrono::milliseconds(500));
  REQUIRE(made);
  CHECK(made.value().size == 2 * static_cast<std::size_t>(extent) + 4);
  CHECK(made.value().contiguous);
}

TEST_CASE("types without data are translated and move nothing") {
  std::mt19937 random(1);
  const OwnedType none = make(MPI_Type_contiguous, 0, MPI_INT);
  const OwnedType empty = make(MPI_Type_create_struct, 0, static_cast<const int*>(nullptr),
                               static_cast<const MPI_Aint*>(nullptr), static_cast<const MPI_Datatype*>(nullptr));
  const OwnedType spread = make(MPI_Type_create_resized, none.get(), MPI_Aint{-4}, MPI_Aint{64});
  for (const OwnedType* type : {&none, &empty, &spread}) {
    MPI_Datatype handle = type->get();
    MPI_Type_commit(&handle);
    check_against_runtime(handle, 2, random);
  }
}

TEST_CASE("a type is not found until it is committed, and the error says so") {
  OwnedType type = make(MPI_Type_vector, 3, 2, 4, MPI_INT);
  farside::Error why;
  CHECK(find_datatype(type.get(), &why) == nullptr);
  CHECK(why.text.find("MPI_Type_commit") != std::string::npos);
  const OwnedType committed = commit(std::move(type));
  REQUIRE(find_datatype(committed.get()) != nullptr);
  CHECK(find_datatype(committed.get())->size == 24);
}

TEST_CASE("a translation is made once and dies with its type") {
  std::weak_ptr<const Layout> layout;
  OwnedType type = commit(make(MPI_Type_vector, 3, 2, 4, MPI_INT));
  const Datatype* const found = find_datatype(type.get());
  REQUIRE(found != nullptr);
  layout = found->layout;
  CHECK(find_datatype(type.get()) == found);
  std::thread([&] { CHECK(find_datatype(type.get()) == found); }).join();
  type.reset();
  CHECK(layout.expired());
}

TEST_CASE("a duplicate has a translation of its own") {
  OwnedType type = commit(make(MPI_Type_vector, 3, 2, 4, MPI_INT));
  const OwnedType copy = commit(make(MPI_Type_dup, type.get()));
  CHECK(find_datatype(copy.get()) != find_datatype(type.get()));
  type.reset();
  CHECK(find_datatype(copy.get())->size == 24);
}

TEST_CASE("a handle that is used again for another type gives the other type") {
  for (int count = 1; count < 50; ++count) {
    const OwnedType type = commit(make(MPI_Type_contiguous, count, MPI_INT));
    CHECK(find_datatype(type.get())->size == 4 * static_cast<std::size_t>(count));
  }
}

TEST_CASE("threads that meet a type for the first time share one translation") {
  for (int round = 0; round < 50; ++round) {
    const OwnedType type = commit(make(MPI_Type_vector, 3, 2, 4, MPI_INT));
    std::array<const Datatype*, 4> found{};
    std::vector<std::thread> threads;
    for (const Datatype*& mine : found) threads.emplace_back([&] { mine = find_datatype(type.get()); });
    for (std::thread& thread : threads) thread.join();
    for (const Datatype* mine : found) CHECK(mine == found[0]);
  }
}

TEST_CASE("the null datatype is not found, and the error says so") {
  farside::Error why;
  CHECK(find_datatype(MPI_DATATYPE_NULL, &why) == nullptr);
  CHECK(why.text.find("MPI_DATATYPE_NULL") != std::string::npos);
}

TEST_CASE("a predefined type without counterpart is bytes, with which nothing computes") {
  std::vector<MPI_Datatype> handles;
  // Optional types: a runtime may lack the name, or have it for no type.
#ifdef MPIX_C_FLOAT16
  handles.push_back(MPIX_C_FLOAT16);
#endif
#ifdef MPI_REAL2
  handles.push_back(MPI_REAL2);
#endif
#ifdef MPI_COMPLEX4
  handles.push_back(MPI_COMPLEX4);
#endif
#ifdef MPI_INTEGER16
  handles.push_back(MPI_INTEGER16);
#endif
#ifdef MPI_LOGICAL16
  handles.push_back(MPI_LOGICAL16);
#endif
  for (const MPI_Datatype handle : handles) {
    if (handle == MPI_DATATYPE_NULL) continue;
    MPI_Count size = 0, lower_bound = 0, extent = 0;
    MPI_Type_size_x(handle, &size);
    MPI_Type_get_extent_x(handle, &lower_bound, &extent);
    const Datatype* const found = find_datatype(handle);
    if (size == MPI_UNDEFINED) {  // Open MPI 6 has such handles for what its compilers lack
      CHECK(found == nullptr);
      continue;
    }
    REQUIRE(found != nullptr);
    CHECK(found->size == static_cast<std::size_t>(size));
    CHECK(found->extent == extent);
    CHECK(found->contiguous);
    CHECK_FALSE(found->basic);
    const OwnedType pair = commit(make(MPI_Type_contiguous, 2, handle));
    REQUIRE(find_datatype(pair.get()) != nullptr);
    CHECK(find_datatype(pair.get())->size == 2 * static_cast<std::size_t>(size));
  }
}

TEST_CASE("predefined operations are found and others are not") {
  CHECK(find_reduce_op(MPI_SUM) == ReduceOp::kSum);
  CHECK(find_reduce_op(MPI_PROD) == ReduceOp::kProd);
  CHECK(find_reduce_op(MPI_MIN) == ReduceOp::kMin);
  CHECK(find_reduce_op(MPI_MAX) == ReduceOp::kMax);
  CHECK(find_reduce_op(MPI_LAND) == ReduceOp::kLand);
  CHECK(find_reduce_op(MPI_LOR) == ReduceOp::kLor);
  CHECK(find_reduce_op(MPI_LXOR) == ReduceOp::kLxor);
  CHECK(find_reduce_op(MPI_BAND) == ReduceOp::kBand);
  CHECK(find_reduce_op(MPI_BOR) == ReduceOp::kBor);
  CHECK(find_reduce_op(MPI_BXOR) == ReduceOp::kBxor);
  CHECK(find_reduce_op(MPI_MINLOC) == ReduceOp::kMinloc);
  CHECK(find_reduce_op(MPI_MAXLOC) == ReduceOp::kMaxloc);
  CHECK(find_reduce_op(MPI_REPLACE) == ReduceOp::kReplace);
  CHECK(find_reduce_op(MPI_NO_OP) == ReduceOp::kNoOp);
  CHECK_FALSE(find_reduce_op(MPI_OP_NULL).has_value());
  MPI_Op own;
  MPI_Op_create([](void*, void*, int*, MPI_Datatype*) {}, 1, &own);
  CHECK_FALSE(find_reduce_op(own).has_value());
  MPI_Op_free(&own);
}

int main(int argc, char** argv) {
  int provided = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  // The first window does this, too: farside checks on its own communicator whether a type is committed.
  if (!farside::pmpi::library().resources->start()) return 1;
  farside::pmpi::prepare_datatypes();
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
  MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
  const int failed = run_catch(argc, argv);
  farside::pmpi::library().resources->world_ends();
  MPI_Finalize();
  return failed == 0 ? 0 : 1;
}
