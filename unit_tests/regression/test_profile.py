"""jobs/validate-profile.sh and validate-hybrid.sh measure profiles and set predictions beside runs; tune reads the profiles."""

import json
import shlex
import subprocess
from pathlib import Path

import h5py

import support

PROFILE = "validation/profile.h5"  # of the small deck on two ranks, made by the first test


def script(name, *arguments):
    command = [support.SOURCE / "jobs" / name, *arguments]
    done = subprocess.run(command, text=True, timeout=300, check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == 0, done.stdout
    return done.stdout


def data_files():
    return [f"data.{name}={Path('data/sample', name + '.h5').resolve()}" for name in ("train", "validation")]


def last_line(result):
    return json.loads(result.output.strip().splitlines()[-1])


def test_tune_reads_a_measured_profile():
    search = ("--iterations", 50, "--stages", 4)
    changes = ("run.steps=3", "output.directory=tuned", "output.evaluation_interval=0", "schedule.name=gpipe")
    tuned = support.run(1, "tune", "deck.toml", *changes, "--profile", PROFILE, "--devices", 2, *search, "--out", "plan.csv")
    line = last_line(tuned)
    assert sum(line["partition"]) == support.BASE_DECK["model.layers"], line
    assert 0 < line["lower_bound_ticks"] <= line["makespan_ticks"], line
    # The command it tells runs the plan, with the changes of the deck that the plan does not decide.
    (command,) = [told.removeprefix("run it with: ") for told in tuned.output.splitlines() if told.startswith("run it with: ")]
    words = shlex.split(command)
    assert words[:4] == ["mpirun", "-n", "2", "minipipe"], command
    support.run(2, *words[4:])
    support.train(1, "reference", {"run.steps": 3, "output.evaluation_interval": 0})
    support.assert_same_trace("reference", "tuned", ("step", "loss", "grad_norm"))
    # The profile alone says what was measured: the model, two devices, the deck's microbatches.
    alone = last_line(support.run(1, "tune", "--profile", PROFILE, *search))
    assert alone["partition"] == line["partition"] and alone["makespan_ticks"] == line["makespan_ticks"], (alone, line)
    paci = last_line(support.run(1, "tune", "deck.toml", "--profile", PROFILE, "--schedule", "paci", "--devices", 2))
    assert paci["schedule"] == "paci" and sum(paci["partition"]) == 4, paci


def test_tune_says_what_it_needs():
    refused = support.run(1, "tune", "deck.toml", "--devices", 2, status=2)
    support.assert_contains(refused.output, "--profile FILE.h5", "minipipe profile DECK", "emulate.enabled = true")
    other = support.run(1, "tune", "deck.toml", "model.width=64", "--profile", PROFILE, "--devices", 2, status=2)
    support.assert_contains(other.output, "profile.h5", "model.width: 32 in the profile, 64 in the deck")
    unknown = support.run(1, "tune", "deck.toml", "--profile", "profile.txt", status=2)
    support.assert_contains(unknown.output, "profile.txt", ".json", ".h5")
    cases = support.run(1, "simulate", "--profile", PROFILE, status=2)
    support.assert_contains(cases.output, "profile.h5", "minipipe simulate DECK --profile")


def test_next_steps_and_replicas():
    """A profile ends with commands that use it; with replicas the predicted time has their exchange in it, where the profile knows of a link."""
    told = support.run(2, "profile", "deck.toml", "run.steps=3", "--out", "next.h5").output
    commands = [shlex.split(line, comments=True) for line in told.splitlines() if line.startswith("  minipipe ")]
    assert [words[1] for words in commands] == ["simulate", "tune"], told
    simulated = support.run(1, *commands[0][1:])
    support.assert_contains(simulated.output, "2 stages", "predicted from the profile")
    assert "exchange among" not in simulated.output and last_line(simulated)["exchange_bytes_per_update"] == 0, simulated.output
    assert len(last_line(support.run(1, *commands[1][1:], "--iterations", 20))["placement"]) == 2
    support.run(1, "profile", "deck.toml", "run.steps=3", "--out", "no_link.h5")
    for file, told in (("next.h5", "counts as part of the update, "), ("no_link.h5", "is not in this time: the profile was measured on one rank")):
        arguments = [word.replace("next.h5", file) for word in commands[0][2:]]
        for verb in ("simulate", "check"):
            output = support.run(1, verb, *arguments, "parallel.data=3").output
            support.assert_contains(output, "the exchange among 3 replicas (", "sent per update and rank at most) " + told)
        simulated = support.run(1, "simulate", *arguments, "parallel.data=3")
        assert (last_line(simulated)["exchange_ms"] > 0) == (file == "next.h5"), simulated.output


def test_validation_sets_predictions_beside_runs():
    out = Path("validation").resolve()
    deck, data = Path("deck.toml").resolve(), data_files()
    told = script("validate-profile.sh", "--deck", deck, "--steps", "50", "--out", out, *data)
    rows = json.loads((out / "table.json").read_text())["rows"]
    assert [row["schedule"] for row in rows] == ["1f1b", "paci", "gpipe"], rows
    for row in rows:
        predicted = json.loads((out / row["schedule"] / "simulated.txt").read_text().splitlines()[-1])
        assert row["predicted_peak_bytes"] == row["measured_peak_bytes"] == predicted["peak_bytes"], row
        assert row["predicted_step_time_s"] == predicted["step_time_s"] > 0 and row["measured_step_time_s"] > 0, row
        assert row["error"] == row["predicted_step_time_s"] / row["measured_step_time_s"] - 1, row
        assert 0 < row["predicted_bubble_share"] < 1, row
        summary = support.summary(out / row["schedule"])
        assert row["measured_bubble_share"] == summary["schedule_bubble_share"], row
        deck_tokens = 4 * 2 * 32  # microbatches of an update, sequences, tokens
        assert abs(row["measured_step_time_s"] * summary["schedule_tokens_per_s"] / deck_tokens - 1) < 1e-9, row
        assert row["schedule"] in told


def test_a_hybrid_is_predicted_by_kind_of_layer():
    """A short profile of a tiny hybrid, a plan tuned from it, and runs on real and on emulated ranks."""
    out = Path("hybrid").resolve()
    deck = Path(support.write_deck(support.HYBRID, "hybrid.toml")).resolve()
    told = script("validate-hybrid.sh", "--deck", deck, "--steps", "50", "--time", "1", "--emulated", "3", "--out", out, *data_files())
    kinds = ["attention", "mlp", "experts", "state_space"]
    kinds = [kind for kind, letter in zip(kinds, "*-#M") if letter in support.HYBRID["model.pattern"]]
    with h5py.File(out / "profile.h5", "r") as file:
        assert file.attrs["format_version"] == 2
        for group in ("parameters", "activation_bytes", "mean/forward", "ranks/1/update"):
            assert set(file[group].attrs) - {"received"} == {"embedding", "head", *kinds}, (group, set(file[group].attrs))
        assert all(file["parameters"].attrs[kind] > 0 and file["activation_bytes"].attrs[kind] > 0 for kind in kinds)
        assert sum(file["mean/backward"].attrs[kind] for kind in kinds) > 0
        assert file.attrs["undetermined"] in (b"", ""), file.attrs["undetermined"]
    table = json.loads((out / "table.json").read_text())
    assert [(case["ranks"], case["emulated"]) for case in table["cases"]] == [(2, False), (3, True)], table["cases"]
    assert table["cases"][0]["same_losses"] is True, table["cases"]
    support.assert_same_trace(out / "real-2/uniform", out / "real-2/tuned", ("step", "loss", "grad_norm"))
    for row in table["rows"]:
        predicted = json.loads((out / f"{'emulated' if row['emulated'] else 'real'}-{row['ranks']}" / row["plan"] /
                                "simulated.txt").read_text().splitlines()[-1])
        assert row["predicted_step_time_s"] == predicted["step_time_s"] > 0 and row["measured_step_time_s"] > 0, row
        assert row["emulated"] or row["predicted_peak_bytes"] == row["measured_peak_bytes"] == predicted["peak_bytes"], row
        assert len(predicted["stage_forward_ms"]) == len(predicted["stage_update_ms"]) == row["stages"], (row, predicted)
    assert "emulated" in told and "speed-up" in told, told
    # The same kinds in another order and number need no other profile; a kind that was not measured does.
    fewer = support.overrides({"model.pattern": "*--", "model.layers": 3})
    search = ("--devices", 2, "--iterations", 20)
    line = last_line(support.run(1, "tune", "hybrid.toml", *fewer, "--profile", out / "profile.h5", *search))
    assert sum(line["partition"]) == 3, line
    short = support.run(1, "tune", "hybrid.toml", "model.layers=3", "--profile", out / "profile.h5", *search, status=2)
    support.assert_contains(short.output, "model.pattern")
    plain = support.run(1, "tune", "deck.toml", "--profile", out / "profile.h5", *search, status=2)
    support.assert_contains(plain.output, "layers of kind transformer: none in the profile")


if __name__ == "__main__":
    tests = [test_validation_sets_predictions_beside_runs, test_tune_reads_a_measured_profile, test_tune_says_what_it_needs]
    tests.append(test_next_steps_and_replicas)
    tests.append(test_a_hybrid_is_predicted_by_kind_of_layer)
    support.main(tests)
