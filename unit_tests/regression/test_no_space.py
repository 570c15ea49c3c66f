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
    """A folder, of which a chosen room is left."""

    def __init__(self, folder):
        self.folder = folder
        Path(folder).mkdir()
        self.mounted = os.environ[NAMESPACE] == "own"
        self.no_room = "No space left on device" if self.mounted else "File too large"
        if self.mounted:
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m", "none", folder], check=True)

    def leave(self, room):
        """From now on `room` bytes more fit; the environment for runs that shall feel it."""
        if not self.mounted:
            return {"REGRESSION_FILE_LIMIT": str(room)}
        space = os.statvfs(self.folder)
        used = (space.f_blocks - space.f_bfree) * space.f_frsize
        subprocess.run(["mount", "-o", f"remount,size={used + room}", "none", self.folder], check=True)
        return {}


def resume(ranks, **options):
    return support.run(ranks, "train", "deck.toml", *support.overrides({**DECK, "run.resume": "latest"}), **options)


def test_no_space():
    device = SmallDevice("device")
    support.train(2, "whole", {**DECK, "output.directory": "whole"})
    support.run(2, "train", "deck.toml", *support.overrides({**DECK, "run.time_limit": 1e-3}), status=75)
    (first,) = support.checkpoints("device/out")
    size = first.stat().st_size
    assert size > 6 * MEBIBYTE, size

    # Room for the trace, not for a checkpoint.
    failed = resume(2, status=3, env=device.leave(4 * MEBIBYTE))
    support.assert_contains(failed.output, device.no_room, "device/out/checkpoints/.step_00000002.h5.tmp", "make room", "run.resume=latest")
    assert failed.output.count(device.no_room) == 1, failed.output
    assert support.checkpoints("device/out") == [first], "a half-written checkpoint has a checkpoint's name"
    assert not list(Path("device/out/checkpoints").glob(".*")), "the half-written file keeps the device full"
    evaluated = support.run(1, "eval", "deck.toml", *support.overrides(DECK))
    support.assert_contains(evaluated.output, first.name)

    # No room for the trace either.
    failed = resume(2, status=3, env=device.leave(16384))
    support.assert_contains(failed.output, device.no_room, "device/out/")

    # Nor for that of a run that starts anew: the results that it has moved away go back.
    if device.mounted:
        before = {file: file.read_bytes() for file in Path("device/out").rglob("*.*5")}
        failed = support.run(2, "train", "deck.toml", *support.overrides(DECK), status=3, env=device.leave(16384))
        support.assert_contains(failed.output, device.no_room, "device/out/")
        assert {file: file.read_bytes() for file in Path("device/out").rglob("*.*5")} == before
        assert not list(Path("device/out").glob("previous.*"))

    device.leave(64 * MEBIBYTE)
    resume(2)
    support.assert_same_trace("whole", "device/out")


def sweep(status):
    done = subprocess.run([support.SOURCE / "jobs/sweep.sh", "sweep.toml", "disk/sweep"], text=True, timeout=300, check=False,
                          env={**os.environ, "MINIPIPE": support.MINIPIPE, "MINIPIPE_RANKS": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert done.returncode == status, f"status {done.returncode}, wanted {status}\n{done.stdout}"
    return done.stdout


def test_sweep():
    """A device that fills up during a sweep: the finished cases stay, and the sweep goes on once there is room."""
    device = SmallDevice("disk")
    if not device.mounted:
        print("not tested: a small device cannot be mounted here")
        return
    support.write_deck({**DECK, "checkpoint.interval": 0}, "sweep.toml")
    with open("sweep.toml", "a", encoding="utf-8") as deck:
        deck.write('[sweep]\n"run.seed" = [1, 2, 3, 4]\n')
    support.run(1, "train", "sweep.toml", "--case", 0, "output.directory=elsewhere")
    size = sum(file.stat().st_size for file in Path("elsewhere").rglob("*") if file.is_file())

    # Two cases, and half of the third.
    device.leave(int(2.5 * size))
    told = sweep(status=1)
    support.assert_contains(told, "4 cases: 2 finished (0 of them before), 2 not", "case 2 FAILED with status 3", "No space left on device",
                            "not finished: case 3 (run.seed=4): failed, status 3")
    support.assert_same_trace("elsewhere/case_0", "disk/sweep/case_0")
    kept = {file: file.read_bytes() for case in (0, 1) for file in Path(f"disk/sweep/case_{case}").rglob("*") if file.is_file()}
    kept |= {file: file.read_bytes() for file in (Path("disk/sweep/report.html"), Path("disk/sweep/table.json"))}

    # No room for anything.
    device.leave(8192)
    told = sweep(status=1)
    support.assert_contains(told, "no room in disk/sweep: the other cases are not run; make room and run the same command again",
                            "4 cases: 2 finished (2 of them before), 2 not", "error: the report cannot be written", "make room")
    assert "case 3 of" not in told
    for file, data in kept.items():
        assert file.read_bytes() == data, f"{file} has changed"

    device.leave(64 * MEBIBYTE)
    support.assert_contains(sweep(status=0), "4 cases: 4 finished (2 of them before), 0 not")


if __name__ == "__main__":
    if NAMESPACE not in os.environ:
        enter_namespace()
    support.main([test_no_space, test_sweep])
