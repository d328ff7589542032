"""Which network ports of each host carried the data of a run, so that findings name no other."""

from collections import Counter, defaultdict

from busbw.core.result import Result
from busbw.core.telemetry import MIN_USED_SHARE, TCP

TCP_NETWORKS = ("", "Socket", "busbw")  # NCCL's names of networks over TCP; empty is unknown


class UsedPorts:
    """Port use by host, from the traffic of all rows."""

    def __init__(self, result: Result) -> None:
        devices, settings = result.world.devices, result.environment
        only_network = all(
            settings.get(name, "").strip() == "1"
            for name in ("NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE")
        )
        several_hosts = len({device.host for device in devices}) > 1
        self._network = several_hosts or (len(devices) > 1 and only_network)
        self._over_tcp = result.library.network in TCP_NETWORKS
        self._ports: dict[str, set[str]] = {}
        for host in result.topology.hosts:
            names = [nic.name for nic in host.nics] + [nic.netdev for nic in host.nics]
            self._ports[host.hostname] = set(names)
        self._bytes: dict[str, Counter[str]] = defaultdict(Counter)
        for row in result.rows:
            for change in row.machine or []:
                self._bytes[change.host].update(change.sent)
                self._bytes[change.host].update(change.received)

    def used(self, host: str, subject: str) -> bool:
        """Whether a port, or TCP, may have carried data; true for any if no traffic is known."""
        if not self._network or subject == TCP:
            return self._network and self._over_tcp
        ports = self._bytes[host]
        return ports[subject] >= MIN_USED_SHARE * max(ports.values(), default=0)

    def unused(self, host: str, subject: str) -> bool:
        """Whether `subject` is a port or TCP that carried no data; False for a GPU and others."""
        is_port = (
            subject == TCP or subject in self._ports.get(host, ()) or subject in self._bytes[host]
        )
        return is_port and not self.used(host, subject)
