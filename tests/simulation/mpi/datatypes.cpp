// SPDX-License-Identifier: BSD-3-Clause
// Datatypes: their constructors, packing, and reductions.
#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

#include "tests/simulation/mpi/objects.hpp"

namespace simulation::mpi {

namespace {

void append(Type& type, std::ptrdiff_t offset, std::size_t bytes) {
  if (bytes == 0) return;
  if (!type.blocks.empty() &&
      type.blocks.back().offset + static_cast<std::ptrdiff_t>(type.blocks.back().bytes) == offset)
    type.blocks.back().bytes += bytes;
  else
    type.blocks.push_back({offset, bytes});
}

// One element of a type map: so many copies of an inner type, at an offset in bytes.
struct Part {
  std::ptrdiff_t offset;
  int count;
  MPI_Datatype type;
};

// A type of these parts, whose bounds are those of its parts.
MPI_Datatype make(int combiner, std::vector<int> integers, std::vector<MPI_Aint> addresses,
                  std::vector<MPI_Datatype> types, std::span<const Part> parts) {
  auto made = std::make_unique<Type>();
  made->combiner = combiner;
  made->integers = std::move(integers);
  made->addresses = std::move(addresses);
  made->types = std::move(types);
  std::ptrdiff_t upper = 0;
  bool any = false;
  for (const Part& part : parts) {
    const Type& inner = type_at(part.type);
    for (int i = 0; i < part.count; ++i) {
      const std::ptrdiff_t at = part.offset + i * inner.extent;
      for (const Block& block : inner.blocks) append(*made, at + block.offset, block.bytes);
      const std::ptrdiff_t low = at + inner.lower, high = low + inner.extent;
      made->lower = any ? std::min(made->lower, low) : low;
      upper = any ? std::max(upper, high) : high;
      any = true;
    }
    made->size += inner.size * static_cast<std::size_t>(part.count);
  }
  made->extent = upper - made->lower;
  for (const MPI_Datatype each : made->types)
    if (Type* const inner = runtime.types.find(each)) ++inner->references;
  return runtime.types.add(std::move(made));
}

void release(MPI_Datatype handle) {
  Type* const type = runtime.types.find(handle);
  if (type == nullptr || --type->references != 0) return;
  for (const auto& [key, value] : std::exchange(type->attributes, {})) {
    const Keyval& keyval = runtime.keyvals.at(key);
    if (keyval.delete_of_type != nullptr) keyval.delete_of_type(handle, key, value, keyval.extra);
  }
  const auto inner = type->types;
  runtime.types.erase(handle);
  for (const MPI_Datatype each : inner) release(each);
}

std::vector<int> joined(std::initializer_list<std::span<const int>> lists) {
  std::vector<int> all;
  for (const auto& each : lists) all.insert(all.end(), each.begin(), each.end());
  return all;
}

std::span<const int> ints(const int* first, int count) { return {first, static_cast<std::size_t>(count)}; }

int indexed(int combiner, int count, const int* lengths, int length, const int* places, const MPI_Aint* bytes,
            MPI_Datatype inner, MPI_Datatype* made) {
  const std::ptrdiff_t extent = type_at(inner).extent;
  std::vector<Part> parts;
  for (int i = 0; i < count; ++i)
    parts.push_back(
        {bytes != nullptr ? bytes[i] : places[i] * extent, lengths != nullptr ? lengths[i] : length, inner});
  std::vector<int> integers = {count};
  if (lengths != nullptr) integers.insert(integers.end(), lengths, lengths + count);
  if (lengths == nullptr) integers.push_back(length);
  if (places != nullptr) integers.insert(integers.end(), places, places + count);
  std::vector<MPI_Aint> addresses;
  if (bytes != nullptr) addresses.assign(bytes, bytes + count);
  *made = make(combiner, std::move(integers), std::move(addresses), {inner}, parts);
  return MPI_SUCCESS;
}

std::vector<Part> strided(int count, int length, std::ptrdiff_t stride, MPI_Datatype inner) {
  std::vector<Part> parts;
  for (int i = 0; i < count; ++i) parts.push_back({i * stride, length, inner});
  return parts;
}

template <class T>
void reduce_as(MPI_Op op, int count, const void* from, void* into) {
  for (int i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, static_cast<const T*>(from) + i, sizeof a);
    std::memcpy(&b, static_cast<T*>(into) + i, sizeof b);
    switch (op) {
      case MPI_SUM: b = static_cast<T>(a + b); break;
      case MPI_PROD: b = static_cast<T>(a * b); break;
      case MPI_MAX: b = std::max(a, b); break;
      case MPI_MIN: b = std::min(a, b); break;
      case MPI_LAND: b = static_cast<T>(a && b); break;
      case MPI_LOR: b = static_cast<T>(a || b); break;
      default:
        if constexpr (std::is_integral_v<T>) {
          if (op == MPI_BAND) b = static_cast<T>(a & b);
          if (op == MPI_BOR) b = static_cast<T>(a | b);
          if (op == MPI_BXOR) b = static_cast<T>(a ^ b);
          if (op == MPI_BAND || op == MPI_BOR || op == MPI_BXOR) break;
        }
        host::fail("MPI: this reduction is not simulated");
    }
    std::memcpy(static_cast<T*>(into) + i, &b, sizeof b);
  }
}

}  // namespace

