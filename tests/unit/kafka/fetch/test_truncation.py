"""Whether a leader's log still holds what was read, and from where reading can go on."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streamlet.kafka.fetch.truncation import LeaderEpochs, LogRelation, judge_position


def test_a_position_holds_when_nothing_speaks_against_it() -> None:
    assert judge_position(10).holds
    assert judge_position(10, log_start=10, log_end=10, epoch_end=10).holds
    assert judge_position(10, epoch_end=99).resume_at == 10


def test_each_loss_is_named_with_its_place_and_its_range() -> None:
    for given_, finding, resume_at, lost in (
        ({"log_start": 12, "log_end": 20}, LogRelation.BELOW_START, 12, (10, 12)),
        ({"log_start": 0, "log_end": 8}, LogRelation.AHEAD_OF_END, 8, (8, 10)),
        ({"epoch_end": 7}, LogRelation.DIVERGED, 7, (7, 10)),
        ({"log_start": 9, "log_end": 20, "epoch_end": 7}, LogRelation.DIVERGED, 9, (7, 10)),
        ({"epoch_end": -1}, LogRelation.NO_COMMON_EPOCH, None, None),
    ):
        verdict = judge_position(10, **given_)
        assert (verdict.finding, verdict.resume_at, verdict.lost) == (finding, resume_at, lost)


def test_another_topics_offsets_mean_nothing_and_its_start_is_read() -> None:
    verdict = judge_position(10, log_start=0, log_end=5, epoch_end=7, same_topic=False)
    assert (verdict.finding, verdict.resume_at, verdict.lost) == (LogRelation.TOPIC_RECREATED, 0, None)


def test_the_start_counts_before_epochs_and_epochs_before_the_end() -> None:
    assert judge_position(10, log_start=12, log_end=20, epoch_end=7).finding is LogRelation.BELOW_START
    assert judge_position(10, log_start=0, log_end=8, epoch_end=-1).finding is LogRelation.NO_COMMON_EPOCH
    cut_and_written_again = judge_position(10, log_start=0, log_end=8, epoch_end=6)
    assert (cut_and_written_again.finding, cut_and_written_again.resume_at) == (LogRelation.DIVERGED, 6)
    assert cut_and_written_again.lost == (6, 10)
    assert judge_position(10, log_start=0, log_end=8, epoch_end=8).finding is LogRelation.AHEAD_OF_END


@given(st.lists(st.tuples(st.integers(1, 5), st.integers(0, 3)), min_size=1), st.data())
def test_the_epoch_before_an_offset_is_that_of_the_record_there(
    batches: list[tuple[int, int]], data: st.DataObject
) -> None:
    """Batches of some length, each of an epoch that never falls; against a list of one epoch for each record."""
    epochs, records, epoch = LeaderEpochs(), [], 0
    for length, step in batches:
        epoch += step
        epochs.note(len(records), epoch)
        records += [epoch] * length
    assert epochs.latest == epoch
    floor = data.draw(st.integers(0, len(records)))
    epochs.forget_below(floor)
    for offset in range(max(floor, 1), len(records) + 1):
        assert epochs.before(offset) == records[offset - 1]


def test_nothing_is_known_before_the_first_entry_and_a_restart_forgets_the_rest() -> None:
    epochs = LeaderEpochs()
    assert (epochs.latest, epochs.before(5)) == (None, -1)
    epochs.note(0, 1)
    epochs.restart(9, 4)
    assert (epochs.latest, epochs.before(9), epochs.before(10)) == (4, -1, 4)
