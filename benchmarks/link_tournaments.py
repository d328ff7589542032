"""Simulated tournaments of 64 hosts with known slow ends and slow pairs: how often `busbw link`
names exactly the ends that are slow.

`python benchmarks/link_tournaments.py [TRIALS]` prints one table. What varies is chosen wider than
a quiet cluster's: hosts and transfers differ, other traffic slows a share of the transfers, and an
end is slow if all of its transfers are.
"""

import random
import sys
from dataclasses import dataclass

from busbw.link.schedule import rounds
from busbw.link.slow_endpoints import End, PairRate, Solution, solve

HOSTS = 64
# standard deviations of ends and of transfers, as shares of the usual rate
HOST, NOISE = 0.015, 0.02
# the share of transfers that other traffic slows, and to which share of their rate
DISTURBED, SLOWED = 0.05, (0.5, 0.9)
SLOW = (0.3, 0.75)  # of the usual rate: slow ends and slow pairs
CROWDED = 12  # slow pairs that share one host, which is not slow itself


@dataclass(frozen=True, slots=True)
class Tournament:
    """The ends that are slow, the directions of pairs that are slow although their ends are not,
    and what was measured.
    """

    ends: set[End]
    pairs: set[tuple[int, int]]
    flows: list[PairRate]


def tournament(seed: int, hosts: int, bad: int, slow_pairs: int = 0, most: int = 0) -> Tournament:
    """`bad` hosts are slow in one or both directions.

    `slow_pairs` pairs are slow, CROWDED of them at one host. `most` 0: all rounds.
    """
    draw = random.Random(seed)
    rates = {
        End(host, sends): 100 * (1 + draw.gauss(0, HOST))
        for host in range(hosts)
        for sends in (True, False)
    }
    slow = set()
    for host in draw.sample(range(hosts), bad):
        for sends in draw.choice([(True,), (False,), (True, False)]):
            rates[End(host, sends)] *= draw.uniform(*SLOW)
            slow.add(End(host, sends))
    shares = {way: draw.uniform(*SLOW) for way in _slow_pairs(draw, hosts, slow_pairs)}
    flows = []
    for pairs in rounds(hosts, most, seed):
        for sender, receiver in [way for a, b in pairs for way in ((a, b), (b, a))]:
            rate = (
                min(rates[End(sender, True)], rates[End(receiver, False)])
                * (1 + draw.gauss(0, NOISE))
                * shares.get((sender, receiver), 1)
            )
            flows.append(
                PairRate(
                    sender,
                    receiver,
                    rate * (draw.uniform(*SLOWED) if draw.random() < DISTURBED else 1),
                )
            )
    hidden = {(a, b) for a, b in shares if slow & {End(a, True), End(b, False)}}
    return Tournament(slow, set(shares) - hidden, flows)


def _slow_pairs(draw: random.Random, hosts: int, count: int) -> set[tuple[int, int]]:
    """Directions of pairs that are slow: one or both."""
    center = draw.randrange(hosts)
    others = draw.sample([host for host in range(hosts) if host != center], min(CROWDED, count))
    pairs = {(center, other) for other in others}
    while len(pairs) < count:
        a, b = draw.sample(range(hosts), 2)
        if (b, a) not in pairs:
            pairs.add((a, b))
    return {
        way
        for a, b in sorted(pairs)
        for way in draw.choice([((a, b),), ((b, a),), ((a, b), (b, a))])
    }


@dataclass(slots=True)
class Score:
    """Over all trials: how many named exactly the slow ends, ends missed and falsely named, and
    slow pairs: how many, and named.
    """

    exact: int = 0
    missed: int = 0
    false: int = 0
    pairs: int = 0
    pairs_named: int = 0

    def add(self, played: Tournament, solved: Solution) -> None:
        """Count one tournament."""
        named = {one.end for one in solved.ends}
        self.exact += named == played.ends
        self.missed += len(played.ends - named)
        self.false += len(named - played.ends)
        self.pairs += len(played.pairs)
        self.pairs_named += len(played.pairs & {(one.sender, one.receiver) for one in solved.pairs})


def score(trials: int, bad: int, slow_pairs: int = 0, most: int = 0) -> Score:
    """`trials` tournaments with the seeds 0, 1, 2, ..."""
    total = Score()
    for seed in range(trials):
        played = tournament(seed, HOSTS, bad, slow_pairs, most)
        total.add(played, solve(played.flows))
    return total


def main() -> int:
    """Print a line for each kind of tournament.

    1 if all rounds missed an end or named a false one in any trial.
    """
    trials = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    print(f"{HOSTS} hosts, {trials} trials each")
    print(
        f"{'rounds':>6} {'slow hosts':>10} {'slow pairs':>10} {'exact':>6} {'missed':>6}"
        f" {'false':>6} {'slow pairs named':>17}"
    )
    failed = False
    for most in (0, 6):
        for bad in (0, 1, 2, 3):
            for slow_pairs in (0, 1, 40):
                one = score(trials, bad, slow_pairs, most)
                failed |= not most and bool(one.missed or one.false)
                named = f"{one.pairs_named / one.pairs:.1%}" if one.pairs else "-"
                line = (
                    f"{most or 'all':>6} {bad:>10} {slow_pairs:>10} {one.exact:>6} {one.missed:>6}"
                    f" {one.false:>6} {named:>17}"
                )
                print(line, flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
