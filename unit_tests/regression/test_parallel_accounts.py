"""What runs with replicas tell about themselves: bytes as planned, bytes sent by formula, and where the seconds went."""

import json
import math

import h5py

import support

DECK = {"run.steps": 4, "output.evaluation_interval": 2, "train.microbatches": 2, "model.layers": 4}
SDP = {"parallel.mode": "sdp", "sdp.coverage": 0.5}
# name -> (ranks, replicas, changes)
CASES = {
    "ddp": (2, 2, {}),
    "ddp_4": (4, 4, {}),
    "zero1": (4, 4, {"parallel.mode": "zero1"}),
    "fsdp": (4, 4, {"parallel.mode": "fsdp"}),
    "fsdp_window": (4, 4, {"parallel.mode": "fsdp", "parallel.fsdp_reduce": "window"}),
    "sdp": (4, 4, SDP),
    "sdp_sublayer": (4, 4, {**SDP, "sdp.unit": "sublayer"}),
    "sdp_neuron": (4, 4, {**SDP, "sdp.unit": "neuron"}),
    "sdp_backward": (4, 4, {**SDP, "sdp.masking": "backward"}),
    "sdp_refresh": (4, 4, {**SDP, "sdp.masking": "backward", "sdp.refresh": 2}),
    "sdp_average": (4, 4, {**SDP, "sdp.sync": "parameter", "sdp.period": 2}),
    "sdp_fsdp": (4, 4, {**SDP, "sdp.fsdp": True}),
    "2x2": (4, 2, {}),
    "2x2_zero1": (4, 2, {"parallel.mode": "zero1"}),
    "2x2_paci": (4, 2, {"schedule.name": "paci", "schedule.order": "fixed"}),
}
PURPOSES = {"compute", "update", "wait_input", "exchange", "send", "evaluation", "checkpoint", "output", "other"}
CATEGORIES = ("parameters", "gradients", "optimizer", "weight_versions", "activations", "comm")


def changes_of(name):
    _, replicas, changes = CASES[name]
    return {**DECK, "parallel.data": replicas, **changes}


def test_runs():
    for name, (ranks, _, _) in CASES.items():
        support.train(ranks, name, changes_of(name))


