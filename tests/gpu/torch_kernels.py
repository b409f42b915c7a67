#!/usr/bin/env python3
"""Times of PyTorch's matrix products and attention at the shapes of a training step, and ours in turn.

    torch_kernels.py [124m|774m|1558m] [gemm|matmul|attention] [ROUNDS] [BENCH]

BENCH is the program bench_gpu_kernels, which prints ours under the same names: each line is measured by
PyTorch, by ours, by PyTorch again, each after a rest, so that both meet the same clocks; the ratio is
ours over the mean of PyTorch's two (products: rates, so that 1 is as fast and more is faster;
attention: times, so that less is faster), and A/A is PyTorch's second over its first. "gemm" compares
the products of our step, with their biases and fp32 sums, "matmul" the same work as torch.matmul's.
Without BENCH only PyTorch's are printed.

Data are normals; a time is the median of ROUNDS, each between two events. Attention is
scaled_dot_product_attention on views of one qkv matrix, with the gradient of its result as rows of
tokens, as a trainer has them, by each backend that takes the shape; the best of them counts.
"""
import os
import re
import statistics
import subprocess
import sys
import time

SHAPES = {  # batch, hidden, heads, layers
    "124m": (64, 768, 12, 12),
    "774m": (32, 1280, 20, 36),
    "1558m": (16, 1600, 25, 48),
}
SEQUENCE, PADDED = 1024, 50304
ROUNDS = int(sys.argv[3]) if len(sys.argv) > 3 else 20


class Bench:
    """Our program, which measures a line when it is told to."""

    def __init__(self, program, model, part):
        self.process = subprocess.Popen(
            [program, model, part, str(ROUNDS)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=dict(os.environ, BENCH_TURNS="1"))

    def line(self, name):
        """The next line of this name; what comes before it is printed. None: there is none."""
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        for line in self.process.stdout:
            if line.startswith(name + " "):
                return line.rstrip()
            print("  " + line.rstrip(), flush=True)
        return None

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)


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
        ("8192", 8192, 8192, 8192, 0, 1, 0),
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


def microseconds(line, after=""):
    """The number before the first "us" behind `after`; NaN."""
    found = re.search(re.escape(after) + r".*?([\d.]+) us", line or "")
    return float(found.group(1)) if found else float("nan")


def gemm(batch, hidden, layers, bench):
    flops = theirs_s = ours_s = 0.0
    for name, m, n, k, ta, tb, times in products(batch, hidden, layers):
        a = normal(k, m).t() if ta else normal(m, k)
        b = normal(n, k).t() if tb else normal(k, n)
        c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
        work = 2.0 * m * n * k
        first = median_us(lambda: torch.matmul(a, b, out=c))
        ours = microseconds(bench.line(f"{name:<16} {m:6} x {n:6} x {k:6}")) if bench else float("nan")
        again = median_us(lambda: torch.matmul(a, b, out=c)) if bench else first
        us = (first + again) / 2
        line = f"{name:<16} {m:6} x {n:6} x {k:6} {us:9.1f} us {work / us / 1e6:6.0f} TFLOP/s"
        if bench:
            line += f"  ours {ours:9.1f} us {work / ours / 1e6:6.0f} TFLOP/s, ratio {us / ours:.3f}, A/A {again / first:.3f}"
        print(line, flush=True)
        if bench and ours != ours:
            continue  # refused: in neither sum
        flops += times * work
        theirs_s += times * us * 1e-6
        ours_s += times * ours * 1e-6
    line = f"{'of a step':<16} {theirs_s * 1e6:9.1f} us {flops / theirs_s / 1e12:6.0f} TFLOP/s"
    if bench:
        line += f"  ours {ours_s * 1e6:9.1f} us {flops / ours_s / 1e12:6.0f} TFLOP/s, ratio {theirs_s / ours_s:.4f}"
    print(line, flush=True)


