#include "data/synthetic_cast.h"

#include <algorithm>
#include <utility>

#include "data/synthetic_words.h"

namespace triforce::synthetic {

Fact Cast::new_fact(std::size_t person, std::size_t place) {
  Fact fact;
  fact.wording = random_.below(words().deals[0].told.size());
  fact.person = person;
  fact.place = place;
  fact.trade = random_.rank(words().trades.size());
  fact.goods = random_.rank(words().goods.size());
  fact.adjective = random_.rank(words().goods[0].adjectives.size());
  fact.material = random_.rank(words().goods[0].materials.size());
  fact.noun = random_.rank(words().goods[0].nouns.size());
  fact.hundreds = random_.chance(25) ? 1 + random_.below(8) : 0;
  fact.sum = random_.rank(words().small_numbers.size());
  fact.coin = random_.rank(words().coins.size());
  fact.day = random_.below(words().ordinals.size());
  fact.month = random_.below(words().months.size());
  return fact;
}

std::size_t Cast::some_person() {
  return people_.empty() ? new_person() : random_.below(people_.size());
}

std::size_t Cast::other_person(std::size_t subject) {
  const std::size_t person = random_.chance(40) ? new_person() : some_person();
  return person == subject ? new_person() : person;
}

// Seldom with a given name that is in use, for a page calls its subject by that alone.
std::size_t Cast::new_person() {
  Person person;
  for (int i = 0; i < 4; ++i) {
    person.is_woman = random_.chance(45);
    person.given =
        person.is_woman ? random_.pick_name(words().women) : random_.pick_name(words().men);
    const bool is_in_use = std::ranges::any_of(
        people_, [&](const Person& other) { return other.given == person.given; });
    if (!is_in_use) break;
  }
  person.family = random_.pick_name(words().surnames);
  person.title = !person.is_woman ? "Mr." : random_.chance(50) ? "Miss" : "Mrs.";
  person.trade = random_.rank(words().trades.size());
  people_.push_back(person);
  return people_.size() - 1;
}

std::size_t Cast::some_place() {
  if (!places_.empty() && !random_.chance(35)) return random_.below(places_.size());
  std::string place;
  const std::size_t how = random_.below(100);
  if (how < 30) {
    place = random_.pick_name(words().towns);
  } else {
    place = "the ";
    if (how < 80) {
      place += random_.pick(words().spot_kinds);
      place += ' ';
    }
    place += random_.pick_name(words().spots);
    if (how >= 80) {
      place += " of ";
      place += random_.pick_name(words().towns);
    }
  }
  places_.push_back(std::move(place));
  return places_.size() - 1;
}

}  // namespace triforce::synthetic
