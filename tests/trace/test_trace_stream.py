import gzip
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import toy_traces as toy
from scalewise.errors import InputError
from scalewise.trace import stream as module
from scalewise.trace.stream import EventStream, scan


def read(path):
    """(events, stream) of a file."""
    stream = EventStream(path)
    return [event for batch in stream for event in batch], stream


def saved(tmp_path, content, name="t.json"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


AWKWARD = [
    toy.kernel(1, 2, name='quote \\" brace }, { end'),
    toy.kernel(3, 4, name="tail slash \\"),
    toy.kernel(5, 6, extra=[{"a": 1}, {"b": [{"c": "}]"}, {"d": {}}]}]),
    {"args": {"x": {"y": {}}}, "dur": 8.5, "ts": 7.25, "tid": 7, "pid": 0, "name": "keys",
     "cat": "kernel", "ph": "X"},
    {"ph": "M", "name": "process_name", "pid": "Spans", "tid": 0, "args": {"name": "x"}},
    {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 9.0},
    toy.kernel(9, 1, name="caf\u00e9 \u2603 \U0001f600"),
]  # fmt: skip


@pytest.mark.parametrize("piece", [1, 2, 3, 7, 64, 1000, 1 << 20])
@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("ending", [".json", ".json.gz"])
def test_every_event_once_however_it_is_cut_into_pieces(
    tmp_path, monkeypatch, piece, indent, ending
):
    monkeypatch.setattr(module, "PIECE", piece)
    written = {"a": [{"b": 1}, {"b": 2}], "traceEvents": AWKWARD, "z": [{"c": 3}, {"c": 4}]}
    content = json.dumps(written, indent=indent).encode()
    path = saved(tmp_path, gzip.compress(content, mtime=0) if ending.endswith("gz") else content)
    found, stream = read(path)
    assert [event.name for event in found] == [event["name"] for event in AWKWARD]
    assert [event.ts for event in found] == [event.get("ts") for event in AWKWARD]
    assert stream.meta == {"a": [{"b": 1}, {"b": 2}], "z": [{"c": 3}, {"c": 4}]}
    assert (stream.events, stream.cut, stream.damaged) == (7, None, 0)


def test_events_before_their_description(tmp_path):
    path = saved(tmp_path, '{"traceEvents":[{"ph":"X"}],"distributedInfo":{"rank":3}}')
    found, stream = read(path)
    assert len(found) == 1
    assert stream.meta == {"distributedInfo": {"rank": 3}}


def test_a_list_of_that_name_deeper_down_is_not_it(tmp_path):
    text = '{"old": {"traceEvents": [{"name": "no"}]}, "s": "\\"traceEvents\\": [", '
    found, stream = read(saved(tmp_path, text + '"traceEvents": [{"name": "yes"}]}'))
    assert [event.name for event in found] == ["yes"]
    assert set(stream.meta) == {"old", "s"}


def test_bare_list_and_byte_order_mark(tmp_path):
    found, stream = read(saved(tmp_path, b'\xef\xbb\xbf [{"name": "a"}, {"name": "b"}]\n'))
    assert [event.name for event in found] == ["a", "b"]
    assert stream.cut is None


def test_what_profilers_get_wrong_is_mended(tmp_path):
    events = (
        b'{"name": "a", "args": {"GB/s": inf}}, {"name": "b", "args": {"x": [nan, -inf]}},'
        b'{"name": "c\xff", "args": {}}, {"name": "d: nan"}'
    )
    found, stream = read(saved(tmp_path, b'{"traceEvents": [' + events + b"]}"))
    assert [event.name for event in found] == ["a", "b", "c\ufffd", "d: nan"]
    assert (stream.damaged, stream.cut) == (0, None)
    found, stream = read(
        saved(tmp_path, b'{"host": "\xfe", "f": nan, "traceEvents": [{}], "g": inf}')
    )
    assert len(found) == 1
    assert stream.meta == {"host": "\ufffd", "f": None, "g": None}


def test_events_with_other_types_say_nothing_but_count(tmp_path):
    events = '{"name": "a", "ts": "soon"}, {"name": "b", "pid": [1]}, {"name": "c", "ts": 1}'
    found, stream = read(saved(tmp_path, f'{{"traceEvents": [{events}, {{"name": "d"}}]}}'))
    assert [event.name for event in found] == ["", "", "c", "d"]
    assert stream.events == 4


def test_a_damaged_event_is_counted(tmp_path):
    text = '{"traceEvents": [{"name": "a"}, {"name" "b"}, {"name": "c"}]}'
    found, stream = read(saved(tmp_path, text))
    assert [event.name for event in found] == ["a", "c"]
    assert stream.damaged == 1


def test_brackets_that_close_too_often_end_it(tmp_path):
    found, stream = read(saved(tmp_path, '{"traceEvents": [{"name": "a"}}, {"name": "b"}]}'))
    assert [event.name for event in found] == ["a"]
    assert stream.cut == "it is damaged in the middle"


WHOLE = toy.text(AWKWARD, note={"k": "v"}).encode()


@pytest.mark.parametrize("piece", [16, 1 << 20])
def test_a_file_cut_anywhere_gives_the_events_before_the_cut(tmp_path, monkeypatch, piece):
    monkeypatch.setattr(module, "PIECE", piece)
    ends = [last for _, last in scan(WHOLE, WHOLE.index(b"[", WHOLE.index(b"traceEvents")) + 1)[0]]
    assert len(ends) == 7
    path = tmp_path / "t.json"
    first = WHOLE.index(b"[") + 1
    for length in range(1, len(WHOLE), 5):
        path.write_bytes(WHOLE[:length])
        if length < first:
            with pytest.raises(InputError, match="is no profiler trace"):
                read(path)
            continue
        found, stream = read(path)
        assert len(found) == sum(end <= length for end in ends), length
        assert stream.cut is not None


def test_a_cut_or_damaged_gzip_file_gives_what_came_before(tmp_path):
    events = [toy.kernel(10 * n, 5, External=n * 7919 % 1000) for n in range(20_000)]
    packed = gzip.compress(toy.text(events).encode())
    found, stream = read(saved(tmp_path, packed[: len(packed) // 2]))
    assert 9_000 < len(found) < 11_000
    assert stream.cut == "its compressed data ends early"
    broken = bytearray(packed)
    broken[len(packed) // 2 : len(packed) // 2 + 50] = b"\xff" * 50
    found, stream = read(saved(tmp_path, bytes(broken)))
    assert 0 < len(found) < 11_000
    assert stream.cut in ("its compressed data is damaged", "it is damaged in the middle")
    found, stream = read(saved(tmp_path, packed[:-4]))
    assert len(found) == 20_000
    assert stream.cut == "its compressed data ends early"


def test_gzip_gives_its_last_byte_wherever_pieces_end(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PIECE", 64)
    for blanks in range(150):
        content = toy.text(toy.hundred()).encode() + b" " * (blanks + 5000)
        found, stream = read(saved(tmp_path, gzip.compress(content, mtime=0)))
        assert (len(found), stream.cut) == (5, None), blanks


def test_gzip_in_several_members_and_by_any_name(tmp_path):
    half = len(WHOLE) // 2
    packed = gzip.compress(WHOLE[:half], mtime=0) + gzip.compress(WHOLE[half:]) + b"\0" * 100
    found, stream = read(saved(tmp_path, packed, "no-ending"))
    assert len(found) == 7
    assert stream.cut is None


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "it is empty"),
        (b" \n ", "it is empty"),
        (gzip.compress(b"", mtime=0), "it is empty"),
        (
            gzip.compress(WHOLE, mtime=0)[:12],
            "its compressed data ends early, before the first event",
        ),
        (b"hello", "it is not JSON"),
        (b"\x00\x01\x02", "it is not JSON"),
        (b"{}", "without a list `traceEvents` (it has nothing)"),
        (b'{"a": 1, "b": {"traceEvents": [{}]}}', "(it has `a`, `b`)"),
        (b'{"traceEvents": {"a": 1}}', "(it has `traceEvents`)"),
        (b'{"a": ' + b"[" * 100_000, "it ends early or is not JSON"),
        (b'{"a": 1', "it ends early or is not JSON, and no event is in it"),
        (b"PK\x03\x04 and so on", "is a zip archive"),
        (b"SQLite format 3\x00", "is an SQLite database"),
    ],
)
def test_foreign_files_are_refused_with_a_sentence(tmp_path, content, said):
    with pytest.raises(InputError, match=re.escape(said)) as caught:
        read(saved(tmp_path, content))
    assert "t.json is " in str(caught.value)
    assert "torch.profiler" in caught.value.hint


def test_unreadable_files_are_refused(tmp_path):
    with pytest.raises(InputError, match=r"absent\.json cannot be read: no such file"):
        read(tmp_path / "absent.json")
    with pytest.raises(InputError, match="cannot be read: it is a folder"):
        read(tmp_path)


def test_an_endless_head_or_event_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "PIECE", 100)
    monkeypatch.setattr(module, "LONGEST_HEAD", 1000)
    monkeypatch.setattr(module, "LONGEST_EVENT", 1000)
    with pytest.raises(InputError, match="have no `traceEvents`"):
        read(saved(tmp_path, b'{"a": "' + b"x" * 5000))
    with pytest.raises(InputError, match="one event is longer than"):
        read(saved(tmp_path, b'{"traceEvents": [{"name": "' + b"x" * 5000))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text('ab\\"{}[],:\n\u00e9', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(st.lists(st.dictionaries(st.text('k"\\{}', max_size=3), json_values), max_size=6),
       st.booleans())  # fmt: skip
def test_scan_finds_the_objects_of_any_list(objects, spaced):
    text = json.dumps(objects, indent=1 if spaced else None).encode()
    spans, end, broken = scan(text, 1)
    assert [json.loads(text[first:last]) for first, last in spans] == objects
    assert (end, broken) == (len(text) - 1, False)
