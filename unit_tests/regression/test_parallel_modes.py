"""Data parallelism: every way to share the parameters among replicas trains alike, bit for bit where sums have one order."""

import numpy as np

import support

DECK = {"run.steps": 4, "output.evaluation_interval": 2, "train.epsilon": 1e-6}
LOSSES = ("step", "tokens", "loss", "lr", "val/step", "val/loss")
FULL = {"parallel.mode": "sdp", "sdp.coverage": 1.0}
MODES = {
    "ddp": {},
    "zero1": {"parallel.mode": "zero1"},
    "fsdp": {"parallel.mode": "fsdp"},
    "fsdp_window": {"parallel.mode": "fsdp", "parallel.fsdp_reduce": "window"},
    "sdp_block": FULL,
    "sdp_sublayer": {**FULL, "sdp.unit": "sublayer"},
    "sdp_neuron": {**FULL, "sdp.unit": "neuron"},
    "sdp_block_backward": {**FULL, "sdp.masking": "backward"},
    "sdp_sublayer_backward": {**FULL, "sdp.unit": "sublayer", "sdp.masking": "backward"},
    "sdp_neuron_backward": {**FULL, "sdp.unit": "neuron", "sdp.masking": "backward"},
    "sdp_fsdp": {**FULL, "sdp.fsdp": True},
}
SUMS_BY_SHARDS = ("zero1", "fsdp", "fsdp_window", "sdp_fsdp")
# Where gradients are added up in another order (over replicas after every microbatch; microbatches of one replica), sums of
# n floats differ by n 2^-24 of their terms at most, n below 16 here: 1e-6. AdamW's steps are of the gradient's relative
# error, except where a gradient is as small as its error; train.epsilon damps those. Seen: 4e-9 of the loss.
ROUNDING = 1e-6


def train(ranks, out, changes, data=2):
    support.train(ranks, out, {**DECK, "parallel.data": data, **changes})
    return out


def relative(a, b, name):
    first, second = support.read_trace(a, (name,))[name], support.read_trace(b, (name,))[name]
    assert first.shape == second.shape and first.size > 0, (a, b, name)
    return float(np.max(np.abs(first - second) / np.abs(first)))


def assert_close(a, b, bound, names=("loss", "val/loss", "grad_norm")):
    for name in names:
        seen = relative(a, b, name)
        print(f"  {b}: {name} differs by {seen:.1e} of {a}'s")
        assert seen <= bound, f"/trace/{name} of {a} and {b} differ by {seen}, more than {bound}"


def test_one_microbatch():
    for mode, changes in MODES.items():
        out = train(2, f"one_{mode}", {"train.microbatches": 1, **changes})
        support.assert_same_trace("one_ddp", out, LOSSES)
        if mode in SUMS_BY_SHARDS:
            assert_close("one_ddp", out, 1e-6, ("grad_norm",))
        else:
            support.assert_same_trace("one_ddp", out, ("grad_norm",))


def test_several_microbatches():
    # On four replicas, so that the order of sums counts.
    for mode in ("ddp", "zero1", "fsdp_window", "sdp_sublayer", "sdp_neuron_backward", "fsdp", "sdp_fsdp"):
        out = train(4, f"several_{mode}", {"train.microbatches": 3, **MODES[mode]}, data=4)
        if mode in ("fsdp", "sdp_fsdp"):
            assert_close("several_ddp", out, ROUNDING)
        else:
            support.assert_same_trace("several_ddp", out, LOSSES)
            assert_close("several_ddp", out, 1e-6, ("grad_norm",))


def test_replicas_are_microbatches():
    train(1, "alone", {"train.microbatches": 12}, data=1)
    for out in ("several_ddp", "several_fsdp"):
        first = [support.read_trace(name, ("loss",))["loss"][:1].tobytes() for name in ("alone", out)]
        assert first[0] == first[1], f"{out}: the first update's loss is of other microbatches"
        assert_close("alone", out, ROUNDING)


def test_replicas_of_stages():
    for schedule, changes in {"1f1b": {}, "paci": {"schedule.order": "fixed"}}.items():
        changes = {"schedule.name": schedule, "train.microbatches": 2, **changes}
        whole = train(4, f"{schedule}_2x2", changes)
        support.assert_same_trace(whole, train(2, f"{schedule}_inside", {**changes, "parallel.stages": 2}))
        if schedule == "1f1b":
            support.assert_same_trace(whole, train(2, f"{schedule}_2x1", changes))
        for mode in ("fsdp_window", "sdp_block"):
            support.assert_same_trace(whole, train(4, f"{schedule}_2x2_{mode}", {**changes, **MODES[mode]}), LOSSES)


