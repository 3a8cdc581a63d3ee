"""The control protocol's encoded form: a message is the same bytes as ever, and comes back as the same value."""

from __future__ import annotations

import pytest

from streamlet.runtime.links.wire import pack, unpack
from streamlet.runtime.worker.messages import (
    FROM_COORDINATOR,
    FROM_WORKER,
    BadMessage,
    Beat,
    Book,
    Close,
    Complaint,
    Cut,
    Event,
    Exchanged,
    Failed,
    FromCoordinator,
    Initialized,
    Linked,
    LinkLost,
    Lost,
    Message,
    Pause,
    Paused,
    Quiet,
    Ready,
    State,
    Stopped,
    TickNow,
    Unfit,
    Unlinked,
    Whole,
    WorkerPlan,
    encode,
    from_coordinator,
)

PLAN = WorkerPlan(
    began=False,
    worker=1,
    epoch=2,
    workers=3,
    file="/srv/count.py",
    attribute="Count",
    fingerprint="ab12",
    conf={"topology.workers": None, "streamlet.worker.heartbeat.secs": 1.0},
    overrides={"lines": {"topic": "t"}},
    run_id=b"r" * 16,
    secret=b"s" * 4,
    listen_host="",
    folder="/tmp/slt-1",
    heartbeat_s=1.0,
    debug=False,
    keeps_log=True,
    page="",
    careful=[3],
    careful_s=120.0,
    crashes={1: {b"k": 2}},
    modules={"count": ["/srv/count.py", "module"]},
    files={"/srv/count.py": "ab12"},
    roots=["/srv"],
    links={"/srv": "/data/srv"},
    elsewhere=["os"],
    kept_s=1.5,
    compiled={"/srv/z.zip": "cd34"},
    edited=["/srv/count.py"],
    code_folder="/tmp/slt-1/code",
    build="c0de",
    certificate=b"c",
)
DOWN: list[tuple[FromCoordinator, str]] = [
    (
        PLAN,
        "de0022a174a4706c616ea6776f726b657201a565706f636802a7776f726b65727303a466696c65ad2f7372762f636f756e742e7079a9"
        "617474726962757465a5436f756e74ab66696e6765727072696e74a461623132a4636f6e6682b0746f706f6c6f67792e776f726b6572"
        "73c0bf73747265616d6c65742e776f726b65722e6865617274626561742e73656373cb3ff0000000000000a96f766572726964657381"
        "a56c696e657381a5746f706963a174a672756e5f6964c41072727272727272727272727272727272ab6c697374656e5f686f7374a0ab"
        "6865617274626561745f73cb3ff0000000000000a470616765a0a76361726566756c9103a96361726566756c5f73cb405e0000000000"
        "00a763726173686573810181c4016b02a5626567616ec2a56465627567c2a96b656570735f6c6f67c3ab636f64655f666f6c646572af"
        "2f746d702f736c742d312f636f6465a6666f6c646572aa2f746d702f736c742d31a6736563726574c40473737373a76d6f64756c6573"
        "81a5636f756e7492ad2f7372762f636f756e742e7079a66d6f64756c65a566696c657381ad2f7372762f636f756e742e7079a4616231"
        "32a5726f6f747391a42f737276a56c696e6b7381a42f737276a92f646174612f737276a9656c7365776865726591a26f73a66b657074"
        "5f73cb3ff8000000000000a8636f6d70696c656481aa2f7372762f7a2e7a6970a463643334a665646974656491ad2f7372762f636f75"
        "6e742e7079a56275696c64a463306465ab6365727469666963617465c40163a4686f7374a0a86578656375746f72a0",
    ),
    (
        Book(7, {0: [1, "unix", "/tmp/w0.1", 0], 1: [2, "tcp", "10.0.0.1", 4242]}),
        "83a174a4626f6f6ba776657273696f6e07a7776f726b65727382009401a4756e6978a92f746d702f77302e3100019402a3746370a831"
        "302e302e302e31cd1092",
    ),
    (Whole(7), "82a174a577686f6c65a776657273696f6e07"),
    (Pause([1]), "82a174a57061757365a4676f6e659101"),
    (
        Lost(1, 2, "died", [1 << 48], [3], 120.0),
        "87a174a46c6f7374a6776f726b657201a565706f636802a3686f77a464696564a5726f6f747391cf0001000000000000a76361726566"
        "756c9103a96361726566756c5f73cb405e000000000000",
    ),
    (Cut([0, 1], 8), "83a174a3637574a470616972920001a776657273696f6e08"),
    (Paused([["lines", "clicks", 3]]), "82a174a6706175736564a570617274739193a56c696e6573a6636c69636b7303"),
    (TickNow(), "81a174a87469636b5f6e6f77"),
    (Quiet(1), "82a174a57175696574a47374657001"),
    (Close(True), "83a174a473746f70a5636c65616ec3a7736574746c6564c2"),
]
UP: list[tuple[Message, str]] = [
    (
        Ready(["unix", "/tmp/w0.1", 0], 77, "node1", "3"),
        "85a174a57265616479a76164647265737393a4756e6978a92f746d702f77302e3100a37069644da4686f7374a56e6f646531a8657865"
        "6375746f72a133",
    ),
    (Initialized(), "81a174ab696e697469616c697a6564"),
    (Linked(7), "82a174a66c696e6b6564a776657273696f6e07"),
    (Unlinked(0, "no"), "83a174a8756e6c696e6b6564a6776f726b657200a3776879a26e6f"),
    (
        Beat(
            {1: {"emitted": 3}},
            [{"topic": "t"}],
            4,
            5,
            "count",
            done={2: 9},
            emitted={2: 10},
            handed={1: 7},
            sent={2: 9},
            lost={"slow": 2},
        ),
        "8ea174a462656174a57461736b73810181a7656d697474656403aa706172746974696f6e739181a5746f706963a174a770656e64696e"
        "6704aa756e66696e697368656405ac696e697469616c697a696e67a5636f756e74a768616e67696e6790a6776169745f73cb00000000"
        "00000000a663616c6c5f73cb0000000000000000a4646f6e65810209a7656d697474656481020aa668616e646564810107a473656e74"
        "810209a46c6f737481a4736c6f7702",
    ),
    (
        State(True, False, True, ({1: 4}, {})),
        "87a174a57374617465a7647261696e6564c3a96361756768745f7570c2a4646f6e65c3a7747261666669639281010480a469646c65c2"
        "a5717569657400",
    ),
    (
        State(False, False, True, None, True, 1),
        "87a174a57374617465a7647261696e6564c2a96361756768745f7570c2a4646f6e65c3a774726166666963c0a469646c65c3a5717569"
        "657401",
    ),
    (
        Exchanged(1, 3, {2: 9}, {1: 4}),
        "85a174a965786368616e676564a6776f726b657201a565706f636803a473656e74810209a472656164810104",
    ),
    (
        Unfit("no", 2, [7], "[1]"),
        "85a174a5756e666974a3776879a26e6fa47461736b02a5726f6f74739107a676616c756573a35b315d",
    ),
    (
        Event("info", "there", 1_700_000_000.25, "streamlet.component.count", "count", 3, "tb", True),
        "8aa174a56576656e74a56c6576656ca4696e666fa474657874a57468657265a674696d655f73cb41d954fc40100000a66c6f67676572"
        "b973747265616d6c65742e636f6d706f6e656e742e636f756e74a9636f6d706f6e656e74a5636f756e74a47461736b03a57472616365"
        "a27462a77072696e746564c3a86c6566745f6f757400",
    ),
    (Complaint("it raised"), "82a174a9636f6d706c61696e74a474657874a9697420726169736564"),
    (
        LinkLost(1, 1, 2, "the peer closed it"),
        "85a174a96c696e6b5f6c6f7374a6776f726b657201a565706f636801a776657273696f6e02a3776879b2746865207065657220636c6f"
        "736564206974",
    ),
    (
        Failed("no", 1, "tb", False),
        "86a174a66661696c6564a76d657373616765a26e6fa673746174757301a57472616365a27462a9726574726961626c65c2a6647261696e73c2",
    ),
    (
        Stopped(["ValueError: no"], {"slow": 2}, [], {7: 3}, {1: {2: 3}}),
        "86a174a773746f70706564a66572726f727391ae56616c75654572726f723a206e6fa46c65667481a4736c6f7702a674726163657390"
        "a473656e74810703a4726561648101810203",
    ),
]


