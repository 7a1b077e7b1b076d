// SPDX-License-Identifier: BSD-3-Clause
#include "transport/base/log.hpp"

#include <array>
#include <sys/uio.h>
#include <unistd.h>

#include <fmt/format-inl.h>

// The definitions of fmt, compiled into farside instead of a library: the functions that fmt's headers declare, and the
// templates that they declare extern. None with FMT_HEADER_ONLY.
#ifndef FMT_HEADER_ONLY
FMT_BEGIN_NAMESPACE
namespace detail {
template dragonbox::decimal_fp<float> dragonbox::to_decimal(float) noexcept;
template dragonbox::decimal_fp<double> dragonbox::to_decimal(double) noexcept;
template locale_ref::locale_ref(const std::locale&);
template std::locale locale_ref::get<std::locale>() const;
template thousands_sep_result<char> thousands_sep_impl(locale_ref);
template char decimal_point_impl(locale_ref);
template void buffer<char>::append(const char*, const char*);
template void vformat_to(buffer<char>&, string_view, basic_format_args<FMT_BUFFER_CONTEXT(char)>, locale_ref);
}  // namespace detail
FMT_END_NAMESPACE
#endif

namespace farside {

std::string printable(std::string_view text) {
  std::string result;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool c1 = byte >= 0x80 && byte < 0xa0 && result.ends_with('\xc2');
    if (c1) result.pop_back();
    result += c1 || byte < ' ' || byte == 0x7f ? '?' : c;
  }
  return result;
}

void Log::write(LogLevel level, std::string_view text) {
  static constexpr const char* kNames[] = {"error", "warning", "info", "debug"};
  const int rank = this_process.log_rank.load(std::memory_order_relaxed);
  const std::string who = rank < 0 ? std::string("farside") : fmt::format("farside[{}]", rank);
  const std::string line = fmt::format("{}: {}: {}\n", who, kNames[static_cast<int>(level)], printable(text));
  // Ignores errors: there is no other place for the message.
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
}

bool Log::is_new(std::string text) {
  const std::scoped_lock held(this_process.logged_mutex);
  return this_process.logged->insert(std::move(text)).second;
}

void Log::write_parts(std::initializer_list<std::string_view> parts) {
  std::array<iovec, 8> pieces{};
  std::size_t count = 0;
  for (const std::string_view part : parts) pieces.at(count++) = {const_cast<char*>(part.data()), part.size()};
  [[maybe_unused]] const ssize_t written = ::writev(STDERR_FILENO, pieces.data(), static_cast<int>(count));
}

}  // namespace farside
