"""Closed streams, readers that went away, a lost terminal, odd variables: a run keeps its results and says what is wrong."""

import fcntl
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import support

SHORT = {"run.steps": 4, "checkpoint.interval": 2}
LONG = {"run.steps": 100000, "checkpoint.interval": 0, "output.evaluation_interval": 0, "output.log_interval": 1}


def command(out, changes):
    return [support.MINIPIPE, "train", "deck.toml", *support.overrides({**changes, "output.directory": out})]


def close(*streams):
    """For preexec_fn."""

    def work():
        for stream in streams:
            os.close(stream)

    return work


def test_closed_streams():
    """What is printed must not go into a file or a pipe that got the number of a closed stream."""
    for name, streams in (("no_output", (1,)), ("no_streams", (0, 1, 2))):
        # Popen's own streams are not to be there in the child.
        with subprocess.Popen(command(name, LONG), preexec_fn=close(*streams), start_new_session=True) as run:
            support.wait_until(lambda folder=Path(name): (folder / "trace.h5").exists())
            time.sleep(0.5)
            targets = {stream: os.readlink(f"/proc/{run.pid}/fd/{stream}") for stream in streams}
            run.send_signal(signal.SIGTERM)
            status = run.wait(60)
        assert set(targets.values()) == {"/dev/null"}, targets
        assert status == 75, status
        assert support.read_trace(name, ("step",))["step"].size > 0


def test_reader_that_went_away():
    with subprocess.Popen(command("unread", SHORT), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as run:
        run.stdout.close()
        told = run.stderr.read()
        assert run.wait(60) == 3, told
    support.assert_contains(told, "standard output: Broken pipe; what was printed is not whole")
    assert support.summary("unread")["done"] is True


def test_lost_terminal():
    with subprocess.Popen(command("hung_up", LONG), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True) as run:
        for line in run.stdout:
            if "step 2/" in line:
                break
        run.send_signal(signal.SIGHUP)
        told = run.communicate(timeout=60)[0]
    assert run.returncode == 75, told
    assert support.checkpoints("hung_up"), "stopped without a checkpoint"


def test_threads():
    for value in ("", "many"):
        environment = {**os.environ, "OMP_NUM_THREADS": value}
        # Little work: threads that share cores with other processes are slow.
        changes = {"run.steps": 1, "train.warmup_steps": 0, "model.layers": 1, "output.evaluation_interval": 0}
        done = subprocess.run(command("threads", changes), env=environment, text=True, timeout=100, check=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        assert re.search(r"OMP_NUM_THREADS is no number: \d+ threads? on a rank", done.stdout), done.stdout


def test_start_limit():
    for value in ("abc", "-1", "1m", ""):
        told = support.run(1, *command("limit", SHORT)[1:], status=2, env={"MINIPIPE_START_LIMIT": value}).output
        support.assert_contains(told, f"environment variable MINIPIPE_START_LIMIT={value}: is not a number of seconds; set it to")


def test_names_that_are_not_utf8():
    """They would be stored in the checkpoint, which no run could then read."""
    told = support.run(1, "train", "deck.toml", b"output.directory=caf\xe9".decode(errors="surrogateescape"), status=2).output
    support.assert_contains(told, "output.directory = ", "is not UTF-8; write it in UTF-8")


def test_files_that_others_have_open():
    """As h5py does that opens them for writing; and as on file systems on which to lock fails."""
    support.train(1, "open", SHORT)
    files = ("data/sample/train.h5", "data/sample/validation.h5", "open/trace.h5", support.checkpoint("open", 4))
    streams = [open(file, "rb") for file in files]  # pylint: disable=consider-using-with
    for stream in streams:
        fcntl.flock(stream, fcntl.LOCK_EX)
    support.train(1, "open", {**SHORT, "run.steps": 6, "run.resume": "latest"})
    support.run(1, "eval", "deck.toml", "output.directory=open")
    for stream in streams:
        stream.close()


def test_prepare():
    for arguments, status, parts in (
        (["--text", "/dev/stdin", "--out", "piped"], 2, ["--text: '/dev/stdin' is a pipe or a device; write it to a file first"]),
        (["--text", "/dev/zero", "--out", "piped"], 2, ["--text: '/dev/zero' is a pipe or a device"]),
        (["--text", "deck.toml", "--out", "deck.toml"], 2, ["--out: cannot make the folder 'deck.toml': Not a directory; name a folder"]),
        (["--synthetic", "--vocab", "1", "--out", "piped"], 2, ["--vocab = 1 is not in 2 .. 65536"]),
        (["--synthetic", "--tokens", "99999999999999", "--out", "piped"], 3, ["--tokens = 99999999999999: out of memory", "give fewer"]),
    ):
        support.assert_contains(support.run(1, "prepare", *arguments, status=status).output, *parts)
    assert not Path("piped").exists()


if __name__ == "__main__":
    support.main([test_closed_streams, test_reader_that_went_away, test_lost_terminal, test_threads, test_start_limit,
                  test_names_that_are_not_utf8, test_files_that_others_have_open, test_prepare])