def planned(name):
    """(peak_bytes, by category) of each rank, as check and simulate tell them."""
    ranks, replicas, _ = CASES[name]
    arguments = [*support.overrides(changes_of(name)), "--stages", ranks // replicas]
    peaks = json.loads(support.run(1, "simulate", "deck.toml", *arguments).output.strip().splitlines()[-1])["peak_bytes"]
    if ranks > replicas:
        return peaks, None
    # check tells them by stage: here the rank's only one.
    lines = support.run(1, "check", "deck.toml", *arguments).output.splitlines()
    begin = next(i for i, line in enumerate(lines) if line.startswith("bytes by category")) + 2
    rows = [[int(word) for word in line.split()] for line in lines[begin : begin + replicas]]
    assert [row[0] for row in rows] == list(range(replicas)), rows
    size = f"{max(peaks) / 2**20:.2f} MiB" if max(peaks) >= 2**20 else f"{max(peaks) / 2**10:.2f} KiB"
    assert lines[begin + replicas] == f"fullest of {ranks} ranks: rank {peaks.index(max(peaks))}, {size}", lines[begin + replicas]
    return peaks, {category: [row[2 + i] for row in rows] for i, category in enumerate(CATEGORIES)}


def test_bytes_are_as_planned():
    for name in CASES:
        told = support.summary(name)
        peaks, categories = planned(name)
        assert told["peak_bytes"] == peaks, f"{name}: {told['peak_bytes']}, planned {peaks}"
        if categories:
            assert told["bytes"] == categories, f"{name}: {told['bytes']}, planned {categories}"
        sums = [sum(told["bytes"][category][rank] for category in CATEGORIES) for rank in range(len(peaks))]
        assert told["peak_bytes"] == sums, f"{name}: {told['peak_bytes']}, categories add up to {sums}"


def parameters(out):
    """Elements of each tensor by name, with their padding to whole lines of 64 bytes, which travels along."""
    (file,) = support.checkpoints(out)[-1:]
    with h5py.File(file) as data:
        return {name: -(-math.prod(tensor.shape) // 16) * 16 for name, tensor in data["model"].items()}


def sent(name, purpose):
    """Mean over the ranks, in elements per update."""
    values = support.summary(name)["sent_bytes_per_update"][purpose]
    return sum(values) / len(values) / 4


def assert_sent(name, **formulas):
    """Other purposes are of no byte. Shards are of whole lines: rounding drops out of the mean over replicas."""
    for purpose in support.summary(name)["sent_bytes_per_update"]:
        expected, told = formulas.get(purpose, 0), sent(name, purpose)
        assert math.isclose(told, expected, rel_tol=1e-9), f"{name}: {purpose} {told}, not {expected}"


def block_gathers():
    """Of an update. Forwards gather all blocks, backwards again; but two layers stay where they are: the last block between a
    forward and its backward, the first one between a backward and the next forward. Updates change all."""
    layers, window = DECK["model.layers"], DECK["train.microbatches"]
    return window * layers - (window - 1) + window * (layers - 1)


def test_sent_bytes_of_full_replicas():
    whole = sum(parameters("ddp").values())
    for name, replicas in (("ddp", 2), ("ddp_4", 4)):
        share = whole * (replicas - 1) / replicas
        assert_sent(name, reduce_scatter=share, all_gather=share)
    share = whole * 3 / 4
    assert_sent("zero1", reduce_scatter=share, parameter_gather=share)
    sizes = parameters("fsdp")
    ends = sum(size for name, size in sizes.items() if ".h." not in name)
    gathered = (2 * ends + block_gathers() * (whole - ends) / DECK["model.layers"]) * 3 / 4
    assert_sent("fsdp", reduce_scatter=2 * share, parameter_gather=gathered)
    assert_sent("fsdp_window", reduce_scatter=share, parameter_gather=gathered)


def split(out):
    """Elements that all hold, and those of the units."""
    sizes = parameters(out)
    blocks = sum(size for name, size in sizes.items() if ".h." in name)
    return sum(sizes.values()) - blocks, blocks


def neuron_elements(out):
    return sum(size for name, size in parameters(out).items() if "mlp.c_fc" in name or "mlp.c_proj.weight" in name)


def test_sent_bytes_of_subnetworks():
    held_by_all, units = split("sdp")
    # Four replicas; a unit has two holders. Per rank: 3/4 of what all hold, and of a unit 1/2 for each of half the replicas.
    share = held_by_all * 3 / 4 + units * (1 / 2) * (1 / 2)
    for name in ("sdp", "sdp_sublayer"):
        assert_sent(name, reduce_scatter=share, all_gather=share)
    neurons = neuron_elements("sdp_neuron")
    by_neurons = (held_by_all + units - neurons) * 3 / 4 + neurons / 4
    assert_sent("sdp_neuron", reduce_scatter=by_neurons, all_gather=by_neurons)
    # A holder of a unit sends it to the two replicas that do not hold it.
    assert_sent("sdp_backward", reduce_scatter=share, all_gather=share, refresh=units * 2 / 4)
    assert_sent("sdp_refresh", reduce_scatter=share, all_gather=share, refresh=units * 2 / 4 / 2)
    # Sums and means travel alike, every other update.
    assert_sent("sdp_average", average=2 * share / 2)
    # Each of the two holders of a block sends its half to the other.
    gathered = 2 * held_by_all * 3 / 4 + block_gathers() * (units / DECK["model.layers"]) / 4
    assert_sent("sdp_fsdp", reduce_scatter=2 * share, parameter_gather=gathered)


def test_sent_bytes_of_a_grid():
    # Two replicas of two stages: half of what the two stages of a replica have, spread over its ranks.
    share = sum(parameters("2x2").values()) / 2 / 2
    message = DECK["train.microbatches"] * 2 * 32 * 32  # microbatches x sequences x tokens x width
    for name in ("2x2", "2x2_paci"):
        assert_sent(name, reduce_scatter=share, all_gather=share, pipeline=message)
    assert_sent("2x2_zero1", reduce_scatter=share, parameter_gather=share, pipeline=message)


def test_clipping_sends_norms():
    # A number per tensor to each of the other replicas.
    support.train(4, "clip", {**changes_of("ddp_4"), "train.clip": "stage"})
    told = support.summary("clip")["sent_bytes_per_update"]["norm"]
    assert told == [8.0 * 3 * len(parameters("clip"))] * 4, told


def test_seconds_have_purposes():
    for name, (ranks, _, _) in CASES.items():
        seconds = support.summary(name)["seconds"]
        assert set(seconds) == PURPOSES | {"wall"}, sorted(seconds)
        # Sharded replicas wait within their passes, for layers.
        assert "fsdp" in name or sum(seconds["exchange"]) > 0, f"{name}: nobody ever waited for other replicas: {seconds}"
        for rank in range(ranks):
            parts = {purpose: seconds[purpose][rank] for purpose in PURPOSES}
            told, wall = sum(parts.values()), seconds["wall"][rank]
            assert all(value >= 0 for value in parts.values()), f"{name}, rank {rank}: {parts}"
            assert math.isclose(told, wall, rel_tol=1e-6), f"{name}, rank {rank}: {parts} add up to {told}, not {wall}"


def test_hidden_share():
    for name in CASES:
        told = support.summary(name).get("exchange_hidden_share")
        assert told is None or 0 <= told <= 1, f"{name}: {told}"
    # The only bucket is complete when the last backward is: of two replicas, the one that gets there first has to wait.
    assert support.summary("ddp")["exchange_hidden_share"] < 1, support.summary("ddp")["exchange_hidden_share"]


def test_messages_between_stages():
    for name, (ranks, replicas, _) in CASES.items():
        told = support.summary(name)
        assert len(told["message_wait_seconds"]) == ranks, f"{name}: {told['message_wait_seconds']}"
        # Without stages on different ranks there are none.
        assert ("messages_hidden_share" in told) == (ranks > replicas), f"{name}: {told.get('messages_hidden_share')}"
        assert 0 <= told.get("messages_hidden_share", 0) <= 1, f"{name}: {told['messages_hidden_share']}"


if __name__ == "__main__":
    support.main(
        [
            test_runs,
            test_bytes_are_as_planned,
            test_sent_bytes_of_full_replicas,
            test_sent_bytes_of_subnetworks,
            test_sent_bytes_of_a_grid,
            test_clipping_sends_norms,
            test_seconds_have_purposes,
            test_hidden_share,
            test_messages_between_stages,
        ]
    )
