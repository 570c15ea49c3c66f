"""Plan files: what simulate --export writes runs again, torch.distributed.pipelining's form runs, wrong ones are refused."""

import csv
from pathlib import Path

import support

DECK = {"run.steps": 3, "output.evaluation_interval": 0, "parallel.stages": 4}
NAMES = ("step", "tokens", "loss", "lr", "grad_norm")


def reference(microbatches, stages=4):
    out = f"reference_{microbatches}_{stages}"
    if not Path(out).exists():
        support.train(1, out, {**DECK, "train.microbatches": microbatches, "parallel.stages": stages})
    return out


def runs_and_agrees(plan, microbatches, ranks, stages=4):
    changes = {**DECK, "train.microbatches": microbatches, "parallel.stages": stages}
    changes = {**changes, "schedule.name": "plan", "schedule.plan": plan}
    for number in (1, ranks):
        out = f"{Path(plan).stem}_{number}"
        support.train(number, out, changes)
        support.assert_same_trace(reference(microbatches, stages), out, NAMES)
    # The stages are counted from the plan where the deck says nothing.
    support.train(ranks, f"{Path(plan).stem}_open", {**changes, "parallel.stages": 0})
    support.assert_same_trace(reference(microbatches, stages), f"{Path(plan).stem}_open", NAMES)


def read(plan):
    with open(plan, newline="") as file:
        return [[cell for cell in row if cell] for row in csv.reader(file)]


def exported(name, changes, microbatches, ranks):
    plan = f"{name}_{microbatches}.csv"
    whole = {**DECK, **changes, "train.microbatches": microbatches, "schedule.name": name}
    support.run(1, "simulate", "deck.toml", *support.overrides(whole), "--updates", "1", "--export", plan)
    assert len(read(plan)) == ranks, read(plan)
    runs_and_agrees(plan, microbatches, ranks)
    return read(plan)


def test_export():
    rows = exported("1f1b", {}, 6, 4)
    assert rows[3][:4] == ["3F0", "3B0", "3F1", "3B1"], rows[3]
    rows = exported("zb-h1", {}, 6, 4)
    assert "0I0" in rows[0] and "0W0" in rows[0] and "0B0" not in rows[0], rows[0]
    rows = exported("interleaved", {"schedule.chunks": 2}, 6, 2)
    assert {cell[0] for cell in rows[0]} == {"0", "2"}, rows[0]


def write(name, rows):
    Path(name).write_text("".join(",".join(row) + "\n" for row in rows))
    return name


def gpipe_like(microbatches):
    """Two ranks of two neighbouring stages each, as torch's multi-stage GPipe would list them, without updates."""
    rows = []
    for low in (0, 2):
        forward = [f"{stage}F{m}" for m in range(microbatches) for stage in (low, low + 1)]
        backward = [f"{stage}B{m}" for m in range(microbatches) for stage in (low + 1, low)]
        rows.append(forward + backward)
    return rows


def with_messages(rows):
    """SEND and RECV cells as torch's lowering puts them: a receive just before its use, a send just after its maker."""
    holder = {int(cell[0]): rank for rank, row in enumerate(rows) for cell in row}
    result = []
    for rank, row in enumerate(rows):
        line = []
        for cell in row:
            stage, kind, number = int(cell[0]), cell[1], cell[2:]
            source, target = (stage - 1, stage + 1) if kind == "F" else (stage + 1, stage - 1)
            if holder.get(source, rank) != rank:
                line.append(f"{stage}RECV_{kind}{number}")
            line.append(cell)
            if holder.get(target, rank) != rank:
                line.append(f"{stage}SEND_{kind}{number}")
        result.append(line)
    return result


def test_torch_compute_only():
    rows = gpipe_like(3)
    rows[1].insert(0, "")  # torch leaves cells of idle time blank
    runs_and_agrees(write("torch.csv", rows), 3, 2)
    # A split backward, and weight gradients at the end.
    row = [cell for m in range(3) for cell in (f"3F{m}", f"3I{m}")] + [f"3W{m}" for m in range(3)]
    split = [[f"{stage}{kind}{m}" for kind in "FB" for m in range(3)] for stage in range(3)] + [row]
    runs_and_agrees(write("split.csv", split), 3, 4)


