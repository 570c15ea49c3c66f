"""Version arithmetic as runs report it: gaps, delays and skew by formula; stashed weights survive a stop; memory by formula."""

import h5py
import numpy as np

import support

STAGES = 4
MICROBATCHES = 48
DECK = {"output.evaluation_interval": 0, "parallel.stages": STAGES, "schedule.order": "fixed"}


def train(name, window, more=None, ranks=1, out=None, status=0):
    """Update by update, MICROBATCHES in all. Schedules that update after every backward take one microbatch per update."""
    out = out or name
    each = name in ("async-1f1b", "pipedream")
    steps = MICROBATCHES // (1 if each else window)
    changes = {**DECK, "train.microbatches": window, "schedule.name": name, "run.steps": steps}
    support.train(ranks, out, {**changes, **(more or {})}, status=status)
    return out


def histograms(out, name):
    """Of each stage: [v] = microbatches with value v."""
    with h5py.File(f"{out}/trace.h5") as file:
        result = [file[f"versions/{stage}/{name}"][...].tolist() for stage in range(STAGES)]
        return result, file["versions/skew"][...].tolist()


def assert_summary(out):
    """summary.json says what the histograms say; every microbatch was counted."""
    for name, key in (("gap", "version_gap"), ("delay", "gradient_delay")):
        counts, skew = histograms(out, name)
        told = support.summary(out)[key]
        for stage, histogram in enumerate(counts):
            assert sum(histogram) == MICROBATCHES, f"{out}: {name} of stage {stage}: {histogram}"
            assert len(histogram) == told["max"][stage] + 1 and histogram[-1] > 0, f"{out}: {histogram}, {told}"
            mean = np.dot(histogram, range(len(histogram))) / MICROBATCHES
            assert abs(mean - told["mean"][stage]) < 1e-12, f"{out}: mean {mean}, {told}"
        assert sum(skew) == MICROBATCHES and len(skew) == support.summary(out)["forward_skew_max"] + 1, f"{out}: skew {skew}"


