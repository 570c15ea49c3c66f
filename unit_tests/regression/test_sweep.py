"""Sweeps: cases, what the outputs say about them, and jobs/sweep.sh."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace as Of

import h5py
import numpy as np

import support

CASES = {  # in the order of the deck: the first key is the slowest
    0: {"train.microbatches": 2, "parallel.stages": 1},
    1: {"train.microbatches": 2, "parallel.stages": 9},
    2: {"train.microbatches": 2, "parallel.stages": 2},
    3: {"train.microbatches": 4, "parallel.stages": 1},
    4: {"train.microbatches": 4, "parallel.stages": 9},
    5: {"train.microbatches": 4, "parallel.stages": 2},
}
FAILING = (1, 4)  # nine stages of four layers


def write_sweep(name="sweep.toml", extra=""):
    support.write_deck({"schedule.name": "paci", "run.steps": 4, "output.evaluation_interval": 2}, name)
    with open(name, "a", encoding="utf-8") as deck:
        deck.write('[sweep]\n"train.microbatches" = [2, 4]\n"parallel.stages" = [1, 9, 2]\n' + extra)
    return name


def sweep_sh(*arguments, status, ranks="1"):
    """Runs jobs/sweep.sh, all stages of a case in one process if `ranks` is not None; its output."""
    environment = {**os.environ, "MINIPIPE": support.MINIPIPE, **({"MINIPIPE_RANKS": ranks} if ranks else {})}
    done = subprocess.run([support.SOURCE / "jobs/sweep.sh", *arguments], env=environment, text=True, timeout=300, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == status, f"status {done.returncode}, wanted {status}\n{done.stdout}"
    return done.stdout


def test_count_and_list():
    deck = write_sweep()
    assert support.run(1, "train", deck, "--cases").output == "6\n"
    lines = support.run(1, "train", deck, "--cases", "--list").output.splitlines()
    assert lines[1] == "0\t1\tout/case_0\ttrain.microbatches=2 parallel.stages=1", lines
    assert [int(line.split("\t")[0]) for line in lines[1:]] == list(CASES)
    assert [line.split("\t")[1] for line in lines[1:]] == ["1", "9", "2"] * 2


def test_outputs_say_the_case():
    deck = write_sweep()
    for case, ranks in ((5, 2), (3, 1)):
        support.run(ranks, "train", deck, "--case", case)
        out = f"out/case_{case}"
        summary = support.summary(out)
        assert summary["case"] == case and summary["swept"] == CASES[case], summary
        assert summary["done"] is True and summary["stages"] == CASES[case]["parallel.stages"]
        with h5py.File(out + "/trace.h5") as file:
            assert int(file.attrs["case"]) == case
            assert json.loads(file.attrs["swept"]) == CASES[case]
            assert f"microbatches = {CASES[case]['train.microbatches']}  # sweep.toml:" in str(file.attrs["deck"])
    support.train(1, "plain")
    assert "case" not in support.summary("plain")


def test_a_case_is_the_run_with_overrides():
    deck = write_sweep()
    support.run(1, "train", deck, "--case", 2, "run.seed=7")
    plain = support.write_deck({"schedule.name": "paci", "run.steps": 4, "output.evaluation_interval": 2}, "plain.toml")
    support.train(1, "same", {"train.microbatches": 2, "parallel.stages": 2, "run.seed": 7}, deck=plain)
    support.assert_same_trace("out/case_2", "same")


def test_bad_input():
    deck = write_sweep()
    refused = (
        (("--case", 6), "--case 6: the deck's sweep has cases 0 to 5"),
        (("--case", "-1"), "'-1' is not the number of a case; give one from 0 (minipipe train DECK --cases --list shows them)"),
        (("--case", "two"), "'two' is not the number of a case"),
        ((), "sweeps over 6 cases; choose one with --case K, or run all of them with jobs/sweep.sh"),
        (("--case", 0, "train.microbatches=3"), "is swept over at sweep.toml:"),
    )
    for arguments, text in refused:
        support.assert_contains(support.run(1, "train", deck, *arguments, status=2).output, text)
    unknown = write_sweep("unknown.toml", '"train.learning_rat" = [1e-3]\n')
    support.assert_contains(support.run(1, "train", unknown, "--cases", status=2).output, "did you mean train.learning_rate?")
    unequal = write_sweep("unequal.toml", 'zip = [["train.microbatches", "parallel.stages"]]\n')
    support.assert_contains(support.run(1, "train", unequal, "--cases", status=2).output, "lists of unequal length: train.microbatches has 2, parallel.stages has 3")
    support.assert_contains(support.run(1, "train", "deck.toml", "--cases", status=2).output, "has no block [sweep]")
    support.assert_contains(sweep_sh(unequal, status=2), "lists of unequal length")


def test_all_cases_here():
    deck = write_sweep()
    told = sweep_sh(deck, "all", status=1)
    support.assert_contains(told, "6 cases: 4 finished (0 of them before), 2 not", "left",
                            "not finished: case 1 (train.microbatches=2 parallel.stages=9): failed, status 2, see all/case_1.log")
    support.assert_contains(told, "is fewer than the 9 stages")  # why it failed
    table = json.loads(Path("all/table.json").read_text())
    losses = next(pivot for pivot in table["pivots"] if pivot["metric"] == "validation_loss")
    assert losses["rows"] == "train.microbatches" and losses["row_values"] == [2, 4]
    assert losses["column_values"] == [1, 2]
    for case, values in CASES.items():
        if case in FAILING:
            continue
        with h5py.File(f"all/case_{case}/trace.h5") as file:
            cell = losses["cells"][[2, 4].index(values["train.microbatches"])][[1, 2].index(values["parallel.stages"])]
            assert cell == file["trace/val/loss"][-1]
    check_page("all/report.html")
    assert list(Path("all").glob("sweep_*_loss.png"))

    assert Path("all/case_1/status.txt").read_text() == "failed, status 2\n"

    # Again: finished cases are left alone, also where another setting of the deck fails.
    before = {case: Path(f"all/case_{case}/summary.json").stat().st_mtime_ns for case in CASES if case not in FAILING}
    support.assert_contains(sweep_sh(deck, "all", status=1), "4 finished (4 of them before), 2 not")
    for case, stamp in before.items():
        assert Path(f"all/case_{case}/summary.json").stat().st_mtime_ns == stamp, f"case {case} was run again"
    # Other settings: none of the old results counts.
    support.assert_contains(sweep_sh(deck, "all", "run.seed=5", status=1), "4 finished (0 of them before)")


def check_page(file):
    """The page's pivot tables against the HDF5 files of the cases."""
    tables = {caption: rows for caption, rows in support.page_tables(file) if caption}
    seen = set()
    for case, values in CASES.items():
        if case in FAILING:
            continue
        with h5py.File(f"all/case_{case}/trace.h5") as trace:
            gap = max(int(np.nonzero(trace["versions"][stage]["gap"][...])[0].max()) for stage in trace["versions"] if stage.isdigit())
            memory = max(sum(int(v) for v in trace["ranks"][rank]["memory"].attrs.values()) for rank in trace["ranks"])
            wanted = {"last validation loss (nats per token)": f"{trace['trace/val/loss'][-1]:.3f}", "largest version gap (updates)": str(gap),
                      "memory of the rank that needs most (MiB)": f"{memory / 2**20:,.1f}"}
        for title, value in wanted.items():
            header, *rows = tables[title]
            assert header == ["train.microbatches \\ parallel.stages", "1", "2"]
            row = next(row for row in rows if row[0] == str(values["train.microbatches"]))
            assert row[header.index(str(values["parallel.stages"]))] == value, (title, case, rows)
            seen.add(title)
    assert len(seen) == 3


