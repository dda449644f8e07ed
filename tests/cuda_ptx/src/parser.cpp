// From text to a module: statements, declarations, names.
#include <algorithm>
#include <cctype>
#include <sstream>
#include <stdexcept>

#include "operands.h"
#include "triforce/format.h"

namespace tf_ptx::detail {
namespace {

[[noreturn]] void refuse(const std::string& why, const std::string& where) {
  throw std::runtime_error(fmt::format("{}: {}", why, where));
}

std::string trimmed(const std::string& s) {
  const auto space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  const auto begin = std::find_if_not(s.begin(), s.end(), space);
  const auto end = std::find_if_not(s.rbegin(), std::make_reverse_iterator(begin), space).base();
  return {begin, end};
}

// Parts between commas outside brackets of any kind.
std::vector<std::string> split(const std::string& s) {
  std::vector<std::string> parts;
  int depth = 0;
  std::string part;
  for (const char c : s) {
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (c == ',' && depth == 0) {
      parts.push_back(trimmed(part));
      part.clear();
    } else {
      part += c;
    }
  }
  part = trimmed(part);
  if (!part.empty()) parts.push_back(part);
  return parts;
}

std::vector<std::string> words(const std::string& s) {
  std::istringstream in(s);
  std::vector<std::string> out;
  for (std::string word; in >> word;) out.push_back(word);
  return out;
}

// Bytes of a type: b32, f16, pred (0), ...
std::uint8_t type_bytes(const std::string& type) {
  static const std::map<std::string, std::uint8_t> odd = {
      {"pred", 0}, {"b8", 1}, {"u8", 1}, {"s8", 1}};
  if (const auto found = odd.find(type); found != odd.end()) return found->second;
  for (const auto& [bits, bytes] : {std::pair{"16", 2}, {"32", 4}, {"64", 8}}) {
    if (type.size() == 3 && type.ends_with(bits)) return static_cast<std::uint8_t>(bytes);
  }
  refuse("type", type);
}

std::uint32_t align_up(std::uint32_t value, std::uint32_t unit) {
  return (value + unit - 1) / unit * unit;
}

// Statements of a file, one after another.
class Statements {
 public:
  enum class Kind { kEnd, kOpen, kClose, kLabel, kHeader, kText };
  explicit Statements(const std::string& text) {
    // Comments and the directives that a line ends say nothing that is executed.
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) {
      line = line.substr(0, line.find("//"));
      const std::string first = line.substr(0, line.find_first_of(" \t"));
      if (first == ".version" || first == ".target" || first == ".address_size") continue;
      text_ += line + '\n';
    }
  }

  Kind next(std::string& out) {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
    if (at_ == text_.size()) return Kind::kEnd;
    if (text_[at_] == '{') return ++at_, Kind::kOpen;
    if (text_[at_] == '}') return ++at_, Kind::kClose;
    std::size_t end = at_;
    const auto named = [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '$';
    };
    while (end < text_.size() && named(text_[end])) ++end;
    if (end < text_.size() && text_[end] == ':') {
      out = text_.substr(at_, end - at_);
      at_ = end + 1;
      return Kind::kLabel;
    }
    const bool header = is_header();
    const std::size_t stop = text_.find_first_of(header ? ";{" : ";", at_);
    if (stop == std::string::npos) refuse("a statement that does not end", text_.substr(at_, 60));
    out = text_.substr(at_, stop - at_);
    std::replace_if(
        out.begin(), out.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
    out = trimmed(out);
    const bool body = header && text_[stop] == '{';
    at_ = body ? stop : stop + 1;
    return body ? Kind::kHeader : Kind::kText;
  }

 private:
  bool is_header() const {
    const std::string start = text_.substr(at_, 40);
    for (const std::string& word : words(start)) {
      if (word == ".entry" || word == ".func") return true;
      if (word != ".visible" && word != ".weak" && word != ".extern") return false;
    }
    return false;
  }
  std::string text_;
  std::size_t at_ = 0;
};

// What a name is.
struct Symbol {
  enum class Kind { kRegister, kLocal, kParameter, kShared } kind = Kind::kRegister;
  Register reg;
  std::uint32_t offset = 0, bytes = 0;
};

struct Declaration {
  std::string space, name;
  std::uint32_t bytes = 0, alignment = 1, element = 1;
  bool is_extern = false;
};

class Parser final : Operands {
 public:
  Parser(Module& module, const std::string& file) : module_(module), statements_(file) {}