def test_hybrid():
    for microbatches in (1, 3):
        changes = {**support.HYBRID, "train.microbatches": microbatches}
        whole = train(2, f"hybrid_{microbatches}_ddp", changes)
        for mode in ("zero1", "fsdp_window", *(("fsdp",) if microbatches == 1 else ())):
            support.assert_same_trace(whole, train(2, f"hybrid_{microbatches}_{mode}", {**changes, **MODES[mode]}), LOSSES)
    whole = train(4, "hybrid_2x2_ddp", support.HYBRID)
    support.assert_same_trace(whole, train(4, "hybrid_2x2_fsdp", {**support.HYBRID, **MODES["fsdp_window"]}), LOSSES)


def test_dynamic_order():
    changes = {"schedule.name": "paci", "schedule.order": "dynamic", "train.microbatches": 2, "run.steps": 12}
    for mode in ("ddp", "zero1"):
        told = support.summary(train(4, f"dynamic_{mode}", {**changes, **MODES[mode]}))
        gaps = told["version_gap"]["max"]
        assert told["stages"] == 2 and told["replicas"] == 2, told
        assert gaps[0] <= 1 and gaps[1] == 0, f"{mode}: {gaps}"
        # The loss falls as under the fixed order, if not along the same numbers.
        loss = support.read_trace(f"dynamic_{mode}", ("loss",))["loss"]
        assert np.isfinite(loss).all() and loss[-1] < loss[0], loss


def test_recompute():
    for mode, changes in {"ddp": {}, "fsdp": MODES["fsdp"], "sdp": {**FULL, "sdp.coverage": 0.75}}.items():
        changes = {"train.microbatches": 2, "model.dropout": 0.1, "run.steps": 3, "output.evaluation_interval": 3, **changes}
        for recompute in ("none", "attention", "block"):
            out = train(2, f"recompute_{mode}_{recompute}", {**changes, "train.recompute": recompute})
            support.assert_same_trace(f"recompute_{mode}_none", out)
    dropped, free = (support.read_trace(out, ("loss",))["loss"] for out in ("recompute_ddp_none", "several_ddp"))
    assert dropped[0] != free[0], "dropout changed nothing: the test cannot fail"


def test_clipping():
    # Steps that depend on the clipped size: the moments of AdamW would divide a common factor out.
    changes = {"train.microbatches": 1, "train.clip_norm": 0.01, "train.epsilon": 1e-2}
    train(2, "clip_none", {**changes, "train.clip": "none"})
    for clip in ("stage", "global"):
        plain = train(2, f"clip_{clip}_ddp", {**changes, "train.clip": clip})
        clipped, free = (support.read_trace(out, ("loss",))["loss"] for out in (plain, "clip_none"))
        assert clipped[-1] > free[-1], "clipping changed nothing: the test cannot fail"
        mode = "sdp_block" if clip == "stage" else "sdp_neuron_backward"
        support.assert_same_trace(plain, train(2, f"clip_{clip}_{mode}", {**changes, "train.clip": clip, **MODES[mode]}))
        for mode in ("zero1", "fsdp"):
            assert_close(plain, train(2, f"clip_{clip}_{mode}", {**changes, "train.clip": clip, **MODES[mode]}), 1e-5)
    # On four ranks the stages have norms of their own, and the replicas' parts are added up once.
    for clip in ("stage", "global"):
        whole = train(4, f"clip_{clip}_2x2", {**changes, "train.clip": clip})
        support.assert_same_trace(whole, train(4, f"clip_{clip}_2x2_sdp", {**changes, "train.clip": clip, **MODES["sdp_block"]}))
    support.assert_same_trace("clip_global_ddp", "clip_global_2x2")


if __name__ == "__main__":
    support.main(
        [
            test_one_microbatch,
            test_several_microbatches,
            test_replicas_are_microbatches,
            test_replicas_of_stages,
            test_hybrid,
            test_dynamic_order,
            test_recompute,
            test_clipping,
        ]
    )
