"""Storm's Java word count (``storm/WordCount.java``) in a LocalCluster of its own; needs a JDK and Maven.

python tests/benchmarks/rivals/storm_word_count.py prepare     fetch 57 jars (once, 160 MB) and compile
python tests/benchmarks/rivals/storm_word_count.py             run; settings come from the environment
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent / "storm"


def cache() -> Path:
    """Jars and classes, kept from run to run."""
    root = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(root, "streamlet", "storm-2.8.2")


def prepare() -> None:
    """Jars by Maven, then javac; both go into the cache whole or not at all."""
    if (cache() / "classes").is_dir():
        return
    for tool in ("mvn", "javac"):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is missing: Storm's figure needs a JDK and Maven (apt-get install maven).")
    cache().parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache().parent) as folder:
        shutil.copy(HERE / "pom.xml", folder)
        fetch = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars", "-DincludeScope=runtime"]
        subprocess.run(fetch, cwd=folder, check=True)
        compile_ = ["javac", "-cp", f"{folder}/jars/*", "-d", f"{folder}/classes", str(HERE / "WordCount.java")]
        subprocess.run(compile_, check=True)
        ready = Path(folder, "ready")
        ready.mkdir()
        for part in ("jars", "classes"):
            Path(folder, part).rename(ready / part)
        ready.rename(cache())


def main() -> None:
    """Prepare, or run and leave ``count.json`` where the other rivals do."""
    prepare()
    if sys.argv[1:] == ["prepare"]:
        return
    env = os.environ
    command = ["java", "-Xmx2g", "-cp", f"{cache()}/classes:{cache()}/jars/*", "WordCount"]
    command += [env["BENCHMARK_BOOTSTRAP"], env["BENCHMARK_TOPIC"], env["BENCHMARK_LINES"]]
    command += [str(Path(env["BENCHMARK_OUT"], "count.json")), f"storm-{os.getpid()}"]
    with tempfile.TemporaryDirectory() as folder:  # Storm leaves a logs folder where it runs
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
