#include "data/synthetic.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/synthetic_cast.h"
#include "data/synthetic_teller.h"
#include "data/synthetic_words.h"

namespace triforce {
namespace {

using namespace synthetic;
// A text shorter than kFirstReturn has nothing to return to, one shorter than kLongText little.
// Returns nearer than kFar, in sight of a window of some 2,048 tokens, are the exception.
constexpr std::size_t kNear = 2048, kFar = 6144, kFirstReturn = 6144, kLongText = 12288;

struct Page {
  std::size_t form = 0, subject = 0;
  std::size_t latest_section = 0;
  std::size_t tellings = 1;
  std::vector<Fact> facts;
};

struct Section {
  std::size_t begin = 0, page = 0;
};

class Writer {
 public:
  Writer(std::uint64_t seed, std::uint64_t index)
      : random_(seed, index), cast_(random_), teller_(random_, cast_, text_) {}

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
    const std::size_t percent = size < kFirstReturn ? 0 : size < kLongText ? 40 : 75;
    if (random_.chance(percent)) {
      return_to_page(pick_page());
    } else {
      add_page();
    }
    text_ += '\n';
  }

  // Before a new page, prose may go back to another.
  void add_page() {
    if (!pages_.empty()) {
      const Page& other = pages_[pick_page()];
      Scene scene = new_scene(other);
      add_prose(other, scene, random_.below(3));
    }
    Page page;
    page.form = random_.below(words().forms.size());
    page.subject = random_.chance(80) ? cast_.new_person() : cast_.some_person();
    std::array<std::size_t, 3> persons{}, places{};
    for (std::size_t& person : persons) person = cast_.other_person(page.subject);
    for (std::size_t& place : places) place = cast_.some_place();
    std::vector<std::size_t> deals(words().deals.size());
    std::iota(deals.begin(), deals.end(), std::size_t{0});
    const std::size_t n = 5 + random_.below(5);
    for (std::size_t i = 0; i < n; ++i) {
      std::swap(deals[i], deals[i + random_.below(deals.size() - i)]);
      const std::size_t person = persons[random_.below(persons.size())];
      Fact fact = cast_.new_fact(person, places[random_.below(places.size())]);
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
    add_prose(page, scene, random_.below(3));
    const std::size_t how = random_.below(100);
    if (how < 50) {
      teller_.add_title(random_.pick(words().retold), scene);
      retell_page(page, scene);
    } else if (how < 88) {
      teller_.add_title(random_.pick(words().examined), scene);
      examine_page(page, scene);
    } else {
      teller_.add_title(random_.pick(words().quoted), scene);
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
    const auto after = std::ranges::upper_bound(sections_, now - distance, {}, &Section::begin);
    auto at = static_cast<std::size_t>(std::max<std::ptrdiff_t>(after - sections_.begin() - 1, 0));
    // Sections whose page was told again later are skipped backwards, if need be to the first.
    while (at > 0 && pages_[sections_[at].page].latest_section != at) --at;
    return sections_[at].page;
  }

  void write_page(Page& page) {
    const Form& form = words().forms[page.form];
    Scene scene = new_scene(page);
    teller_.add_title(form.heading, scene);
    for (Fact& fact : page.facts) {
      text_ += form.line_begin;
      fact.begin = text_.size();
      teller_.tell(fact, scene);
      fact.size = text_.size() - fact.begin;
      add_aside(10, page, scene);
      text_ += form.line_end;
    }
    teller_.add_title(form.closing, scene);
  }

  // Most of the facts, in the page's order, backwards or in any other, and in other words.
  void retell_page(Page& page, Scene& scene) {
    for (const std::size_t i : order_of_telling(page)) {
      Fact& fact = page.facts[i];
      fact.wording = (fact.wording + 1 + random_.below(2)) % words().deals[0].told.size();
      teller_.tell(fact, scene);
      add_aside(12, page, scene);
      text_ += random_.chance(25) ? '\n' : ' ';
    }
    text_.back() = '\n';
  }

  void examine_page(const Page& page, Scene& scene) {
    for (const std::size_t i : order_of_telling(page)) {
      teller_.ask(page.facts[i], scene);
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
    if (how == 0) std::ranges::reverse(order);
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
      add_sentence(page, scene);
      text_ += n == 1 ? '\n' : ' ';
    }
  }

  void add_aside(std::size_t percent, const Page& page, Scene& scene) {
    if (!random_.chance(percent)) return;
    text_ += ' ';
    add_sentence(page, scene);
  }

  // Prose about the page's subject, which may speak of what one of its facts names.
  void add_sentence(const Page& page, Scene& scene) {
    const std::string_view pattern = random_.pick(words().prose);
    teller_.add_sentence(pattern, page.facts[random_.below(page.facts.size())], scene);
  }

  Scene new_scene(const Page& page) {
    Scene scene;
    scene.subject = page.subject;
    scene.form = page.form;
    scene.trade = random_.rank(words().trades.size());
    const std::size_t person = cast_.other_person(page.subject);
    scene.head = cast_.new_fact(person, cast_.some_place());
    return scene;
  }

  TextRandom random_;
  std::string text_;
  Cast cast_;
  Teller teller_;
  std::vector<Page> pages_;
  std::vector<Section> sections_;
};

}  // namespace

std::string synthetic_document(std::uint64_t seed, std::uint64_t index, std::size_t min_bytes) {
  return Writer(seed, index).write(min_bytes);
}

}  // namespace triforce