  void run() {
    for (;;) {
      const Statements::Kind kind = statements_.next(statement_);
      if (kind == Statements::Kind::kEnd) break;
      if (kind == Statements::Kind::kHeader) {
        function();
      } else if (kind == Statements::Kind::kText) {
        module_declaration();
      } else {
        refuse("outside of a function", statement_);
      }
    }
    for (const auto& [from, index, name] : calls_) connect(*from, from->code[index], name);
  }
  const std::string& statement() const { return statement_; }

 private:
  // --- Declarations
  void module_declaration() {
    const std::string head = words(statement_).front();
    if (head == ".func") return;  // one that is defined later
    const Declaration d = declaration();
    if (d.space == ".shared" && d.is_extern) {
      dynamic_shared_.push_back(d.name);
      return;
    }
    if (d.space == ".func") return;
    if (d.space != ".global" && d.space != ".const") refuse("declaration", statement_);
    std::vector<std::byte>& data = module_.constants[d.name];
    data.assign(d.bytes, std::byte{});
    const std::size_t equals = statement_.find('=');
    if (equals == std::string::npos) return;
    std::size_t at = 0;
    for (const std::string& v : elements(trimmed(statement_.substr(equals + 1)))) {
      const std::uint64_t bits = number(v);
      if (at + d.element > data.size()) refuse("more values than bytes", statement_);
      std::memcpy(data.data() + at, &bits, d.element);
      at += d.element;
    }
  }

  Declaration declaration() const {
    Declaration d;
    const std::vector<std::string> all = words(statement_.substr(0, statement_.find('=')));
    for (std::size_t i = 0; i < all.size(); ++i) {
      const std::string& word = all[i];
      if (word == ".align") {
        d.alignment = static_cast<std::uint32_t>(number(all.at(++i)));
      } else if (word == ".extern") {
        d.is_extern = true;
      } else if (word == ".visible" || word == ".weak") {
      } else if (word == ".shared" || word == ".global" || word == ".const" || word == ".local" ||
                 word == ".param" || word == ".func") {
        d.space = word;
      } else if (word[0] == '.') {
        d.element = type_bytes(word.substr(1));
      } else {
        d.name = word;
        break;
      }
    }
    d.bytes = d.element;
    if (const std::size_t bracket = d.name.find('['); bracket != std::string::npos) {
      const std::string count = d.name.substr(bracket + 1, d.name.size() - bracket - 2);
      d.bytes = count.empty() ? 0 : d.element * static_cast<std::uint32_t>(number(count));
      d.name = d.name.substr(0, bracket);
    }
    d.alignment = std::max(d.alignment, d.element);
    return d;
  }

  // --- Functions
  void function() {
    auto made = std::make_unique<Function>();
    function_ = made.get();
    scopes_.assign(1, {});
    labels_.clear();
    branches_.clear();
    pool_.clear();
    header();
    std::unique_ptr<Function>& known = module_.functions[made->name];
    if (known != nullptr) refuse("defined twice", made->name);
    known = std::move(made);
    body();
    for (const auto& [index, label] : branches_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) refuse("no label " + label, function_->code[index].text);
      function_->code[index].target = found->second;
    }
  }

  // .visible .entry name( parameters ) .maxntid n ... or .func (results) name( parameters )
  void header() {
    std::string s = statement_;
    function_->kernel = s.find(".entry") != std::string::npos;
    s = trimmed(
        s.substr(s.find(function_->kernel ? ".entry" : ".func") + (function_->kernel ? 6 : 5)));
    const auto bracketed = [&] {
      const std::size_t close = s.find(')');
      if (s[0] != '(' || close == std::string::npos) refuse("header", statement_);
      const std::string inside = s.substr(1, close - 1);
      s = trimmed(s.substr(close + 1));
      return inside;
    };
    if (s[0] == '(') declare_parameters(bracketed(), function_->results);
    const std::size_t open = std::min(s.find('('), s.size());
    function_->name = trimmed(s.substr(0, open));
    s = s.substr(open);
    if (!s.empty()) declare_parameters(bracketed(), function_->parameters);
  }

