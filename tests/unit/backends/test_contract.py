"""Stop: asked once it drains, asked twice it kills everything."""

from streamlet.backends.contract import Stop


def test_a_stop_that_was_asked_for_is_seen() -> None:
    stop = Stop()
    assert not stop.asked
    stop.ask()
    assert stop.asked


def test_kill_goes_on_after_a_process_that_is_gone_already() -> None:
    stop = Stop()
    killed = []

    def gone() -> None:
        raise ProcessLookupError

    stop.on_kill(gone)
    stop.on_kill(lambda: killed.append(1))
    stop.kill()
    assert stop.asked and killed == [1]
