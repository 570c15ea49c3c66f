"""Wrong input: status 2 on every rank, one message that says file, key, value and remedy, and no results."""

from pathlib import Path

import h5py
import numpy as np

import support


def assert_no_results(out):
    found = [path for name in ("trace.h5", "summary.json", "timeline.json") for path in [Path(out, name)] if path.exists()]
    assert not found + support.checkpoints(out), f"results were written: {found}"


def refused(*parts, changes=None, deck="deck.toml", ranks=2, verb="train", more=()):
    """The run is refused; each part is in the message, the first one exactly once."""
    out = f"refused_{support.Job.number}"
    changes = {"output.directory": out, **(changes or {})}
    result = support.run(ranks, verb, deck, *support.overrides(changes), *more, status=2)
    support.assert_contains(result.output, *parts)
    assert result.output.count(parts[0]) == 1, f"'{parts[0]}' is told more than once:\n{result.output}"
    assert_no_results(out)
    return result.output


def line_of(deck, text):
    return next(number for number, line in enumerate(Path(deck).read_text().splitlines(), 1) if line.startswith(text))


def test_deck():
    support.write_deck({"model.widht": 64}, "typing.toml")
    refused(f"typing.toml:{line_of('typing.toml', 'widht')}: ", "model.widht", "did you mean model.width?", deck="typing.toml")
    support.write_deck({"model.width": "wide"}, "type.toml")
    refused(f"type.toml:{line_of('type.toml', 'width')}: ", "model.width", "wide", "int", "not a string", deck="type.toml")
    support.write_deck({"train.microbatch_size": 0}, "zero.toml")
    refused(f"zero.toml:{line_of('zero.toml', 'microbatch_size')}: ", "train.microbatch_size", "0", "1", deck="zero.toml")
    Path("syntax.toml").write_text("[run]\nname = \n")
    refused("syntax.toml:2", deck="syntax.toml")
    refused("absent.toml", "cannot be read", deck="absent.toml")
    Path("empty.toml").write_text("")
    for empty in ("empty.toml", "/dev/null"):
        refused(f"deck {empty}: is empty", "give the path of a TOML deck", deck=empty)
    refused("deck /dev/zero: is longer than 256 MiB", deck="/dev/zero", ranks=1)
    refused("deck .: is a folder", deck=".", ranks=1)


def test_all_at_once():
    support.write_deck({"model.widht": 64, "run.steps": "many", "train.microbatch_size": 0}, "several.toml")
    keys = ("model.widht", "run.steps", "train.microbatch_size", "train.beta1")
    text = refused(*keys, deck="several.toml", changes={"train.beta1": 2})
    places = [text.index(f"several.toml:{line_of('several.toml', key)}") for key in ("steps", "widht", "microbatch_size")]
    assert places[0] < min(places[1:]), "not in the order of the file's lines"
    rules = {"model.width": 33, "train.sequence": 64, "train.warmup_steps": 9}
    told = [f"{key} = {value}" for key, value in rules.items()]
    refused(*told, "model.heads", "model.context", "run.steps", changes=rules)


def test_command_line():
    once = {"train.microbatches": 2}
    refused("command line: ", "train.microbatches", "repeated", changes=once, more=("train.microbatches=4",))
    refused("command line: ", "modle.width", "model", more=("modle.width=4",))
    result = support.run(2, "trian", "deck.toml", status=2)
    support.assert_contains(result.output, "trian")
    result = support.run(2, status=2)
    support.assert_contains(result.output, "train", "eval", "prepare")
    assert result.output.count("sub-command") == 1, result.output


def test_absurd_numbers():
    emulated = {"emulate.enabled": True, "emulate.message_bytes": 9223372036854775807}
    refused("emulate.message_bytes = 9223372036854775807: is above 1073741824", changes=emulated)
    refused("train.microbatches = 9223372036854775807: is above 1000000", changes={"train.microbatches": 9223372036854775807}, verb="check")
    refused("train.clip_norm = +inf: must be finite", more=("train.clip_norm=+inf",))
    refused("train.learning_rate = inf: must be finite", more=("train.learning_rate=inf",))


