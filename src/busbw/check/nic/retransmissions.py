"""RDMA retransmissions."""

from collections.abc import Iterator
from statistics import median

from busbw.check.base import Check, not_offered, passed, warned
from busbw.check.machine import Machine, Port
from busbw.check.nic.links import LOSS, cabled, counts, each_port, evidence, total
from busbw.check.rates import Window, window
from busbw.check.shell_words import filled
from busbw.check.types import Found
from busbw.core.check_row import CheckRow, Layer

# Adaptive routing reorders packets without loss, so out_of_sequence alone means nothing.
AGAIN = ("packet_seq_err", "implied_nak_seq_err", "local_ack_timeout_err", "roce_adp_retrans", "rx_icrc_encapsulated")
GAVE_UP = ("req_transport_retries_exceeded", "req_rnr_retries_exceeded")
MANY = 10  # connections above the median of the ports
SHOWN = ("out_of_sequence", "out_of_buffer", "rnr_nak_retry_err")
PACKETS = ("port_xmit_packets", "port_rcv_packets")

ROW = CheckRow(
    id="BW082",
    name="nic-retransmissions",
    layer=Layer.NIC,
    title="RDMA retransmissions",
    right=f"at most {LOSS:g} of the packets, and fewer than {MANY} connections that gave up, above the median of this host's ports, "
    "between two readings (--watch-for, --since) or since the driver was loaded",
    why="Packets were lost on the path. RDMA retransmits them and every packet after them. After seven retries NCCL fails with error 12.",
    fix="check flow control and ECN on the path of {device} (roce-pfc, roce-ecn) and its cable (nic-ber); busbw watch shows when it rises",
    stays="depends on the cause; the counters restart when the driver is loaded and wrap at 2^32",
    reads=(f"/sys/class/infiniband/*/ports/*/hw_counters/{{{','.join((*AGAIN, *GAVE_UP, *SHOWN))}}}",
           f"/sys/class/infiniband/*/ports/*/counters/{{{','.join(PACKETS)}}}"),
    sources=("Linux drivers/infiniband/hw/mlx5/counters.c", "NCCL user guide, troubleshooting"),
)  # fmt: skip


def look(machine: Machine) -> Iterator[Found]:
    """Each port with a cable."""
    files = [f"hw_counters/{name}" for name in (*GAVE_UP, *AGAIN, *SHOWN)] + [f"counters/{name}" for name in PACKETS]
    read = [window(machine, found).counts for port in cabled(machine) if not isinstance(found := counts(machine, port, files, ""), str)]
    lost = [total(found, "|".join(GAVE_UP)) for found in read]
    # A killed job leaves connections of its remote ranks unanswered, equally on all ports.
    common = median(lost) if len(lost) > 2 else 0
    yield from each_port(machine, files, "", lambda port, found: _judge(port, window(machine, found), common))


def _judge(port: Port, over: Window, common: float) -> Found:
    found, names = over.counts, {count.name for count in over.counts}
    if not names & set(AGAIN):
        return not_offered(port.name, "its driver does not count retransmissions")
    again, gave_up = total(found, "|".join(AGAIN)), total(found, "|".join(GAVE_UP))
    packets = total(found, "|".join(PACKETS))
    seen = evidence(found, "|".join((*GAVE_UP, *AGAIN, *SHOWN)))
    message = f"{again} retransmission events {over.since}"
    message += f" in {packets} packets" if names & set(PACKETS) else "; packets are not counted"
    fix = filled(ROW.fix, device=port.device)
    if gave_up - common >= MANY:
        on_others = f"; the median of this host's ports is {common:g}" if common else ""
        return warned(port.name, f"{gave_up} times a connection gave up {over.since}{on_others}", *seen, fix=fix, weight=gave_up)
    message += f"; {gave_up} connections gave up, as when a job is killed" if gave_up else ""
    if again and not names & set(PACKETS):
        return not_offered(port.name, message, *seen)
    return warned(port.name, message, *seen, fix=fix, weight=again) if again > LOSS * packets else passed(port.name, message, *seen)


CHECK = Check(ROW, look)
