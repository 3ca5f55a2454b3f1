"""Breakdowns: named parts that add up, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from scalewise.numeric import Num


class Breakdown:
    """Base of frozen data classes with slots whose fields are all parts of one sum."""

    __slots__: tuple[str, ...] = ()
    LAST: ClassVar[tuple[str, ...]] = ()
    """Parts that differ between most strategies: they are added to the sum of the others."""

    def parts(self) -> dict[str, Num]:
        """The parts by name, in order."""
        return {name: getattr(self, name) for name in self.__slots__}

    @property
    def total(self) -> Num:
        """Their sum, added in one order, so that one row and many give the same bits."""
        total: Num = 0.0
        parts = self.parts()
        for name, value in parts.items():
            if name not in self.LAST:
                total = total + value
        for name in self.LAST:
            total = total + parts[name]
        return total
