"""Each module of the package has a test file of its name, or a line here that says which file holds it."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tests.docs.pages import ROOT

TESTS = ROOT / "tests"
RUNGS = ("unit", "scripted")

DECLARATIONS = {
    "base/errors",
    "components/bolt",
    "components/epoch_tuples",
    "components/spout",
    "devcluster/errors",
    "kafka/broker_errors",
    "kafka/consumer/errors",
    "kafka/consumer/metrics",
    "kafka/consumer/records",
    "kafka/producer/errors",
    "model/grouping",
    "model/spec",
    "model/stream",
    "runtime/supervision/instructions",
    "runtime/supervision/worker_states",
    "spouts/kafka/errors",
    "spouts/kafka/stores/offset_store",
    "topology",
}
"""Modules that only declare: types, errors, constants, abstract methods."""

HELD_BY = {
    "conformance/test_node_store.py": ["coordination/node_store"],
    "docs/test_docs_command.py": ["cli/docs"],
    "real/bolts/kafka/test_exactly_once.py": ["kafka/producer/transaction_steps"],
    "real/cli/test_dev_topics.py": ["cli/dev_produce", "cli/dev_topics"],
    "real/cli/test_dlq.py": ["cli/dlq"],
    "real/cli/test_offsets.py": ["cli/offsets"],
    "real/devcluster/test_dev_cluster.py": ["devcluster/dev_cluster", "devcluster/members", "devcluster/tools"],
    "real/kafka/settings/test_security.py": ["kafka/net/tls"],
    "real/spark/test_parts.py": ["spark/parts"],
    "scripted/cli/test_runs.py": ["backends/command_listener", "backends/living_runs"],
    "scripted/backends/spark/test_launcher.py": ["backends/spark/jobs"],
    "unit/model/test_validate.py": ["model/bolt_numbers"],
    "scripted/bolts/test_concurrent.py": ["components/default_anchors"],
    "scripted/bolts/dataframe/test_sink.py": ["bolts/dataframe/row_batches"],
    "scripted/cli/test_early_interrupt.py": ["base/early_interrupt"],
    "scripted/spouts/dataframe/test_spout.py": ["spouts/dataframe/part_folder", "spouts/dataframe/part_reader"],
    "scripted/kafka/consumer/test_group_thread.py": ["kafka/consumer/classic_group"],
    "scripted/cli/test_dev.py": ["devcluster/machine", "devcluster/resident"],
    "scripted/devcluster/test_jars.py": ["devcluster/installation"],
    "scripted/devcluster/test_jvm.py": ["devcluster/keeper"],
    "scripted/bolts/kafka/test_shared_producer.py": ["kafka/producer/topic_wait"],
    "scripted/spouts/kafka/test_truncation.py": ["spouts/kafka/epoch_ends"],
    "unit/spouts/kafka/dead_letters/test_dead_letter_writer.py": ["spouts/kafka/dead_letters/letter_lines"],
    "unit/spouts/kafka/test_exactly_once.py": ["spouts/kafka/dead_letters/epoch_letters"],
    "unit/spouts/kafka/test_spout_fetcher.py": ["spouts/kafka/read_sources"],
    "unit/spouts/kafka/schemes/test_avro_scheme.py": [
        "spouts/kafka/schemes/avro_defaults",
        "spouts/kafka/schemes/avro_nesting",
    ],
    "unit/kafka/protocol/test_messages.py": [
        f"kafka/protocol/messages/{theme}"
        for theme in (
            *("api_versions_and_sasl", "configs", "fetch", "groups", "metadata", "offsets", "produce", "topics"),
            *("transactions", "acls", "replicas", "scram_users"),
        )
    ],
    "unit/spark/applying/test_chain.py": ["spark/applying/applied_bolt"],
    "unit/spark/applying/test_shipping.py": ["spark/zips"],
    "unit/kafka/settings/test_foreign_calls.py": ["kafka/structs"],
    "unit/kafka/test_names.py": ["base/names_on_demand"],
}
"""Test file -> the modules that it holds besides its own."""


def modules() -> set[str]:
    """Return the modules that do something, as paths below ``streamlet/``."""
    paths = (path.relative_to(ROOT / "streamlet") for path in (ROOT / "streamlet").rglob("*.py"))
    return {str(path.with_suffix("")) for path in paths if path.name not in ("__init__.py", "__main__.py")}


def has_its_own(module: str) -> bool:
    """Say whether a test file of the module's name stands at its place below a rung."""
    path = Path(module)
    return any((TESTS / rung / path.with_name(f"test_{path.name}.py")).is_file() for rung in RUNGS)


def test_each_module_has_a_test_file_of_its_name_or_a_line_here() -> None:
    told = DECLARATIONS | {module for held in HELD_BY.values() for module in held}
    missing = sorted(module for module in modules() - told if not has_its_own(module))
    assert missing == [], "write tests/unit/.../test_NAME.py, or say in HELD_BY which file holds it"


def test_the_list_of_those_without_holds_no_line_too_many() -> None:
    """Its files and modules exist, and no module has a file of its own by now."""
    assert [file for file in HELD_BY if not (TESTS / file).is_file()] == []
    told = DECLARATIONS | {module for held in HELD_BY.values() for module in held}
    assert sorted(told - modules()) == []
    assert sorted(module for module in told if has_its_own(module)) == []


def calls(body: ast.AST) -> set[str]:
    """Return the names of the functions that a test calls."""
    return {node.func.id for node in ast.walk(body) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}


def test_two_tests_of_one_name_share_one_body() -> None:
    """One rule against a scripted and a real far end; other tests have names of their own."""
    shared = {node.name for node in ast.parse((TESTS / "far_ends.py").read_text()).body if hasattr(node, "name")}
    found: dict[str, list[set[str]]] = defaultdict(list)
    for path in TESTS.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                found[node.name].append(calls(node))
    apart = [name for name, bodies in found.items() if len(bodies) > 1 and not set.intersection(shared, *bodies)]
    assert apart == []


def unordered(source: str) -> list[int]:
    """Return the lines that make a producer of librdkafka's which may write a batch behind later ones."""
    tree = ast.parse(source)
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "confluent_kafka"]
    own = {name.asname or name.name for node in imports for name in node.names if name.name == "Producer"}
    told = ("enable.idempotence", "transactional.id")
    found = []
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        calls = [node for node in ast.walk(function) if isinstance(node, ast.Call)]
        # Ours takes names alone, theirs a dictionary.
        made = [call for call in calls if call.args and ast.unparse(call.func) in own | {"confluent_kafka.Producer"}]
        if not any(name in ast.unparse(function) for name in told):
            found += [call.lineno for call in made]
    return found


def test_what_is_written_through_librdkafka_keeps_its_order() -> None:
    """As an idempotent producer writes it; figures and golden files take librdkafka as it comes."""
    # Rule: a producer that is not idempotent sends a refused batch again behind its successors, and the leader of a
    # new topic refuses the first one now and then: records 0 to 7 stood last, and the reader was blamed.
    files = sorted(file for file in TESTS.rglob("*.py") if not {"benchmarks", "golden"} & set(file.parts))
    theirs = {file: text for file in files if "confluent_kafka" in (text := file.read_text())}
    assert [f"{file.relative_to(ROOT)}:{line}" for file, text in theirs.items() for line in unordered(text)] == []
    careless = "from confluent_kafka import Producer as Theirs\ndef write():\n    Theirs({'linger.ms': 5})\n"
    assert unordered(careless) == [3]
    assert unordered(careless.replace("5}", "5, 'enable.idempotence': True}")) == []