@pytest.mark.parametrize(("message", "recorded"), [*DOWN, *UP], ids=lambda value: type(value).__name__)
def test_a_message_is_the_bytes_that_were_recorded(message: Message, recorded: str) -> None:
    assert pack(encode(message)).hex() == recorded


def test_each_kind_is_recorded() -> None:
    assert {type(message) for message, _ in DOWN} == set(FROM_COORDINATOR.values())
    assert {type(message) for message, _ in UP} == set(FROM_WORKER.values())


@pytest.mark.parametrize(("message", "recorded"), DOWN, ids=lambda value: type(value).__name__)
def test_a_coordinators_message_comes_back_as_it_was(message: FromCoordinator, recorded: str) -> None:
    assert from_coordinator(unpack(bytes.fromhex(recorded))) == message


@pytest.mark.parametrize(("message", "recorded"), DOWN, ids=lambda value: type(value).__name__)
def test_a_coordinators_message_of_another_shape_is_refused(message: FromCoordinator, recorded: str) -> None:
    raw = unpack(bytes.fromhex(recorded))
    for name in set(raw) - {"t"}:
        with pytest.raises(BadMessage, match=name):
            from_coordinator({**raw, name: object()})
        with pytest.raises(BadMessage, match=name):
            from_coordinator({key: value for key, value in raw.items() if key != name})
    with pytest.raises(BadMessage, match="no such"):
        from_coordinator({**raw, "t": "no such"})
