#include "data/synthetic_teller.h"

#include <algorithm>

#include "data/synthetic_words.h"

namespace triforce::synthetic {

using std::string_view;

void Teller::tell(const Fact& fact, Scene& scene) {
  const std::size_t begin = text_.size();
  if (random_.chance(25)) {
    const string_view opener = random_.pick(words().openers);
    text_ += opener;
    text_ += opener.ends_with("that") ? " " : ", ";
  }
  render(words().deals[fact.deal].told[fact.wording], fact, scene);
  if (random_.chance(20)) {
    text_ += ", ";
    render(random_.pick(words().tails), fact, scene);
  }
  capitalise(begin);
  end_sentence();
}

void Teller::ask(const Fact& fact, Scene& scene) {
  const string_view pattern = random_.pick(words().dialogue);
  const Deal& deal = words().deals[fact.deal];
  const std::size_t question = random_.below(deal.asked.size());
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

void Teller::render_sentence(string_view pattern, const Fact& fact, Scene& scene) {
  const std::size_t begin = text_.size();
  render(pattern, fact, scene);
  capitalise(begin);
}

void Teller::add_title(string_view pattern, Scene& scene) { render(pattern, scene.head, scene); }

void Teller::add_sentence(string_view pattern, const Fact& fact, Scene& scene) {
  render_sentence(pattern, fact, scene);
  end_sentence();
}

void Teller::capitalise(std::size_t at) {
  if (text_[at] == '"') ++at;
  char& first = text_[at];
  if (first >= 'a' && first <= 'z') first = static_cast<char>(first - 'a' + 'A');
}

// The stop belongs within the quotation.
void Teller::end_sentence() {
  if (text_.back() == '"') {
    text_.insert(text_.size() - 1, 1, '.');
  } else {
    text_ += '.';
  }
}

void Teller::render(string_view pattern, const Fact& fact, Scene& scene) {
  std::size_t at = 0;
  for (;;) {
    const std::size_t open = pattern.find('{', at);
    text_ += pattern.substr(at, open - at);
    if (open == string_view::npos) return;
    render_field(pattern[open + 1], fact, scene);
    at = open + 3;
  }
}

void Teller::render_field(char field, const Fact& fact, Scene& scene) {
  switch (field) {
    case 'F':
      render_full_name(cast_.person(scene.subject));
      scene.is_named = true;
      break;
    case 'S':
    case 'O':
    case 'H':
      render_subject(field, scene);
      break;
    case 's':
      text_ += cast_.person(scene.subject).is_woman ? "she" : "he";
      break;
    case 'o':
      text_ += cast_.person(scene.subject).is_woman ? "her" : "him";
      break;
    case 'h':
      text_ += cast_.person(scene.subject).is_woman ? "her" : "his";
      break;
    case 'P':
      render_other(fact.person, scene);
      break;
    case 'X':
      text_ += cast_.person(scene.head.person).given;
      break;
    case 'T':
      text_ += words().trades[fact.trade];
      break;
    case 't':
      text_ += words().trades[scene.trade];
      break;
    case 'K':
      text_ += words().forms[scene.form].name;
      break;
    default:
      render_thing(field, fact, scene);
  }
}

void Teller::render_thing(char field, const Fact& fact, const Scene& scene) {
  switch (field) {
    case 'L':
      text_ += cast_.place(fact.place);
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
      text_ += words().ordinals[fact.day];
      text_ += " of ";
      text_ += words().months[fact.month];
      break;
    case 'j':
      text_ += random_.pick(words().moods);
      break;
    case 'a':
      text_ += random_.pick(words().actions);
      break;
    case 'w':
      text_ += random_.pick(words().weather);
      break;
    case 'b':
      text_ += random_.pick(words().times);
      break;
    default:
      text_ += random_.pick(words().things);
  }
}

// The name at first, then the given name or a pronoun.
void Teller::render_subject(char field, Scene& scene) {
  const Person& person = cast_.person(scene.subject);
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

// A person is named by trade and name at first, then by either.
void Teller::render_other(std::size_t index, Scene& scene) {
  const Person& person = cast_.person(index);
  auto& known = scene.introduced;
  const bool is_known = std::ranges::find(known, index) != known.end();
  if (!is_known) known.push_back(index);
  const std::size_t how = random_.below(100);
  if (how < 35) {
    text_ += "the ";
    text_ += words().trades[person.trade];
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

void Teller::render_full_name(const Person& person) {
  text_ += person.given;
  text_ += ' ';
  text_ += person.family;
}

void Teller::render_goods(const Fact& fact, bool is_short) {
  const GoodsKind& kind = words().goods[fact.goods];
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

void Teller::render_sum(const Fact& fact) {
  if (fact.hundreds != 0) {
    text_ += words().small_numbers[fact.hundreds - 1];
    text_ += " hundred and ";
  }
  text_ += words().small_numbers[fact.sum];
  text_ += ' ';
  text_ += words().coins[fact.coin];
}

}  // namespace triforce::synthetic
