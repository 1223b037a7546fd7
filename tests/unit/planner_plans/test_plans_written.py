"""The files of a plan: together, or none of them in place of an earlier plan's."""

import pytest
from plans_by_hand import COLOCATED, SPLIT, calibrated

from reports.planned import planned
from results.planner.plans import plan

FILES = ("front.png", "front.svg", "plan.json", "plan.md")


@pytest.mark.parametrize("at", ["plan_page", "document_of"])
def test_a_plan_that_fails_leaves_an_earlier_one_as_it_was(tmp_path, monkeypatch, at):
    def there():
        return {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def stop(*_):
        assert list(tmp_path.rglob(".new-*/front.png"))  # it was drawn before
        raise RuntimeError

    earlier, later = (
        plan(calibrated(), asked, gpus=8, draws=2, updates=10) for asked in ([COLOCATED], [COLOCATED, SPLIT])
    )
    planned.write_plan(earlier, tmp_path)
    before = there()
    assert sorted(before) == list(FILES)
    with monkeypatch.context() as patched:
        patched.setattr(planned, at, stop)
        with pytest.raises(RuntimeError):
            planned.write_plan(later, tmp_path)
    assert there() == before
    assert [path.name for path in planned.write_plan(later, tmp_path)] == ["plan.md", "plan.json", "front.png"]
    assert {name for name in FILES if before[name] != there()[name]} == set(FILES)
