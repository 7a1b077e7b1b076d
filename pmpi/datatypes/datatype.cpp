// SPDX-License-Identifier: BSD-3-Clause
// Finds a datatype's translation: in a hash table for predefined types, in an attribute for all others.
#include "pmpi/datatypes/datatype.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "pmpi/library/library.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "pmpi/runtime/runtime_resources.hpp"
#include "transport/base/state.hpp"

namespace farside::pmpi {

// The owner of the translations: made when MPI is initialized.
class Datatypes {
 public:
  Datatypes() { predefined_table.fill(predefined_); }

  const Datatype* find_derived(MPI_Datatype handle, Error* why) {
    // The attribute look-up takes some 50 ns, most of it in the runtime's lock. Programs often use one type many times
    // in succession, so each thread caches the last one.
    auto& recent = this_thread.type;
    const std::uintptr_t bits = key_of_handle(handle);
    // Acquire, paired with the release order in release(): after another thread has freed the type and got the same
    // handle for a new one, this thread sees the new count.
    const std::uint64_t freed = freed_.load(std::memory_order_acquire);
    if (recent.handle == bits && recent.freed == freed && recent.datatype != nullptr)
      return static_cast<const Datatype*>(recent.datatype);
    const Result<const Datatype*> found = find_or_make(handle);
    if (!found && why != nullptr) *why = found.error();
    if (!found) return nullptr;
    recent = {bits, freed, found.value()};
    return found.value();
  }

 private:
  // No call says whether a type is committed, but a send to MPI_PROC_NULL refuses a type that is not. The count is 1,
  // because MPICH checks the type only if the count is not 0; no data is read.
  bool committed(MPI_Datatype handle) const {
    const char nothing = 0;
    return runtime().Send(&nothing, 1, handle, MPI_PROC_NULL, 0, library().resources->own_communicator()) ==
           MPI_SUCCESS;
  }

  int key() { return library().resources->datatype_key(release, this); }

  const Datatype* attribute(MPI_Datatype handle) {
    void* value = nullptr;
    int found = 0;
    runtime().Type_get_attr(handle, key(), &value, &found);
    return found ? static_cast<const Datatype*>(value) : nullptr;
  }

  Result<const Datatype*> find_or_make(MPI_Datatype handle) {
    if (handle == MPI_DATATYPE_NULL) return Error{ErrorKind::kUnsupported, "the datatype is MPI_DATATYPE_NULL"};
    if (const Datatype* const known = attribute(handle)) return known;
    // Setting the attribute twice would delete the first value while threads use it. release() does not take this lock.
    const std::lock_guard lock(making_);
    if (const Datatype* const known = attribute(handle)) return known;
    if (!committed(handle))
      return Error{ErrorKind::kUnsupported, "the datatype is not committed (MPI_Type_commit), or not valid"};
    Result<Datatype> made = flatten(handle);
    if (!made) return made.error();
    auto datatype = std::make_unique<Datatype>(std::move(made.value()));
    if (runtime().Type_set_attr(handle, key(), datatype.get()) != MPI_SUCCESS)
      return Error{ErrorKind::kOther, "the runtime refused an attribute on the datatype"};
    return datatype.release();
  }

  static int release(MPI_Datatype, int, void* value, void* owner) {
    static_cast<Datatypes*>(owner)->freed_.fetch_add(1, std::memory_order_release);
    delete static_cast<Datatype*>(value);
    return MPI_SUCCESS;
  }

