// SPDX-License-Identifier: BSD-3-Clause
// Rebuilds a derived datatype from the arguments of its constructors. MPI 4.0 section 5.1.13 has the tables of
// integers, addresses and counts of each combiner. Offsets come from the constructors. The lower bound and the extent
// of every level come from the runtime, which pads structs and keeps sticky bounds in its own way.
#include <map>
#include <stdexcept>
#include <string>

#include "pmpi/datatypes/datatype.hpp"
#include "pmpi/runtime/runtime.hpp"
#include "transport/base/integers.hpp"
#include "transport/base/state.hpp"

namespace farside::pmpi {
namespace {

using LayoutPtr = std::shared_ptr<const Layout>;

struct Envelope {
  MPI_Count integers = 0, addresses = 0, counts = 0, types = 0;
  int combiner = MPI_COMBINER_NAMED;
};

Envelope envelope_of(MPI_Datatype handle) {
  Envelope envelope;
#if MPI_VERSION >= 4
  if (runtime().large_datatypes) {
    runtime().Type_get_envelope_c(handle, &envelope.integers, &envelope.addresses, &envelope.counts, &envelope.types,
                                  &envelope.combiner);
    return envelope;
  }
#endif
  int integers = 0, addresses = 0, types = 0;
  runtime().Type_get_envelope(handle, &integers, &addresses, &types, &envelope.combiner);
  envelope.integers = integers;
  envelope.addresses = addresses;
  envelope.types = types;
  return envelope;
}

bool is_f90(int combiner) {
  return combiner == MPI_COMBINER_F90_REAL || combiner == MPI_COMBINER_F90_COMPLEX ||
         combiner == MPI_COMBINER_F90_INTEGER;
}

// ompi_datatype_get_args of Open MPI 1.3 to 5; null for other runtimes. It returns the inner types themselves, where
// Open MPI's MPI_Type_get_contents makes a copy of each occurrence.
#if defined(OPEN_MPI)
using GetArguments = int(MPI_Datatype, int which, int* integers_room, int* integers, int* addresses_room,
                         MPI_Aint* addresses, int* types_room, MPI_Datatype* types, int* combiner);
GetArguments* open_mpi_arguments() {
  static auto* const found = reinterpret_cast<GetArguments*>(
      open_mpi_version() <= 5 ? find_behind_if_there("ompi_datatype_get_args") : nullptr);
  return found;
}
#endif

// The arguments of a type's constructor in one vector: integers, then addresses, then large counts. For most combiners
// the vector is the same for the int and the large-count constructor. Owns the inner handles.
class Contents : NotCopied {
 public:
  Contents(MPI_Datatype handle, const Envelope& envelope) : combiner_(envelope.combiner), large_(envelope.counts > 0) {
    std::vector<int> integers(static_cast<std::size_t>(envelope.integers) + 1);
    std::vector<MPI_Aint> addresses(static_cast<std::size_t>(envelope.addresses) + 1);
    std::vector<MPI_Count> counts(static_cast<std::size_t>(envelope.counts) + 1);
    values_.reserve(integers.size() + addresses.size() + counts.size());
    types_.resize(static_cast<std::size_t>(envelope.types) + 1, MPI_DATATYPE_NULL);
    take(handle, envelope, integers, addresses, counts);
    values_.assign(integers.begin(), integers.end() - 1);
    values_.insert(values_.end(), addresses.begin(), addresses.end() - 1);
    values_.insert(values_.end(), counts.begin(), counts.end() - 1);
    types_.pop_back();
  }
  ~Contents() {
    for (MPI_Datatype& type : types_) {
      if (borrowed_) break;
      const int combiner = envelope_of(type).combiner;
      if (combiner != MPI_COMBINER_NAMED && !is_f90(combiner)) runtime().Type_free(&type);
    }
  }

  int combiner() const { return combiner_; }
  bool large() const { return large_; }
  const std::vector<MPI_Datatype>& types() const { return types_; }
  std::ptrdiff_t value(std::size_t index) const { return static_cast<std::ptrdiff_t>(values_[index]); }
  std::size_t count(std::size_t index) const { return static_cast<std::size_t>(values_[index]); }
  // Whether equal inner handles are one type as long as the outermost type exists. MPICH only counts references.
  bool lasting_types() const { return borrowed_ || !is_open_mpi(); }

