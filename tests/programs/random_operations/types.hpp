// SPDX-License-Identifier: BSD-3-Clause
// For random_operations.cpp: random nested datatypes of every constructor but darray, with gaps, strides and bounds of
// either sign, each with its type map according to the standard (MPI 4.0, section 5.1). Only the extents are the
// runtime's, because it pads structs.
#pragma once

#include <numeric>
#include <optional>

#include "random_operations/elements.hpp"

namespace random_test {

struct Entry {
  std::ptrdiff_t at;
  const Element* element;
};

// The bytes from the first to the end of the last entry of a type map, including gaps inside elements.
struct Span {
  std::ptrdiff_t low = 0, high = 0;
};

inline Span span_of(const std::vector<Entry>& map) {
  if (map.empty()) return {};
  Span span{PTRDIFF_MAX, PTRDIFF_MIN};
  for (const Entry& entry : map) {
    span.low = std::min(span.low, entry.at);
    span.high = std::max(span.high, entry.at + static_cast<std::ptrdiff_t>(entry.element->extent));
  }
  return span;
}

// A committed datatype with its type map, in order. Owns the handle of a derived datatype.
class Type {
 public:
  explicit Type(const Element& element) : handle_(element.type), map_{{0, &element}}, text_(element.name) { measure(); }
  Type(MPI_Datatype derived, std::vector<Entry> map, std::string text)
      : handle_(derived), derived_(true), map_(std::move(map)), text_(std::move(text)) {
    CHECK_MPI(MPI_Type_commit(&handle_));
    ++committed;
    measure();
  }
  // The number of types committed so far.
  static inline std::int64_t committed = 0;
  ~Type() { free(); }
  Type(Type&& other) noexcept { *this = std::move(other); }
  Type& operator=(Type&& other) noexcept {
    std::swap(handle_, other.handle_);
    std::swap(derived_, other.derived_);
    std::swap(extent_, other.extent_);
    map_ = std::move(other.map_);
    text_ = std::move(other.text_);
    return *this;
  }
  void free() {
    if (derived_) CHECK_MPI(MPI_Type_free(&handle_));
    derived_ = false;
  }

  MPI_Datatype handle() const { return handle_; }
  bool derived() const { return derived_; }
  const std::vector<Entry>& map() const { return map_; }
  std::ptrdiff_t extent() const { return extent_; }
  const std::string& text() const { return text_; }

  // Returns the type map of `count` consecutive elements.
  std::vector<Entry> repeated(int count) const {
    std::vector<Entry> all;
    append(all, count, 0);
    return all;
  }
  void append(std::vector<Entry>& to, int count, std::ptrdiff_t at) const {
    for (int i = 0; i < count; ++i)
      for (const Entry& entry : map_) to.push_back({at + i * extent_ + entry.at, entry.element});
  }
  Span span(int count) const {
    if (count == 0) return {};
    Span span = span_of(map_);
    const std::ptrdiff_t last = (count - 1) * extent_;
    return {span.low + std::min<std::ptrdiff_t>(0, last), span.high + std::max<std::ptrdiff_t>(0, last)};
  }

 private:
  void measure() {
    MPI_Aint lower = 0, extent = 0;
    CHECK_MPI(MPI_Type_get_extent(handle_, &lower, &extent));
    extent_ = extent;
  }

  MPI_Datatype handle_ = MPI_DATATYPE_NULL;
  bool derived_ = false;
  std::ptrdiff_t extent_ = 0;
  std::vector<Entry> map_;
  std::string text_;
};

// Whether any byte belongs to two entries.
inline bool overlaps(const std::vector<Entry>& map) {
  std::vector<std::pair<std::ptrdiff_t, std::ptrdiff_t>> fragments;
  for (const Entry& entry : map)
    for (const Element::Member& member : entry.element->members) {
      const std::ptrdiff_t from = entry.at + static_cast<std::ptrdiff_t>(member.at);
      fragments.emplace_back(from, from + static_cast<std::ptrdiff_t>(member.bytes));
    }
  std::sort(fragments.begin(), fragments.end());
  for (std::size_t i = 1; i < fragments.size(); ++i)
    if (fragments[i].first < fragments[i - 1].second) return true;
  return false;
}

// A buffer's datatype and count.
struct Shape {
  Type type;
  int count;
  std::string text() const { return std::to_string(count) + " x " + type.text(); }
};

// Draws datatypes whose map repeats a unit: one predefined type, or several in a struct.
class TypeMaker {
 public:
  TypeMaker(Dice& dice, std::vector<const Element*> unit) : dice_(dice), unit_(std::move(unit)) {
    for (const Element* element : unit_) align_ = std::max(align_, static_cast<int>(element->alignment));
  }
  // Allows gaps of any number of bytes; the default is multiples of the elements' alignment.
  void unaligned() { align_ = 1; }
  int alignment() const { return align_; }

