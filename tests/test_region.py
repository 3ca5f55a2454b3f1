"""Regions: carbon intensity and price of electricity, each with year and source."""

import pytest

from scalewise.catalog.regions import load_region, region_names
from scalewise.errors import InputError
from scalewise.region import Region


def test_every_region_has_year_and_source():
    assert len(region_names()) == 14
    for name in region_names():
        region = load_region(name)
        assert 0.0 < region.kg_per_kwh < 1.0, name
        assert region.carbon_year in ("2023", "2024", "2025"), name
        assert len(region.carbon_source) > 10, name
        assert (region.usd_per_kwh is None) == (region.price_source == ""), name


def test_numbers_of_some_regions():
    assert load_region("France").kg_per_kwh == 0.041
    assert load_region("usa").usd_per_kwh == 0.0806
    assert load_region("world").kg_per_kwh == 0.445
    assert load_region("south africa").usd_per_kwh is None


def test_an_unknown_region_and_a_wrong_number():
    with pytest.raises(InputError, match="--region atlantis: unknown region"):
        load_region("atlantis")
    with pytest.raises(InputError, match="kg_per_kwh = -1 must be at least 0"):
        Region(name="x", kg_per_kwh=-1.0, carbon_year="2024", carbon_source="here")


def test_ones_own_table_stands_before(tmp_path, monkeypatch):
    (tmp_path / "regions.toml").write_text(
        '[iceland]\nkg_per_kwh = 0.028\ncarbon_year = "2024"\ncarbon_source = "ours"\n'
    )
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path))
    assert load_region("iceland").kg_per_kwh == 0.028
    assert load_region("france").kg_per_kwh == 0.041
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "regions.toml").write_text("[iceland]\nwind = 1\n")
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path / "other"))
    with pytest.raises(InputError, match="region `iceland`"):
        load_region("iceland")


@pytest.mark.parametrize(
    ("text", "message"), [("iceland = 1", "region `iceland` is no table"),
                          ("sources = 1", "`sources` is no table")]
)  # fmt: skip
def test_what_is_no_table_is_refused(text, message, tmp_path, monkeypatch):
    (tmp_path / "regions.toml").write_text(text)
    monkeypatch.setenv("SCALEWISE_CATALOG", str(tmp_path))
    with pytest.raises(InputError, match=message):
        load_region("iceland")
