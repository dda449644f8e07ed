// Files of /proc whose lines are "key : value".
#pragma once
#include <istream>
#include <string>

namespace triforce {

// Calls visit(key, value) for each such line, without the blanks around the colon, until it returns
// false. Other lines are passed over.
template <class Visit>
void for_each_field(std::istream& in, const Visit& visit) {
  for (std::string line; std::getline(in, line);) {
    const std::size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const std::string key = line.substr(0, colon);
    const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
    const std::string value = begin == std::string::npos ? std::string() : line.substr(begin);
    if (!visit(key.substr(0, key.find_last_not_of(" \t") + 1), value)) return;
  }
}

}  // namespace triforce