Type* find_type(MPI_Datatype handle) {
  if (Type* const found = runtime.types.find(handle)) return found;
  static const std::map<MPI_Datatype, std::pair<std::size_t, std::size_t>> kPairs = {// size, extent
                                                                                     {MPI_FLOAT_INT, {8, 8}},
                                                                                     {MPI_DOUBLE_INT, {12, 16}},
                                                                                     {MPI_LONG_INT, {12, 16}},
                                                                                     {MPI_SHORT_INT, {6, 8}},
                                                                                     {MPI_LONG_DOUBLE_INT, {20, 32}}};
  const auto pair = kPairs.find(handle);
  if (pair == kPairs.end() && (handle >> 16 != 0x4c00 || handle == MPI_LB || handle == MPI_UB)) return nullptr;
  Type& type = runtime.predefined[handle];
  if (type.size == 0) {
    type.size = pair != kPairs.end() ? pair->second.first : static_cast<std::size_t>(handle >> 8) & 0xff;
    type.extent = static_cast<std::ptrdiff_t>(pair != kPairs.end() ? pair->second.second : type.size);
    type.committed = true;
    if (pair == kPairs.end()) {
      type.blocks = {{0, type.size}};
    } else {
      const std::size_t value = type.size - sizeof(int), place = std::max(value, sizeof(int));
      type.blocks = {{0, value}, {static_cast<std::ptrdiff_t>(place), sizeof(int)}};
    }
  }
  return &type;
}

Type& type_at(MPI_Datatype handle) {
  if (Type* const found = find_type(handle)) return *found;
  host::fail("MPI: there is no datatype " + std::to_string(handle), true);
}

std::vector<char> pack(const void* buffer, int count, MPI_Datatype handle) {
  const Type& type = type_at(handle);
  std::vector<char> data(type.size * static_cast<std::size_t>(count));
  char* to = data.data();
  for (int i = 0; i < count; ++i) {
    for (const Block& block : type.blocks) {
      std::memcpy(to, static_cast<const char*>(buffer) + i * type.extent + block.offset, block.bytes);
      to += block.bytes;
    }
  }
  return data;
}

std::size_t unpack(const char* data, std::size_t bytes, void* buffer, int count, MPI_Datatype handle) {
  const Type& type = type_at(handle);
  std::size_t taken = 0;
  for (int i = 0; i < count && taken < bytes; ++i) {
    for (const Block& block : type.blocks) {
      const std::size_t part = std::min(block.bytes, bytes - taken);
      if (part != 0) std::memcpy(static_cast<char*>(buffer) + i * type.extent + block.offset, data + taken, part);
      taken += part;
    }
  }
  return taken;
}