  void declare_parameters(const std::string& list, std::vector<Parameter>& out) {
    const std::string whole = statement_;
    for (const std::string& one : split(list)) {
      statement_ = one;
      const Declaration d = declaration();
      Symbol symbol;
      std::uint32_t& top = function_->kernel ? function_->parameter_bytes : function_->local_bytes;
      top = align_up(top, d.alignment);
      symbol.kind = function_->kernel ? Symbol::Kind::kParameter : Symbol::Kind::kLocal;
      symbol.offset = top;
      symbol.bytes = d.bytes;
      top += d.bytes;
      scopes_.back()[d.name] = symbol;
      out.push_back({d.name, symbol.offset, d.bytes});
    }
    statement_ = whole;
  }

  void body() {
    for (;;) {
      switch (statements_.next(statement_)) {
        case Statements::Kind::kOpen:
          scopes_.emplace_back();
          break;
        case Statements::Kind::kClose:
          scopes_.pop_back();
          if (scopes_.size() > 1) break;
          // Whoever comes to the end returns.
          function_->code.emplace_back();
          function_->code.back().flow = Flow::kReturn;
          return;
        case Statements::Kind::kLabel:
          labels_[statement_] = static_cast<std::uint32_t>(function_->code.size());
          break;
        case Statements::Kind::kText:
          statement_[0] == '.' ? local_declaration() : instruction();
          break;
        default:
          refuse("inside of a function", statement_);
      }
    }
  }

  void local_declaration() {
    if (statement_.starts_with(".pragma")) return;
    if (statement_.starts_with(".reg")) return registers();
    const Declaration d = declaration();
    Symbol symbol;
    symbol.bytes = d.bytes;
    symbol.kind = d.space == ".shared" ? Symbol::Kind::kShared : Symbol::Kind::kLocal;
    if (d.space != ".shared" && d.space != ".local" && d.space != ".param") {
      refuse("declaration", statement_);
    }
    std::uint32_t& top = d.space == ".shared" ? function_->shared_bytes : function_->local_bytes;
    symbol.offset = top = align_up(top, std::max(d.alignment, 16u));
    top += d.bytes;
    scopes_.back()[d.name] = symbol;
  }

  // .reg .b32 %r<10>; or .reg .pred p, q;
  void registers() {
    const std::vector<std::string> all = words(statement_);
    const std::uint8_t bytes = type_bytes(all.at(1).substr(1));
    const std::string names = statement_.substr(statement_.find(all[1]) + all[1].size());
    for (const std::string& name : split(names)) {
      const std::size_t angle = name.find('<');
      const std::string base = name.substr(0, angle);
      if (angle == std::string::npos) {
        scopes_.back()[base] = {Symbol::Kind::kRegister, new_register(bytes), 0, 0};
        continue;
      }
      const std::uint64_t count = number(name.substr(angle + 1, name.size() - angle - 2));
      for (std::uint64_t i = 0; i < count; ++i) {
        scopes_.back()[base + std::to_string(i)] = {Symbol::Kind::kRegister, new_register(bytes), 0,
                                                    0};
      }
    }
  }

  Register new_register(std::uint8_t bytes) {
    const Register made{function_->frame_bytes, std::max<std::uint8_t>(bytes, bytes == 1 ? 2 : 0)};
    function_->frame_bytes += bytes == 0 ? 8 : bytes == 8 ? 2 * kRegisterBytes : kRegisterBytes;
    return made;
  }

