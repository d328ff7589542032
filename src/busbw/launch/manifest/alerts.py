"""Alert rules for Prometheus on what `busbw check` and `busbw watch` export."""

from busbw.launch.manifest.filler import fill_text

STALE_CHECKS = 6  # verdicts are stale after the time of so many checks


def rules(every_s: int) -> str:
    """The file of rules, for hosts that are checked every `every_s` seconds."""
    return fill_text(
        "prometheus-rules.yml", {"every_s": every_s, "stale_s": STALE_CHECKS * every_s}
    )
