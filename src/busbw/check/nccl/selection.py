"""Lists of names as NCCL reads them: `mlx5_1` is a prefix, `=mlx5_1` a name, `^mlx5_1` excludes."""

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Selection:
    """The value of NCCL_IB_HCA or NCCL_SOCKET_IFNAME. Tokens omit the part after a colon: port, rail and plane."""

    tokens: tuple[str, ...]
    exact: bool = False
    excluded: bool = False

    def matches(self, token: str, name: str) -> bool:
        """Whether a token matches a name."""
        return name == token if self.exact else name.startswith(token)

    def named(self, names: Iterable[str]) -> tuple[str, ...]:
        """Names that a token matches."""
        return tuple(name for name in names if any(self.matches(token, name) for token in self.tokens))

    def chosen(self, names: Iterable[str]) -> tuple[str, ...]:
        """Names that NCCL uses."""
        names = tuple(names)
        named = self.named(names)
        return tuple(name for name in names if name not in named) if self.excluded else named

    def unmatched(self, names: Iterable[str]) -> tuple[str, ...]:
        """Tokens that match none of the names."""
        names = tuple(names)
        return tuple(token for token in self.tokens if not any(self.matches(token, name) for name in names))

    def too_wide(self, names: Iterable[str]) -> dict[str, tuple[str, ...]]:
        """For each token that is a full name: other names that it matches as a prefix and that are not listed."""
        names = tuple(names)
        others = {
            token: tuple(name for name in names if name not in self.tokens and self.matches(token, name))
            for token in self.tokens
            if token in names
        }
        return {token: more for token, more in others.items() if more}

    def spelled(self) -> str:
        """The value with exact names."""
        return f"{'^' if self.excluded else ''}={','.join(self.tokens)}"


def parse(text: str) -> Selection:
    """The selection; each entry of NCCL_IB_HCA may have a port after a colon."""
    excluded = text.startswith("^")
    rest = text.removeprefix("^")
    exact = rest.startswith("=")
    return Selection(tuple(part.partition(":")[0] for part in rest.removeprefix("=").split(",") if part), exact, excluded)
