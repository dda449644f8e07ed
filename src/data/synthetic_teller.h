// Puts the dealings of the synthetic documents into words.
#pragma once
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "data/synthetic_cast.h"

namespace triforce::synthetic {

// A Scene says of whom and of what a section speaks, and who is present.
struct Scene {
  std::size_t subject = 0, form = 0, trade = 0;
  Fact head;
  std::vector<std::size_t> introduced;  // persons
  bool is_retelling = false;            // names and goods may be shortened
  bool is_named = false;                // whether a pronoun will do for the subject
};

// Renders templates (data/synthetic.json says what their fields are) and appends them to `text`.
class Teller {
 public:
  Teller(TextRandom& random, const Cast& cast, std::string& text)
      : random_(random), cast_(cast), text_(text) {}

  // A dealing in its wording, perhaps with a few words before and after.
  void tell(const Fact& fact, Scene& scene);
  // A question about a dealing and its answer.
  void ask(const Fact& fact, Scene& scene);
  // A sentence from a template that has neither capital nor stop.
  void add_sentence(std::string_view pattern, const Fact& fact, Scene& scene);
  // A template that is whole as it stands; what it names is the scene's.
  void add_title(std::string_view pattern, Scene& scene);

 private:
  void render_sentence(std::string_view pattern, const Fact& fact, Scene& scene);
  void render(std::string_view pattern, const Fact& fact, Scene& scene);
  void render_field(char field, const Fact& fact, Scene& scene);
  void render_thing(char field, const Fact& fact, const Scene& scene);
  void render_subject(char field, Scene& scene);
  void render_other(std::size_t index, Scene& scene);
  void render_full_name(const Person& person);
  void render_goods(const Fact& fact, bool is_short);
  void render_sum(const Fact& fact);
  void capitalise(std::size_t at);
  void end_sentence();

  TextRandom& random_;
  const Cast& cast_;
  std::string& text_;
};

}  // namespace triforce::synthetic
