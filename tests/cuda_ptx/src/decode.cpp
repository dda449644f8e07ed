// Which opcode is what: every one that nvcc emits of the kernels, and no other.
#include <optional>
#include <utility>

#include "arithmetic.h"
#include "operands.h"
#include "operations.h"

namespace tf_ptx::detail {
namespace {

// `operands`: one letter each, of those in braces too: p a predicate, h w d 16, 32 and 64 bits, l
// the low 32 bits of a register of 32 or 64 (conversions alone may read such), q d|p of a shuffle,
// m the lanes that come together, n a number.
struct Opcode {
  const char* operands;
  Instruction::Execute execute;
  Flow flow = Flow::kNext;
  std::uint8_t mode = 0;
};

// Opcodes whose operands are registers and constants; the others have functions of their own below.
class Opcodes {
 public:
  Opcodes() {
    add_arithmetic();
    add_bits();
    add_moves();
    add_conversions();
    add_comparisons();
    add_warps();
    add_control();
  }
  const Opcode* find(const std::string& name) const {
    const auto found = all_.find(name);
    return found == all_.end() ? nullptr : &found->second;
  }

 private:
  void add(const std::string& name, const Opcode& opcode) { all_.emplace(name, opcode); }
  template <class F>
  void add_signed(const std::string& op) {
    add(op + ".s32", {"www", &two<s32, F>});
    add(op + ".s64", {"ddd", &two<s64, F>});
  }
  template <class F>
  void add_unsigned(const std::string& op) {
    add(op + ".u32", {"www", &two<u32, F>});
    add(op + ".u64", {"ddd", &two<u64, F>});
  }
  template <class F>
  void add_floats(const std::string& op) {
    add(op + ".f32", {"www", &two<float, F>});
    add(op + ".f64", {"ddd", &two<double, F>});
  }
  template <class F>
  void add_bitwise(const std::string& op) {
    add(op + ".pred", {"ppp", &two_predicates<F>});
    add(op + ".b16", {"hhh", &two<u16, F>});
    add(op + ".b32", {"www", &two<u32, F>});
    add(op + ".b64", {"ddd", &two<u64, F>});
  }
  template <class F>
  void add_float_comparison(const std::string& op) {
    add(op + ".f32", {"pww", &compare<float, F>});
    add(op + ".f64", {"pdd", &compare<double, F>});
  }
  template <class F>
  void add_comparison(const std::string& op) {
    add(op + ".s16", {"phh", &compare<s16, F>});
    add(op + ".s32", {"pww", &compare<s32, F>});
    add(op + ".s64", {"pdd", &compare<s64, F>});
    add(op + ".u16", {"phh", &compare<u16, F>});
    add(op + ".u32", {"pww", &compare<u32, F>});
    add(op + ".u64", {"pdd", &compare<u64, F>});
    add_float_comparison<F>(op);
  }

  void add_arithmetic() {
    add_signed<Add>("add");
    add_unsigned<Add>("add");
    add_floats<Add>("add.rn");
    add_signed<Sub>("sub");
    add_unsigned<Sub>("sub");
    add_floats<Sub>("sub.rn");
    add_signed<Mul>("mul.lo");
    add_floats<Mul>("mul.rn");
    add("mul.wide.u16", {"whh", &multiply_wide<u32, u16>});
    add("mul.wide.s32", {"dww", &multiply_wide<s64, s32>});
    add("mul.wide.u32", {"dww", &multiply_wide<u64, u32>});
    add("mad.lo.s32", {"wwww", &three<s32, MulAdd>});
    add("fma.rn.f32", {"wwww", &three<float, Fma>});
    add("fma.rm.f32", {"wwww", &three<float, FmaDown>});
    add("fma.rn.f64", {"dddd", &three<double, Fma>});
    add("fma.rn.f16x2", {"wwww", &three<u32, FmaOfPairs<FromHalf, ToHalf>>});
    add("fma.rn.bf16x2", {"wwww", &three<u32, FmaOfPairs<FromBfloat, ToBfloat>>});
    add_signed<Div>("div");
    add_unsigned<Div>("div");
    add_floats<Div>("div.rn");
    add_signed<Rem>("rem");
    add_unsigned<Rem>("rem");
    add_signed<Min>("min");
    add_unsigned<Min>("min");
    add_floats<Min>("min");
    add_signed<Max>("max");
    add_unsigned<Max>("max");
    add_floats<Max>("max");
    add("neg.s32", {"ww", &one<s32, s32, Neg>});
    add("neg.s64", {"dd", &one<s64, s64, Neg>});
    add("neg.f32", {"ww", &one<float, float, Neg>});
    add("neg.f64", {"dd", &one<double, double, Neg>});
    add("abs.f32", {"ww", &one<float, float, Abs>});
    add("sqrt.rn.f32", {"ww", &one<float, float, Sqrt>});
    add("rcp.rn.f32", {"ww", &one<float, float, Reciprocal>});
    add("rcp.approx.ftz.f64", {"dd", &one<double, double, RoughReciprocal>});
    add("ex2.approx.f32", {"ww", &one<float, float, Exp2>});
    add("ex2.approx.ftz.f32", {"ww", &one<float, float, FlushedExp2>});
  }

