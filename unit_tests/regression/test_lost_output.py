"""What is printed into a full device is lost: status 3 and the reason, whatever the command."""

import os
import stat
import subprocess

import support

FULL = "/dev/full"
DECK = ("deck.toml", *support.overrides({"parallel.stages": 2, "output.evaluation_interval": 0}))
RUN = (*DECK, "run.steps=2", "checkpoint.interval=2", "output.directory=run")

COMMANDS = [
    ("--help",),
    ("--version",),
    ("--help-deck",),
    ("--help-deck-markdown",),
    ("train", *DECK, "--print-deck"),
    ("train", "sweep.toml", "--cases"),
    ("train", "sweep.toml", "--cases", "--list"),
    ("check", *DECK),
    ("simulate", *DECK),
    ("tune", *DECK, "--schedule", "paci", "emulate.enabled=true"),
    ("train", *RUN),
    ("eval", *RUN, "--checkpoint", "latest"),
    ("bench", *DECK, "--repeat", "3"),
    ("prepare", "--synthetic", "--tokens", "2000", "--vocab", "64", "--out", "tokens"),
]


def printed_into(target, arguments, before=()):
    with open(target, "wb") as stream:
        return subprocess.run([*before, support.MINIPIPE, *arguments], stdout=stream, stderr=subprocess.PIPE, text=True, timeout=120, check=False)


def test_every_command():
    if not stat.S_ISCHR(os.stat(FULL).st_mode):
        print(f"not tested: no {FULL} here")
        return
    support.write_deck(name="sweep.toml")
    with open("sweep.toml", "a", encoding="utf-8") as deck:
        deck.write('[sweep]\n"run.seed" = [1, 2]\n')
    for arguments in COMMANDS:
        done = printed_into(FULL, arguments)
        assert done.returncode == 3, f"{arguments}: status {done.returncode}\n{done.stderr}"
        support.assert_contains(done.stderr, "minipipe: standard output: No space left on device")
        kept = printed_into("kept", (*arguments, "--force") if arguments[0] == "prepare" else arguments)
        assert kept.returncode == 0, f"{arguments}: status {kept.returncode}\n{kept.stderr}"
        assert "standard output" not in kept.stderr and os.stat("kept").st_size > 0, arguments
    # An error has its own status; it printed nothing that could be lost.
    wrong = printed_into(FULL, ("check", "nowhere.toml"))
    assert wrong.returncode == 2 and "standard output" not in wrong.stderr, wrong


def test_ranks():
    """One rank's loss is every rank's status."""
    for rank in range(2):
        script = f'[ "$OMPI_COMM_WORLD_RANK" = {rank} ] && exec > {FULL}; exec "$MINIPIPE" train "$@"'
        job = support.Job(2, "-c", script, "sh", *RUN, "output.progress=lines", program="/bin/sh")
        # With progress as lines the last stage's rank prints too.
        result = support.finish(job, 3)
        assert result.output.count("standard output: No space left on device") == 1, result.output
        support.assert_contains(result.output, f"minipipe: rank {rank}: standard output")


if __name__ == "__main__":
    support.main([test_every_command, test_ranks])
