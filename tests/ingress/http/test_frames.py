"""Messages on a socket."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from tidegate.ingress.http.frames import FrameDecoder, frame


@given(
    st.lists(st.tuples(st.integers(0, 2**64 - 1), st.binary(max_size=50)), max_size=6), st.lists(st.integers(0, 400))
)
def test_messages_arrive_however_they_are_cut(messages: list[tuple[int, bytes]], cuts: list[int]) -> None:
    data = b"".join(frame(number, payload) for number, payload in messages)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    frames = FrameDecoder()
    pieces = [data[begin:end] for begin, end in itertools.pairwise(places)]
    assert [message for piece in pieces for message in frames.feed(piece)] == messages
