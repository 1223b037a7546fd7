"""The part of a report that a terminal shows."""

from harness.cli.page import tables, verdicts

PAGE = """# skyrl: a \\| b

> **No verdict.** Said so.
>
> And so[^1].

- **status**: finished
  - a sub-point

## Placements

| Model | Colocated | wall |
| :-- | --: | --: |
| tiny \\| small | –[^1] | -32.4%[^2] |

A note about it.

## Where a step goes

### colocated

| Phase | Avg time |
| :-- | --: |
| Train | 0.28 s |
| **Total step** | **12.38 s** |

<details><summary>timers</summary>

| hidden | x |
| :-- | --: |
| y | z |

</details>

## Failures

| not | shown |
| :-- | :-- |
| a | b |
"""


def test_verdicts_are_plain_text_without_empty_quotes() -> None:
    assert verdicts(PAGE).splitlines() == [
        "skyrl: a | b",
        "",
        "No verdict. Said so.",
        "And so.",
        "",
        "- status: finished",
    ]


def test_the_tables_people_come_for_are_aligned() -> None:
    assert tables(PAGE).splitlines() == [
        "Placements",
        "",
        "Model         Colocated    wall",
        "tiny | small          –  -32.4%",
        "",
        "Where a step goes",
        "",
        "colocated",
        "",
        "Phase       Avg time",
        "Train         0.28 s",
        "Total step   12.38 s",
    ]
