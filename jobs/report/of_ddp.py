"""Runs of a sweep as shares of plain data parallelism (ddp): time, memory, bytes sent, and the loss at equal tokens."""

import numpy as np

# Name of the column, title with unit, form: as sweep.METRICS.
METRICS = [
    ("time_of_ddp", "time per token, of ddp's", "{:.3f}"),
    ("loss_of_ddp", "validation loss at equal tokens, of ddp's", "{:.4f}"),
    ("memory_of_ddp", "memory of the rank that needs most, of ddp's", "{:.3f}"),
    ("sent_of_ddp", "sent per update, mean of the ranks, of ddp's", "{:.3f}"),
]


def is_method(key):
    """Does a swept key only say how replicas share the model?"""
    return key.startswith("sdp.") or key in ("parallel.mode", "parallel.fsdp_reduce")


def is_ddp(run):
    return run.mode == "ddp"


def equals_ddp(run):
    """SDP at coverage 1 has ddp's losses and sends as much; its memory has an evaluation's buffer more."""
    sdp = run.deck.get("sdp", {})
    return run.mode == "sdp" and sdp.get("coverage", 1.0) == 1.0 and sdp.get("sync", "gradient") == "gradient" and not sdp.get("fsdp", False)


def baseline_of(run, runs):
    """The run to compare with: the same in all that is swept but the method; of several the one whose method differs least.
    None if there is none."""
    if run.mode is None:
        return None
    def differing(other, of_method):
        return sum(run.swept[key] != other.swept.get(key) for key in run.swept if is_method(key) == of_method)

    for fits in (is_ddp, equals_ddp):
        found = [other for other in runs if fits(other) and differing(other, False) == 0]
        if found:
            return min(found, key=lambda other: differing(other, True))
    return None


def share(part, whole):
    return part / whole if part is not None and whole else None


def loss_share(run, base):
    """At the last number of tokens of which both have, or lie between, validations."""
    def curve(of):
        return of.trace["tokens"][np.searchsorted(of.trace["step"], of.validation_step)], of.validation_loss

    (tokens, losses), (base_tokens, base_losses) = curve(run), curve(base)
    if not len(losses) or not len(base_losses):
        return None
    at = min(tokens[-1], base_tokens[-1])
    if at < max(tokens[0], base_tokens[0]):
        return None
    return share(float(np.interp(at, tokens, losses)), float(np.interp(at, base_tokens, base_losses)))


def metrics(run, runs, peak_mib):
    """By name; {} without a run to compare with. peak_mib(run): memory of the fullest rank."""
    base = baseline_of(run, runs)
    if base is None or all(other.mode == "ddp" for other in runs):
        return {}
    return {
        "time_of_ddp": share(base.rate, run.rate),
        "loss_of_ddp": loss_share(run, base),
        "memory_of_ddp": share(peak_mib(run), peak_mib(base)),
        "sent_of_ddp": share(run.sent_per_rank, base.sent_per_rank),
    }
