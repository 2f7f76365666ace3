#pragma once

#include <cstdint>
#include <tuple>

namespace at {
class Tensor;
}

namespace lethe::ops {

/// First half of a hyper-connection site: collapses the n streams of each token into the input of
/// the sublayer and computes how the sublayer's output is mixed back.
///   x = X flattened to [T, nD];  mix = (x fn^T) * rsqrt(mean(x^2) + norm_eps);  with l = mix *
///   scale + base: pre = sigmoid(l_pre) + hc_eps;  post = 2 sigmoid(l_post);  comb =
///   sinkhorn(l_comb);  u = sum_i pre[i] X[i]
/// streams     X [T, n, D] float32 | bfloat16 | float64; computed in float32 (float64 for float64)
/// fn          [M, nD], M = (2 + n) n, rows [pre: n | post: n | comb: n*n as (from, to)]
/// base        [M], scale [3] = pre, post, comb; fn, base and scale in the computing type
/// iterations  Sinkhorn iterations, >= 1
/// Returns u [T, D] like streams; post [T, n], comb [T, n, n] = [.., from, to] and pre [T, n] in
/// the computing type. pre is for inspection: no gradient flows through it. Differentiable in
/// streams, fn, base, scale; double backward: error. Throws ShapeError, DtypeError, ConfigError.
/// Deterministic for a fixed thread count. The dispatcher's lethe::mhc_pre returns two more, which
/// the gradient reads: mix [T, M] and the reciprocal root mean square [T, 1]. Source: model
/// spec 3.1, 3.4.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor> mhc_pre(const at::Tensor& streams,
                                                                   const at::Tensor& fn,
                                                                   const at::Tensor& base,
                                                                   const at::Tensor& scale,
                                                                   int64_t iterations,
                                                                   double norm_eps,
                                                                   double hc_eps);

namespace reference {
/// u, post, comb, pre, mix, reciprocal root mean square.
std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> mhc_pre(
    const at::Tensor& streams,
    const at::Tensor& fn,
    const at::Tensor& base,
    const at::Tensor& scale,
    int64_t iterations,
    double norm_eps,
    double hc_eps);
}  // namespace reference

}  // namespace lethe::ops
