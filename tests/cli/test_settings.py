from pathlib import Path

import pytest
from kernelscape.cli.settings import (
    Settings,
    SettingsError,
    load_settings,
    parse_duration,
    parse_share,
    parse_sizes,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("2m", 120), ("500ms", 0.5), ("1h", 3600), ("90", 90), ("1.5s", 1.5), (7, 7)],
)
def test_durations(text: str | int, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "s", "0s", "-3s", "3 weeks", "1.2.3s", "nan"])
def test_bad_durations_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a duration such as"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("text", "share"), [("5%", 0.05), ("0.05", 0.05), ("0", 0.0), ("12.5%", 0.125)]
)
def test_shares(text: str, share: float) -> None:
    assert parse_share(text) == pytest.approx(share)


@pytest.mark.parametrize("text", ["5", "100%", "-1%", "x", "nan"])
def test_bad_shares_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a share such as"):
        parse_share(text)


@pytest.mark.parametrize(
    ("texts", "sizes"),
    [
        (["n=2^24"], {"n": 1 << 24}),
        (["n=4096,m=100"], {"n": 4096, "m": 100}),
        (["n=4096", "m=2**3"], {"n": 4096, "m": 8}),
        (["n = 1_000"], {"n": 1000}),
        (["n=1e3,m=4k", "k=2M"], {"n": 1000, "m": 4096, "k": 2 << 20}),
        ([], {}),
    ],
)
def test_sizes(texts: list[str], sizes: dict[str, int]) -> None:
    assert parse_sizes(texts) == sizes


@pytest.mark.parametrize(
    "text", ["n", "n=", "n=0", "n=-4", "n=2^60", "n=1,n=2", "=4", "n=9^99", "n=4.5"]
)
def test_bad_sizes_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="size"):
        parse_sizes([text])


def test_precedence(tmp_path: Path) -> None:
    user = tmp_path / "config" / "kernelscape" / "config.toml"
    user.parent.mkdir(parents=True)
    user.write_text('seed = 2\ngap = "1%"\ntime_limit = "10s"\nmax_evals = 5\nfinal_top = 3\n')
    (tmp_path / "pyproject.toml").write_text(
        '[tool.kernelscape]\nseed = 3\ngap = "2%"\ntime_limit = 20\nmax_evals = 6\n'
    )
    (tmp_path / "kernelscape.toml").write_text('seed = 4\ngap = "3%"\ntime_limit = "30s"\n')
    environ = {
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "KERNELSCAPE_SEED": "5",
        "KERNELSCAPE_GAP": "4%",
    }
    got = load_settings({"seed": 6, "strategy": None}, environ=environ, folder=tmp_path)
    assert (got.seed, got.gap, got.time_limit_s, got.max_evals, got.final_top) == (
        6,
        0.04,
        30.0,
        6,
        3,
    )
    assert got.strategy == Settings().strategy
    assert got.origins["seed"] == "--seed"
    assert got.origins["gap"] == "KERNELSCAPE_GAP"
    assert got.origins["time_limit"].endswith("kernelscape.toml")
    assert got.origins["max_evals"].endswith("pyproject.toml")
    assert "strategy" not in got.origins
    assert got.given == {"seed": "6", "gap": "4%", "time_limit": "30s", "max_evals": "6", "final_top": "3"}  # fmt: skip


def test_config_file_replaces_the_found_ones(tmp_path: Path) -> None:
    (tmp_path / "kernelscape.toml").write_text("seed = 4\n")
    other = tmp_path / "other.toml"
    other.write_text("final_top = 2\n")
    got = load_settings({}, config=other, environ={}, folder=tmp_path)
    assert (got.seed, got.final_top) == (1, 2)


def test_unknown_variable_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="KERNELSCAPE_SEDE: there is no setting 'sede'"):
        load_settings({}, environ={"KERNELSCAPE_SEDE": "1"}, folder=tmp_path)
