"""Units: what people write, what we read; what we compute, what we print."""

import math

import pytest

from scalewise.errors import InputError
from scalewise.units import (
    KINDS,
    format_bit_rate,
    format_bytes,
    format_column,
    format_count,
    format_dollars,
    format_energy,
    format_flops,
    format_joules,
    format_percent,
    format_rate,
    format_seconds,
    format_watts,
    grouped,
    parse,
    parse_count,
)


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("80GiB", "bytes", 85_899_345_920),
        ("80GB", "bytes", 80e9),
        ("80 gb", "bytes", 80e9),
        ("81559MiB", "bytes", 85_520_809_984),
        ("512", "bytes", 512),
        (80e9, "bytes", 80e9),
        ("3.35TB/s", "bytes_per_second", 3.35e12),
        ("400Gbit/s", "bytes_per_second", 50e9),
        ("400Gbps", "bytes_per_second", 50e9),
        ("400 gbps", "bytes_per_second", 50e9),
        ("50GBps", "bytes_per_second", 50e9),
        ("96GiB/s", "bytes_per_second", 103_079_215_104),
        ("989TFLOP/s", "flops_per_second", 989e12),
        ("1.2 PFLOPS", "flops_per_second", 1.2e15),
        ("989T", "flops_per_second", 989e12),
        ("5us", "seconds", 5e-6),
        ("5\u00b5s", "seconds", 5e-6),
        ("2ms", "seconds", 2e-3),
        ("1.5h", "seconds", 5400),
        ("10min", "seconds", 600),
        ("700W", "watts", 700),
        ("1.2kW", "watts", 1200),
        ("20MW", "watts", 20e6),
        ("1830MHz", "hertz", 1.83e9),
        ("$2.5/h", "dollars_per_hour", 2.5),
        ("2.5$/h", "dollars_per_hour", 2.5),
        ("USD 2.5 / hour", "dollars_per_hour", 2.5),
        (2.5, "dollars_per_hour", 2.5),
        ("1k", "count", 1000),
        ("2048", "count", 2048),
        ("16,384", "count", 16384),
        ("15T", "tokens", 15e12),
        ("300B", "tokens", 300e9),
        ("1.4T tokens", "tokens", 1.4e12),
        ("1e12", "tokens", 1e12),
    ],
)
def test_parse(text, kind, expected):
    assert parse(text, kind) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("80GB/s", "bytes"),
        ("80Gbit", "bytes"),
        ("400GB", "bytes_per_second"),
        ("400Gbits", "bytes_per_second"),
        ("5W", "seconds"),
        ("1mW", "watts"),
        ("$3/day", "dollars_per_hour"),
        ("2.5", "count"),
        ("8 GPUs", "count"),
        ("lots", "tokens"),
        ("", "bytes"),
        ("-5us", "seconds"),
        ("nan", "seconds"),
        (math.inf, "watts"),
        (math.nan, "bytes"),
        (True, "count"),
        (None, "bytes"),
    ],
)
def test_parse_refuses(text, kind):
    with pytest.raises(InputError) as caught:
        parse(text, kind)
    assert f"`{text}`" in str(caught.value)


def test_small_units_are_exact():
    assert parse("5us", "seconds") == 5e-6
    assert parse("145us", "seconds") == 145e-6


def test_wrong_unit_names_text_and_forms():
    with pytest.raises(InputError) as caught:
        parse("400GB", "bytes_per_second")
    assert str(caught.value) == "`400GB` is not a value in bytes per second"
    assert caught.value.hint == "write it as 3.35TB/s, 450GB/s, 400Gbit/s, 400Gbps"


def test_every_example_in_a_hint_is_accepted():
    for kind, known in KINDS.items():
        for form in known.forms.split(", "):
            assert parse(form, kind) > 0


def test_unknown_kind():
    with pytest.raises(InputError) as caught:
        parse("1", "byte")
    assert caught.value.hint is not None
    assert "`bytes`" in caught.value.hint


