#include "journal.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>

#include "memory.h"
#include "triforce/format.h"

namespace tf_emulator::detail {
namespace {

std::uint8_t* bytes_at(std::uintptr_t address) { return reinterpret_cast<std::uint8_t*>(address); }

// Null: nobody keeps states there.
std::uint8_t* states_at(std::uintptr_t address) {
  const Region& device = memory().device;
  const std::size_t at = device.offset(address);
  return at < device.top() ? device.states(at) : nullptr;
}

// Whether normal numbers of f32 are so close. Nothing else is close to anything, such as a token to
// the next.
bool are_close(std::uint32_t a, std::uint32_t b, double relative) {
  const double x = std::bit_cast<float>(a), y = std::bit_cast<float>(b);
  return std::isnormal(std::bit_cast<float>(a)) && std::isnormal(std::bit_cast<float>(b)) &&
         std::abs(x - y) <= relative * std::max(std::abs(x), std::abs(y));
}

}  // namespace

void Journal::note_in(std::uintptr_t line, std::size_t offset, std::size_t bytes) {
  if (line != last_ || last_line_ == nullptr) {
    last_ = line;
    last_line_ = &lines_[line];  // references stay valid
  }
  Line& entry = *last_line_;
  const std::uint64_t all =
      (bytes == kLineBytes ? ~std::uint64_t{0} : (std::uint64_t{1} << bytes) - 1) << offset;
  for (std::uint64_t fresh = all & ~entry.noted; fresh != 0; fresh &= fresh - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(fresh));
    entry.data[i] = *bytes_at(line + i);
    if (const std::uint8_t* const state = states_at(line + i)) entry.states[i] = *state;
  }
  entry.noted |= all;
}

void Journal::exchange() {
  for (auto& [address, line] : lines_) {
    for (std::uint64_t noted = line.noted; noted != 0; noted &= noted - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(noted));
      std::swap(*bytes_at(address + i), line.data[i]);
      if (std::uint8_t* const state = states_at(address + i)) std::swap(*state, line.states[i]);
    }
  }
}

std::optional<std::string> Journal::difference(const Journal& other, double relative) const {
  constexpr std::size_t kWord = 4;
  std::optional<std::pair<std::uintptr_t, std::string>> first;
  const auto found = [&](std::uintptr_t address, const std::string& words) {
    if (!first || address < first->first) first.emplace(address, words);
  };
  const auto look = [&](std::uintptr_t address) {
    const auto mine = lines_.find(address), others = other.lines_.find(address);
    for (std::size_t word = 0; word < kLineBytes; word += kWord) {
      // What the other left: what it wrote, else what was there before this one wrote.
      std::uint32_t left = 0, right = 0;
      std::memcpy(&left, bytes_at(address + word), kWord);
      right = left;
      for (std::size_t i = word; i < word + kWord; ++i) {
        const Line* const line =
            others != other.lines_.end() && (others->second.noted >> i & 1) != 0 ? &others->second
            : mine != lines_.end() && (mine->second.noted >> i & 1) != 0         ? &mine->second
                                                                                 : nullptr;
        if (line == nullptr) continue;
        std::memcpy(reinterpret_cast<char*>(&right) + (i - word), &line->data[i], 1);
        const std::uint8_t* const state = states_at(address + i);
        if (state != nullptr && *state != line->states[i]) {
          found(address + i, fmt::format("{} written by {} alone", describe_memory(address + i),
                                         *state == kInitialised ? "PTX" : "the host body"));
        }
      }
      if (left != right && !are_close(left, right, relative)) {
        found(address + word,
              fmt::format("{}: PTX leaves {:#010x} ({}), the host body {:#010x} ({})",
                          describe_memory(address + word), left, std::bit_cast<float>(left), right,
                          std::bit_cast<float>(right)));
      }
    }
  };
  for (const auto& [address, line] : lines_) look(address);
  for (const auto& [address, line] : other.lines_) {
    if (!lines_.contains(address)) look(address);
  }
  return first ? std::optional(first->second) : std::nullopt;
}

}  // namespace tf_emulator::detail