def write_two(name, **changes):
    """Two cases of a few seconds each."""
    support.write_deck({"run.steps": 900, "checkpoint.interval": 0, "output.evaluation_interval": 100, **changes}, name)
    with open(name, "a", encoding="utf-8") as deck:
        deck.write('[sweep]\n"run.seed" = [1, 2]\n')
    return name


def test_stopping():
    """Ctrl-C and SIGTERM end the sweep after a checkpoint; the same command goes on, and the result is that of no stop."""
    deck = write_two("two.toml")
    support.run(1, "train", deck, "--case", 0, "output.directory=unbroken")
    environment = {**os.environ, "MINIPIPE": support.MINIPIPE, "MINIPIPE_RANKS": "1"}
    log = Path("broken/case_0.log")
    for stop in ("group", "script"):
        with subprocess.Popen([support.SOURCE / "jobs/sweep.sh", deck, "broken"], env=environment, text=True, start_new_session=True,
                              preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as sweep:
            support.wait_until(lambda: log.exists() and " step " in log.read_text())
            if stop == "group":
                os.killpg(sweep.pid, signal.SIGINT)  # as a terminal does
            else:
                sweep.send_signal(signal.SIGTERM)
            told = sweep.communicate(timeout=100)[0]
        assert sweep.returncode == 75, told
        support.assert_contains(told, "stopping after a checkpoint", "case 0 stopped early; run the same command again to go on",
                                "2 cases: 0 finished (0 of them before), 2 not", "not finished: case 1 (run.seed=2): not run")
        assert support.summary("broken/case_0")["done"] is False and support.checkpoints("broken/case_0")
        assert not Path("broken/case_1").exists()
        log.unlink()
    support.assert_contains(sweep_sh(deck, "broken", status=0), "2 cases: 2 finished (0 of them before), 0 not")
    support.assert_same_trace("unbroken/case_0", "broken/case_0")


def test_one_sweep_per_folder():
    """A second sweep into the same folder would overwrite the logs of the first, and start its cases again."""
    deck = write_two("shared.toml")
    environment = {**os.environ, "MINIPIPE": support.MINIPIPE, "MINIPIPE_RANKS": "1"}
    log = Path("shared/case_0.log")
    with subprocess.Popen([support.SOURCE / "jobs/sweep.sh", deck, "shared"], env=environment, text=True, start_new_session=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as sweep:
        support.wait_until(lambda: log.exists() and " step " in log.read_text())
        inode = log.stat().st_ino
        told = sweep_sh(deck, "shared", status=1)
        support.assert_contains(told, "error: shared: another script is writing there (sweep.sh, host ", f"pid {sweep.pid}", "name another folder")
        support.assert_contains(sweep_sh(deck, "shared", "--report", status=1), "2 cases: 0 finished")
        assert log.stat().st_ino == inode, "the first sweep's log is gone"
        sweep.send_signal(signal.SIGTERM)
        sweep.communicate(timeout=100)
        assert sweep.returncode == 75
    sweep_sh(deck, "shared", "run.steps=2", status=0)


def test_relative_paths():
    """Decks and folders that the user names are from where the user is, though scripts go to the checkout."""
    def bench(*arguments, status=0):
        done = subprocess.run([support.SOURCE / "jobs/bench.sh", "--repeat", "3", *arguments], env={**os.environ, "MINIPIPE": support.MINIPIPE}, text=True,
                              timeout=300, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        assert done.returncode == status, done.stdout
        return done.stdout

    support.assert_contains(bench("--out", "benched here", "deck.toml"), "gemm_fraction")
    assert json.loads(Path("benched here/deck.json").read_text())["step"] and "{" not in Path("benched here/deck.txt").read_text()
    Path("other").mkdir()
    support.write_deck({}, "other/deck.toml")
    support.assert_contains(bench("--out", "benched here", "deck.toml", "other/deck.toml", status=1), "several decks are named deck")


def test_stopped_by_the_deck():
    """A time limit of the deck is no failure."""
    deck = write_two("limited.toml", **{"run.time_limit": 0.05})
    told = sweep_sh(deck, "limited", status=1)
    support.assert_contains(told, "case 0 stopped early", "case 1 stopped early", "not finished: case 1 (run.seed=2): stopped early")
    assert "FAILED" not in told
    support.assert_contains(sweep_sh(deck, "limited", "--report", status=1), "not finished: case 0 (run.seed=1): stopped early")


def test_the_same_values_twice():
    """Runs of which a table can show one only are named."""
    deck = write_sweep()
    for out in ("once", "twice"):
        support.run(1, "train", deck, "--case", 0, f"output.directory={out}")
    support.run(1, "train", deck, "--case", 3, "output.directory=once")
    done = subprocess.run(["/usr/bin/python3", support.SOURCE / "jobs/report.py", "once/case_0", "twice/case_0", "once/case_3", "--out", "both"],
                          text=True, timeout=100, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    support.assert_contains(done.stdout, "note: the same swept values, of which tables and heat maps show the last: once/case_0, twice/case_0")


def test_replicas():
    """A case with replicas gets its ranks, and the tables tell memory and bytes sent."""
    changes = {"run.steps": 4, "output.evaluation_interval": 4, "parallel.data": 2, "parallel.mode": "sdp", "parallel.stages": 1}
    support.write_deck(changes, "replicas.toml")
    with open("replicas.toml", "a", encoding="utf-8") as deck:
        deck.write('[sweep]\n"sdp.coverage" = [0.75, 1.0]\n')
    assert [line.split("\t")[1] for line in support.run(1, "train", "replicas.toml", "--cases", "--list").output.splitlines()[1:]] == ["2", "2"]
    sweep_sh("replicas.toml", "replicas", status=0, ranks=None)
    sweep_sh("replicas.toml", "any", "parallel.stages=0", status=0, ranks=None)
    for out in ("replicas", "any"):
        pivots = {pivot["metric"]: pivot for pivot in json.loads(Path(f"{out}/table.json").read_text())["pivots"]}
        for column in (0, 1):
            summary = support.summary(f"{out}/case_{column}")
            assert summary["ranks"] == summary["replicas"] == 2
            assert pivots["peak_mib"]["cells"][0][column] == max(summary["peak_bytes"]) / 2**20
            sent = sum(sum(by_rank) for by_rank in summary["sent_bytes_per_update"].values()) / 2
            assert abs(pivots["sent_mib"]["cells"][0][column] * 2**20 - sent) < 1e-6 * sent
        part, whole = pivots["sent_mib"]["cells"][0]
        assert part < whole
        # Coverage 1 stands for ddp.
        for metric, of in (("memory_of_ddp", "peak_mib"), ("sent_of_ddp", "sent_mib"), ("loss_of_ddp", "validation_loss")):
            part, whole = pivots[of]["cells"][0]
            assert pivots[metric]["cells"] == [[part / whole, 1.0]], (metric, pivots[metric])
        slow, fast = pivots["tokens_per_s"]["cells"][0]
        assert pivots["time_of_ddp"]["cells"] == [[fast / slow, 1.0]], pivots["time_of_ddp"]
    support.assert_contains(Path("any/report.html").read_text(), "validation loss at equal tokens, of ddp")


def test_shares_of_ddp():
    """Each case is compared with ddp at its own values of what is no matter of the method, where both have losses."""
    changes = {"run.steps": 4, "output.evaluation_interval": 2, "parallel.data": 2, "parallel.stages": 1}
    support.write_deck(changes, "methods.toml")
    with open("methods.toml", "a", encoding="utf-8") as deck:
        deck.write('[sweep]\nzip = [["parallel.mode", "sdp.coverage"]]\n"parallel.mode" = ["sdp", "ddp"]\n'
                   '"sdp.coverage" = [0.75, 1.0]\n"train.microbatches" = [1, 2]\n')
    sweep_sh("methods.toml", "methods", status=0, ranks=None)
    pivots = {pivot["metric"]: pivot for pivot in json.loads(Path("methods/table.json").read_text())["pivots"]}
    for of, metric in (("sent_mib", "sent_of_ddp"), ("validation_loss", "loss_of_ddp")):
        assert pivots[of]["row_values"] == ["sdp", "ddp"] and pivots[of]["column_values"] == [1, 2], pivots[of]
        sdp, ddp = pivots[of]["cells"]
        assert pivots[metric]["cells"] == [[a / b for a, b in zip(sdp, ddp)], [1.0, 1.0]], (pivots[metric], sdp, ddp)

    sys.path.append(str(support.SOURCE / "jobs"))
    from report.of_ddp import loss_share  # pylint: disable=import-outside-toplevel

    def run(steps, values, tokens_of_step):
        every = np.arange(1, steps[-1] + 1)
        return Of(trace={"step": every, "tokens": tokens_of_step * every}, validation_step=np.array(steps), validation_loss=np.array(values))

    long, short, late = run([2, 4, 6], [4.0, 3.0, 2.0], 10), run([1, 5], [8.0, 6.0], 10), run([9], [1.0], 10)
    assert loss_share(short, long) == 6.0 / 2.5 and loss_share(long, short) == 2.5 / 6.0
    assert loss_share(late, long) is None, "nothing is known of the late one where the long one ends"


def test_a_stopped_case_goes_on():
    deck = write_sweep()
    support.run(1, "train", deck, "--case", 0, "output.directory=stopped", "run.steps=400", "checkpoint.interval=4", "run.time_limit=0.001", status=75)
    assert support.summary("stopped/case_0")["done"] is False
    Path("stopped/case_0/settings.txt").write_text("another deck\n")
    told = sweep_sh(deck, "stopped", status=1)
    support.assert_contains(told, "4 finished (0 of them before)")
    assert support.summary("stopped/case_0")["done"] is True


if __name__ == "__main__":
    support.main([test_count_and_list, test_outputs_say_the_case, test_a_case_is_the_run_with_overrides, test_bad_input,
                  test_all_cases_here, test_replicas, test_shares_of_ddp, test_a_stopped_case_goes_on, test_stopping, test_one_sweep_per_folder, test_relative_paths, test_stopped_by_the_deck, test_the_same_values_twice])
