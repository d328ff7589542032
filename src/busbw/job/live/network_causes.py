"""What the ports of a host show where communication took longer."""

from busbw.job.live import path_causes
from busbw.job.live.delay import GRADIENTS, Cause, Delay
from busbw.job.live.host_watch import PortEvidence
from busbw.job.live.words import longer_tests, rate_text
from busbw.ui.number_formats import percent_text

FULL = 0.8  # of the rate of a port
# What a port carries beyond the job's own bytes is another program's if it is at least:
OTHER_SHARE, RATE_SHARE, LEAST_BYTES = 0.5, 0.02, 1e6  # of those before; of the rate; per second
RESENT, RESENT_TIMES = 10.0, 3.0  # segments per second, and times those before
WRONG_TRAFFIC = "no other process has connections over this port: ss -tunp"


def network(delay: Delay) -> Cause | None:
    """Communication grew, of the rank that waits least."""
    if not delay.has(GRADIENTS):
        return None
    why = f"communication took longer by {delay.figure(GRADIENTS)}"
    return traffic(delay, why) or _link(delay, why)


def traffic(delay: Delay, why: str) -> Cause | None:
    """Another program's bytes. Of two ports with them, that which sends them is at fault."""
    found = [
        (port, text) for port in delay.look.host.ports if (text := _others_traffic(port, delay))
    ]
    if not found:
        return None
    sending = [one for one in found if one[0].sends] or found
    port, text = max(sending, key=lambda one: one[0].carried)
    name, ranks = "", list[int]()
    if len({one[0].host for one in sending}) == 1 and port.host and port.sends is not None:
        name = f"what {port.host} {'sends' if port.sends else 'receives'}"
        ranks = [number for number, rank in delay.look.ranks.items() if rank.host == port.host]
    return Cause(
        "traffic", f"{why}; {text}", "ss -tunp; busbw watch", WRONG_TRAFFIC, name, sorted(ranks)
    )


def _link(delay: Delay, why: str) -> Cause:
    host = delay.look.host
    direction = path_causes.lossy(delay.look) or path_causes.slow(delay.look)
    seen = [f"{direction.name}: {direction.why}"] if direction else []
    seen += [text for port in host.ports for text in _port_signs(port)]
    if host.before_resent is not None and host.resent >= max(
        RESENT, RESENT_TIMES * host.before_resent
    ):
        seen.append(
            f"TCP sent {host.resent:.0f} segments again per second, before {host.before_resent:.0f}"
        )
    seen = seen or ["no port of this host shows why"]
    hosts = sorted({rank.host for rank in delay.look.ranks.values()})
    return Cause(
        "link",
        f"{why}; {'; '.join(seen)}",
        longer_tests(delay.look),
        "busbw link finds all links between these hosts equal"
        if len(hosts) > 1
        else "communication takes as long between the same ranks on another host",
        direction.name if direction else "",
        direction.ranks if direction else (),
    )


def _others_traffic(port: PortEvidence, delay: Delay) -> str:
    """What a port carries beyond the job's own bytes, of which it has fewer in longer steps."""
    if port.before is None:
        return ""
    own = port.before * delay.step_us / (delay.step_us + delay.us)
    other = port.carried - own
    least = max(OTHER_SHARE * port.before, RATE_SHARE * (port.rate or 0.0), LEAST_BYTES)
    if other < least:
        return ""
    return (
        f"{port.name} carries {rate_text(port.carried)}, before {rate_text(port.before)}: the steps"
        f" are fewer, so that about {rate_text(other)} are not this job's"
    )


def _port_signs(port: PortEvidence) -> list[str]:
    signs = [f"{port.name}: {text}" for text in port.findings]
    if port.rate and port.before_rate and port.rate < port.before_rate:
        signs.append(
            f"{port.name} runs at {rate_text(port.rate)}, before {rate_text(port.before_rate)}"
        )
    if port.rate and port.carried >= FULL * port.rate:
        share = percent_text(port.carried, port.rate)
        signs.append(f"{port.name} carries {share} % of its rate")
    return signs
