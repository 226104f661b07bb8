"""Text for a made-up history: code, logs, listings, diffs and prose, JSON-escaped, as dense as real text is."""

from __future__ import annotations

import random
from typing import Final

import orjson

SYLLABLES: Final = """
con re de pro in ex com dis un per sta tra ver lo ma ri ta no si la ne mo te li ro do ca pa mi so fi le be ra po vi tor
ment tion ing ed er ly al ous ive ent ance ity ness ure form port ject spect duct struct scrib fer cess
"""
COMMON: Final = """
the of to and a in is it that for on with as this be are not from by at or an have if when which can we was so but all
then one no its will there their what into more should file test error value function return call line data read write
check path type name list run build fails because before after only first last new old same other
"""
LANGUAGES: Final = ("python", "go", "typescript", "rust")


class Pool:
    """Blocks of about 700 bytes of JSON-escaped text of each kind, drawn at random into passages.

    Deterministic by seed; about two seconds and ``megabytes`` of memory.
    """

    def __init__(self, seed: int, megabytes: int = 24) -> None:
        rng = random.Random(seed)
        self._words = words(rng)
        self._common = COMMON.split()
        self._weights = _cumulative(len(self._words))
        makers = {
            "code": self._code,
            "log": self._log,
            "listing": self._listing,
            "diff": self._diff,
            "prose": self._prose,
        }
        shares = {"code": 0.38, "log": 0.22, "listing": 0.12, "diff": 0.1, "prose": 0.18}
        self.blocks: dict[str, list[bytes]] = {}
        for kind, make in makers.items():
            wanted, blocks = int(megabytes * 1e6 * shares[kind]), []
            size = 0
            while size < wanted:
                text = "\n".join(make(rng)) + "\n"
                block = orjson.dumps(text)[1:-1]
                blocks.append(block)
                size += len(block)
            self.blocks[kind] = blocks
        self.kinds = list(shares)
        self.kind_weights = list(shares.values())

    def passage(self, rng: random.Random, size: int, kind: str | None = None) -> bytes:
        """Return about ``size`` bytes of one kind."""
        blocks = self.blocks[kind or rng.choices(self.kinds, self.kind_weights)[0]]
        if size < 500:
            block = rng.choice(blocks)
            cut = block[: max(size, 8)].rstrip(b"\\")
            # A cut inside an escape would not be JSON: go back to the last word.
            return cut[: cut.rfind(b" ")] if b" " in cut else b"ok"
        return b"".join(rng.choices(blocks, k=max(1, size // 700)))

    def word(self, rng: random.Random) -> str:
        return rng.choices(self._words, cum_weights=self._weights)[0]

    def _some(self, rng: random.Random, count: int) -> list[str]:
        return rng.choices(self._words, cum_weights=self._weights, k=count)

    def _name(self, rng: random.Random) -> str:
        return "_".join(self._some(rng, rng.randint(1, 2)))

    def _code(self, rng: random.Random) -> list[str]:
        language = rng.choice(LANGUAGES)
        names = [self._name(rng) for _ in range(5)]
        indent = "    " if language in {"python", "rust"} else "\t"
        lines = []
        for _ in range(rng.randint(10, 18)):
            a, b, c = rng.choices(names, k=3)
            number = rng.randint(0, 9999)
            lines.append(
                rng.choice(
                    (
                        f"{indent}{a} = self.{b}({c}, {number})",
                        f"{indent}if {a}.{b} is None:",
                        f"{indent}{indent}return {c}[{number}]",
                        f"def {a}({b}: int, {c}: str) -> None:",
                        f'{indent}raise ValueError("{a} {b} is not a {c}")',
                        f"func ({a[0]} *{b.title()}) {c.title()}(ctx context.Context) error {{",
                        f'{indent}log.Debug("{a}", "{b}", {c})',
                        f"export const {a} = ({b}: {c.title()}): Promise<void> => {{",
                        f"{indent}for {a} in {b}.{c}():",
                        f"{indent}assert {a} == {b}.{c}",
                        f"let {a} = {b}.{c}()?;",
                        f"}} // {' '.join(self._some(rng, 4))}",
                        "",
                    )
                )
            )
        return lines

    def _log(self, rng: random.Random) -> list[str]:
        day, second = rng.randint(1, 28), rng.randint(0, 86_000)
        module, lines = self._name(rng), []
        for _ in range(rng.randint(6, 10)):
            second += rng.randint(0, 3)
            clock = f"{second // 3600:02d}:{second // 60 % 60:02d}:{second % 60:02d}.{rng.randint(0, 999):03d}"
            level = rng.choices(("INFO", "DEBUG", "WARN", "ERROR"), (70, 20, 7, 3))[0]
            words = " ".join(self._some(rng, rng.randint(2, 6)))
            lines.append(f"2026-10-{day:02d}T{clock}Z {level:5s} {module} {words} took={rng.randint(1, 4000)}ms")
        return lines

    def _listing(self, rng: random.Random) -> list[str]:
        folder = "/".join(["src", *self._some(rng, rng.randint(1, 3))])
        return [
            f"{folder}/{self._name(rng)}.{rng.choice(('py', 'go', 'ts', 'rs', 'md'))}:{rng.randint(1, 900)}:"
            f"{rng.choice(('', '    '))}{' '.join(self._some(rng, 3))}"
            for _ in range(rng.randint(9, 14))
        ]

    def _diff(self, rng: random.Random) -> list[str]:
        code = [line for line in self._code(rng) if line]
        head = f"@@ -{rng.randint(1, 900)},7 +{rng.randint(1, 900)},9 @@ {self._name(rng)}"
        return [head, *(rng.choice((" ", " ", "+", "-")) + line for line in code)]

    def _prose(self, rng: random.Random) -> list[str]:
        lines = []
        for _ in range(rng.randint(4, 7)):
            words = [
                rng.choice(self._common) if rng.random() < 0.55 else self.word(rng) for _ in range(rng.randint(10, 24))
            ]
            lines.append(" ".join(words).capitalize() + rng.choice((".", ".", ":", " — and so on.", "?")))
        return lines


def words(rng: random.Random) -> list[str]:
    """Return the vocabulary, the most frequent words first; a pool's is that of a fresh generator of its seed."""
    found = dict.fromkeys(COMMON.split())
    syllables = SYLLABLES.split()
    while len(found) < 20_000:
        found["".join(rng.choices(syllables, k=rng.choice((1, 2, 2, 3, 3, 4))))] = None
    return list(found)


def _cumulative(count: int) -> list[float]:
    total, weights = 0.0, []
    for rank in range(count):
        total += 1 / (rank + 8)
        weights.append(total)
    return weights
