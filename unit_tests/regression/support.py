"""What the regression tests share: decks, runs on several ranks, comparison of their HDF5 files.

A run is judged by its ranks, not by the launcher: some mpiexec do not end after a rank ended abnormally. rank_wrapper.py
leaves the status of each rank in a file; the launcher gets a few seconds to end and is then killed, which is no failure.
"""

import html.parser
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import traceback
from pathlib import Path

import h5py

MINIPIPE = os.environ["MINIPIPE"]
MPIEXEC = os.environ.get("MPIEXEC") or "mpiexec"
SOURCE = Path(os.environ["SOURCE_DIR"])
WRAPPER = str(Path(__file__).resolve().parent / "rank_wrapper.py")
TIME_LIMIT = 560  # seconds of a whole test; CTest ends it after 600 without a word
# The end of a rank that went away together with its wrapper: the launcher killed both.
LAUNCHER_KILL = "killed by the launcher"
NONZERO = "anything but 0"
# Changes that make the small deck's model one of all kinds of layers.
HYBRID = {
    "model.family": "hybrid",
    "model.pattern": "M*#-",
    "model.layers": 4,
    "model.kv_heads": 2,
    "model.hidden": 48,
    "model.experts": 4,
    "model.expert_hidden": 24,
    "model.state_size": 8,
    "model.state_head_size": 16,
}

BASE_DECK = {
    "run.name": "regression",
    "run.seed": 1,
    "run.steps": 8,
    "run.watchdog": 100.0,
    "model.layers": 4,
    "model.width": 32,
    "model.heads": 4,
    "model.vocab": 64,
    "model.context": 32,
    "data.train": "data/sample/train.h5",
    "data.validation": "data/sample/validation.h5",
    "train.sequence": 32,
    "train.microbatch_size": 2,
    "train.microbatches": 4,
    "train.learning_rate": 3e-3,
    "train.warmup_steps": 2,
    "train.min_learning_rate": 3e-4,
    "schedule.name": "1f1b",
    "checkpoint.interval": 0,
    "output.directory": "out",
    "output.evaluation_interval": 4,
    "output.evaluation_batches": 2,
    "output.log_interval": 1,
}


def toml(value):
    return json.dumps(value)  # strings, numbers, booleans and lists of them read the same in both


def write_deck(changes=None, name="deck.toml", without=()):
    """Writes the small deck with changes {"block.key": value}; returns its name."""
    values = {**BASE_DECK, **(changes or {})}
    blocks = {}
    for key, value in values.items():
        if key not in without:
            block, _, name_in_block = key.partition(".")
            blocks.setdefault(block, []).append(f"{name_in_block} = {toml(value)}")
    text = "".join(f"[{block}]\n" + "".join(line + "\n" for line in lines) for block, lines in blocks.items())
    Path(name).write_text(text)
    return name


def overrides(changes):
    return [f"{key}={toml(value)}" for key, value in (changes or {}).items()]


