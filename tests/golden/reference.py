#!/usr/bin/python3
# Made the files reference_*.txt, once, from the top of the tree:
#   python3 tests/golden/reference.py tiny > tests/golden/reference_tiny.txt
#   python3 tests/golden/reference.py tiny-llama > tests/golden/reference_tiny-llama.txt
#   python3 tests/golden/reference.py tiny-moe 1 > tests/golden/reference_tiny-moe.txt
#   python3 tests/golden/reference.py tiny-moe none > tests/golden/reference_tiny-moe-dropless.txt
# (Debian 12: apt-get install python3-torch python3-yaml). Not part of any build or test.
"""Five training steps of a model by PyTorch: a second opinion on loss, gradients and AdamW.

Nothing here is translated from the C kernels: autograd, torch.optim.AdamW and clip_grad_norm_ do the
work; layers of experts compute every expert for every token and leave out what a token did not take.
Only the inputs are shared by definition, and so written here again in numpy: the generator
(base/rng.h), the synthetic samples (workloads/input.h) and the initial values.
"""
import math
import sys

import numpy as np
import torch
import torch.nn.functional as F
import yaml

SEED, BATCH, STEPS, PADDING = 1, 8, 5, 0.25
LR, LR_MIN, WARM_UP, DECAY_STEPS = 1e-3, 1e-4, 2, 10
BETAS, EPSILON, WEIGHT_DECAY, CLIP = (0.9, 0.95), 1e-8, 0.1, 1.0
BALANCE = 0.01

# ---- the generator: 64-bit integers that wrap around ----
U = np.uint64
np.seterr(over="ignore")


def mix(x):
    x = (x ^ (x >> U(30))) * U(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> U(27))) * U(0x94D049BB133111EB)
    return x ^ (x >> U(31))


def bits(key, index):
    return mix(U(key) + (np.asarray(index).astype(U) + U(1)) * U(0x9E3779B97F4A7C15))


def stream_key(seed, name):
    key = U(seed)
    for byte in name.encode():
        key = bits(key, byte)
    return bits(key, 256)


def below(key, index, n):
    return ((bits(key, index) >> U(32)) * U(n)) >> U(32)


def uniform(key, index):
    return (bits(key, index) >> U(11)).astype(np.float64) * 2.0**-53


def signs(key, index):
    return 1.0 - 2.0 * (bits(key, index) >> U(63)).astype(np.float64)


def normal(key, index):
    """Twelve 16-bit uniforms, centred: exact in float32."""
    total = np.zeros(np.shape(index), dtype=np.int64)
    for draw in range(3):
        word = bits(key, 3 * np.asarray(index) + draw)
        for shift in (0, 16, 32, 48):
            total += ((word >> U(shift)) & U(0xFFFF)).astype(np.int64)
    return (total - 6 * 65535).astype(np.float32) * np.float32(2.0**-16)


# ---- initial values ----
def shapes(m):
    h, f = m["hidden"], m["ffn"]
    if m["style"] == "llama":
        return llama_shapes(m)
    out = {"wte.weight": (m["vocabulary"], h), "wpe.weight": (m["sequence"], h)}
    for n in range(m["layers"]):
        out.update({
            f"h.{n}.ln_1.weight": (h,), f"h.{n}.ln_1.bias": (h,),
            f"h.{n}.attn.qkv.weight": (3 * h, h), f"h.{n}.attn.qkv.bias": (3 * h,),
            f"h.{n}.attn.proj.weight": (h, h), f"h.{n}.attn.proj.bias": (h,),
            f"h.{n}.ln_2.weight": (h,), f"h.{n}.ln_2.bias": (h,),
            f"h.{n}.mlp.fc.weight": (f, h), f"h.{n}.mlp.fc.bias": (f,),
            f"h.{n}.mlp.proj.weight": (h, f), f"h.{n}.mlp.proj.bias": (h,)})
    out.update({"ln_f.weight": (h,), "ln_f.bias": (h,)})
    return out


