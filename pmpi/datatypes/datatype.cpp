// SPDX-License-Identifier: BSD-3-Clause
// Finds a datatype's translation: in a hash table for predefined types, in an attribute for all others.
#include "pmpi/datatypes/datatype.hpp"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <type_traits>

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
  // because MPICH checks the type only if the count is not 0; no data is read. Once MPI_Finalize has begun, delete
  // callbacks of MPI_COMM_SELF may still use types, and there is no communicator to ask by.
  bool committed(MPI_Datatype handle) const {
    const char nothing = 0;
    const MPI_Comm own = library().resources->own_communicator();
    return own == MPI_COMM_NULL || runtime().Send(&nothing, 1, handle, MPI_PROC_NULL, 0, own) == MPI_SUCCESS;
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
    multiplier_ = multiplier_ * 6364136223846793005u + 1442695040888963407u;  // any series will do
  }
}

void prepare_datatypes() { *library().datatypes; }

const Datatype* find_datatype(MPI_Datatype handle, Error* why) {
  Datatypes& datatypes = *library().datatypes;
  if (const Datatype* const predefined = predefined_table.find(handle)) return predefined;
  return datatypes.find_derived(handle, why);
}

// The predefined types: one table of kinds. The runtime's answer for the size selects the BasicType, because
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

struct Kind {
  Candidates candidates;
  std::vector<MPI_Datatype> handles;
  std::size_t copies = 1;
};

std::vector<Kind> kinds() {
  return {
      // The standard defines no arithmetic on MPI_CHAR, but both runtimes have it, and programs rely on that.
      {std::is_signed_v<char> ? kInt8 : kUint8, {MPI_CHAR}},
      {kCharacters, {MPI_WCHAR, MPI_CHARACTER}},
      {kByte, {MPI_BYTE, MPI_PACKED}},
      {kSigned,
       {MPI_SIGNED_CHAR, MPI_SHORT, MPI_INT, MPI_LONG, MPI_LONG_LONG_INT, MPI_INT8_T, MPI_INT16_T, MPI_INT32_T,
        MPI_INT64_T, MPI_AINT, MPI_OFFSET, MPI_COUNT, MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2, MPI_INTEGER4,
        MPI_INTEGER8}},
      {kUnsigned,
       {MPI_UNSIGNED_CHAR, MPI_UNSIGNED_SHORT, MPI_UNSIGNED, MPI_UNSIGNED_LONG, MPI_UNSIGNED_LONG_LONG, MPI_UINT8_T,
        MPI_UINT16_T, MPI_UINT32_T, MPI_UINT64_T}},
      {kFloating, {MPI_FLOAT, MPI_DOUBLE, MPI_LONG_DOUBLE, MPI_REAL, MPI_DOUBLE_PRECISION, MPI_REAL4, MPI_REAL8}},
      {kComplex,
       {MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_C_LONG_DOUBLE_COMPLEX, MPI_COMPLEX, MPI_DOUBLE_COMPLEX,
        MPI_COMPLEX8, MPI_COMPLEX16, MPI_CXX_FLOAT_COMPLEX, MPI_CXX_DOUBLE_COMPLEX, MPI_CXX_LONG_DOUBLE_COMPLEX}},
      {kLogical, {MPI_C_BOOL, MPI_LOGICAL, MPI_CXX_BOOL}},
      {kFloatInt, {MPI_FLOAT_INT}},
      {kDoubleInt, {MPI_DOUBLE_INT}},
      {kLongAndInt, {MPI_LONG_INT}},
      {kInt32Int32, {MPI_2INT, MPI_2INTEGER}},
      {kShortInt, {MPI_SHORT_INT}},
      {kLongDoubleInt, {MPI_LONG_DOUBLE_INT}},
      {kReals, {MPI_2REAL, MPI_2DOUBLE_PRECISION}},
      {kQuad, {MPI_REAL16}},
      {kComplexQuad, {MPI_COMPLEX32}},
#ifdef MPI_LOGICAL1
      {kLogical, {MPI_LOGICAL1, MPI_LOGICAL2, MPI_LOGICAL4, MPI_LOGICAL8}},
#endif
#ifdef MPI_2COMPLEX  // Open MPI's, for put and get only
      {kComplex, {MPI_2COMPLEX, MPI_2DOUBLE_COMPLEX}, 2},
#endif
  };
}

std::optional<Datatype> translate(MPI_Datatype handle, Candidates candidates, std::size_t copies) {
  MPI_Count size = 0, lower_bound = 0, extent = 0;
  runtime().Type_size_x(handle, &size);
  runtime().Type_get_extent_x(handle, &lower_bound, &extent);
  const auto [first, last] = candidates;
  for (BasicType type = first; type <= last; type = static_cast<BasicType>(static_cast<int>(type) + 1)) {
    const BasicTypeTraits& known = traits(type);
    if (size != static_cast<MPI_Count>(known.size * copies)) continue;
    if (extent != static_cast<MPI_Count>(known.extent * copies)) continue;
    return Datatype(Layout::repeated(Layout::basic(type), copies, known.extent),
                    copies == 1 ? std::optional(type) : std::nullopt);
  }
  return std::nullopt;
}

}  // namespace

std::vector<PredefinedType> make_predefined_types() {
  std::vector<PredefinedType> types;
  for (const auto& [candidates, handles, copies] : kinds()) {
    for (const MPI_Datatype handle : handles) {
      if (handle == MPI_DATATYPE_NULL) continue;
      if (std::optional<Datatype> datatype = translate(handle, candidates, copies))
        types.push_back({handle, *std::move(datatype)});
    }
  }
  return types;
}

// A linear search over 14 handles costs no more than a hash.
std::optional<ReduceOp> find_reduce_op_in_list(MPI_Op op) {
#define FARSIDE_FIND_OP(name, text, mpi) \
  if (op == MPI_##mpi) return ReduceOp::k##name;
  FARSIDE_REDUCE_OPS(FARSIDE_FIND_OP)
#undef FARSIDE_FIND_OP
  return std::nullopt;
}

}  // namespace farside::pmpi
