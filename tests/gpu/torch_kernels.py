#!/usr/bin/env python3
"""Times of PyTorch's matrix products and attention at the shapes of a training step, beside which
bench_gpu_kernels prints ours: same names, same columns.

    torch_kernels.py [124m|774m|1558m] [gemm|attention] [ROUNDS]

Data are normals; a time is the median of ROUNDS, each between two events. Attention is
scaled_dot_product_attention on views of one qkv matrix, as a trainer has them, with each backend that
takes the shape; "best" is the fastest of them, forward and backward together.
"""
import statistics
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

SHAPES = {  # batch, hidden, heads, layers
    "124m": (64, 768, 12, 12),
    "774m": (32, 1280, 20, 36),
    "1558m": (16, 1600, 25, 48),
}
SEQUENCE, PADDED = 1024, 50304
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 20


def median_us(run):
    times = []
    time.sleep(0.3)  # a GPU that just worked is slower: both programs let it cool as long
    for i in range(-3, ROUNDS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        if i >= 0:
            times.append((begin, end))
    torch.cuda.synchronize()
    return statistics.median(b.elapsed_time(e) for b, e in times) * 1e3


def normal(*size):
    return torch.randn(*size, device="cuda", dtype=torch.bfloat16)


def products(batch, hidden, layers):
    r, h = batch * SEQUENCE, hidden
    for name, m, n, k, ta, tb, times in (
        ("qkv", r, 3 * h, h, 0, 1, layers),
        ("qkv dx", r, h, 3 * h, 0, 0, layers),
        ("qkv dw", 3 * h, h, r, 1, 0, layers),
        ("proj", r, h, h, 0, 1, layers),
        ("proj dx", r, h, h, 0, 0, layers),
        ("proj dw", h, h, r, 1, 0, layers),
        ("fc", r, 4 * h, h, 0, 1, layers),
        ("fc dx", r, h, 4 * h, 0, 0, layers),
        ("fc dw", 4 * h, h, r, 1, 0, layers),
        ("mlp proj", r, h, 4 * h, 0, 1, layers),
        ("mlp proj dx", r, 4 * h, h, 0, 0, layers),
        ("mlp proj dw", h, 4 * h, r, 1, 0, layers),
        ("logits", r, PADDED, h, 0, 1, 1),
        ("logits dx", r, h, PADDED, 0, 0, 1),
        ("logits dw", PADDED, h, r, 1, 0, 1),
    ):
        yield name, m, n, k, ta, tb, times


def gemm(batch, hidden, layers):
    flops = seconds = 0.0
    for name, m, n, k, ta, tb, times in products(batch, hidden, layers):
        a = normal(k, m).t() if ta else normal(m, k)
        b = normal(n, k).t() if tb else normal(k, n)
        c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        us = median_us(lambda: torch.matmul(a, b, out=c))
        work = 2.0 * m * n * k
        print(f"{name:<16} {m:6} x {n:6} x {k:6} {us:9.1f} us {work / us / 1e6:6.0f} TFLOP/s")
        flops += times * work
        seconds += times * us * 1e-6
    print(f"{'of a step':<16} {seconds * 1e6:9.1f} us {flops / seconds / 1e12:6.0f} TFLOP/s")


def attention(batch, hidden, heads):
    size = hidden // heads
    shapes = [(batch, SEQUENCE, heads, heads, size), (2, 8192, 32, 8, 128), (16, 1024, 16, 16, 128)]
    for b, s, q, kv, head in shapes:
        qkv = normal(b, s, (q + 2 * kv) * head).requires_grad_()
        parts = qkv.split([q * head, kv * head, kv * head], -1)
        views = [p.view(b, s, -1, head).transpose(1, 2) for p in parts]
        gradient = normal(b, q, s, head)
        best = {}
        for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):

            def forward():
                with sdpa_kernel(backend):
                    return F.scaled_dot_product_attention(*views, is_causal=True, enable_gqa=q != kv)

            try:
                out = forward()
                fwd = median_us(forward)
                bwd = median_us(lambda: torch.autograd.grad(out, views, gradient, retain_graph=True))
            except RuntimeError as refused:
                print(f"{'attention':<16} b {b} s {s} heads {q}/{kv} x {head}: {backend.name} refused: "
                      f"{str(refused).splitlines()[0][:60]}")
                continue
            best[backend.name] = (fwd + bwd, fwd, bwd)
        for name, (both, fwd, bwd) in sorted(best.items(), key=lambda item: item[1]):
            print(f"{'attention':<16} b {b:2} s {s:5} heads {q:2}/{kv:2} x {head:3} {both:9.1f} us "
                  f"forward {fwd:9.1f} backward {bwd:9.1f}  {name}")


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "124m"
    part = sys.argv[2] if len(sys.argv) > 2 else ""
    batch, hidden, heads, layers = SHAPES[name]
    torch.manual_seed(0)
    if part in ("", "gemm"):
        gemm(batch, hidden, layers)
    if part in ("", "attention"):
        attention(batch, hidden, heads)


main()
