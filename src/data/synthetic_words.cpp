// Tests: tests/data/synthetic_test.cpp
#include "data/synthetic_words.h"

#include "core/fields.h"
#include "synthetic_json.h"

namespace triforce::synthetic {

void fields(auto& v, GoodsKind& g) {
  v("adjectives", g.adjectives);
  v("materials", g.materials);
  v("nouns", g.nouns);
}
void fields(auto& v, Deal& d) {
  v("told", d.told);
  v("asked", d.asked);
  v("answered", d.answered);
}
void fields(auto& v, Form& f) {
  v("name", f.name);
  v("heading", f.heading);
  v("line_begin", f.line_begin);
  v("line_end", f.line_end);
  v("closing", f.closing);
}
void fields(auto& v, Words& w) {
  Texts note;
  v("note", note);
  v("men", w.men);
  v("women", w.women);
  v("surnames", w.surnames);
  v("towns", w.towns);
  v("spot_kinds", w.spot_kinds);
  v("spots", w.spots);
  v("goods", w.goods);
  v("trades", w.trades);
  v("months", w.months);
  v("coins", w.coins);
  v("ordinals", w.ordinals);
  v("small_numbers", w.small_numbers);
  v("moods", w.moods);
  v("actions", w.actions);
  v("weather", w.weather);
  v("times", w.times);
  v("things", w.things);
  v("deals", w.deals);
  v("openers", w.openers);
  v("tails", w.tails);
  v("forms", w.forms);
  v("quoted", w.quoted);
  v("retold", w.retold);
  v("examined", w.examined);
  v("dialogue", w.dialogue);
  v("prose", w.prose);
}

namespace {

Words read_words() {
  constexpr const char* kSource = "synthetic.json";
  const JsonValue value = parse_json(kSyntheticJson, kSource);
  Words w;
  read_value(JsonView(value, kSource, "InvalidWords"), w);
  for (const Deal& d : w.deals) {
    TF_CHECK(d.told.size() == w.deals[0].told.size() && d.asked.size() == d.answered.size() &&
                 d.asked.size() == w.deals[0].asked.size(),
             "{}: {}", kSource, d.told[0]);
  }
  for (const GoodsKind& g : w.goods) {
    TF_CHECK(g.adjectives.size() == w.goods[0].adjectives.size() &&
                 g.materials.size() == w.goods[0].materials.size() &&
                 g.nouns.size() == w.goods[0].nouns.size(),
             "{}: {}", kSource, g.nouns[0]);
  }
  return w;
}

}  // namespace

const Words& words() {
  static const Words kWords = read_words();
  return kWords;
}

}  // namespace triforce::synthetic