  void add_bits() {
    add_bitwise<And>("and");
    add_bitwise<Or>("or");
    add_bitwise<Xor>("xor");
    add("not.pred", {"pp", &not_predicate});
    add("not.b32", {"ww", &one<u32, u32, Not>});
    add("not.b64", {"dd", &one<u64, u64, Not>});
    add("shl.b32", {"www", &shift_left<u32>});
    add("shl.b64", {"ddw", &shift_left<u64>});
    add("shr.u16", {"hhw", &shift_right<u16>});
    add("shr.u32", {"www", &shift_right<u32>});
    add("shr.b64", {"ddw", &shift_right<u64>});
    add("shr.u64", {"ddw", &shift_right<u64>});
    add("shr.s32", {"www", &shift_right<s32>});
    add("shr.s64", {"ddw", &shift_right<s64>});
    add("bfi.b32", {"wwwww", &insert_bits<u32>});
    add("bfi.b64", {"dddww", &insert_bits<u64>});
    add("prmt.b32", {"wwww", &permute_bytes});
    add("lop3.b32", {"wwwwn", &look_up_bits});
    add("brev.b32", {"ww", &one<u32, u32, ReverseBits>});
    add("clz.b32", {"ww", &one<u32, u32, LeadingZeros>});
    add("bfind.shiftamt.u32", {"ww", &one<u32, u32, FindShift>});
  }

  void add_moves() {
    add("mov.pred", {"pp", &copy_predicate});
    add("mov.u16", {"hh", &copy<u16>});
    for (const char* const type : {"u32", "b32", "f32"}) {
      add(std::string("mov.") + type, {"ww", &copy<u32>});
      add(std::string("selp.") + type, {"wwwp", &select<u32>});
    }
    for (const char* const type : {"u64", "b64", "f64"}) {
      add(std::string("mov.") + type, {"dd", &copy<u64>});
      add(std::string("selp.") + type, {"dddp", &select<u64>});
    }
    add("selp.u16", {"hhhp", &select<u16>});
    add("selp.b16", {"hhhp", &select<u16>});
    // A generic address of global memory is its global address.
    add("cvta.to.global.u64", {"dd", &copy<u64>});
    add("cvta.param.u64", {"dd", &copy<u64>});
  }

