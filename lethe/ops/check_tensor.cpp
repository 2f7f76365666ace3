#include "lethe/ops/check_tensor.h"

#include "lethe/base/error.h"
#include "lethe/core/describe.h"

namespace lethe::ops {
namespace {

std::string expected_text(const char* letters, at::IntArrayRef sizes) {
  std::string text;
  for (const int64_t n : sizes)
    text += (text.empty() ? "" : ",") + (n < 0 ? std::string("*") : std::to_string(n));
  return fmt::format("{} = [{}]", letters, text);
}

bool sizes_match(at::IntArrayRef actual, at::IntArrayRef expected) {
  if (actual.size() != expected.size()) return false;
  for (size_t i = 0; i < expected.size(); ++i)
    if (expected[i] >= 0 && actual[i] != expected[i]) return false;
  return true;
}

}  // namespace

void check_sizes(const char* op,
                 const char* name,
                 const char* letters,
                 const at::Tensor& t,
                 at::IntArrayRef sizes,
                 const char* advice) {
  LETHE_CHECK(ShapeError,
              sizes_match(t.sizes(), sizes),
              "{} [shape]: {} must be {}, got {}; {}",
              op,
              name,
              expected_text(letters, sizes),
              shape_text(t),
              advice);
}

void check_floating(const char* op, const char* name, const at::Tensor& t) {
  LETHE_CHECK(DtypeError,
              t.scalar_type() == at::kFloat || t.scalar_type() == at::kDouble,
              "{} [dtype]: {} must be float32 or float64, got {}; cast it first",
              op,
              name,
              dtype_text(t));
}

void check_dtype(const char* op,
                 const char* name,
                 const at::Tensor& t,
                 at::ScalarType dtype,
                 const char* advice) {
  LETHE_CHECK(DtypeError,
              t.scalar_type() == dtype,
              "{} [dtype]: {} must be {}, got {}; {}",
              op,
              name,
              dtype_text(at::empty({0}, at::TensorOptions().dtype(dtype))),
              dtype_text(t),
              advice);
}

void check_weight_dtype(const char* op,
                        const char* name,
                        const at::Tensor& t,
                        const at::Tensor& x) {
  LETHE_CHECK(DtypeError,
              t.scalar_type() == x.scalar_type() ||
                  (t.scalar_type() == at::kBFloat16 && x.scalar_type() == at::kFloat),
              "{}: {} must be {}{}, got {}; it must compute in the input's type",
              op,
              name,
              dtype_text(x),
              x.scalar_type() == at::kFloat ? " or bfloat16" : "",
              dtype_text(t));
}

void check_limit(const char* op, double limit) {
  LETHE_CHECK(ConfigError,
              limit >= 0,
              "{} [swiglu_limit]: must be >= 0, where 0 means no clamp, got {}; correct the "
              "configuration",
              op,
              limit);
}

}  // namespace lethe::ops
