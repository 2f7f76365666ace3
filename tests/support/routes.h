#pragma once

#include <string>
#include <vector>

#include "support/gradcheck.h"
#include "support/tensors.h"
#include <gtest/gtest.h>

// One row of scores and of expert ids, for the router's tests.
namespace lethe::test {

inline at::Tensor row(std::vector<double> values) {
  return at::tensor(values, fp64()).unsqueeze(0);
}

inline at::Tensor ids(std::vector<int64_t> values) {
  return at::tensor(values, at::TensorOptions().dtype(at::kLong)).to(at::kInt).unsqueeze(0);
}

inline void expect_ids(const at::Tensor& got, const at::Tensor& want, const std::string& what) {
  ASSERT_EQ(got.scalar_type(), at::kInt) << what;
  expect_bitwise(got, want.to(at::kInt), what);
}

}  // namespace lethe::test
