#!/usr/bin/env python3
"""Golden data for the Muon optimizer: tests/golden/muon/NAME.safetensors, one file per case.

Independent of Lethe: numpy in float64. The orthogonalised matrices are computed twice, as matrix
products and as the same scalar polynomials on the singular values, and must agree; a third form, plain
float32 torch products, gives the error that float32 arithmetic makes by itself.

A case is a parameter [.., cols] that is a stack of matrices [rows, cols], with a float32 start and
float32 gradients of a few steps (model specification 12):
    G = grad_scale grad    M = mu M + G    U = NS(mu M + G)
    W = W (1 - lr decay) - lr gamma sqrt(max(rows, cols)) U
File:  start F32, grads F32 [steps, ..], settings F64 [rows, lr, mu, gamma, decay, grad_scale],
       u F64 (of the first step), w F64, m F64 (after the last), float32_error F64 [1] = relative L2
       error of torch's float32 u against u.

Usage: make_muon_golden.py [FOLDER]    needs numpy, torch and safetensors
"""

import pathlib
import sys

import numpy as np
import torch
from safetensors.numpy import save_file

SEED = 41
STEPS = 4
FAST, FINE = (3.4445, -4.7750, 2.0315), (2.0, -1.5, 0.5)
COEFFICIENTS = [FAST] * 8 + [FINE] * 2
LR, MU, GAMMA, DECAY, GRAD_SCALE = 0.02, 0.95, 0.18, 0.1, 0.7


def by_products(matrix):
    norm = np.sqrt(np.sum(matrix * matrix))
    if norm == 0:
        return np.zeros_like(matrix)
    x = matrix / norm
    for a, b, c in COEFFICIENTS:
        gram = x @ x.T
        x = a * x + b * (gram @ x) + c * (gram @ gram @ x)
    return x


def by_singular_values(matrix):
    norm = np.linalg.norm(matrix)
    if norm == 0:
        return np.zeros_like(matrix)
    left, s, right = np.linalg.svd(matrix / norm, full_matrices=False)
    for a, b, c in COEFFICIENTS:
        s = a * s + b * s**3 + c * s**5
    return (left * s) @ right


def by_float32_torch(matrix):
    x = torch.from_numpy(matrix.astype(np.float32))
    tall = x.shape[0] > x.shape[1]
    if tall:
        x = x.T
    norm = x.norm()
    if norm == 0:
        return np.zeros_like(matrix)
    x = x / norm
    for a, b, c in COEFFICIENTS:
        gram = x @ x.T
        x = a * x + (b * gram + c * gram @ gram) @ x
    return (x.T if tall else x).double().numpy()


def stacked(function, array, rows):
    cols = array.shape[-1]
    return np.concatenate([function(m) for m in array.reshape(-1, rows, cols)]).reshape(array.shape)


def relative(a, b):
    norm = np.linalg.norm(b)
    return np.linalg.norm(a - b) / norm if norm > 0 else np.linalg.norm(a)


def run_case(start, grads, rows, check):
    w, m, first = start.astype(np.float64), np.zeros(start.shape), None
    scale = np.sqrt(max(rows, start.shape[-1]))
    for grad in grads:
        g = GRAD_SCALE * grad.astype(np.float64)
        m = MU * m + g
        ahead = MU * m + g
        u = stacked(by_products, ahead, rows)
        assert relative(u, stacked(by_singular_values, ahead, rows)) < check
        if first is None:
            first = u
            error = relative(stacked(by_float32_torch, ahead, rows), u)
        w = w * (1 - LR * DECAY) - LR * GAMMA * scale * u
    return {"start": start, "grads": grads, "u": first, "w": w, "m": m,
            "settings": np.array([rows, LR, MU, GAMMA, DECAY, GRAD_SCALE]), "float32_error": np.array([error])}


def conditioned(random, rows, cols, condition):
    """Singular values spread evenly in the logarithm from 1 to 1 / condition."""
    k = min(rows, cols)
    left, _ = np.linalg.qr(random.standard_normal((rows, k)))
    right, _ = np.linalg.qr(random.standard_normal((cols, k)))
    return (left * np.logspace(0, -np.log10(condition), k)) @ right.T


def few_rows(random, rows, cols, kept):
    matrix = np.zeros((rows, cols))
    matrix[random.choice(rows, kept, replace=False)] = random.standard_normal((kept, cols))
    return matrix


def experts(random, shape, idle):
    stack = random.standard_normal(shape)
    stack[idle] = 0
    return stack


def cases(random):
    """name -> (shape, rows, gradient of one step, agreement of the two float64 forms)"""
    def gauss(*shape):
        return lambda: random.standard_normal(shape)

    wide, tall, square = (20, 48), (48, 20), (24, 24)
    return {
        "gaussian_wide": (wide, 20, gauss(*wide), 1e-10),
        "gaussian_tall": (tall, 48, gauss(*tall), 1e-10),
        "gaussian_square": (square, 24, gauss(*square), 1e-10),
        "gaussian_row": ((1, 40), 1, gauss(1, 40), 1e-10),
        "gaussian_column": ((40, 1), 40, gauss(40, 1), 1e-10),
        "gaussian_tiny": (wide, 20, lambda: 1e-30 * random.standard_normal(wide), 1e-10),
        "gate_up_halves": ((2 * 12, 20), 12, gauss(2 * 12, 20), 1e-10),
        "output_groups": ((4 * 6, 32), 6, gauss(4 * 6, 32), 1e-10),
        "overlap_halves": ((2 * 16, 24), 16, gauss(2 * 16, 24), 1e-10),
        "expert_gate_up": ((5, 2 * 8, 20), 8, gauss(5, 2 * 8, 20), 1e-10),
        "expert_down": ((5, 20, 8), 20, gauss(5, 20, 8), 1e-10),
        "experts_idle": ((5, 20, 8), 20, lambda: experts(random, (5, 20, 8), idle=[1, 4]), 1e-10),
        "condition_1e6": ((24, 40), 24, lambda: conditioned(random, 24, 40, 1e6), 1e-6),
        "condition_1e9": (tall, 48, lambda: conditioned(random, *tall, 1e9), 1e-3),
        "few_rows": ((32, 24), 32, lambda: few_rows(random, 32, 24, kept=3), 1e-10),
        "few_rows_wide": ((24, 32), 24, lambda: few_rows(random, 24, 32, kept=2), 1e-10),
        "zero": ((12, 20), 12, lambda: np.zeros((12, 20)), 1e-10),
    }


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else root / "tests" / "golden" / "muon"
    folder.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    random = np.random.default_rng(SEED)
    for name, (shape, rows, draw, check) in cases(random).items():
        start = random.standard_normal(shape).astype(np.float32)
        grads = np.stack([draw() for _ in range(STEPS)]).astype(np.float32)
        case = run_case(start, grads, rows, check)
        save_file({key: np.ascontiguousarray(value) for key, value in case.items()}, folder / f"{name}.safetensors")
        print(f"{name:16} {'x'.join(map(str, shape)):8} float32 torch: {case['float32_error'][0]:.1e}")


if __name__ == "__main__":
    main()
