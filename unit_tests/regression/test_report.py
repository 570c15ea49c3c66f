"""jobs/report.py: its numbers are those of the HDF5 files; what cannot be read is named and left out."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np

import support

sys.path.insert(0, str(support.SOURCE / "jobs"))


def report(*arguments, status=0):
    done = subprocess.run(["/usr/bin/python3", support.SOURCE / "jobs/report.py", *arguments], text=True, timeout=200, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == status, f"status {done.returncode}, wanted {status}\n{done.stdout}"
    return done.stdout


def runs():
    """Two runs on two ranks, made once."""
    if not Path("flush").exists():
        changes = {"run.steps": 12, "output.evaluation_interval": 3}
        support.train(2, "flush", {**changes, "schedule.name": "1f1b"})
        support.train(2, "paci", {**changes, "schedule.name": "paci", "train.microbatches": 1})
    return "flush", "paci"


def test_numbers():
    report(*runs(), "--out", "report")
    table = json.loads(Path("report/table.json").read_text())
    page = Path("report/report.html").read_text()
    for row, out in zip(table["rows"], runs()):
        summary = support.summary(out)
        with h5py.File(out + "/trace.h5") as file:
            assert row["steps"] == file["trace/step"][-1] == 12
            assert row["final_loss"] == file["trace/loss"][-1]
            assert row["validation_loss"] == file["trace/val/loss"][-1]
            assert row["version_gap_max"] == max(np.nonzero(file["versions"][s]["gap"][...])[0].max() for s in ("0", "1"))
            for rank, total in row["memory_bytes"].items():
                assert total == sum(int(v) for v in file["ranks"][rank]["memory"].attrs.values()) == summary["peak_bytes"][int(rank)]
            validation = file["trace/val/loss"][...]
            steps = file["trace/val/step"][...]
            seconds = file["trace/time_s"][...][steps - 1]
            tokens = file["trace/tokens"][...][steps - 1]
            loss = table["loss"]
            first = np.argmax(validation <= loss)
            share = (validation[first - 1] - loss) / (validation[first - 1] - validation[first]) if first else 1.0
            for key, x in (("seconds_to_loss", seconds), ("tokens_to_loss", tokens)):
                wanted = x[first - 1] + share * (x[first] - x[first - 1]) if first else x[0]
                assert abs(row[key] - wanted) <= 1e-9 * wanted, (row[key], wanted)
        assert row["tokens_per_s"] == summary["schedule_tokens_per_s"]
        assert f"{row['validation_loss']:.4f}" in page and f"{row['tokens_per_s']:,.0f}" in page
    flush, paci = table["rows"]
    assert paci["version_gap_max"] == 1 and flush["version_gap_max"] == 0
    # m = 4, N = 2: (N-1)/(m+N-1)
    assert abs(flush["model_idle_share"] - 1 / 5) < 1e-12 and paci["model_idle_share"] == 0
    assert abs(flush["model_tokens_per_s"] - flush["tokens_per_s"] / (1 - flush["idle_share"]) * 4 / 5) < 1e-6 * flush["tokens_per_s"]
    assert max(min(row_losses(out)) for out in runs()) == table["loss"]


def row_losses(out):
    with h5py.File(out + "/trace.h5") as file:
        return [float(x) for x in file["trace/val/loss"][...]]


def test_page_is_self_contained():
    report(*runs(), "--out", "report")
    page = Path("report/report.html").read_text()
    pictures = re.findall(r'<img [^>]*src="([^"]{0,30})', page)
    assert len(pictures) >= 7 and all(p.startswith("data:image/png;base64,") for p in pictures), pictures
    assert not re.search(r'(src|href)="(?!data:)', page), "the page refers to another file"
    for name in ("loss", "throughput", "gantt_0", "gaps_1", "memory_1"):
        assert Path(f"report/{name}.png").stat().st_size > 5000, name


def test_timeline_and_gaps():
    from report.run import Run  # pylint: disable=import-outside-toplevel,no-name-in-module

    run = Run(Path(runs()[1]))
    events = run.timeline()
    assert events["measured"] and events["predicted"]
    with h5py.File(runs()[1] + "/trace.h5") as file:
        for stage, gap in enumerate(run.gaps):
            # Every microbatch of the run has one gap on every stage.
            assert gap.sum() == 12 and (gap == file["versions"][str(stage)]["gap"][...]).all()
        start = min(file["ranks"][r]["actions"]["start_s"][...].max() for r in ("0", "1"))
    assert max(end for *_, end in events["measured"]) >= start


def test_damaged_among_many():
    for name in ("damaged", "newer", "no_summary"):
        shutil.rmtree(name, ignore_errors=True)
        shutil.copytree(runs()[0], name)
    data = Path("damaged/trace.h5").read_bytes()
    Path("damaged/trace.h5").write_bytes(data[: len(data) // 3])
    with h5py.File("newer/trace.h5", "r+") as file:
        file.attrs["format"] = "99"
    Path("no_summary/summary.json").unlink()
    told = report("flush", "damaged", "newer", "no_summary", "missing", "paci", "--out", "partial", status=1)
    support.assert_contains(told, "error: damaged/trace.h5: damaged", "error: newer/trace.h5: format 99 is newer than 1",
                            "error: no_summary/summary.json: cannot be read", "error: missing: no such folder", "report: partial/report.html (2 runs")
    table = json.loads(Path("partial/table.json").read_text())
    assert [row["folder"] for row in table["rows"]] == ["flush", "paci"]
    support.assert_contains(report("damaged", "--out", "nothing", status=1), "no run is left to report on")


if __name__ == "__main__":
    support.main([test_numbers, test_page_is_self_contained, test_timeline_and_gaps, test_damaged_among_many])
