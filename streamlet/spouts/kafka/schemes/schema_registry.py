"""A client of a schema registry: schemas by id, over Confluent's usual HTTP API, cached for good.

A schema never changes under its id, so each ``SchemaRegistry`` asks for it once. A request runs on a thread of its
own, one at a time: the worker's loop waits a moment for the first one, and hears ``SchemeNotReady`` while the registry
is away.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote, urlsplit

from streamlet.base.backoff import Backoff
from streamlet.base.errors import SettingError
from streamlet.spouts.kafka.errors import SchemeNotReady, UnknownSchema

PAUSES = Backoff(initial=0.5, maximum=5.0)

LOOP_WAIT_S = 0.5
"""Seconds that a worker's loop waits for an answer, while the registry has answered before."""

UNKNOWN_FOR_S = 10.0
"""Seconds that the answer "no such schema" counts; a schema may be registered later."""

SECOND_LOOK_S = 1.0
"""Seconds after which "no such schema" is asked again, before it counts."""

FORGOTTEN_AFTER_S = 60.0
"""Seconds after which a former "no such schema" supports no new one."""

MOST_ABSENT = 1000
"""Ids that are remembered as unknown: bytes that no registry's serializer wrote give a new one each."""

MOST_BYTES = 16 << 20
"""Bytes of an answer above which it is no schema."""

MOST_REFERENCES = 200

MOST_TIMEOUT_S = 3600
"""Seconds that one answer may take at most."""

NOT_THERE = {40401, 40402, 40403}
"""Error codes of the API for a subject, a version or a schema that does not exist."""


class RegisteredSchema(NamedTuple):
    """A schema, and the ones that it needs: in the order of need."""

    schema_id: int
    kind: str
    """``AVRO``, ``PROTOBUF`` or ``JSON``."""
    text: str
    references: tuple[tuple[str, str], ...] = ()
    """Names and texts."""


class _Absence(NamedTuple):
    """A schema, or one that it needs, which the registry lacks."""

    text: str
    sure: bool
    """A second look found the same."""
    until_s: float
    """Until then nobody asks again."""


class _NotFound(Exception):
    """The registry says that it does not have it; the text says what."""


class _Away(Exception):
    """No address of the registry gives a usable answer."""


class _Request:
    """A request under way: its connection, and when its present part began."""

    def __init__(self, began_s: float) -> None:
        self.done = threading.Event()
        self.began_s = began_s
        self.connection: http.client.HTTPConnection | None = None

    def cut(self) -> None:
        """End the present part: its thread then sees a connection that was closed."""
        connection = self.connection
        if connection is not None and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)


