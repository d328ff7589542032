"""Software bills of materials (CycloneDX) of both distributions."""

import json
import os
import re
import tempfile
import tomllib
import uuid
import zipfile
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from email import message_from_bytes
from hashlib import sha256
from importlib import metadata
from pathlib import Path
from typing import Any

import ziglang
from cyclonedx.model import (
    AttachedText,
    ExternalReference,
    ExternalReferenceType,
    HashAlgorithm,
    HashType,
    XsUri,
)
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentEvidence, ComponentType
from cyclonedx.model.license import DisjunctiveLicense, LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from dist_checks import output, require, tool
from packageurl import PackageURL

ROOT = Path(__file__).parents[1]
MANIFEST = ROOT / "native" / "Cargo.toml"
PLUGIN = "busbw-plugin"  # the crate that becomes the library
# Of packages whose metadata has no license expression, from their license files.
LICENSES = {"nvidia-ml-py": "BSD-3-Clause"}
LICENSE_FILES = re.compile(r"(licen[cs]e|copying|copyright|notice)\b", re.IGNORECASE)


def python(path: Path, folder: Path, version: str, interpreter: Path) -> None:
    """Writes that of the project in a folder: the packages of an environment into which only it
    was installed, without extras.
    """
    text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    name = tomllib.loads(text)["project"]["name"]
    text = text.replace('dynamic = ["version"]', f'version = "{version}"')
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as project:
        project.write(text)
        project.flush()
        options = ("--output-reproducible", "--mc-type", "library", "--pyproject", project.name)
        bom = json.loads(tool("cyclonedx_py", "environment", *options, interpreter))
    for component in bom["components"]:  # busbw itself, where busbw-accel needs it, is a local file
        references = component.get("externalReferences", [])
        component["externalReferences"] = [
            each for each in references if not each["url"].startswith("file:")
        ]
    bom["serialNumber"] = serial(path).urn
    bom["metadata"]["component"]["purl"] = PackageURL(
        "pypi", name=name, version=version
    ).to_string()
    path.write_text(json.dumps(bom, indent=2) + "\n", encoding="utf-8")


def serial(path: Path) -> uuid.UUID:
    """The serial number of a list: the same for the same commit."""
    return uuid.uuid5(uuid.NAMESPACE_URL, f"{path.name}/{os.environ['SOURCE_DATE_EPOCH']}")


def single_file(path: Path, version: str, wheels: Path) -> None:
    """Writes that of the single file at `path`: the wheels that it was made of."""
    sbom = path.with_name(f"{path.name}.cdx.json")
    bom = Bom(serial_number=serial(sbom))
    bom.metadata.timestamp = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    root = component("busbw", version, "pypi", "Apache-2.0", hashes=[_sha256(path)])
    bom.metadata.component = root
    packages: dict[str, list[Path]] = {}
    for wheel in sorted(wheels.glob("*.whl")):
        packages.setdefault("-".join(wheel.name.split("-")[:2]), []).append(wheel)
    parts = [_package(files) for name, files in packages.items() if not name.startswith("busbw-")]
    bom.components.update(parts)
    bom.register_dependency(root, parts)
    sbom.write_text(JsonV1Dot6(bom).output_as_string(indent=2) + "\n", encoding="utf-8")


def _package(wheels: list[Path]) -> Component:
    """A package, from its wheels for one or more Pythons."""
    with zipfile.ZipFile(wheels[0]) as archive:
        [path] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        fields = message_from_bytes(archive.read(path))
    expression = fields["License-Expression"] or LICENSES.get(fields["Name"])
    require(expression is not None, f"LICENSES in {__file__} has no {fields['Name']}")
    references = [
        ExternalReference(
            type=ExternalReferenceType.DISTRIBUTION, url=XsUri(wheel.name), hashes=[_sha256(wheel)]
        )
        for wheel in wheels
    ]
    return component(
        fields["Name"], fields["Version"], "pypi", expression, external_references=references
    )


def _sha256(path: Path) -> HashType:
    return HashType(alg=HashAlgorithm.SHA_256, content=sha256(path.read_bytes()).hexdigest())