void reduce(MPI_Op op, MPI_Datatype type, int count, const void* from, void* into) {
  if (const Op* const own = runtime.ops.find(op)) return own->function(const_cast<void*>(from), into, &count, &type);
  switch (type) {
    case MPI_CHAR:
    case MPI_SIGNED_CHAR:
    case MPI_INT8_T: return reduce_as<std::int8_t>(op, count, from, into);
    case MPI_SHORT:
    case MPI_INT16_T: return reduce_as<std::int16_t>(op, count, from, into);
    case MPI_INT:
    case MPI_INT32_T: return reduce_as<std::int32_t>(op, count, from, into);
    case MPI_LONG:
    case MPI_LONG_LONG:
    case MPI_INT64_T:
    case MPI_AINT:
    case MPI_COUNT:
    case MPI_OFFSET: return reduce_as<std::int64_t>(op, count, from, into);
    case MPI_BYTE:
    case MPI_UNSIGNED_CHAR:
    case MPI_UINT8_T:
    case MPI_C_BOOL: return reduce_as<std::uint8_t>(op, count, from, into);
    case MPI_UNSIGNED_SHORT:
    case MPI_UINT16_T: return reduce_as<std::uint16_t>(op, count, from, into);
    case MPI_UNSIGNED:
    case MPI_UINT32_T: return reduce_as<std::uint32_t>(op, count, from, into);
    case MPI_UNSIGNED_LONG:
    case MPI_UNSIGNED_LONG_LONG:
    case MPI_UINT64_T: return reduce_as<std::uint64_t>(op, count, from, into);
    case MPI_FLOAT: return reduce_as<float>(op, count, from, into);
    case MPI_DOUBLE: return reduce_as<double>(op, count, from, into);
    case MPI_LONG_DOUBLE: return reduce_as<long double>(op, count, from, into);
    default: host::fail("MPI: reductions of the datatype " + std::to_string(type) + " are not simulated");
  }
}

}  // namespace simulation::mpi

using namespace simulation::mpi;