  const std::vector<PredefinedType> predefined_ = make_predefined_types();
  std::mutex making_;
  std::atomic<std::uint64_t> freed_{0};
};

constinit PredefinedTable predefined_table;

bool PredefinedTable::place(const PredefinedType& type) {
  const std::uintptr_t bits = key_of_handle(type.handle);
  Slot& slot = slots_[slot_of(bits)];
  if (slot.datatype != nullptr) return slot.bits == bits;
  slot = {bits, &type.datatype, type.datatype.contiguous ? type.datatype.size : 0};
  return true;
}

void PredefinedTable::fill(std::span<const PredefinedType> types) {
  while (!std::all_of(types.begin(), types.end(), [&](const PredefinedType& type) { return place(type); })) {
    slots_.fill({});
    multiplier_ = multiplier_ * 6364136223846793005u + 1442695040888963407u;  // any series serves
  }
}

void prepare_datatypes() { *library().datatypes; }

const Datatype* find_datatype(MPI_Datatype handle, Error* why) {
  Datatypes& datatypes = *library().datatypes;
  if (const Datatype* const predefined = predefined_table.find(handle)) return predefined;
  return datatypes.find_derived(handle, why);
}

// The predefined types: one table of names and kinds. The runtime's answer for the size selects the BasicType, because
// sizes depend on the machine and on the configuration of the runtime's Fortran.

namespace {

using enum BasicType;

// The basic types that may represent a type, adjacent in the enum; the size selects one of them.
struct Candidates {
  // NOLINTNEXTLINE(google-explicit-constructor)
  constexpr Candidates(BasicType only) : first(only), last(only) {}
  constexpr Candidates(BasicType from, BasicType to) : first(from), last(to) {}
  BasicType first, last;
};
constexpr Candidates kSigned(kInt8, kInt64), kUnsigned(kUint8, kUint64), kFloating(kFloat, kLongDouble),
    kComplex(kComplexFloat, kComplexLongDouble), kCharacters(kCharacter, kCharacter4), kLogical(kLogical1, kLogical8),
    kLongAndInt(kLongInt, kInt32Int32),  // the second where long has 4 bytes
    kReals(kFloatFloat, kDoubleDouble);

struct Entry {
  MPI_Datatype handle;
  const char* name;
  Candidates candidates;
  std::size_t copies = 1;
};

std::vector<Entry> entries() {
#define FARSIDE_TYPE(name, kind) \
  { name, #name, kind }
  return {
      // The standard defines no arithmetic on MPI_CHAR, but both runtimes have it, and programs rely on that.
      FARSIDE_TYPE(MPI_CHAR, std::is_signed_v<char> ? kInt8 : kUint8),
      FARSIDE_TYPE(MPI_WCHAR, kCharacters),
      FARSIDE_TYPE(MPI_BYTE, kByte),
      FARSIDE_TYPE(MPI_PACKED, kByte),
      FARSIDE_TYPE(MPI_SIGNED_CHAR, kSigned),
      FARSIDE_TYPE(MPI_SHORT, kSigned),
      FARSIDE_TYPE(MPI_INT, kSigned),
      FARSIDE_TYPE(MPI_LONG, kSigned),
      FARSIDE_TYPE(MPI_LONG_LONG_INT, kSigned),
      FARSIDE_TYPE(MPI_INT8_T, kSigned),
      FARSIDE_TYPE(MPI_INT16_T, kSigned),
      FARSIDE_TYPE(MPI_INT32_T, kSigned),
      FARSIDE_TYPE(MPI_INT64_T, kSigned),
      FARSIDE_TYPE(MPI_AINT, kSigned),
      FARSIDE_TYPE(MPI_OFFSET, kSigned),
      FARSIDE_TYPE(MPI_COUNT, kSigned),
      FARSIDE_TYPE(MPI_UNSIGNED_CHAR, kUnsigned),
      FARSIDE_TYPE(MPI_UNSIGNED_SHORT, kUnsigned),
      FARSIDE_TYPE(MPI_UNSIGNED, kUnsigned),
      FARSIDE_TYPE(MPI_UNSIGNED_LONG, kUnsigned),
      FARSIDE_TYPE(MPI_UNSIGNED_LONG_LONG, kUnsigned),
      FARSIDE_TYPE(MPI_UINT8_T, kUnsigned),
      FARSIDE_TYPE(MPI_UINT16_T, kUnsigned),
      FARSIDE_TYPE(MPI_UINT32_T, kUnsigned),
      FARSIDE_TYPE(MPI_UINT64_T, kUnsigned),
      FARSIDE_TYPE(MPI_FLOAT, kFloating),
      FARSIDE_TYPE(MPI_DOUBLE, kFloating),
      FARSIDE_TYPE(MPI_LONG_DOUBLE, kFloating),
      FARSIDE_TYPE(MPI_C_BOOL, kLogical),
      FARSIDE_TYPE(MPI_C_FLOAT_COMPLEX, kComplex),
      FARSIDE_TYPE(MPI_C_DOUBLE_COMPLEX, kComplex),
      FARSIDE_TYPE(MPI_C_LONG_DOUBLE_COMPLEX, kComplex),
      FARSIDE_TYPE(MPI_FLOAT_INT, kFloatInt),
      FARSIDE_TYPE(MPI_DOUBLE_INT, kDoubleInt),
      FARSIDE_TYPE(MPI_LONG_INT, kLongAndInt),
      FARSIDE_TYPE(MPI_2INT, kInt32Int32),
      FARSIDE_TYPE(MPI_SHORT_INT, kShortInt),
      FARSIDE_TYPE(MPI_LONG_DOUBLE_INT, kLongDoubleInt),
      FARSIDE_TYPE(MPI_CHARACTER, kCharacters),
      FARSIDE_TYPE(MPI_LOGICAL, kLogical),
      FARSIDE_TYPE(MPI_INTEGER, kSigned),
      FARSIDE_TYPE(MPI_REAL, kFloating),
      FARSIDE_TYPE(MPI_DOUBLE_PRECISION, kFloating),
      FARSIDE_TYPE(MPI_COMPLEX, kComplex),
      FARSIDE_TYPE(MPI_DOUBLE_COMPLEX, kComplex),
      FARSIDE_TYPE(MPI_2INTEGER, kInt32Int32),
      FARSIDE_TYPE(MPI_2REAL, kReals),
      FARSIDE_TYPE(MPI_2DOUBLE_PRECISION, kReals),
      FARSIDE_TYPE(MPI_INTEGER1, kSigned),
      FARSIDE_TYPE(MPI_INTEGER2, kSigned),
      FARSIDE_TYPE(MPI_INTEGER4, kSigned),
      FARSIDE_TYPE(MPI_INTEGER8, kSigned),
      FARSIDE_TYPE(MPI_REAL4, kFloating),
      FARSIDE_TYPE(MPI_REAL8, kFloating),
      FARSIDE_TYPE(MPI_REAL16, kQuad),
      FARSIDE_TYPE(MPI_COMPLEX8, kComplex),
      FARSIDE_TYPE(MPI_COMPLEX16, kComplex),
      FARSIDE_TYPE(MPI_COMPLEX32, kComplexQuad),
      FARSIDE_TYPE(MPI_CXX_BOOL, kLogical),
      FARSIDE_TYPE(MPI_CXX_FLOAT_COMPLEX, kComplex),
      FARSIDE_TYPE(MPI_CXX_DOUBLE_COMPLEX, kComplex),
      FARSIDE_TYPE(MPI_CXX_LONG_DOUBLE_COMPLEX, kComplex),
#ifdef MPI_LOGICAL1
      FARSIDE_TYPE(MPI_LOGICAL1, kLogical),
      FARSIDE_TYPE(MPI_LOGICAL2, kLogical),
      FARSIDE_TYPE(MPI_LOGICAL4, kLogical),
      FARSIDE_TYPE(MPI_LOGICAL8, kLogical),
#endif
#ifdef MPI_2COMPLEX  // Open MPI's, for put and get only
      {MPI_2COMPLEX, "MPI_2COMPLEX", kComplex, 2},
      {MPI_2DOUBLE_COMPLEX, "MPI_2DOUBLE_COMPLEX", kComplex, 2},
#endif
  };
#undef FARSIDE_TYPE
}

std::optional<Datatype> translate(const Entry& entry) {
  MPI_Count size = 0, lower_bound = 0, extent = 0;
  runtime().Type_size_x(entry.handle, &size);
  runtime().Type_get_extent_x(entry.handle, &lower_bound, &extent);
  const auto [first, last] = entry.candidates;
  for (BasicType type = first; type <= last; type = static_cast<BasicType>(static_cast<int>(type) + 1)) {
    const BasicTypeTraits& known = traits(type);
    if (size != static_cast<MPI_Count>(known.size * entry.copies)) continue;
    if (extent != static_cast<MPI_Count>(known.extent * entry.copies)) continue;
    return Datatype(Layout::repeated(Layout::basic(type), entry.copies, known.extent),
                    entry.copies == 1 ? std::optional(type) : std::nullopt);
  }
  return std::nullopt;
}

}  // namespace

std::vector<PredefinedType> make_predefined_types() {
  std::vector<PredefinedType> types;
  for (const Entry& entry : entries()) {
    if (entry.handle == MPI_DATATYPE_NULL) continue;
    if (std::optional<Datatype> datatype = translate(entry)) {
      types.push_back({entry.handle, entry.name, *std::move(datatype)});
    }
  }
  return types;
}

// A linear search over 14 handles costs no more than a hash. The most frequent operations come first.

std::optional<ReduceOp> find_reduce_op_in_list(MPI_Op op) {
  struct Entry {
    MPI_Op handle;
    ReduceOp op;
  };
  static const std::array<Entry, kReduceOps> kEntries = {{
      {MPI_SUM, ReduceOp::kSum},
      {MPI_REPLACE, ReduceOp::kReplace},
      {MPI_NO_OP, ReduceOp::kNoOp},
      {MPI_MAX, ReduceOp::kMax},
      {MPI_MIN, ReduceOp::kMin},
      {MPI_PROD, ReduceOp::kProd},
      {MPI_LAND, ReduceOp::kLand},
      {MPI_LOR, ReduceOp::kLor},
      {MPI_LXOR, ReduceOp::kLxor},
      {MPI_BAND, ReduceOp::kBand},
      {MPI_BOR, ReduceOp::kBor},
      {MPI_BXOR, ReduceOp::kBxor},
      {MPI_MINLOC, ReduceOp::kMinloc},
      {MPI_MAXLOC, ReduceOp::kMaxloc},
  }};
  for (const Entry& entry : kEntries) {
    if (entry.handle == op) return entry.op;
  }
  return std::nullopt;
}

}  // namespace farside::pmpi
