"""A price says what it is: kind, date, source, and the chip that it is inherited from."""

import pytest

from scalewise.catalog import load_cluster, names
from scalewise.errors import InputError
from scalewise.price import mixed_kinds


def test_every_price_of_the_catalog_has_a_kind_and_a_source_with_its_date():
    found = {name: load_cluster(name).price for name in names("clusters")}
    priced = {name: price for name, price in found.items() if price is not None}
    assert len(priced) == 29
    for name, price in priced.items():
        assert price.kind in ("list", "market", "reserved"), name
        assert price.date[:2] == "20" or "undated copy" in price.source, name
        assert len(price.source) > 10, name


def test_the_price_of_a_cloud_and_of_its_chip():
    price = load_cluster("aws-p5").price
    assert (price.usd_per_hour, price.kind, price.date) == (6.88, "list", "2026-11")
    assert (price.region, price.chip, price.words) == ("us-east-1", "", "list 2026-11")
    price = load_cluster("gcp-a3-mega").price
    assert (price.usd_per_hour, price.words) == (2.95, "market 2026-05")
    assert price.chip == "h100-sxm-80gb"
    assert load_cluster("gb200-nvl72").price is None
    assert load_cluster("gcp-tpu-v5p").price.words == "list undated"


def test_a_changed_price_is_yours():
    price = load_cluster("aws-p5").with_(usd_per_hour="$3/h").price
    assert (price.usd_per_hour, price.words) == (3.0, "yours")
    assert (price.source, price.region, price.chip) == ("", "", "")
    kept = load_cluster("aws-p5").with_(usd_per_hour=3.0, price_kind="reserved").price
    assert kept.kind == "reserved"
    assert load_cluster("aws-p5").with_(accelerators=16).price.kind == "list"


def test_a_price_of_ones_own_catalog_is_yours(tmp_path):
    path = tmp_path / "mine.toml"
    path.write_text('accelerator = "h100"\nusd_per_hour = "$2/h"\n')
    assert load_cluster(str(path)).price.words == "yours"


def test_a_kind_must_be_known():
    with pytest.raises(InputError, match="unknown price_kind cheap"):
        load_cluster("aws-p5").with_(price_kind="cheap")


def test_kinds_that_stand_side_by_side():
    found = [(name, load_cluster(name).price) for name in ("dgx-h100", "oci-h100", "aws-p5")]
    assert mixed_kinds(found) == "market (dgx-h100), list (oci-h100, aws-p5)"
    assert mixed_kinds(found[1:]) == ""
