"""minipipe bench: its three forms agree, bad input is refused, and the metric of jobs/portability.py is the harmonic mean."""

import json
import subprocess
import sys
from pathlib import Path

import h5py

import support

sys.path.insert(0, str(support.SOURCE / "jobs"))

from portability import harmonic_mean  # noqa: E402  (its folder is named just above)


def bench(name):
    if not Path(f"{name}.json").exists():
        output = support.run(1, "bench", "deck.toml", "--repeat", "3", "--json", f"{name}.json", "--out", f"{name}.h5").output
        support.assert_contains(output, "gemm_fraction")
        assert "{" not in output, "what goes into the file is printed, too"
    return json.loads(Path(f"{name}.json").read_text())


def test_forms():
    told = bench("one")
    output = support.run(1, "bench", "deck.toml", "--repeat", "3").output
    last = json.loads([line for line in output.splitlines() if line.startswith("{")][-1])
    assert last.keys() == told.keys() and last["deck"] == told["deck"], "the last line is another object than the file"
    with h5py.File("one.h5") as file:
        names = [name.decode() for name in file["kernels/name"][...]]
        assert names == [kernel["name"] for kernel in told["kernels"]]
        assert file["kernels/share"][...].tolist() == [kernel["share"] for kernel in told["kernels"]]
        assert file["step"].attrs["gemm_fraction"] == told["step"]["gemm_fraction"]
    step = told["step"]
    groups = sum(group["share"] for group in step["groups"]) + step["overhead_share"]
    assert abs(groups - 1) < 1e-9, groups
    assert step["events"]["allocations"] == 0 and step["events"]["deep_copies"] == 0, step["events"]
    # 8 sequences of 32 tokens in 4 microbatches of 2, by the rule of summary.json.
    block = 2 * 32 * (4 * 32 + 2 * 4 * 32) + 2 * 32 * 32
    assert step["flops"] == 4 * 3 * 64 * (4 * block + 2 * 32 * 64), step["flops"]


def test_overrides():
    output = support.run(1, "bench", "deck.toml", "model.width=16", "--repeat", "3").output
    support.assert_contains(output, "width 16", "layer_norm::forward", "gemm_fraction", "outside kernels")


def test_bad_input():
    for arguments, parts in (
        (["--repeat", "2"], ["--repeat 2", "at least 3"]),
        (["model.widht=16"], ["widht", "width"]),
        (["model.heads=5"], ["model.heads"]),
        (["emulate.enabled=true"], ["emulate.enabled"]),
        (["--json", "no/where.json"], ["--json no/where.json"]),
        (["--out", "no/where.h5"], ["--out no/where.h5"]),
    ):
        support.assert_contains(support.run(1, "bench", "deck.toml", *arguments, status=2).output, *parts)
    support.assert_contains(support.run(2, "bench", "deck.toml", status=2).output, "one process, not 2")


def test_portability():
    assert abs(harmonic_mean([0.5, 0.25]) - 1 / 3) < 1e-15
    assert harmonic_mean([0.5, 0.0]) == 0 and harmonic_mean([]) == 0
    Path("back-ends").mkdir()
    told = bench("one")
    for name, efficiency in (("openmp-1", 0.8), ("serial", 0.4)):
        told["step"]["gemm_fraction"] = efficiency
        Path(f"back-ends/{name}.json").write_text(json.dumps(told))
    command = ["/usr/bin/python3", support.SOURCE / "jobs/portability.py", "back-ends"]
    done = subprocess.run(command, text=True, timeout=100, check=True, stdout=subprocess.PIPE)
    table = json.loads(Path("back-ends/table.json").read_text())
    assert [row["name"] for row in table["rows"]] == ["serial", "openmp-1"]
    assert abs(table["performance_portability"] - 2 / (1 / 0.4 + 1 / 0.8)) < 1e-12
    support.assert_contains(done.stdout, "0.533")
    assert Path("back-ends/portability.png").read_bytes().startswith(b"\x89PNG")
    # A back end on which the deck does not run.
    Path("back-ends/cuda.json").write_text('{"failed": true}')
    subprocess.run(command, timeout=100, check=True, stdout=subprocess.DEVNULL)
    assert json.loads(Path("back-ends/table.json").read_text())["performance_portability"] == 0


if __name__ == "__main__":
    support.main([test_forms, test_overrides, test_bad_input, test_portability])