def test_torch_with_messages():
    rows = with_messages(gpipe_like(3))
    assert "1SEND_F0" in rows[0] and "2RECV_F0" in rows[1] and "2SEND_B0" in rows[1] and "1RECV_B0" in rows[0], rows
    runs_and_agrees(write("messages.csv", rows), 3, 2)


GOOD = ["0F0,0F1,0B0,0B1", "1F0,1B0,1F1,1B1"]


def refused(rows, *parts, ranks=2, **changes):
    Path("bad.csv").write_text("".join(row + "\n" for row in rows))
    wanted = {"train.microbatches": 2, "schedule.name": "plan", "schedule.plan": "bad.csv", "run.steps": 2, **changes}
    result = support.train(ranks, "refused", wanted, status=2)
    support.assert_contains(result.output, *parts)
    assert result.output.count(parts[0]) == 1, f"'{parts[0]}' is told more than once:\n{result.output}"
    assert not Path("refused/trace.h5").exists()


def test_bad_plans():
    Path("good.csv").write_text("\n".join(GOOD) + "\n")
    plan = {"schedule.name": "plan", "schedule.plan": "good.csv"}
    support.train(2, "good", {"run.steps": 2, "train.microbatches": 2, **plan})
    last = GOOD[1]
    refused(["0F0,0F1,0B0", last], "bad.csv: ", "rank 0", "end of its list", "backward", "reach 1, expected 2")
    refused([GOOD[0], "1F0,1B0,1F1,1B1,1B1"], "bad.csv: ", "row 2, rank 1, cell 5 (1B1)", "came already")
    refused(["0F0,0F0,0F1,0B0,0B1", last], "bad.csv: ", "rank 0, cell 2 (0F0)")
    refused(["0F0,0F1,0F2,0B0,0B1", last], "bad.csv: ", "rank 0, cell 3 (0F2)", "at most 2")
    refused(["0F0,0Q1,0B0,0B1", last], "bad.csv: ", "row", "cell", "'0Q1' is not an action")
    # 1B0 waits for 1F1, that for 0F1, that for 0B0, and that for 1B0.
    refused(["0F0,0B0,0F1,0B1", "1F0,1F1,1B0,1B1"], "bad.csv: ", "rank", "cell", "0B0")
    refused([GOOD[0] + ",1F0", last], "bad.csv: ", "rank 1, cell 1 (1F0)", "on rank 0 already")
    refused([GOOD[0], last.replace("1F", "2F").replace("1B", "2B")], "bad.csv: ", "stage 1", "on no rank")
    refused([GOOD[0] + "," + last, ","], "bad.csv: ", "rank 1", "empty row")
    refused(GOOD, "bad.csv", "4", **{"parallel.stages": 4})
    refused(GOOD, "4 ranks do not fit", "start 2 ranks", ranks=4)
    refused(GOOD, "bad.csv: ", "expected 3", **{"train.microbatches": 3})
    refused(GOOD, "model.layers = 1", "2 stages", **{"model.layers": 1})
    refused(GOOD, "none.csv", "cannot be read", **{"schedule.plan": "none.csv"})


def checked(rows, *parts, status=0, **changes):
    """check on one rank plans for the ranks that the plan is for."""
    Path("checked.csv").write_text("".join(row + "\n" for row in rows))
    wanted = {"train.microbatches": 2, "schedule.name": "plan", "schedule.plan": "checked.csv", **changes}
    support.assert_contains(support.run(1, "check", "deck.toml", *support.overrides(wanted), status=status).output, *parts)


def test_check_on_one_rank():
    checked(GOOD, "2 stages", "legal")
    one_row = ["0F0,1F0,1B0,0B0,0F1,1F1,1B1,0B1"]
    checked(one_row, "2 stages", "legal", **{"parallel.data": 2})
    checked(one_row, "2 stages", "legal", **{"parallel.data": 2, "parallel.stages": 2})
    header = ["# layers: 4", "# microbatches: 2"]
    checked([*header, *GOOD], "legal")
    checked([*header, "# devices: 2", *GOOD], "legal")
    checked([*header, "# devices: 4", *GOOD], "made for 4 devices", "there are 2 ranks", status=2)


if __name__ == "__main__":
    support.main([test_export, test_torch_compute_only, test_torch_with_messages, test_bad_plans, test_check_on_one_rank])