 private:
  void take(MPI_Datatype handle, const Envelope& envelope, std::vector<int>& integers, std::vector<MPI_Aint>& addresses,
            [[maybe_unused]] std::vector<MPI_Count>& counts) {
#if MPI_VERSION >= 4
    if (runtime().large_datatypes) {
      runtime().Type_get_contents_c(handle, envelope.integers, envelope.addresses, envelope.counts, envelope.types,
                                    integers.data(), addresses.data(), counts.data(), types_.data());
      return;
    }
#endif
    int integers_room = static_cast<int>(envelope.integers), addresses_room = static_cast<int>(envelope.addresses);
    int types_room = static_cast<int>(envelope.types);
#if defined(OPEN_MPI)
    borrowed_ = open_mpi_arguments() != nullptr &&
                open_mpi_arguments()(handle, 1, &integers_room, integers.data(), &addresses_room, addresses.data(),
                                     &types_room, types_.data(), nullptr) == MPI_SUCCESS;
    if (borrowed_) return;
#endif
    runtime().Type_get_contents(handle, integers_room, addresses_room, types_room, integers.data(), addresses.data(),
                                types_.data());
  }

  int combiner_;
  bool large_;
  bool borrowed_ = false;  // the inner handles are the outer type's
  std::vector<MPI_Count> values_;
  std::vector<MPI_Datatype> types_;
};

LayoutPtr contiguous(const LayoutPtr& child, std::size_t count) {
  return Layout::repeated(child, count, child->extent());
}

// Contents: [count, block length, stride]; the stride is in units of `unit` bytes.
LayoutPtr vector(const Contents& contents, const LayoutPtr& child, std::ptrdiff_t unit) {
  return Layout::repeated(contiguous(child, contents.count(1)), contents.count(0),
                          narrow(Wide{contents.value(2)} * unit));
}

// Contents: [count, block lengths, displacements], or [count, block length, displacements] if `equal`. `children` has
// one layout for all blocks or one per block.
LayoutPtr indexed(const Contents& contents, const std::vector<LayoutPtr>& children, std::ptrdiff_t unit,
                  bool equal = false) {
  const std::size_t count = contents.count(0), displacements = equal ? 2 : 1 + count;
  std::vector<Layout::Placed> blocks;
  blocks.reserve(count);
  for (std::size_t block = 0; block < count; ++block) {
    blocks.push_back({narrow(Wide{contents.value(displacements + block)} * unit), contents.count(equal ? 1 : 1 + block),
                      children[children.size() == 1 ? 0 : block]});
  }
  return Layout::placed(std::move(blocks));
}

// Returns the dimensions in ascending order of their strides in memory.
std::vector<std::size_t> dimensions_by_stride(std::size_t dimensions, std::ptrdiff_t order) {
  std::vector<std::size_t> result;
  for (std::size_t index = 0; index < dimensions; ++index) {
    result.push_back(order == MPI_ORDER_C ? dimensions - 1 - index : index);
  }
  return result;
}

// Contents: [dimensions, sizes, subsizes, starts, order]; large: [dimensions, order, sizes, subsizes, starts].
LayoutPtr subarray(const Contents& contents, LayoutPtr layout) {
  const std::size_t dimensions = contents.count(0);
  const std::size_t sizes = contents.large() ? 2 : 1;
  const std::ptrdiff_t order = contents.value(contents.large() ? 1 : 1 + 3 * dimensions);
  std::ptrdiff_t stride = layout->extent(), start = 0;
  for (const std::size_t dimension : dimensions_by_stride(dimensions, order)) {
    layout = Layout::repeated(layout, contents.count(sizes + dimensions + dimension), stride);
    start = narrow(start + Wide{contents.value(sizes + 2 * dimensions + dimension)} * stride);
    stride = narrow(Wide{stride} * contents.value(sizes + dimension));
  }
  return Layout::placed({{start, 1, layout}});
}

// One dimension of a distributed array: the part of `size` elements, `stride` bytes apart, that belongs to the process
// at `coordinate` of `processes` (MPI 4.0 section 5.1.4).
struct Distribution {
  std::ptrdiff_t size, kind, argument, processes, coordinate;
};

LayoutPtr distributed(const LayoutPtr& layout, const Distribution& part, std::ptrdiff_t stride) {
  std::ptrdiff_t block = part.argument;
  if (part.kind == MPI_DISTRIBUTE_NONE) {
    block = part.size;
  } else if (part.argument == MPI_DISTRIBUTE_DFLT_DARG) {
    block = part.kind == MPI_DISTRIBUTE_BLOCK ? (part.size + part.processes - 1) / part.processes : 1;
  }
  const std::ptrdiff_t first = part.kind == MPI_DISTRIBUTE_NONE ? 0 : narrow(Wide{part.coordinate} * block);
  const std::ptrdiff_t cycle = part.kind == MPI_DISTRIBUTE_NONE ? part.size : narrow(Wide{part.processes} * block);
  if (first >= part.size) return Layout::placed({});
  // Whole blocks, then a block that ends early at the end of the array.
  const std::ptrdiff_t cycles = (part.size - first) / cycle;
  const std::ptrdiff_t rest = part.size - first - cycles * cycle;
  const std::ptrdiff_t whole = cycles + (rest >= block ? 1 : 0);
  const std::ptrdiff_t cut = rest < block ? rest : 0;
  const auto places = [&](std::ptrdiff_t count) {
    return Layout::repeated(layout, static_cast<std::size_t>(count), stride);
  };
  return Layout::placed(
      {{narrow(Wide{first} * stride), 1,
        Layout::repeated(places(block), static_cast<std::size_t>(whole), narrow(Wide{cycle} * stride))},
       {narrow(Wide{first + whole * cycle} * stride), 1, places(cut)}});
}

// Contents: [size, rank, dimensions, global sizes, distributions, arguments, process grid, order]; large: the global
// sizes are last.
LayoutPtr distributed_array(const Contents& contents, LayoutPtr layout) {
  const std::size_t dimensions = contents.count(2);
  const std::size_t kinds = contents.large() ? 3 : 3 + dimensions;
  const std::size_t arguments = kinds + dimensions, grid = arguments + dimensions, order = grid + dimensions;
  const std::size_t sizes = contents.large() ? order + 1 : 3;
  // Ranks are row-major in the grid for either order of the array (MPI 4.0 section 5.1.4).
  std::vector<std::ptrdiff_t> coordinates(dimensions);
  std::ptrdiff_t rank = contents.value(1);
  for (std::size_t dimension = dimensions; dimension-- > 0;) {
    coordinates[dimension] = rank % contents.value(grid + dimension);
    rank /= contents.value(grid + dimension);
  }
  std::ptrdiff_t stride = layout->extent();
  for (const std::size_t dimension : dimensions_by_stride(dimensions, contents.value(order))) {
    layout =
        distributed(layout,
                    {contents.value(sizes + dimension), contents.value(kinds + dimension),
                     contents.value(arguments + dimension), contents.value(grid + dimension), coordinates[dimension]},
                    stride);
    stride = narrow(Wide{stride} * contents.value(sizes + dimension));
  }
  return layout;
}

// Returns null for an unknown combiner. (No runtime returns those that MPI-3 removed, such as HVECTOR_INTEGER.)
LayoutPtr compose(const Contents& contents, const std::vector<LayoutPtr>& children) {
  const int combiner = contents.combiner();
  if (combiner == MPI_COMBINER_STRUCT) return indexed(contents, children, 1);
  if (children.size() != 1) return nullptr;
  const LayoutPtr& child = children[0];
  switch (combiner) {
    case MPI_COMBINER_DUP:
    case MPI_COMBINER_RESIZED: return child;  // the caller sets the bounds
    case MPI_COMBINER_CONTIGUOUS: return contiguous(child, contents.count(0));
    case MPI_COMBINER_VECTOR: return vector(contents, child, child->extent());
    case MPI_COMBINER_HVECTOR: return vector(contents, child, 1);
    case MPI_COMBINER_INDEXED: return indexed(contents, children, child->extent());
    case MPI_COMBINER_HINDEXED: return indexed(contents, children, 1);
    case MPI_COMBINER_INDEXED_BLOCK: return indexed(contents, children, child->extent(), true);
    case MPI_COMBINER_HINDEXED_BLOCK: return indexed(contents, children, 1, true);
    case MPI_COMBINER_SUBARRAY: return subarray(contents, child);
    case MPI_COMBINER_DARRAY: return distributed_array(contents, child);
    default: return nullptr;
  }
}

Error unsupported(MPI_Datatype handle, const std::string& why) {
  std::array<char, MPI_MAX_OBJECT_NAME> name{};
  int length = 0;
  runtime().Type_get_name(handle, name.data(), &length);
  const std::string which = length > 0 ? std::string(name.data(), static_cast<std::size_t>(length)) : "unnamed";
  return {ErrorKind::kUnsupported, "cannot translate the datatype (" + which + "): " + why};
}

Datatype with_bounds(MPI_Datatype handle, const LayoutPtr& layout, std::optional<BasicType> basic = {}) {
  MPI_Count lower_bound = 0, extent = 0;
  runtime().Type_get_extent_x(handle, &lower_bound, &extent);
  return Datatype(
      Layout::resized(layout, static_cast<std::ptrdiff_t>(lower_bound), static_cast<std::ptrdiff_t>(extent)), basic);
}

// MPI_Type_create_f90_*: the runtime has chosen the kind, and the size identifies it. At 16 bytes the precision
// decides: up to 18 digits are x87's extended precision, more are quad precision.
Result<Datatype> flatten_f90(MPI_Datatype handle, const Envelope& envelope) {
  const Contents contents(handle, envelope);
  MPI_Count size = 0;
  runtime().Type_size_x(handle, &size);
  using enum BasicType;
  std::vector<BasicType> candidates = {kInt8, kInt16, kInt32, kInt64};
  if (envelope.combiner != MPI_COMBINER_F90_INTEGER) {
    const bool quad = contents.value(0) != MPI_UNDEFINED && contents.value(0) > 18;
    candidates = envelope.combiner == MPI_COMBINER_F90_REAL
                     ? std::vector{kFloat, kDouble, quad ? kQuad : kLongDouble}
                     : std::vector{kComplexFloat, kComplexDouble, quad ? kComplexQuad : kComplexLongDouble};
  }
  for (const BasicType type : candidates) {
    if (size == traits(type).size) return with_bounds(handle, Layout::basic(type), type);
  }
  return unsupported(handle, "there is no Fortran kind of " + std::to_string(size) + " bytes");
}

// The layouts of the inner types of one translation. Each type is translated once: a tree of pairs has exponentially
// many nodes.
using Known = std::map<std::uintptr_t, LayoutPtr>;

Result<Datatype> translate(MPI_Datatype handle, Known& known) {
  if (const Datatype* const predefined = predefined_table.find(handle)) return *predefined;
  const Envelope envelope = envelope_of(handle);
  if (is_f90(envelope.combiner)) return flatten_f90(handle, envelope);
  if (envelope.combiner == MPI_COMBINER_NAMED) {
    MPI_Count size = 0;
    runtime().Type_size_x(handle, &size);
    // MPI_LB and MPI_UB of MPI-1 are only bounds, which the extent of the enclosing type contains.
    if (size == 0) return with_bounds(handle, Layout::placed({}));
    // A type without a counterpart, such as MPI_REAL2: its bytes are moved and replaced, but not computed with.
    return with_bounds(handle,
                       Layout::repeated(Layout::basic(BasicType::kCharacter), static_cast<std::size_t>(size), 1));
  }
  const Contents contents(handle, envelope);
  std::vector<LayoutPtr> children;
  for (const MPI_Datatype type : contents.types()) {
    LayoutPtr& layout = known[key_of_handle(type)];
    if (layout == nullptr || !contents.lasting_types()) {
      const Result<Datatype> child = translate(type, known);
      if (!child.ok()) return child.error();
      layout = child.value().layout;
    }
    children.push_back(layout);
  }
  try {
    const LayoutPtr layout = compose(contents, children);
    if (!layout) return unsupported(handle, "unknown combiner " + std::to_string(envelope.combiner));
    return with_bounds(handle, layout);
  } catch (const std::overflow_error&) {
    return unsupported(handle, "its size or bounds are beyond 2^63 bytes");
  }
}

}  // namespace

Result<Datatype> flatten(MPI_Datatype handle) {
  Known known;
  return translate(handle, known);
}

}  // namespace farside::pmpi