  void add_conversions() {
    add("cvt.s64.s32", {"dl", &one_of_low<s64, s32, Convert<s64>>});
    add("cvt.u64.u32", {"dl", &one_of_low<u64, u32, Convert<u64>>});
    add("cvt.u16.u32", {"hw", &one<u16, u32, Convert<u16>>});
    add("cvt.u32.u16", {"wh", &one<u32, u16, Convert<u32>>});
    add("cvt.u32.u64", {"wd", &one<u32, u64, Convert<u32>>});
    add("cvt.f32.f16", {"wh", &one<float, u16, FromHalf>});
    add("cvt.f32.bf16", {"wh", &one<float, u16, FromBfloat>});
    add("cvt.rn.f16.f32", {"hw", &one<u16, float, ToHalf>});
    add("cvt.rn.bf16.f32", {"hw", &one<u16, float, ToBfloat>});
    add("cvt.f64.f32", {"dw", &one<double, float, Convert<double>>});
    add("cvt.rn.f32.f64", {"wd", &one<float, double, Convert<float>>});
    add("cvt.rn.f32.s32", {"wl", &one_of_low<float, s32, Convert<float>>});
    add("cvt.rn.f32.s64", {"wd", &one<float, s64, Convert<float>>});
    add("cvt.rn.f64.s32", {"dl", &one_of_low<double, s32, Convert<double>>});
    add("cvt.rn.f64.u32", {"dl", &one_of_low<double, u32, Convert<double>>});
    add("cvt.rn.f64.u64", {"dd", &one<double, u64, Convert<double>>});
    add("cvt.rzi.s32.f32", {"ww", &one<s32, float, Truncate<s32>>});
    add("cvt.rzi.u32.f32", {"ww", &one<u32, float, Truncate<u32>>});
    add("cvt.rni.f32.f32", {"ww", &one<float, float, Nearest>});
    add("cvt.sat.f32.f32", {"ww", &one<float, float, Saturate>});
  }

  void add_comparisons() {
    add_comparison<Eq>("setp.eq");
    add_comparison<Ne>("setp.ne");
    add_comparison<Lt>("setp.lt");
    add_comparison<Le>("setp.le");
    add_comparison<Gt>("setp.gt");
    add_comparison<Ge>("setp.ge");
    add_float_comparison<NeU>("setp.neu");
    add_float_comparison<LtU>("setp.ltu");
    add_float_comparison<LeU>("setp.leu");
    add_float_comparison<GtU>("setp.gtu");
    add_float_comparison<GeU>("setp.geu");
    add_float_comparison<Nan>("setp.nan");
    add_float_comparison<Num>("setp.num");
  }

  void add_warps() {
    for (const auto& [name, how] :
         {std::pair{"up", Shuffle::kUp}, {"bfly", Shuffle::kButterfly}, {"idx", Shuffle::kIndex}}) {
      add(std::string("shfl.sync.") + name + ".b32",
          {"qwwwm", &shuffle, Flow::kTogether, static_cast<std::uint8_t>(how)});
    }
    add("vote.sync.ballot.b32",
        {"wpm", &vote, Flow::kTogether, static_cast<std::uint8_t>(Vote::kBallot)});
    add("vote.sync.any.pred",
        {"ppm", &vote, Flow::kTogether, static_cast<std::uint8_t>(Vote::kAny)});
    const std::string mma = "mma.sync.aligned.m16n8k16.row.col.f32.";
    add(mma + "f16.f16.f32", {"wwwwwwwwwwwwww", &mma_f16, Flow::kTogether});
    add(mma + "bf16.bf16.f32", {"wwwwwwwwwwwwww", &mma_bf16, Flow::kTogether});
    add("movmatrix.sync.aligned.m8n8.trans.b16", {"ww", &transpose_matrix, Flow::kTogether});
    add("bar.warp.sync", {"m", &nothing, Flow::kTogether});
    add("wgmma.fence.sync.aligned", {"", &fence_products, Flow::kTogether});
    add("wgmma.commit_group.sync.aligned", {"", &commit_products, Flow::kTogether});
    add("wgmma.wait_group.sync.aligned", {"n", &wait_for_products, Flow::kTogether});
    add("setmaxnreg.dec.sync.aligned.u32", {"n", &nothing, Flow::kTogether});
    add("setmaxnreg.inc.sync.aligned.u32", {"n", &nothing, Flow::kTogether});
  }

