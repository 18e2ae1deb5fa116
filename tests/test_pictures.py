"""The pictures of ``docs/images`` are of what they show now; ``make pictures`` draws them."""

from __future__ import annotations

import re

from tests.tools.draw_pictures import IMAGES, MADE_FROM, PICTURES, outdated


class TestThePictures:
    def test_are_not_older_than_what_they_show(self) -> None:
        older = [name for picture in outdated() for name in picture.names]

        assert older == [], f"run `make pictures`, which draws {' '.join(older)} again"

    def test_are_all_drawn_by_it(self) -> None:
        drawn = {name for picture in PICTURES for name in picture.names}

        assert {path.name for path in IMAGES.iterdir()} - {MADE_FROM.name} == drawn

    def test_have_sources_that_exist(self) -> None:
        assert [picture.names for picture in PICTURES if not picture.files] == []

    def test_load_nothing(self) -> None:
        links = re.compile(r"(?:url|href)\W+\w+:[^)\"]*")
        texts = {path.name: path.read_text(encoding="utf-8") for path in IMAGES.glob("*.svg")}

        assert [name for name, text in texts.items() if links.search(text)] == []
