"""A full device: status 3 on every rank, a message that names the file, and what was there before stays whole.

The device is a small tmpfs in a mount namespace of this test's own, so that nothing stays mounted. Where that is not permitted,
a limit on the size of files stands in.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import support

DECK = {"model.width": 128, "run.steps": 6, "checkpoint.interval": 2, "output.directory": "device/out"}
MEBIBYTE = 1 << 20
NAMESPACE = "REGRESSION_NAMESPACE"


def enter_namespace():
    """Starts this test again where it may mount; sets NAMESPACE to "none" if there is no such place."""
    for command in (["unshare", "-m"], ["unshare", "-rm"]):
        trial = [*command, "sh", "-c", "mount -t tmpfs none /mnt"]
        if shutil.which("unshare") and subprocess.run(trial, capture_output=True, check=False).returncode == 0:
            os.environ[NAMESPACE] = "own"
            os.execvp(command[0], [*command, sys.executable, *sys.argv])
    os.environ[NAMESPACE] = "none"


class SmallDevice:
    """The folder "device", of which a chosen room is left."""

    def __init__(self):
        Path("device").mkdir()
        self.mounted = os.environ[NAMESPACE] == "own"
        self.no_room = "No space left on device" if self.mounted else "File too large"
        if self.mounted:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "none", "device"], check=True)

    def leave(self, room):
        """From now on `room` bytes more fit; the environment for runs that shall feel it."""
        if not self.mounted:
            return {"REGRESSION_FILE_LIMIT": str(room)}
        space = os.statvfs("device")
        used = (space.f_blocks - space.f_bfree) * space.f_frsize
        subprocess.run(["mount", "-o", f"remount,size={used + room}", "none", "device"], check=True)
        return {}


def resume(ranks, **options):
    return support.run(ranks, "train", "deck.toml", *support.overrides({**DECK, "run.resume": "latest"}), **options)


def test_no_space():
    device = SmallDevice()
    support.train(2, "whole", {**DECK, "output.directory": "whole"})
    support.run(2, "train", "deck.toml", *support.overrides({**DECK, "run.time_limit": 1e-3}), status=75)
    (first,) = support.checkpoints("device/out")
    size = first.stat().st_size
    assert size > 6 * MEBIBYTE, size

    # Room for the trace, not for a checkpoint.
    failed = resume(2, status=3, env=device.leave(4 * MEBIBYTE))
    support.assert_contains(failed.output, device.no_room, "device/out/checkpoints/.step_00000002.h5.tmp")
    assert failed.output.count(device.no_room) == 1, failed.output
    assert support.checkpoints("device/out") == [first], "a half-written checkpoint has a checkpoint's name"
    assert not list(Path("device/out/checkpoints").glob(".*")), "the half-written file keeps the device full"
    evaluated = support.run(1, "eval", "deck.toml", *support.overrides(DECK))
    support.assert_contains(evaluated.output, first.name)

    # No room for the trace either.
    failed = resume(2, status=3, env=device.leave(16384))
    support.assert_contains(failed.output, device.no_room, "device/out/")

    device.leave(64 * MEBIBYTE)
    resume(2)
    support.assert_same_trace("whole", "device/out")


if __name__ == "__main__":
    if NAMESPACE not in os.environ:
        enter_namespace()
    support.main([test_no_space])
