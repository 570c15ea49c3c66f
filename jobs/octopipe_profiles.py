"""Writes the published layer profiles and cost vectors as JSON files for minipipe tune.

    jobs/octopipe_profiles.py OUT

Numbers: profiles of the OctoPipe authors' simulator (github.com/guojihu-hana/SimPipe, profiles/*.json), in milliseconds, and
relative costs for large vocabularies (github.com/guojihu-hana/PipelineSimulator, data/profiled_data.py), in units of a base
layer's forward. A cost the fit clamped at zero is 0 here. Where a cost is not published as such, the file's note says what
stands for it.
"""
import json
import pathlib
import sys

# Four blocks of eight pairs of mixer and MLP. The published configuration of Jamba (attn_layer_period 8, attn_layer_offset 4,
# expert_layer_period 2, expert_layer_offset 1, 32 pairs) gives the same list as the profiles.
JAMBA = "M-M#M-M#*-M#M-M#" * 4
JAMBA_NOTE = "layers: one attention to seven state-space mixers, experts in every other pair, as in Jamba's configuration"

PROFILES = {
    # name: layers, note, (forward, backward, weight)
    "nemotron-h-4b": (
        "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-", "",
        {"E": 2.7758, "M": 1.0861, "-": 0.6692, "*": 0.5142, "L": 9.6437},
        {"E": 0.4314, "M": 2.2206, "-": 0.3644, "*": 0.6219, "L": 5.2577},
        {"E": 0, "M": 0.3506, "-": 0.3805, "*": 0.1776, "L": 0}),
    "nemotron-h-56b": (
        "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-", "",
        {"E": 3.4572, "M": 3.1306, "-": 3.2098, "*": 1.058, "L": 10.7663},
        {"E": 2.4782, "M": 5.8418, "-": 3.8218, "*": 0, "L": 14.1758},
        {"E": 0, "M": 2.5154, "-": 2.4083, "*": 0, "L": 5.1839}),
    "jamba-20b": (
        JAMBA, JAMBA_NOTE,
        {"E": 0.723, "M": 0.9865, "-": 0.8201, "*": 0.9809, "#": 3.966, "L": 5.6781},
        {"E": 0, "M": 2.507, "-": 0, "*": 0, "#": 2.6074, "L": 5.7856},
        {"E": 0, "M": 0.5332, "-": 0.8268, "*": 0.312, "#": 1.399, "L": 0}),
    "jamba-52b": (
        JAMBA, JAMBA_NOTE,
        {"E": 1.3201, "M": 1.1771, "-": 0.6695, "*": 0.8621, "#": 3.9558, "L": 7.0671},
        {"E": 0, "M": 2.4357, "-": 0.0357, "*": 0.2942, "#": 4.009, "L": 7.3794},
        {"E": 0, "M": 0.5816, "-": 0.7392, "*": 0.2957, "#": 4.4898, "L": 0.1531}),
    "llama3-8b": (
        "T" * 32, "",
        {"E": 3.5448, "T": 1.7372, "L": 10.3899}, {"E": 2.1146, "T": 1.9665, "L": 7.4635}, {"E": 0, "T": 1.0829, "L": 0.0395}),
    "deepseek-16b": (
        "ab" + "#" * 26, "times of whole stages of one layer; the backward is not split; MoE layers at the middle of their range",
        {"a": 5.77, "b": 4.59, "#": 11.8, "L": 6.93}, {"a": 7.20, "b": 5.66, "#": 15.45, "L": 4.79},
        {"a": 0, "b": 0, "#": 0, "L": 0}),
}

# F, B, W of the head by sequence length, for scales 1, 2 and 4.
GEMMA = {
    2048: ((1, 1.61, 0.2), [(4.17, 0.65, 0.4), (7.23, 1.6, 0.82), (12.81, 3.64, 1.59)]),
    4096: ((1, 1.65, 0.22), [(5.72, 1.21, 0.58), (10.37, 2.85, 1.15), (19.22, 5.93, 2.29)]),
    # The base layer at 8192 is not published; that of 4096.
    8192: ((1, 1.65, 0.22), [(6.98, 1.68, 0.77), (13.24, 4.05, 1.51), (25.97, 8.69, 3.06)]),
}
DEEPSEEK = [(6.26, 1.98, 0.82), (11.2, 3.73, 1.59), (21.57, 7.82, 3.23)]
NEMOTRON = [(13.99, 2.13, 0.86), (23.94, 5.24, 1.71), (39.97, 10.33, 3.18)]


def profile(layers, forward, backward, weight, devices, microbatches, note=""):
    data = {"layers": layers, "forward_ms": forward, "backward_ms": backward, "weight_ms": weight, "devices": devices,
            "microbatches": microbatches, "communication_ms": 0}
    return {**data, "note": note} if note else data


def vectors(costs):
    return [{symbol: triple[i] for symbol, triple in costs.items()} for i in range(3)]


def all_profiles():
    for name, (layers, note, *tables) in PROFILES.items():
        yield name, profile(layers, *tables, 4, 8, note)
    for sequence, (layer, heads) in GEMMA.items():
        for k, head in enumerate(heads):
            g = 2**k
            yield f"gemma-{sequence}-{256 * g}k", profile("T" * (32 * g), *vectors({"T": layer, "L": head}), 4 * g, 16 * g)
    for k, head in enumerate(DEEPSEEK):
        s = 2**k
        layers, devices = 16 * s, min(4 * s, 8)
        dense = layers // devices - 1
        costs = vectors({"D": (1, 2.05, 0), "#": (2.28, 3.49, 0.16), "L": head})
        yield f"deepseek-4096-{128 * s}k", profile("D" * dense + "#" * (layers - dense), *costs, devices, 4 * devices)
    for k, head in enumerate(NEMOTRON):
        n = 2**k
        layers = "".join("*" if (i + 1) % (3 * n) == 0 else "M" for i in range(28 * n))
        costs = vectors({"*": (3.12, 4.96, 0.52), "M": (1, 2.79, 0.02), "L": head})
        yield f"nemotron-h-4096-{128 * n}k", profile(layers, *costs, 4 * n, 16 * n)
    layers = "".join("*" if (i + 1) % 12 == 0 else "M" for i in range(112))
    costs = vectors({"*": (3.12, 4.96, 0.52), "M": (1, 2.79, 0.02), "L": (369.05, 37.76, 10.86)})
    yield "nemotron-h-32768-512k", profile(layers, *costs, 16, 64, "layers as at 4096; the head's times are an outlier")


def main():
    out = pathlib.Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    for name, data in all_profiles():
        (out / f"{name}.json").write_text(json.dumps({"name": name, **data}, indent=1) + "\n")


if __name__ == "__main__":
    main()