  // Draws a shape of exactly `units` units. With `source` it is only read, and may contain a byte twice.
  Shape make(int units, bool source) {
    source_ = source;
    for (int tries = 0; tries < 8; ++tries) {
      const int count = units == 0 ? dice_.below(3) : divisor(units);
      const int each = count == 0 ? dice_.below(3) : units / count;
      Shape shape{nested(each, dice_.below(4)), count};
      if (source_ || !overlaps(shape.type.repeated(count))) return shape;
    }
    return {leaf(), units};
  }
  Shape plain(int units) { return {leaf(), units}; }

 private:
  using Lengths = std::vector<int>;

  int divisor(int n) {
    std::vector<int> divisors;
    for (int d = 1; d <= n; ++d)
      if (n % d == 0) divisors.push_back(d);
    return dice_.pick(divisors);
  }
  std::ptrdiff_t gap() { return dice_.one_in(2) ? 0 : static_cast<std::ptrdiff_t>(dice_.between(1, 5)) * align_; }

  Type leaf() {
    if (unit_.size() == 1) return Type(*unit_[0]);
    std::vector<Span> spans;
    for (const Element* element : unit_) spans.push_back({0, static_cast<std::ptrdiff_t>(element->extent)});
    std::vector<MPI_Aint> at = places(spans, align_);
    std::vector<MPI_Datatype> types;
    std::vector<Entry> map;
    std::string text = "struct(";
    for (std::size_t i = 0; i < unit_.size(); ++i) {
      types.push_back(unit_[i]->type);
      map.push_back({at[i], unit_[i]});
      text += std::to_string(at[i]) + ": " + unit_[i]->name + (i + 1 < unit_.size() ? ", " : ")");
    }
    const Lengths ones(unit_.size(), 1);
    MPI_Datatype made;
    CHECK_MPI(MPI_Type_create_struct(static_cast<int>(unit_.size()), ones.data(), at.data(), types.data(), &made));
    return Type(made, std::move(map), std::move(text));
  }