def llama_shapes(m):
    h, f = m["hidden"], m["ffn"]
    width = h // m["heads"]
    rows = (m["heads"] + 2 * m["kv-heads"]) * width
    out = {"wte.weight": (m["vocabulary"], h)}
    for n in range(m["layers"]):
        out.update({
            f"h.{n}.ln_1.weight": (h,), f"h.{n}.attn.qkv.weight": (rows, h),
            f"h.{n}.attn.proj.weight": (h, m["heads"] * width), f"h.{n}.ln_2.weight": (h,)})
        if "experts" not in m:
            out.update({
                f"h.{n}.mlp.gate_up.weight": (2 * f, h), f"h.{n}.mlp.proj.weight": (h, f)})
            continue
        out[f"h.{n}.router.weight"] = (m["experts"], h)
        for e in range(m["experts"]):
            out[f"h.{n}.experts.{e}.gate_up.weight"] = (2 * m["expert-ffn"], h)
            out[f"h.{n}.experts.{e}.proj.weight"] = (h, m["expert-ffn"])
    out.update({"ln_f.weight": (h,), "head.weight": (m["vocabulary"], h)})
    return out


def initial(name, shape, layers):
    if name.endswith("bias"):
        return np.zeros(shape, np.float32)
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    sigma = 0.01 if name == "wpe.weight" else 0.02
    if name.endswith("proj.weight"):
        sigma /= math.sqrt(2 * layers)
    values = np.float32(sigma) * normal(stream_key(SEED, name), np.arange(math.prod(shape)))
    return values.reshape(shape)


# ---- samples: a Markov chain with four successors a token, weights 8 4 2 2; the tail is masked ----
SUCCESSOR = [0] * 8 + [1] * 4 + [2] * 2 + [3] * 2


def sample(m, index):
    """Tokens, targets and mask of one sample of the study."""
    length, vocabulary = m["sequence"], m["vocabulary"]
    first, follow, draw, padding = (
        stream_key(SEED, "input." + name) for name in ("first", "next", "draw", "padding"))
    chain = [int(below(first, index, vocabulary))]
    for position in range(1, length + 1):
        which = SUCCESSOR[int(below(draw, index * (length + 1) + position, 16))]
        quarter, at = vocabulary // 4, 5 * chain[-1]
        chain.append((int(below(follow, at, vocabulary)) + which * quarter
                      + int(below(follow, at + 1 + which, quarter))) % vocabulary)
    valid = length - int(below(padding, index, math.floor(PADDING * length) + 1))
    return chain[:-1], chain[1:], [position < valid for position in range(length)]


def samples(m, first, n):
    return (np.array(column) for column in zip(*(sample(m, first + i) for i in range(n))))


