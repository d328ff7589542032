"""Golden files: expected texts under tests/golden, rewritten by `pytest --update-golden`; recorded data under tests/recorded."""

from collections.abc import Callable
from pathlib import Path

import pytest

HERE = Path(__file__).parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the files under tests/golden with what the code makes now")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """A check that `text` is the golden file `name`, byte for byte."""

    def check(name: str, text: str) -> None:
        path = HERE / "golden" / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(text.encode())
        assert path.exists(), f"no golden file {name}: run pytest --update-golden and read what it wrote"
        assert text == path.read_bytes().decode()

    return check


@pytest.fixture
def recorded() -> Path:
    """The folder of recorded data."""
    return HERE / "recorded"
