"""The users of SCRAM: their credentials, requests, and how their answers are read. Pure but for fresh salts."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

from streamlet.base.errors import BadInput
from streamlet.kafka.admin.errors import Answers, item_error
from streamlet.kafka.arguments import check_name, is_whole, several
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.protocol.messages import scram_users as wire

ScramMechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512"]
"""The words of the setting ``sasl_mechanism``."""

_NUMBERS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
_NAMES = {number: name for name, number in _NUMBERS.items()}
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
LEAST_ITERATIONS, MOST_ITERATIONS = 4096, 16384
"""The brokers' own limits, the same for both mechanisms."""


@dataclass(frozen=True, slots=True)
class ScramCredentialInfo:
    """One way to log in; nobody can read its password back."""

    mechanism: str
    iterations: int


@dataclass(frozen=True, slots=True)
class UserScramCredentialUpsertion:
    """A user to make, or a new password for one. Raises BadInput.

    ``iterations``: rounds of hashing at each login, 4096 to 16384. The password itself does not travel, but what
    does is enough to log in: use TLS. It is in no ``repr``.
    """

    user: str
    password: str = field(repr=False)
    mechanism: ScramMechanism = "SCRAM-SHA-512"
    iterations: int = LEAST_ITERATIONS

    def __post_init__(self) -> None:
        _check_user(type(self).__name__, self.user, self.mechanism)
        if not isinstance(self.password, str) or not self.password:
            raise BadInput(f"User {self.user!r}: the password must be a string that is not empty.")
        if not is_whole(self.iterations, LEAST_ITERATIONS, MOST_ITERATIONS + 1):
            raise BadInput(
                f"User {self.user!r}: iterations = {self.iterations!r} must be a whole number from {LEAST_ITERATIONS} "
                f"to {MOST_ITERATIONS}, which brokers accept."
            )

    def __str__(self) -> str:
        return f"user {self.user!r} ({self.mechanism})"


@dataclass(frozen=True, slots=True)
class UserScramCredentialDeletion:
    """A credential to delete: the user cannot log in with this mechanism any more. Raises BadInput."""

    user: str
    mechanism: ScramMechanism = "SCRAM-SHA-512"

    def __post_init__(self) -> None:
        _check_user(type(self).__name__, self.user, self.mechanism)

    def __str__(self) -> str:
        return f"user {self.user!r} ({self.mechanism})"


UserScramCredentialAlteration = UserScramCredentialUpsertion | UserScramCredentialDeletion


def _check_user(kind: str, user: object, mechanism: object) -> None:
    check_name(user, "user")
    if mechanism not in _NUMBERS:
        raise BadInput(f"{kind} of {user!r}: mechanism = {mechanism!r} must be 'SCRAM-SHA-256' or 'SCRAM-SHA-512'.")


def alterations_by_mechanism(
    given: UserScramCredentialAlteration | Iterable[UserScramCredentialAlteration],
) -> list[list[UserScramCredentialAlteration]]:
    """Return lists of changes, each user once in each.

    Raises BadInput for two of one credential.
    """
    example = "[UserScramCredentialUpsertion('alice', password), ...]"
    kinds = (UserScramCredentialUpsertion, UserScramCredentialDeletion)
    found: dict[str, dict[str, UserScramCredentialAlteration]] = {}
    for row in [given] if isinstance(given, kinds) else several(given, "changes of users", example):
        if not isinstance(row, kinds):
            raise BadInput(f"{row!r} is not a change of a user: write {example}.")
        if row.user in found.setdefault(row.mechanism, {}):
            raise BadInput(f"{row} is to be changed twice: leave one of the two out.")
        found[row.mechanism][row.user] = row
    return [list(rows.values()) for rows in found.values()]


def alter_request(alterations: Iterable[UserScramCredentialAlteration]) -> wire.AlterUserScramCredentialsRequest:
    """Return one request for changes of different users; each salt is fresh."""
    deletions, upsertions = [], []
    for row in alterations:
        number = _NUMBERS[row.mechanism]
        if isinstance(row, UserScramCredentialDeletion):
            deletions.append(wire.ScramCredentialDeletion(name=row.user, mechanism=number))
            continue
        salt = secrets.token_bytes(24)
        # The UTF-8 bytes of the password, as Kafka's own tools store them and as the client's login hashes them.
        salted = hashlib.pbkdf2_hmac(_HASHES[row.mechanism], row.password.encode(), salt, row.iterations)
        upsertions.append(
            wire.ScramCredentialUpsertion(
                name=row.user, mechanism=number, iterations=row.iterations, salt=salt, salted_password=salted
            )
        )
    return wire.AlterUserScramCredentialsRequest(deletions=tuple(deletions), upsertions=tuple(upsertions))


def read_altered(
    share: Iterable[UserScramCredentialAlteration], response: wire.AlterUserScramCredentialsResponse
) -> Answers[UserScramCredentialAlteration, None]:
    """Return the changes that were made, and the errors of the others."""
    by_user = {row.user: row for row in share}
    answers: Answers[UserScramCredentialAlteration, None] = Answers()
    for row in response.results:
        if (change := by_user.get(row.user)) is not None:
            what = f"Changing {change}"
            answers.put(change, None, item_error(row.error_code, what, row.error_message, "ALTER on the cluster"))
    return answers


def describe_request(users: Iterable[str] | None) -> wire.DescribeUserScramCredentialsRequest:
    """Return a request for these users; None: all."""
    # No name stands for all, as null does. Null is not sent: a broker that must refuse it, for want of an ACL, fails at
    # its own refusal and never answers (3.9.2, 4.3.1).
    return wire.DescribeUserScramCredentialsRequest(users=tuple(wire.UserName(name=name) for name in users or ()))


def read_described(
    response: wire.DescribeUserScramCredentialsResponse,
) -> tuple[Answers[str, tuple[ScramCredentialInfo, ...]], KafkaError | None]:
    """Return each user's credentials, and the error of all."""
    answers: Answers[str, tuple[ScramCredentialInfo, ...]] = Answers()
    needs = "DESCRIBE on the cluster"
    for row in response.results:
        infos = tuple(
            ScramCredentialInfo(_NAMES.get(info.mechanism, f"mechanism {info.mechanism}"), info.iterations)
            for info in sorted(row.credential_infos, key=lambda info: info.mechanism)
        )
        fault = item_error(row.error_code, f"Describing user {row.user!r}", row.error_message, needs)
        answers.put(row.user, infos, fault)
    return answers, item_error(response.error_code, "Describing users", response.error_message, needs)
