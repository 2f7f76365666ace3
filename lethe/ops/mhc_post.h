#pragma once

namespace at {
class Tensor;
}

namespace lethe::ops {

/// Second half of a hyper-connection site: adds the sublayer's output to the mixed streams.
///   X'[j] = post[j] * y + sum over i of comb[i][j] * X[i]        (the FIRST index of comb is
///   summed)
/// y        [T, D], streams X [T, n, D]: float32 | bfloat16 | float64, the same; computed in
/// float32
///          (float64 for float64), one cast at the end
/// post     [T, n], comb [T, n, n] = [.., from, to]: the computing type, from mhc_pre
/// Returns X' like streams, contiguous. Differentiable in all four; double backward: error.
/// Throws ShapeError, DtypeError. Deterministic for a fixed thread count.
/// Source: model spec 3.2, 3.4.
at::Tensor mhc_post(const at::Tensor& y,
                    const at::Tensor& streams,
                    const at::Tensor& post,
                    const at::Tensor& comb);

namespace reference {
at::Tensor mhc_post(const at::Tensor& y,
                    const at::Tensor& streams,
                    const at::Tensor& post,
                    const at::Tensor& comb);
}

}  // namespace lethe::ops
