#include "data/synthetic.h"

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>
#include <vector>

#include "data/synthetic_words.h"
#include "triforce/random.h"

namespace triforce {
namespace {

using namespace synthetic_words;
using std::string_view;
using Word = std::uint32_t;

// Copies closer than this are left out: they would still be in sight of a short window.
constexpr int kNearestOctave = 10;

// A sequence of 32-bit words, its own Philox counter space (the last word of the counter is a tag
// that no Purpose uses).
class TextRandom {
 public:
  TextRandom(std::uint64_t seed, std::uint64_t index)
      : key_{static_cast<Word>(seed), static_cast<Word>(seed >> 32)},
        index_{static_cast<Word>(index), static_cast<Word>(index >> 32)} {}

  // Uniform in [0, n) up to a bias of n / 2^32.
  std::size_t below(std::size_t n) {
    return static_cast<std::size_t>((std::uint64_t{next()} * n) >> 32);
  }
  bool chance(std::size_t percent) { return below(100) < percent; }

 private:
  Word next() {
    if (used_ == 4) {
      block_ = {counter_++, index_[0], index_[1], 0x54584554u};
      philox4x32_10(block_.data(), key_[0], key_[1]);
      used_ = 0;
    }
    return block_[used_++];
  }

  std::array<Word, 2> key_, index_;
  std::array<Word, 4> block_{};
  Word counter_ = 0;
  std::size_t used_ = 4;
};

struct Person {
  std::string given, full;
  std::size_t trade = 0;
};

// One dealing of a page's subject; the text is rendered from it whenever it is told.
struct Fact {
  std::size_t deal = 0, wording = 0, person = 0, place = 0;
  std::size_t adjective = 0, material = 0, noun = 0;
  std::size_t sum = 0, coin = 0, day = 0, month = 0;
};

struct Page {
  std::size_t form = 0, subject = 0, number = 0;
  std::size_t latest_section = 0;
  std::size_t copies = 1;
  Fact head;  // trade and place of the heading
  std::vector<Fact> facts;
};

struct Section {
  std::size_t begin = 0, page = 0;
};

class Writer {
 public:
  Writer(std::uint64_t seed, std::uint64_t index) : random_(seed, index) {}

  std::string write(std::size_t min_bytes) {
    text_.reserve(min_bytes + 8192);
    do {
      add_section();
    } while (text_.size() < min_bytes);
    return std::move(text_);
  }

 private:
  void add_section() {
    for (std::size_t n = random_.below(3); n > 0; --n) {
      const Fact fact = new_fact();
      render(kInterludes[random_.below(kInterludes.size())], fact, fact.person, 0, {});
      text_ += n == 1 ? '\n' : ' ';
    }
    const bool can_return = text_.size() >= (std::size_t{2} << kNearestOctave);
    if (can_return && random_.chance(58)) {
      return_to_page(pick_page());
    } else {
      add_page();
    }
    text_ += '\n';
  }

  void add_page() {
    Page page;
    page.form = random_.below(kForms.size());
    page.subject = random_.chance(75) ? new_person() : some_person();
    page.number = 2 + random_.below(98);
    page.head = new_fact();
    const std::size_t n = 4 + random_.below(5);
    for (std::size_t i = 0; i < n; ++i) page.facts.push_back(new_fact_about(page.subject));
    pages_.push_back(std::move(page));
    begin_section(pages_.size() - 1);
    copy_page(pages_.back());
  }

  void return_to_page(std::size_t index) {
    begin_section(index);
    Page& page = pages_[index];
    ++page.copies;
    const std::size_t how = random_.below(100);
    if (how < 66) {
      render_title(page, kAgain[random_.below(kAgain.size())]);
      copy_page(page);
    } else if (how < 82) {
      render_title(page, kRetold[random_.below(kRetold.size())]);
      retell_page(page);
    } else {
      render_title(page, kExamined[random_.below(kExamined.size())]);
      examine_page(page);
    }
  }

  void begin_section(std::size_t page) {
    pages_[page].latest_section = sections_.size();
    sections_.push_back({text_.size(), page});
  }

  // A page whose latest copy begins about a log-uniform distance ago; of three draws the page with
  // the fewest copies, so that a return has one old copy to look for rather than many.
  std::size_t pick_page() {
    std::size_t best = candidate_page();
    for (int i = 0; i < 2; ++i) {
      const std::size_t other = candidate_page();
      if (pages_[other].copies < pages_[best].copies) best = other;
    }
    return best;
  }

  std::size_t candidate_page() {
    const std::size_t now = text_.size();
    const auto octaves = static_cast<std::size_t>(std::bit_width(now) - kNearestOctave);
    const std::size_t min_distance =
        std::size_t{1} << (static_cast<std::size_t>(kNearestOctave) + random_.below(octaves));
    const std::size_t distance = std::min(min_distance + random_.below(min_distance), now);
    const auto after = std::upper_bound(
        sections_.begin(), sections_.end(), now - distance,
        [](std::size_t position, const Section& section) { return position < section.begin; });
    auto at = static_cast<std::size_t>(std::max<std::ptrdiff_t>(after - sections_.begin() - 1, 0));
    // Older copies are skipped backwards: the first section of all is always some page's first
    // copy.
    while (at > 0 && pages_[sections_[at].page].latest_section != at) --at;
    return sections_[at].page;
  }

  void copy_page(const Page& page) {
    const Form& form = kForms[page.form];
    render_title(page, form.heading);
    for (const Fact& fact : page.facts) {
      text_ += form.line_begin;
      render_sentence(kDeals[fact.deal].told[fact.wording], fact, page, form.capital);
      text_ += form.line_end;
    }
    render_title(page, form.closing);
  }

