#!/usr/bin/python3
"""Performance portability of one deck over back ends: reads OUT/*.json (made by jobs/portability.sh), prints a table, writes
OUT/table.json and OUT/portability.png.

usage: portability.py OUT

Efficiency of a back end: gemm_fraction, the share of its own matrix rate that a training step reaches. Metric: the harmonic mean
over the back ends (Pennycook, Sewall, Lee, arXiv 1611.07409); 0 if the deck does not run on one of them.
"""
import argparse
import json
import pathlib
import sys

from report.style import COLOURS, plt

ORDER = ["serial", "openmp-1", "openmp-2", "cuda"]


def harmonic_mean(efficiencies):
    """Their number over the sum of their inverses; 0 if one is 0, that is, not supported."""
    if not efficiencies or min(efficiencies) <= 0:
        return 0.0
    return len(efficiencies) / sum(1 / e for e in efficiencies)


def read(folder):
    """Results by name of the back end, in a fixed order."""
    files = {path.stem: path for path in folder.glob("*.json") if path.name != "table.json"}
    names = sorted(files, key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    return {name: json.loads(files[name].read_text()) for name in names}


def row_of(name, bench):
    if bench.get("failed"):
        return {"name": name, "execution_space": "failed", "threads": 0, "gemm_gflops": 0.0, "step_s": 0.0, "tokens_per_s": 0.0,
                "efficiency": 0.0, "overhead_share": 0.0, "median_gemm_share": 0.0, "median_copy_share": 0.0}
    step = bench["step"]
    shares = {limit: sorted(k["share"] for k in bench["kernels"] if k["used"] and k["limit"] == limit) for limit in ("gemm", "copy")}
    middle = {limit: values[len(values) // 2] for limit, values in shares.items()}
    return {
        "name": name,
        "execution_space": bench["machine"]["execution_space"],
        "threads": bench["machine"]["threads"],
        "gemm_gflops": bench["references"]["gemm"][0]["gflops"],
        "step_s": step["seconds"]["median"],
        "tokens_per_s": step["tokens_per_s"],
        "efficiency": step["gemm_fraction"],
        "overhead_share": step["overhead_share"],
        "median_gemm_share": middle["gemm"],
        "median_copy_share": middle["copy"],
    }


def figure(results, rows, metric, file):
    """Efficiencies of the step at the left, of each kernel of the model at the right."""
    results = {name: bench for name, bench in results.items() if not bench.get("failed")}
    kernels = [k["name"] for k in next(iter(results.values()))["kernels"] if k["used"]]
    fig, (left, right) = plt.subplots(1, 2, figsize=(12, 1 + 0.24 * len(kernels)), width_ratios=[1, 1.6], layout="constrained")
    left.bar([r["name"] for r in rows], [r["efficiency"] for r in rows], color=COLOURS[: len(rows)])
    for x, row in enumerate(rows):
        left.text(x, row["efficiency"], f"{row['efficiency']:.3f}", ha="center", va="bottom")
    left.axhline(metric, color="black", linestyle="--", label=f"harmonic mean {metric:.3f}")
    left.set_ylabel("share of the matrix rate that a step reaches")
    left.set_ylim(0, 1.25 * max(metric, *(r["efficiency"] for r in rows)))
    left.legend(loc="upper right")
    marks = "osD^v<>"
    for number, (name, bench) in enumerate(results.items()):
        share = {k["name"]: k["share"] for k in bench["kernels"]}
        right.plot([share.get(k) for k in kernels], range(len(kernels)), marks[number % len(marks)], color=COLOURS[number % len(COLOURS)],
                   label=name, markersize=5)
    right.set_yticks(range(len(kernels)), kernels, fontsize=8)
    right.invert_yaxis()
    right.set_xlim(left=0)
    right.axvline(1, color="black", linewidth=0.8)
    right.set_xlabel("share of the matrix rate, or of the copy rate at the kernel's working set")
    right.legend(loc="lower right")
    fig.savefig(file, dpi=150)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    out = parser.parse_args().out
    results = read(out)
    if not results:
        sys.exit(f"error: no results (*.json) in {out}; run jobs/portability.sh")
    models = {bench["model"] for bench in results.values() if not bench.get("failed")}
    if not models:
        sys.exit(f"error: every back end failed; see the logs in {out}")
    if len(models) > 1:
        sys.exit(f"error: {out} holds results of different models: {'; '.join(sorted(models))}")
    rows = [row_of(name, bench) for name, bench in results.items()]
    metric = harmonic_mean([row["efficiency"] for row in rows])
    print(models.pop())
    print(f"{'back end':<12}{'space':<18}{'threads':>8}{'GFLOP/s':>10}{'step ms':>11}{'tokens/s':>11}{'efficiency':>12}"
          f"{'overhead':>10}{'gemm share':>12}{'copy share':>12}")
    for row in rows:
        print(f"{row['name']:<12}{row['execution_space']:<18}{row['threads']:>8}{row['gemm_gflops']:>10.1f}{1e3 * row['step_s']:>11.2f}"
              f"{row['tokens_per_s']:>11.1f}{row['efficiency']:>12.3f}{row['overhead_share']:>10.3f}{row['median_gemm_share']:>12.3f}"
              f"{row['median_copy_share']:>12.3f}")
    print(f"performance portability (harmonic mean of the efficiencies): {metric:.3f}")
    (out / "table.json").write_text(json.dumps({"rows": rows, "performance_portability": metric}, indent=1) + "\n")
    figure(results, rows, metric, out / "portability.png")


if __name__ == "__main__":
    main()
