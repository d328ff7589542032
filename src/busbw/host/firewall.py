"""The rules of nftables for incoming packets. iptables-nft keeps its rules there too."""

import json
import subprocess
from dataclasses import dataclass
from typing import Any

from busbw.host.source import Unavailable

LIMIT_S = 10
FAMILIES = ("ip", "ip6", "inet")  # not those of ARP and of bridges
MANY_PORTS = 20_000  # about as many as the kernel assigns
COMMAND = ("nft", "--json", "list", "ruleset")
_PASSIVE = {"counter", "log", "drop", "reject"}  # statements of a rule that applies to every packet


@dataclass(frozen=True, slots=True)
class Chain:
    """A chain that sees all incoming packets and drops what none of its rules accepts."""

    family: str
    table: str
    name: str
    # sources and interfaces of which it accepts everything, and wide ranges of ports
    accepts: tuple[str, ...]

    @property
    def place(self) -> str:
        """The chain's name as nft writes it: `inet filter input`."""
        return f"{self.family} {self.table} {self.name}"


def ruleset() -> str:
    """The rules as nft's JSON; Unavailable without the tool or root."""
    try:
        done = subprocess.run(COMMAND, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    except FileNotFoundError as error:
        raise Unavailable("nft is not installed") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"{' '.join(COMMAND)}: {error}") from error
    if done.returncode:
        raise Unavailable(f"{' '.join(COMMAND)}: {done.stderr.strip() or 'it failed'}")
    return done.stdout


def closed_chains(text: str) -> list[Chain]:
    """Chains of incoming packets that drop what no rule accepts.

    ValueError if `text` is no ruleset of nft as JSON.
    """
    try:
        entries: list[dict[str, Any]] = json.loads(text)["nftables"]
        chains = [entry["chain"] for entry in entries if "chain" in entry]
        rules = [entry["rule"] for entry in entries if "rule" in entry]
        inputs = [
            chain
            for chain in chains
            if chain.get("hook") == "input" and chain["family"] in FAMILIES
        ]
        return [_chain(chain, rules) for chain in inputs if _drops_by_default(chain, rules)]
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError("it is no ruleset of nft") from error


def _drops_by_default(chain: dict[str, Any], rules: list[dict[str, Any]]) -> bool:
    if chain.get("policy") == "drop":
        return True
    place = (chain["family"], chain["table"], chain["name"])
    in_chain = [rule for rule in rules if (rule["family"], rule["table"], rule["chain"]) == place]
    return any(map(_drops_all, in_chain))


def _statements(rule: dict[str, Any]) -> list[tuple[str, Any]]:
    return [pair for part in rule.get("expr", ()) for pair in part.items()]


def _drops_all(rule: dict[str, Any]) -> bool:
    names = {name for name, _ in _statements(rule)}
    return bool(names & {"drop", "reject"}) and names <= _PASSIVE


def _chain(chain: dict[str, Any], rules: list[dict[str, Any]]) -> Chain:
    accepted = [
        source
        for rule in rules
        if rule["table"] == chain["table"]
        for source in _accepts_all_from(rule)
    ]
    return Chain(chain["family"], chain["table"], chain["name"], tuple(dict.fromkeys(accepted)))


def _accepts_all_from(rule: dict[str, Any]) -> list[str]:
    """Sources from which a rule accepts everything; [] if it depends on more than the source.

    A jump to a chain of trusted sources (firewalld) counts as accepting.
    """
    statements = _statements(rule)
    matches = [value for name, value in statements if name == "match"]
    verdicts = [
        name
        for name, value in statements
        if name == "accept" or (name in ("goto", "jump") and "trusted" in value["target"])
    ]
    sources = [_source(match) for match in matches]
    known = [source for source in sources if source and source != "lo"]
    return known if verdicts and len(known) == len(matches) else []


def _source(match: dict[str, Any]) -> str:
    """The addresses, interface or wide range of ports that a match of a rule selects; else ''."""
    if match.get("op", "==") != "==":
        return ""
    left, right = match["left"], match["right"]
    field = left.get("payload", {}).get("field")
    if field == "dport" and isinstance(right, dict):
        first, last = right.get("range", (0, 0))
        return f"ports {first} to {last}" if last - first >= MANY_PORTS else ""
    if field == "saddr" or left.get("meta", {}).get("key") == "iifname":
        return _source_text(right)
    return ""


def _source_text(source: Any) -> str:
    match source:
        case str():
            return source
        case {"prefix": {"addr": address, "len": length}}:
            return f"{address}/{length}"
        case {"set": [*parts]}:
            return ", ".join(map(_source_text, parts))
    return json.dumps(source)
