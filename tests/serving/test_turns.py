"""Engines take turns in the order in which they ask."""

from __future__ import annotations

import threading
import time

from localspec.serving.turns import Turns


def test_who_waits_longest_is_next() -> None:
    turns, order = Turns(), []
    started = threading.Event()

    def work(number: int) -> None:
        started.set()
        with turns:
            order.append(number)

    with turns:
        threads = []
        for number in range(5):
            started.clear()
            thread = threading.Thread(target=work, args=(number,))
            thread.start()
            threads.append(thread)
            started.wait()
            while len(turns._waiting) <= number:
                time.sleep(0.001)
        assert order == []
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3, 4]


def test_nobody_starves_beside_one_who_never_rests() -> None:
    turns, stop = Turns(), threading.Event()

    def busy() -> None:
        while not stop.is_set():
            with turns:
                pass

    thread = threading.Thread(target=busy)
    thread.start()
    for _ in range(50):
        with turns:
            pass
    stop.set()
    thread.join()