class SchemaRegistry:
    """Asks a schema registry for schemas, by id.

    ``url``: one address, or several that are tried in turn. ``user`` and ``password``, or ``token``: sent with each
    request. ``ssl_cafile``: PEM file with the authorities to trust. ``timeout_s``: seconds for one answer of one
    address. Raises SettingError. It travels without its connections; no secret is in its ``repr`` or in an error.
    """

    def __init__(
        self,
        url: str | Sequence[str],
        *,
        user: str | None = None,
        password: str | None = None,
        token: str | None = None,
        ssl_cafile: str | None = None,
        timeout_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.urls = [_checked(one) for one in ([url] if isinstance(url, str) else list(url))]
        if not self.urls:
            raise SettingError('SchemaRegistry: there is no url. It is such as "http://registry:8081".')
        if (user is None) != (password is None) or (user is not None and token is not None):
            raise SettingError("SchemaRegistry: give user and password together, or a token, or none of them.")
        if isinstance(timeout_s, bool) or not isinstance(timeout_s, int | float) or not 0 < timeout_s <= MOST_TIMEOUT_S:
            raise SettingError(
                f"SchemaRegistry: timeout_s is {timeout_s!r}; it is a number of seconds above 0, and at most "
                f"{MOST_TIMEOUT_S}."
            )
        _check_authorities(ssl_cafile)
        self._authorization = _authorization(user, password, token)
        self._ssl_cafile = ssl_cafile
        self._timeout_s = float(timeout_s)
        self._clock = clock
        self._known: dict[int, RegisteredSchema] = {}
        self._by_version: dict[tuple[str, int], dict[str, Any]] = {}
        self._forget()

    def _forget(self) -> None:
        """Start without requests and failures."""
        self._lock = threading.Lock()
        self._absent: dict[int, _Absence] = {}
        self._request: _Request | None = None
        self._failures = 0
        self._found_last = True
        self._rests_until_s = -1e18
        self._why = ""

    def __repr__(self) -> str:
        return f"SchemaRegistry({', '.join(self.urls)})"

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name not in ("_lock", "_request")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._forget()

    # -- asked from any thread ----------------------------------------------------------------------------------

    def schema(self, schema_id: int) -> RegisteredSchema:
        """Return a schema, waiting for it. Raises UnknownSchema and SchemeNotReady."""
        return self._schema(schema_id, self._timeout_s * len(self.urls), patient=True)

    def schema_at_hand(self, schema_id: int) -> RegisteredSchema:
        """Return a schema, waiting a moment at most. Raises UnknownSchema and SchemeNotReady.

        For the worker's loop; the request goes on without it.
        """
        return self._schema(schema_id, min(LOOP_WAIT_S, self._timeout_s), patient=False)

    def _schema(self, schema_id: int, wait_s: float, *, patient: bool) -> RegisteredSchema:
        known = self._known.get(schema_id)
        if known is not None:
            return known
        with self._lock:
            self._raise_if_absent(schema_id)
            request, mine = self._request, False
            if request is None:
                request, mine = self._begin(schema_id), True
            elif self._clock() - request.began_s > self._timeout_s:
                # Its socket has a time-out for each read, which a server that sends byte by byte never reaches.
                request.cut()
            # A loop waits only for the request that it began itself, and only while requests bring schemas: each
            # partition would stop it for a moment, again and again, while the registry is away, and each record of
            # strange bytes, which seem to have a new id every time.
            waits = patient or (mine and self._found_last)
        if waits:
            request.done.wait(wait_s)
        with self._lock:
            known = self._known.get(schema_id)
            if known is not None:
                return known
            self._raise_if_absent(schema_id)
            raise SchemeNotReady(self._why or f"schema id {schema_id}: {self} has not answered yet.")

    def _raise_if_absent(self, schema_id: int) -> None:
        absence = self._absent.get(schema_id)
        if absence is None or self._clock() >= absence.until_s:
            return
        if absence.sure:
            raise UnknownSchema(absence.text)
        raise SchemeNotReady(f"{absence.text}. It is asked once more, {SECOND_LOOK_S:g} s after its first answer.")

    def _note_absence(self, schema_id: int, text: str) -> None:
        # Rule: "no such schema" counts when a second look says it again. An address that follows the leader of a
        # registry answers so while it has not read of a new schema yet.
        now = self._clock()
        former = self._absent.pop(schema_id, None)
        sure = former is not None and now < former.until_s + FORGOTTEN_AFTER_S
        if len(self._absent) >= MOST_ABSENT:
            self._absent.pop(next(iter(self._absent)))
        self._absent[schema_id] = _Absence(text, sure, now + (UNKNOWN_FOR_S if sure else SECOND_LOOK_S))

    def _begin(self, schema_id: int) -> _Request:
        """Start a request on a thread of its own. Raises SchemeNotReady during the pause after a failure."""
        if self._clock() < self._rests_until_s:
            raise SchemeNotReady(self._why)
        request = self._request = _Request(self._clock())
        name = f"schema registry, id {schema_id}"
        try:
            threading.Thread(target=self._run, args=(request, schema_id), name=name, daemon=True).start()
        except RuntimeError as error:
            # Rule: a request whose thread cannot start is over and counts as a failure. Kept as under way it would be
            # waited for until the worker ends, and its error would make poison of a record that nothing is wrong with.
            self._request = None
            self._pause(f"schema id {schema_id}: {self} is asked again later. {error}: see how many threads run here.")
            raise SchemeNotReady(self._why) from error
        return request

    def _pause(self, why: str) -> None:
        """Count a failure, after which nobody is asked for a while. With the lock."""
        self._why = why
        self._failures += 1
        self._rests_until_s = self._clock() + PAUSES.delay(self._failures)

    # -- the request's thread -----------------------------------------------------------------------------------

    def _run(self, request: _Request, schema_id: int) -> None:
        found, absent, why = None, "", ""
        try:
            found = self._look_up(request, schema_id)
        except _NotFound as error:
            absent = str(error)
        except _Away as error:
            why = f"schema id {schema_id}: {self} is asked again later. {error}"
        except Exception as error:  # noqa: BLE001 - a waiting loop must hear of it
            why = f"schema id {schema_id}: {self} is asked again later. {type(error).__name__}: {error}"
        with self._lock:
            self._request = None
            self._why = why
            if why:
                self._pause(why)
            else:
                self._failures = 0
            self._found_last = found is not None
            if found is not None:
                self._known[schema_id] = found
                self._absent.pop(schema_id, None)
            if absent:
                self._note_absence(schema_id, absent)
        request.done.set()

    def _look_up(self, request: _Request, schema_id: int) -> RegisteredSchema:
        answer = self._get(
            request,
            f"/schemas/ids/{schema_id}",
            f"its schema id is {schema_id}, and {self} does not know this id. Either another registry gave it, or "
            "the bytes were not written by a registry's serializer",
        )
        ordered: dict[str, str] = {}
        self._resolve(request, schema_id, answer, ordered, set())
        kind = str(answer.get("schemaType") or "AVRO")
        return RegisteredSchema(schema_id, kind, answer["schema"], tuple(ordered.items()))

    def _resolve(
        self,
        request: _Request,
        schema_id: int,
        answer: dict[str, Any],
        ordered: dict[str, str],
        seen: set[tuple[str, int]],
    ) -> None:
        """Add the texts of an answer's references, in the order of need."""
        for reference in answer.get("references") or ():
            name, subject, number = str(reference["name"]), str(reference["subject"]), int(reference["version"])
            if (subject, number) in seen:
                continue
            seen.add((subject, number))
            if len(seen) > MOST_REFERENCES:
                raise _Away(f"It has more than {MOST_REFERENCES} references.")
            found = self._by_version.get((subject, number))
            if found is None:
                # A version that was deleted softly is still needed by the schemas that refer to it.
                found = self._get(
                    request,
                    f"/subjects/{quote(subject, safe='')}/versions/{number}?deleted=true",
                    f"its schema id {schema_id} needs {name!r}, which is version {number} of subject {subject!r}, and "
                    f"{self} does not have that version: it was deleted for good",
                )
                self._by_version[subject, number] = found
            self._resolve(request, schema_id, found, ordered, seen)
            ordered[name] = found["schema"]

    def _get(self, request: _Request, path: str, absent: str) -> dict[str, Any]:
        """Ask each address in turn. Raises _NotFound, with the text ``absent``, and _Away."""
        failed, missing = [], False
        for url in list(self.urls):
            try:
                status, body = self._ask(request, url, path)
                return _read(status, body)
            except _NotFound:
                missing = True
            except _Away as error:
                failed.append(f"{url}: {error}")
            except (OSError, http.client.HTTPException) as error:
                failed.append(f"{url}: {type(error).__name__}: {error}")
            self.urls.append(self.urls.pop(0))  # the next request begins with another one
        if missing:
            raise _NotFound(absent)
        raise _Away("; ".join(failed) + ".")

    def _ask(self, request: _Request, url: str, path: str) -> tuple[int, bytes]:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
        if parts.scheme == "https":
            context = ssl.create_default_context(cafile=self._ssl_cafile)
            connection: http.client.HTTPConnection = http.client.HTTPSConnection(
                host, port, timeout=self._timeout_s, context=context
            )
        else:
            connection = http.client.HTTPConnection(host, port, timeout=self._timeout_s)
        request.began_s, request.connection = self._clock(), connection
        headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json", **self._authorization}
        try:
            connection.request("GET", parts.path.rstrip("/") + path, headers=headers)
            response = connection.getresponse()
            body = response.read(MOST_BYTES + 1)
            if len(body) > MOST_BYTES:
                raise _Away(f"it answered with more than {MOST_BYTES} bytes")
            return response.status, body
        finally:
            request.connection = None
            connection.close()


def _read(status: int, body: bytes) -> dict[str, Any]:
    """Return an answer's JSON object. Raises _NotFound and _Away."""
    try:
        answer = json.loads(body)
    except ValueError:
        answer = None
    if not isinstance(answer, dict):
        answer = {}
    if status == 404 and answer.get("error_code") in NOT_THERE:
        raise _NotFound
    if status in (401, 403):
        raise _Away(f"it refuses our user, password or token ({status})")
    if status != 200:
        # A 404 without such a code is a wrong path or another server: no word about the schema.
        raise _Away(f"it answered with status {status}: {str(answer.get('message', ''))[:200] or body[:80]!r}")
    if not isinstance(answer.get("schema"), str):
        raise _Away(f"it answered without a schema: {body[:80]!r}")
    return answer


def _checked(url: Any) -> str:
    parts = urlsplit(url) if isinstance(url, str) else None
    if parts is not None and parts.username is not None:
        raise SettingError(
            f"SchemaRegistry: the url of {parts.hostname} has a user in it, and urls appear in logs. Give user= and "
            "password= instead."
        )
    try:
        usable = (
            parts is not None
            and parts.scheme in ("http", "https")
            and parts.hostname
            and (parts.port or 1)
            and not (parts.query or parts.fragment)
        )
    except ValueError:
        usable = False
    if not usable:
        raise SettingError(f'SchemaRegistry: the url is {url!r}. It is such as "http://registry:8081".')
    return str(url).rstrip("/")


def _check_authorities(ssl_cafile: object) -> None:
    if ssl_cafile is None:
        return
    try:
        ssl.create_default_context(cafile=ssl_cafile)  # type: ignore[arg-type]  # a wrong type is told as well
    except (OSError, TypeError, ValueError) as error:
        raise SettingError(
            f"SchemaRegistry: the authorities of ssl_cafile={ssl_cafile!r} cannot be read: {type(error).__name__}: "
            f"{error}. It is a PEM file that is on every machine that runs workers."
        ) from error


def _authorization(user: str | None, password: str | None, token: str | None) -> dict[str, str]:
    # http.client refuses such a header with an error that holds it, and errors are logged.
    if (
        not all(isinstance(one, str) and one.isprintable() for one in (user or "", password or "", token or ""))
        or not (token or "").isascii()
    ):
        raise SettingError("SchemaRegistry: user, password and token are text without line breaks, a token ASCII only.")
    if token is not None:
        return {"Authorization": f"Bearer {token}"}
    if user is not None:
        return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
    return {}