def process_state(pid, start):
    """The letter of /proc (R, S, D, T, ...), or None where this process is gone or a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if int(fields[19]) != start or fields[0] in "ZX" else fields[0]


def send(pid, number):
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


class Job:
    """A run that was started. wait() for the statuses; signals go to the programs, not to their wrappers."""

    number = 0
    started = []

    def __init__(self, ranks, *args, env=None, program=None):
        Job.number += 1
        Job.started.append(self)
        self.ranks = ranks
        self.folder = Path(f"job_{Job.number}").resolve()
        self.folder.mkdir()
        self.command = [sys.executable, WRAPPER, str(self.folder), program or MINIPIPE, *map(str, args)]
        if ranks > 1:
            self.command = [MPIEXEC, "-n", str(ranks), *self.command]
        # Programs without a launcher have one folder in /tmp, which one of them may delete while another makes it.
        alone = {} if ranks > 1 else {"OMPI_MCA_orte_create_session_dirs": "0"}
        self.begin = time.monotonic()
        self.launcher_ended = False  # by itself
        self.launcher_killed = False
        self.elapsed = None
        self.seconds = [None] * ranks
        with open(self.folder / "launcher.out", "wb") as output:
            self.launcher = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **alone, **(env or {})},
            )

    def pids(self, rank):
        """(child, start), (wrapper, start); None before the program has started."""
        try:
            a, b, c, d = map(int, (self.folder / f"rank_{rank}.pid").read_text().split())
            return (a, b), (c, d)
        except OSError:
            return None

    def alive(self):
        """Process numbers of programs and wrappers that are still there."""
        processes = [process for rank in range(self.ranks) for process in self.pids(rank) or ()]
        return [pid for pid, start in processes if process_state(pid, start)]

    def status(self, rank):
        """Exit status, -signal, LAUNCHER_KILL, or None while the rank lives."""
        for _ in range(2):
            try:
                status, seconds = (self.folder / f"rank_{rank}.status").read_text().split()
                self.seconds[rank] = float(seconds)
                return int(status)
            except OSError:
                pass
            pids = self.pids(rank)
            gone = self.launcher.poll() is not None if pids is None else not any(process_state(*p) for p in pids)
            if not gone:
                return None
            time.sleep(0.1)  # once more: the status may have come between the two looks
        return LAUNCHER_KILL

    def statuses(self):
        return [self.status(rank) for rank in range(self.ranks)]

    def kill(self, rank, number=signal.SIGKILL):
        """Sends the signal to the rank's program; false if that is not there."""
        pids = self.pids(rank)
        if pids and process_state(*pids[0]):
            return send(pids[0][0], number)
        return False

    def output(self, rank=None):
        ranks = range(self.ranks) if rank is None else [rank]
        texts = [self.folder / f"rank_{r}.out" for r in ranks]
        return "".join(text.read_text(errors="replace") for text in texts if text.exists())

    def until(self, condition, what, timeout=60):
        """Waits while the job runs; false if the job ended first."""
        stop = time.monotonic() + timeout
        while not condition():
            if all(status is not None for status in self.statuses()):
                return bool(condition())
            if time.monotonic() > stop:
                self.report(f"waited {timeout} s for: {what}")
                self.end()
                raise AssertionError(f"waited {timeout} s for: {what}")
            time.sleep(0.02)
        return True

    def wait(self, timeout=120, of=None):
        """The statuses, by rank, once all ranks (or those in `of`) have ended."""
        ranks = list(range(self.ranks) if of is None else of)
        stop = time.monotonic() + timeout
        while any(self.status(rank) is None for rank in ranks):
            if time.monotonic() > stop:
                self.report(f"ranks still run after {timeout} s")
                self.end()
                raise AssertionError(f"ranks still run after {timeout} s")
            time.sleep(0.02)
        self.elapsed = time.monotonic() - self.begin
        return [self.status(rank) for rank in ranks]

    def end(self):
        """Ends whatever is left of the job, the launcher included."""
        (self.folder / "leave").touch()
        if not self.launcher_killed and all(status is not None for status in self.statuses()):
            try:
                self.launcher.wait(5)
                self.launcher_ended = True
            except subprocess.TimeoutExpired:
                pass
        for pid in self.alive():
            send(pid, signal.SIGKILL)
        if self.launcher.poll() is None:
            self.launcher_killed = True
            os.killpg(self.launcher.pid, signal.SIGKILL)
            self.launcher.wait()
        stop = time.monotonic() + 5
        while self.alive() and time.monotonic() < stop:
            time.sleep(0.02)

    def report(self, title):
        print(f"---- {title}; {time.monotonic() - self.begin:.1f} s since the start", flush=True)
        print("command:", " ".join(self.command))
        for rank in range(self.ranks):
            line = f"rank {rank}: status {self.status(rank)}"
            for name, (pid, start) in zip(("program", "wrapper"), self.pids(rank) or ()):
                line += f"; {name} {pid} {process_state(pid, start)}"
                try:
                    line += " " + Path(f"/proc/{pid}/wchan").read_text()
                except OSError:
                    pass
            print(line)
            print(self.output(rank)[-4000:])
        print("launcher:", (self.folder / "launcher.out").read_text(errors="replace")[-4000:])
        for argument in self.command:
            if argument.endswith(".toml") and Path(argument).exists():
                print(f"{argument}:\n{Path(argument).read_text()}")
        processes = subprocess.run(["ps", "-ef"], capture_output=True, text=True, check=False).stdout
        print("\n".join(line for line in processes.splitlines() if "minipipe" in line or "mpiexec" in line))
        sys.stdout.flush()


class Result:
    """An ended run: statuses by rank, output (all ranks, by rank), elapsed, launcher_ended."""

    def __init__(self, job, statuses):
        self.job = job
        self.statuses = statuses
        self.output = job.output()
        self.elapsed = job.elapsed
        self.launcher_ended = job.launcher_ended


def accepted(status, wanted, launcher_kill=False):
    if status == LAUNCHER_KILL:
        return launcher_kill
    if wanted == NONZERO:
        return status != 0
    return status in (wanted if isinstance(wanted, (set, tuple, list)) else (wanted,))


