"""What the TCP connections of a host's ranks show of the network between hosts.

TCP_INFO of a sender shows what becomes of the data that it sends: how long they waited for the
network, and what was lost. Connections with the same two addresses are one path. Of a path the last
RECENT_S are compared with what was usual before.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from busbw.host.tcp_connections import MIN_TIMEOUTS
from busbw.host.tcp_sockets import TcpSocket

RECENT_S = 10.0
EARLIER_S, EARLIER = 4.0, 75  # spans before, which tell what is usual, and so many at most
MOST_PATHS = 32  # of a host: Gloo connects each rank with all others
LEAST = 3  # spans
MUCH = 0.6  # of the bytes of the span that carried most
BULK = 0.1  # of the bytes of the connection of a path that carries most
Ends = tuple[str, str]  # the address of this host, and that of the other
_Key = bytes  # what identifies a connection
_RISING = ("acked", "resent", "doubled", "data_sent", "sent", "heard", "waited_us")


@dataclass(slots=True)
class Flow:
    """What a path did in some time. Its connections may have waited at once."""

    seconds: float = 0.0
    acked: float = 0.0  # bytes
    waited_us: float = 0.0  # in which data waited for the network alone
    lost: float = 0.0  # segments: sent again, without those that had arrived
    data_sent: float = 0.0  # segments with data

    def add(self, other: "Flow") -> None:
        """Add another flow."""
        self.seconds += other.seconds
        self.acked += other.acked
        self.waited_us += other.waited_us
        self.lost += other.lost
        self.data_sent += other.data_sent

    @property
    def rate(self) -> float:
        """Bytes per second in which data waited for the network; 0 if none did."""
        return 1e6 * self.acked / self.waited_us if self.waited_us else 0.0

    @property
    def segment(self) -> float:
        """Bytes of a segment with data."""
        return self.acked / self.data_sent if self.data_sent else 0.0

    @property
    def lost_share(self) -> float:
        """Of the segments with data."""
        return self.lost / self.data_sent if self.data_sent else 0.0


@dataclass(slots=True)
class PathEvidence:
    """The connections from one address of a host to one of another. Times are in seconds."""

    host: str
    local: str
    peer: str
    now: Flow = field(default_factory=Flow)
    parts: list[Flow] = field(default_factory=list)  # of now: one for each reading
    before: Flow = field(default_factory=Flow)
    timeouts: int = 0  # in a row, of the connection with the most
    stuck_s: float = 0.0  # since data of a connection with timeouts are not acknowledged
    queued: int = 0  # bytes of these
    sent_s: float = 0.0  # since a segment was sent
    heard_s: float = 0.0  # since one arrived


@dataclass(slots=True)
class _WatchedPath:
    evidence: PathEvidence
    sent_at_s: float
    heard_at_s: float
    recent: deque[tuple[float, Flow]] = field(default_factory=deque)
    part: Flow = field(default_factory=Flow)  # of the next of these:
    earlier: deque[Flow] = field(default_factory=lambda: deque(maxlen=EARLIER))

    def take(self, at_s: float, flow: Flow) -> None:
        self.recent.append((at_s, flow))
        while at_s - self.recent[0][0] >= RECENT_S:
            self.part.add(self.recent.popleft()[1])
            if self.part.seconds >= EARLIER_S:
                self.earlier.append(self.part)
                self.part = Flow()

    def seen(self, at_s: float) -> PathEvidence:
        found = self.evidence
        found.now, found.before = Flow(), self._usual()
        found.parts = [flow for _, flow in self.recent]
        for flow in found.parts:
            found.now.add(flow)
        found.sent_s, found.heard_s = at_s - self.sent_at_s, at_s - self.heard_at_s
        return found

    def _usual(self) -> Flow:
        """The span with the median rate, of those before that carried much: in others the job
        waited for something else. Nothing is usual before LEAST of them.
        """
        most = max((flow.acked for flow in self.earlier), default=0.0)
        known = [flow for flow in self.earlier if flow.rate and flow.acked >= MUCH * most]
        known.sort(key=lambda flow: flow.rate)
        return known[len(known) // 2] if len(known) >= LEAST else Flow()


def _rises(before: TcpSocket, after: TcpSocket) -> dict[str, int]:
    return {name: max(0, getattr(after, name) - getattr(before, name)) for name in _RISING}


def _flow(seconds: float, rises: Sequence[Mapping[str, int]]) -> Flow:
    """The connections that carried most. Small messages wait for the round trip, at any rate."""
    most = max((rise["acked"] for rise in rises), default=0)
    flow = Flow(seconds)
    for rise in rises:
        if rise["acked"] >= BULK * most:
            lost = max(0, rise["resent"] - rise["doubled"])
            flow.add(Flow(0.0, rise["acked"], rise["waited_us"], lost, rise["data_sent"]))
    return flow


class HostConnections:
    """The connections of the ranks on a host with this name, from look to look."""

    def __init__(self, host: str) -> None:
        self._host = host
        self._at_s = 0.0
        self._sockets: dict[_Key, TcpSocket] = {}
        self._acked_s: dict[_Key, float] = {}  # when data were seen to be acknowledged
        self._paths: dict[Ends, _WatchedPath] = {}

    def take(self, at_s: float, sockets: Iterable[TcpSocket]) -> None:
        """Connections at one moment."""
        known = {one.id: one for one in sockets}
        own = {one.local for one in known.values()}
        by_path: dict[Ends, list[_Key]] = {}
        for key, one in known.items():
            if one.peer not in own:
                by_path.setdefault((one.local, one.peer), []).append(key)
        for key, one in known.items():
            before = self._sockets.get(key)
            if not before or one.acked != before.acked or not one.queued or not before.queued:
                self._acked_s[key] = at_s
        for path, keys in by_path.items():
            watched = self._paths.get(path)
            if watched is None:
                watched = _WatchedPath(PathEvidence(self._host, *path), at_s, at_s)
                self._paths[path] = watched
            self._add(watched, at_s, known, keys)
        for lost in self._paths.keys() - by_path.keys():
            del self._paths[lost]
        self._acked_s = {key: self._acked_s[key] for key in known}
        self._sockets, self._at_s = known, at_s

    def _add(
        self,
        watched: _WatchedPath,
        at_s: float,
        known: Mapping[_Key, TcpSocket],
        keys: Sequence[_Key],
    ) -> None:
        rises = [_rises(self._sockets[key], known[key]) for key in keys if key in self._sockets]
        watched.take(at_s, _flow(at_s - self._at_s if rises else 0.0, rises))
        if any(rise["sent"] for rise in rises):
            watched.sent_at_s = at_s
        if any(rise["heard"] for rise in rises):
            watched.heard_at_s = at_s
        stuck = [key for key in keys if known[key].timeouts >= MIN_TIMEOUTS]
        found = watched.evidence
        found.timeouts = max(known[key].timeouts for key in keys)
        found.stuck_s = max((at_s - self._acked_s[key] for key in stuck), default=0.0)
        found.queued = sum(known[key].queued for key in stuck)

    def evidence(self) -> list[PathEvidence]:
        """The paths to other hosts: of many, those with timeouts, and those that carried most."""
        found = [watched.seen(self._at_s) for watched in self._paths.values()]
        if len(found) > MOST_PATHS:
            found.sort(key=lambda path: (-path.timeouts, -path.now.acked - path.before.acked))
        return found[:MOST_PATHS]