  void add_control() {
    add("ret", {"", nullptr, Flow::kReturn});
    add("cp.async.commit_group", {"", &commit_copies});
    add("cp.async.wait_group", {"n", &wait_for_copies});
    // Blocks run one after another: what one wrote the next one sees.
    add("membar.gl", {"", &nothing});
    add("fence.mbarrier_init.release.cluster", {"", &nothing});
    add("fence.proxy.async.shared::cta", {"", &nothing});
    add("griddepcontrol.wait", {"", &nothing});
    add("griddepcontrol.launch_dependents", {"", &nothing});
  }

  std::map<std::string, Opcode> all_;
};

std::vector<std::string> parts_of(const std::string& opcode) {
  std::vector<std::string> parts(1);
  for (std::size_t i = 0; i < opcode.size(); ++i) {
    if (opcode[i] == '.')
      parts.emplace_back();
    else
      parts.back() += opcode[i];
  }
  return parts;
}

std::optional<Space> space_named(const std::string& name) {
  static const std::map<std::string, Space> spaces = {{"global", Space::kGlobal},
                                                      {"shared", Space::kShared},
                                                      {"local", Space::kLocal},
                                                      {"param", Space::kParameter}};
  const auto found = spaces.find(name);
  return found == spaces.end() ? std::nullopt : std::optional(found->second);
}

// ld, st and atom: OP[.SPACE][.HINT...][.vN].TYPE, in any order but for the type.
struct MemoryOpcode {
  Space space = Space::kGeneric;
  std::size_t elements = 1;
  std::uint8_t bytes = 0;
  bool is_signed = false;
  std::string operation;  // of atom
};
std::optional<MemoryOpcode> memory_opcode(const std::vector<std::string>& parts) {
  MemoryOpcode out;
  for (std::size_t i = 1; i + 1 < parts.size(); ++i) {
    const std::string& part = parts[i];
    if (const auto space = space_named(part)) {
      out.space = *space;
    } else if (part == "v2" || part == "v4") {
      out.elements = static_cast<std::size_t>(part[1] - '0');
    } else if (parts[0] == "atom" && (part == "add" || part == "inc")) {
      out.operation = part;
    } else if (parts[0] != "ld" || (part != "nc" && part != "cg" && part != "L1::no_allocate")) {
      return std::nullopt;  // caches are not there
    }
  }
  const std::string& type = parts.back();
  static const std::map<std::string, std::uint8_t> widths = {
      {"8", 1}, {"16", 2}, {"32", 4}, {"64", 8}};
  const auto width = widths.find(type.substr(1));
  if (std::string("busf").find(type[0]) == std::string::npos || width == widths.end())
    return std::nullopt;
  out.bytes = width->second;
  out.is_signed = type[0] == 's';
  return out;
}

void add_operand(Instruction& out, Operands& operands, const std::string& text,
                 std::uint8_t bytes) {
  out.operand.at(out.operands++) = operands.value(text, bytes);
}

bool decode_memory(Instruction& out, const std::vector<std::string>& parts, Operands& operands) {
  const auto opcode = memory_opcode(parts);
  if (!opcode) return false;
  out.bytes = opcode->bytes;
  out.negated = opcode->is_signed;
  const bool is_store = parts[0] == "st";
  const std::vector<std::string>& text = operands.text;
  if (text.size() != (parts[0] == "atom" ? 3u : 2u)) return false;
  const auto add = [&](const std::string& operand) {
    add_operand(out, operands, operand, opcode->bytes);
  };
  out.address = operands.address(text[is_store ? 0 : 1], opcode->space);
  if (parts[0] == "atom") {
    if (opcode->operation.empty() || opcode->bytes != 4 || opcode->elements != 1) return false;
    out.mode =
        static_cast<std::uint8_t>(opcode->operation == "add" ? Atomic::kAdd : Atomic::kIncrement);
    out.execute = &atomic;
    add(text[0]);
    add(text[2]);
    return true;
  }
  for (const std::string& element : Operands::elements(text[is_store ? 1 : 0])) add(element);
  out.execute = is_store ? &store : &load;
  return out.operands == opcode->elements;
}

// cp.async.{ca,cg}.shared.global [to], [from], bytes{, bytes to read};
bool decode_copy(Instruction& out, Operands& operands) {
  const std::vector<std::string>& text = operands.text;
  if (text.size() < 3 || text.size() > 4) return false;
  out.execute = &copy_async;
  out.address = operands.address(text[0], Space::kShared);
  out.source = operands.address(text[1], Space::kGlobal);
  out.bytes = static_cast<std::uint8_t>(Operands::number(text[2]));
  if (text.size() == 4) add_operand(out, operands, text[3], 4);
  return true;
}

bool decode_matrix_load(Instruction& out, bool transposed, Operands& operands) {
  if (operands.text.size() != 2) return false;
  out.flow = Flow::kTogether;
  out.execute = &load_matrix;
  out.mode = transposed ? 1 : 0;
  for (const std::string& element : Operands::elements(operands.text[0])) {
    add_operand(out, operands, element, 4);
  }
  out.address = operands.address(operands.text[1], Space::kShared);
  return out.operands == 4;
}

// mbarrier.OPERATION [barrier]..., with a result before and a number after it.
bool decode_barrier(Instruction& out, const std::string& operation, Operands& operands) {
  const std::vector<std::string>& text = operands.text;
  const auto use = [&](std::size_t barrier, Instruction::Execute execute) {
    out.address = operands.address(text[barrier], Space::kShared);
    out.execute = execute;
  };
  if (operation == "init.shared::cta.b64" && text.size() == 2) {
    use(0, &init_barrier);
    add_operand(out, operands, text[1], 4);
    return true;
  }
  if (operation == "arrive.shared::cta.b64" && text.size() == 2 && text[0] == "_") {
    use(1, &arrive);
    return true;
  }
  if (operation == "arrive.expect_tx.shared::cta.b64" && text.size() == 3 && text[0] == "_") {
    use(1, &arrive);
    add_operand(out, operands, text[2], 4);
    return true;
  }
  if (operation == "try_wait.parity.shared::cta.b64" && text.size() == 3) {
    use(1, &test_barrier);
    add_operand(out, operands, text[0], 0);
    add_operand(out, operands, text[2], 4);
    return true;
  }
  return false;
}

// [to], [tensor, {x, y, z, w}], [barrier]
bool decode_box(Instruction& out, Operands& operands) {
  const std::vector<std::string>& text = operands.text;
  if (text.size() != 3) return false;
  const std::size_t comma = text[1].find(','), open = text[1].find('{');
  if (comma == std::string::npos || open == std::string::npos) return false;
  out.execute = &copy_box;
  out.address = operands.address(text[0], Space::kShared);
  out.source = operands.address(text[1].substr(0, comma) + ']', Space::kGeneric);
  const std::string coordinates = text[1].substr(open, text[1].find('}') + 1 - open);
  for (const std::string& c : Operands::elements(coordinates)) add_operand(out, operands, c, 4);
  add_operand(out, operands, text[2].substr(1, text[2].size() - 2), 4);
  return out.operands == 5;
}

// {64 sums}, a, b, add, 1, 1, transposed a, transposed b; or {64 sums}, {4 of a}, b, add, 1, 1,
// transposed b. A matrix a is executed as it lies.
bool decode_multiply(Instruction& out, bool half, Operands& operands) {
  const std::vector<std::string>& text = operands.text;
  if (text.size() < 7) return false;
  const std::vector<std::string> a = Operands::elements(text[1]);
  const bool registers = a.size() == 4;
  const bool factors = text[4] == "1" && text[5] == "1";
  if (!factors || text.size() != (registers ? 7U : 8U) || (!registers && text[6] != "0")) {
    return false;
  }
  out.number = Operands::number(text.back());
  out.flow = Flow::kTogether;
  out.execute = &multiply;
  out.mode = half ? 1 : 0;
  for (const std::string& sum : Operands::elements(text[0])) {
    out.sums.push_back(operands.value(sum, 4));
  }
  add_operand(out, operands, text[3], 0);
  add_operand(out, operands, text[2], 8);
  for (const std::string& element : a) add_operand(out, operands, element, registers ? 4 : 8);
  return out.sums.size() == 64;
}

// mov.b32 d, {a, b}; mov.b64 {d, e}, a;
bool decode_vector_move(Instruction& out, std::uint8_t bytes, Operands& operands) {
  const bool parts = operands.text[0].front() == '{';
  const std::vector<std::string> several = Operands::elements(operands.text[parts ? 0 : 1]);
  out.bytes = static_cast<std::uint8_t>(bytes / several.size());
  out.execute = parts ? &part : &join;
  if (!parts) add_operand(out, operands, operands.text[0], bytes);
  for (const std::string& element : several) add_operand(out, operands, element, out.bytes);
  if (parts) add_operand(out, operands, operands.text[1], bytes);
  return true;
}

bool decode_listed(Instruction& out, const Opcode& opcode, Operands& operands) {
  out.execute = opcode.execute;
  out.flow = opcode.flow;
  out.mode = opcode.mode;
  std::vector<std::string> text;
  for (const std::string& operand : operands.text) {
    for (std::string& element : Operands::elements(operand)) text.push_back(std::move(element));
  }
  const std::string kinds = opcode.operands;
  if (text.size() != kinds.size()) return false;
  bool fits = true;
  const auto add = [&](const std::string& operand, std::uint8_t bytes) {
    add_operand(out, operands, operand, bytes);
    fits = fits && (out.operand.at(out.operands - 1).bytes == 8) == (bytes == 8);
  };
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    switch (kinds[i]) {
      case 'p':
        add(text[i], 0);
        break;
      case 'h':
        add(text[i], 2);
        break;
      case 'w':
        add(text[i], 4);
        break;
      case 'd':
        add(text[i], 8);
        break;
      case 'l':
        add_operand(out, operands, text[i], 4);
        break;
      case 'q': {
        const std::size_t bar = text[i].find('|');
        add(text[i].substr(0, bar), 4);
        add(bar == std::string::npos ? "_" : text[i].substr(bar + 1), 0);
        break;
      }
      case 'm':
        out.names_lanes = true;
        out.lanes = operands.value(text[i], 4);
        break;
      default:
        out.number = Operands::number(text[i]);
    }
  }
  return fits;
}

}  // namespace

