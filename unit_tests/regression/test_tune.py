"""minipipe tune and minipipe simulate --profile FILE.json, from the command line."""

import json
import signal
import subprocess
import time
from pathlib import Path

import support

NANO = str(support.SOURCE / "inputs/profiles/nemotron_nano_9b.json")
LLAMA = str(support.SOURCE / "inputs/profiles/llama3_8b.json")


def last_line(output):
    return json.loads(output.strip().splitlines()[-1])


def tuned(*options):
    return last_line(support.run(1, "tune", "--profile", NANO, "--devices", 4, "--microbatches", 8, *options).output)


def test_cases_of_a_profile():
    output = support.run(1, "simulate", "--profile", NANO).output
    line = last_line(output)
    assert [case["simulated_ticks"] for case in line["cases"]] == [133121, 89870], line
    assert [case["stated_ticks"] for case in line["cases"]] == [133121, 89870], line
    assert line["same"] and line["actions_per_s"] > 0, line
    support.assert_contains(output, "actions per second", "133121")
    search = support.run(1, "tune", "--profile", NANO, "--devices", 4, "--microbatches", 8, "--iterations", 50).output
    support.assert_contains(search, "lower bound 85194 ticks (851.94 ms)")
    # A wrong statement is told, and is a failure.
    profile = json.loads(Path(NANO).read_text())
    profile["cases"][0]["makespan_ticks"] += 1
    Path("wrong.json").write_text(json.dumps(profile))
    wrong = support.run(1, "simulate", "--profile", "wrong.json", status=3).output
    assert "DIFFERS" in wrong and not last_line(wrong)["same"], wrong


def test_a_schedule_at_any_size():
    def at(*options):
        return last_line(support.run(1, "simulate", "--profile", LLAMA, "--schedule", *options).output)

    alone = at("1f1b", "--devices", 4, "--layers", 64, "--microbatches", 8)
    assert alone["replicas"] == 1 and alone["exchange_ms"] == 0 and alone["layers"] == 64, alone
    many = at("1f1b", "--devices", 4, "--layers", 64, "--microbatches", 8, "--replicas", 64)
    # The exchange comes on top of the step, at most the longest in full.
    assert 0 < many["step_ms"] - alone["step_ms"] <= many["exchange_ms"] * (1 + 1e-9), (alone, many)
    wide = at("1f1b", "--devices", 4, "--layers", 64, "--microbatches", 8, "--width", 8192)
    assert 2 < wide["step_ms"] / alone["step_ms"] < 4, (alone, wide)
    paci = at("paci", "--devices", 512, "--layers", 1024, "--microbatches", 16)
    assert paci["stages"] == 512 and paci["actions_per_s"] > 0, paci
    support.assert_contains(support.run(1, "simulate", "--profile", NANO, "--schedule", "1f1b", "--width", 100, status=2).output,
                            "nemotron_nano_9b.json", "width")
    support.assert_contains(support.run(1, "simulate", "--profile", LLAMA, "--schedule", "magic", status=2).output, "magic")
    support.assert_contains(support.run(1, "simulate", "--profile", LLAMA, "--schedule", "1f1b", "--devices", 64, status=2).output,
                            "64 stages", "32 layers")


def test_sizes_beyond_all_bounds():
    def refused(*options):
        told = support.run(1, "simulate", "--profile", NANO, "--schedule", *options, status=2).output
        return told

    support.assert_contains(refused("1f1b", "--microbatches", 100000000), "--microbatches 100000000: must be 1 to 1000000")
    support.assert_contains(refused("1f1b", "--devices", 100000, "--layers", 100000), "must be 20000 at most, and layers times devices 4000000 at most")
    support.assert_contains(refused("1f1b", "--devices", 4, "--layers", 1000000), "must be 20000 at most")
    support.assert_contains(refused("interleaved", "--devices", 1000, "--chunks", 1000), "100000 stages at most")
    support.assert_contains(refused("1f1b", "--devices", 50, "--microbatches", 1000000), "passes that can be simulated", "lower --devices")


