"""Java, jars and the commands made of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from streamlet.devcluster import broker_settings as settings
from streamlet.devcluster.java import Java
from streamlet.devcluster.jvm import SMALL_FLAGS


@dataclass(frozen=True, slots=True)
class Installation:
    """One Kafka release that can be run. ``kafka`` is "3.9" or "4"; logging files lie in ``directory``."""

    kafka: str
    java: Java
    jars: Path
    directory: Path
    figures: bool = False

    def write_logging(self) -> None:
        """Write logging settings: INFO for servers, warnings for tools.

        A server's console is a file; a tool's log is kept apart from its output.
        """
        text = settings.reload4j if self.kafka == "3.9" else settings.log4j2
        self._logging("server").write_text(text("INFO", "out"))
        self._logging("tools").write_text(text("WARN", "err"))

    def server_command(self, main: str, *arguments: str, heap_mb: int) -> list[str]:
        """Return the command of a server.

        With ``figures`` the JVM keeps its best compiler and collector.
        """
        flags = () if self.figures else SMALL_FLAGS
        return self._command(main, arguments, (f"-Xmx{heap_mb}m", *flags), "server")

    def tool_command(self, main: str, *arguments: str) -> list[str]:
        """Return the command of a tool: it lives for a second, so it starts small."""
        return self._command(main, arguments, ("-Xmx512m", *SMALL_FLAGS), "tools")

    def _command(self, main: str, arguments: tuple[str, ...], flags: tuple[str, ...], logging: str) -> list[str]:
        key = "log4j.configuration" if self.kafka == "3.9" else "log4j2.configurationFile"
        return [
            str(self.java.path), *flags, "-Djava.awt.headless=true",
            f"-D{key}={self._logging(logging).as_uri()}", "-cp", f"{self.jars}/*", main, *arguments,
        ]  # fmt: skip

    def _logging(self, who: str) -> Path:
        return self.directory.absolute() / f"logging-{who}.properties"
