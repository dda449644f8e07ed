#include "trap.h"

#include <cxxabi.h>
#include <elf.h>
#include <link.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <vector>

#include "block.h"
#include "triforce/format.h"

namespace tf_emulator::detail {
namespace {

struct Symbol {
  std::uint64_t begin, size;
  std::string name;
};

// Functions of this program by its own symbol table, which, unlike dladdr, knows local ones too.
std::vector<Symbol> read_symbols() {
  std::vector<Symbol> symbols;
  std::ifstream in("/proc/self/exe", std::ios::binary);
  const std::vector<char> file{std::istreambuf_iterator<char>(in), {}};
  if (file.size() < sizeof(Elf64_Ehdr)) return symbols;
  Elf64_Ehdr header;
  std::memcpy(&header, file.data(), sizeof(header));
  std::vector<Elf64_Shdr> sections(header.e_shnum);
  if (header.e_shoff + sections.size() * sizeof(Elf64_Shdr) > file.size()) return symbols;
  std::memcpy(sections.data(), file.data() + header.e_shoff, sections.size() * sizeof(Elf64_Shdr));
  for (const Elf64_Shdr& table : sections) {
    if (table.sh_type != SHT_SYMTAB || table.sh_link >= sections.size()) continue;
    const char* const names = file.data() + sections[table.sh_link].sh_offset;
    for (std::uint64_t at = 0; at + sizeof(Elf64_Sym) <= table.sh_size; at += sizeof(Elf64_Sym)) {
      Elf64_Sym symbol;
      std::memcpy(&symbol, file.data() + table.sh_offset + at, sizeof(symbol));
      if (ELF64_ST_TYPE(symbol.st_info) != STT_FUNC || symbol.st_value == 0) continue;
      symbols.push_back({symbol.st_value, symbol.st_size, names + symbol.st_name});
    }
  }
  return symbols;
}

std::uint64_t load_address() {
  std::uint64_t address = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        *static_cast<std::uint64_t*>(out) = info->dlpi_addr;  // the first is the program
        return 1;
      },
      &address);
  return address;
}

}  // namespace

std::string readable_name(const std::string& linker_name) {
  int status = 0;
  char* const plain = abi::__cxa_demangle(linker_name.c_str(), nullptr, nullptr, &status);
  std::string out = plain == nullptr ? linker_name : plain;
  std::free(plain);
  return out;
}

std::string linker_name(const void* address) {
  static const std::vector<Symbol> symbols = read_symbols();
  const std::uint64_t offset = reinterpret_cast<std::uint64_t>(address) - load_address();
  for (const Symbol& symbol : symbols) {
    if (offset >= symbol.begin && offset < symbol.begin + symbol.size) return symbol.name;
  }
  return {};
}

std::string function_name(const void* address) {
  const std::string name = linker_name(address);
  return name.empty() ? fmt::format("kernel at {}", address) : readable_name(name);
}

ShortText short_text(const std::string& text) {
  ShortText made;
  text.copy(made.text, sizeof(made.text) - 1);
  return made;
}

void raise_trap(Trap kind, std::string what) {
  if (running == nullptr) throw std::logic_error("CUDA emulator: " + what);
  running->fail(kind, std::move(what));
}

}  // namespace tf_emulator::detail
