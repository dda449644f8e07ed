#include "statistics/distributions.h"

#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/special_functions/erf.hpp>
#include <numbers>

#include "triforce/error.h"

namespace triforce {
namespace {

namespace bm = boost::math;
namespace policies = boost::math::policies;
// Arguments are checked here, so that no error of Boost's gets out: a result that no double holds
// is infinite or 0. Doubles throughout, because a long double is not the same on every machine.
using Policy = policies::policy<policies::domain_error<policies::ignore_error>,
                                policies::pole_error<policies::ignore_error>,
                                policies::overflow_error<policies::ignore_error>,
                                policies::evaluation_error<policies::ignore_error>,
                                policies::promote_float<false>, policies::promote_double<false>>;
using Student = bm::students_t_distribution<double, Policy>;
using ChiSquared = bm::chi_squared_distribution<double, Policy>;

}  // namespace

double normal_z(double within) {
  TF_CHECK(within > 0 && within < 1, "within {}", within);
  return std::numbers::sqrt2 * bm::erf_inv(within, Policy());
}

double student_t(std::int64_t freedom, double within) {
  TF_CHECK(freedom >= 1 && within > 0 && within < 1, "within {} with {} degrees of freedom", within,
           freedom);
  const Student t(static_cast<double>(freedom));
  return bm::quantile(bm::complement(t, 0.5 * (1 - within)));  // of both tails, one
}

double chi_square_tail(double statistic, int degrees) {
  TF_CHECK(degrees >= 1 && statistic >= 0, "{} with {} degrees of freedom", statistic, degrees);
  return bm::cdf(bm::complement(ChiSquared(degrees), statistic));
}

}  // namespace triforce
