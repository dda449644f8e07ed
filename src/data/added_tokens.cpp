#include "data/added_tokens.h"

#include <algorithm>
#include <span>
#include <utility>

#include "data/white_space.h"

namespace triforce {
namespace {

unsigned char byte_at(std::string_view text, std::size_t i) {
  return static_cast<unsigned char>(text[i]);
}

// Bytes of white space at one end of a text.
std::size_t white_space(std::string_view text, bool at_end) {
  const std::size_t whole = text.size();
  const auto is_there = [&](std::string_view space) {
    return at_end ? text.ends_with(space) : text.starts_with(space);
  };
  for (const auto* it = kWhiteSpace.begin();
       (it = std::ranges::find_if(kWhiteSpace, is_there)) != kWhiteSpace.end();) {
    at_end ? text.remove_suffix(it->size()) : text.remove_prefix(it->size());
  }
  return whole - text.size();
}

}  // namespace

AddedTokens::AddedTokens(std::vector<AddedToken> tokens) : tokens_(std::move(tokens)) {
  std::ranges::sort(tokens_, {}, &AddedToken::content);
  for (const AddedToken& token : tokens_) begins_[byte_at(token.content, 0)] = true;
}

const AddedToken* AddedTokens::longest_at(std::string_view text) const {
  const AddedToken* longest = nullptr;
  std::span<const AddedToken> alike = tokens_;  // in the bytes before `depth`
  for (std::size_t depth = 0; depth < text.size() && !alike.empty(); ++depth) {
    const auto byte = [&](const AddedToken& token) {
      return depth < token.content.size() ? int{byte_at(token.content, depth)} : -1;
    };
    const int wanted = byte_at(text, depth);
    alike = {std::ranges::lower_bound(alike, wanted, {}, byte),
             std::ranges::upper_bound(alike, wanted, {}, byte)};
    if (!alike.empty() && alike.front().content.size() == depth + 1) longest = &alike.front();
  }
  return longest;
}

void AddedTokens::cut(std::string_view text, const OnText& on_text, const OnToken& on_token) const {
  std::size_t done = 0;
  for (std::size_t at = 0; at < text.size();) {
    const AddedToken* token = begins_[byte_at(text, at)] ? longest_at(text.substr(at)) : nullptr;
    if (token == nullptr) {
      ++at;
      continue;
    }
    std::size_t begin = at;
    at += token->content.size();
    if (token->strips_left) begin -= white_space(text.substr(done, begin - done), true);
    if (token->strips_right) at += white_space(text.substr(at), false);
    if (begin > done) on_text(text.substr(done, begin - done), done);
    on_token(token->id);
    done = at;
  }
  if (done < text.size()) on_text(text.substr(done), done);
}

}  // namespace triforce
