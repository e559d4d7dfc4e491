#!/usr/bin/env python3
"""Makes a mixture-of-experts model of any size with random weights, for timing and for tests.

    make_moe.py OUT.gguf [--layers 24 --experts 128 --used 8 ...] [--types Q4_K:Q4_K,Q4_K:Q6_K]

Writes OUT.gguf (architecture qwen3moe) and OUT.gguf.tokens, a stream of ids for `pannier bench
--tokens`. The text is noise; the work is a real model's. --types gives, layer by layer and then
from the start again, the types of GATE_UP:DOWN, for real files mix them.

Routing is local as in real models, where random weights would use all experts evenly: the residual
stream stays near the token's embedding (the outputs of attention and experts are small), embeddings
fall into topics, some experts are more popular than others, and the stream stays within a topic for
a while and draws its tokens by a Zipf law. What it is stands in the file's metadata.

Needs the packages numpy and gguf (PyPI).
"""

import argparse
import sys

try:
    import gguf
    import numpy as np
except ImportError as missing:
    sys.exit(f"make_moe.py: {missing.name} is missing: pip install numpy gguf")

TYPES = gguf.GGMLQuantizationType
TOPICS, SPREAD, POPULARITY, STAY, ZIPF = 64, 0.8, 0.9, 0.6, 1.2
BYTE_TOKENS = 259  # <unk>, <s>, </s>, then a token for each byte


def half(value, n):
    return np.full(n, value, np.float16).view(np.uint8).reshape(n, 2)


def random_blocks(rng, kind, n, std):
    """n blocks of a type whose weights have about the deviation std and no mean."""
    block_n, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    if kind == TYPES.F32:
        return (std * rng.standard_normal(n, np.float32)).view(np.uint8)
    if kind == TYPES.F16:
        return (std * rng.standard_normal(n, np.float32)).astype(np.float16).view(np.uint8)
    b = rng.integers(0, 256, (n, block_bytes), dtype=np.uint8)
    if kind == TYPES.Q4_0:  # d, then codes of -8 to 7
        b[:, :2] = half(std / 4.6, n)
    elif kind == TYPES.Q8_0:  # d, then signed codes
        b[:, :2] = half(std / 74, n)
    elif kind == TYPES.Q4_K:  # d, dmin, scales and mins of 0 to 63, codes of 0 to 15
        b[:, :2] = half(std / 250, n)
        b[:, 2:4] = half(std / 250 * 7.5, n)
    elif kind == TYPES.Q6_K:  # codes of -32 to 31, signed scales, d
        b[:, -2:] = half(std / 1370, n)
    else:
        sys.exit(f"make_moe.py: no random blocks of {kind.name}; F32 F16 Q4_0 Q8_0 Q4_K Q6_K")
    assert block_n * n > 0
    return b


