"""Breakdowns: named parts that add up, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from scalewise.numeric import Num


class Breakdown:
    """Base of frozen data classes with slots whose fields are all parts of one sum."""

    __slots__: tuple[str, ...] = ()

    def parts(self) -> dict[str, Num]:
        """The parts by name, in order."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def total(self) -> Num:
        """Their sum, added in order, so that one row and many give the same bits."""
        total: Num = 0.0
        for value in self.parts().values():
            total = total + value
        return total
