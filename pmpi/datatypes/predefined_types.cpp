// SPDX-License-Identifier: BSD-3-Clause
// One table of names and kinds. The runtime's answer for the size selects the BasicType, because sizes depend on the
// machine and on the configuration of the runtime's Fortran.
#include "pmpi/datatypes/predefined_types.hpp"

#include <array>
#include <cstddef>
#include <optional>
#include <type_traits>
#include <utility>

#include "pmpi/runtime/runtime.hpp"

namespace farside::pmpi {
namespace {

// clang-format off
enum class Kind {
  kSigned, kUnsigned, kFloating, kQuad, kComplex, kComplexQuad, kCharacter, kCountingCharacter, kByte, kLogical,
  kFloatInt, kDoubleInt, kLongInt, kInts, kShortInt, kLongDoubleInt, kReals,
  kComplexes,  // two complex numbers (Open MPI's MPI_2COMPLEX), for put and get only
};
// clang-format on

struct Entry {
  MPI_Datatype handle;
  const char* name;
  Kind kind;
};

std::vector<Entry> entries() {
#define FARSIDE_TYPE(name, kind) \
  { name, #name, Kind::kind }
  return {
      // The standard defines no arithmetic on MPI_CHAR, but both runtimes have it, and programs rely on that.
      FARSIDE_TYPE(MPI_CHAR, kCountingCharacter),
      FARSIDE_TYPE(MPI_WCHAR, kCharacter),
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
      FARSIDE_TYPE(MPI_LONG_INT, kLongInt),
      FARSIDE_TYPE(MPI_2INT, kInts),
      FARSIDE_TYPE(MPI_SHORT_INT, kShortInt),
      FARSIDE_TYPE(MPI_LONG_DOUBLE_INT, kLongDoubleInt),
      FARSIDE_TYPE(MPI_CHARACTER, kCharacter),
      FARSIDE_TYPE(MPI_LOGICAL, kLogical),
      FARSIDE_TYPE(MPI_INTEGER, kSigned),
      FARSIDE_TYPE(MPI_REAL, kFloating),
      FARSIDE_TYPE(MPI_DOUBLE_PRECISION, kFloating),
      FARSIDE_TYPE(MPI_COMPLEX, kComplex),
      FARSIDE_TYPE(MPI_DOUBLE_COMPLEX, kComplex),
      FARSIDE_TYPE(MPI_2INTEGER, kInts),
      FARSIDE_TYPE(MPI_2REAL, kReals),
      FARSIDE_TYPE(MPI_2DOUBLE_PRECISION, kReals),
#ifdef MPI_INTEGER1
      FARSIDE_TYPE(MPI_INTEGER1, kSigned),
#endif
#ifdef MPI_INTEGER2
      FARSIDE_TYPE(MPI_INTEGER2, kSigned),
#endif
#ifdef MPI_INTEGER4
      FARSIDE_TYPE(MPI_INTEGER4, kSigned),
#endif
#ifdef MPI_INTEGER8
      FARSIDE_TYPE(MPI_INTEGER8, kSigned),
#endif
#ifdef MPI_REAL4
      FARSIDE_TYPE(MPI_REAL4, kFloating),
#endif
#ifdef MPI_REAL8
      FARSIDE_TYPE(MPI_REAL8, kFloating),
#endif
#ifdef MPI_REAL16
      FARSIDE_TYPE(MPI_REAL16, kQuad),
#endif
#ifdef MPI_COMPLEX8
      FARSIDE_TYPE(MPI_COMPLEX8, kComplex),
#endif
#ifdef MPI_COMPLEX16
      FARSIDE_TYPE(MPI_COMPLEX16, kComplex),
#endif
#ifdef MPI_COMPLEX32
      FARSIDE_TYPE(MPI_COMPLEX32, kComplexQuad),
#endif
#ifdef MPI_LOGICAL1
      FARSIDE_TYPE(MPI_LOGICAL1, kLogical),
#endif
#ifdef MPI_LOGICAL2
      FARSIDE_TYPE(MPI_LOGICAL2, kLogical),
#endif
#ifdef MPI_LOGICAL4
      FARSIDE_TYPE(MPI_LOGICAL4, kLogical),
#endif
#ifdef MPI_LOGICAL8
      FARSIDE_TYPE(MPI_LOGICAL8, kLogical),
#endif
#ifdef MPI_2COMPLEX
      FARSIDE_TYPE(MPI_2COMPLEX, kComplexes),
#endif
#ifdef MPI_2DOUBLE_COMPLEX
      FARSIDE_TYPE(MPI_2DOUBLE_COMPLEX, kComplexes),
#endif
#ifdef MPI_CXX_BOOL
      FARSIDE_TYPE(MPI_CXX_BOOL, kLogical),
#endif
#ifdef MPI_CXX_FLOAT_COMPLEX
      FARSIDE_TYPE(MPI_CXX_FLOAT_COMPLEX, kComplex),
#endif
#ifdef MPI_CXX_DOUBLE_COMPLEX
      FARSIDE_TYPE(MPI_CXX_DOUBLE_COMPLEX, kComplex),
#endif
#ifdef MPI_CXX_LONG_DOUBLE_COMPLEX
      FARSIDE_TYPE(MPI_CXX_LONG_DOUBLE_COMPLEX, kComplex),
#endif
  };
#undef FARSIDE_TYPE
}

// The types that may represent a kind; the size selects one of them.
std::vector<BasicType> candidates(Kind kind) {
  using enum BasicType;
  switch (kind) {
    case Kind::kSigned: return {kInt8, kInt16, kInt32, kInt64};
    case Kind::kUnsigned: return {kUint8, kUint16, kUint32, kUint64};
    case Kind::kFloating: return {kFloat, kDouble, kLongDouble};
    case Kind::kQuad: return {kQuad};
    case Kind::kComplex: return {kComplexFloat, kComplexDouble, kComplexLongDouble};
    case Kind::kComplexQuad: return {kComplexQuad};
    case Kind::kCharacter: return {kCharacter, kCharacter4};
    case Kind::kCountingCharacter: return {std::is_signed_v<char> ? kInt8 : kUint8};
    case Kind::kByte: return {kByte};
    case Kind::kLogical: return {kLogical1, kLogical2, kLogical4, kLogical8};
    case Kind::kFloatInt: return {kFloatInt};
    case Kind::kDoubleInt: return {kDoubleInt};
    case Kind::kLongInt: return {kLongInt, kInt32Int32};  // the second where long has 4 bytes
    case Kind::kInts: return {kInt32Int32};
    case Kind::kShortInt: return {kShortInt};
    case Kind::kLongDoubleInt: return {kLongDoubleInt};
    case Kind::kReals: return {kFloatFloat, kDoubleDouble};
    case Kind::kComplexes: return {kComplexFloat, kComplexDouble};
  }
  return {};
}

std::optional<Datatype> translate(const Entry& entry) {
  MPI_Count size = 0, lower_bound = 0, extent = 0;
  runtime().Type_size_x(entry.handle, &size);
  runtime().Type_get_extent_x(entry.handle, &lower_bound, &extent);
  const std::size_t copies = entry.kind == Kind::kComplexes ? 2 : 1;
  for (const BasicType type : candidates(entry.kind)) {
    const BasicTypeTraits& known = traits(type);
    if (size != static_cast<MPI_Count>(known.size * copies)) continue;
    if (extent != static_cast<MPI_Count>(known.extent * copies)) continue;
    Datatype datatype;
    datatype.layout = Layout::repeated(Layout::basic(type), copies, known.extent);
    if (copies == 1) datatype.basic = type;
    datatype.size = datatype.layout->size();
    datatype.extent = datatype.layout->extent();
    datatype.contiguous = datatype.layout->contiguous();
    return datatype;
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