class Model:
    """Tensors by name, made one by one as they are written: the file may be larger than memory."""

    def __init__(self, path):
        self.out = gguf.GGUFWriter(path, "qwen3moe")
        self.makers = []

    def add(self, name, shape, kind, maker):
        """shape: rows first, as numpy has it."""
        block_n, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        if shape[-1] % block_n:
            sys.exit(f"make_moe.py: {name}: rows of {shape[-1]} are no whole blocks of {block_n}")
        count = int(np.prod(shape, dtype=np.int64))
        row_bytes = shape[-1] // block_n * block_bytes
        self.out.add_tensor_info(
            name,
            (*shape[:-1], row_bytes),
            np.dtype(np.uint8),
            count // block_n * block_bytes,
            raw_dtype=kind,
        )
        self.makers.append(lambda: np.ascontiguousarray(maker(count // block_n)).reshape(-1))

    def write(self):
        self.out.write_header_to_file()
        self.out.write_kv_data_to_file()
        self.out.write_ti_data_to_file()
        for make in self.makers:
            self.out.write_tensor_data(make().view(np.uint8))
        self.out.close()


def embeddings(rng, a):
    """[vocab, embd] of length sqrt(embd), and each token's topic. Column 0 is the same for all: the
    router's handle for popularity."""
    topic = rng.integers(0, TOPICS, a.vocab)
    e = rng.standard_normal((TOPICS, a.embd), np.float32)[topic]
    e += SPREAD * rng.standard_normal((a.vocab, a.embd), np.float32)
    e *= np.sqrt(a.embd) / np.linalg.norm(e, axis=1, keepdims=True)
    e[:, 0] = 0.2 * np.sqrt(a.embd)
    return e, topic


def token_stream(rng, topic, n):
    ids = [np.where(topic == t)[0] for t in range(TOPICS)]
    ids = [i[i >= BYTE_TOKENS] if (i >= BYTE_TOKENS).any() else i[:1] for i in ids]
    ids = [i if len(i) else np.array([BYTE_TOKENS - 1]) for i in ids]
    share = 1 / np.sqrt(np.arange(1, TOPICS + 1))
    share /= share.sum()
    at, stream = 0, [1]
    while len(stream) < n:
        if rng.random() > STAY:
            at = rng.choice(TOPICS, p=share)
        p = 1 / np.arange(1, len(ids[at]) + 1) ** ZIPF
        stream.append(int(rng.choice(ids[at], p=p / p.sum())))
    return stream


def router(rng, a):
    w = rng.standard_normal((a.experts, a.embd), np.float32) / np.sqrt(a.embd)
    w[:, 0] = POPULARITY * rng.standard_normal(a.experts) / (0.2 * np.sqrt(a.embd))
    return (2 * w).astype(np.float32)


def put_keys(m, a):
    w = m.out
    w.add_name(f"random mixture, {a.layers} layers of {a.experts} experts")
    w.add_description(
        "random weights made by bench/make_moe.py for timing: answers are noise. "
        f"Routing is local; types of experts by layer: {a.types}; seed {a.seed}"
    )
    for key, value in {
        "block_count": a.layers,
        "context_length": a.ctx,
        "embedding_length": a.embd,
        "feed_forward_length": a.ff,
        "expert_feed_forward_length": a.ff,
        "expert_count": a.experts,
        "expert_used_count": a.used,
        "vocab_size": a.vocab,
        "attention.head_count": a.heads,
        "attention.head_count_kv": a.kv_heads,
        "attention.key_length": a.head_dim,
        "attention.value_length": a.head_dim,
    }.items():
        w.add_uint32("qwen3moe." + key, value)
    w.add_float32("qwen3moe.attention.layer_norm_rms_epsilon", 1e-6)
    w.add_float32("qwen3moe.rope.freq_base", 1e6)
    words = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    words += [f"\u2581w{i}" for i in range(a.vocab - len(words))]
    w.add_tokenizer_model("llama")
    w.add_token_list([t.encode() for t in words])
    w.add_token_scores([-float(i) for i in range(a.vocab)])
    w.add_token_types([2, 3, 3] + [6] * 256 + [1] * (a.vocab - BYTE_TOKENS))
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)


def put_layer(m, a, rng, i, gate_up, down):
    p = f"blk.{i}."
    trunk = TYPES[a.trunk]

    def ones(name, n):
        m.add(p + name, (n,), TYPES.F32, lambda n: np.ones(n, np.float32).view(np.uint8))

    def weight(name, shape, kind, gain=1.0):
        std = gain / np.sqrt(shape[-1])
        m.add(p + name, shape, kind, lambda n: random_blocks(rng, kind, n, std))

    ones("attn_norm.weight", a.embd)
    ones("ffn_norm.weight", a.embd)
    ones("attn_q_norm.weight", a.head_dim)
    ones("attn_k_norm.weight", a.head_dim)
    weight("attn_q.weight", (a.heads * a.head_dim, a.embd), trunk)
    weight("attn_k.weight", (a.kv_heads * a.head_dim, a.embd), trunk)
    weight("attn_v.weight", (a.kv_heads * a.head_dim, a.embd), trunk)
    weight("attn_output.weight", (a.embd, a.heads * a.head_dim), trunk, gain=0.02)
    m.add(
        p + "ffn_gate_inp.weight",
        (a.experts, a.embd),
        TYPES.F32,
        lambda n: router(rng, a).view(np.uint8),
    )
    weight("ffn_gate_exps.weight", (a.experts, a.ff, a.embd), gate_up)
    weight("ffn_up_exps.weight", (a.experts, a.ff, a.embd), gate_up)
    weight("ffn_down_exps.weight", (a.experts, a.embd, a.ff), down, gain=0.02)


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("out")
    for name, value in {
        "layers": 24,
        "experts": 128,
        "used": 8,
        "embd": 1024,
        "ff": 512,
        "heads": 16,
        "kv-heads": 4,
        "head-dim": 64,
        "vocab": 4096,
        "ctx": 32768,
        "tokens": 2048,
        "seed": 1,
    }.items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--types", default="Q4_0:Q4_0", help="GATE_UP:DOWN of each layer, by commas")
    p.add_argument("--trunk", default="Q4_0", help="type of attention and output matrices")
    a = p.parse_args()
    if not 0 < a.used <= a.experts or a.vocab <= BYTE_TOKENS:
        p.error(f"{a.used} of {a.experts} experts, {a.vocab} tokens (more than {BYTE_TOKENS})")
    for kind in [a.trunk, *a.types.replace(":", ",").split(",")]:
        if kind not in TYPES.__members__:
            p.error(f"no type '{kind}'")
    return a


def main():
    a = arguments()
    rng = np.random.default_rng(a.seed)
    pairs = [pair.split(":") for pair in a.types.split(",")]
    emb, topic = embeddings(rng, a)
    with open(a.out + ".tokens", "w") as f:
        f.write(" ".join(map(str, token_stream(rng, topic, a.tokens))) + "\n")
    m = Model(a.out)
    put_keys(m, a)
    f16 = emb.astype(np.float16)
    m.add("token_embd.weight", (a.vocab, a.embd), TYPES.F16, lambda n: f16.view(np.uint8))
    m.add("output_norm.weight", (a.embd,), TYPES.F32, lambda n: np.ones(n, np.float32))
    trunk, std = TYPES[a.trunk], 1 / np.sqrt(a.embd)
    m.add("output.weight", (a.vocab, a.embd), trunk, lambda n: random_blocks(rng, trunk, n, std))
    for i in range(a.layers):
        gate_up, down = (TYPES[t] for t in pairs[i % len(pairs)])
        put_layer(m, a, rng, i, gate_up, down)
    m.write()


if __name__ == "__main__":
    main()
