// Against values that mpmath 1.3 gives with 40 digits (erfinv, betainc and a root of it, gammainc).
#include "statistics/distributions.h"

#include <gtest/gtest.h>

#include <cmath>

#include "triforce/error.h"

namespace triforce {
namespace {

constexpr double kRelative = 1e-12;

void expect_close(double found, double expected) {
  EXPECT_NEAR(found, expected, kRelative * std::abs(expected));
}

TEST(NormalZ, EqualsItsReference) {
  for (const auto& [within, z] : {std::pair{1e-6, 1.25331413731582831e-6},
                                  {0.1, 0.125661346855074041},
                                  {0.5, 0.674489750196081743},
                                  {0.8, 1.28155156554460059},
                                  {0.9, 1.64485362695147282},
                                  {0.95, 1.95996398454005386},
                                  {0.99, 2.57582930354890045},
                                  {0.999, 3.29052673149189454},
                                  {1 - 0x1p-53, 8.29236107581359554}}) {
    SCOPED_TRACE(within);
    expect_close(normal_z(within), z);
  }
  EXPECT_DOUBLE_EQ(normal_z(0.95), kNormal95);
}

TEST(StudentT, EqualsItsReference) {
  struct Row {
    std::int64_t freedom;
    double within, t;
  };
  for (const Row& r :
       {Row{1, 0.1, 0.158384440324536303},    {1, 0.5, 1.0},
        {1, 0.95, 12.7062047361746933},       {1, 0.999, 636.619248768719051},
        {2, 0.95, 4.30265272974946179},       {3, 0.99, 5.84090930973335541},
        {4, 0.9, 2.13184678632665052},        {5, 0.8, 1.47588404882448125},
        {7, 0.999, 5.40788252086172441},      {10, 0.95, 2.22813885198627422},
        {29, 0.9, 1.69912702653349787},       {30, 0.99, 2.74999565356722497},
        {99, 0.95, 1.9842169515864171},       {100, 0.95, 1.98397151852355189},
        {101, 0.95, 1.9837310029556058},      {101, 0.1, 0.125977714245863889},
        {250, 0.999, 3.32986720567311887},    {1000, 0.99, 2.58075469806595077},
        {1000000, 0.95, 1.95996635681410666}, {1000000000, 0.95, 1.95996398691232509}}) {
    SCOPED_TRACE(r.freedom);
    expect_close(student_t(r.freedom, r.within), r.t);
  }
  for (int n = 1; n < 300; ++n) EXPECT_GT(student_t95(n), student_t95(n + 1)) << n;
}

TEST(ChiSquareTail, EqualsItsReference) {
  struct Row {
    double statistic;
    int degrees;
    double tail;
  };
  for (const Row& r : {Row{0, 1, 1.0},
                       {0.5, 1, 0.479500122186953462},
                       {3.84, 1, 0.0500435212487051032},
                       {1, 2, 0.606530659712633424},
                       {10, 5, 0.0752352461465121787},
                       {26, 26, 0.463104747099681256},
                       {80, 124, 0.999244036533014414},
                       {124.3, 124, 0.475529941639344167},
                       {200, 124, 1.81412587323347426e-5},
                       {400, 124, 9.01783264274016301e-31},
                       {600, 624, 0.748361617328060165}}) {
    SCOPED_TRACE(r.statistic);
    expect_close(chi_square_tail(r.statistic, r.degrees), r.tail);
  }
  EXPECT_EQ(chi_square_tail(1e5, 124), 0);  // 1.6e-21512
}

TEST(Distributions, RefuseWhatIsOutsideTheirRange) {
  for (const double within : {0.0, 1.0, -0.5, 2.0, std::nan("")}) {
    EXPECT_THROW(normal_z(within), Error) << within;
    EXPECT_THROW(student_t(5, within), Error) << within;
  }
  EXPECT_THROW(student_t(0, 0.95), Error);
  EXPECT_THROW(chi_square_tail(1, 0), Error);
  EXPECT_THROW(chi_square_tail(-1, 1), Error);
  EXPECT_THROW(chi_square_tail(std::nan(""), 1), Error);
}

}  // namespace
}  // namespace triforce
