"""The output folder of one run: summary.json, trace.h5, timeline.json."""

import json
import pathlib
import re
import tomllib

import h5py
import numpy as np

KNOWN_FORMAT = 1


class Unreadable(Exception):
    """A run that cannot be reported on: its folder, what is wrong and what to do."""


def text(value):
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


class Run:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self._read_summary()
        try:
            with h5py.File(self.folder / "trace.h5", "r") as file:
                self._read_trace(file)
        except (OSError, KeyError, RuntimeError, ValueError) as error:
            raise Unreadable(
                f"{self.folder}/trace.h5: damaged or not a trace of minipipe ({error}); run the case again, or leave it out"
            ) from error

    def _read_summary(self):
        file = self.folder / "summary.json"
        if not self.folder.is_dir():
            raise Unreadable(f"{self.folder}: no such folder; give output folders of runs (output.directory)")
        try:
            self.summary = json.loads(file.read_text())
        except OSError as error:
            raise Unreadable(f"{file}: cannot be read ({error.strerror}); the run has not ended, or this is no output folder") from error
        except ValueError as error:
            raise Unreadable(f"{file}: is not JSON ({error}); run the case again, or leave it out") from error
        wanted = {"schedule": str, "ranks": int, "stages": int, "steps": int}
        lacking = [key for key, kind in wanted.items() if not isinstance(self.summary, dict) or not isinstance(self.summary.get(key), kind)]
        if lacking:
            raise Unreadable(f"{file}: no summary of minipipe, without {', '.join(lacking)}; run the case again, or leave it out")

    def _read_trace(self, file):
        written = int(text(file.attrs.get("format", "1")))
        if written > KNOWN_FORMAT:
            raise Unreadable(
                f"{self.folder}/trace.h5: format {written} is newer than {KNOWN_FORMAT}, the newest this report knows; "
                "use the report of the version that wrote it"
            )
        deck_text = text(file.attrs["deck"])
        self.deck = tomllib.loads(deck_text)
        self.version = f"{text(file.attrs.get('version', '?'))} ({text(file.attrs.get('git_hash', '?'))})"
        self.host = text(file.attrs.get("host", "?"))
        self.host_ranks = int(text(file.attrs.get("host_ranks", "1")))
        self.host_cores = int(text(file.attrs.get("host_cores", str(self.host_ranks))))
        self.trace = {name: file["trace"][name][...] for name in ("step", "tokens", "time_s", "loss", "lr")}
        self.validation_step = file["trace/val/step"][...]
        self.validation_loss = file["trace/val/loss"][...]
        lengths = {len(values) for values in self.trace.values()}
        if len(lengths) != 1 or len(self.validation_step) != len(self.validation_loss):
            raise ValueError("columns of /trace have different lengths")
        self.memory = {}
        for rank in sorted(file.get("ranks", {}), key=int):
            group = file["ranks"][rank].get("memory")
            if group is not None:
                self.memory[int(rank)] = {name: int(value) for name, value in group.attrs.items()}
        self.gaps = []
        stages = [name for name in file.get("versions", {}) if name.isdigit()]
        for stage in sorted(stages, key=int):
            self.gaps.append(file["versions"][stage]["gap"][...])

    @property
    def emulated(self):
        return self.deck.get("emulate", {}).get("enabled", False)

    @property
    def crowded(self):
        """Do ranks share cores, so that they wait for each other's time on a core? Emulated compute sleeps and needs none."""
        return self.host_ranks > self.host_cores and not self.emulated

    @property
    def case(self):
        return self.summary.get("case")

    @property
    def swept(self):
        return self.summary.get("swept", {})

    @property
    def schedule(self):
        return self.summary["schedule"]

    @property
    def stages(self):
        return self.summary["stages"]

    @property
    def replicas(self):
        return self.summary.get("replicas", 1)

    @property
    def mode(self):
        """How replicas share the model; None of a single one."""
        return self.deck.get("parallel", {}).get("mode", "ddp") if self.replicas > 1 else None

    @property
    def sent(self):
        """Bytes sent per update: purpose -> by rank, without purposes that nothing was sent for."""
        found = self.summary.get("sent_bytes_per_update", {})
        return {purpose: by_rank for purpose, by_rank in found.items() if any(by_rank)}

    @property
    def sent_per_rank(self):
        """Bytes sent per update, all purposes, mean over the ranks."""
        return sum(sum(by_rank) for by_rank in self.sent.values()) / self.summary["ranks"]

    @property
    def window(self):
        """Microbatches per update: m of flush schedules, a of PACI."""
        return self.deck["train"]["microbatches"]

    @property
    def rate(self):
        """Tokens per second under the schedule's own rule: without the first segment and synchronous updates."""
        return self.summary.get("schedule_tokens_per_s") or self.summary.get("tokens_per_s")

    @property
    def idle_share(self):
        share = self.summary.get("schedule_bubble_share")
        return share if share is not None else self.summary.get("bubble_share")

    @property
    def model_idle_share(self):
        """The bubble model: (N-1)/(m+N-1) of gpipe and 1f1b, 0 of PACI. None for other schedules, and where ranks hold several
        stages or share cores, for which it says nothing."""
        if self.summary["ranks"] != self.stages * self.replicas or self.stages == 1 or self.crowded:
            return None
        if self.schedule == "paci":
            return 0.0
        if self.schedule in ("1f1b", "gpipe"):
            return (self.stages - 1) / (self.window + self.stages - 1)
        return None

    @property
    def model_rate(self):
        """Tokens per second if nothing but the model's bubble kept ranks idle, from the measured busy time."""
        if self.model_idle_share is None or self.idle_share is None or not self.rate or self.idle_share >= 1:
            return None
        return self.rate / (1 - self.idle_share) * (1 - self.model_idle_share)

    def losses(self):
        """(seconds, tokens, loss) of the validations, or of the training where there are fewer than two."""
        seconds, tokens = self.trace["time_s"], self.trace["tokens"]
        if len(self.validation_loss) > 1:
            at = np.searchsorted(self.trace["step"], self.validation_step)
            return seconds[at], tokens[at], self.validation_loss
        return seconds, tokens, smooth(self.trace["loss"])

    def time_to(self, loss):
        """Seconds and tokens until the loss is first at or below, by linear interpolation; (None, None) if it never is."""
        seconds, tokens, losses = self.losses()
        below = np.nonzero(losses <= loss)[0]
        if not len(below):
            return None, None
        at = below[0]
        if at == 0:
            return float(seconds[0]), float(tokens[0])
        share = (losses[at - 1] - loss) / (losses[at - 1] - losses[at])
        return tuple(float(x[at - 1] + share * (x[at] - x[at - 1])) for x in (seconds, tokens))

    def timeline(self):
        """Events of timeline.json: {"measured": [...], "predicted": [...]}, each (stage, letters, microbatch, start, end) in s."""
        file = self.folder / "timeline.json"
        if not file.exists():
            return {}
        try:
            events = json.loads(file.read_text())["traceEvents"]
            names = {e["pid"]: e["args"]["name"] for e in events if e.get("name") == "process_name"}
            result = {name: [] for name in names.values()}
            for e in events:
                if e["ph"] == "X":
                    start = e["ts"] * 1e-6
                    result[names[e["pid"]]].append((e["tid"], e["cat"], e["args"]["microbatch"], start, start + e["dur"] * 1e-6))
            return result
        except (ValueError, KeyError, TypeError) as error:
            raise Unreadable(f"{file}: damaged ({error}); delete it to report without it") from error


def smooth(values, share=0.02):
    """Running mean over the last `share` of all values, at least one."""
    width = max(1, int(len(values) * share))
    sums = np.cumsum(np.concatenate([[0.0], values]))
    end = np.arange(1, len(values) + 1)
    begin = np.maximum(0, end - width)
    return (sums[end] - sums[begin]) / (end - begin)


def short_key(key):
    block, _, name = key.partition(".")
    return block if name == "name" else name


def names_of(runs, followers=()):
    """A short name for each run: its swept values without those of `followers`, or else the end of its path, as long as needed
    to tell them apart."""
    def short(run):
        if run.swept:
            return ", ".join(f"{short_key(key)} {value}" for key, value in run.swept.items() if key not in followers)
        return run.folder.resolve().name

    names = [short(run) for run in runs]
    if len(set(names)) < len(names):
        names = [str(run.folder) for run in runs]
    return [re.sub(r"\s+", " ", name) for name in names]
