#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

#include "unit_tests/schedules/sdp/support.hpp"

namespace minipipe::schedules {
namespace {

// The second largest eigenvalue of P by power iteration, without the constant vector, on the rows as the header defines them.
double second_eigenvalue(const Masks& masks) {
  const auto n = static_cast<std::size_t>(masks.workers);
  std::vector<std::vector<double>> p(n, std::vector<double>(n, 0.0));
  std::vector<double> weight(n, 0.0);  // units of each worker: the left eigenvector of eigenvalue 1
  for (std::size_t v = 0; v < n; ++v) {
    const std::vector<int> units = masks.units_of(static_cast<int>(v));
    weight[v] = static_cast<double>(units.size());
    for (const int u : units) {
      const auto& holders = masks.holders[static_cast<std::size_t>(u)];
      for (const int w : holders) {
        p[v][static_cast<std::size_t>(w)] += 1.0 / (weight[v] * static_cast<double>(holders.size()));
      }
    }
  }
  std::vector<double> x(n);
  for (std::size_t i = 0; i < n; ++i) x[i] = std::sin(1.0 + 2.3 * static_cast<double>(i * i));
  double value = 0.0;
  for (int step = 0; step < 4000; ++step) {
    double sum = 0.0;
    double total = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
      sum += weight[i] * x[i];
      total += weight[i];
    }
    double norm = 0.0;
    for (double& xi : x) {
      xi -= sum / total;
      norm += xi * xi;
    }
    norm = std::sqrt(norm);
    if (norm < 1e-12) return 0.0;
    std::vector<double> y(n, 0.0);
    value = 0.0;
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = 0; j < n; ++j) y[i] += p[i][j] * x[j] / norm;
      value += y[i] * y[i];
    }
    value = std::sqrt(value);
    x = y;
  }
  return value;
}

TEST(SpectralGap, FullCoverageIsOneAndApartIsZero) {
  for (int workers = 1; workers <= 9; ++workers) {
    EXPECT_NEAR(spectral_gap(full_masks(workers, 5)), 1.0, 1e-12) << workers;
  }
  EXPECT_EQ(spectral_gap({4, {{0, 1}, {2, 3}, {0, 1}}}), 0.0);
  EXPECT_EQ(spectral_gap({3, {{0, 1}}}), 0.0) << "worker 2 holds nothing";
}

TEST(SpectralGap, ByHand) {
  // Two workers, each with a unit of its own and one in common: P = [3/4 1/4; 1/4 3/4], eigenvalues 1 and 1/2.
  EXPECT_NEAR(spectral_gap({2, {{0}, {0, 1}, {1}}}), 0.5, 1e-14);
  // Unequal sizes: P = [1/2 1/2; 1/4 3/4], eigenvalues 1 and 1/4.
  EXPECT_NEAR(spectral_gap({2, {{0, 1}, {1}}}), 0.75, 1e-14);
  // A ring of n workers, each sharing one of its two units with either neighbour: a circulant with 1/2, 1/4, 1/4 and
  // eigenvalues (1 + cos(2 pi k / n)) / 2.
  for (int n = 3; n <= 12; ++n) {
    Masks ring{n, {}};
    for (int w = 0; w < n; ++w) ring.holders.push_back(w + 1 < n ? std::vector<int>{w, w + 1} : std::vector<int>{0, w});
    EXPECT_NEAR(spectral_gap(ring), 1.0 - (1.0 + std::cos(2.0 * std::numbers::pi / n)) / 2.0, 1e-12) << n;
  }
}

// The same of hundreds, and with two workers that hold the same in each place: more workers than units, no other eigenvalues.
TEST(SpectralGap, OfManyWorkers) {
  constexpr int n = 200;
  const double gap = 1.0 - (1.0 + std::cos(2.0 * std::numbers::pi / n)) / 2.0;
  for (const int copies : {1, 2}) {
    Masks ring{copies * n, {}};
    for (int unit = 0; unit < n; ++unit) {
      std::vector<int>& holders = ring.holders.emplace_back();
      for (int copy = 0; copy < copies; ++copy) {
        holders.push_back(unit + copy * n);
        holders.push_back((unit + 1) % n + copy * n);
      }
      std::sort(holders.begin(), holders.end());
    }
    EXPECT_NEAR(spectral_gap(ring), gap, 1e-12) << copies;
  }
}

TEST(SpectralGap, AgreesWithPowerIteration) {
  for (int workers = 2; workers <= 9; ++workers) {
    for (const int units : {5, 8, 12, 24}) {
      for (const double coverage : {0.5, 0.69, 0.875}) {
        for (const MaskGenerator generator : {MaskGenerator::cyclic, MaskGenerator::random}) {
          const MaskOptions o{workers, units, coverage, generator, 3};
          if (workers * units_per_worker(o) < workers + units - 1) continue;
          const Masks masks = make_masks(o);
          EXPECT_NEAR(spectral_gap(masks), 1.0 - second_eigenvalue(masks), 1e-5) << shown(o);
          EXPECT_GT(spectral_gap(masks), 0.0) << shown(o);
          EXPECT_LT(spectral_gap(masks), 1.0) << shown(o);
        }
      }
    }
  }
}

TEST(SpectralGap, MoreCoverageMixesBetter) {
  double before = 0.0;
  for (const double coverage : {0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0}) {
    const double gap = spectral_gap(make_masks({.workers = 8, .units = 8, .coverage = coverage}));
    EXPECT_GT(gap, before) << coverage;
    before = gap;
  }
}

}  // namespace
}  // namespace minipipe::schedules
