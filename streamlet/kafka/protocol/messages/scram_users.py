"""DescribeUserScramCredentials and AlterUserScramCredentials: the users of SCRAM."""

from __future__ import annotations

from streamlet.kafka.protocol.schema import (
    BYTES,
    INT8,
    INT16,
    INT32,
    STRING,
    ApiKey,
    Array,
    Request,
    message,
    request,
    wire,
)


@message
class CredentialInfo:
    """One mechanism of a user; 1 is SCRAM-SHA-256, 2 SCRAM-SHA-512."""

    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)


@message
class DescribeUserScramCredentialsResult:
    """One user; error 91 (not found) when it has no credentials."""

    user: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)
    credential_infos: tuple[CredentialInfo, ...] = wire(Array(CredentialInfo), default=())


@message
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)
    results: tuple[DescribeUserScramCredentialsResult, ...] = wire(
        Array(DescribeUserScramCredentialsResult), default=()
    )


@message
class UserName:
    """A user asked for."""

    name: str = wire(STRING)


@request(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, versions=(0,), flexible_since=0)
class DescribeUserScramCredentialsRequest(Request[DescribeUserScramCredentialsResponse]):
    """To any broker; no ``users`` asks for all."""

    users: tuple[UserName, ...] | None = wire(Array(UserName), nullable_since=0)

    def least_broker(self) -> str:
        return "2.7"


@message
class AlterUserScramCredentialsResult:
    """One user's outcome: all of its changes are made, or none."""

    user: str = wire(STRING)
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, default=None, nullable_since=0)


@message
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[AlterUserScramCredentialsResult, ...] = wire(Array(AlterUserScramCredentialsResult))


@message
class ScramCredentialDeletion:
    """A mechanism that the user may log in with no more."""

    name: str = wire(STRING)
    mechanism: int = wire(INT8)


@message
class ScramCredentialUpsertion:
    """A mechanism and its salted password; the password itself is not sent."""

    name: str = wire(STRING)
    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)
    salt: bytes = wire(BYTES)
    salted_password: bytes = wire(BYTES)

    def __repr__(self) -> str:
        # The salted password is enough to log in, and a request may be shown in an error or a log.
        return f"ScramCredentialUpsertion(name={self.name!r}, mechanism={self.mechanism}, salted_password=<not shown>)"


@request(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, versions=(0,), flexible_since=0)
class AlterUserScramCredentialsRequest(Request[AlterUserScramCredentialsResponse]):
    """To the controller."""

    deletions: tuple[ScramCredentialDeletion, ...] = wire(Array(ScramCredentialDeletion), default=())
    upsertions: tuple[ScramCredentialUpsertion, ...] = wire(Array(ScramCredentialUpsertion), default=())

    def least_broker(self) -> str:
        return "2.7"
