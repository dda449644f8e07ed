// fmt, of which releases 9 to 12 will do. fmt::join lies in fmt/format.h up to 10 and in
// fmt/ranges.h since 11. Nothing else of this project includes fmt.
#pragma once
#include <fmt/format.h>
#if FMT_VERSION >= 110000
#include <fmt/ranges.h>
#endif