def test_names_of_other_things():
    support.train(1, "made", {"run.steps": 2})
    refused('run.resume = "made": is a folder; give a checkpoint in it', changes={"run.resume": "made"}, ranks=1)
    replay = {"schedule.replay": str(support.checkpoint("made", 2))}
    refused("is not a trace; give the trace.h5 of a run", "schedule.replay = ", changes=replay, ranks=1)


def test_seeds_of_commands():
    for command in (["tune", "deck.toml"], ["prepare", "--synthetic", "--out", "none"]):
        result = support.run(1, *command, "--seed", "-1", status=2)
        support.assert_contains(result.output, "--seed", "-1 is not a seed; give a whole number from 0")


def test_stages():
    refused("model.layers = 2", "4 stages", ranks=4, changes={"model.layers": 2})
    refused("parallel.stages = 3", "2 ranks", "mpirun -n 3", changes={"parallel.stages": 3})
    refused("schedule.partition = [3, 2]", "adds up to 5", "model.layers = 4", changes={"schedule.partition": [3, 2]})
    refused("schedule.partition = [4]", "2 stages", changes={"schedule.partition": [4]})


def test_combinations():
    paci = {"schedule.name": "paci", "train.clip": "global"}
    refused('train.clip = "global"', "asynchronous", '"stage"', changes=paci)
    refused("train.sequence = 48", "model.context = 32", changes={"train.sequence": 48})
    refused("model.tied = true", "2 stages", changes={"model.tied": True})


def token_file(name, tokens, **attributes):
    with h5py.File(name, "w") as file:
        file["tokens"] = np.asarray(tokens)
        file.attrs.update(attributes)
    return name


