#include "bench/support/node_time.h"

#include <algorithm>
#include <chrono>

#include <ATen/ops/mm.h>
#include <ATen/ops/rand.h>

namespace lethe::bench {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_of_mm(const at::Tensor& a, const at::Tensor& b) {
  const auto start = Clock::now();
  const at::Tensor c = at::mm(a, b);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double measure(const Gemm& g) {
  const at::Tensor a = at::rand({g.m, g.k}, at::kFloat), b = at::rand({g.n, g.k}, at::kFloat).t();
  double best = seconds_of_mm(a, b), total = 0;
  for (int i = 0; i < 50 && (i < 3 || total < 0.2); ++i) {
    const double now = seconds_of_mm(a, b);
    total += now;
    best = std::min(best, now);
  }
  return best;
}

}  // namespace

NodeTime& NodeTime::operator+=(const NodeTime& other) {
  flops += other.flops;
  bytes += other.bytes;
  ideal += other.ideal;
  with_mm += other.with_mm;
  return *this;
}

double GemmRates::seconds(const Gemm& g) {
  double& best = best_[{g.m, g.n, g.k}];
  if (best == 0) best = measure(g);
  return g.times * best;
}

NodeTime node_time(const NodeWork& node, const Peaks& peaks, GemmRates& rates) {
  NodeTime time{.flops = node.flops, .bytes = node.bytes};
  time.ideal = std::max(node.flops / peaks.fma_flops, node.bytes / peaks.triad_bytes);
  if (node.gemms.empty()) time.with_mm = time.ideal;
  for (const Gemm& gemm : node.gemms) time.with_mm += rates.seconds(gemm);
  return time;
}

NodeTime total_time(const std::vector<NodeWork>& nodes, const Peaks& peaks, GemmRates& rates) {
  NodeTime sum;
  for (const NodeWork& node : nodes) sum += node_time(node, peaks, rates);
  return sum;
}

}  // namespace lethe::bench