bool decode(Instruction& out, const std::string& opcode, Operands& operands) {
  if (opcode == "bra" || opcode == "bra.uni") {
    if (operands.text.size() != 1) return false;
    operands.branch(out, operands.text[0]);
    return true;
  }
  if (opcode == "call.uni") {
    operands.call(out);
    return true;
  }
  if (opcode == "bar.sync") {
    out.flow = Flow::kBarrier;
    return operands.text.size() == 1 && operands.text[0] == "0";
  }
  if (opcode == "cp.async.cg.shared.global") return decode_copy(out, operands);
  if (opcode == "ldmatrix.sync.aligned.m8n8.x4.shared.b16")
    return decode_matrix_load(out, false, operands);
  if (opcode == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") {
    return decode_matrix_load(out, true, operands);
  }
  if (opcode.starts_with("mbarrier.")) return decode_barrier(out, opcode.substr(9), operands);
  if (opcode == "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes") {
    return decode_box(out, operands);
  }
  const std::string wgmma = "wgmma.mma_async.sync.aligned.m64n128k16.f32.";
  if (opcode == wgmma + "f16.f16") return decode_multiply(out, true, operands);
  if (opcode == wgmma + "bf16.bf16") return decode_multiply(out, false, operands);
  const std::vector<std::string> parts = parts_of(opcode);
  if (parts[0] == "ld" || parts[0] == "st" || parts[0] == "atom")
    return decode_memory(out, parts, operands);
  const bool braces = std::any_of(operands.text.begin(), operands.text.end(),
                                  [](const std::string& o) { return o.front() == '{'; });
  if (braces && opcode == "mov.b32") return decode_vector_move(out, 4, operands);
  if (braces && opcode == "mov.b64") return decode_vector_move(out, 8, operands);
  static const Opcodes opcodes;
  const Opcode* const found = opcodes.find(opcode);
  return found != nullptr && decode_listed(out, *found, operands);
}

}  // namespace tf_ptx::detail
