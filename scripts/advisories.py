#!/usr/bin/env python3
"""Look up known security advisories for every package of the lock files and every jar of the Spark connector.

    python scripts/advisories.py             exit 1 when a package or jar has a known advisory
    python scripts/advisories.py --require   exit 2 as well when the advisory database cannot be reached

The database is OSV (https://osv.dev), which covers PyPI and Maven. Its batch query answers which advisories affect an
exact version. Standard library only, so that it runs before anything is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import sys
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LOCKS = ("requirements.lock", "requirements-dev.lock", "requirements-docs.lock")
DATABASE = os.environ.get("OSV_API", "https://api.osv.dev") + "/v1/querybatch"
BATCH = 500
"""Queries in one request; the API accepts at most 1,000."""
ACCEPTED: dict[str, str] = {}
"""Advisories that do not apply here, by id, each with the reason."""

Package = tuple[str, str, str]
"""Ecosystem, name and version, as OSV spells them."""


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--require", action="store_true", help="fail when the database cannot be reached")
    required = parser.parse_args().require
    packages = sorted({*python_packages(), *connector_jars()})
    try:
        found = list(advisories(packages))
    except (OSError, ValueError) as error:
        print(f"advisories: {DATABASE} cannot be reached ({error}); packages NOT checked: {len(packages)}")
        return 2 if required else 0
    for (_, name, version), advisory in found:
        print(f"advisories: {name} {version}: {advisory}")
    print(f"advisories: packages checked: {len(packages)}, advisories found: {len(found)}")
    return 1 if found else 0


def python_packages(root: Path = ROOT) -> Iterator[Package]:
    """Yield what the lock files pin."""
    for lock in LOCKS:
        for name, version in re.findall(r"^([\w.-]+)==([^\s;\\]+)", (root / lock).read_text(), re.MULTILINE):
            yield "PyPI", name, version


def connector_jars(root: Path = ROOT) -> Iterator[Package]:
    """Yield the Spark connector for the pinned PySpark and the jars that the project replaces."""
    sys.path.insert(0, str(root))
    path = root / "producer_core" / "pipeline" / "connector.py"
    # Loaded by its path: importing its package needs dependencies that are not installed yet.
    spec = importlib.util.spec_from_file_location("connector", path)
    connector = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(connector)
    pyspark = next(version for _, name, version in python_packages(root) if name == "pyspark")
    yield "Maven", "org.apache.spark:spark-sql-kafka-0-10_2.13", pyspark
    for name, (group, version) in connector.FIXED.items():
        yield "Maven", f"{group}:{name}", version


def advisories(packages: list[Package]) -> Iterator[tuple[Package, str]]:
    """Yield each advisory of each package that is not in ACCEPTED."""
    for start in range(0, len(packages), BATCH):
        part = packages[start : start + BATCH]
        for package, answer in zip(part, ask(part), strict=True):
            for advisory in answer.get("vulns", ()):
                if advisory["id"] not in ACCEPTED:
                    yield package, advisory["id"]


def ask(packages: Iterable[Package]) -> list[dict[str, list[dict[str, str]]]]:
    """Return OSV's answers in the order of `packages`."""
    queries = [
        {"package": {"ecosystem": ecosystem, "name": name}, "version": version}
        for ecosystem, name, version in packages
    ]
    request = urllib.request.Request(
        DATABASE, json.dumps({"queries": queries}).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=30) as response:
        return json.load(response)["results"]


if __name__ == "__main__":
    sys.exit(main())
