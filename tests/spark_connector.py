"""The jars of Spark's own Kafka connector, from the package registry by Maven or Ivy: for comparisons only."""

from __future__ import annotations

from pathlib import Path

import pyspark

from streamlet.devcluster.errors import JarsUnavailable
from streamlet.devcluster.installation import find_java
from streamlet.devcluster.jars import Release, default_cache, ensure_jars

# For a Spark whose connector is not in the registry the newest older one is taken.
_VERSIONS = tuple(dict.fromkeys((pyspark.__version__, "4.2.0", "4.1.1")))
_NEEDED = ("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2")


def connector() -> tuple[str, list[Path]]:
    """Return the connector's version and its jars: the first version that is kept or to be had.

    Raises JarsUnavailable, with what was said of each.
    """
    releases = {
        version: Release(f"connector-{version}", (("org.apache.spark", "spark-sql-kafka-0-10_2.13", version),))
        for version in _VERSIONS
    }
    # A registry is asked only when no version is kept: the answer that it has none takes seconds each time.
    kept = [version for version, release in releases.items() if (default_cache() / release.key).is_dir()]
    said = []
    for version in kept[:1] or _VERSIONS:
        try:
            folder = ensure_jars(releases[version], find_java())
        except JarsUnavailable as error:
            said.append(f"{version}: {error}"[:400])
            continue
        return version, [path for path in sorted(folder.glob("*.jar")) if path.name.startswith(_NEEDED)]
    raise JarsUnavailable("No version of Spark's Kafka connector is to be had. " + " ".join(said))