def attention_us(qkv, views, q, kv, head, backend):
    """Forward, backward to q, k and v, and backward to the matrix that they are parts of, which is what the product
    behind it reads (ours writes there at once); None: the backend does not take the shape."""
    b, _, s, _ = views[0].shape
    gradient = normal(b, s, q, head).transpose(1, 2)

    def forward():
        with sdpa_kernel(backend):
            return F.scaled_dot_product_attention(*views, is_causal=True, enable_gqa=q != kv)

    try:
        out = forward()
        fwd = median_us(forward)
        return (fwd, median_us(lambda: torch.autograd.grad(out, views, gradient, retain_graph=True)),
                median_us(lambda: torch.autograd.grad(out, qkv, gradient, retain_graph=True)))
    except RuntimeError as refused:
        print(f"{'attention':<16} {backend.name} refused: {str(refused).splitlines()[0][:70]}", flush=True)
        return None


def attention(batch, hidden, heads, bench):
    size = hidden // heads
    shapes = [(batch, SEQUENCE, heads, heads, size), (2, 8192, 32, 8, 128), (16, 1024, 16, 16, 128)]
    for b, s, q, kv, head in shapes:
        qkv = normal(b, s, (q + 2 * kv) * head).requires_grad_()
        parts = qkv.split([q * head, kv * head, kv * head], -1)
        views = [p.view(b, s, -1, head).transpose(1, 2) for p in parts]
        what = f"b {b:2} s {s:5} heads {q:2}/{kv:2} x {head:3}"
        times = {}
        for backend in (SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION):
            found = attention_us(qkv, views, q, kv, head, backend)
            if found:
                times[backend] = found
        for backend, (fwd, bwd, joined) in sorted(times.items(), key=lambda item: sum(item[1][:2])):
            print(f"{'attention':<16} {what} {fwd + bwd:9.1f} us forward {fwd:9.1f} backward {bwd:9.1f}, joined {joined:9.1f}"
                  f"  {backend.name}", flush=True)
        if not bench or not times:
            continue
        best = min(times, key=lambda backend: sum(times[backend][:2]))
        forward, backward = bench.line("attention"), bench.line("attention-grad")
        ours = microseconds(forward, "taken"), microseconds(backward, "taken")
        cudnn = microseconds(forward, "cuDNN"), microseconds(backward, "cuDNN")
        own = microseconds(forward, "fused"), microseconds(backward, "fused")
        again = attention_us(qkv, views, q, kv, head, best)
        first = times[best]
        mean = [(x + y) / 2 for x, y in zip(first, again)]
        print(f"{'attention':<16} {what} ours {sum(ours):9.1f} us forward {ours[0]:9.1f} backward {ours[1]:9.1f}; ours / "
              f"{best.name}: {sum(ours) / sum(mean[:2]):.4f}, joined {sum(ours) / (mean[0] + mean[2]):.4f}, forward {ours[0] / mean[0]:.4f}, backward {ours[1] / mean[1]:.4f}, "
              f"A/A {sum(again) / sum(first):.4f}; own kernels {sum(cudnn) / sum(own):.3f} of our cuDNN", flush=True)


def main():
    name = sys.argv[1] if len(sys.argv) > 1 else "124m"
    part = sys.argv[2] if len(sys.argv) > 2 else ""
    program = sys.argv[4] if len(sys.argv) > 4 else None
    batch, hidden, heads, layers = SHAPES[name]
    torch.manual_seed(0)
    print(f"gpt2-{name}: PyTorch {torch.__version__}, CUDA {torch.version.cuda}, cuDNN {torch.backends.cudnn.version()}", flush=True)
    for what in [part] if part else ["matmul", "gemm", "attention"]:
        bench = Bench(program, name, what) if program else None
        if what == "attention":
            attention(batch, hidden, heads, bench)
        else:
            print(f"{what}:", flush=True)
            gemm(batch, hidden, layers, bench)
        if bench:
            bench.close()


if __name__ == "__main__":
    if sys.argv[1:] and sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        sys.exit(0)
    import torch
    import torch.nn.functional as F
    from torch.nn.attention import SDPBackend, sdpa_kernel

    main()
