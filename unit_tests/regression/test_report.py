"""jobs/report.py: its numbers are those of the HDF5 files; what cannot be read is named and left out."""

import json
import os
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
    """Two runs on two ranks, made once. On a machine of one core they would share it; they say two, for the bubble model."""
    if not Path("flush").exists():
        changes = {"run.steps": 12, "output.evaluation_interval": 3}
        support.train(2, "flush", {**changes, "schedule.name": "1f1b"})
        support.train(2, "paci", {**changes, "schedule.name": "paci", "train.microbatches": 1})
        for out in ("flush", "paci"):
            with h5py.File(out + "/trace.h5", "r+") as file:
                if int(file.attrs["host_cores"]) < 2:
                    file.attrs["host_cores"] = "2"
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


def test_page_shows_the_files_numbers():
    """Every cell of the page's table of runs, from the HDF5 file; what that has not, from summary.json."""
    report(*runs(), "--out", "report")
    loss = json.loads(Path("report/table.json").read_text())["loss"]
    caption, (header, *rows) = support.page_tables("report/report.html")[0]
    assert caption.startswith(f"the loss: {loss:.4f} nats per token")
    assert [row[0] for row in rows] == list(runs())
    for out, row in zip(runs(), rows):
        told = dict(zip(header[1:], row[1:]))
        summary = support.summary(out)
        with h5py.File(out + "/trace.h5") as file:
            trace = {name: file["trace/" + name][...] for name in ("step", "tokens", "time_s", "loss", "val/step", "val/loss")}
            memory = {rank: sum(int(v) for v in file["ranks"][rank]["memory"].attrs.values()) for rank in file["ranks"]}
            gap = max(np.nonzero(file["versions"][stage]["gap"][...])[0].max() for stage in ("0", "1"))
            attributes = dict(file.attrs)
        at = [trace["step"].tolist().index(step) for step in trace["val/step"]]
        seconds, tokens = (np.interp(-loss, -trace["val/loss"], trace[name][at]) for name in ("time_s", "tokens"))
        assert (np.diff(trace["val/loss"]) < 0).all(), "np.interp needs falling losses"
        busy = summary["schedule_tokens_per_s"] / (1 - summary["schedule_bubble_share"])
        wanted = {
            "schedule": "1f1b" if out == "flush" else "paci",
            "stages": attributes["stages"],
            "ranks": attributes["ranks"],
            "microbatches per update": "4" if out == "flush" else "1",
            "updates": str(trace["step"][-1]),
            "tokens/s": f"{summary['schedule_tokens_per_s']:,.0f}",
            "bubble model, tokens/s": f"{busy * (0.8 if out == 'flush' else 1):.5g}",
            "idle share": f"{summary['schedule_bubble_share']:.3f}",
            "largest version gap": str(gap),
            "training loss": f"{trace['loss'][-1]:.4f}",
            "validation loss": f"{trace['val/loss'][-1]:.4f}",
            "time to the loss (s)": f"{seconds:.1f}",
            "tokens to the loss": f"{tokens:.0f}",
            "memory of the fullest rank (MiB)": f"{max(memory.values()) / 2**20:,.1f}",
            "sent per update and rank (MiB)": f"{sum(sum(v) for v in summary['sent_bytes_per_update'].values()) / 2 / 2**20:,.2f}",
        }
        assert told == {name: value.decode() if isinstance(value, bytes) else value for name, value in wanted.items()}


def test_more_ranks_than_cores():
    """Ranks that share cores: no bubble model, and the page says why."""
    with h5py.File("flush/trace.h5") as file:
        assert file.attrs["host_ranks"] in (b"2", "2") and 1 <= int(file.attrs["host_cores"]) <= os.cpu_count()
    for name, cores in (("crowded", "1"), ("roomy", "2")):
        shutil.rmtree(name, ignore_errors=True)
        shutil.copytree(runs()[0], name)
        with h5py.File(f"{name}/trace.h5", "r+") as file:
            file.attrs["host_cores"] = cores
    report("crowded", "roomy", "--out", "sharing")
    crowded, roomy = json.loads(Path("sharing/table.json").read_text())["rows"]
    assert crowded["model_tokens_per_s"] is None and roomy["model_tokens_per_s"] > 0
    support.assert_contains(Path("sharing/report.html").read_text(), "More ranks than cores", "of crowded.")


