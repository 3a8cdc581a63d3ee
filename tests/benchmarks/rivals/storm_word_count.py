"""Storm's Java word count (``storm/WordCount.java``) in a LocalCluster of its own; needs a JDK and Maven.

python tests/benchmarks/rivals/storm_word_count.py prepare     fetch 57 jars (once, 160 MB) and compile
python tests/benchmarks/rivals/storm_word_count.py             run; settings come from the environment
python tests/benchmarks/rivals/storm_word_count.py live        for BENCHMARK_SECONDS, under live load
"""

from __future__ import annotations

import hashlib
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


def classes() -> Path:
    """The compiled program, a folder for each version of its source."""
    source = (HERE / "WordCount.java").read_bytes()
    return cache() / f"classes-{hashlib.sha256(source).hexdigest()[:12]}"


def prepare() -> None:
    """Jars by Maven, then javac; each goes into the cache whole or not at all."""
    for tool in ("mvn", "javac"):
        if shutil.which(tool) is None:
            raise SystemExit(f"{tool} is missing: Storm's figure needs a JDK and Maven (apt-get install maven).")
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache()) as folder:
        if not (cache() / "jars").is_dir():
            shutil.copy(HERE / "pom.xml", folder)
            fetch = ["mvn", "-q", "-B", "dependency:copy-dependencies"]
            subprocess.run([*fetch, "-DoutputDirectory=jars", "-DincludeScope=runtime"], cwd=folder, check=True)
            Path(folder, "jars").rename(cache() / "jars")
        if not classes().is_dir():
            compile_ = ["javac", "-cp", f"{cache()}/jars/*", "-d", f"{folder}/classes", str(HERE / "WordCount.java")]
            subprocess.run(compile_, check=True)
            Path(folder, "classes").rename(classes())


def main() -> None:
    """Prepare, or run and leave ``count.json`` where the other rivals do."""
    prepare()
    if sys.argv[1:] == ["prepare"]:
        return
    env = os.environ
    live = sys.argv[1:] == ["live"]
    command = ["java", "-Xmx2g", "-cp", f"{classes()}:{cache()}/jars/*", "WordCount"]
    command += [env["BENCHMARK_BOOTSTRAP"], env["BENCHMARK_TOPIC"], "live" if live else env["BENCHMARK_LINES"]]
    command += [str(Path(env["BENCHMARK_OUT"], "storm.bin" if live else "count.json")), f"storm-{os.getpid()}"]
    command += [env["BENCHMARK_SECONDS"]] if live else []
    with tempfile.TemporaryDirectory() as folder:  # Storm leaves a logs folder where it runs
        subprocess.run(command, check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