def native(path: Path, version: str, target: str) -> None:
    """Writes that of busbw-native for a target: the crates of others, and the runtime libraries
    of Rust and zig, all linked statically.
    """
    bom = Bom(serial_number=serial(path))
    bom.metadata.timestamp = datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), UTC)
    root = component("busbw-native", version, "pypi", "Apache-2.0")
    bom.metadata.component = root
    parts = [*crates(target), *runtimes()]
    bom.components.update(parts)
    bom.register_dependency(root, parts)
    path.write_text(JsonV1Dot6(bom).output_as_string(indent=2) + "\n", encoding="utf-8")


def component(
    name: str, version: str, kind: str, expression: str, texts: Iterable[Path] = (), **more: Any
) -> Component:
    """A library with its package URL, which also identifies it in the list, its license, and the
    files with the license's text.
    """
    purl = PackageURL(kind, name=name, version=version)
    licenses = [LicenseExpression(expression.replace("/", " OR "))]
    found = [
        DisjunctiveLicense(
            name=path.name, text=AttachedText(content=path.read_text(encoding="utf-8"))
        )
        for path in sorted(texts)
    ]
    evidence = ComponentEvidence(licenses=found) if found else None
    more |= {"purl": purl, "bom_ref": purl.to_string(), "licenses": licenses, "evidence": evidence}
    return Component(name=name, version=version, type=ComponentType.LIBRARY, **more)


def resolved(target: str) -> dict[str, Any]:
    """What cargo says about the workspace and the crates that it uses on a target."""
    options = (
        "--locked",
        "--format-version=1",
        "--filter-platform",
        target,
        "--manifest-path",
        MANIFEST,
    )
    return json.loads(output("cargo", "metadata", *options))


def folders(target: str) -> set[Path]:
    """The folders of this machine that hold the sources of others' crates."""
    return {
        Path(package["manifest_path"]).parents[1]
        for package in resolved(target)["packages"]
        if package["source"]
    }


def crates(target: str) -> Iterator[Component]:
    """The crates of others that the library is made of on a target, with the checksums of
    Cargo.lock and the texts of their licenses.
    """
    found = resolved(target)
    packages = {package["id"]: package for package in found["packages"]}
    locked = tomllib.loads(MANIFEST.with_suffix(".lock").read_text(encoding="utf-8"))["package"]
    checksums = {
        (package["name"], package["version"]): package.get("checksum") for package in locked
    }
    for package in (packages[each] for each in linked(found["resolve"]["nodes"], packages)):
        if package["source"]:
            digest = HashType(
                alg=HashAlgorithm.SHA_256, content=checksums[package["name"], package["version"]]
            )
            texts = [
                path
                for path in Path(package["manifest_path"]).parent.iterdir()
                if LICENSE_FILES.match(path.name)
            ]
            yield component(
                package["name"],
                package["version"],
                "cargo",
                package["license"],
                texts,
                hashes=[digest],
            )


def linked(nodes: list[dict[str, Any]], packages: dict[str, dict[str, Any]]) -> list[str]:
    """The ids of the crates that the plugin depends on at run time, itself included."""
    uses = {
        node["id"]: [
            dep["pkg"]
            for dep in node["deps"]
            if any(kind["kind"] is None for kind in dep["dep_kinds"])
        ]
        for node in nodes
    }
    found = [
        each for each in uses if packages[each]["name"] == PLUGIN and not packages[each]["source"]
    ]
    for each in found:  # grows
        found += [use for use in uses[each] if use not in found]
    return found


def runtimes() -> Iterator[Component]:
    """Rust's standard library, and zig's libunwind and compiler-rt."""
    yield component(
        "rust-std", output("rustc", "--version").split()[1], "generic", "MIT OR Apache-2.0"
    )
    zig = Path(ziglang.__file__).parent
    texts = (zig / "LICENSE", zig / "lib" / "libunwind" / "LICENSE.TXT")
    yield component(
        "ziglang",
        metadata.version("ziglang"),
        "pypi",
        "MIT AND Apache-2.0 WITH LLVM-exception",
        texts,
    )
