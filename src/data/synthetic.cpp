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

// A text shorter than kFirstReturn has nothing to return to, one shorter than kLongText little.
// Returns nearer than kFar, in sight of a window of some 2,048 tokens, are the exception.
constexpr std::size_t kNear = 2048, kFar = 6144, kFirstReturn = 6144, kLongText = 12288;

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
  string_view given, family, title;
  bool is_woman = false;
  std::size_t trade = 0;
};

// One dealing of a page's subject; the text is rendered from it whenever it is told.
struct Fact {
  std::size_t deal = 0, wording = 0, person = 0, place = 0;
  std::size_t trade = 0, goods = 0, adjective = 0, material = 0, noun = 0;
  std::size_t hundreds = 0, sum = 0, coin = 0, day = 0, month = 0;
  std::size_t begin = 0, size = 0;  // where the page has it, in the text
};

struct Page {
  std::size_t form = 0, subject = 0;
  std::size_t latest_section = 0;
  std::size_t tellings = 1;
  std::vector<Fact> facts;
};

struct Section {
  std::size_t begin = 0, page = 0;
};

// Of whom and of what a section speaks, and who is present.
struct Scene {
  std::size_t subject = 0, form = 0, trade = 0;
  Fact head;
  std::vector<std::size_t> introduced;  // persons
  bool is_retelling = false;            // names and goods may be shortened
  bool is_named = false;                // whether a pronoun will do for the subject
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
    const std::size_t size = text_.size();
    const std::size_t percent = size < kFirstReturn ? 0 : size < kLongText ? 35 : 65;
    if (random_.chance(percent)) {
      return_to_page(pick_page());
    } else {
      add_page();
    }
    text_ += '\n';
  }

  void add_page() {
    if (!pages_.empty()) {
      const Page& other = pages_[pick_page()];
      Scene scene = new_scene(other);
      add_prose(other, scene, random_.below(4));
    }
    Page page;
    page.form = random_.below(kForms.size());
    page.subject = random_.chance(80) ? new_person() : some_person();
    const std::array<std::size_t, 3> cast = {other_person(page.subject), other_person(page.subject),
                                             other_person(page.subject)};
    const std::array<std::size_t, 3> places = {some_place(), some_place(), some_place()};
    std::array<std::size_t, kDeals.size()> deals{};
    for (std::size_t i = 0; i < deals.size(); ++i) deals[i] = i;
    const std::size_t n = 5 + random_.below(5);
    for (std::size_t i = 0; i < n; ++i) {
      std::swap(deals[i], deals[i + random_.below(deals.size() - i)]);
      const std::size_t person = cast[random_.below(cast.size())];
      Fact fact = new_fact(person, places[random_.below(places.size())]);
      fact.deal = deals[i];
      page.facts.push_back(fact);
    }
    pages_.push_back(std::move(page));
    begin_section(pages_.size() - 1);
    write_page(pages_.back());
  }

  void return_to_page(std::size_t index) {
    begin_section(index);
    Page& page = pages_[index];
    ++page.tellings;
    Scene scene = new_scene(page);
    scene.is_retelling = true;
    add_prose(page, scene, random_.below(4));
    const std::size_t how = random_.below(100);
    if (how < 50) {
      render_title(pick(kRetold), scene);
      retell_page(page, scene);
    } else if (how < 88) {
      render_title(pick(kExamined), scene);
      examine_page(page, scene);
    } else {
      render_title(pick(kQuoted), scene);
      quote_page(page);
    }
  }

  void begin_section(std::size_t page) {
    pages_[page].latest_section = sections_.size();
    sections_.push_back({text_.size(), page});
  }

  // A page whose latest telling begins some way back; of three draws the page with the fewest
  // tellings, so that a return has one old page to look for rather than many.
  std::size_t pick_page() {
    const bool is_near = text_.size() < 2 * kFar || random_.chance(18);
    std::size_t best = candidate_page(is_near);
    for (int i = 0; i < 2; ++i) {
      const std::size_t other = candidate_page(is_near);
      if (pages_[other].tellings < pages_[best].tellings) best = other;
    }
    return best;
  }

  // At a distance that is log-uniform, up to one octave, from kNear to kFar or from there to the
  // beginning.
  std::size_t candidate_page(bool is_near) {
    const std::size_t now = text_.size();
    const std::size_t nearest = is_near ? kNear : kFar;
    const std::size_t farthest = is_near ? std::min(now, kFar) : now;
    const auto octaves = static_cast<std::size_t>(std::bit_width(farthest / nearest));
    const std::size_t min_distance = nearest << random_.below(octaves);
    const std::size_t distance = std::min(min_distance + random_.below(min_distance), now);
    const auto after = std::upper_bound(
        sections_.begin(), sections_.end(), now - distance,
        [](std::size_t position, const Section& section) { return position < section.begin; });
    auto at = static_cast<std::size_t>(std::max<std::ptrdiff_t>(after - sections_.begin() - 1, 0));
    // Earlier tellings are skipped backwards: the first section of all is always some page's only
    // telling, or is told again later.
    while (at > 0 && pages_[sections_[at].page].latest_section != at) --at;
    return sections_[at].page;
  }

  void write_page(Page& page) {
    const Form& form = kForms[page.form];
    Scene scene = new_scene(page);
    render_title(form.heading, scene);
    for (Fact& fact : page.facts) {
      text_ += form.line_begin;
      fact.begin = text_.size();
      tell(fact, scene);
      fact.size = text_.size() - fact.begin;
      add_aside(15, page, scene);
      text_ += form.line_end;
    }
    render_title(form.closing, scene);
  }

  // Most of the facts, in the page's order, backwards or in any other, and in other words.
  void retell_page(Page& page, Scene& scene) {
    for (const std::size_t i : order_of_telling(page)) {
      Fact& fact = page.facts[i];
      fact.wording = (fact.wording + 1 + random_.below(2)) % kWordings;
      tell(fact, scene);
      add_aside(25, page, scene);
      text_ += random_.chance(25) ? '\n' : ' ';
    }
    text_.back() = '\n';
  }

  void examine_page(const Page& page, Scene& scene) {
    for (const std::size_t i : order_of_telling(page)) {
      render_dialogue(pick(kDialogue), page.facts[i], scene);
      text_ += '\n';
    }
  }

  void quote_page(const Page& page) {
    const std::size_t n = 3 + random_.below(2);
    const std::size_t first = random_.below(page.facts.size() - n + 1);
    for (std::size_t i = first; i < first + n; ++i) {
      const std::string line = text_.substr(page.facts[i].begin, page.facts[i].size);
      text_ += line;
      text_ += '\n';
    }
  }

  std::vector<std::size_t> order_of_telling(const Page& page) {
    std::vector<std::size_t> order(page.facts.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    const std::size_t how = random_.below(3);
    if (how == 0) std::reverse(order.begin(), order.end());
    for (std::size_t i = 0; how == 1 && i < order.size(); ++i) {
      std::swap(order[i], order[i + random_.below(order.size() - i)]);
    }
    const std::size_t left_out = random_.below(order.size() - 4);
    for (std::size_t i = 0; i < left_out; ++i) {
      order.erase(order.begin() + static_cast<std::ptrdiff_t>(random_.below(order.size())));
    }
    return order;
  }

  void add_prose(const Page& page, Scene& scene, std::size_t n) {
    for (; n > 0; --n) {
      add_sentence(pick(kProse), page, scene);
      text_ += n == 1 ? '\n' : ' ';
    }
  }

  void add_aside(std::size_t percent, const Page& page, Scene& scene) {
    if (!random_.chance(percent)) return;
    text_ += ' ';
    add_sentence(pick(kProse), page, scene);
  }

  void add_sentence(string_view pattern, const Page& page, Scene& scene) {
    render_sentence(pattern, page.facts[random_.below(page.facts.size())], scene);
    end_sentence();
  }

  // A dealing, perhaps with a few words before and after.
  void tell(const Fact& fact, Scene& scene) {
    const std::size_t begin = text_.size();
    if (random_.chance(25)) {
      const string_view opener = pick(kOpeners);
      text_ += opener;
      text_ += opener.ends_with("that") ? " " : ", ";
    }
    render(kDeals[fact.deal].told[fact.wording], fact, scene);
    if (random_.chance(20)) {
      text_ += ", ";
      render(pick(kTails), fact, scene);
    }
    capitalise(begin);
    end_sentence();
  }

  void render_dialogue(string_view pattern, const Fact& fact, Scene& scene) {
    const Deal& deal = kDeals[fact.deal];
    const std::size_t question = random_.below(kQuestions);
    std::size_t at = 0;
    for (;;) {
      const std::size_t open = pattern.find('{', at);
      text_ += pattern.substr(at, open - at);
      if (open == string_view::npos) return;
      switch (pattern[open + 1]) {
        case 'Q':
          render_sentence(deal.asked[question], fact, scene);
          break;
        case 'q':
          render(deal.asked[question], fact, scene);
          break;
        case 'W':
          render_sentence(deal.answered[question], fact, scene);
          break;
        default:
          render_field(pattern[open + 1], fact, scene);
      }
      at = open + 3;
    }
  }

  void render_sentence(string_view pattern, const Fact& fact, Scene& scene) {
    const std::size_t begin = text_.size();
    render(pattern, fact, scene);
    capitalise(begin);
  }

  void render_title(string_view pattern, Scene& scene) { render(pattern, scene.head, scene); }

  void capitalise(std::size_t at) {
    if (text_[at] == '"') ++at;
    char& first = text_[at];
    if (first >= 'a' && first <= 'z') first = static_cast<char>(first - 'a' + 'A');
  }

  // The stop belongs within the quotation.
  void end_sentence() {
    if (text_.back() == '"') {
      text_.insert(text_.size() - 1, 1, '.');
    } else {
      text_ += '.';
    }
  }

  void render(string_view pattern, const Fact& fact, Scene& scene) {
    std::size_t at = 0;
    for (;;) {
      const std::size_t open = pattern.find('{', at);
      text_ += pattern.substr(at, open - at);
      if (open == string_view::npos) return;
      render_field(pattern[open + 1], fact, scene);
      at = open + 3;
    }
  }

  void render_field(char field, const Fact& fact, Scene& scene) {
    switch (field) {
      case 'F':
        render_full_name(people_[scene.subject]);
        scene.is_named = true;
        break;
      case 'S':
      case 'O':
      case 'H':
        render_subject(field, scene);
        break;
      case 's':
        text_ += people_[scene.subject].is_woman ? "she" : "he";
        break;
      case 'o':
        text_ += people_[scene.subject].is_woman ? "her" : "him";
        break;
      case 'h':
        text_ += people_[scene.subject].is_woman ? "her" : "his";
        break;
      case 'P':
        render_other(fact.person, scene);
        break;
      case 'X':
        text_ += people_[scene.head.person].given;
        break;
      case 'T':
        text_ += kTrades[fact.trade];
        break;
      case 't':
        text_ += kTrades[scene.trade];
        break;
      case 'K':
        text_ += kForms[scene.form].name;
        break;
      default:
        render_thing(field, fact, scene);
    }
  }

  void render_thing(char field, const Fact& fact, const Scene& scene) {
    switch (field) {
      case 'L':
        text_ += places_[fact.place];
        break;
      case 'G':
        render_goods(fact, scene.is_retelling && random_.chance(35));
        break;
      case 'g':
        render_goods(fact, true);
        break;
      case 'A':
        render_sum(fact);
        break;
      case 'D':
        text_ += "the ";
        text_ += kOrdinals[fact.day];
        text_ += " of ";
        text_ += kMonths[fact.month];
        break;
      case 'j':
        text_ += pick(kMoods);
        break;
      case 'a':
        text_ += pick(kActions);
        break;
      case 'w':
        text_ += pick(kWeather);
        break;
      case 'b':
        text_ += pick(kTimes);
        break;
      default:
        text_ += pick(kThings);
    }
  }

  // The name at first, then the given name or a pronoun.
  void render_subject(char field, Scene& scene) {
    const Person& person = people_[scene.subject];
    if (scene.is_named && random_.chance(55)) {
      render_field(field == 'S' ? 's' : field == 'O' ? 'o' : 'h', {}, scene);
      return;
    }
    if (scene.is_named) {
      text_ += person.given;
    } else {
      render_full_name(person);
    }
    if (field == 'H') text_ += "'s";
    scene.is_named = true;
  }

  // By trade and name at first, then by either.
  void render_other(std::size_t index, Scene& scene) {
    const Person& person = people_[index];
    auto& known = scene.introduced;
    const bool is_known = std::find(known.begin(), known.end(), index) != known.end();
    if (!is_known) known.push_back(index);
    const std::size_t how = random_.below(100);
    if (how < 35) {
      text_ += "the ";
      text_ += kTrades[person.trade];
      if (is_known) return;
      text_ += ' ';
      render_full_name(person);
    } else if (how < 60 && (is_known || scene.is_retelling)) {
      text_ += person.title;
      text_ += ' ';
      text_ += person.family;
    } else {
      render_full_name(person);
    }
  }

  void render_full_name(const Person& person) {
    text_ += person.given;
    text_ += ' ';
    text_ += person.family;
  }

  void render_goods(const Fact& fact, bool is_short) {
    const GoodsKind& kind = kGoods[fact.goods];
    if (is_short) {
      text_ += "the ";
    } else {
      const string_view adjective = kind.adjectives[fact.adjective];
      text_ += string_view("aeiou").find(adjective[0]) != string_view::npos ? "an " : "a ";
      text_ += adjective;
      text_ += ' ';
    }
    text_ += kind.materials[fact.material];
    text_ += ' ';
    text_ += kind.nouns[fact.noun];
  }

  void render_sum(const Fact& fact) {
    if (fact.hundreds != 0) {
      text_ += kSmallNumbers[fact.hundreds - 1];
      text_ += " hundred and ";
    }
    text_ += kSmallNumbers[fact.sum];
    text_ += ' ';
    text_ += kCoins[fact.coin];
  }

  Scene new_scene(const Page& page) {
    Scene scene;
    scene.subject = page.subject;
    scene.form = page.form;
    scene.trade = random_.below(kTrades.size());
    const std::size_t person = other_person(page.subject);
    scene.head = new_fact(person, some_place());
    return scene;
  }

  Fact new_fact(std::size_t person, std::size_t place) {
    Fact fact;
    fact.wording = random_.below(kWordings);
    fact.person = person;
    fact.place = place;
    fact.trade = random_.below(kTrades.size());
    fact.goods = random_.below(kGoods.size());
    fact.adjective = random_.below(kGoodsAdjectives);
    fact.material = random_.below(kGoodsMaterials);
    fact.noun = random_.below(kGoodsNouns);
    fact.hundreds = random_.chance(25) ? 1 + random_.below(8) : 0;
    fact.sum = random_.below(kSmallNumbers.size());
    fact.coin = random_.below(kCoins.size());
    fact.day = random_.below(kOrdinals.size());
    fact.month = random_.below(kMonths.size());
    return fact;
  }

  std::size_t some_person() {
    return people_.empty() ? new_person() : random_.below(people_.size());
  }

  // New or known, but not `subject`.
  std::size_t other_person(std::size_t subject) {
    const std::size_t person = random_.chance(40) ? new_person() : some_person();
    return person == subject ? new_person() : person;
  }

  // Nobody has the name of another, and few a given name that is in use.
  std::size_t new_person() {
    Person person;
    for (int i = 0; i < 4; ++i) {
      person.is_woman = random_.chance(45);
      person.given = person.is_woman ? pick(kWomen) : pick(kMen);
      const bool is_in_use = std::any_of(people_.begin(), people_.end(), [&](const Person& other) {
        return other.given == person.given;
      });
      if (!is_in_use) break;
    }
    person.family = pick(kSurnames);
    person.title = !person.is_woman ? "Mr." : random_.chance(50) ? "Miss" : "Mrs.";
    person.trade = random_.below(kTrades.size());
    people_.push_back(person);
    return people_.size() - 1;
  }

  std::size_t some_place() {
    if (!places_.empty() && !random_.chance(35)) return random_.below(places_.size());
    std::string place;
    const std::size_t how = random_.below(100);
    if (how < 30) {
      place = pick(kTowns);
    } else {
      place = "the ";
      if (how < 80) {
        place += pick(kSpotKinds);
        place += ' ';
      }
      place += pick(kSpots);
      if (how >= 80) {
        place += " of ";
        place += pick(kTowns);
      }
    }
    places_.push_back(std::move(place));
    return places_.size() - 1;
  }

  template <std::size_t n>
  string_view pick(const std::array<string_view, n>& words) {
    return words[random_.below(n)];
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
