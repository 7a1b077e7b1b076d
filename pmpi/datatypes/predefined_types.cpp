// SPDX-License-Identifier: BSD-3-Clause
// The predefined types: one table of names and kinds. The runtime's answer for the size selects the BasicType, because
// sizes depend on the machine and on the configuration of the runtime's Fortran.
#include <array>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

#include "pmpi/datatypes/datatype.hpp"
#include "pmpi/runtime/runtime.hpp"

namespace farside::pmpi {
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
