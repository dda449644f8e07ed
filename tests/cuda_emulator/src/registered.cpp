#include "registered.h"

#include <sys/mman.h>

#include <iterator>
#include <vector>

#include "triforce/format.h"

namespace tf_emulator::detail {
namespace {

constexpr std::uintptr_t kPage = 4096;

std::uintptr_t page_of(std::uintptr_t address) { return address / kPage * kPage; }

}  // namespace

bool is_mapped(const void* address, std::size_t bytes) {
  const std::uintptr_t begin = page_of(reinterpret_cast<std::uintptr_t>(address));
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(address) + bytes;
  constexpr std::size_t kStep = std::size_t{1} << 30;
  std::vector<unsigned char> resident(kStep / kPage);
  for (std::uintptr_t at = begin; at < end; at += kStep) {
    const std::size_t part = end - at < kStep ? end - at : kStep;
    if (mincore(reinterpret_cast<void*>(at), part, resident.data()) != 0) return false;
  }
  return true;
}

const Registered::Range* Registered::find(std::uintptr_t address) const {
  const auto above = ranges_.upper_bound(address);
  return above == ranges_.begin() ? nullptr : &std::prev(above)->second;
}

bool Registered::holds(std::uintptr_t address, std::size_t bytes) const {
  const Range* const range = find(address);
  if (range == nullptr) return false;
  const std::size_t offset = address - range->address;
  return offset <= range->bytes && bytes <= range->bytes - offset;
}

bool Registered::touches(std::uintptr_t address, std::size_t bytes) const {
  const Range* const range = bytes == 0 ? nullptr : find(address + bytes - 1);
  return range != nullptr && range->address + range->bytes > address;
}

bool Registered::is_near(std::uintptr_t address) const {
  const Range* const range = find(address);
  return range != nullptr && address - range->address < range->bytes + kPage;
}

bool Registered::is_free(const void* address, std::size_t bytes) const {
  const std::uintptr_t begin = page_of(reinterpret_cast<std::uintptr_t>(address));
  const std::uintptr_t end = reinterpret_cast<std::uintptr_t>(address) + bytes;
  const Range* const last = find(page_of(end - 1) + kPage - 1);
  return last == nullptr || page_of(last->address + last->bytes - 1) < begin;
}

void Registered::add(const void* address, std::size_t bytes) {
  const auto begin = reinterpret_cast<std::uintptr_t>(address);
  ranges_.emplace(begin, Range{begin, bytes, ++count_});
  bytes_ += bytes;
}

bool Registered::remove(const void* address) {
  const auto found = ranges_.find(reinterpret_cast<std::uintptr_t>(address));
  if (found == ranges_.end()) return false;
  bytes_ -= found->second.bytes;
  ranges_.erase(found);
  return true;
}

void Registered::remove_all() {
  ranges_.clear();
  bytes_ = 0;
  count_ = 0;
}

std::string Registered::describe(std::uintptr_t address) const {
  const Range* const range = find(address);
  if (range == nullptr) return "no registered host memory";
  return fmt::format("range {} of registered host memory ({} bytes) at offset {}", range->number,
                     range->bytes, address - range->address);
}

}  // namespace tf_emulator::detail