def row_losses(out):
    with h5py.File(out + "/trace.h5") as file:
        return [float(x) for x in file["trace/val/loss"][...]]


def test_page_is_self_contained():
    Path("report").mkdir(exist_ok=True)
    Path("report/gantt_7.png").write_text("of an earlier report of more runs")
    Path("report/mine.png").write_text("of somebody else")
    report(*runs(), "--out", "report")
    page = Path("report/report.html").read_text()
    pictures = re.findall(r'<img [^>]*src="([^"]{0,30})', page)
    assert len(pictures) >= 7 and all(p.startswith("data:image/png;base64,") for p in pictures), pictures
    assert not re.search(r'(src|href)="(?!data:)', page), "the page refers to another file"
    for name in ("loss", "throughput", "gantt_0", "gaps_1", "memory_1", "traffic_1"):
        assert Path(f"report/{name}.png").stat().st_size > 5000, name
    assert not Path("report/gaps_0.png").exists() and page.count("Version gap: 0 updates") == 1, "only flush has no gaps"
    assert not Path("report/gantt_7.png").exists() and Path("report/mine.png").exists()


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


def test_replicas():
    from report.run import Run  # pylint: disable=import-outside-toplevel,no-name-in-module

    replicas = {"parallel.data": 2, "run.steps": 6, "output.evaluation_interval": 3}
    support.train(4, "fsdp", {**replicas, "parallel.mode": "fsdp", "parallel.stages": 2})
    support.train(2, "sdp", {**replicas, "parallel.mode": "sdp", "sdp.coverage": 0.75, "sdp.masking": "backward"})
    report("fsdp", "sdp", "flush", "--out", "replicas")
    table = json.loads(Path("replicas/table.json").read_text())
    by_folder = {row["folder"]: row for row in table["rows"]}
    for out, mode in (("fsdp", "fsdp"), ("sdp", "sdp"), ("flush", None)):
        row, summary = by_folder[out], support.summary(out)
        assert row["mode"] == mode and row["replicas"] == (2 if mode else None)
        assert row["sent_bytes_per_update"] == {p: v for p, v in summary["sent_bytes_per_update"].items() if any(v)}
        assert row["peak_mib"] == max(summary["peak_bytes"]) / 2**20
    assert set(by_folder["fsdp"]["sent_bytes_per_update"]) == {"pipeline", "reduce_scatter", "parameter_gather"}
    assert set(by_folder["sdp"]["sent_bytes_per_update"]) == {"reduce_scatter", "all_gather", "refresh"}
    assert set(by_folder["flush"]["sent_bytes_per_update"]) == {"pipeline"}
    sent = sum(sum(v) for v in by_folder["fsdp"]["sent_bytes_per_update"].values())
    assert abs(by_folder["fsdp"]["sent_mib"] - sent / 4 / 2**20) < 1e-9
    for name in ("traffic_0", "memory_0", "gantt_0", "traffic_1"):
        assert Path(f"replicas/{name}.png").stat().st_size > 5000, name
    # The timeline is the first replica's: each action of a stage once.
    run = Run(Path("fsdp"))
    assert run.stages == 2 and len(run.memory) == 4
    actions = [event[:3] for event in run.timeline()["measured"]]
    assert len(actions) == len(set(actions)) and {stage for stage, _, _ in actions} == {0, 1}
    assert run.model_idle_share == (None if run.crowded else 1 / 5)  # m = 4, N = 2


