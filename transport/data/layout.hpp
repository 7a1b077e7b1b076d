// SPDX-License-Identifier: BSD-3-Clause
// Layout: the locations of a datatype's bytes, without MPI. It is a tree. Its leaves are runs of a BasicType, and its
// inner nodes repeat a child with a stride or place several children. So its memory grows with the shape of a datatype,
// not with the number of elements. pmpi/datatypes/flatten.cpp makes a layout from an MPI_Datatype's envelope.
//
// Thread safety: a layout is immutable; a cursor belongs to one thread. Errors: the functions that make a layout throw
// std::overflow_error if a bound, an offset or the size does not fit into std::ptrdiff_t.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "transport/data/reduce_op.hpp"

namespace farside {

// Ranges of `bytes` bytes without gaps, each of whole elements: `outer` groups, `outer_stride` bytes apart, of `count`
// ranges, `stride` bytes apart. The first range begins at `offset`.
struct Ranges {
  std::ptrdiff_t offset = 0;
  std::size_t bytes = 0;
  std::size_t count = 1;
  std::ptrdiff_t stride = 0;
  std::size_t outer = 1;
  std::ptrdiff_t outer_stride = 0;

  std::size_t total() const { return bytes * count * outer; }
};

class Layout {
 public:
  struct Run {  // `count` elements of `type`, one extent apart, the first at `offset` bytes
    std::ptrdiff_t offset;
    BasicType type;
    std::size_t count;
  };
  struct Placed {  // a child of placed()
    std::ptrdiff_t offset;
    std::size_t count;  // repetitions, one extent() of the child apart
    std::shared_ptr<const Layout> child;
  };

  // The bounds of a basic type are 0 and its extent. The bounds of other layouts are the least lower bound and the
  // greatest upper bound of their children. resized() adds MPI's padding and sticky bounds, which the runtime knows.
  static std::shared_ptr<const Layout> basic(BasicType type);
  // `count` copies of `child`, copy i at i * stride bytes. count may be 0; stride may be 0 or negative.
  static std::shared_ptr<const Layout> repeated(std::shared_ptr<const Layout> child, std::size_t count,
                                                std::ptrdiff_t stride) {
    return count == 1 ? child : placed({{0, count, child}}, stride);
  }
  // Children at their offsets, in the order of the type map. `stride`: of all repetitions, in place of the extents.
  static std::shared_ptr<const Layout> placed(std::vector<Placed> children, std::optional<std::ptrdiff_t> stride = {});
  // A copy with another lower bound and extent.
  static std::shared_ptr<const Layout> resized(std::shared_ptr<const Layout> child, std::ptrdiff_t lower_bound,
                                               std::ptrdiff_t extent);

  std::size_t size() const { return size_; }  // bytes of data in one element
  std::ptrdiff_t lower_bound() const { return lower_bound_; }
  std::ptrdiff_t extent() const { return extent_; }
  std::ptrdiff_t true_lower_bound() const { return true_lower_bound_; }  // first byte of data
  std::ptrdiff_t true_upper_bound() const { return true_upper_bound_; }  // one past the last byte of data
  // The single BasicType of all leaves, if there is one (accumulate requires it).
  std::optional<BasicType> uniform_type() const { return uniform_type_; }
  std::size_t elements() const { return elements_; }  // number of BasicType elements in one element
  // Returns the data of `copies` elements in type-map order, if they have this shape. Dense data, vectors, resized
  // types and subarrays of two or three dimensions have it.
  std::optional<Ranges> ranges(std::size_t copies) const {
    return ranges_ && copies > 0 ? repeat(*ranges_, copies, extent_) : std::nullopt;
  }
  // Returns whether the bytes of any number of elements are one range that begins at 0, in type-map order. The types
  // may differ (a struct without holes). False for layouts without data.
  bool contiguous() const { return dense_ && true_lower_bound_ == 0 && extent_ == static_cast<std::ptrdiff_t>(size_); }

 private:
  friend class RunCursor;
  Layout() = default;
  bool nothing() const { return size_ == 0 && extent_ == 0; }  // neither data nor bounds
  std::ptrdiff_t stride_of(const Placed& child) const { return stride_.value_or(child.child->extent_); }
  static std::optional<Ranges> repeat(Ranges ranges, std::size_t copies, std::ptrdiff_t stride);
  void find_ranges();
  void take_bounds(const Layout& child, std::ptrdiff_t first, std::ptrdiff_t last);
  void take_data(const Layout& child, std::ptrdiff_t first, std::ptrdiff_t last, std::size_t count);