def test_tune_is_deterministic_and_writes_its_plan():
    first = tuned("--iterations", 2000, "--out", "a.csv")
    second = tuned("--iterations", 2000, "--out", "b.csv")
    assert Path("a.csv").read_text() == Path("b.csv").read_text()
    assert first["makespan_ticks"] == second["makespan_ticks"] >= first["lower_bound_ticks"] == 85194, first
    assert sum(first["partition"]) == 56 and sorted(sum(first["placement"], [])) == list(range(len(first["partition"])))
    assert first["makespan_ticks"] <= min(first["baselines"].values()), first
    assert "# layers: 56" in Path("a.csv").read_text()


def test_the_cost_of_a_cap():
    line = tuned("--iterations", 3000, "--cap", 56)
    assert max(line["peak_units"]) <= 56, line
    assert line["uncapped_ticks"] <= line["makespan_ticks"], line
    refused = support.run(1, "tune", "--profile", NANO, "--cap", 13, status=2).output
    support.assert_contains(refused, "memory cap 13", "needs 14 units", "1 more than the cap", "largest stage")


def test_interrupted_with_the_best_so_far():
    command = [support.MINIPIPE, "tune", "--profile", NANO, "--time", "100", "--out", "interrupted.csv"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        seen = process.stdout.readline()  # progress: a plan has been found
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=60)
    assert "evaluations" in seen, seen
    assert process.returncode == 0, (process.returncode, output)
    line = last_line(output)
    assert "interrupted" in output and line["seconds"] < 50, output
    header = Path("interrupted.csv").read_text()
    assert f"# makespan: {line['makespan_ticks']}" in header, header[:400]


def test_paci_of_a_deck_with_uneven_stages():
    deck = {"model.layers": 8, "train.microbatches": 8, "schedule.name": "paci", "emulate.enabled": True,
            "emulate.forward_ms": 1.0, "emulate.backward_ms": 2.0, "emulate.stage_factors": [1.0, 1.0, 1.0, 3.0],
            "parallel.stages": 4}
    output = support.run(1, "tune", support.write_deck(deck, "uneven.toml"), "--schedule", "paci").output
    line = last_line(output)
    # The last two layers take three times as long as the others: they get stages of their own.
    assert line["schedule"] == "paci" and sum(line["partition"]) == 8 and line["partition"][-1] == 1, line
    assert line["gap_max"] <= 1 and line["ms_per_microbatch"] >= line["lower_bound_ms"], line
    support.assert_contains(output, "run it with: mpirun -n 4 minipipe train uneven.toml schedule.name=paci train.microbatches=",
                            f"'schedule.partition={json.dumps(line['partition'], separators=(',', ':'))}' parallel.stages=4\n")


def test_plans_for_something_else():
    tuned("--iterations", 50, "--stages", 4, "--out", "nano.csv")
    plan = {"schedule.name": "plan", "schedule.plan": "nano.csv", "run.steps": 3}
    refused = support.train(1, "refused", {**plan, "train.microbatches": 8, "parallel.stages": 4}, status=2)
    support.assert_contains(refused.output, "nano.csv", "56 layers", "model.layers = 4")
    bad = json.loads(Path(NANO).read_text())
    bad["forward_ms"]["M"] = -1
    Path("negative.json").write_text(json.dumps(bad))
    support.assert_contains(support.run(1, "tune", "--profile", "negative.json", status=2).output, "negative.json", "forward_ms.M")
    del bad["forward_ms"]["M"]
    Path("missing.json").write_text(json.dumps(bad))
    support.assert_contains(support.run(1, "tune", "--profile", "missing.json", status=2).output, "missing.json", "forward_ms.M")
    support.assert_contains(support.run(1, "tune", "--profile", NANO, "--devices", 57, status=2).output, "57 devices", "56 layers")


if __name__ == "__main__":
    support.main([
        test_cases_of_a_profile, test_a_schedule_at_any_size, test_sizes_beyond_all_bounds, test_tune_is_deterministic_and_writes_its_plan,
        test_the_cost_of_a_cap, test_interrupted_with_the_best_so_far, test_paci_of_a_deck_with_uneven_stages,
        test_plans_for_something_else
    ])