def test_parse_count_is_an_int():
    assert parse_count("2k") == 2000
    assert isinstance(parse_count("2k"), int)


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (format_bytes(45.1 * 2**30), "45.1 GiB"),
        (format_bytes(80 * 2**30), "80.0 GiB"),
        (format_bytes(1023.9 * 2**30), "1.00 TiB"),
        (format_bytes(0), "0 B"),
        (format_bytes(1536), "1.50 KiB"),
        (format_rate(450e9), "450 GB/s"),
        (format_rate(3.35e12), "3.35 TB/s"),
        (format_bit_rate(50e9), "400 Gbit/s"),
        (format_flops(412.3e12), "412 TFLOP/s"),
        (format_flops(999.9e12), "1.00 PFLOP/s"),
        (format_seconds(0.0123), "12.3 ms"),
        (format_seconds(5e-6), "5.00 us"),
        (format_seconds(0), "0 s"),
        (format_seconds(90), "90.0 s"),
        (format_seconds(600), "10.0 min"),
        (format_seconds(3 * 3600), "3.00 h"),
        (format_seconds(54 * 86400), "54.0 days"),
        (format_watts(620.4), "620 W"),
        (format_watts(10_200), "10.2 kW"),
        (format_joules(0.381), "0.381 J"),
        (format_joules(2.1e9), "2.10 GJ"),
        (format_energy(433 * 3.6e9), "433 MWh"),
        (format_energy(3600 * 12), "12.0 Wh"),
        (format_dollars(math.nan), "$nan"),
        (format_count(math.inf), "inf"),
        (format_dollars(0.1534), "$0.153"),
        (format_dollars(12.3), "$12.30"),
        (format_dollars(4120.4), "$4,120"),
        (format_dollars(3.21e6), "$3.21M"),
        (format_dollars(-2), "-$2.00"),
        (format_count(2048), "2,048"),
        (format_count(16_384), "16.4k"),
        (format_count(8.03e9), "8.03B"),
        (format_count(15e12), "15.0T"),
        (format_percent(0.4077), "40.8%"),
        (format_percent(-0.0004), "0.0%"),
        (format_percent(0.1834, sign=True, decimals=0), "+18%"),
        (format_percent(0.0001, sign=True), "0.0%"),
        (format_seconds(math.inf), "inf"),
    ],
)
def test_format(shown, expected):
    assert shown == expected


@pytest.mark.parametrize(
    ("formatter", "kind", "value"),
    [
        (format_bytes, "bytes", 3.5 * 2**20),
        (format_rate, "bytes_per_second", 2.4e12),
        (format_bit_rate, "bytes_per_second", 25e9),
        (format_flops, "flops_per_second", 1.98e15),
        (format_seconds, "seconds", 1.25e-4),
        (format_watts, "watts", 1400.0),
        (format_count, "count", 131e9),
    ],
)
def test_what_is_printed_can_be_read_back(formatter, kind, value):
    assert parse(formatter(value), kind) == pytest.approx(value, rel=5e-3)


@pytest.mark.parametrize(
    ("value", "text"),
    [(7993.98, "7,990"), (85.64, "85.6"), (1.0, "1.00"), (0.01234, "0.0123"), (0, "0"),
     (999999, "1,000,000"), (9.999, "10.0"), (99.97, "100"), (-12.345, "-12.3")],
)  # fmt: skip
def test_three_significant_digits_with_their_zeros(value, text):
    assert grouped(value) == text


@pytest.mark.parametrize(
    ("values", "texts"),
    [
        ([11486.0, 9490.4], ["11,500", "9,490"]),
        ([11486.0, 98.71], ["11,500", "99"]),
        ([195.7, 93.42], ["195.7", "93.4"]),
        ([15.7, 16.0, None], ["15.7", "16.0", "-"]),
        ([0.0736, 0.102], ["0.0736", "0.1020"]),
        ([2.2, 2.2249], ["2.20", "2.22"]),
        ([0.0, 0.0], ["0", "0"]),
        ([], []),
    ],
)
def test_columns_have_one_number_of_decimals(values, texts):
    assert format_column(values) == texts