  bool dense_ = false;                    // all bytes are one range in type-map order
  std::uint32_t depth_ = 1;               // of the tree
  std::vector<Placed> children_;          // those with data; none of a basic type
  std::optional<std::ptrdiff_t> stride_;  // of their repetitions, if it is not the extent of each
  std::size_t size_ = 0;
  std::ptrdiff_t lower_bound_ = 0, extent_ = 0, true_lower_bound_ = 0, true_upper_bound_ = 0;
  std::optional<BasicType> uniform_type_;
  std::size_t elements_ = 0;
  std::optional<Run> run_;        // all data, if they are a single run
  std::optional<Ranges> ranges_;  // of one element
};

// Walks `count` elements of a layout in type-map order, run by run. It merges adjacent runs if the tree shows them. The
// layout must outlive the cursor. The cursor allocates memory only when it is made, and none if all data are one run.
class RunCursor {
 public:
  enum class Unit : std::uint8_t {
    kElements,  // runs of basic types
    kBytes,     // ranges without gaps are runs of kByte; types with gaps stay runs of their type
  };
  RunCursor(const Layout& layout, std::size_t count, Unit unit = Unit::kElements);
  // Returns the next run; false at the end. Offsets are relative to the buffer's address.
  bool next(Layout::Run& run);

 private:
  struct Frame {
    const Layout* layout;
    std::ptrdiff_t offset;
    std::size_t index;   // current child
    std::size_t repeat;  // completed repetitions of the current child
  };
  bool whole(const Layout& layout, std::ptrdiff_t offset, std::size_t count, std::ptrdiff_t stride,
             Layout::Run& run) const;
  bool enter(const Layout& layout, std::ptrdiff_t offset, Layout::Run& run) {
    if (whole(layout, offset, 1, 0, run)) return true;
    frames_.push_back({&layout, offset, 0, 0});
    return false;
  }
  bool step(Layout::Run& run);

  const Layout* root_;
  std::size_t remaining_;
  std::ptrdiff_t position_ = 0;
  Unit unit_;
  std::vector<Frame> frames_;
};

// Walks two layouts together, in the order of their type maps, and cuts them into fragments: pairs of ranges of equal
// length. For put and get, whose origin and target may have different datatypes of the same signature, a fragment has
// bytes without gaps; for accumulates whole elements. Precondition of ElementFragments: both layouts have the same
// uniform_type().
struct Fragment {
  std::ptrdiff_t origin_offset;
  std::ptrdiff_t target_offset;
  std::size_t count;  // bytes or elements
};
template <RunCursor::Unit kUnit>
class FragmentsOf {
 public:
  FragmentsOf(const Layout& origin, std::size_t origin_count, const Layout& target, std::size_t target_count)
      : origin_(origin, origin_count), target_(target, target_count) {}
  bool next(Fragment& fragment);

 private:
  struct Side {
    Side(const Layout& layout, std::size_t count);
    bool fill();  // makes `left` > 0; false at the end
    void take(std::size_t count);

    RunCursor cursor;
    std::ptrdiff_t unit = 1;  // bytes from one byte or element to the next
    std::ptrdiff_t offset = 0;
    std::size_t left = 0;                     // bytes or elements of a range
    Layout::Run run{0, BasicType::kByte, 0};  // kBytes: rest of a run of a type with gaps
    bool second = false;                      // the first member of its first element has been walked
  };
  Side origin_, target_;
};
using ByteFragments = FragmentsOf<RunCursor::Unit::kBytes>;
using ElementFragments = FragmentsOf<RunCursor::Unit::kElements>;

// The same for two simple shapes: calls move(target offset, target stride, origin offset, origin stride, bytes of a
// range, ranges) until all data have been moved. Returns false, without a call, if the shapes do not match.
template <class Move>
bool for_ranges(Ranges target, Ranges origin, Move&& move) {
  if (target.total() != origin.total()) return false;
  // A single range is cut into ranges of the other shape's length.
  const auto cut = [](Ranges& one, std::size_t bytes) {
    if (one.count != 1 || one.outer != 1 || one.bytes % bytes != 0) return;
    one = {one.offset, bytes, one.bytes / bytes, static_cast<std::ptrdiff_t>(bytes), 1, 0};
  };
  if (target.bytes > origin.bytes) cut(target, origin.bytes);
  if (origin.bytes > target.bytes) cut(origin, target.bytes);
  if (target.bytes != origin.bytes) return false;
  struct Walk {
    Ranges of;
    std::size_t done = 0;  // ranges of the current group
    std::ptrdiff_t offset() const { return of.offset + static_cast<std::ptrdiff_t>(done) * of.stride; }
    void advance(std::size_t count) {
      done += count;
      if (done < of.count) return;
      done = 0;
      of.offset += of.outer_stride;
    }
  };
  Walk there{target}, here{origin};
  for (std::size_t left = target.count * target.outer; left > 0;) {
    const std::size_t count = std::min(target.count - there.done, origin.count - here.done);
    move(there.offset(), target.stride, here.offset(), origin.stride, target.bytes, count);
    there.advance(count);
    here.advance(count);
    left -= count;
  }
  return true;
}

// Copies `count` ranges of `bytes` bytes. Precondition: the ranges of `to` and `from` do not overlap.
void copy_ranges(std::byte* to, std::ptrdiff_t to_stride, const std::byte* from, std::ptrdiff_t from_stride,
                 std::size_t bytes, std::size_t count);

}  // namespace farside
