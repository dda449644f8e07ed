// Cells that several tables of a result have.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "triforce/report.h"

namespace triforce {

// "-" wherever there is nothing, or nothing finite.
std::string interval(const std::optional<double>& low, const std::optional<double>& high);
std::string ratio(const std::optional<double>& value);  // "1.82x"
std::string ratio_interval(const std::optional<double>& low, const std::optional<double>& high);
std::string rate(double value);                              // "0.901"
std::string fixed_interval(const Interval& ci, int digits);  // "0.890-0.912" with 3
// ".95" rather than "0.95", so that many fit.
std::string short_rate(double value, int digits);
std::string rate_interval(double low, double high, int digits);  // of such
// A level's acceptance rate, with its interval if it has one: "0.901 .88-.92".
std::string rate_with_interval(const LevelResult& level);
// Says what these intervals take for a random sample: "; intervals: ...". It is empty without any
// interval.
std::string intervals_text(const std::vector<std::optional<IntervalOver>>& over);

}  // namespace triforce