def test_parallel_table():
    """jobs/compare-parallel.sh's tables, from summaries with numbers that are easy to check."""
    def write(name, loss, peak, flops, sent):
        folder = Path("parallel", name)
        folder.mkdir(parents=True)
        summary = {"peak_bytes": [peak, peak - 8], "bytes": {c: [peak // 8, 0] for c in ("parameters", "gradients", "optimizer", "activations", "comm")},
                   "sent_bytes_per_update": {"reduce_scatter": [sent, sent], "norm": [0, 0]}, "flops_per_update": flops,
                   "model_flops_per_update": 100.0, "final_loss": loss + 1, "validation_loss": loss}
        (folder / "summary.json").write_text(json.dumps(summary))

    shutil.rmtree("parallel", ignore_errors=True)
    write("ddp-10-seed0", 2.0, 800, 100.0, 40)
    write("ddp-10-seed1", 2.2, 800, 100.0, 40)
    write("half-0.5-10-seed1", 2.6, 400, 50.0, 10)
    write("half-0.5-10-seed0", 2.5, 400, 50.0, 10)
    write("half-0.5-20-seed0", 1.5, 400, 50.0, 10)
    write("half-0.5-40-seed0", 0.5, 400, 50.0, 10)  # of another comparison
    write("alone-10-seed0", 2.1, 600, 80.0, 60)
    Path("parallel/notes").mkdir()
    done = subprocess.run([support.SOURCE / "jobs/compare-parallel.sh", "--table", "parallel", "--steps", "10"], text=True, timeout=100, check=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    table = json.loads(Path("parallel/table.json").read_text())
    assert table["steps"] == 10
    rows = {row["case"]: row for row in table["rows"]}
    assert set(rows) == {"ddp", "half-0.5", "alone"}
    half = rows["half-0.5"]
    assert half["seeds"] == 2 and half["loss_equal_updates"] == [2.5, 2.6] and half["training_loss"] == [3.5, 3.6]
    assert half["updates_equal_flops"] == 20 and half["loss_equal_flops"] == [1.5]
    assert half["peak_share"] == 0.5 and half["sent_share"] == 0.25 and half["flops_share"] == 0.5
    assert half["sent_bytes_per_update"] == {"reduce_scatter": 10}
    assert rows["ddp"]["loss_equal_flops"] == [2.0, 2.2]
    assert rows["alone"]["updates_equal_flops"] == 12 and rows["alone"]["loss_equal_flops"] == []
    support.assert_contains(done.stdout, "2.1000 +/- 0.1414", "of ddp", "reduce scatter")


def test_damaged_among_many():
    for name in ("damaged", "newer", "no_summary", "empty_summary", "no_json", "no_timeline"):
        shutil.rmtree(name, ignore_errors=True)
        shutil.copytree(runs()[0], name)
    data = Path("damaged/trace.h5").read_bytes()
    Path("damaged/trace.h5").write_bytes(data[: len(data) // 3])
    with h5py.File("newer/trace.h5", "r+") as file:
        file.attrs["format"] = "99"
    Path("no_summary/summary.json").unlink()
    Path("empty_summary/summary.json").write_text('{"schedule": "1f1b", "ranks": null}')
    Path("no_json/summary.json").write_text('{"schedule": "1f')
    Path("no_timeline/timeline.json").write_text('{"traceEvents": [{"ph": "X"}]}')
    told = report("flush", "damaged", "newer", "no_summary", "empty_summary", "no_json", "no_timeline", "missing", "paci", "--out", "partial", status=1)
    support.assert_contains(told, "error: damaged/trace.h5: damaged", "error: newer/trace.h5: format 99 is newer than 1",
                            "error: no_summary/summary.json: cannot be read",
                            "error: empty_summary/summary.json: no summary of minipipe, without ranks, stages, steps; run the case again",
                            "error: no_json/summary.json: is not JSON", "error: no_timeline/timeline.json: damaged", "error: missing: no such folder", "report: partial/report.html (2 runs")
    table = json.loads(Path("partial/table.json").read_text())
    assert [row["folder"] for row in table["rows"]] == ["flush", "paci"]
    support.assert_contains(Path("partial/report.html").read_text(), "left out: damaged/trace.h5", "left out: newer/trace.h5: format 99")
    support.assert_contains(report("damaged", "--out", "nothing", status=1), "no run is left to report on")


if __name__ == "__main__":
    support.main([test_numbers, test_page_shows_the_files_numbers, test_more_ranks_than_cores, test_page_is_self_contained, test_timeline_and_gaps, test_replicas, test_parallel_table, test_damaged_among_many])
