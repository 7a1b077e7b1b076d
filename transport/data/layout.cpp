// SPDX-License-Identifier: BSD-3-Clause
// Layouts and their cursors. All properties of a layout are computed when it is made, so that the cursors descend only
// into parts that are not one run.
#include "transport/data/layout.hpp"

#include <cstring>
#include <utility>

#include "transport/base/integers.hpp"

namespace farside {
namespace {

// Returns the offset of the last of `count` copies.
std::ptrdiff_t last_of(std::size_t count, std::ptrdiff_t stride) { return narrow(Wide{count - 1} * stride); }

std::ptrdiff_t signed_bytes(std::size_t bytes) { return static_cast<std::ptrdiff_t>(bytes); }

std::ptrdiff_t run_bytes(const Layout::Run& run) { return signed_bytes(run.count * traits(run.type).extent); }

}  // namespace

// Extends the bounds to those of a child whose copies lie at offsets from `first` to `last`.
void Layout::take_bounds(const Layout& child, std::ptrdiff_t first, std::ptrdiff_t last) {
  const std::ptrdiff_t lower = narrow(Wide{std::min(first, last)} + child.lower_bound_);
  const std::ptrdiff_t upper = narrow(Wide{std::max(first, last)} + child.lower_bound_ + child.extent_);
  const bool empty = nothing();
  const std::ptrdiff_t upper_bound = empty ? upper : std::max(lower_bound_ + extent_, upper);
  lower_bound_ = empty ? lower : std::min(lower_bound_, lower);
  extent_ = narrow(Wide{upper_bound} - lower_bound_);
}

void Layout::take_data(const Layout& child, std::ptrdiff_t first, std::ptrdiff_t last, std::size_t count) {
  depth_ = std::max(depth_, child.depth_ + 1);
  const std::ptrdiff_t lower = narrow(Wide{std::min(first, last)} + child.true_lower_bound_);
  const std::ptrdiff_t upper = narrow(Wide{std::max(first, last)} + child.true_upper_bound_);
  const bool empty = size_ == 0;
  true_lower_bound_ = empty ? lower : std::min(true_lower_bound_, lower);
  true_upper_bound_ = empty ? upper : std::max(true_upper_bound_, upper);
  if (empty)
    uniform_type_ = child.uniform_type_;
  else if (uniform_type_ != child.uniform_type_)
    uniform_type_.reset();
  size_ = static_cast<std::size_t>(narrow(Wide{size_} + Wide{child.size_} * count));
  elements_ += child.elements_ * count;  // fewer than bytes
}

std::shared_ptr<const Layout> Layout::basic(BasicType type) {
  static const auto kLayouts = [] {
    std::array<std::shared_ptr<const Layout>, kBasicTypes> layouts;
    for (std::size_t index = 0; index < kBasicTypes; ++index) {
      const auto basic_type = static_cast<BasicType>(index);
      const BasicTypeTraits& known = traits(basic_type);
      const auto layout = std::shared_ptr<Layout>(new Layout);
      layout->dense_ = !has_gap(basic_type);
      layout->size_ = known.size;
      layout->extent_ = known.extent;
      // The end of the last member: a gap may follow it (double-int) or lie before it (short-int).
      layout->true_upper_bound_ = known.second == 0 ? known.size : known.second + known.size - known.first;
      layout->uniform_type_ = basic_type;
      layout->elements_ = 1;
      layout->run_ = Run{0, basic_type, 1};
      layout->find_ranges();
      layouts[index] = layout;
    }
    return layouts;
  }();
  return kLayouts[static_cast<std::size_t>(type)];
}

std::shared_ptr<const Layout> Layout::placed(std::vector<Placed> children, std::optional<std::ptrdiff_t> stride) {
  const auto layout = std::shared_ptr<Layout>(new Layout);
  layout->stride_ = stride;
  bool dense = true;
  for (Placed& child : children) {
    const Layout& inner = *child.child;
    if (child.count == 0 || inner.nothing()) continue;
    const std::ptrdiff_t apart = layout->stride_of(child);
    const std::ptrdiff_t last = narrow(Wide{child.offset} + last_of(child.count, apart));
    layout->take_bounds(inner, child.offset, last);
    if (inner.size_ == 0) continue;
    const bool adjacent = layout->size_ == 0 || child.offset + inner.true_lower_bound_ ==
                                                    layout->true_lower_bound_ + signed_bytes(layout->size_);
    dense = dense && adjacent && inner.dense_ && (child.count == 1 || apart == signed_bytes(inner.size_));
    layout->take_data(inner, child.offset, last, child.count);
    std::vector<Placed>& kept = layout->children_;
    if (!kept.empty() && kept.back().child == child.child &&
        kept.back().offset + signed_bytes(kept.back().count) * apart == child.offset) {
      kept.back().count += child.count;
    } else {
      kept.push_back(std::move(child));
    }
  }
  layout->dense_ = dense && layout->size_ > 0;
  if (layout->children_.size() == 1) {
    const Placed& only = layout->children_.front();
    const std::optional<Run>& run = only.child->run_;
    if (run && (only.count == 1 || layout->stride_of(only) == run_bytes(*run))) {
      layout->run_ = Run{only.offset + run->offset, run->type, run->count * only.count};
    }
  }
  layout->find_ranges();
  return layout;
}

std::shared_ptr<const Layout> Layout::resized(std::shared_ptr<const Layout> child, std::ptrdiff_t lower_bound,
                                              std::ptrdiff_t extent) {
  if (child->lower_bound_ == lower_bound && child->extent_ == extent) return child;
  const auto layout = std::shared_ptr<Layout>(new Layout(*child));
  layout->lower_bound_ = lower_bound;
  layout->extent_ = extent;
  return layout;
}

std::optional<Ranges> Layout::repeat(Ranges ranges, std::size_t copies, std::ptrdiff_t stride) {
  if (copies == 1) return ranges;
  if (ranges.outer != 1) return {};
  if (ranges.count != 1) {
    ranges.outer = copies;
    ranges.outer_stride = stride;
  } else if (stride == signed_bytes(ranges.bytes)) {
    ranges.bytes *= copies;
  } else {
    ranges.count = copies;
    ranges.stride = stride;
  }
  return ranges;
}

// To be called when all other members are set.
void Layout::find_ranges() {
  if (size_ == 0) return;
  if (dense_) {
    ranges_ = Ranges{true_lower_bound_, size_, 1, 0, 1, 0};
  } else if (children_.size() == 1 && children_.front().child->ranges_) {
    const Placed& only = children_.front();
    ranges_ = repeat(*only.child->ranges_, only.count, stride_of(only));
    if (ranges_) ranges_->offset += only.offset;
  }
}

namespace {

template <std::size_t kBytes>
void copy_equal(std::byte* to, std::ptrdiff_t to_stride, const std::byte* from, std::ptrdiff_t from_stride,
                std::size_t count) {
  for (; count > 0; --count, to += to_stride, from += from_stride) std::memcpy(to, from, kBytes);
}

}  // namespace

void copy_ranges(std::byte* to, std::ptrdiff_t to_stride, const std::byte* from, std::ptrdiff_t from_stride,
                 std::size_t bytes, std::size_t count) {
  switch (bytes) {
    case 1: return copy_equal<1>(to, to_stride, from, from_stride, count);
    case 2: return copy_equal<2>(to, to_stride, from, from_stride, count);
    case 4: return copy_equal<4>(to, to_stride, from, from_stride, count);
    case 8: return copy_equal<8>(to, to_stride, from, from_stride, count);
    case 16: return copy_equal<16>(to, to_stride, from, from_stride, count);
    default:
      for (; count > 0; --count, to += to_stride, from += from_stride) std::memcpy(to, from, bytes);
  }
}

RunCursor::RunCursor(const Layout& layout, std::size_t count, Unit unit)
    : root_(&layout), remaining_(layout.size() == 0 ? 0 : count), unit_(unit) {
  if (!layout.run_) frames_.reserve(layout.depth_);
}

// Returns whether `count` copies of `layout`, `stride` apart, are one run, and stores that run.
bool RunCursor::whole(const Layout& layout, std::ptrdiff_t offset, std::size_t count, std::ptrdiff_t stride,
                      Layout::Run& run) const {
  if (unit_ == Unit::kBytes && layout.dense_) {
    if (count != 1 && stride != signed_bytes(layout.size_)) return false;
    run = {offset + layout.true_lower_bound_, BasicType::kByte, layout.size_ * count};
    return true;
  }
  if (!layout.run_ || (count != 1 && stride != run_bytes(*layout.run_))) return false;
  run = {offset + layout.run_->offset, layout.run_->type, layout.run_->count * count};
  return true;
}

// Advances the innermost frame by one repetition or child. Returns true if this gave a run.
bool RunCursor::step(Layout::Run& run) {
  Frame& frame = frames_.back();
  const Layout& layout = *frame.layout;
  if (frame.index == layout.children_.size()) return frames_.pop_back(), false;
  const Layout::Placed& placed = layout.children_[frame.index];
  const std::ptrdiff_t stride = layout.stride_of(placed);
  if (frame.repeat == 0 && whole(*placed.child, frame.offset + placed.offset, placed.count, stride, run)) {
    ++frame.index;
    return true;
  }
  const std::ptrdiff_t offset = frame.offset + placed.offset + signed_bytes(frame.repeat) * stride;
  if (++frame.repeat == placed.count) {
    frame.repeat = 0;
    ++frame.index;
  }
  return enter(*placed.child, offset, run);
}

bool RunCursor::next(Layout::Run& run) {
  for (;;) {
    if (!frames_.empty()) {
      if (step(run)) return true;
      continue;
    }
    if (remaining_ == 0) return false;
    if (whole(*root_, position_, remaining_, root_->extent_, run)) {
      remaining_ = 0;
      return true;
    }
    const std::ptrdiff_t offset = position_;
    position_ += root_->extent_;
    --remaining_;
    if (enter(*root_, offset, run)) return true;
  }
}

template <RunCursor::Unit kUnit>
FragmentsOf<kUnit>::Side::Side(const Layout& layout, std::size_t count) : cursor(layout, count, kUnit) {
  if (kUnit == RunCursor::Unit::kElements && layout.uniform_type()) unit = traits(*layout.uniform_type()).extent;
}

template <RunCursor::Unit kUnit>
bool FragmentsOf<kUnit>::Side::fill() {
  if (left > 0) return true;
  if (run.count == 0) {
    if (!cursor.next(run)) return false;
    if (kUnit == RunCursor::Unit::kElements || !has_gap(run.type)) {
      offset = run.offset;
      left = kUnit == RunCursor::Unit::kElements ? run.count : run.count * traits(run.type).size;
      run.count = 0;
      return true;
    }
  }
  const BasicTypeTraits& pair = traits(run.type);
  offset = run.offset + (second ? pair.second : 0);
  left = second ? std::size_t{pair.size} - pair.first : std::size_t{pair.first};
  if (second) {
    run.offset += pair.extent;
    --run.count;
  }
  second = !second;
  return true;
}

template <RunCursor::Unit kUnit>
void FragmentsOf<kUnit>::Side::take(std::size_t count) {
  offset += signed_bytes(count) * unit;
  left -= count;
}

template <RunCursor::Unit kUnit>
bool FragmentsOf<kUnit>::next(Fragment& fragment) {
  if (!origin_.fill() || !target_.fill()) return false;
  const std::size_t count = std::min(origin_.left, target_.left);
  fragment = {origin_.offset, target_.offset, count};
  origin_.take(count);
  target_.take(count);
  return true;
}

template class FragmentsOf<RunCursor::Unit::kBytes>;
template class FragmentsOf<RunCursor::Unit::kElements>;

}  // namespace farside