  // Draws displacements for blocks of these spans, in any order, without overlap, multiples of `step`.
  std::vector<MPI_Aint> places(const std::vector<Span>& spans, std::ptrdiff_t step) {
    std::vector<std::size_t> order(spans.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (dice_.one_in(2)) dice_.shuffle(order);
    std::vector<MPI_Aint> at(spans.size());
    const auto up = [&](std::ptrdiff_t value) {
      const std::ptrdiff_t rest = ((value % step) + step) % step;
      return rest == 0 ? value : value + step - rest;
    };
    std::ptrdiff_t next = dice_.one_in(2) ? 0 : step * dice_.between(-6, 6);
    for (const std::size_t i : order) {
      at[i] = up(next - spans[i].low);
      next = at[i] + spans[i].high + gap();
      if (source_ && dice_.one_in(8)) next = at[i] + spans[i].low;  // the next block overlaps this one
    }
    return at;
  }

  // Splits `n` into parts, some of them 0.
  Lengths parts(int n) {
    Lengths lengths;
    while (n > 0 && lengths.size() < 5) {
      lengths.push_back(dice_.one_in(5) ? 0 : dice_.between(1, n));
      n -= lengths.back();
    }
    if (n > 0 || lengths.empty()) lengths.push_back(n);
    return lengths;
  }

  Type nested(int units, int depth) {
    if (depth == 0 || (units == 1 && dice_.one_in(3))) return units == 1 ? leaf() : contiguous(units, 0);
    switch (dice_.below(9)) {
      case 0: return contiguous(units, depth);
      case 1: return vector(units, depth, false);
      case 2: return vector(units, depth, true);
      case 3: return indexed(units, depth);
      case 4: return indexed_block(units, depth);
      case 5: return structure(units, depth);
      case 6: return subarray(units, depth);
      case 7: return resized(nested(units, depth - 1));
      default: return duplicate(nested(units, depth - 1));
    }
  }

  // Draws the child of a constructor that repeats it: a child of a divisor of `units`, and the number of repetitions.
  std::pair<Type, int> child(int units, int depth) {
    if (units == 0) return {nested(dice_.between(1, 2), depth - 1), 0};
    const int times = depth == 0 ? units : divisor(units);
    return {depth == 0 ? leaf() : nested(units / times, depth - 1), times};
  }

  Type contiguous(int units, int depth) {
    const auto [inner, count] = child(units, depth);
    MPI_Datatype made;
    CHECK_MPI(MPI_Type_contiguous(count, inner.handle(), &made));
    return Type(made, inner.repeated(count), "contiguous(" + std::to_string(count) + ", " + inner.text() + ")");
  }

  Type vector(int units, int depth, bool bytes) {
    const auto [inner, copies] = child(units, depth);
    const int length = copies == 0 ? dice_.below(3) : divisor(copies);
    const int count = length == 0 || copies == 0 ? dice_.below(2) * static_cast<int>(length == 0) : copies / length;
    const Span block = inner.span(length);
    const std::ptrdiff_t unit = bytes ? 1 : inner.extent();
    std::ptrdiff_t apart = block.high - block.low + gap();
    std::ptrdiff_t stride = unit == 0 ? 0 : bytes ? apart : (apart + std::abs(unit) - 1) / std::abs(unit);
    if (dice_.one_in(3)) stride = -stride;
    if ((source_ || count <= 1) && dice_.one_in(4)) stride = 0;
    MPI_Datatype made;
    if (bytes)
      CHECK_MPI(MPI_Type_create_hvector(count, length, stride, inner.handle(), &made));
    else
      CHECK_MPI(MPI_Type_vector(count, length, static_cast<int>(stride), inner.handle(), &made));
    std::vector<Entry> map;
    for (int i = 0; i < count; ++i) inner.append(map, length, i * stride * unit);
    return Type(made, std::move(map),
                std::string(bytes ? "hvector(" : "vector(") + std::to_string(count) + ", " + std::to_string(length) +
                    ", " + std::to_string(stride) + ", " + inner.text() + ")");
  }

  // Whether displacements may be multiples of the child's extent: it must be a positive multiple of the alignment.
  bool in_extents(const Type& inner) { return inner.extent() > 0 && inner.extent() % align_ == 0 && dice_.one_in(2); }

  static std::string list(const Lengths& lengths, const std::vector<MPI_Aint>& at) {
    std::string text;
    for (std::size_t i = 0; i < at.size(); ++i)
      text += std::to_string(lengths[i]) + "@" + std::to_string(at[i]) + (i + 1 < at.size() ? " " : ", ");
    return text;
  }
  static Lengths in_units(const std::vector<MPI_Aint>& at, std::ptrdiff_t unit) {
    Lengths result;
    for (const MPI_Aint each : at) result.push_back(static_cast<int>(each / unit));
    return result;
  }

  Type indexed(int units, int depth) {
    const auto [inner, copies] = child(units, depth);
    const Lengths lengths = parts(copies);
    const bool extents = in_extents(inner);
    std::vector<Span> spans;
    for (const int length : lengths) spans.push_back(inner.span(length));
    const std::vector<MPI_Aint> at = places(spans, extents ? inner.extent() : align_);
    const int count = static_cast<int>(lengths.size());
    MPI_Datatype made;
    if (extents)
      CHECK_MPI(MPI_Type_indexed(count, lengths.data(), in_units(at, inner.extent()).data(), inner.handle(), &made));
    else
      CHECK_MPI(MPI_Type_create_hindexed(count, lengths.data(), at.data(), inner.handle(), &made));
    std::vector<Entry> map;
    for (std::size_t i = 0; i < lengths.size(); ++i) inner.append(map, lengths[i], at[i]);
    return Type(made, std::move(map), (extents ? "indexed(" : "hindexed(") + list(lengths, at) + inner.text() + ")");
  }

  Type indexed_block(int units, int depth) {
    const auto [inner, copies] = child(units, depth);
    const int length = copies == 0 ? dice_.below(2) : divisor(copies);
    const int count = copies == 0 || length == 0 ? dice_.below(3) * static_cast<int>(length == 0) : copies / length;
    const bool extents = in_extents(inner);
    const std::vector<Span> spans(static_cast<std::size_t>(count), inner.span(length));
    const std::vector<MPI_Aint> at = places(spans, extents ? inner.extent() : align_);
    MPI_Datatype made;
    if (extents)
      CHECK_MPI(
          MPI_Type_create_indexed_block(count, length, in_units(at, inner.extent()).data(), inner.handle(), &made));
    else
      CHECK_MPI(MPI_Type_create_hindexed_block(count, length, at.data(), inner.handle(), &made));
    std::vector<Entry> map;
    for (const MPI_Aint each : at) inner.append(map, length, each);
    return Type(
        made, std::move(map),
        (extents ? "indexed_block(" : "hindexed_block(") + list(Lengths(at.size(), length), at) + inner.text() + ")");
  }

  Type structure(int units, int depth) {
    std::vector<Type> inner;
    Lengths lengths;
    for (const int part : parts(units)) {
      auto [type, copies] = child(part, depth);
      inner.push_back(std::move(type));
      lengths.push_back(copies);
    }
    std::vector<Span> spans;
    std::vector<MPI_Datatype> types;
    for (std::size_t i = 0; i < inner.size(); ++i) {
      spans.push_back(inner[i].span(lengths[i]));
      types.push_back(inner[i].handle());
    }
    const std::vector<MPI_Aint> at = places(spans, align_);
    MPI_Datatype made;
    CHECK_MPI(MPI_Type_create_struct(static_cast<int>(types.size()), lengths.data(), at.data(), types.data(), &made));
    std::vector<Entry> map;
    std::string text = "struct(" + list(lengths, at);
    for (std::size_t i = 0; i < inner.size(); ++i) {
      inner[i].append(map, lengths[i], at[i]);
      text += inner[i].text() + (i + 1 < inner.size() ? ", " : ")");
    }
    return Type(made, std::move(map), std::move(text));
  }

  Type subarray(int units, int depth) {
    const auto [inner, copies] = child(units, depth);
    if (copies == 0) return contiguous(0, depth);  // no part of an array may be empty
    const int order = dice_.one_in(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
    Lengths sizes, parts_, starts;
    int rest = copies;
    const int dimensions = dice_.between(1, 3);
    for (int i = 0; i < dimensions; ++i) {
      parts_.push_back(i + 1 == dimensions ? rest : divisor(rest));
      rest /= parts_.back();
      starts.push_back(dice_.below(3));
      sizes.push_back(starts.back() + parts_.back() + dice_.below(2));
    }
    MPI_Datatype made;
    CHECK_MPI(
        MPI_Type_create_subarray(dimensions, sizes.data(), parts_.data(), starts.data(), order, inner.handle(), &made));
    // Element by element, the dimension with the smallest stride first.
    std::vector<Entry> map;
    Lengths index(parts_.size(), 0);
    for (int i = 0; i < copies; ++i) {
      std::ptrdiff_t place = 0, stride = 1;
      for (int k = 0; k < dimensions; ++k) {
        const auto d = static_cast<std::size_t>(order == MPI_ORDER_C ? dimensions - 1 - k : k);
        place += (starts[d] + index[d]) * stride;
        stride *= sizes[d];
      }
      inner.append(map, 1, place * inner.extent());
      for (int k = 0; k < dimensions; ++k) {
        const auto d = static_cast<std::size_t>(order == MPI_ORDER_C ? dimensions - 1 - k : k);
        if (++index[d] < parts_[d]) break;
        index[d] = 0;
      }
    }
    std::string text = order == MPI_ORDER_C ? "subarray(C, " : "subarray(Fortran, ";
    for (std::size_t d = 0; d < sizes.size(); ++d)
      text += std::to_string(parts_[d]) + "@" + std::to_string(starts[d]) + " of " + std::to_string(sizes[d]) + ", ";
    return Type(made, std::move(map), text + inner.text() + ")");
  }

  Type resized(Type inner) {
    const Span span = inner.span(1);
    const std::ptrdiff_t low = align_ * dice_.between(-4, 4);
    std::ptrdiff_t extent = span.high - span.low + gap();
    extent = (extent + align_ - 1) / align_ * align_;
    if (dice_.one_in(4)) extent = -extent;
    if (source_ && dice_.one_in(6)) extent = align_ * dice_.between(0, 2);
    MPI_Datatype made;
    CHECK_MPI(MPI_Type_create_resized(inner.handle(), low, extent, &made));
    return Type(made, inner.map(),
                "resized(" + std::to_string(low) + ", " + std::to_string(extent) + ", " + inner.text() + ")");
  }

  Type duplicate(Type inner) {
    MPI_Datatype made;
    CHECK_MPI(MPI_Type_dup(inner.handle(), &made));
    return Type(made, inner.map(), "dup(" + inner.text() + ")");
  }

  Dice& dice_;
  std::vector<const Element*> unit_;
  int align_ = 1;
  bool source_ = false;
};

}  // namespace random_test
