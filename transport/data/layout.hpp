// SPDX-License-Identifier: BSD-3-Clause
// Layout: where the bytes of a datatype lie, without MPI. A tree whose leaves are runs of a BasicType and whose
// inner nodes repeat a child with a stride or place several children, so that memory grows with the shape of a
// datatype and not with its number of elements. pmpi/datatype.cpp makes one from an MPI_Datatype's envelope.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "transport/data/basic_type.hpp"

namespace farside {

class Layout {
 public:
  struct Run {               // `count` elements of `type`, one extent apart, the first at `offset` bytes
    std::ptrdiff_t offset;
    BasicType type;
    std::size_t count;
  };
  struct Placed {            // a child of struct_of
    std::ptrdiff_t offset;
    std::size_t count;       // repetitions, each extent() of the child apart
    std::shared_ptr<const Layout> child;
  };

  static std::shared_ptr<const Layout> basic(BasicType type);
  // `count` copies of `child`, the i-th at i * stride bytes. count may be 0; stride may be 0 or negative.
  static std::shared_ptr<const Layout> repeated(std::shared_ptr<const Layout> child, std::size_t count,
                                                std::ptrdiff_t stride);
  // Children at their offsets, in the order given (the order of the type map).
  static std::shared_ptr<const Layout> placed(std::vector<Placed> children);
  // The same bytes with another lower bound and extent.
  static std::shared_ptr<const Layout> resized(std::shared_ptr<const Layout> child, std::ptrdiff_t lower_bound,
                                               std::ptrdiff_t extent);

  std::size_t size() const { return size_; }                      // bytes of data in one element
  std::ptrdiff_t lower_bound() const { return lower_bound_; }
  std::ptrdiff_t extent() const { return extent_; }
  std::ptrdiff_t true_lower_bound() const { return true_lower_bound_; }  // first byte of data
  std::ptrdiff_t true_upper_bound() const { return true_upper_bound_; }  // one past the last byte of data
  // The single BasicType of all leaves, if there is one (accumulate requires it).
  std::optional<BasicType> uniform_type() const { return uniform_type_; }
  std::size_t elements() const { return elements_; }              // number of BasicType elements in one element
  // True if one element is a single gapless run that starts at 0 and repeats without gaps (extent == size).
  bool contiguous() const { return contiguous_; }

 private:
  friend class RunCursor;
  Layout() = default;
  enum class Kind : std::uint8_t { kBasic, kRepeated, kPlaced, kResized };
  Kind kind_ = Kind::kBasic;
  BasicType type_ = BasicType::kByte;
  std::size_t count_ = 1;
  std::ptrdiff_t stride_ = 0;
  std::vector<Placed> children_;
  std::shared_ptr<const Layout> child_;
  std::size_t size_ = 0;
  std::ptrdiff_t lower_bound_ = 0, extent_ = 0, true_lower_bound_ = 0, true_upper_bound_ = 0;
  std::optional<BasicType> uniform_type_;
  std::size_t elements_ = 0;
  bool contiguous_ = false;
};

// Walks `count` elements of a layout in type-map order, run by run (adjacent runs of one type are merged where the
// tree shows it). The layout must outlive the cursor. Allocates only for its stack.
class RunCursor {
 public:
  RunCursor(const Layout& layout, std::size_t count);
  // The next run, or false at the end. Offsets are relative to the buffer's address.
  bool next(Layout::Run& run);

 private:
  struct Frame {
    const Layout* layout;
    std::ptrdiff_t offset;
    std::size_t index;   // next repetition or child
    std::size_t repeat;  // repetitions of the current child done (kPlaced)
  };
  std::vector<Frame> stack_;
  const Layout* root_;
  std::size_t remaining_;
  std::ptrdiff_t position_ = 0;
};

// Two layouts walked together, cut where either one ends: pairs of equally long byte pieces without gaps, in the
// order of the type maps. For put and get, whose two sides may use different datatypes of the same signature.
struct BytePiece {
  std::ptrdiff_t origin_offset;
  std::ptrdiff_t target_offset;
  std::size_t bytes;
};
class BytePieces {
 public:
  BytePieces(const Layout& origin, std::size_t origin_count, const Layout& target, std::size_t target_count);
  bool next(BytePiece& piece);

 private:
  class Side {
   public:
    Side(const Layout& layout, std::size_t count) : cursor_(layout, count) {}
    bool fill();                       // makes sure that bytes_ > 0, false at the end
    std::ptrdiff_t offset_ = 0;
    std::size_t bytes_ = 0;
    void take(std::size_t bytes) { offset_ += static_cast<std::ptrdiff_t>(bytes); bytes_ -= bytes; }

   private:
    RunCursor cursor_;
    Layout::Run run_{0, BasicType::kByte, 0};   // rest of a run of a type with gaps
    bool second_ = false;
  };
  Side origin_, target_;
};

// The same for accumulates: pieces of `count` whole elements of the one BasicType of both sides.
struct ElementPiece {
  std::ptrdiff_t origin_offset;
  std::ptrdiff_t target_offset;
  std::size_t count;
};
class ElementPieces {
 public:
  // Precondition: both have the same uniform_type().
  ElementPieces(const Layout& origin, std::size_t origin_count, const Layout& target, std::size_t target_count);
  bool next(ElementPiece& piece);

 private:
  RunCursor origin_cursor_, target_cursor_;
  Layout::Run origin_run_{0, BasicType::kByte, 0}, target_run_{0, BasicType::kByte, 0};
  std::ptrdiff_t extent_;
};

}  // namespace farside