def finish(job, status=0, timeout=120, launcher_kill=False):
    """Waits for the job and asserts the status of every rank. status=None: any."""
    statuses = job.wait(timeout)
    if status is not None and not all(accepted(s, status, launcher_kill) for s in statuses):
        job.report(f"statuses {statuses}, wanted {status}")
        job.end()
        raise AssertionError(f"statuses {statuses}, wanted {status} on every rank")
    job.end()
    return Result(job, statuses)


def run(ranks, *args, status=0, timeout=120, launcher_kill=False, env=None):
    return finish(Job(ranks, *args, env=env), status, timeout, launcher_kill)


def train(ranks, out, changes=None, deck="deck.toml", **options):
    """minipipe train DECK with the changes and the output folder as overrides."""
    return run(ranks, "train", deck, *overrides({**(changes or {}), "output.directory": out}), **options)


def prepare_data():
    run(1, "prepare", "--synthetic", "--tokens", "200000", "--vocab", "64", "--out", "data/sample")


TRACE = ("step", "tokens", "loss", "lr", "grad_norm", "val/step", "val/loss")


def read_trace(out, names=TRACE):
    with h5py.File(Path(out) / "trace.h5") as file:
        return {name: file["trace/" + name][...] for name in names}


def assert_same_trace(a, b, names=TRACE):
    """Bit for bit, time apart."""
    first, second = read_trace(a, names), read_trace(b, names)
    for name in names:
        assert first[name].size > 0, f"{a}: /trace/{name} is empty"
        if first[name].tobytes() != second[name].tobytes():
            raise AssertionError(f"/trace/{name} of {a} and {b} differ:\n{first[name]!r}\n{second[name]!r}")


def summary(out):
    return json.loads((Path(out) / "summary.json").read_text())


def checkpoint(out, step):
    return Path(out) / "checkpoints" / f"step_{step:08d}.h5"


def checkpoints(out):
    return sorted((Path(out) / "checkpoints").glob("step_*.h5"))


def wait_until(condition, timeout=60):
    stop = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < stop, f"not so after {timeout} s"
        time.sleep(0.02)


class TableReader(html.parser.HTMLParser):
    """The tables of a page: (caption, rows of cells as text)."""

    def __init__(self):
        super().__init__()
        self.tables = []
        self.inside = None

    def handle_starttag(self, tag, attrs):
        if tag == "table":
            self.tables.append(["", []])
        elif tag == "tr":
            self.tables[-1][1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][1][-1].append("")
        self.inside = tag if tag in ("caption", "td", "th") else None

    def handle_endtag(self, tag):
        self.inside = None

    def handle_data(self, data):
        if self.inside == "caption":
            self.tables[-1][0] += data
        elif self.inside:
            self.tables[-1][1][-1][-1] += data


def page_tables(file):
    reader = TableReader()
    reader.feed(Path(file).read_text())
    return [(caption, rows) for caption, rows in reader.tables]


def assert_contains(text, *parts):
    for part in parts:
        assert part in text, f"'{part}' is missing in:\n{text}"


def out_of_time(number, frame):
    for job in Job.started:
        if job.launcher.poll() is None:
            job.report("the test's time is over")
    end_all()
    raise TimeoutError(f"the test took longer than {TIME_LIMIT} s")


def end_all():
    for job in Job.started:
        job.end()
    Job.started.clear()


def main(tests):
    """Runs the test functions in a fresh folder, all of them even if one fails; ends the process."""
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(TIME_LIMIT)
    os.environ.update(OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")
    for name, value in {
        "OMP_NUM_THREADS": "1",
        "OMP_PROC_BIND": "false",
        "OMPI_MCA_rmaps_base_oversubscribe": "1",
        "OMPI_MCA_hwloc_base_binding_policy": "none",
    }.items():
        os.environ.setdefault(name, value)
    scratch = Path("scratch")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    os.chdir(scratch)
    failed = []
    prepare_data()
    write_deck()
    for test in tests:
        begin = time.monotonic()
        try:
            test()
            verdict = "ok"
        except Exception:  # pylint: disable=broad-except
            traceback.print_exc()
            verdict = "FAILED"
            failed.append(test.__name__)
        end_all()
        print(f"{verdict:6} {test.__name__} ({time.monotonic() - begin:.1f} s)", flush=True)
    if failed:
        print("failed:", ", ".join(failed))
    sys.exit(1 if failed else 0)