SIMULATED(Type_contiguous)
int PMPI_Type_contiguous(int count, MPI_Datatype inner, MPI_Datatype* made) {
  const Part part{0, count, inner};
  *made = make(MPI_COMBINER_CONTIGUOUS, {count}, {}, {inner}, {&part, 1});
  return MPI_SUCCESS;
}
SIMULATED(Type_vector)
int PMPI_Type_vector(int count, int length, int stride, MPI_Datatype inner, MPI_Datatype* made) {
  *made = make(MPI_COMBINER_VECTOR, {count, length, stride}, {}, {inner},
               strided(count, length, stride * type_at(inner).extent, inner));
  return MPI_SUCCESS;
}
SIMULATED(Type_create_hvector)
int PMPI_Type_create_hvector(int count, int length, MPI_Aint stride, MPI_Datatype inner, MPI_Datatype* made) {
  *made = make(MPI_COMBINER_HVECTOR, {count, length}, {stride}, {inner}, strided(count, length, stride, inner));
  return MPI_SUCCESS;
}
SIMULATED(Type_indexed)
int PMPI_Type_indexed(int count, const int* lengths, const int* places, MPI_Datatype inner, MPI_Datatype* made) {
  return indexed(MPI_COMBINER_INDEXED, count, lengths, 0, places, nullptr, inner, made);
}
SIMULATED(Type_create_hindexed)
int PMPI_Type_create_hindexed(int count, const int* lengths, const MPI_Aint* places, MPI_Datatype inner,
                              MPI_Datatype* made) {
  return indexed(MPI_COMBINER_HINDEXED, count, lengths, 0, nullptr, places, inner, made);
}
SIMULATED(Type_create_indexed_block)
int PMPI_Type_create_indexed_block(int count, int length, const int* places, MPI_Datatype inner, MPI_Datatype* made) {
  return indexed(MPI_COMBINER_INDEXED_BLOCK, count, nullptr, length, places, nullptr, inner, made);
}
SIMULATED(Type_create_hindexed_block)
int PMPI_Type_create_hindexed_block(int count, int length, const MPI_Aint* places, MPI_Datatype inner,
                                    MPI_Datatype* made) {
  return indexed(MPI_COMBINER_HINDEXED_BLOCK, count, nullptr, length, nullptr, places, inner, made);
}
SIMULATED(Type_create_struct)
int PMPI_Type_create_struct(int count, const int* lengths, const MPI_Aint* places, const MPI_Datatype* inner,
                            MPI_Datatype* made) {
  std::vector<Part> parts;
  for (int i = 0; i < count; ++i) parts.push_back({places[i], lengths[i], inner[i]});
  *made = make(MPI_COMBINER_STRUCT, joined({ints(&count, 1), ints(lengths, count)}), {places, places + count},
               {inner, inner + count}, parts);
  return MPI_SUCCESS;
}
SIMULATED(Type_create_subarray)
int PMPI_Type_create_subarray(int dimensions, const int* sizes, const int* parts, const int* starts, int order,
                              MPI_Datatype inner, MPI_Datatype* made) {
  const std::ptrdiff_t extent = type_at(inner).extent;
  // Row after row, in the order of memory.
  std::vector<int> fastest(static_cast<std::size_t>(dimensions));
  std::iota(fastest.begin(), fastest.end(), 0);
  if (order == MPI_ORDER_C) std::ranges::reverse(fastest);
  std::vector<Part> rows;
  std::vector<int> at(fastest.size());
  for (bool more = true; more;) {
    std::ptrdiff_t place = 0, stride = extent;
    for (const int d : fastest) {
      place += (starts[d] + at[static_cast<std::size_t>(d)]) * stride;
      stride *= sizes[d];
    }
    rows.push_back({place, parts[fastest[0]], inner});
    more = false;
    for (std::size_t i = 1; i < fastest.size() && !more; ++i) {
      int& index = at[static_cast<std::size_t>(fastest[i])];
      more = ++index < parts[fastest[i]];
      if (!more) index = 0;
    }
  }
  *made = make(MPI_COMBINER_SUBARRAY,
               joined({ints(&dimensions, 1), ints(sizes, dimensions), ints(parts, dimensions), ints(starts, dimensions),
                       ints(&order, 1)}),
               {}, {inner}, rows);
  Type& type = type_at(*made);
  type.lower = 0;
  type.extent = std::accumulate(sizes, sizes + dimensions, extent, std::multiplies<>());
  return MPI_SUCCESS;
}
SIMULATED(Type_create_resized)
int PMPI_Type_create_resized(MPI_Datatype inner, MPI_Aint lower, MPI_Aint extent, MPI_Datatype* made) {
  const Part part{0, 1, inner};
  *made = make(MPI_COMBINER_RESIZED, {}, {lower, extent}, {inner}, {&part, 1});
  type_at(*made).lower = lower;
  type_at(*made).extent = extent;
  return MPI_SUCCESS;
}
SIMULATED(Type_dup)
int PMPI_Type_dup(MPI_Datatype inner, MPI_Datatype* made) {
  const Part part{0, 1, inner};
  *made = make(MPI_COMBINER_DUP, {}, {}, {inner}, {&part, 1});
  type_at(*made).committed = type_at(inner).committed;
  return MPI_SUCCESS;
}

namespace {
// A type of Fortran with this precision and range: always the same one, which is never freed.
int make_f90(int combiner, std::vector<int> arguments, MPI_Datatype like, MPI_Datatype* type) {
  static std::map<std::pair<int, std::vector<int>>, MPI_Datatype> made;
  MPI_Datatype& known = made[{combiner, arguments}];
  if (known == 0) {
    const Part part{0, 1, like};
    known = make(combiner, arguments, {}, {}, {&part, 1});
    type_at(known).committed = true;
  }
  *type = known;
  return MPI_SUCCESS;
}
}  // namespace

