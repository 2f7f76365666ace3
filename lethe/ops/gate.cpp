#include "lethe/ops/gate.h"

#include "lethe/base/error.h"
#include "lethe/core/describe.h"
#include "lethe/ops/check_tensor.h"
#include "lethe/ops/compute_dtype.h"
#include "lethe/ops/expert_rows.h"
#include "lethe/ops/fused.h"
#include "lethe/ops/gate_grad.h"
#include "lethe/ops/register.h"

namespace lethe::ops {

namespace {

constexpr const char* kOp = "gate";

using OptionalTensor = std::optional<at::Tensor>;
using Outputs = std::tuple<at::Tensor, at::Tensor, at::Tensor>;  // weights, indices, scores

Fusable fusable("gate");

void check_x_and_weight(const at::Tensor& x, const at::Tensor& weight) {
  check_sizes(kOp, "x", "[T,D]", x, {-1, -1}, "flatten batch and sequence to T");
  check_sizes(kOp, "weight", "[E,D]", weight, {-1, x.size(1)}, "pass the router's weight");
  LETHE_CHECK(ShapeError,
              weight.numel() > 0,
              "gate: weight must be [E,D] with E, D >= 1, got {}",
              shape_text(weight));
  LETHE_CHECK(DtypeError,
              x.is_floating_point() && weight.is_floating_point() &&
                  compute_dtype(x) == compute_dtype(weight),
              "gate: x and weight must be floating and both or neither float64, got {} and {}; "
              "cast one of them",
              dtype_text(x),
              dtype_text(weight));
}

void check_given(const at::Tensor& given, int64_t tokens, int64_t k) {
  check_sizes(kOp, "given", "[T,k]", given, {tokens, k}, "pass the indices of the same tokens");
  check_dtype(kOp, "given", given, at::kInt, "pass what gate or gate_lookup returned");
}

GateRule check(const at::Tensor& x,
               const at::Tensor& weight,
               const OptionalTensor& bias,
               const OptionalTensor& given,
               const GateOptions& options) {
  check_x_and_weight(x, weight);
  LETHE_CHECK(ShapeError,
              options.k >= 1 && options.k <= weight.size(0),
              "gate [k]: must lie in [1, E] = [1, {}], got {}; correct experts_per_token",
              weight.size(0),
              options.k);
  if (bias) {
    check_sizes(kOp, "bias", "[E]", *bias, {weight.size(0)}, "is it the bias of another layer?");
    check_dtype(kOp, "bias", *bias, compute_dtype(x), "the bias has the type of the scores");
  }
  if (given) check_given(*given, x.size(0), options.k);
  return {
      options.k, parse_score_function(options.score_function), options.normalize, options.scale};
}

void check_ascending(const at::Tensor& given) {
  const int64_t k = given.size(1);
  if (k < 2 || given.size(0) == 0) return;
  const at::Tensor bad = (given.narrow(1, 1, k - 1) <= given.narrow(1, 0, k - 1)).any(1);
  LETHE_CHECK(DataError,
              !bad.any().item<bool>(),
              "gate [expert ids]: given must ascend strictly in every row, got token {} out of "
              "order or with one expert twice; sort it as gate and gate_lookup do",
              bad.to(at::kInt).argmax().item<int64_t>());
}

Outputs empty_outputs(const at::Tensor& x, const at::Tensor& weight, int64_t k) {
  const auto options = x.options().dtype(compute_dtype(x));
  return {at::empty({x.size(0), k}, options),
          at::empty({x.size(0), k}, options.dtype(at::kInt)),
          at::empty({x.size(0), weight.size(0)}, options)};
}

Outputs fused_forward(const at::Tensor& x,
                      const at::Tensor& weight,
                      const OptionalTensor& bias,
                      const OptionalTensor& given,
                      const GateRule& rule) {
  const at::Tensor wide = widen(x).contiguous(), w = widen(weight).contiguous();
  const at::Tensor b = bias ? bias->contiguous() : at::Tensor(),
                   ids = given ? given->contiguous() : at::Tensor();
  Outputs out = empty_outputs(x, weight, rule.k);
  kernels::GateForward a{.parallel = aten_pool(),
                         .shape = gate_shape(x, weight, rule),
                         .x = wide.const_data_ptr<float>(),
                         .weight = w.const_data_ptr<float>(),
                         .bias = bias ? b.const_data_ptr<float>() : nullptr,
                         .given = given ? ids.const_data_ptr<int32_t>() : nullptr,
                         .weights = std::get<0>(out).data_ptr<float>(),
                         .indices = std::get<1>(out).data_ptr<int32_t>(),
                         .scores = std::get<2>(out).data_ptr<float>(),
                         .scratch = nullptr};
  const at::Tensor space = scratch(kernels::gate_forward_scratch(a));
  a.scratch = space.data_ptr<float>();
  kernels::gate_forward(a);
  return out;
}

// One argument for each of the schema's.
Outputs forward(const at::Tensor& x,
                const at::Tensor& weight,
                const OptionalTensor& bias,
                const OptionalTensor& given,
                int64_t k,
                std::string_view score_function,
                bool normalize,
                double scale) {
  const GateOptions options{k, score_function, normalize, scale};
  const GateRule rule = check(x, weight, bias, given, options);
  if (given) {
    check_expert_ids(kOp, *given, weight.size(0));
    check_ascending(*given);
  }
  if (fusable.runs(x)) return fused_forward(x, weight, bias, given, rule);
  return reference::gate(x, weight, bias, given, options);
}

Outputs meta(const at::Tensor& x,
             const at::Tensor& weight,
             const OptionalTensor& bias,
             const OptionalTensor& given,
             int64_t k,
             std::string_view score_function,
             bool normalize,
             double scale) {
  static_cast<void>(check(x, weight, bias, given, {k, score_function, normalize, scale}));
  return empty_outputs(x, weight, k);
}

Outputs autograd(const at::Tensor& x,
                 const at::Tensor& weight,
                 const OptionalTensor& bias,
                 const OptionalTensor& given,
                 int64_t k,
                 std::string_view score_function,
                 bool normalize,
                 double scale) {
  Outputs out;
  {
    const at::AutoDispatchBelowADInplaceOrView below;
    out = gate(x, weight, bias, given, {k, score_function, normalize, scale});
  }
  const auto& [weights, indices, scores] = out;
  const GateRule rule{k, parse_score_function(score_function), normalize, scale};
  record("lethe::gate",
         {x, weight},
         {weights, scores},
         {x, weight, scores, indices},
         [rule, fused = fusable.would_run(x)](const BackwardInput& in) {
           return fused ? gate_backward_fused(in, rule) : gate_backward(in, rule);
         });
  return out;
}

LETHE_REGISTER_OP(gate,
                  "gate(Tensor x, Tensor weight, Tensor? bias, Tensor? given, int k, str "
                  "score_function, bool normalize, float scale) -> (Tensor weights, Tensor "
                  "indices, Tensor scores)",
                  forward,
                  meta,
                  autograd)

}  // namespace

Outputs gate(const at::Tensor& x,
             const at::Tensor& weight,
             const OptionalTensor& bias,
             const OptionalTensor& given,
             const GateOptions& options) {
  using Signature = Outputs(const at::Tensor&,
                            const at::Tensor&,
                            const OptionalTensor&,
                            const OptionalTensor&,
                            int64_t,
                            std::string_view,
                            bool,
                            double);
  return LETHE_OP_HANDLE(gate, Signature)
      .call(x,
            weight,
            bias,
            given,
            options.k,
            options.score_function,
            options.normalize,
            options.scale);
}

}  // namespace lethe::ops