  void retell_page(const Page& page) {
    const std::size_t shift = 1 + random_.below(kWordings - 1);
    for (const Fact& fact : page.facts) {
      render_sentence(kDeals[fact.deal].told[(fact.wording + shift) % kWordings], fact, page, true);
      text_ += ' ';
    }
    text_ += '\n';
  }

  void examine_page(const Page& page) {
    for (const Fact& fact : page.facts) {
      text_ += "Q. ";
      render_sentence(kDeals[fact.deal].question, fact, page, true);
      text_ += " A. ";
      render_sentence(kDeals[fact.deal].answer, fact, page, true);
      text_ += '\n';
    }
  }

  void render_sentence(string_view pattern, const Fact& fact, const Page& page, bool capital) {
    const std::size_t begin = text_.size();
    render(pattern, fact, page.subject, page.number, {});
    char& first = text_[begin];
    if (capital && first >= 'a' && first <= 'z') first = static_cast<char>(first - 'a' + 'A');
    // Within a sentence only names keep their capital.
    const bool is_name = pattern[0] == '{';
    if (!capital && !is_name) first = static_cast<char>(first - 'A' + 'a');
  }

  void render_title(const Page& page, string_view pattern) {
    render(pattern, page.head, page.subject, page.number, kForms[page.form].name);
  }

  void render(string_view pattern, const Fact& fact, std::size_t subject, std::size_t number,
              string_view form) {
    std::size_t at = 0;
    for (;;) {
      const std::size_t open = pattern.find('{', at);
      text_ += pattern.substr(at, open - at);
      if (open == string_view::npos) return;
      render_field(pattern[open + 1], fact, subject, number, form);
      at = open + 3;
    }
  }

  void render_field(char field, const Fact& fact, std::size_t subject, std::size_t number,
                    string_view form) {
    switch (field) {
      case 'S':
        text_ += people_[subject].given;
        break;
      case 'F':
        text_ += people_[subject].full;
        break;
      case 'P':
        text_ += people_[fact.person].full;
        break;
      case 'T':
        text_ += kTrades[people_[fact.person].trade];
        break;
      case 'L':
        text_ += places_[fact.place];
        break;
      case 'G':
        render_goods(fact);
        break;
      case 'A':
        if (fact.sum < kSmallNumbers.size()) {
          text_ += kSmallNumbers[fact.sum];
        } else {
          text_ += std::to_string(fact.sum);
        }
        text_ += ' ';
        text_ += kCoins[fact.coin];
        break;
      case 'D':
        text_ += "the ";
        text_ += kOrdinals[fact.day];
        text_ += " of ";
        text_ += kMonths[fact.month];
        break;
      case 'N':
        text_ += std::to_string(number);
        break;
      default:
        text_ += form;
    }
  }

  void render_goods(const Fact& fact) {
    const string_view adjective = kAdjectives[fact.adjective];
    text_ += string_view("aeiou").find(adjective[0]) != string_view::npos ? "an " : "a ";
    text_ += adjective;
    text_ += ' ';
    text_ += kMaterials[fact.material];
    text_ += ' ';
    text_ += kNouns[fact.noun];
  }

  Fact new_fact() {
    Fact fact;
    fact.deal = random_.below(kDeals.size());
    fact.wording = random_.below(kWordings);
    fact.person = random_.chance(50) || people_.empty() ? new_person() : some_person();
    fact.place =
        random_.chance(40) || places_.empty() ? new_place() : random_.below(places_.size());
    fact.adjective = random_.below(kAdjectives.size());
    fact.material = random_.below(kMaterials.size());
    fact.noun = random_.below(kNouns.size());
    // Indices of the number words first, then figures.
    fact.sum = random_.chance(60) ? random_.below(kSmallNumbers.size()) : 101 + random_.below(899);
    fact.coin = random_.below(kCoins.size());
    fact.day = random_.below(kOrdinals.size());
    fact.month = random_.below(kMonths.size());
    return fact;
  }

  Fact new_fact_about(std::size_t subject) {
    Fact fact = new_fact();
    if (fact.person == subject) fact.person = new_person();
    return fact;
  }

  std::size_t some_person() { return random_.below(people_.size()); }

  std::size_t new_person() {
    Person person;
    person.given = name(1);
    std::string family = name(0);
    family += kFamilyEnds[random_.below(kFamilyEnds.size())];
    person.full = person.given + " " + family;
    person.trade = random_.below(kTrades.size());
    people_.push_back(std::move(person));
    return people_.size() - 1;
  }

  std::size_t new_place() {
    std::string place = name(random_.below(2));
    place += kPlaceEnds[random_.below(kPlaceEnds.size())];
    places_.push_back(std::move(place));
    return places_.size() - 1;
  }

  // `open_syllables` without a coda, then one with; rude words are drawn again.
  std::string name(std::size_t open_syllables) {
    std::string word;
    do {
      word.clear();
      for (std::size_t i = 0; i <= open_syllables; ++i) {
        word += kOnsets[random_.below(kOnsets.size())];
        word += kVowels[random_.below(kVowels.size())];
      }
      word += kCodas[random_.below(kCodas.size())];
    } while (std::any_of(kAvoided.begin(), kAvoided.end(),
                         [&](string_view bad) { return word.find(bad) != std::string::npos; }));
    word[0] = static_cast<char>(word[0] - 'a' + 'A');
    return word;
  }

  TextRandom random_;
  std::string text_;
  std::vector<Person> people_;
  std::vector<std::string> places_;
  std::vector<Page> pages_;
  std::vector<Section> sections_;
};

}  // namespace

std::string synthetic_document(std::uint64_t seed, std::uint64_t index, std::size_t min_bytes) {
  return Writer(seed, index).write(min_bytes);
}

}  // namespace triforce