SIMULATED(Type_create_f90_integer)
int PMPI_Type_create_f90_integer(int range, MPI_Datatype* type) {
  return make_f90(MPI_COMBINER_F90_INTEGER, {range}, range > 9 ? MPI_INT64_T : MPI_INT32_T, type);
}
SIMULATED(Type_create_f90_real)
int PMPI_Type_create_f90_real(int digits, int range, MPI_Datatype* type) {
  return make_f90(MPI_COMBINER_F90_REAL, {digits, range}, digits > 6 ? MPI_DOUBLE : MPI_FLOAT, type);
}
SIMULATED(Type_create_f90_complex)
int PMPI_Type_create_f90_complex(int digits, int range, MPI_Datatype* type) {
  return make_f90(MPI_COMBINER_F90_COMPLEX, {digits, range}, digits > 6 ? MPI_C_DOUBLE_COMPLEX : MPI_C_FLOAT_COMPLEX,
                  type);
}
SIMULATED(Type_commit)
int PMPI_Type_commit(MPI_Datatype* type) {
  type_at(*type).committed = true;
  return MPI_SUCCESS;
}
SIMULATED(Type_free)
int PMPI_Type_free(MPI_Datatype* type) {
  release(*type);
  *type = MPI_DATATYPE_NULL;
  return MPI_SUCCESS;
}
SIMULATED(Type_size)
int PMPI_Type_size(MPI_Datatype handle, int* size) {
  *size = static_cast<int>(type_at(handle).size);
  return MPI_SUCCESS;
}
SIMULATED(Type_size_x)
int PMPI_Type_size_x(MPI_Datatype handle, MPI_Count* size) {
  *size = static_cast<MPI_Count>(type_at(handle).size);
  return MPI_SUCCESS;
}
SIMULATED(Type_get_extent)
int PMPI_Type_get_extent(MPI_Datatype handle, MPI_Aint* lower, MPI_Aint* extent) {
  *lower = type_at(handle).lower;
  *extent = type_at(handle).extent;
  return MPI_SUCCESS;
}
SIMULATED(Type_get_extent_x)
int PMPI_Type_get_extent_x(MPI_Datatype handle, MPI_Count* lower, MPI_Count* extent) {
  *lower = type_at(handle).lower;
  *extent = type_at(handle).extent;
  return MPI_SUCCESS;
}
SIMULATED(Type_get_envelope)
int PMPI_Type_get_envelope(MPI_Datatype handle, int* integers, int* addresses, int* types, int* combiner) {
  const Type& type = type_at(handle);
  *integers = static_cast<int>(type.integers.size());
  *addresses = static_cast<int>(type.addresses.size());
  *types = static_cast<int>(type.types.size());
  *combiner = type.combiner;
  return MPI_SUCCESS;
}
SIMULATED(Type_get_contents)
int PMPI_Type_get_contents(MPI_Datatype handle, int, int, int, int* integers, MPI_Aint* addresses,
                           MPI_Datatype* types) {
  const Type& type = type_at(handle);
  std::ranges::copy(type.integers, integers);
  std::ranges::copy(type.addresses, addresses);
  std::ranges::copy(type.types, types);
  for (const MPI_Datatype each : type.types)
    if (Type* const inner = runtime.types.find(each)) ++inner->references;
  return MPI_SUCCESS;
}
SIMULATED(Type_get_name)
int PMPI_Type_get_name(MPI_Datatype handle, char* name, int* length) {
  *length = std::snprintf(name, MPI_MAX_OBJECT_NAME, "type %x", static_cast<unsigned>(handle));
  return MPI_SUCCESS;
}
SIMULATED(Type_create_keyval)
int PMPI_Type_create_keyval(MPI_Type_copy_attr_function*, MPI_Type_delete_attr_function* destroy, int* key,
                            void* extra) {
  auto keyval = std::make_unique<Keyval>();
  keyval->delete_of_type = destroy;
  keyval->extra = extra;
  *key = runtime.keyvals.add(std::move(keyval));
  return MPI_SUCCESS;
}
SIMULATED(Type_free_keyval)
int PMPI_Type_free_keyval(int* key) {
  *key = MPI_KEYVAL_INVALID;  // attributes may still have it
  return MPI_SUCCESS;
}
SIMULATED(Type_set_attr)
int PMPI_Type_set_attr(MPI_Datatype handle, int key, void* value) {
  type_at(handle).attributes[key] = value;
  return MPI_SUCCESS;
}
SIMULATED(Type_get_attr)
int PMPI_Type_get_attr(MPI_Datatype handle, int key, void* value, int* found) {
  const Attributes& attributes = type_at(handle).attributes;
  const auto at = attributes.find(key);
  *found = at != attributes.end();
  if (*found != 0) *static_cast<void**>(value) = at->second;
  return MPI_SUCCESS;
}
SIMULATED(Get_address)
int PMPI_Get_address(const void* place, MPI_Aint* address) {
  *address = reinterpret_cast<MPI_Aint>(place);
  return MPI_SUCCESS;
}