  // --- Instructions
  void instruction() {
    Instruction made;
    made.text = statement_;
    std::string s = statement_;
    if (s[0] == '@') {
      const std::size_t space = s.find(' ');
      made.guarded = true;
      made.guard_negated = s[1] == '!';
      made.guard =
          value(s.substr(made.guard_negated ? 2 : 1, space - (made.guard_negated ? 2 : 1)), 0);
      s = trimmed(s.substr(space));
    }
    const std::size_t space = s.find(' ');
    const std::string opcode = s.substr(0, space);
    text = space == std::string::npos ? std::vector<std::string>{} : split(s.substr(space));
    if (!decode(made, opcode, *this)) refuse("an opcode that is not executed", statement_);
    function_->code.push_back(std::move(made));
  }

  const Symbol* find(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      if (const auto found = scope->find(name); found != scope->end()) return &found->second;
    }
    return nullptr;
  }

  Register constant(std::uint64_t bits, std::uint8_t bytes) {
    const auto [found, fresh] = pool_.try_emplace({bits, bytes});
    if (fresh) {
      found->second = new_register(bytes);
      function_->constants.emplace_back(found->second, bits);
    }
    return found->second;
  }

  // Dynamic shared memory begins behind the static one, at a multiple of 128.
  std::uint32_t dynamic_shared() const { return align_up(function_->shared_bytes, 128); }
  bool is_dynamic_shared(const std::string& name) const {
    return std::find(dynamic_shared_.begin(), dynamic_shared_.end(), name) != dynamic_shared_.end();
  }

  Register value(const std::string& operand, std::uint8_t bytes) override {
    static const std::map<std::string, SpecialRegister> special = {
        {"%tid.x", kTidX},       {"%tid.y", kTidY},       {"%tid.z", kTidZ},
        {"%ntid.x", kNtidX},     {"%ntid.y", kNtidY},     {"%ntid.z", kNtidZ},
        {"%ctaid.x", kCtaidX},   {"%ctaid.y", kCtaidY},   {"%ctaid.z", kCtaidZ},
        {"%nctaid.x", kNctaidX}, {"%nctaid.y", kNctaidY}, {"%nctaid.z", kNctaidZ},
        {"%laneid", kLaneId}};
    if (const auto found = special.find(operand); found != special.end()) {
      return {found->second * kRegisterBytes, 4};
    }
    if (operand == "_") return new_register(bytes);
    if (const Symbol* const symbol = find(operand)) {
      switch (symbol->kind) {
        case Symbol::Kind::kRegister:
          return symbol->reg;
        case Symbol::Kind::kLocal:
          return constant(symbol->offset, bytes);
        case Symbol::Kind::kShared:
          return constant(symbol->offset, bytes);
        case Symbol::Kind::kParameter:
          return constant(kParameterWindow + symbol->offset, 8);
      }
    }
    if (is_dynamic_shared(operand)) return constant(dynamic_shared(), bytes);
    if (const auto found = module_.constants.find(operand); found != module_.constants.end()) {
      return constant(reinterpret_cast<std::uintptr_t>(found->second.data()), 8);
    }
    const char first = operand.at(0);
    if (std::isdigit(static_cast<unsigned char>(first)) == 0 && first != '-') {
      refuse("operand " + operand, statement_);
    }
    std::uint64_t bits = number(operand);
    if (bytes == 0) bits = bits == 0 ? 0 : kAllLanes;
    if (bytes == 1 || bytes == 2 || bytes == 4) bits &= (std::uint64_t{1} << (8 * bytes)) - 1;
    return constant(bits, bytes);
  }

  // [name], [%rd1], [%rd1+8], [name+8], [8]
  Address address(const std::string& operand, Space space) override {
    if (operand.front() != '[' || operand.back() != ']') refuse("address " + operand, statement_);
    const std::string inside = operand.substr(1, operand.size() - 2);
    const std::size_t plus = inside.find('+');
    const std::string base = trimmed(inside.substr(0, plus));
    Address out;
    out.space = space;
    if (plus != std::string::npos) out.offset = number(trimmed(inside.substr(plus + 1)));
    if (const Symbol* const symbol = find(base)) {
      switch (symbol->kind) {
        case Symbol::Kind::kRegister:
          out.in_register = true;
          out.base = symbol->reg;
          return out;
        case Symbol::Kind::kLocal:
          out.space = Space::kLocal;
          break;
        case Symbol::Kind::kShared:
          out.space = Space::kShared;
          break;
        case Symbol::Kind::kParameter:
          out.space = Space::kParameter;
          break;
      }
      out.offset += symbol->offset;
      return out;
    }
    if (is_dynamic_shared(base)) {
      out.space = Space::kShared;
      out.offset += dynamic_shared();
    } else if (const auto found = module_.constants.find(base); found != module_.constants.end()) {
      out.space = Space::kGlobal;
      out.offset += reinterpret_cast<std::uintptr_t>(found->second.data());
    } else {
      out.offset += number(base);
    }
    return out;
  }

