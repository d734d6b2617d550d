"""What a page says, so that a shorter one can be compared with it."""

from __future__ import annotations

from tools.reference.vanished import items, plain, stands

OLD = """
Keep `eks.data_buckets` and at most ten files, 4,800 MB or 30 seconds: "no such page".

```bash
trn nodes stop compute1 --force   # FORCE_IT
```
"""


def test_what_a_page_says() -> None:
    assert set(items(OLD)) == {
        ("command", "trn nodes stop"),
        ("option", "--force"),
        *(("name", name) for name in ("data_buckets", "FORCE_IT")),
        ("code", "eks.data_buckets"),
        ("text", "no such page"),
        *(("number", number) for number in ("10 files", "4,800 MB", "30 seconds")),
    }


def test_where_it_still_stands() -> None:
    assert stands("10 files", plain("ten files"))
    assert stands("--force", "trn nodes stop --force.")
    assert not stands("--force", "--force-all")
    assert not stands("data_buckets", "my_data_buckets")
