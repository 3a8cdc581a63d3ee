"""ACLs: what is one, what finds them, and what answers say. Pure."""

from __future__ import annotations

import pytest

from streamlet.base.errors import BadInput
from streamlet.kafka import broker_errors as e
from streamlet.kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AclResourceType,
    PatternType,
    acls,
)
from streamlet.kafka.admin.errors import AdminError, admin_error
from streamlet.kafka.errors import KafkaError
from streamlet.kafka.protocol.messages import acls as wire

READ = AclBinding(AclResourceType.TOPIC, "lines", "User:alice", AclOperation.READ)
NEVER = AclBinding(
    AclResourceType.GROUP,
    "team-",
    "User:bob",
    AclOperation.ALL,
    AclPermissionType.DENY,
    "10.0.0.1",
    PatternType.PREFIXED,
)


def test_a_rule_reads_as_a_sentence() -> None:
    assert str(READ) == "ALLOW User:alice READ on TOPIC lines"
    assert str(NEVER) == "DENY User:bob ALL on GROUP team-* from 10.0.0.1"
    assert str(AclBindingFilter()) == "all ACLs"
    assert str(AclBindingFilter(AclResourceType.TOPIC, host="*")) == "ACLs with resource_type=TOPIC, host=*"


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (AclBinding(AclResourceType.TOPIC, "", "User:alice", AclOperation.READ), "resource_name = '' must be"),
        (AclBinding(AclResourceType.TOPIC, "t", "alice", AclOperation.READ), "no type: write 'User:alice'"),
        (AclBinding(AclResourceType.TOPIC, "t", "User:a", AclOperation.READ, host=""), "host = '' must be"),
        (AclBinding(AclResourceType.ANY, "t", "User:a", AclOperation.READ), "resource_type = ANY is for filters"),
        (AclBinding(AclResourceType.TOPIC, "t", "User:a", AclOperation.UNKNOWN), "operation = UNKNOWN is for filters"),
        (
            AclBinding(AclResourceType.TOPIC, "t", "User:a", AclOperation.READ, pattern_type=PatternType.MATCH),
            "pattern_type = MATCH is for filters",
        ),
    ],
)
def test_what_can_be_no_rule_is_refused_before_it_is_sent(rule: AclBinding, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        acls.bindings_of([READ, rule])


def test_plain_numbers_and_texts_are_no_kinds() -> None:
    with pytest.raises(BadInput, match=r"operation = 'READ' must be one of AclOperation\.ALL, AclOperation\.READ"):
        AclBinding(AclResourceType.TOPIC, "t", "User:a", "READ")  # type: ignore[arg-type]
    with pytest.raises(BadInput, match=r"AclBindingFilter: resource_type = 2 must be one of AclResourceType\.TOPIC"):
        AclBindingFilter(2)  # type: ignore[arg-type]
    with pytest.raises(BadInput, match="principal = '' must be a string, or None"):
        AclBindingFilter(principal="")
    for wrong in ("alice", 5, ["alice"]):
        with pytest.raises(BadInput, match="AclBindingFilter"):
            acls.filters_of(wrong)  # type: ignore[arg-type]


def test_a_rule_is_a_filter_for_itself_and_twice_is_once() -> None:
    (found,) = acls.filters_of([NEVER, NEVER])
    request = acls.delete_request([found])
    assert request.filters == (
        wire.DeleteAclsFilter(
            resource_type_filter=3,
            resource_name_filter="team-",
            pattern_type_filter=4,
            principal_filter="User:bob",
            host_filter="10.0.0.1",
            operation=2,
            permission_type=2,
        ),
    )
    assert len(acls.bindings_of([READ, READ])) == 1


def test_an_answer_has_rules_in_one_order_and_kinds_newer_than_this_client_are_unknown() -> None:
    row = wire.AclDescription(principal="User:z", host="*", operation=99, permission_type=3)
    other = wire.AclDescription(principal="odd", host="*", operation=3, permission_type=3)
    place = wire.DescribeAclsResource(resource_type=2, resource_name="t", pattern_type=3, acls=(row, other))
    found, fault = acls.read_described(wire.DescribeAclsResponse(resources=(place,)))
    assert fault is None
    assert [(one.principal, one.operation) for one in found] == [("User:z", AclOperation.UNKNOWN), ("odd", 3)]
    _, fault = acls.read_described(wire.DescribeAclsResponse(error_code=54, error_message="No Authorizer."))
    assert isinstance(fault, e.SecurityDisabled) and "authorizer.class.name" in fault.message


def test_each_rule_and_each_filter_has_an_outcome_of_its_own() -> None:
    """Answers are in the order of the requests; a rule that stayed is its filter's error."""
    results = (wire.AclCreationResult(error_code=0), wire.AclCreationResult(error_code=31, error_message="no"))
    told = acls.read_created([READ, NEVER], wire.CreateAclsResponse(results=results))
    assert list(told.results) == [READ] and "Creating DENY User:bob" in told.errors[NEVER].message
    told = acls.read_created([READ, NEVER], wire.CreateAclsResponse(results=results[:1]))
    assert list(told.results) == [READ] and not told.errors  # `Rounds` names what got no answer

    wanted = [AclBindingFilter(principal="User:a"), AclBindingFilter(host="1.2.3.4"), AclBindingFilter(host="5.6.7.8")]
    rows = (
        wire.DeleteAclsFilterResult(error_code=0, matching_acls=(match(0, "t"), match(-1, "u"))),
        wire.DeleteAclsFilterResult(error_code=0, matching_acls=(match(0, "u"), match(0, "t"))),
        wire.DeleteAclsFilterResult(error_code=42, error_message="odd"),
    )
    gone = acls.read_deleted(wanted, wire.DeleteAclsResponse(filter_results=rows), {})
    assert [one.resource_name for one in gone.results[wanted[1]]] == ["t", "u"]
    assert "Deleting ACLs with host=5.6.7.8" in gone.errors[wanted[2]].message
    assert not isinstance(gone.errors[wanted[2]], AdminError)


def match(code: int, name: str) -> wire.DeleteAclsMatchingAcl:
    return wire.DeleteAclsMatchingAcl(
        error_code=code,
        resource_type=2,
        resource_name=name,
        pattern_type=3,
        principal="User:a",
        host="*",
        operation=3,
        permission_type=3,
    )


def test_of_rules_that_stayed_and_rules_that_are_gone_each_is_told() -> None:
    """What is gone can be found by nobody any more. A later try of the call adds to it."""
    wanted, deleted = AclBindingFilter(principal="User:a"), dict[AclBindingFilter, set[AclBinding]]()

    def read(code: int, *matches: wire.DeleteAclsMatchingAcl) -> KafkaError:
        row = wire.DeleteAclsFilterResult(error_code=code, error_message="busy", matching_acls=matches)
        return acls.read_deleted([wanted], wire.DeleteAclsResponse(filter_results=(row,)), deleted).errors[wanted]

    partly = read(0, match(0, "t"), match(7, "u"), match(7, "v"))
    assert isinstance(partly, AdminError) and isinstance(partly, e.BrokerRequestTimedOut) and partly.retriable
    assert [one.resource_name for one in partly.errors] == ["u", "v"]
    assert [one.resource_name for one in partly.results] == ["t"]
    again = read(0, match(0, "u"), match(31, "v"))
    assert isinstance(again, AdminError) and [one.resource_name for one in again.errors] == ["v"]
    assert [one.resource_name for one in again.results] == ["t", "u"]
    refused = read(31)
    assert isinstance(refused, AdminError) and list(refused.errors) == [wanted] and len(refused.results) == 2
    whole = admin_error({wanted: again}, {})
    assert isinstance(whole, e.ClusterAuthorizationFailed) and whole.errors[wanted] is again
    assert whole.message.startswith("ACLs with principal=User:a: 1 of 3 failed; the others succeeded. Deleting ALLOW")