  void branch(Instruction& out, const std::string& label) override {
    out.flow = Flow::kBranch;
    branches_.emplace_back(function_->code.size(), label);
  }

  // call (result), name, (parameter, ...): symbols of local memory.
  void call(Instruction& out) override {
    out.flow = Flow::kCall;
    std::string callee;
    for (const std::string& part : text) {
      if (part[0] != '(') {
        callee = part;
        continue;
      }
      for (const std::string& name : split(part.substr(1, part.size() - 2))) {
        const Symbol* const symbol = find(name);
        if (symbol == nullptr || symbol->kind != Symbol::Kind::kLocal) {
          refuse("argument " + name, statement_);
        }
        (callee.empty() ? out.returned : out.passed).push_back({symbol->offset, 0, symbol->bytes});
      }
    }
    calls_.push_back({function_, function_->code.size(), callee});
  }

  void connect(const Function& caller, Instruction& call, const std::string& name) {
    const auto found = module_.functions.find(name);
    if (found == module_.functions.end()) refuse(caller.name + " calls", name);
    call.callee = found->second.get();
    const auto match = [&](std::vector<Instruction::Copy>& here,
                           const std::vector<Parameter>& there) {
      if (here.size() != there.size()) refuse("other arguments than " + name + " has", call.text);
      for (std::size_t i = 0; i < here.size(); ++i) {
        if (here[i].bytes != there[i].bytes) refuse("arguments of another size", call.text);
        here[i].there = there[i].offset;
      }
    };
    match(call.passed, call.callee->parameters);
    match(call.returned, call.callee->results);
  }

  struct Call {
    Function* from;
    std::size_t index;
    std::string name;
  };
  Module& module_;
  Statements statements_;
  std::string statement_;
  std::vector<std::string> dynamic_shared_;
  std::vector<Call> calls_;
  // Of the function that is read:
  Function* function_ = nullptr;
  std::vector<std::map<std::string, Symbol>> scopes_;
  std::map<std::string, std::uint32_t> labels_;
  std::vector<std::pair<std::size_t, std::string>> branches_;
  std::map<std::pair<std::uint64_t, std::uint8_t>, Register> pool_;
};

}  // namespace

std::vector<std::string> Operands::elements(const std::string& operand) {
  if (operand.front() != '{') return {operand};
  return split(operand.substr(1, operand.size() - 2));
}

// 12, -3, 0x1f, 0f3F800000 (bits of an f32), 0d3FF0000000000000 (of an f64)
std::uint64_t Operands::number(const std::string& constant) {
  std::string digits = constant;
  if (digits.ends_with('U')) digits.pop_back();
  const bool negative = digits.starts_with('-');
  if (negative) digits.erase(0, 1);
  const bool bits = digits.starts_with("0f") || digits.starts_with("0d");
  std::size_t used = 0;
  std::uint64_t value = 0;
  try {
    value = bits ? std::stoull(digits.substr(2), &used, 16) : std::stoull(digits, &used, 0);
  } catch (const std::logic_error&) {
    refuse("number", constant);
  }
  if (used + (bits ? 2 : 0) != digits.size()) refuse("number", constant);
  return negative ? std::uint64_t{0} - value : value;
}

void parse(Module& module, const std::string& text, const std::string& file) {
  Parser parser(module, text);
  try {
    parser.run();
  } catch (const std::exception& e) {
    throw std::runtime_error(fmt::format("{}: {} (at: {})", file, e.what(), parser.statement()));
  }
}

}  // namespace tf_ptx::detail