def test_tokens():
    refused("data.train", "absent.h5", "does not exist", "prepare", changes={"data.train": "absent.h5"})
    whole = Path("data/sample/train.h5").read_bytes()
    Path("short.h5").write_bytes(whole[: len(whole) // 2])
    refused("data.train", "short.h5", "damaged", changes={"data.train": "short.h5"})
    Path("text.bin").write_text("It was a dark and stormy night. " * 100)
    refused("data.train", "text.bin", "prepare", changes={"data.train": "text.bin"})
    with h5py.File("other.h5", "w") as file:
        file["numbers"] = np.arange(100)
    refused("data.validation", "other.h5", "prepare", changes={"data.validation": "other.h5"})
    ids = np.arange(1000, dtype=np.uint16) % 64
    ids[700] = 64
    refused("data.train", "beyond.h5", "64", "700", "model.vocab", changes={"data.train": token_file("beyond.h5", ids)})
    refused("data.train", "few.h5", "train.sequence = 32", changes={"data.train": token_file("few.h5", ids[:20])})


def test_checkpoints():
    support.train(2, "trained", {"run.steps": 2})
    good = support.checkpoint("trained", 2)
    refused("absent.h5", "run.resume", "no such file", changes={"run.resume": "absent.h5"})
    other = {"run.resume": str(good), "model.width": 48}
    refused("holds another model", "transformer.h.0.attn.c_attn.weight", "[96, 32]", "[144, 48]", changes=other)
    refused("holds another model", "transformer.h.4.ln_1.weight", changes={"run.resume": str(good), "model.layers": 5})
    refused("train.beta1", "may not change", "0.5", changes={"run.resume": str(good), "train.beta1": 0.5, "run.steps": 2})

    whole = good.read_bytes()
    Path("half.h5").write_bytes(whole[: len(whole) // 2])
    refused("half.h5", "damaged", changes={"run.resume": "half.h5"})
    Path("noise.h5").write_bytes(bytes(range(256)) * 64)
    refused("noise.h5", "damaged", changes={"run.resume": "noise.h5"})
    with h5py.File(good) as file:
        offset = file["model/transformer.h.3.mlp.c_fc.weight"].id.get_offset()
    damaged = bytearray(whole)
    damaged[offset + 100] ^= 1
    Path("flipped.h5").write_bytes(damaged)
    refused("checksum", "flipped.h5", "damaged", "transformer.h.3.mlp.c_fc.weight", changes={"run.resume": "flipped.h5"})
    refused("data/sample/train.h5", "not a minipipe checkpoint", changes={"run.resume": "data/sample/train.h5"})
    refused("no checkpoint in", "--checkpoint", verb="eval", more=("--checkpoint", "latest"))
    text = refused("absent.h5", "--checkpoint", verb="eval", more=("--checkpoint", "absent.h5"))
    assert "run.resume" not in text, "names a key that was not given"


def test_model_too_large():
    """One line with the remedy from the first rank that has no room, status 3 on all; nothing of Kokkos' own."""
    limited = Path("limited.sh").resolve()
    limited.write_text(f'#!/bin/sh\nulimit -v 4000000\nexec {support.MINIPIPE} "$@"\n')
    limited.chmod(0o755)
    changes = {"model.width": 8192, "model.layers": 8, "output.directory": "large"}  # the weights alone: 24 GiB
    for ranks in (1, 2):
        result = support.finish(support.Job(ranks, "train", "deck.toml", *support.overrides(changes), program=str(limited)), status=3)
        told = [line for line in result.output.splitlines() if line]
        assert len(told) == 1, result.output
        support.assert_contains(told[0], "minipipe: out of memory: ", "GiB for minipipe::model::", "smaller model", "fsdp", "check DECK")


def test_output():
    refused("output.directory = ", "deck.toml/out", "name a folder", changes={"output.directory": "deck.toml/out"})
    refused("output.directory = ", "/proc/out", "name a folder", changes={"output.directory": "/proc/out"})


def test_transport():
    """What this program cannot do ends a run before anything is touched; plans may be made for another machine."""
    support.train(2, "earlier", {"run.steps": 2})
    before = Path("earlier/summary.json").read_bytes()
    for key, value, told in (("transport", "nccl", "built without NCCL"), ("staging", "device", "computes on the host")):
        changes = support.overrides({f"parallel.{key}": value, "output.directory": "earlier"})
        for verb in ("check", "simulate"):
            result = support.run(1, verb, "deck.toml", *changes)
            if "warning" not in result.output:
                break  # a program that can
            support.assert_contains(result.output, f'warning: parallel.{key} = "{value}"', told)
        else:
            refused(f'parallel.{key} = "{value}"', told, changes={f"parallel.{key}": value})
            support.run(2, "train", "deck.toml", *changes, status=2)
            result = support.run(2, "eval", "deck.toml", *changes, "--checkpoint", "latest", status=2)
            support.assert_contains(result.output, told)
    assert not list(Path("earlier").glob("previous*")), "results of the earlier run were moved away"
    assert Path("earlier/summary.json").read_bytes() == before


def test_values_that_are_none():
    """An empty value is what a script's unset variable leaves; zero and less are no counts."""
    for arguments in (("eval", "deck.toml", "--checkpoint", ""), ("simulate", "deck.toml", "--export", ""), ("bench", "deck.toml", "--json", ""),
                      ("check", "deck.toml", "--profile", ""), ("tune", "deck.toml", "--out", ""), ("train", "")):
        support.assert_contains(support.run(1, *arguments, status=2).output, "its value is empty; give one, or leave it out")
    for option, value in (("--stages", 0), ("--stages", -1), ("--updates", 0), ("--updates", -5)):
        support.assert_contains(support.run(1, "simulate", "deck.toml", option, value, status=2).output, option, "not in range")


def test_emulated_stop():
    """There is no checkpoint to go on from."""
    told = support.train(1, "emulated", {"emulate.enabled": True, "run.time_limit": 1e-3, "run.steps": 200}, status=75).output
    support.assert_contains(told, "an emulated run has no checkpoints, so it would begin anew")
    assert "run.resume" not in told, told


if __name__ == "__main__":
    deck = [test_deck, test_all_at_once, test_command_line, test_stages, test_combinations, test_absurd_numbers]
    support.main([*deck, test_names_of_other_things, test_seeds_of_commands, test_tokens, test_checkpoints, test_model_too_large, test_output, test_transport,
                  test_values_that_are_none, test_emulated_stop])
