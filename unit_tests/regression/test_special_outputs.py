"""Outputs named to a pipe or a device go there; nothing takes its place. Wrong paths are told with option and remedy.

Devices are nodes of this test's own: those of the system are not to be risked.
"""

import json
import os
import stat
import threading
from pathlib import Path

import support

NULL, FULL = (1, 3), (1, 7)  # Linux: major, minor
SHORT = {"run.steps": 2, "checkpoint.interval": 2, "output.evaluation_interval": 0}
DECK = ("deck.toml", *support.overrides({**SHORT, "parallel.stages": 2, "output.directory": "run"}))
HDF5 = b"\x89HDF\r\n\x1a\n"

# Option: a command that writes there (PATH), and how what it writes begins.
OPTIONS = {
    "--timeline": (("simulate", *DECK, "--timeline", "PATH"), b'{"displayTimeUnit"'),
    "--export": (("simulate", *DECK, "--updates", 1, "--export", "PATH"), None),
    "--out of tune": (("tune", "--profile", "costs.h5", "--iterations", 10, "--devices", 2, "--out", "PATH"), None),
    "--out of profile": (("profile", *DECK, "--out", "PATH"), HDF5),
    "--dump-batch": (("eval", *DECK, "--checkpoint", "latest", "--dump-batch", "PATH"), HDF5),
    "--out of bench": (("bench", *DECK, "--repeat", 3, "--out", "PATH"), HDF5),
    "--json": (("bench", *DECK, "--repeat", 3, "--json", "PATH"), b"{"),
}


def command(option, path):
    return [path if word == "PATH" else word for word in OPTIONS[option][0]]


def node(path, numbers):
    """A device of this test's own, or None where that is not permitted."""
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(*numbers))
        os.close(os.open(path, os.O_WRONLY))
        return path
    except OSError as error:
        print(f"not tested: devices cannot be made here ({error})")
        return None


class Reader(threading.Thread):
    """Reads a named pipe to its end."""

    def __init__(self, path):
        super().__init__(daemon=True)
        os.mkfifo(path)
        self.path = path
        self.got = b""
        self.start()

    def run(self):
        with open(self.path, "rb") as pipe:
            self.got = pipe.read()

    def end(self):
        self.join(20)
        assert not self.is_alive(), f"{self.path}: nobody wrote there"
        assert stat.S_ISFIFO(os.lstat(self.path).st_mode), f"{self.path} is no pipe any more"
        return self.got


def test_options():
    support.run(1, "train", *DECK)
    support.run(1, "profile", *DECK, "--out", "costs.h5")
    null = node("null", NULL)
    full = node("full", FULL)
    Path("real").mkdir()
    for number, (option, (_, begin)) in enumerate(OPTIONS.items()):
        name = option.split()[0]
        reader = Reader(f"pipe_{number}")
        support.run(1, *command(option, reader.path))
        got = reader.end()
        assert got and got.startswith(begin or b""), f"{option}: {got[:200]}"
        refused = support.run(1, *command(option, "gone/file"), status=2)
        support.assert_contains(refused.output, f"{name} gone/file: cannot be written", "No such file or directory", "writable folder")
        if "profile" in option:
            continue  # takes long, and writes as bench does
        # The same bytes as a file's where nothing in them is measured.
        support.run(1, *command(option, f"real/{number}"))
        whole = Path(f"real/{number}").read_bytes()
        assert got == whole if begin is None else whole.startswith(begin), f"{option}: {got[:200]}"
        os.symlink(f"real/{number}", f"link_{number}")
        support.run(1, *command(option, f"link_{number}"))
        assert os.path.islink(f"link_{number}"), option
        if null:
            support.run(1, *command(option, null))
            assert stat.S_ISCHR(os.lstat(null).st_mode), f"{option} replaced a device"
        if full:
            failed = support.run(1, *command(option, full), status=3)
            support.assert_contains(failed.output, f"{name} full", "No space left on device", "make room")
            assert stat.S_ISCHR(os.lstat(full).st_mode), f"{option} replaced a device"
    left = [path for path in Path().iterdir() if path.name.endswith(".tmp")]
    assert not left, left


def test_run_folder():
    Path("piped").mkdir()
    readers = [Reader("piped/summary.json"), Reader("piped/timeline.json")]
    support.train(1, "piped", SHORT)
    texts = [json.loads(reader.end()) for reader in readers]
    assert texts[0]["steps"] == 2 and texts[1]["traceEvents"]
    os.mkfifo("piped/pipe")
    Path("piped/trace.h5").unlink()
    os.rename("piped/pipe", "piped/trace.h5")
    refused = support.train(2, "piped", SHORT, status=2)
    support.assert_contains(refused.output, "output.directory", "piped/trace.h5 is a device or a pipe")
    assert stat.S_ISFIFO(os.lstat("piped/trace.h5").st_mode)


def test_prepare():
    Path("tokens").mkdir()
    arguments = ("prepare", "--synthetic", "--tokens", 2000, "--vocab", 64, "--out", "tokens")
    os.symlink("elsewhere.h5", "tokens/train.h5")
    support.run(1, *arguments)
    assert os.path.islink("tokens/train.h5") and Path("tokens/elsewhere.h5").stat().st_size > 0
    os.unlink("tokens/validation.h5")
    os.mkfifo("tokens/validation.h5")
    refused = support.run(1, *arguments, "--force", status=3)
    support.assert_contains(refused.output, "cannot write 'tokens/validation.h5'", "not a regular file", "--out")
    assert stat.S_ISFIFO(os.lstat("tokens/validation.h5").st_mode)


if __name__ == "__main__":
    support.main([test_options, test_run_folder, test_prepare])