def ceiling(stage, window):
    return -(-(STAGES - 1 - stage) // window)


def formula_gaps(window):
    """floor(k / a) - floor((k - (N - i)) / a) for microbatch k, 0 before the first update: by hand, from the warm-up on."""
    result = []
    for stage in range(STAGES):
        ahead = STAGES - 1 - stage
        # Backward of k comes after k earlier backwards, its forward after max(0, k - ahead) of them.
        gaps = [k // window - max(0, k - ahead) // window for k in range(MICROBATCHES)]
        result.append(np.bincount(gaps).tolist())
    return result


def test_paci():
    for window in (1, 2, 3, 4):
        out = train("paci", window, out=f"paci_{window}")
        assert_summary(out)
        gaps, _ = histograms(out, "gap")
        assert gaps == formula_gaps(window), f"a = {window}: {gaps}, by formula {formula_gaps(window)}"
        told = support.summary(out)["version_gap"]
        assert told["max"] == [ceiling(stage, window) for stage in range(STAGES)], f"a = {window}: {told}"
        for stage, mean in enumerate(told["mean"]):
            steady = (STAGES - 1 - stage) / window
            # The first N - i microbatches saw fewer updates than later ones.
            text = f"a = {window}, stage {stage}: mean {mean}, steady {steady}"
            assert steady - 0.2 < mean <= steady and (steady == 0) == (mean == 0), text
        assert support.summary(out)["gradient_delay"] == told, "PACI applies a gradient where it was made"
        assert support.summary(out)["forward_skew_max"] == ceiling(0, window)


def test_live_ranks_say_the_same():
    assert_summary(train("paci", 2, ranks=STAGES, out="paci_ranks"))
    assert histograms("paci_ranks", "gap") == histograms("paci_2", "gap")
    support.assert_same_trace("paci_2", "paci_ranks", ("loss", "grad_norm"))


def test_async_1f1b():
    assert_summary(train("async-1f1b", 1))
    told = support.summary("async-1f1b")
    assert told["version_gap"]["max"] == [3, 2, 1, 0] and told["forward_skew_max"] == 3, told
    # Exactly N - i but for the microbatches that entered an empty pipe.
    gaps, _ = histograms("async-1f1b", "gap")
    assert gaps == [[1, 1, 1, 45], [1, 1, 46], [1, 47], [48]], gaps
    support.assert_same_trace("async-1f1b", "paci_1", ("loss", "grad_norm"))


def test_pipedream():
    assert_summary(train("pipedream", 1))
    gaps, skew = histograms("pipedream", "gap")
    delays, _ = histograms("pipedream", "delay")
    assert gaps == [[48]] * STAGES, gaps
    assert delays == [[1, 1, 1, 45], [1, 1, 46], [1, 47], [48]], delays
    assert skew == [1, 1, 1, 45], skew


def test_two_buffers():
    for window in (4, 6):
        out = train("pipedream-2bw", window, out=f"2bw_{window}")
        assert_summary(out)
        gaps, skew = histograms(out, "gap")
        delays, _ = histograms(out, "delay")
        assert gaps == [[48]] * STAGES and skew == [48], f"{gaps}, {skew}"
        assert delays == [[window, 48 - window]] * STAGES, f"m = {window}: {delays}"


def test_pipemare():
    assert_summary(train("pipemare", 4))
    assert histograms("pipemare", "gap") == histograms("paci_4", "gap")


def test_flush():
    assert_summary(train("1f1b", 4))
    told = support.summary("1f1b")
    assert told["version_gap"]["max"] == told["gradient_delay"]["max"] == [0] * STAGES and told["forward_skew_max"] == 0, told


def test_stop_and_resume():
    for name, window in (("pipedream", 1), ("pipedream-2bw", 4), ("pipemare", 4)):
        steps = MICROBATCHES // window
        more = {"checkpoint.interval": steps // 3, "checkpoint.keep": 9, "run.grace": 1000.0}
        whole = train(name, window, more, out=f"{name}_whole")
        assert support.summary(whole)["gradient_delay"]["max"][0] > 0, "no delay: a stash would not matter"
        train(name, window, {**more, "run.time_limit": 1e-3, "run.resume": "latest"}, out=f"{name}_pieces", status=75)
        train(name, window, {**more, "run.resume": "latest"}, out=f"{name}_pieces")
        support.assert_same_trace(whole, f"{name}_pieces", ("step", "tokens", "loss", "lr", "grad_norm"))


def memory(out, stage):
    with h5py.File(f"{out}/trace.h5") as file:
        return dict(file[f"ranks/{stage}/memory"].attrs)


def test_memory():
    # PipeMare keeps, beside the weights, a velocity and the corrected weights made from it.
    copies = {"paci": [1] * 4, "pipedream": [4, 3, 2, 1], "pipedream-2bw": [2] * 4, "pipemare": [3] * 4, "1f1b": [1] * 4}
    for name, wanted in copies.items():
        out = train(name, 4, ranks=STAGES, out=f"{name}_memory")
        for stage in range(STAGES):
            bytes_of = memory(out, stage)
            assert bytes_of["parameters"] > 0, bytes_of
            stashed = (wanted[stage] - 1) * bytes_of["parameters"]
            assert bytes_of["weight_versions"] == stashed, f"{name}, stage {stage}: {bytes_of}, wanted {stashed}"
            told = support.summary(out)["peak_bytes"][stage]
            assert sum(int(value) for value in bytes_of.values()) == told, f"{name}: {bytes_of}, {told}"


def test_peak_in_flight():
    one = [4, 3, 2, 1]
    wanted = {name: one for name in ("1f1b", "paci", "async-1f1b", "pipedream", "pipedream-2bw", "pipemare")}
    wanted.update({"gpipe": [8] * 4, "zb-h1": [4] * 4, "zb-h2": [7] * 4})
    for name, peaks in wanted.items():
        out = train(name, 8, out=f"{name}_peak")
        told = support.summary(out)["peak_in_flight"]
        assert told == peaks, f"{name}: {told}, by formula {peaks}"
    for name, stages in (("interleaved", 4), ("zb-v", 4), ("zb-auto", 4)):
        more = {"parallel.stages": stages, "schedule.chunks": 2}
        told = support.summary(train(name, 8, more, out=f"{name}_peak"))["peak_in_flight"]
        whole = support.overrides({**DECK, **more, "schedule.name": name, "train.microbatches": 8})
        lines = support.run(1, "simulate", "deck.toml", *whole).output.splitlines()
        first = next(number for number, line in enumerate(lines) if "in flight" in line) + 1
        rows = [line.split() for line in lines[first : first + stages]]
        assert [int(row[1]) for row in rows] == [int(row[2]) for row in rows] == told, f"{name}: {told}, {rows}"


if __name__ == "__main__":
    arithmetic = [test_paci, test_live_ranks_say_the_same, test_async_1f1b, test_pipedream, test_two_buffers]
    support.main([*arithmetic, test_pipemare, test_flush, test_stop_and_resume, test_memory, test_peak_in_flight])
