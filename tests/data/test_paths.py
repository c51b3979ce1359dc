from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from okapi.data.sample_files import leads_out, missing_files


@given(st.lists(st.sampled_from(["..", ".", "a", "b.jpg", ""]), min_size=1), st.booleans())
def test_what_leads_out_is_what_resolves_outside(parts, absolute):
    name = ("/" if absolute else "") + "/".join(parts)
    root = Path("/nowhere/root")
    inside = Path(*(part for part in root.parts)).joinpath(name)
    resolved: list[str] = []
    for part in inside.parts:
        if part == "..":
            resolved = resolved[:-1] if len(resolved) > 1 else resolved
        else:
            resolved.append(part)
    assert leads_out(name) == (not Path(*resolved).is_relative_to(root))


def test_what_is_missing_is_told_with_its_folder(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "1.jpg").touch()
    names = ["a/1.jpg", "a/2.jpg", "b/1.jpg", "3.jpg"]
    assert missing_files(tmp_path, names) == {row: f"{tmp_path / names[row]} does not exist" for row in (1, 2, 3)}
