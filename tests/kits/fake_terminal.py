"""A terminal of 80 columns, simulated: the part of ECMA-48 that pytest and we use."""

import io
import re


class FakeTerminal(io.StringIO):
    """Takes what is written and knows what would be seen."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.row, self.column = [""], 0, 0

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        for part in re.findall(r"\x1b\[[\d;]*[A-Za-z]|[\r\n]|[^\x1b\r\n]", text):
            if part == "\n":
                self.row, self.column = self.row + 1, 0
                self.rows += [""] * (self.row + 1 - len(self.rows))
            elif part == "\r":
                self.column = 0
            elif part.startswith("\x1b"):
                self._control(part[-1], part[2:-1])
            else:
                self._put(part)
        return len(text)

    def _put(self, letter: str) -> None:
        if self.column == 80:
            self.write("\n")
        line = self.rows[self.row].ljust(self.column)
        self.rows[self.row] = line[: self.column] + letter + line[self.column + 1 :]
        self.column += 1

    def _control(self, letter: str, number: str) -> None:
        if letter == "A":
            self.row -= int(number or 1)
        elif letter == "G":
            self.column = int(number) - 1
        elif letter == "J":
            self.rows[self.row] = self.rows[self.row][: self.column]
            del self.rows[self.row + 1 :]
        else:
            assert letter == "m", f"\\x1b[{number}{letter}"

    @property
    def shown(self) -> list[str]:
        """What is to be seen: the rows that are not empty."""
        return [row.rstrip() for row in self.rows if row.strip()]
