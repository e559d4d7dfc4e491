#!/usr/bin/env python3
"""Makes a mixture of experts out of a dense llama model, so that one with readable text exists.

    slice_experts.py DENSE.gguf OUT.gguf [--experts 8] [--used 8]

Each feed-forward is cut into slices of its hidden values, one an expert, bytes as they are: nothing
is quantised anew. The router's logits are tiny, so that the chosen experts weigh alike, and all is
scaled by the number used: with all experts used the model is the dense one but for rounding. With
fewer, a token leaves out the slices whose gates promise least (the router's rows are the mean of
their gate rows), and the text suffers with every one that is left out.

Needs the packages numpy and gguf (PyPI). What was done stands in the file's metadata.
"""

import argparse
import sys

try:
    import gguf
    import numpy as np
except ImportError as missing:
    sys.exit(f"slice_experts.py: {missing.name} is missing: pip install numpy gguf")

ROUTER_SIZE = 1e-3  # of the logits: weights differ by about as much
SLICED = ("ffn_gate.weight", "ffn_up.weight", "ffn_down.weight")


def copy_keys(reader, out, a):
    """Everything but what is written anew."""
    anew = {"general.name", "general.description", "general.architecture"}
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in anew:
            continue
        kind = field.types[0]
        of = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        out.add_key_value(field.name, field.contents(), kind, of)
    name = reader.fields.get("general.name")
    out.add_name((name.contents() if name else "dense model") + f" in {a.experts} experts")
    out.add_description(
        f"made by bench/slice_experts.py from a dense model: its feed-forward layers cut into "
        f"{a.experts} experts of which a token uses {a.used}; not trained as a mixture"
    )
    out.add_uint32("llama.expert_count", a.experts)
    out.add_uint32("llama.expert_used_count", a.used)
    out.add_float32("llama.expert_weights_scale", float(a.used))


def rows_by_expert(t, experts):
    """[ff, row] bytes to [experts, ff / experts, row]."""
    return t.data.reshape(experts, t.data.shape[0] // experts, t.data.shape[1])


def columns_by_expert(t, experts):
    """[embd, row] bytes to [experts, embd, row / experts]; an expert's columns are whole blocks."""
    width = int(t.shape[0]) // experts
    block_n, _ = gguf.GGML_QUANT_SIZES[t.tensor_type]
    if width % block_n:
        sys.exit(f"slice_experts.py: {t.name}: {width} columns are no whole blocks of {block_n}")
    rows = t.data.reshape(t.data.shape[0], experts, -1)
    return np.ascontiguousarray(rows.transpose(1, 0, 2))


def router_of(gate, experts):
    w = gguf.quants.dequantize(gate.data, gate.tensor_type)
    w = w.reshape(experts, -1, w.shape[-1]).mean(axis=1)
    w -= w.mean(axis=0)
    norm = np.linalg.norm(w, axis=1, keepdims=True)
    return (ROUTER_SIZE * w / np.maximum(norm, 1e-30)).astype(np.float32)


def copy_tensors(reader, out, experts):
    for t in reader.tensors:
        suffix = t.name.split(".", 2)[-1]
        if suffix not in SLICED:
            out.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
            continue
        prefix, part = t.name[: -len(suffix)], suffix.split(".")[0]
        cut = columns_by_expert if part == "ffn_down" else rows_by_expert
        out.add_tensor(f"{prefix}{part}_exps.weight", cut(t, experts), raw_dtype=t.tensor_type)
        if part == "ffn_gate":
            out.add_tensor(f"{prefix}ffn_gate_inp.weight", router_of(t, experts))


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("dense")
    p.add_argument("out")
    p.add_argument("--experts", type=int, default=8)
    p.add_argument("--used", type=int, help="experts a token uses (default: all)")
    a = p.parse_args()
    a.used = a.used or a.experts
    reader = gguf.GGUFReader(a.dense)
    arch = reader.fields["general.architecture"].contents()
    ff = reader.fields[f"{arch}.feed_forward_length"].contents()
    if arch != "llama" or f"{arch}.expert_count" in reader.fields:
        sys.exit(f"slice_experts.py: a dense llama model is needed; this one is '{arch}'")
    if ff % a.experts or not 0 < a.used <= a.experts:
        sys.exit(f"slice_experts.py: {a.used} of {a.experts} experts out of {ff} hidden values")
    out = gguf.GGUFWriter(a.out, arch)
    copy_keys(reader, out, a)
    out.add_uint32("llama.expert_feed_forward_length", ff // a.experts)
    copy_tensors(reader, out, a.experts)
    out.write_header_to_file()
    out.write_kv_data_to_file()
    out.write_tensors_to_file()
    out.close()


if __name__ == "__main__":
    main()
