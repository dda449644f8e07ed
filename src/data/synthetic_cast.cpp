#include "data/synthetic_cast.h"

#include <algorithm>
#include <utility>

#include "data/synthetic_templates.h"
#include "data/synthetic_words.h"

namespace triforce::synthetic {

using namespace synthetic_words;

Fact Cast::new_fact(std::size_t person, std::size_t place) {
  Fact fact;
  fact.wording = random_.below(kWordings);
  fact.person = person;
  fact.place = place;
  fact.trade = random_.rank(kTrades.size());
  fact.goods = random_.rank(kGoods.size());
  fact.adjective = random_.rank(kGoodsAdjectives);
  fact.material = random_.rank(kGoodsMaterials);
  fact.noun = random_.rank(kGoodsNouns);
  fact.hundreds = random_.chance(25) ? 1 + random_.below(8) : 0;
  fact.sum = random_.rank(kSmallNumbers.size());
  fact.coin = random_.rank(kCoins.size());
  fact.day = random_.below(kOrdinals.size());
  fact.month = random_.below(kMonths.size());
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
    person.given = person.is_woman ? random_.pick_name(kWomen) : random_.pick_name(kMen);
    const bool is_in_use = std::any_of(people_.begin(), people_.end(), [&](const Person& other) {
      return other.given == person.given;
    });
    if (!is_in_use) break;
  }
  person.family = random_.pick_name(kSurnames);
  person.title = !person.is_woman ? "Mr." : random_.chance(50) ? "Miss" : "Mrs.";
  person.trade = random_.rank(kTrades.size());
  people_.push_back(person);
  return people_.size() - 1;
}

std::size_t Cast::some_place() {
  if (!places_.empty() && !random_.chance(35)) return random_.below(places_.size());
  std::string place;
  const std::size_t how = random_.below(100);
  if (how < 30) {
    place = random_.pick_name(kTowns);
  } else {
    place = "the ";
    if (how < 80) {
      place += random_.pick(kSpotKinds);
      place += ' ';
    }
    place += random_.pick_name(kSpots);
    if (how >= 80) {
      place += " of ";
      place += random_.pick_name(kTowns);
    }
  }
  places_.push_back(std::move(place));
  return places_.size() - 1;
}

}  // namespace triforce::synthetic