# ---- the network ----
def block(p, name, x, heads):
    batch, length, width = x.shape
    y = F.layer_norm(x, (width,), p[name + "ln_1.weight"], p[name + "ln_1.bias"], 1e-5)
    qkv = F.linear(y, p[name + "attn.qkv.weight"], p[name + "attn.qkv.bias"])
    q, k, v = (t.view(batch, length, heads, -1).transpose(1, 2) for t in qkv.split(width, -1))
    scores = q @ k.transpose(-1, -2) / math.sqrt(width // heads)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    y = scores.masked_fill(future, -math.inf).softmax(-1) @ v
    y = y.transpose(1, 2).reshape(batch, length, width)
    x = x + F.linear(y, p[name + "attn.proj.weight"], p[name + "attn.proj.bias"])
    y = F.layer_norm(x, (width,), p[name + "ln_2.weight"], p[name + "ln_2.bias"], 1e-5)
    y = F.gelu(F.linear(y, p[name + "mlp.fc.weight"], p[name + "mlp.fc.bias"]), approximate="tanh")
    return x + F.linear(y, p[name + "mlp.proj.weight"], p[name + "mlp.proj.bias"])


def rms_norm(x, weight):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * weight


def rotate(x, theta):
    """[batch, heads, length, width]: element i and i + width / 2 are one complex number."""
    length, half = x.shape[2], x.shape[3] // 2
    step = theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(length, dtype=torch.float64)[:, None] * step
    turn = torch.polar(torch.ones_like(angle), angle).to(
        torch.complex128 if x.dtype == torch.float64 else torch.complex64)
    turned = torch.complex(x[..., :half], x[..., half:]) * turn
    return torch.cat((turned.real, turned.imag), -1)


def llama_block(p, name, x, m):
    batch, length, width = x.shape
    heads, kv_heads, head = m["heads"], m["kv-heads"], width // m["heads"]
    y = rms_norm(x, p[name + "ln_1.weight"])
    qkv = F.linear(y, p[name + "attn.qkv.weight"]).split(
        (heads * head, kv_heads * head, kv_heads * head), -1)
    q, k, v = (t.view(batch, length, -1, head).transpose(1, 2) for t in qkv)
    q, k = rotate(q, m["rope-theta"]), rotate(k, m["rope-theta"])
    k, v = (t.repeat_interleave(heads // kv_heads, 1) for t in (k, v))
    scores = q @ k.transpose(-1, -2) / math.sqrt(head)
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    y = (scores.masked_fill(future, -math.inf).softmax(-1) @ v).transpose(1, 2)
    x = x + F.linear(y.reshape(batch, length, -1), p[name + "attn.proj.weight"])
    y = rms_norm(x, p[name + "ln_2.weight"])
    if "experts" in m:
        y, balance = experts(p, name, y, m)
        return x + y, balance
    return x + gated(y, p[name + "mlp.gate_up.weight"], p[name + "mlp.proj.weight"]), 0


def gated(y, gate_up, proj):
    gate, up = F.linear(y, gate_up).chunk(2, -1)
    return F.linear(F.silu(gate) * up, proj)


def experts(p, name, y, m):
    """The K experts of each token, of which an expert takes the first of a sequence that it has room
    for, weighted by their softmax over the taken ones; and the load-balance loss (Fedus et al. 2021,
    eq. 4) of every sequence, times its length, summed."""
    n, k, length = m["experts"], m["top-k"], y.shape[1]
    logits = F.linear(y, p[name + "router.weight"])
    share = logits.softmax(-1)
    taken = torch.zeros_like(share).scatter(-1, logits.topk(k).indices, 1.0)
    best = logits.detach().sort(-1, descending=True).values
    m["closest"] = min(m["closest"], (best[..., k - 1] - best[..., k]).min().item())
    gates = share * taken / (share * taken).sum(-1, keepdim=True)
    if m["capacity"] is not None:
        room = min(length, math.ceil(m["capacity"] * k * length / n))
        kept = taken * (taken.cumsum(1) <= room)
        m["dropped"] += int((taken - kept).sum())
        gates = gates * kept
    out = sum(gates[..., e, None] * gated(y, p[f"{name}experts.{e}.gate_up.weight"],
                                          p[f"{name}experts.{e}.proj.weight"]) for e in range(n))
    balance = length * n * (taken.mean(1) / k * share.mean(1)).sum()
    return out, balance


def llama_logits(p, m, tokens):
    x, balance = F.embedding(tokens, p["wte.weight"]), 0
    for n in range(m["layers"]):
        x, more = llama_block(p, f"h.{n}.", x, m)
        balance = balance + more
    return F.linear(rms_norm(x, p["ln_f.weight"]), p["head.weight"]), balance


def gpt2_logits(p, m, tokens):
    x = F.embedding(tokens, p["wte.weight"]) + p["wpe.weight"][: tokens.shape[1]]
    for n in range(m["layers"]):
        x = block(p, f"h.{n}.", x, m["heads"])
    x = F.layer_norm(x, (m["hidden"],), p["ln_f.weight"], p["ln_f.bias"], 1e-5)
    return F.linear(x, p["wte.weight"]), 0


def loss_of(p, m, tokens, targets, mask):
    """Mean over the valid tokens of the whole batch; and what is to become small."""
    logits, balance = (llama_logits if m["style"] == "llama" else gpt2_logits)(p, m, tokens)
    loss = F.cross_entropy(logits[mask], targets[mask])
    return loss, loss + BALANCE * balance / mask.sum()


def rate(step):
    if step <= WARM_UP:
        return LR * step / WARM_UP
    progress = min(1.0, (step - WARM_UP) / (DECAY_STEPS - WARM_UP))
    return LR_MIN + (LR - LR_MIN) * 0.5 * (1 + math.cos(math.pi * progress))


def train(m, dtype):
    """Rows of (step, loss, gradient norm, learning rate, valid tokens), gradient norms of step 1,
    checksums of the parameters after the last step: L2 norm, dot product with random signs."""
    p = {name: torch.tensor(initial(name, shape, m["layers"]), dtype=dtype).requires_grad_()
         for name, shape in shapes(m).items()}
    optimizer = torch.optim.AdamW(
        [{"params": [t for t in p.values() if t.dim() == 2], "weight_decay": WEIGHT_DECAY},
         {"params": [t for t in p.values() if t.dim() == 1], "weight_decay": 0.0}],
        lr=LR, betas=BETAS, eps=EPSILON)
    rows, first = [], {}
    for step in range(1, STEPS + 1):
        tokens, targets, mask = (torch.tensor(a) for a in samples(m, BATCH * (step - 1), BATCH))
        for group in optimizer.param_groups:
            group["lr"] = rate(step)
        optimizer.zero_grad()
        loss, objective = loss_of(p, m, tokens, targets, mask)
        objective.backward()
        if step == 1:
            first = {name: t.grad.double().norm().item() for name, t in p.items()}
        norm = torch.nn.utils.clip_grad_norm_(p.values(), CLIP).item()
        optimizer.step()
        rows.append((step, loss.item(), norm, rate(step), int(mask.sum())))
    last = {}
    for name, t in p.items():
        values = t.detach().double().numpy().ravel()
        key = stream_key(stream_key(SEED, "checksum"), name)
        last[name] = (np.linalg.norm(values), values @ signs(key, np.arange(values.size)))
    return rows, first, last


def main():
    with open(f"workloads/models/{sys.argv[1]}.yaml", encoding="utf-8") as f:
        m = yaml.safe_load(f)
    torch.manual_seed(0)
    if "experts" in m:
        m.update({"capacity": None if sys.argv[2] == "none" else float(sys.argv[2]),
                  "closest": math.inf, "dropped": 0})
    double, first, last = train(m, torch.float64)
    found = dict(m)
    single, _, _ = train(m, torch.float32)
    print(f"# PyTorch {torch.__version__}, numpy {np.__version__}, CPU. Written by reference.py; do not edit.")
    print(f"# model {sys.argv[1]}: " + ", ".join(
        f"{k} {m[k]}" for k in ("layers", "hidden", "heads", "ffn", "vocabulary", "sequence")))
    print(f"# seed {SEED}, global batch {BATCH}, synthetic input, padding {PADDING}, AdamW betas "
          f"{BETAS[0]} {BETAS[1]}, epsilon {EPSILON}, decay {WEIGHT_DECAY} (matrices), clip {CLIP},")
    print(f"# lr {LR} to {LR_MIN}, warm-up {WARM_UP}, decay steps {DECAY_STEPS}")
    if "experts" in m:
        print(f"# experts {m['experts']}, top-k {m['top-k']}, expert-ffn {m['expert-ffn']}, learned routing, "
              f"capacity {sys.argv[2]}, balance {BALANCE}; {found['dropped']} choices dropped in these steps,")
        print(f"# logits of the last taken and the first other expert at least {found['closest']:.2g} apart")
    print("# step N  loss_nats  gradient_norm  (fp64)  lr  valid_tokens  loss_nats  gradient_norm  (fp32)")
    for d, s in zip(double, single):
        print(f"step {d[0]} {d[1]:.15g} {d[2]:.15g} {d[3]:.15g} {d[4]} {s[1]:.9g} {s[2]:.9g}")
    print("# gradient NAME  L2 norm at step 1, before clipping (fp64)")
    for name, norm in first.items():
        print(f"gradient {name} {norm:.15g}")
    print("# parameter NAME  L2 norm, dot product with the signs of its checksum, after the last step (fp64)")
    for name, (norm, dot) in last.items():
        print(f"parameter {name} {norm:.15g} {dot:.15g}")


if __name__ == "__main__":
    sys.exit(main())
